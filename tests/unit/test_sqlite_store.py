"""What the SQLite engine adds to the port: the database's own refusals, opening, creating, and its errors."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from fencepost.ports.errors import (
    FencepostError,
    IntegrityError,
    StorageError,
    StorageFull,
    StorageMismatch,
    StorageUnavailable,
)
from fencepost.ports.journal import StateRow, Stream
from fencepost.storage import sqlite
from fencepost.storage.sqlite import SqliteJournal
from fencepost.storage.sqlite.errors import map_error, map_os_error
from fencepost.testing.conformance.journal_rows import MAIN, append_once, command_row, next_append

STORE_ID = "0123456789abcdef" * 2


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[SqliteJournal]:
    journal = sqlite.create(tmp_path / "store.db", STORE_ID, tmp_path / "locks")
    yield journal
    journal.close()


@pytest.fixture
def raw(journal: SqliteJournal, tmp_path: Path) -> Iterator[apsw.Connection]:
    """A connection as any other program would open one."""
    append_once(journal, [b"one", b"two"], commands=[command_row("k")])
    connection = apsw.Connection(str(tmp_path / "store.db"))
    yield connection
    connection.close()


@pytest.mark.parametrize("recursive_triggers", [True, False])
@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE record SET data = x'00'",
        "UPDATE record SET id = id + 100 WHERE seq = 2",
        "DELETE FROM record",
        "DELETE FROM record WHERE seq = 2",
        "REPLACE INTO record (id, data) SELECT id, x'00' FROM record",
        "INSERT OR REPLACE INTO record (id, data) SELECT max(id), x'00' FROM record",
        "INSERT INTO record (id, data) SELECT id, x'00' FROM record WHERE true"
        " ON CONFLICT DO UPDATE SET data = excluded.data",
        "UPDATE OR REPLACE record SET id = (SELECT min(id) FROM record) WHERE seq = 2",
        "UPDATE command SET receipt = x'00'",
        "DELETE FROM command",
        "REPLACE INTO command SELECT * FROM command",
        "INSERT OR REPLACE INTO command (rowid, stream, key, digest, first_seq, count, receipt)"
        " SELECT rowid, stream, 'other', digest, first_seq, count, receipt FROM command",
        "INSERT INTO command SELECT * FROM command WHERE true ON CONFLICT DO UPDATE SET receipt = excluded.receipt",
    ],
)
def test_w24_the_database_refuses_to_change_history(
    raw: apsw.Connection, statement: str, recursive_triggers: bool
) -> None:
    raw.pragma("recursive_triggers", recursive_triggers)
    before = raw.execute("SELECT * FROM record").fetchall(), raw.execute("SELECT * FROM command").fetchall()
    with pytest.raises(apsw.ConstraintError, match="append-only"):
        raw.execute(statement)
    after = raw.execute("SELECT * FROM record").fetchall(), raw.execute("SELECT * FROM command").fetchall()
    assert after == before
    assert len(after[0]) == 2 and len(after[1]) == 1


def test_a_commit_survives_a_power_cut(journal: SqliteJournal, raw: apsw.Connection) -> None:
    assert raw.pragma("journal_mode") == "wal"
    with journal.transaction(MAIN):
        writer = journal._writer
        assert writer is not None
        assert writer.pragma("synchronous") == 2  # FULL
        assert writer.pragma("recursive_triggers") == 1


def test_case_21_the_write_lock_is_taken_at_the_start(journal: SqliteJournal, raw: apsw.Connection) -> None:
    with journal.transaction(MAIN) as transaction:
        transaction.head(MAIN)
        with pytest.raises(apsw.BusyError):
            raw.execute("BEGIN IMMEDIATE")


def test_another_program_that_holds_the_lock_is_waited_for(journal: SqliteJournal, raw: apsw.Connection) -> None:
    raw.execute("BEGIN IMMEDIATE")
    with pytest.raises(StorageUnavailable), journal.transaction(MAIN, wait_s=0.05):
        pass
    answers: list[int] = []
    waiting = threading.Thread(target=lambda: answers.append(append_once(journal).seq))
    waiting.start()
    waiting.join(0.05)
    assert answers == []
    raw.execute("ROLLBACK")
    waiting.join(10)
    assert answers == [3]


def test_a_missing_file_is_unavailable_and_not_made(tmp_path: Path) -> None:
    with pytest.raises(StorageUnavailable) as caught:
        sqlite.open(tmp_path / "none.db", tmp_path / "locks")
    assert caught.value.next_step
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_made_is_unavailable(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StorageUnavailable):
        sqlite.create(tmp_path / "file" / "store.db", STORE_ID, tmp_path / "file" / "locks")


def test_garbage_is_an_integrity_error(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    path.write_bytes(b"this is no database, and long enough to be looked at. " * 100)
    for call in (lambda: sqlite.open(path, tmp_path), lambda: sqlite.create(path, STORE_ID, tmp_path)):
        with pytest.raises(IntegrityError):
            call()
    assert path.read_bytes().startswith(b"this is no database")


def test_a_damaged_page_is_an_integrity_error(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    journal = sqlite.create(path, STORE_ID, tmp_path / "locks")
    append_once(journal, [b"x" * 3_000] * 200)
    journal.close()
    content = bytearray(path.read_bytes())
    content[-100 * 4096 :] = b"\xff" * (100 * 4096)
    path.write_bytes(content)
    journal = sqlite.open(path, tmp_path / "locks")
    with pytest.raises(IntegrityError), journal.snapshot() as reads:
        reads.records(MAIN, 0, 1_000)
    journal.close()


@pytest.mark.parametrize("sql", ["", "CREATE TABLE meta (key, value)", "CREATE TABLE notes (text)"])
def test_a_database_of_something_else_is_a_mismatch(tmp_path: Path, sql: str) -> None:
    path = tmp_path / "store.db"
    connection = apsw.Connection(str(path))
    connection.execute(sql or "VACUUM")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(StorageMismatch):
        sqlite.create(path, STORE_ID, tmp_path / "locks")
    assert path.read_bytes() == before


@pytest.mark.parametrize("key", ["layout", "format"])
@pytest.mark.parametrize("value", ["99", "-1", "later"])
def test_another_layout_or_format_is_a_mismatch(tmp_path: Path, key: str, value: str) -> None:
    path = tmp_path / "store.db"
    sqlite.create(path, STORE_ID, tmp_path / "locks").close()
    connection = apsw.Connection(str(path))
    connection.execute("UPDATE meta SET value = ? WHERE key = ?", (value, key))
    connection.close()
    before = path.read_bytes()
    with pytest.raises(StorageMismatch) as caught:
        sqlite.open(path, tmp_path / "locks")
    assert caught.value.next_step
    assert path.read_bytes() == before


def test_creating_again_opens_what_is_there(journal: SqliteJournal, tmp_path: Path) -> None:
    append_once(journal)
    again = sqlite.create(tmp_path / "store.db", "f" * 32, tmp_path / "locks")
    assert again.info == journal.info
    assert again.info.store_id == STORE_ID
    with again.snapshot() as reads:
        assert reads.head(MAIN).seq == 1
    again.close()


def test_a_draft_of_a_killed_creator_is_replaced(tmp_path: Path) -> None:
    for suffix in ("", "-wal", "-shm", "-journal"):
        (tmp_path / f"store.db.new{suffix}").write_bytes(b"half" * 1_000)
    sqlite.create(tmp_path / "store.db", STORE_ID, tmp_path / "locks").close()
    assert {path.name for path in tmp_path.iterdir()} == {"store.db", "locks"}
    assert (tmp_path / "store.db").stat().st_mode & 0o777 == 0o600


def test_a_forked_child_must_open_again(journal: SqliteJournal, tmp_path: Path) -> None:
    append_once(journal)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            refused = 0
            for call in (
                lambda: journal.transaction(MAIN).__enter__(),
                lambda: journal.snapshot().__enter__(),
                journal.change_token,
            ):
                try:
                    call()
                except StorageUnavailable:
                    refused += 1
            journal.close()
            status = 0 if refused == 3 else 2
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    assert append_once(journal).seq == 2


def test_a_child_does_not_keep_the_turn(journal: SqliteJournal, tmp_path: Path) -> None:
    """A lock of an open file lives as long as a descriptor of it, so that a child closes its own."""
    reading, writing = os.pipe()
    other = sqlite.open(tmp_path / "store.db", tmp_path / "locks")
    holder = os.fork()
    if holder == 0:
        mine = sqlite.open(tmp_path / "store.db", tmp_path / "locks")
        with mine.transaction(MAIN):
            grandchild = os.fork()
            if grandchild == 0:
                os.read(reading, 1)
                os._exit(0)
            os._exit(0)  # as if killed: nothing is released
    assert os.waitpid(holder, 0)[1] == 0
    with other.transaction(MAIN, wait_s=5) as transaction:
        transaction.append(next_append(transaction.head(MAIN)))
        transaction.commit()
    os.write(writing, b"x")
    os.close(reading)
    os.close(writing)
    other.close()


def test_a_value_that_cannot_be_stored_breaks_the_transaction(journal: SqliteJournal) -> None:
    with journal.transaction(MAIN) as transaction:
        head = transaction.head(MAIN)
        with pytest.raises(OverflowError):
            transaction.append(next_append(head, states=[StateRow("s", 1 << 64, b"")]))
        with pytest.raises(StorageError):
            transaction.commit()
    assert append_once(journal).seq == 1


def test_snapshots_are_bounded(journal: SqliteJournal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fencepost.storage.sqlite.engine._READERS_MAX", 2)
    with journal.snapshot(), journal.snapshot(), pytest.raises(StorageUnavailable), journal.snapshot():
        pass
    with journal.snapshot() as reads:
        assert reads.head(MAIN).seq == 0


def test_a_snapshot_outlives_closing(journal: SqliteJournal) -> None:
    append_once(journal)
    with journal.snapshot() as reads:
        journal.close()
        assert reads.head(MAIN).seq == 1


def test_a_clean_close_leaves_one_file(tmp_path: Path) -> None:
    journal = sqlite.create(tmp_path / "store.db", STORE_ID, tmp_path / "locks")
    append_once(journal)
    journal.change_token()
    journal.close()
    assert sorted(path.name for path in tmp_path.glob("store.db*")) == ["store.db"]


def test_the_log_does_not_grow_without_bound(journal: SqliteJournal, tmp_path: Path) -> None:
    for _ in range(40):
        append_once(journal, [b"x" * 3_000] * 100)
    assert (tmp_path / "store.db-wal").stat().st_size < 8 * 1024 * 1024


class _Broken:
    def __init__(self, system_errno: int) -> None:
        self.system_errno = system_errno


@pytest.mark.parametrize(
    ("error", "system_errno", "expected"),
    [
        (apsw.FullError(), 0, StorageFull),
        (apsw.IOError(), errno.ENOSPC, StorageFull),
        (apsw.IOError(), errno.EDQUOT, StorageFull),
        (apsw.IOError(), errno.EFBIG, StorageFull),
        (apsw.IOError(), errno.EIO, StorageError),
        (apsw.CorruptError(), 0, IntegrityError),
        (apsw.NotADBError(), 0, IntegrityError),
        (apsw.CantOpenError(), 0, StorageUnavailable),
        (apsw.BusyError(), 0, StorageUnavailable),
        (apsw.ReadOnlyError(), 0, StorageUnavailable),
        (apsw.SQLError(), 0, StorageError),
    ],
)
def test_errors_say_whose_fault_it_is(error: apsw.Error, system_errno: int, expected: type[FencepostError]) -> None:
    mapped = map_error(error, "store.db", _Broken(system_errno))  # type: ignore[arg-type]  # has what is asked
    assert type(mapped) is expected
    assert "store.db" in mapped.message
    assert mapped.next_step


def test_streams_of_one_store_are_apart(journal: SqliteJournal) -> None:
    for number in range(3):
        for name in ("a", "b", "c"):
            append_once(journal, [name.encode()], stream=Stream("scope", name))
        with journal.snapshot() as reads:
            for name in ("a", "b", "c"):
                records = reads.records(Stream("scope", name), 0, 100)
                assert [record.data for record in records] == [name.encode()] * (number + 1)


@pytest.mark.parametrize(
    ("number", "expected"),
    [(errno.ENOSPC, StorageFull), (errno.EDQUOT, StorageFull), (errno.EACCES, StorageUnavailable)],
)
def test_errors_of_the_system_say_whose_fault_it_is(number: int, expected: type[FencepostError]) -> None:
    mapped = map_os_error(OSError(number, os.strerror(number)), "locks/turnstile")
    assert type(mapped) is expected
    assert "locks/turnstile" in mapped.message
    assert mapped.next_step


def test_a_store_appears_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("fencepost.storage.sqlite.connections.os.replace", interrupted)
        with pytest.raises(KeyboardInterrupt):
            sqlite.create(tmp_path / "store.db", STORE_ID, tmp_path / "locks")
    assert [path.name for path in tmp_path.iterdir()] == ["locks"]
    sqlite.create(tmp_path / "store.db", STORE_ID, tmp_path / "locks").close()
