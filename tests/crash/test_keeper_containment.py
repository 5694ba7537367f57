"""Nothing outlives its lease, its worker or its keeper: real processes, real signals (case 23)."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from fencepost.adapters.executors import command, proof, tree
from fencepost.adapters.executors.command import CommandExecutor, CommandRun
from fencepost.ports.executor import Ended, Job
from fencepost.testing.conformance.executor import LEASE_US, WAIT_S, local_boot_id, make_job, until

# Appends to a file for ever, deaf to SIGTERM, without marker and lock: only descent betrays it.
GROWER = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
os.closerange(3, 256)
while True:
    with open(sys.argv[1], "a") as file:
        file.write("x")
    time.sleep(0.01)
"""

# Starts growers in every way that leaves the process group, then waits for them or goes.
TOOL = """
import os, sys, time
grower, folder, linger = sys.argv[1], sys.argv[2], float(sys.argv[3])
def grow(name, environment):
    arguments = [sys.executable, "-I", "-S", "-c", grower, os.path.join(folder, name)]
    os.execve(sys.executable, arguments, environment)
if os.fork() == 0:
    if os.fork() == 0:
        grow("double-fork", {})
    os._exit(0)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        grow("setsid", {})
    os._exit(0)
if os.fork() == 0:
    grow("deaf", dict(os.environ))
names = ("double-fork", "setsid", "deaf")
while not all(os.path.exists(os.path.join(folder, name)) for name in names):
    time.sleep(0.005)
print("ready", flush=True)
time.sleep(linger)
"""
GROWING = ("double-fork", "setsid", "deaf")

# A worker that starts one job and tells how it ended.
WORKER = """
import sys, msgspec
from fencepost.adapters.executors.command import CommandExecutor
from fencepost.ports.executor import Job
job = msgspec.json.decode(sys.stdin.buffer.readline(), type=Job)
executor = CommandExecutor()
running = executor.start(job, int(sys.argv[1]))
print(running.pid, executor._host.pid, flush=True)
ended = running.wait(None)
print(msgspec.json.encode(ended).decode(), flush=True)
"""


class Worker:
    """A real worker process."""

    def __init__(self, job: Job, deadline_tick_us: int, **options: object) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", WORKER, str(deadline_tick_us)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            **options,  # type: ignore[call-overload]  # options of Popen, chosen by the test
        )
        self.process.stdin.write(msgspec.json.encode(job) + b"\n")
        self.process.stdin.flush()
        self.keeper, self.host = (int(word) for word in self.process.stdout.readline().split())

    def ended(self) -> Ended:
        return msgspec.json.decode(self.process.stdout.readline(), type=Ended)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@contextlib.contextmanager
def worker(job: Job, deadline_tick_us: int, **options: object) -> Iterator[Worker]:
    it = Worker(job, deadline_tick_us, **options)
    try:
        yield it
    finally:
        it.kill()
        it.process.stdin.close()
        it.process.stdout.close()


@pytest.fixture
def executor() -> Iterator[CommandExecutor]:
    with contextlib.closing(CommandExecutor()) as made:
        yield made


def tool(folder: Path, *, linger_s: float = 60, **changes: object) -> Job:
    arguments = (sys.executable, "-I", "-S", "-c", TOOL, GROWER, str(folder), str(linger_s))
    return make_job(folder, *arguments, **changes)  # type: ignore[arg-type]  # passed through


def alive(folder: Path) -> list[int]:
    """Processes that name the folder on their command line."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):
                if os.fsencode(folder) in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
    return found


def assert_gone(folder: Path, names: tuple[str, ...] = GROWING) -> None:
    """Nothing lives and nothing grows."""
    assert alive(folder) == []
    sizes = [(folder / name).stat().st_size for name in names]
    assert all(sizes)
    time.sleep(0.1)
    assert [(folder / name).stat().st_size for name in names] == sizes


def gone_within(seconds: float, check: Callable[[], bool]) -> float:
    """How long it took until `check` held."""
    start = time.monotonic()
    while not check():
        assert time.monotonic() - start < seconds, f"still there after {seconds} s"
        time.sleep(0.01)
    return time.monotonic() - start


def running_tool(executor: CommandExecutor, job: Job) -> CommandRun:
    running = executor.start(job, tree.tick_us() + LEASE_US)
    until(Path(job.stdout_path), "ready")
    return running


def test_case_23_stop_order_ends_detached_members(executor: CommandExecutor, tmp_path: Path) -> None:
    running = running_tool(executor, tool(tmp_path))
    running.stop("stopped", 300_000)
    ended = running.wait(WAIT_S)
    assert ended is not None
    assert (ended.reason, ended.signal, ended.tree_empty) == ("stopped", signal.SIGTERM, True)
    assert_gone(tmp_path)


def test_case_23_a_second_stop_shortens_the_grace(executor: CommandExecutor, tmp_path: Path) -> None:
    running = running_tool(executor, tool(tmp_path))
    running.stop("stopped", 30_000_000)
    assert running.wait(0.2) is None
    running.stop("stopped", 0)
    assert running.wait(2) is not None
    assert_gone(tmp_path)


def test_case_23_time_limit_ends_detached_members(executor: CommandExecutor, tmp_path: Path) -> None:
    ended = executor.start(tool(tmp_path, time_limit_us=500_000), tree.tick_us() + LEASE_US).wait(WAIT_S)
    assert ended is not None
    assert (ended.reason, ended.tree_empty) == ("timeout", True)
    assert_gone(tmp_path)


def test_case_23_what_a_finished_command_leaves_is_stopped(executor: CommandExecutor, tmp_path: Path) -> None:
    ended = executor.start(tool(tmp_path, linger_s=0), tree.tick_us() + LEASE_US).wait(WAIT_S)
    assert ended is not None
    assert (ended.reason, ended.exit_code, ended.tree_empty) == ("exited", 0, True)
    assert "left behind" in ended.message
    assert_gone(tmp_path)


def test_case_23_kill_9_of_the_worker_ends_everything(tmp_path: Path) -> None:
    job = tool(tmp_path)
    with worker(job, tree.tick_us() + LEASE_US) as it:
        until(Path(job.stdout_path), "ready")
        held = proof.holder_proof(job.lock_path, job.attempt, local_boot_id(), same_host=True)
        assert not held.gone
        it.kill()

        def gone() -> bool:
            return proof.holder_proof(job.lock_path, job.attempt, local_boot_id(), same_host=True).gone

        gone_within(4, gone)
        assert_gone(tmp_path)
        # The facts are there for whoever comes next, since the lock is let go after them.
        status = proof.read_status(job.status_path)
        assert status is not None
        assert (status.attempt, status.fence, status.boot_id) == (job.attempt, job.fence, local_boot_id())
        assert (status.ended.reason, status.ended.tree_empty) == ("worker_gone", True)
        assert status.ended.duration_us > 0
        gone_within(2, lambda: not _exists(it.keeper) and not _exists(it.host))


def test_case_23_kill_9_of_the_worker_is_quick_for_a_command_that_listens(tmp_path: Path) -> None:
    job = make_job(tmp_path, "sh", "-c", f"echo ready; : {tmp_path}; sleep 60")
    with worker(job, tree.tick_us() + LEASE_US) as it:
        until(Path(job.stdout_path), "ready")
        it.kill()
        assert gone_within(1, lambda: proof.read_status(job.status_path) is not None) < 1


def test_case_20_worker_stopped_past_its_lease_has_nothing_running(tmp_path: Path) -> None:
    job = tool(tmp_path)
    lease_end_us = tree.tick_us() + 4_000_000
    with worker(job, lease_end_us) as it:
        until(Path(job.stdout_path), "ready")
        it.process.send_signal(signal.SIGSTOP)
        gone_within(5, lambda: not alive(tmp_path))
        spare_us = lease_end_us - tree.tick_us()
        print(f"tree gone {spare_us / 1e6:.2f} s before the lease ended")
        assert spare_us > 0
        assert_gone(tmp_path)
        it.process.send_signal(signal.SIGCONT)
        ended = it.ended()
        assert (ended.reason, ended.tree_empty) == ("lease_lost", True)


def test_case_30_confirmed_leases_carry_a_long_command(executor: CommandExecutor, tmp_path: Path) -> None:
    running = executor.start(make_job(tmp_path, "sleep", "1.2"), tree.tick_us() + 3_400_000)
    ended = None
    while ended is None:
        running.confirm(tree.tick_us() + 3_400_000)
        running.confirm(tree.tick_us() + 1)  # an older answer that comes late shortens nothing
        ended = running.wait(0.1)
    assert (ended.reason, ended.exit_code) == ("exited", 0)


def test_tree_that_keeps_forking_is_caught(executor: CommandExecutor, tmp_path: Path) -> None:
    script = "import os, time\nprint('ready', flush=True)\nwhile True:\n    if os.fork(): os._exit(0)\n"
    child = f"import os\nif os.fork() == 0:\n    os.setsid()\n    exec({script!r})\n" * 1
    job = make_job(tmp_path, sys.executable, "-I", "-S", "-c", f"{child}\nimport time; time.sleep(60)", str(tmp_path))
    running = running_tool(executor, job)
    running.stop("stopped", 0)
    ended = running.wait(WAIT_S)
    assert ended is not None
    assert ended.tree_empty
    assert alive(tmp_path) == []


def test_killed_host_is_replaced_and_its_keepers_go_on(executor: CommandExecutor, tmp_path: Path) -> None:
    first = make_job(tmp_path, "sh", "-c", "echo ready; sleep 0.5; exit 5")
    running = running_tool(executor, first)
    assert executor._host is not None
    os.kill(executor._host.pid, signal.SIGKILL)
    second = make_job(tmp_path, "sh", "-c", "exit 6", attempt="attempt_" + "3" * 32)
    ended = executor.start(second, tree.tick_us() + LEASE_US).wait(WAIT_S)
    assert ended is not None
    assert (ended.reason, ended.exit_code) == ("exited", 6)
    ended = running.wait(WAIT_S)
    assert ended is not None
    assert (ended.reason, ended.exit_code) == ("exited", 5)


def test_slow_host_never_makes_a_command_run_twice(
    executor: CommandExecutor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether it answers just in time, or goes on when it has been given up."""
    monkeypatch.setattr(command, "GREETING_TIME_S_MAX", 1.0)
    for pause_s, runs in ((0.3, "x\n"), (1.3, "x\nx\n")):
        assert executor._host is not None
        host = executor._host.pid
        os.kill(host, signal.SIGSTOP)
        goes_on = threading.Timer(pause_s, _continue, (host,))
        goes_on.start()
        running = executor.start(make_job(tmp_path, "sh", "-c", "echo x >> runs"), tree.tick_us() + LEASE_US)
        goes_on.join()
        ended = running.wait(WAIT_S)
        assert ended is not None
        assert (ended.reason, ended.exit_code) == ("exited", 0)
        assert (executor._host.pid == host) == (pause_s < 1.0)
        time.sleep(0.3)
        assert (tmp_path / "runs").read_text() == runs


def _continue(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)


def test_killed_keeper_leaves_nothing(executor: CommandExecutor, tmp_path: Path) -> None:
    running = running_tool(executor, tool(tmp_path))
    assert running.pid is not None
    os.kill(running.pid, signal.SIGKILL)
    ended = running.wait(WAIT_S)
    assert ended is not None
    assert (ended.reason, ended.tree_empty) == ("keeper_lost", True)
    first, *evidence = ended.message.splitlines()
    assert first == "the keeper was lost" and evidence, "the evidence stands on lines of its own"
    gone_within(2, lambda: not alive(tmp_path))
    assert_gone(tmp_path)


def test_killed_keeper_and_worker_leave_nothing(tmp_path: Path) -> None:
    job = tool(tmp_path)
    with worker(job, tree.tick_us() + LEASE_US) as it:
        until(Path(job.stdout_path), "ready")
        it.kill()
        os.kill(it.keeper, signal.SIGKILL)
        gone_within(2, lambda: not alive(tmp_path))
        assert_gone(tmp_path)
        gone_within(2, lambda: not _exists(it.host))


def test_killed_keeper_and_host_are_swept_by_the_marker(executor: CommandExecutor, tmp_path: Path) -> None:
    running = running_tool(executor, make_job(tmp_path, "sh", "-c", f"echo ready; : {tmp_path}; sleep 60; :"))
    assert running.pid is not None
    assert executor._host is not None
    os.kill(executor._host.pid, signal.SIGKILL)
    os.kill(running.pid, signal.SIGKILL)
    ended = running.wait(WAIT_S)
    assert ended is not None
    assert (ended.reason, ended.tree_empty) == ("keeper_lost", True)
    assert alive(tmp_path) == []


def test_whole_supervision_killed_leaves_what_the_next_worker_can_end(tmp_path: Path) -> None:
    job = make_job(tmp_path, "sh", "-c", f"echo ready; : {tmp_path}; sleep 60; :")
    with worker(job, tree.tick_us() + LEASE_US) as it:
        until(Path(job.stdout_path), "ready")
        os.kill(it.host, signal.SIGKILL)
        os.kill(it.keeper, signal.SIGSTOP)  # so that it cannot act before it is killed
        it.kill()
        os.kill(it.keeper, signal.SIGKILL)
    gone_within(2, lambda: not _exists(it.keeper))
    assert not proof.holder_proof(job.lock_path, job.attempt, local_boot_id(), same_host=True).gone
    other = proof.end_holder(job.lock_path, job.attempt, "another-boot", same_host=False)
    assert (other.gone, alive(tmp_path) == []) == (False, False)
    assert proof.end_holder(job.lock_path, job.attempt, local_boot_id(), same_host=True).gone
    assert alive(tmp_path) == []


def test_terminated_keeper_ends_its_tree_first(executor: CommandExecutor, tmp_path: Path) -> None:
    running = running_tool(executor, make_job(tmp_path, "sh", "-c", "echo ready; sleep 60"))
    assert running.pid is not None
    os.kill(running.pid, signal.SIGTERM)
    ended = running.wait(WAIT_S)
    assert ended is not None
    assert (ended.reason, ended.tree_empty) == ("stopped", True)


def test_held_lock_starts_nothing(executor: CommandExecutor, tmp_path: Path) -> None:
    job = make_job(tmp_path, "sh", "-c", "echo ready; sleep 60")
    running = running_tool(executor, job)
    again = executor.start(job, tree.tick_us() + LEASE_US).wait(0)
    assert again is not None
    assert again.reason == "not_started"
    assert job.lock_path in again.message
    running.stop("stopped", 0)
    assert running.wait(WAIT_S) is not None


def test_dropping_a_run_ends_it(executor: CommandExecutor, tmp_path: Path) -> None:
    job = make_job(tmp_path, "sh", "-c", "echo ready; sleep 60")
    running = running_tool(executor, job)
    os.close(running.fileno())
    gone_within(2, lambda: proof.read_status(job.status_path) is not None)
    running._control.detach()  # type: ignore[union-attr]  # its descriptor is closed above
    status = proof.read_status(job.status_path)
    assert status is not None
    assert status.ended.reason == "worker_gone"


def test_a_lock_that_is_free_is_not_enough(tmp_path: Path) -> None:
    attempt = "attempt_" + "4" * 32
    lock = tmp_path / "lock"
    lock.touch()
    stray = subprocess.Popen(["sleep", "60"], env={"PATH": os.defpath, "FENCEPOST_ATTEMPT": attempt})
    try:
        seen = proof.holder_proof(str(lock), attempt, local_boot_id(), same_host=True)
        assert (seen.gone, seen.lock, seen.pids) == (False, "free", (stray.pid,))
        other = proof.holder_proof(str(lock), attempt[:-1], local_boot_id(), same_host=True)
        assert other.gone
    finally:
        stray.kill()
        stray.wait()
    assert proof.holder_proof(str(lock), attempt, local_boot_id(), same_host=True).gone
    missing = proof.holder_proof(str(tmp_path / "none"), attempt, local_boot_id(), same_host=True)
    assert (missing.gone, missing.lock) == (True, "missing")


@pytest.mark.parametrize("same_host", [True, False])
def test_another_boot_proves_only_on_the_same_host(tmp_path: Path, same_host: bool) -> None:
    seen = proof.holder_proof(str(tmp_path / "lock"), "attempt_x", "another-boot", same_host=same_host)
    assert (seen.gone, seen.lock) == (same_host, "not_examined")
    assert "another-boot" in seen.evidence[0]


def _exists(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def test_an_executor_that_is_closed_starts_nothing(tmp_path: Path) -> None:
    made = CommandExecutor()
    made.close()
    made.close()
    with pytest.raises(RuntimeError):
        made.start(make_job(tmp_path, "true"), tree.tick_us() + LEASE_US)
