"""Wake-ups within a process, between processes, and where the folder is of no use."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fencepost.adapters.wakeups import FolderWakeups, LocalWakeups
from fencepost.ports.wakeups import Wakeups
from fencepost.testing.conformance.wakeups import SharedWakeupsConformance, WakeupsConformance

ECHO = """
import sys
from pathlib import Path
from fencepost.adapters.wakeups import FolderWakeups
wakeups = FolderWakeups(Path(sys.argv[1]))
ticket = wakeups.ticket()
print("ready", flush=True)
while wakeups.wait(ticket, 30):
    ticket = wakeups.ticket()
    wakeups.notify()
"""


class TestLocal(WakeupsConformance):
    @pytest.fixture
    def wakeups(self) -> Iterator[Wakeups]:
        wakeups = LocalWakeups()
        yield wakeups
        wakeups.close()


class _InFolder(WakeupsConformance, SharedWakeupsConformance):
    @pytest.fixture
    def wakeups(self, folder: Path) -> Iterator[Wakeups]:
        wakeups = FolderWakeups(folder)
        assert wakeups.is_shared
        yield wakeups
        wakeups.close()

    @pytest.fixture
    def another(self, folder: Path) -> Iterator[Callable[[], Wakeups]]:
        made: list[FolderWakeups] = []

        def make() -> Wakeups:
            made.append(FolderWakeups(folder))
            return made[-1]

        yield make
        for wakeups in made:
            wakeups.close()


class TestFolder(_InFolder):
    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        folder = tmp_path / "wake"
        folder.mkdir()
        return folder


class TestFolderWithALongPath(_InFolder):
    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        folder = tmp_path / ("long" * 30) / ("name" * 30) / "wake"
        folder.mkdir(parents=True)
        return folder


@pytest.fixture
def echo(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen([sys.executable, "-c", ECHO, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def test_another_process_answers_quickly(tmp_path: Path, echo: subprocess.Popen[str]) -> None:
    wakeups = FolderWakeups(tmp_path)
    took_s = []
    for _ in range(200):
        ticket = wakeups.ticket() + 1  # beyond the own hint
        started_s = time.perf_counter()
        wakeups.notify()
        assert wakeups.wait(ticket, 10)
        took_s.append(time.perf_counter() - started_s)
    wakeups.close()
    # There and back. Far above what it takes, far below any polling interval.
    assert sorted(took_s)[100] < 0.02


def test_the_socket_of_a_killed_process_is_removed(tmp_path: Path, echo: subprocess.Popen[str]) -> None:
    wakeups = FolderWakeups(tmp_path)
    assert len(list(tmp_path.iterdir())) == 2
    echo.send_signal(signal.SIGKILL)
    echo.wait()
    wakeups.notify()
    assert [path.name for path in tmp_path.iterdir()] == [wakeups.socket_name]
    wakeups.close()
    assert list(tmp_path.iterdir()) == []


def test_a_missing_folder_leaves_hints_within_the_process(tmp_path: Path) -> None:
    wakeups = FolderWakeups(tmp_path / "missing")
    ticket = wakeups.ticket()
    wakeups.notify()
    assert wakeups.wait(ticket, 0)
    assert not wakeups.is_shared
    wakeups.close()
    assert not (tmp_path / "missing").exists()


def test_a_folder_that_cannot_be_written_leaves_hints_within_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = FolderWakeups(tmp_path)

    class Refusing(socket.socket):
        def bind(self, address: object) -> None:
            raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(socket, "socket", Refusing)
    wakeups = FolderWakeups(tmp_path)
    ticket, other_ticket = wakeups.ticket(), other.ticket()
    wakeups.notify()
    assert wakeups.wait(ticket, 0)
    assert not wakeups.is_shared
    assert other.wait(other_ticket, 10)  # telling others needs no socket in the folder
    wakeups.close()
    other.close()


def test_files_of_others_stay(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    wakeups = FolderWakeups(tmp_path)
    wakeups.notify()
    wakeups.close()
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_a_forked_child_leaves_the_socket_alone(tmp_path: Path) -> None:
    wakeups = FolderWakeups(tmp_path)
    child = os.fork()
    if child == 0:
        wakeups.notify()
        wakeups.close()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert [path.name for path in tmp_path.iterdir()] == [wakeups.socket_name]
    wakeups.close()
