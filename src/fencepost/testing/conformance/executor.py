"""What every executor must do, as tests to inherit: `class TestMine(ExecutorConformance)` with `make_executor`.

`ExecutorConformance` is for executors of real programs: real processes on the machine that runs the tests, each test a
fraction of a second, commands of a POSIX shell. `ExecutorPortConformance`, of which it is the larger half, asks only
for what holds wherever programs run, a simulated host included: the author says there what the programs are called,
and what time it is.
"""

from __future__ import annotations

import contextlib
import os
import select
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

from fencepost.adapters.threads import SystemThreads
from fencepost.ports.executor import STOP_GRACE_US_MAX, STOP_LEAD_US, Ended, Executor, Job
from fencepost.ports.threads import Threads

LEASE_US = 30_000_000
WAIT_S = 20.0
_CLOCK: int = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def local_tick_us() -> int:
    """The local clock of the port."""
    return time.clock_gettime_ns(_CLOCK) // 1000


def local_boot_id() -> str:
    """This boot's identity as the port means it; empty where the system has none."""
    path = Path("/proc/sys/kernel/random/boot_id")
    return path.read_text().strip() if path.exists() else ""


def fresh_attempt() -> str:
    """An attempt that nobody else on this machine has: proofs look for its marker in every process."""
    return f"attempt_{uuid.uuid4().hex}"


def make_job(
    folder: Path,
    *argv: str,
    attempt: str = "",
    environment: dict[str, str] | None = None,
    cwd: Path | None = None,
    time_limit_us: int = LEASE_US,
    log_head_bytes: int = 1024,
    log_tail_bytes: int = 1024,
) -> Job:
    """A job whose files all are in `folder` and whose environment holds PATH and the attempt's marker.

    Without a name of its own it is a fresh attempt's: whoever ends what one attempt left ends every process with its
    marker on the machine, those of another run of these tests included.
    """
    attempt = attempt or fresh_attempt()
    return Job(
        attempt=attempt,
        order="order_" + "2" * 32,
        fence=7,
        argv=argv,
        environment={"PATH": os.defpath, "FENCEPOST_ATTEMPT": attempt} | (environment or {}),
        cwd=str(cwd or folder),
        stdout_path=str(folder / f"{attempt}.stdout"),
        stderr_path=str(folder / f"{attempt}.stderr"),
        lock_path=str(folder / f"{attempt}.lock"),
        status_path=str(folder / f"{attempt}.status"),
        time_limit_us=time_limit_us,
        log_head_bytes=log_head_bytes,
        log_tail_bytes=log_tail_bytes,
    )


def until(path: Path, content: str = "") -> None:
    """Wait until a command has written `content` into a file."""
    end = time.monotonic() + WAIT_S
    while not (path.exists() and content in path.read_text()):
        if time.monotonic() > end:
            raise AssertionError(f"{path} did not come")
        time.sleep(0.005)


PROGRAMS: Final[Mapping[str, tuple[str, ...]]] = {
    "exits with 3": ("sh", "-c", "exit 3"),
    "dies by signal 9": ("sh", "-c", "kill -9 $$"),
    "is missing": ("no-such-command",),
    "sleeps": ("sleep", "60"),
    "ends after 0.8 s": ("sleep", "0.8"),
    "answers SIGTERM with 4": ("sh", "-c", "trap 'exit 4' TERM; echo ready; while :; do sleep 0.05; done"),
    "does not listen": ("sh", "-c", "trap '' TERM; echo ready; while :; do sleep 0.05; done"),
    "leaves a mark": ("sh", "-c", "echo > started"),
}
"""What the suite needs programs for, and how a shell does it."""


class ExecutorPortConformance:
    """What holds of every executor. Each hook has the answer of a real machine."""

    programs: Mapping[str, tuple[str, ...]] = PROGRAMS

    def make_executor(self) -> Executor:
        """A fresh executor; the suite closes it."""
        raise NotImplementedError

    @pytest.fixture
    def threads(self) -> Threads:
        return SystemThreads()

    def tick_us(self) -> int:
        return local_tick_us()

    def boot_id(self) -> str:
        return local_boot_id()

    def job(self, folder: Path, program: str, *, time_limit_us: int = LEASE_US) -> Job:
        return make_job(folder, *self.programs[program], attempt=fresh_attempt(), time_limit_us=time_limit_us)

    def until_it_listens(self, job: Job, threads: Threads) -> None:
        """Wait until a program has said that it is ready."""
        until(Path(job.stdout_path), "ready")

    def has_run(self, folder: Path) -> bool:
        """Whether the program that leaves a mark has left one."""
        return (folder / "started").exists()

    def run(self, job: Job, *, lease_us: int = LEASE_US) -> Ended:
        """Start and wait."""
        with contextlib.closing(self.make_executor()) as executor:
            ended = executor.start(job, self.tick_us() + lease_us).wait(WAIT_S)
        if ended is None:
            raise AssertionError("the attempt did not end")
        return ended

    def test_declares_kind_and_spending(self) -> None:
        with contextlib.closing(self.make_executor()) as executor:
            assert executor.kind
            assert executor.spending in ("through_kernel", "opaque")

    def test_an_exit_code_is_told(self, tmp_path: Path) -> None:
        ended = self.run(self.job(tmp_path, "exits with 3"))
        assert (ended.reason, ended.exit_code, ended.signal, ended.tree_empty) == ("exited", 3, None, True)
        assert 0 < ended.duration_us < WAIT_S * 1_000_000

    def test_death_by_signal(self, tmp_path: Path) -> None:
        ended = self.run(self.job(tmp_path, "dies by signal 9"))
        assert (ended.reason, ended.exit_code, ended.signal) == ("exited", None, 9)

    def test_a_command_that_does_not_exist_is_a_value(self, tmp_path: Path) -> None:
        job = self.job(tmp_path, "is missing")
        ended = self.run(job)
        assert (ended.reason, ended.exit_code, ended.signal) == ("spawn_failed", None, None)
        assert ended.tree_empty
        assert job.argv[0] in ended.message

    def test_time_limit(self, tmp_path: Path) -> None:
        ended = self.run(self.job(tmp_path, "sleeps", time_limit_us=200_000))
        assert (ended.reason, ended.signal, ended.tree_empty) == ("timeout", 15, True)
        assert 200_000 <= ended.duration_us < 2_000_000

    def test_a_stop_lets_the_command_answer(self, tmp_path: Path, threads: Threads) -> None:
        job = self.job(tmp_path, "answers SIGTERM with 4")
        with contextlib.closing(self.make_executor()) as executor:
            running = executor.start(job, self.tick_us() + LEASE_US)
            self.until_it_listens(job, threads)
            assert running.wait(0) is None
            running.stop("stopped", 5_000_000)
            ended = running.wait(WAIT_S)
        assert ended is not None
        assert (ended.reason, ended.exit_code, ended.tree_empty) == ("stopped", 4, True)

    @pytest.mark.parametrize("grace_us", [-1, STOP_GRACE_US_MAX + 1])
    def test_a_grace_out_of_bounds_is_refused(self, tmp_path: Path, grace_us: int) -> None:
        with contextlib.closing(self.make_executor()) as executor:
            running = executor.start(self.job(tmp_path, "sleeps"), self.tick_us() + LEASE_US)
            with pytest.raises(ValueError):
                running.stop("stopped", grace_us)
            running.stop("stopped", 0)
            assert running.wait(WAIT_S) is not None

    def test_stop_kills_what_does_not_listen(self, tmp_path: Path, threads: Threads) -> None:
        job = self.job(tmp_path, "does not listen")
        with contextlib.closing(self.make_executor()) as executor:
            running = executor.start(job, self.tick_us() + LEASE_US)
            self.until_it_listens(job, threads)
            running.stop("lease_lost", 100_000)
            ended = running.wait(WAIT_S)
        assert ended is not None
        assert (ended.reason, ended.signal, ended.tree_empty) == ("lease_lost", 9, True)

    def test_nothing_starts_under_a_lease_that_ends_too_soon(self, tmp_path: Path) -> None:
        ended = self.run(self.job(tmp_path, "leaves a mark"), lease_us=STOP_LEAD_US - 1)
        assert (ended.reason, ended.exit_code) == ("lease_lost", None)
        assert not self.has_run(tmp_path)

    def test_unconfirmed_lease_ends_the_tree_before_it_expires(self, tmp_path: Path) -> None:
        lease_end_us = self.tick_us() + STOP_LEAD_US + 300_000
        with contextlib.closing(self.make_executor()) as executor:
            ended = executor.start(self.job(tmp_path, "sleeps"), lease_end_us).wait(WAIT_S)
        assert ended is not None
        assert (ended.reason, ended.tree_empty) == ("lease_lost", True)
        assert self.tick_us() < lease_end_us

    def test_confirmed_lease_goes_on(self, tmp_path: Path) -> None:
        with contextlib.closing(self.make_executor()) as executor:
            running = executor.start(self.job(tmp_path, "ends after 0.8 s"), self.tick_us() + STOP_LEAD_US + 300_000)
            running.confirm(self.tick_us() + LEASE_US)
            ended = running.wait(WAIT_S)
        assert ended is not None
        assert (ended.reason, ended.exit_code) == ("exited", 0)

    def test_an_end_is_told_as_often_as_it_is_asked_for(self, tmp_path: Path) -> None:
        with contextlib.closing(self.make_executor()) as executor:
            running = executor.start(self.job(tmp_path, "exits with 3"), self.tick_us() + LEASE_US)
            first = running.wait(WAIT_S)
            assert first is not None
            assert running.wait(0) == running.wait(None) == first

    def test_the_holder_is_proved_by_what_is_seen(self, tmp_path: Path, threads: Threads) -> None:
        job = self.job(tmp_path, "does not listen")
        with contextlib.closing(self.make_executor()) as executor:
            running = executor.start(job, self.tick_us() + LEASE_US)
            self.until_it_listens(job, threads)
            held = executor.holder_proof(job.lock_path, job.attempt, self.boot_id(), same_host=True)
            assert (held.gone, held.lock) == (False, "held")
            running.stop("stopped", 0)
            assert running.wait(WAIT_S) is not None
            end_s = threads.monotonic() + WAIT_S
            while (
                not (free := executor.holder_proof(job.lock_path, job.attempt, self.boot_id(), same_host=True)).gone
                and threads.monotonic() < end_s
            ):
                threads.sleep(0.005)
            assert (free.gone, free.pids) == (True, ())


class ExecutorConformance(ExecutorPortConformance):
    """For executors of real programs. Inherit, and say how an executor is made."""

    def test_exit_code_and_streams_apart(self, tmp_path: Path) -> None:
        job = make_job(tmp_path, "sh", "-c", "echo out; echo err >&2; exit 3")
        ended = self.run(job)
        assert (ended.reason, ended.exit_code, ended.signal) == ("exited", 3, None)
        assert ended.tree_empty
        assert Path(job.stdout_path).read_bytes() == b"out\n"
        assert Path(job.stderr_path).read_bytes() == b"err\n"
        assert (ended.stdout.bytes_total, ended.stdout.head_bytes, ended.stdout.gap_bytes) == (4, 4, 0)
        assert 0 < ended.duration_us < WAIT_S * 1_000_000

    def test_environment_and_folder_are_exactly_the_jobs(self, tmp_path: Path) -> None:
        folder = tmp_path / "with space é"
        folder.mkdir()
        job = make_job(tmp_path, "sh", "-c", 'pwd; env; read line || echo "no input"', cwd=folder)
        self.run(job)
        lines = set(Path(job.stdout_path).read_text("utf-8").splitlines())
        wanted = {str(folder), "no input", *(f"{name}={value}" for name, value in job.environment.items())}
        assert lines - wanted <= {f"PWD={folder}", f"OLDPWD={folder}", "_=/usr/bin/env", "SHLVL=0", "SHLVL=1"}
        assert wanted <= lines

    def test_stop_is_gentle_first(self, tmp_path: Path) -> None:
        script = "trap 'echo saved; exit 4' TERM; echo ready; while :; do sleep 0.05; done"
        job = make_job(tmp_path, "sh", "-c", script)
        with contextlib.closing(self.make_executor()) as executor:
            running = executor.start(job, local_tick_us() + LEASE_US)
            until(Path(job.stdout_path), "ready")
            assert running.wait(0) is None
            running.stop("stopped", 5_000_000)
            ended = running.wait(WAIT_S)
        assert ended is not None
        assert (ended.reason, ended.exit_code) == ("stopped", 4)
        assert Path(job.stdout_path).read_text() == "ready\nsaved\n"

    def test_descriptor_tells_of_the_end(self, tmp_path: Path) -> None:
        with contextlib.closing(self.make_executor()) as executor:
            running = executor.start(make_job(tmp_path, "sleep", "0.1"), local_tick_us() + LEASE_US)
            ready, _, _ = select.select([running.fileno()], [], [], WAIT_S)
            assert ready
            first = running.wait(WAIT_S)
            assert first is not None
            assert running.wait(0) == first
            assert running.fileno() == -1

    def test_status_and_proof_remain(self, tmp_path: Path) -> None:
        job = make_job(tmp_path, "sleep", "0.2", attempt=fresh_attempt())
        with contextlib.closing(self.make_executor()) as executor:
            assert executor.read_status(job.status_path) is None
            running = executor.start(job, local_tick_us() + LEASE_US)
            held = executor.holder_proof(job.lock_path, job.attempt, local_boot_id(), same_host=True)
            assert (held.gone, held.lock) == (False, "held")
            ended = running.wait(WAIT_S)
            # The end is told before the supervisor itself is gone; its lock follows at once, not in the same moment.
            end = time.monotonic() + WAIT_S
            while True:
                free = executor.holder_proof(job.lock_path, job.attempt, local_boot_id(), same_host=True)
                if free.gone or time.monotonic() > end:
                    break
                time.sleep(0.005)
            assert (free.gone, free.lock, free.pids) == (True, "free", ())
            status = executor.read_status(job.status_path)
        assert status is not None
        assert (status.attempt, status.order, status.fence) == (job.attempt, job.order, job.fence)
        assert status.ended == ended
