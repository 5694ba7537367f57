"""Processes that are killed, a disk that is full, and processes that compete: the store stays whole."""

from __future__ import annotations

import os
import random
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from fencepost.ports.errors import StorageFull
from fencepost.storage import sqlite
from fencepost.storage.sqlite import SqliteJournal
from tests.crash.sqlite_appender import MAIN, append_next

APPENDER = Path(__file__).with_name("sqlite_appender.py")
SEED = random.SystemRandom().randrange(1 << 32)
KILLS = 30


def start(folder: Path, times: int) -> subprocess.Popen[str]:
    arguments = [sys.executable, str(APPENDER), str(folder), str(times)]
    return subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def checked_sequence(journal: SqliteJournal) -> int:
    """Return the head's sequence, after comparing everything that must tell the same."""
    with journal.snapshot() as reads:
        head = reads.head(MAIN)
        sequences: list[int] = []
        while page := reads.records(MAIN, len(sequences), 1_000):
            assert all(record.data.startswith(f"{record.seq}:{record.seq - 1}:".encode()) for record in page)
            sequences += [record.seq for record in page]
        assert sequences == list(range(1, head.seq + 1))
        if head.seq:
            assert head.digest == f"sha256:{head.seq:064x}"
            assert reads.states(MAIN, ["subject"])["subject"].version == head.seq
            assert reads.next_due(MAIN, "ready") == head.seq
            command = reads.command(MAIN, f"key-{head.seq}")
            assert command is not None and command.receipt == str(head.seq).encode()
    return head.seq


@pytest.mark.slow
def test_w24_killed_at_random_moments(tmp_path: Path) -> None:
    print(f"seed {SEED}")
    moments = random.Random(SEED)
    reached = 0
    for _ in range(KILLS):
        process = start(tmp_path, 1_000_000)
        assert process.stdout is not None
        assert process.stdout.readline() == "open\n"
        time.sleep(moments.uniform(0, 0.1))
        process.send_signal(signal.SIGKILL)
        lines = process.communicate()[0].split("\n")
        confirmed = max([int(line) for line in lines[:-1] if line], default=reached)
        journal = sqlite.open(tmp_path / "store.db", tmp_path / "locks")
        now = checked_sequence(journal)
        assert now >= confirmed, f"seed {SEED}: {confirmed} was answered, {now} is there"
        reached = append_next(journal)
        assert reached == now + 3
        journal.close()
    connection = apsw.Connection(str(tmp_path / "store.db"))
    assert connection.pragma("integrity_check") == "ok"
    connection.close()
    assert reached > KILLS * 3


@pytest.mark.slow
def test_killed_while_creating(tmp_path: Path) -> None:
    print(f"seed {SEED}")
    moments = random.Random(SEED)
    for number in range(10):
        folder = tmp_path / str(number)
        process = start(folder, 1)
        time.sleep(moments.uniform(0.05, 0.2))
        process.kill()
        process.communicate()
        journal = sqlite.create(folder / "store.db", "1" * 32, folder / "locks")
        assert journal.info.store_id in {"0" * 32, "1" * 32}
        checked_sequence(journal)
        append_next(journal)
        journal.close()
        assert {path.name for path in folder.iterdir()} == {"store.db", "locks"}


def test_four_processes_create_one_store(tmp_path: Path) -> None:
    processes = [start(tmp_path, 1) for _ in range(4)]
    for process in processes:
        assert process.communicate()[1] == ""
        assert process.returncode == 0
    journal = sqlite.open(tmp_path / "store.db", tmp_path / "locks")
    assert checked_sequence(journal) == 12
    journal.close()


@pytest.mark.slow
def test_four_processes_share_evenly(tmp_path: Path) -> None:
    sqlite.create(tmp_path / "store.db", "0" * 32, tmp_path / "locks").close()
    processes = [start(tmp_path, 250) for _ in range(4)]
    answers = [process.communicate() for process in processes]
    assert [error for _, error in answers] == [""] * 4
    served = [[int(line) for line in out.split()[1:]] for out, _ in answers]
    assert sorted(sequence for each in served for sequence in each) == list(range(3, 3_001, 3))
    journal = sqlite.open(tmp_path / "store.db", tmp_path / "locks")
    assert checked_sequence(journal) == 3_000
    journal.close()
    # Between the last one's start and the first one's end all four were there.
    first, last = max(each[0] for each in served), min(each[-1] for each in served)
    shares = [sum(first <= sequence <= last for sequence in each) for each in served]
    print(f"served while all were there: {shares}")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("mounting a small file system needs more rights; the next test limits the file instead")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(journal: SqliteJournal) -> int:
    """Append until there is no space; return the last sequence that was answered."""
    reached = 0
    with pytest.raises(StorageFull) as caught:
        for _ in range(5_000):
            reached = append_next(journal, records=20)
    assert caught.value.next_step
    return reached


def test_case_11_a_full_disk_leaves_the_store_whole(small_disk: Path) -> None:
    journal = sqlite.create(small_disk / "store.db", "0" * 32, small_disk / "locks")
    ballast = small_disk / "ballast"
    ballast.write_bytes(b"\0" * 300_000)
    reached = fill(journal)
    assert reached > 0
    for _ in range(3):
        with pytest.raises(StorageFull):
            append_next(journal, records=2_000)
    assert checked_sequence(journal) == reached
    ballast.unlink()
    assert append_next(journal, records=20) == reached + 20
    assert checked_sequence(journal) == reached + 20
    journal.close()
    journal = sqlite.open(small_disk / "store.db", small_disk / "locks")
    assert checked_sequence(journal) == reached + 20
    journal.close()


def test_no_store_is_created_on_a_full_disk(small_disk: Path) -> None:
    folder = small_disk / "home"
    folder.mkdir()
    (small_disk / "ballast").write_bytes(b"\0" * (2 * 1024 * 1024 - 5 * 4096))
    with pytest.raises(StorageFull):
        sqlite.create(folder / "store.db", "0" * 32, folder / "locks")
    assert not (folder / "store.db").exists()
    (small_disk / "ballast").unlink()
    journal = sqlite.create(folder / "store.db", "0" * 32, folder / "locks")
    assert append_next(journal) == 3
    journal.close()


def test_case_11_a_file_size_limit_leaves_the_store_whole(tmp_path: Path) -> None:
    journal = sqlite.create(tmp_path / "store.db", "0" * 32, tmp_path / "locks")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, hard))
    try:
        reached = fill(journal)
        assert checked_sequence(journal) == reached
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert append_next(journal, records=20) == reached + 20
    assert checked_sequence(journal) == reached + 20
    journal.close()
