"""Commands that turn on what watches them: their logs, their keeper, their lock. Real processes, real signals."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from fencepost.adapters.executors import command, proof, tree
from fencepost.adapters.executors.command import CommandExecutor
from fencepost.adapters.executors.log_reader import read_log
from fencepost.adapters.executors.log_writer import LogWriter
from fencepost.ports.executor import Ended, Job, LogUnreadable, StatusUnreadable
from fencepost.testing.conformance.executor import LEASE_US, WAIT_S, local_boot_id, make_job, until

SPARSE_BYTES = 20 * 1024**3


@pytest.fixture
def executor() -> Iterator[CommandExecutor]:
    with contextlib.closing(CommandExecutor()) as made:
        yield made


def with_logs(folder: Path, script: str) -> Job:
    """A job whose logs and status lie in a folder of their own, `$LOGS`."""
    logs = folder / "logs"
    logs.mkdir()
    job = make_job(folder, "sh", "-c", script, environment={"LOGS": str(logs)})
    return msgspec.structs.replace(
        job,
        stdout_path=str(logs / "stdout"),
        stderr_path=str(logs / "stderr"),
        status_path=str(logs / "status"),
    )


def run(executor: CommandExecutor, job: Job) -> Ended:
    ended = executor.start(job, tree.tick_us() + LEASE_US).wait(WAIT_S)
    assert ended is not None
    return ended


REPLACED = {
    "a pipe": "rm stdout; mkfifo stdout",
    "a link": "rm stdout; echo secret > ../secret; ln -s ../secret stdout",
    "a sparse file": f"rm stdout; truncate -s {SPARSE_BYTES} stdout",
    "a file that grew": f"truncate -s {SPARSE_BYTES} stdout",
    "a folder": "rm stdout; mkdir -p stdout/full",
    "nothing": "rm stdout",
    "a pipe for the status": "rm -f status; mkfifo status",
}


@pytest.mark.parametrize("size", [0, 5_000])
@pytest.mark.parametrize("what", REPLACED)
def test_a_log_that_the_command_replaced_is_the_log_again(
    executor: CommandExecutor, tmp_path: Path, what: str, size: int
) -> None:
    script = f"echo before; head -c {size} /dev/zero; sleep 0.05; cd $LOGS; {REPLACED[what]}; echo after"
    job = with_logs(tmp_path, script)
    ended = run(executor, job)
    assert (ended.reason, ended.exit_code, ended.message) == ("exited", 0, "")
    view = read_log(job.stdout_path)
    assert view.head.startswith(b"before\n")
    assert (view.head + view.tail).endswith(b"after\n")
    assert view.bytes_total == ended.stdout.bytes_total == size + 13
    assert b"secret" not in view.text()
    status = proof.read_status(job.status_path)
    assert status is not None
    assert status.ended == ended


def test_a_folder_of_logs_that_is_gone_is_told_and_nothing_else(executor: CommandExecutor, tmp_path: Path) -> None:
    job = with_logs(tmp_path, "head -c 5000 /dev/zero; rm -r $LOGS; ln -s / $LOGS; echo after")
    ended = run(executor, job)
    assert (ended.reason, ended.exit_code) == ("exited", 0)
    assert "stdout is incomplete" in ended.message
    assert "status could not be written" in ended.message
    with pytest.raises((LogUnreadable, FileNotFoundError)):
        read_log(job.stdout_path)


@pytest.mark.parametrize("what", ["a pipe", "a link", "a sparse file", "a folder", "many segments"])
def test_what_is_no_log_is_said_to_be_none_without_waiting(tmp_path: Path, what: str) -> None:
    path = tmp_path / "stdout"
    log = LogWriter(str(path), head_max=10, tail_max=10)
    log.write(b"x" * 100)
    log.finish()
    path.unlink()
    if what == "a pipe":
        os.mkfifo(path)
    elif what == "a link":
        path.symlink_to("/etc/passwd")
    elif what == "a sparse file":
        with path.open("wb") as file:
            file.truncate(SPARSE_BYTES)
    elif what == "a folder":
        path.mkdir()
    else:
        path.write_bytes(b"x")
        for number in range(10):
            (tmp_path / f"stdout.tail-{number:016d}").write_bytes(b"x")
    began = time.monotonic()
    with pytest.raises(LogUnreadable):
        read_log(str(path))
    if what != "many segments":
        with pytest.raises(StatusUnreadable):
            proof.read_status(str(path))
    assert time.monotonic() - began < 1


def test_a_command_that_stops_its_keeper_has_its_time_limit_all_the_same(
    executor: CommandExecutor, tmp_path: Path
) -> None:
    job = make_job(tmp_path, "sh", "-c", "kill -STOP $PPID; exec sleep 60", time_limit_us=300_000)
    began = time.monotonic()
    ended = run(executor, job)
    assert (ended.reason, ended.tree_empty) == ("timeout", True)
    assert 0.3 <= ended.duration_us / 1_000_000 <= time.monotonic() - began < 10


def test_a_renewal_wakes_a_keeper_that_was_stopped(executor: CommandExecutor, tmp_path: Path) -> None:
    job = make_job(tmp_path, "sh", "-c", "kill -STOP $PPID; echo on")
    running = executor.start(job, tree.tick_us() + LEASE_US)
    assert running.wait(0.3) is None
    running.confirm(tree.tick_us() + LEASE_US)
    ended = running.wait(WAIT_S)
    assert ended is not None
    assert (ended.reason, ended.exit_code) == ("exited", 0)


@pytest.mark.parametrize("due", ["limit", "lease", "stop"])
def test_a_keeper_that_stays_stopped_is_lost_with_its_tree(
    executor: CommandExecutor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, due: str
) -> None:
    monkeypatch.setattr(command, "LOST_AFTER_US", 1_500_000)
    script = "(setsid env -i sleep 61 &); while :; do kill -STOP $PPID; done"
    limit_us = 200_000 if due == "limit" else LEASE_US
    job = make_job(tmp_path, "sh", "-c", f"echo ready; {script}", time_limit_us=limit_us)
    running = executor.start(job, tree.tick_us() + (3_500_000 if due == "lease" else LEASE_US))
    assert running.wait(0.3) is None
    began = tree.tick_us()
    if due == "stop":
        running.stop("stopped", 0)
    ended = running.wait(WAIT_S)
    assert ended is not None
    assert ended.reason in (("timeout",) if due == "limit" else ("keeper_lost", "lease_lost", "stopped"))
    assert ended.tree_empty
    assert ended.duration_us >= tree.tick_us() - began
    assert proof.holder_proof(job.lock_path, job.attempt, local_boot_id(), same_host=True).gone


def test_time_of_a_killed_keeper_is_not_free(executor: CommandExecutor, tmp_path: Path) -> None:
    ended = run(executor, make_job(tmp_path, "sh", "-c", "sleep 0.5; kill -9 $PPID; sleep 60"))
    assert (ended.reason, ended.tree_empty) == ("keeper_lost", True)
    assert 500_000 <= ended.duration_us < 8_000_000


def test_who_has_the_lock_is_ended_without_marker_keeper_and_host(executor: CommandExecutor, tmp_path: Path) -> None:
    """`setsid env -i` sheds the marker and descent; only the lock that it holds betrays it."""
    host = executor._host
    assert host is not None
    script = f"(setsid env -i sh -c 'echo $$ > {tmp_path}/pid; exec sleep 60' &); sleep 0.3; kill -9 {host.pid} $PPID"
    ended = run(executor, make_job(tmp_path, "sh", "-c", f"{script}; exec sleep 60"))
    assert (ended.reason, ended.tree_empty) == ("keeper_lost", True)
    until(tmp_path / "pid", "\n")
    stat = Path(f"/proc/{(tmp_path / 'pid').read_text().strip()}/stat")
    assert not stat.exists() or stat.read_text().rpartition(") ")[2].startswith("Z")


@pytest.mark.parametrize("then", ["stands", "removed"])
def test_a_proof_finds_who_has_the_lock_open(tmp_path: Path, then: str) -> None:
    job = make_job(tmp_path, "true")
    lock = Path(job.lock_path)
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        holder = subprocess.Popen(["sleep", "60"], env={}, pass_fds=(file.fileno(),))
    try:
        if then != "stands":
            lock.unlink()
        seen = proof.holder_proof(job.lock_path, job.attempt, local_boot_id(), same_host=True)
        assert (seen.gone, seen.pids) == (False, (holder.pid,))
        seen = proof.end_holder(job.lock_path, job.attempt, local_boot_id(), same_host=True)
        assert holder.wait(WAIT_S) == -signal.SIGKILL
        assert seen.gone
    finally:
        holder.kill()
        holder.wait()
