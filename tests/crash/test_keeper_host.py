"""The host that forks keepers is stopped, dies or has no room: no attempt waits for it, and none starts twice (W6)."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fencepost.adapters.executors import command
from fencepost.adapters.executors.command import CommandExecutor
from fencepost.ports.executor import CannotStart, Ended, StopReason
from fencepost.testing.conformance.executor import LEASE_US, local_tick_us, make_job, until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are looked for in /proc")
STOP: StopReason = "stopped"


@pytest.fixture
def executor() -> Iterator[CommandExecutor]:
    made = CommandExecutor()
    yield made
    made.close()


def host_of(executor: CommandExecutor) -> int:
    assert executor._host is not None
    return executor._host.pid


def run(executor: CommandExecutor, folder: Path, *argv: str) -> Ended:
    ended = executor.start(make_job(folder, *argv), local_tick_us() + LEASE_US).wait(20)
    assert ended is not None
    return ended


def test_w6_a_stopped_host_is_replaced_and_what_it_began_goes_on(executor: CommandExecutor, tmp_path: Path) -> None:
    first = executor.start(make_job(tmp_path, "sh", "-c", "echo > began; sleep 60"), local_tick_us() + LEASE_US)
    until(tmp_path / "began")
    stopped = host_of(executor)
    os.kill(stopped, signal.SIGSTOP)
    ended = run(executor, tmp_path, "sh", "-c", "echo once >> ran; exit 3")
    assert (ended.reason, ended.exit_code, ended.tree_empty) == ("exited", 3, True)
    assert (tmp_path / "ran").read_text() == "once\n"
    assert host_of(executor) != stopped and not Path(f"/proc/{stopped}").exists()
    assert first.wait(0) is None
    first.stop(STOP, 0)
    last = first.wait(10)
    assert last is not None and (last.reason, last.tree_empty) == ("stopped", True)


def test_w6_those_that_ask_at_once_share_the_new_host_and_start_once(executor: CommandExecutor, tmp_path: Path) -> None:
    os.kill(host_of(executor), signal.SIGSTOP)
    ends: list[Ended] = []
    threads = [
        threading.Thread(target=lambda: ends.append(run(executor, tmp_path, "sh", "-c", "echo once >> ran")))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [(ended.reason, ended.exit_code) for ended in ends] == [("exited", 0)] * 4
    assert (tmp_path / "ran").read_text() == "once\n" * 4


def test_w6_where_no_host_ever_answers_nothing_is_started_and_the_command_is_not_blamed(
    executor: CommandExecutor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "GREETING_TIME_S_MAX", 0.3)
    made: list[int] = []

    class Stopped(command._Host):
        def __init__(self) -> None:
            super().__init__()
            made.append(self.pid)
            self.freeze()

    monkeypatch.setattr(command, "_Host", Stopped)
    os.kill(host_of(executor), signal.SIGSTOP)
    began = time.monotonic()
    ended = run(executor, tmp_path, "sh", "-c", "echo > ran")
    assert time.monotonic() - began < 10
    assert (ended.reason, ended.exit_code, ended.tree_empty, ended.duration_us) == ("not_started", None, True, 0)
    assert "no keeper could be started" in ended.message
    assert len(made) == command.HOST_TRIES_MAX - 1
    assert not any(Path(f"/proc/{pid}").exists() for pid in made)
    assert not (tmp_path / "ran").exists()


def test_w6_a_keeper_that_has_not_greeted_goes_with_its_host(
    executor: CommandExecutor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is stopped as soon as it is forked, so that it would begin the job a second time when it goes on."""
    monkeypatch.setattr(command, "GREETING_TIME_S_MAX", 0.5)
    monkeypatch.setattr(command.keeper_host, "BOOTSTRAP", _SLOW)
    monkeypatch.setattr(command, "HOST_TRIES_MAX", 1)
    executor._drop(executor._host_now())
    ended = run(executor, tmp_path, "sh", "-c", "echo >> ran")
    assert ended.reason == "not_started", ended
    time.sleep(1.5)
    assert not (tmp_path / "ran").exists()


_SLOW = command.keeper_host.BOOTSTRAP.replace(
    "keeper_host.serve(",
    "import time; main = keeper_host.keeper.main; "
    "keeper_host.keeper.main = lambda *given: (time.sleep(1.5), main(*given)); keeper_host.serve(",
)


def test_a_lock_without_its_folder_is_trouble_of_the_home(executor: CommandExecutor, tmp_path: Path) -> None:
    folder = tmp_path / "locks"
    folder.mkdir()
    job = make_job(folder, "sh", "-c", "echo > ran")
    shutil.rmtree(folder)
    with pytest.raises(CannotStart) as refused:
        executor.start(job, local_tick_us() + LEASE_US)
    assert refused.value.code == "storage_unavailable" and job.lock_path in refused.value.message
    assert refused.value.next_step == "fencepost doctor"


def test_without_descriptors_it_is_said_that_they_lack(executor: CommandExecutor, tmp_path: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    job = make_job(tmp_path, "true")
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
    try:
        with pytest.raises(CannotStart) as refused:
            executor.start(job, local_tick_us() + LEASE_US)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert refused.value.code == "too_few_descriptors"
    assert run(executor, tmp_path, "true").exit_code == 0
