"""How commands are started, what they see and what is told about them: real processes through the keeper."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest

from fencepost.adapters.executors import proof, tree
from fencepost.adapters.executors.command import CommandExecutor
from fencepost.adapters.executors.log_reader import read_log
from fencepost.ports.executor import Ended, Job, StatusUnreadable
from fencepost.testing.conformance.executor import LEASE_US, WAIT_S, make_job, until

MIB = 1024 * 1024

WORKER = """
import sys, resource, signal, msgspec
from fencepost.adapters.executors.command import CommandExecutor
from fencepost.adapters.executors import tree
from fencepost.ports.executor import Job
exec(sys.argv[1])
job = msgspec.json.decode(sys.stdin.buffer.readline(), type=Job)
executor = CommandExecutor()
ended = executor.start(job, tree.tick_us() + 30_000_000).wait(20)
executor.close()
sys.stdout.buffer.write(msgspec.json.encode(ended))
"""


@pytest.fixture(scope="module")
def executor() -> Iterator[CommandExecutor]:
    with contextlib.closing(CommandExecutor()) as made:
        yield made


def run(executor: CommandExecutor, job: Job) -> Ended:
    ended = executor.start(job, tree.tick_us() + LEASE_US).wait(WAIT_S)
    assert ended is not None
    return ended


def run_in_worker(job: Job, before: str, **environment: str) -> Ended:
    """Run in a worker process of its own, after it has done `before`."""
    done = subprocess.run(
        [sys.executable, "-c", WORKER, before],
        input=msgspec.json.encode(job) + b"\n",
        stdout=subprocess.PIPE,
        env=os.environ | environment,
        check=True,
    )
    return msgspec.json.decode(done.stdout, type=Ended)


def test_commands_inherit_three_streams_and_the_lock_only(executor: CommandExecutor, tmp_path: Path) -> None:
    other = make_job(tmp_path, "sh", "-c", "echo ready; sleep 60", attempt="attempt_" + "5" * 32)
    running = executor.start(other, tree.tick_us() + LEASE_US)
    until(Path(other.stdout_path), "ready")
    job = make_job(tmp_path, "sh", "-c", "for d in /proc/$$/fd/*; do readlink $d; done; ls /proc/$$/fd; sleep 0.2")
    with open(tmp_path / "store", "w") as store:
        os.set_inheritable(store.fileno(), True)
        mine = executor.start(job, tree.tick_us() + LEASE_US)
        until(Path(job.stdout_path), "20\n")
        descriptors = [os.readlink(each) for each in Path(f"/proc/{mine.pid}/fd").iterdir()]
        assert mine.wait(WAIT_S) is not None
    lines = Path(job.stdout_path).read_text().splitlines()
    assert lines[4:] == ["0", "1", "2", "20"]
    assert lines[0] == "/dev/null"
    assert job.lock_path in lines
    # The keeper itself: null three times, one socket, its pipes, its logs, its lock; nothing of anybody else.
    assert not [each for each in descriptors if each in (other.lock_path, other.stdout_path, store.name)]
    assert descriptors.count(job.lock_path) == 1
    assert len([each for each in descriptors if each.startswith("socket:")]) == 1
    running.stop("stopped", 0)
    assert running.wait(WAIT_S) is not None


def test_worker_does_not_keep_the_lock(executor: CommandExecutor, tmp_path: Path) -> None:
    job = make_job(tmp_path, "sh", "-c", "echo ready; sleep 60")
    running = executor.start(job, tree.tick_us() + LEASE_US)
    kept = [os.readlink(each) for each in Path("/proc/self/fd").iterdir() if os.path.lexists(each)]
    assert job.lock_path not in kept
    running.stop("stopped", 0)
    assert running.wait(WAIT_S) is not None


def test_signals_are_as_at_first(tmp_path: Path) -> None:
    before = (
        "for each in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM, signal.SIGUSR1):"
        " signal.signal(each, signal.SIG_IGN)\n"
        "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2, signal.SIGTERM])"
    )
    job = make_job(tmp_path, "grep", "-E", "^Sig(Blk|Ign)", "/proc/self/status")
    assert run_in_worker(job, before).exit_code == 0
    masks = [int(line.split()[1], 16) for line in Path(job.stdout_path).read_text().splitlines()]
    internal = sum(1 << (number - 1) for number in (32, 33))  # what posix_spawn of glibc leaves ignored
    assert [mask & ~internal for mask in masks] == [0, 0]


def test_command_leads_a_group_of_its_own(executor: CommandExecutor, tmp_path: Path) -> None:
    ended = run(executor, make_job(tmp_path, "sh", "-c", "kill -9 0"))
    assert (ended.reason, ended.signal, ended.tree_empty) == ("exited", signal.SIGKILL, True)


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (("no-such",), "no command no-such on PATH"),
        (("./missing",), "./missing: No such file"),
        (("./plain",), "./plain: Permission denied"),
        (("./folder",), "it is a folder"),
        (("./bad-interpreter",), "interpreter on its first line"),
        (("./not-a-program",), "Exec format error"),
        (("sh", "nul\0nul"), "embedded null"),
        (("sh", "-c", "x" * 3_000_000), "Argument list too long"),
    ],
)
def test_what_cannot_start_says_why(
    executor: CommandExecutor, tmp_path: Path, argv: tuple[str, ...], said: str
) -> None:
    (tmp_path / "plain").write_text("echo no\n")
    (tmp_path / "folder").mkdir()
    for name, text in (("bad-interpreter", "#!/no/such\n"), ("not-a-program", "echo no\n")):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    job = make_job(tmp_path, *argv)
    ended = run(executor, job)
    assert (ended.reason, ended.exit_code, ended.tree_empty) == ("spawn_failed", None, True)
    assert said in ended.message
    status = proof.read_status(job.status_path)
    assert status is not None
    assert status.ended == ended


def test_bad_folder_and_bad_variable_say_why(executor: CommandExecutor, tmp_path: Path) -> None:
    ended = run(executor, make_job(tmp_path, "true", cwd=tmp_path / "none"))
    assert (ended.reason, "cannot work in" in ended.message) == ("not_started", True)
    ended = run(executor, make_job(tmp_path, "true", environment={"A=B": "c"}))
    assert ended.reason == "spawn_failed"
    assert "illegal environment variable name" in ended.message


def test_path_of_the_job_decides(executor: CommandExecutor, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "true").write_text("#!/bin/sh\necho ours\n")
    (tmp_path / "bin" / "true").chmod(0o755)
    job = make_job(tmp_path, "true", environment={"PATH": f"bin:{os.defpath}"})
    assert run(executor, job).exit_code == 0
    assert Path(job.stdout_path).read_text() == "ours\n"


@pytest.mark.parametrize("change", ["cwd", "stdout_path", "lock_path", "argv", "time_limit_us"])
def test_job_that_breaks_its_contract_is_refused(executor: CommandExecutor, tmp_path: Path, change: str) -> None:
    wrong = {"argv": (), "time_limit_us": 0}.get(change, "relative/path")
    job = msgspec.structs.replace(make_job(tmp_path, "true"), **{change: wrong})
    with pytest.raises(ValueError, match=r"job|absolute"):
        executor.start(job, tree.tick_us() + LEASE_US)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("locale", ["C", "C.UTF-8"])
def test_odd_bytes_pass_whatever_the_locale(tmp_path: Path, locale: str) -> None:
    folder = tmp_path / "with space, é and ü"
    folder.mkdir()
    odd = os.fsdecode(b"\xff\xfe") + "ß"
    script = 'printf %s "$1" > "out ö"; printf %s "$ODD" > odd'
    job = make_job(folder, "sh", "-c", script, "sh", odd, environment={"ODD": odd})
    # JSON between test and worker carries text only; the odd bytes are put in on the worker's side.
    plain = msgspec.structs.replace(job, argv=(*job.argv[:-1], "?"), environment={"PATH": os.defpath, "ODD": "?"})
    before = (
        "import os\nplain = msgspec.json.decode\n"
        "odd = os.fsdecode(b'\\xff\\xfe') + 'ß'\n"
        "msgspec.json.decode = lambda data, type: msgspec.structs.replace(plain(data, type=type),"
        " argv=(*plain(data, type=type).argv[:-1], odd), environment={'PATH': os.defpath, 'ODD': odd})"
    )
    ended = run_in_worker(plain, before, LANG=locale, LC_ALL=locale)
    assert ended.exit_code == 0, ended.message
    assert (folder / "out ö").read_bytes() == os.fsencode(odd)
    assert (folder / "odd").read_bytes() == os.fsencode(odd)


def test_huge_output_neither_fills_the_disk_nor_blocks(executor: CommandExecutor, tmp_path: Path) -> None:
    script = "echo first; head -c 300000000 /dev/zero; echo; echo last; head -c 5000000 /dev/zero >&2"
    job = make_job(tmp_path, "sh", "-c", script, log_head_bytes=MIB, log_tail_bytes=MIB)
    running = executor.start(job, tree.tick_us() + LEASE_US)
    ended = None
    most = 0
    while ended is None:
        ended = running.wait(0.02)
        most = max(most, _disk_used(tmp_path))
    assert ended.exit_code == 0
    assert most <= 2 * 4 * MIB + 64 * 1024
    assert (ended.stdout.bytes_total, ended.stdout.head_bytes, ended.stdout.tail_bytes) == (
        300000012,
        MIB,
        MIB,
    )
    assert ended.stderr.gap_bytes == 5_000_000 - 2 * MIB
    view = read_log(job.stdout_path)
    assert view.head.startswith(b"first\n\0")
    assert view.tail.endswith(b"\0\nlast\n")
    assert view.gap_bytes == ended.stdout.gap_bytes
    assert f"{ended.stdout.gap_bytes} left out".encode() in Path(job.stdout_path).read_bytes()


def _disk_used(folder: Path) -> int:
    used = 0
    for entry in folder.iterdir():
        with contextlib.suppress(FileNotFoundError):
            used += entry.stat().st_size
    return used


def test_output_can_be_followed(executor: CommandExecutor, tmp_path: Path) -> None:
    script = (
        "echo one; while [ ! -e go0 ]; do sleep 0.01; done;"
        "echo two; while [ ! -e go1 ]; do sleep 0.01; done; echo three"
    )
    job = make_job(tmp_path, "sh", "-c", script, log_head_bytes=4, log_tail_bytes=100)
    running = executor.start(job, tree.tick_us() + LEASE_US)
    offset = 0
    for number, line in enumerate((b"one\n", b"two\n")):
        end = time.monotonic() + WAIT_S
        got = b""
        while got != line and time.monotonic() < end:
            if Path(job.stdout_path).exists():
                since = read_log(job.stdout_path).since(offset)
                got += since.data
                offset = since.next_offset
            time.sleep(0.005)
        assert got == line
        (tmp_path / f"go{number}").touch()
    assert running.wait(WAIT_S) is not None
    assert read_log(job.stdout_path).since(offset).data == b"three\n"


def test_full_disk_neither_hangs_nor_kills(tmp_path: Path) -> None:
    """A limit on file sizes, inherited by the keeper, stands for the disk."""
    script = "head -c 400000 /dev/zero; echo done >&2; exit 4"
    job = make_job(tmp_path, "sh", "-c", script, log_head_bytes=MIB, log_tail_bytes=MIB)
    ended = run_in_worker(job, "resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))")
    assert (ended.reason, ended.exit_code, ended.tree_empty) == ("exited", 4, True)
    assert "File too large" in ended.message
    assert (ended.stdout.bytes_total, ended.stdout.head_bytes, ended.stdout.gap_bytes) == (
        400000,
        100000,
        300000,
    )
    assert Path(job.stderr_path).read_text() == "done\n"


def test_status_that_cannot_be_written_is_told(tmp_path: Path, executor: CommandExecutor) -> None:
    job = make_job(tmp_path, "true")
    job = msgspec.structs.replace(job, status_path=str(tmp_path / "none" / "status"))
    ended = run(executor, job)
    assert (ended.reason, ended.exit_code) == ("exited", 0)
    assert "status could not be written" in ended.message
    (tmp_path / "odd").write_text("{}")
    with pytest.raises(StatusUnreadable):
        proof.read_status(str(tmp_path / "odd"))


def test_old_status_does_not_answer_for_a_new_run(executor: CommandExecutor, tmp_path: Path) -> None:
    job = make_job(tmp_path, "sh", "-c", "exit 1")
    run(executor, job)
    again = msgspec.structs.replace(job, argv=("sh", "-c", "echo ready; sleep 0.3"))
    running = executor.start(again, tree.tick_us() + LEASE_US)
    until(Path(job.stdout_path), "ready")
    assert proof.read_status(job.status_path) is None
    assert running.wait(WAIT_S) is not None


def test_the_duration_is_of_the_whole_tree(executor: CommandExecutor, tmp_path: Path) -> None:
    """What the command left behind counts until it is gone, and so do its last words: that time is charged."""
    flag = tmp_path / "flag"
    left = f"trap 'sleep 0.5; exit 0' TERM; : > '{flag}'; while :; do sleep 0.01; done"
    job = make_job(tmp_path, "sh", "-c", f'sh -c "{left}" & until test -e "{flag}"; do sleep 0.01; done; exit 4')
    ended = run(executor, job)
    assert (ended.exit_code, ended.reason, ended.tree_empty) == (4, "exited", True)
    assert ended.duration_us >= 500_000


def test_the_status_has_what_the_port_promises_and_nothing_beside_it(executor: CommandExecutor, tmp_path: Path) -> None:
    job = make_job(tmp_path, "true")
    run(executor, job)
    written = json.loads(Path(job.status_path).read_bytes())["ended"]
    assert set(written) == {field.name for field in msgspec.structs.fields(Ended)}
    read = {"reason", "exit_code", "signal", "duration_us", "tree_empty", "stdout", "stderr", "message"}
    assert set(written) == read, "a measure that no record keeps is not taken"


def test_two_hundred_short_commands_two_at_a_time(executor: CommandExecutor, tmp_path: Path) -> None:
    """The figures are printed; nothing is asserted about time (performance page, last row)."""

    def one(number: int) -> Ended:
        return run(executor, make_job(tmp_path, "true", attempt=f"attempt_{number:032x}"))

    start = time.monotonic()
    with ThreadPoolExecutor(2) as pool:
        ends = list(pool.map(one, range(200)))
    ours_s = time.monotonic() - start
    assert all(ended.exit_code == 0 and ended.tree_empty for ended in ends)
    start = time.monotonic()
    loop = "i=0; while [ $i -lt 100 ]; do /bin/true & /bin/true; wait; i=$((i+1)); done"
    subprocess.run(["sh", "-c", loop], check=True)
    print(f"200 commands: {ours_s:.2f} s under keepers, {time.monotonic() - start:.2f} s in a shell loop")
