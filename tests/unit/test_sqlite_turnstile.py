"""Nobody writes twice past one who waits."""

from __future__ import annotations

import threading
import time
from pathlib import Path

from fencepost.storage import sqlite
from fencepost.storage.sqlite import SqliteJournal
from fencepost.storage.sqlite.turnstile import FileLock
from fencepost.testing.conformance.journal_rows import MAIN, append_once, next_append

ROUNDS = 10


def append_named(journal: SqliteJournal, name: bytes) -> None:
    with journal.transaction(MAIN) as transaction:
        transaction.append(next_append(transaction.head(MAIN), [name]))
        transaction.commit()


def wait_until_held(lock: FileLock) -> None:
    deadline_s = time.monotonic() + 10
    while lock.acquire(0):
        lock.release()
        assert time.monotonic() < deadline_s, "nobody stands in the turnstile"
        time.sleep(0.001)


def test_case_21_a_writer_does_not_pass_one_who_waits(tmp_path: Path) -> None:
    mine = sqlite.create(tmp_path / "store.db", "0" * 32, tmp_path / "locks")
    other = sqlite.open(tmp_path / "store.db", tmp_path / "locks")
    entry = FileLock(tmp_path / "locks" / "turnstile")
    append_once(mine, [b"start"])
    for _ in range(ROUNDS):
        waiting = threading.Thread(target=append_named, args=(other, b"other"))
        with mine.transaction(MAIN) as transaction:
            waiting.start()
            wait_until_held(entry)
            transaction.append(next_append(transaction.head(MAIN), [b"mine, first"]))
            transaction.commit()
        append_named(mine, b"mine, second")
        waiting.join()
    with mine.snapshot() as reads:
        written = [record.data for record in reads.records(MAIN, 1, 1_000)]
    assert written == [b"mine, first", b"other", b"mine, second"] * ROUNDS
    entry.close()
    other.close()
    mine.close()


def test_a_lock_ends_its_wait_at_the_deadline(tmp_path: Path) -> None:
    first, second = FileLock(tmp_path / "lock"), FileLock(tmp_path / "lock")
    assert first.acquire(0)
    started_s = time.monotonic()
    assert not second.acquire(started_s + 0.05)
    assert 0.05 <= time.monotonic() - started_s < 5
    first.close()
    first.close()
    assert second.acquire(0)
    second.close()
