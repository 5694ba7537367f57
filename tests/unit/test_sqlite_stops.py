"""Control-Z stops no process while it has the right to write: others would wait for it until their leases are over."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fencepost.storage import sqlite
from fencepost.testing.conformance.journal_rows import append_once

STORE_ID = "0123456789abcdef" * 2
WAIT_S = 20.0
# Writes in its main thread, or in another while the main one sleeps; says what it does, goes on at each line of stdin.
WRITER = """
import signal, sys, threading, time
from pathlib import Path
from fencepost.ports.journal import Stream
from fencepost.storage import sqlite
from fencepost.storage.sqlite.stops import stopping_between_commits

def write(hold):
    with journal.transaction(Stream("default", "journal")):
        print("has it", flush=True)
        hold()
    print("left it", flush=True)

folder = Path(sys.argv[1])
with stopping_between_commits():
    journal = sqlite.open(folder / "store.db", folder / "locks")
    if sys.argv[2] == "main":
        write(sys.stdin.readline)
    else:
        thread = threading.Thread(target=write, args=(sys.stdin.readline,))
        thread.start()
        while thread.is_alive():
            time.sleep(0.01)
    print("goes on", flush=True)
    sys.stdin.readline()
    journal.close()
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    sqlite.create(tmp_path / "store.db", STORE_ID, tmp_path / "locks").close()
    return tmp_path


@contextmanager
def writer(folder: Path, where: str) -> Iterator[subprocess.Popen[str]]:
    """In a process group of this session, which is not orphaned: the system stops nobody else by such a signal."""
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(folder), where],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        process_group=0,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def says(process: subprocess.Popen[str], text: str) -> None:
    assert process.stdout is not None
    assert process.stdout.readline().strip() == text


def tell(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def is_stopped(process: subprocess.Popen[str]) -> bool:
    return Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def until(reached: Callable[[], bool]) -> None:
    end = time.monotonic() + WAIT_S
    while not reached():
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.mark.skipif(sys.platform != "linux", reason="the state of a process is read in /proc")
@pytest.mark.parametrize("where", ["main", "other"])
@pytest.mark.parametrize("number", [signal.SIGTSTP, signal.SIGTTOU, signal.SIGTTIN])
def test_w16_a_stop_comes_when_the_transaction_has_ended(folder: Path, where: str, number: signal.Signals) -> None:
    other = sqlite.open(folder / "store.db", folder / "locks")
    with writer(folder, where) as process:
        says(process, "has it")
        os.kill(process.pid, number)
        time.sleep(0.2)
        assert not is_stopped(process)
        tell(process)
        until(lambda: is_stopped(process))
        append_once(other)  # nobody holds it up
        os.kill(process.pid, signal.SIGCONT)
        says(process, "left it")
        says(process, "goes on")
        os.kill(process.pid, number)
        until(lambda: is_stopped(process))
        os.kill(process.pid, signal.SIGCONT)
        tell(process)
        assert process.wait(WAIT_S) == 0
    other.close()


@pytest.mark.skipif(sys.platform != "linux", reason="the state of a process is read in /proc")
def test_signals_that_somebody_ignores_or_takes_stay_as_they_are() -> None:
    from fencepost.storage.sqlite.stops import TAKEN, stopping_between_commits

    before = signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    try:
        with stopping_between_commits():
            assert signal.getsignal(signal.SIGTTOU) == signal.SIG_IGN
            assert callable(signal.getsignal(signal.SIGTSTP))
        assert [signal.getsignal(each) for each in TAKEN] == [signal.SIG_DFL, signal.SIG_DFL, signal.SIG_IGN]
    finally:
        signal.signal(signal.SIGTTOU, before)
