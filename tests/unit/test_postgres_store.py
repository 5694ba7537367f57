"""What the PostgreSQL engine adds to the port: the database's own refusals, locks, views, threads and processes."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import psycopg
import pytest

from fencepost.ports.errors import StorageError, StorageUnavailable
from fencepost.ports.journal import Append, EdgeRow, StateRow, Stream
from fencepost.storage import postgres
from fencepost.storage.postgres.engine import PostgresJournal
from fencepost.testing.conformance.journal_rows import (
    EMPTY,
    MAIN,
    OTHER,
    append_once,
    command_row,
    index_row,
    next_append,
)
from tests.support.postgres import Server, installations, running

STORE_ID = "0123456789abcdef" * 2
SERVERS = sorted(installations())


@pytest.fixture(scope="module", params=SERVERS)
def history(request: pytest.FixtureRequest) -> Iterator[psycopg.Connection[Any]]:
    """A store with two records and a command, as any other program would open it, on every version."""
    server = running(request.param)
    schema = server.fresh_schema()
    journal = postgres.create(server.url(), STORE_ID, schema=schema)
    append_once(journal, [b"one", b"two"], commands=[command_row("k")])
    journal.close()
    with psycopg.connect(server.url(), autocommit=True, options=f"-c search_path={schema}") as connection:
        yield connection


@pytest.mark.parametrize("role", ["origin", "replica"])
@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE record SET data = ''",
        "UPDATE record SET seq = seq + 100 WHERE seq = 2",
        "UPDATE record SET data = '' WHERE seq = 77",
        "DELETE FROM record",
        "DELETE FROM record WHERE seq = 2",
        "TRUNCATE record",
        "TRUNCATE stream, record CASCADE",
        "INSERT INTO record SELECT * FROM record ON CONFLICT (stream, seq) DO UPDATE SET data = excluded.data",
        "MERGE INTO record USING record AS other ON record.seq = other.seq WHEN MATCHED THEN DELETE",
        "MERGE INTO record USING record AS other ON record.seq = other.seq WHEN MATCHED THEN UPDATE SET data = ''",
        "UPDATE command SET receipt = ''",
        "DELETE FROM command",
        "TRUNCATE command",
        "INSERT INTO command SELECT * FROM command ON CONFLICT (stream, key) DO UPDATE SET receipt = ''",
    ],
)
def test_w24_the_database_refuses_to_change_history(
    history: psycopg.Connection[Any], statement: str, role: str
) -> None:
    history.execute("SELECT set_config('session_replication_role', %s, false)", (role,))
    before = history.execute("TABLE record").fetchall(), history.execute("TABLE command").fetchall()
    with pytest.raises(psycopg.errors.RestrictViolation, match="append-only"):
        history.execute(statement)
    after = history.execute("TABLE record").fetchall(), history.execute("TABLE command").fetchall()
    assert after == before
    assert len(after[0]) == 2 and len(after[1]) == 1


def test_w24_a_record_is_written_once(journal: PostgresJournal, raw: psycopg.Connection[Any]) -> None:
    append_once(journal, [b"one"])
    with pytest.raises(psycopg.errors.UniqueViolation):
        raw.execute("INSERT INTO record SELECT stream, seq, '' FROM record")


def test_text_is_sorted_by_bytes_whatever_the_database_speaks(
    journal: PostgresJournal, raw: psycopg.Connection[Any]
) -> None:
    rows = raw.execute(
        "SELECT table_name || '.' || column_name FROM information_schema.columns"
        " WHERE table_schema = current_schema() AND data_type = 'text' AND collation_name IS DISTINCT FROM 'C'"
    )
    assert rows.fetchall() == [("meta.value",)], "every key and every name that is compared"
    append_once(journal, states=[StateRow(subject, 1, b"") for subject in ("a", "B", "ä", "Z")])
    with journal.snapshot() as reads:
        assert [row.subject for row in reads.state_page(MAIN, "", "", 9)] == ["B", "Z", "a", "ä"]


@pytest.mark.skipif("system" not in SERVERS, reason="the packaged server knows no language that sorts otherwise")
def test_the_test_server_would_sort_otherwise() -> None:
    """So that the tests above are about something."""
    with psycopg.connect(running("system").url()) as connection:
        row = connection.execute("SELECT 'a' < 'B' COLLATE \"default\"").fetchone()
    assert row == (True,)


# -- locks and views


def test_case_21_the_head_row_is_locked_at_the_start(journal: PostgresJournal, raw: psycopg.Connection[Any]) -> None:
    append_once(journal)
    with journal.transaction(MAIN), pytest.raises(psycopg.errors.LockNotAvailable):
        raw.execute("SELECT FROM stream FOR UPDATE NOWAIT")
    raw.execute("SELECT FROM stream FOR UPDATE NOWAIT")


def test_a_stream_that_is_not_there_yet_is_locked_too(
    journal: PostgresJournal, server: Server, schema: str, raw: psycopg.Connection[Any]
) -> None:
    other = postgres.open(server.url(), schema=schema)
    with journal.transaction(MAIN) as transaction:
        with pytest.raises(StorageUnavailable, match="another writer"), other.transaction(MAIN, wait_s=0.1):
            pass
        assert raw.execute("TABLE stream").fetchall() == []
        with ThreadPoolExecutor(1) as pool:
            second = pool.submit(append_once, other)
            time.sleep(0.1)
            assert not second.done()
            transaction.append(next_append(EMPTY))
            transaction.commit()
            assert second.result(20).seq == 2
    with journal.transaction(OTHER):
        pass  # nothing was appended, and the transaction dropped
    assert raw.execute("SELECT count(*) FROM stream").fetchone() == (1,)
    other.close()


def test_a_stream_that_was_dropped_is_found_when_another_makes_it(
    journal: PostgresJournal, server: Server, schema: str
) -> None:
    with journal.transaction(OTHER) as transaction:
        transaction.append(next_append(EMPTY, stream=OTHER))
    other = postgres.open(server.url(), schema=schema)
    append_once(other, [b"theirs"], stream=OTHER)
    with journal.snapshot() as reads:
        assert [record.data for record in reads.records(OTHER, 0, 9)] == [b"theirs"]
    other.close()


def test_streams_do_not_wait_for_each_other(journal: PostgresJournal) -> None:
    with journal.transaction(MAIN), ThreadPoolExecutor(1) as pool:
        assert pool.submit(append_once, journal, stream=OTHER).result(20).seq == 1


@pytest.mark.slow
def test_a_waiting_writer_is_bounded_also_behind_another(journal: PostgresJournal, server: Server, schema: str) -> None:
    """PostgreSQL bounds the wait in a row's queue and the wait for its holder each by itself."""
    append_once(journal)
    others = [postgres.open(server.url(), schema=schema) for _ in range(2)]
    entered, leave = threading.Event(), threading.Event()

    def second() -> None:
        with others[0].transaction(MAIN):
            entered.set()
            leave.wait(20)

    with ThreadPoolExecutor(2) as pool:
        with journal.transaction(MAIN):
            pool.submit(second)
            time.sleep(0.3)
            waiting = pool.submit(_seconds_until_refused, others[1], 2.0)
            time.sleep(1.7)
        assert entered.wait(20)
        assert 1.8 < waiting.result(20) < 3.3
        leave.set()
    for other in others:
        other.close()


def _seconds_until_refused(journal: PostgresJournal, wait_s: float) -> float:
    started_s = time.monotonic()
    with pytest.raises(StorageUnavailable, match="another writer"), journal.transaction(MAIN, wait_s=wait_s):
        pass
    return time.monotonic() - started_s


def test_views_are_isolated_as_they_should_be(journal: PostgresJournal) -> None:
    def setting(connection: psycopg.Connection[Any], name: str) -> object:
        row = connection.execute(f"SHOW {name}").fetchone()
        return None if row is None else row[0]

    with journal.transaction(MAIN) as transaction:
        writer = transaction._connection  # type: ignore[attr-defined]  # the engine's own
        assert setting(writer, "transaction_isolation") == "read committed"
        assert setting(writer, "synchronous_commit") == "on"
        assert setting(writer, "statement_timeout") == "0"
        assert setting(writer, "lock_timeout") != "0"
        assert setting(writer, "idle_in_transaction_session_timeout") != "0"
    with journal.snapshot() as reads:
        reader = reads._connection  # type: ignore[attr-defined]  # the engine's own
        assert setting(reader, "transaction_isolation") == "repeatable read"
        assert setting(reader, "transaction_read_only") == "on"
        assert setting(reader, "lock_timeout") == "0", "the settings of a writer end with it"


def test_a_commit_is_durable_whatever_the_role_is_set_to(journal: PostgresJournal, server: Server, schema: str) -> None:
    url = server.url() + "&options=-c%20synchronous_commit%3Doff"
    other = postgres.open(url, schema=schema)
    with other.transaction(MAIN) as transaction:
        found = transaction._connection.execute("SHOW synchronous_commit").fetchone()  # type: ignore[attr-defined]  # the engine's own
        assert found == ("on",)
    other.close()


def test_connections_are_bounded_and_used_again(
    journal: PostgresJournal, raw: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fencepost.storage.postgres.engine._CONNECTIONS_MAX", 12)
    with ExitStack() as stack:
        for _ in range(12):
            stack.enter_context(journal.snapshot())
        with pytest.raises(StorageUnavailable, match="12 snapshots"), journal.snapshot():
            pass
    assert append_once(journal).seq == 1
    deadline_s = time.monotonic() + 20
    while _backends(raw) > 8 and time.monotonic() < deadline_s:
        time.sleep(0.01)
    assert _backends(raw) == 8


def _backends(raw: psycopg.Connection[Any]) -> int:
    row = raw.execute("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'fencepost'").fetchone()
    return 0 if row is None else int(row[0])


def test_threads_of_one_stream_wait_with_one_connection(journal: PostgresJournal, raw: psycopg.Connection[Any]) -> None:
    with ThreadPoolExecutor(5) as pool:
        with journal.transaction(MAIN):
            waiting = [pool.submit(append_once, journal) for _ in range(5)]
            time.sleep(0.2)
            assert len(journal._used) == 1
            assert _backends(raw) == 1
        assert sorted(each.result(20).seq for each in waiting) == [1, 2, 3, 4, 5]


def test_what_fails_in_a_transaction_is_not_committed(journal: PostgresJournal) -> None:
    """COMMIT of a failed transaction succeeds in PostgreSQL, and rolls back."""
    with journal.transaction(MAIN) as transaction:
        transaction.append(next_append(EMPTY))
        with pytest.raises(StorageError):
            transaction.next_due(MAIN, 7)  # type: ignore[arg-type]  # as a program with a defect would
        with pytest.raises(StorageError, match="ROLLBACK"):
            transaction.commit()
    with journal.snapshot() as reads:
        assert reads.head(MAIN) == EMPTY


def test_a_group_that_failed_half_way_is_not_committed(journal: PostgresJournal) -> None:
    """What fails before it reaches the server leaves a transaction that the server would commit."""
    with journal.transaction(MAIN) as transaction:
        with pytest.raises(StorageError):
            transaction.append(next_append(EMPTY, states=[StateRow("\ud800", 1, b"")]))
        for call in (
            transaction.commit,
            lambda: transaction.append(next_append(EMPTY)),
            lambda: transaction.head(MAIN),
        ):
            with pytest.raises(StorageError, match="ended"):
                call()
    with journal.snapshot() as reads:
        assert reads.head(MAIN) == EMPTY and reads.records(MAIN, 0, 9) == []


def test_keys_of_the_longest_kind_fit_into_their_indexes(journal: PostgresJournal) -> None:
    """Their characters are drawn, so that nothing of them can be compressed away."""
    choices = random.Random(64)

    def text(size_bytes: int) -> str:
        return "".join(chr(choices.randrange(0x10000, 0x10FFFF)) for _ in range(size_bytes // 4))

    stage, group, subject, other = text(64), text(1_024), text(1_024), text(1_024)
    long = Stream(text(1_024), text(1_024))
    append_once(
        journal,
        stream=long,
        states=[StateRow(subject, 1, b"")],
        index_put=[index_row(subject, 1, stage=stage, group=group, rank=(1 << 63) - 1)],
        edges=[EdgeRow(subject, 0, other, 0, other)],
        commands=[command_row(other)],
    )
    with journal.snapshot() as reads:
        assert reads.streams() == [long]
        assert [row.subject for row in reads.find_last(long, stage, group, 5)] == [subject]
        assert reads.command(long, other) is not None


@pytest.mark.parametrize("text", ["a\0b", "\ud800"])
def test_text_that_cannot_be_stored_is_an_error_of_its_writer(journal: PostgresJournal, text: str) -> None:
    with pytest.raises(StorageError):
        append_once(journal, states=[StateRow(text, 1, b"")])
    with journal.snapshot() as reads, pytest.raises(StorageError):
        reads.states(MAIN, [text])
    assert append_once(journal).seq == 1


def test_every_kind_of_commit_changes_the_token(journal: PostgresJournal) -> None:
    head = append_once(journal)
    tokens = [journal.change_token()]
    with journal.transaction(MAIN) as transaction:
        transaction.append(Append(MAIN, head, head, (), commands=[command_row("k")]))
        transaction.commit()
    tokens.append(journal.change_token())
    with journal.transaction(MAIN) as transaction:
        transaction.replace_caches(MAIN, head.fold_version, (), (), ())
        transaction.commit()
    tokens.append(journal.change_token())
    append_once(journal, stream=OTHER)
    tokens.append(journal.change_token())
    with journal.transaction(MAIN) as transaction:
        transaction.append(next_append(head))
        assert journal.change_token() == tokens[-1], "not before others can see it"
        transaction.commit()
    tokens.append(journal.change_token())
    assert len(set(tokens)) == 5


# -- processes


def test_a_child_cannot_use_it_and_leaves_it_whole(journal: PostgresJournal) -> None:
    append_once(journal)
    parent = os.getpid()
    verdict = 1
    try:
        with journal.snapshot() as reads, journal.transaction(MAIN) as transaction:
            if os.fork() == 0:
                for call in (
                    lambda: journal.info,
                    journal.change_token,
                    lambda: journal.snapshot().__enter__(),
                    lambda: journal.transaction(OTHER).__enter__(),
                    lambda: reads.head(MAIN),
                    lambda: transaction.append(next_append(transaction.head(MAIN))),
                    transaction.commit,
                ):
                    with pytest.raises(StorageError):
                        call()
                journal.close()
                verdict = 0
                raise KeyboardInterrupt  # leaves the blocks as the child would
            _, status = os.wait()
            assert os.waitstatus_to_exitcode(status) == 0
            assert reads.head(MAIN).seq == 1
            transaction.append(next_append(transaction.head(MAIN)))
            transaction.commit()
    finally:
        if os.getpid() != parent:
            os._exit(verdict)
    assert append_once(journal).seq == 3


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*was deleted while still open:ResourceWarning")
def test_case_16_an_interrupt_at_any_moment_leaves_the_stream_free(journal: PostgresJournal) -> None:
    """Real signals while a group is appended: what follows neither waits nor meets half a group."""
    choices = random.Random(16)
    head = append_once(journal)
    hits = 0
    for _ in range(150):
        hits += _interrupted_after(choices.random() * 0.006, journal)
        assert not journal._writers and len(journal._used) == 0
        before = head
        head = append_once(journal)
        assert head.seq - before.seq in (1, 2)
    assert hits > 20


@pytest.mark.parametrize("call", ["head", "commit"])
def test_a_connection_that_was_interrupted_is_not_used_again(
    journal: PostgresJournal, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """The library may know less than the server of what it has prepared by then."""

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    append_once(journal)
    with journal.transaction(MAIN) as transaction:
        connection = transaction._connection  # type: ignore[attr-defined]  # the engine's own
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(psycopg.Connection, "execute", interrupted)
            if call == "head":
                transaction.head(OTHER)
            else:
                transaction.commit()
        assert connection.closed
    assert append_once(journal).seq == 2


def _interrupted_after(seconds: float, journal: PostgresJournal) -> bool:
    """Append once, and read; a signal raises KeyboardInterrupt meanwhile. Whether it came in time."""
    is_over = False

    def interrupt(*_: object) -> None:
        if not is_over:
            raise KeyboardInterrupt

    def send() -> None:
        time.sleep(seconds)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, interrupt)
    sender = threading.Thread(target=send)
    try:
        sender.start()
        append_once(journal)
        with journal.snapshot() as reads:
            reads.head(MAIN)
        is_over = True
        was_hit = False
    except KeyboardInterrupt:
        was_hit = True
    finally:
        is_over = True
        sender.join()
        signal.signal(signal.SIGUSR1, before)
    return was_hit


def test_closing_waits_for_a_transaction_that_is_open(server: Server, schema: str) -> None:
    journal = postgres.create(server.url(), STORE_ID, schema=schema)
    entered, leave = threading.Event(), threading.Event()

    def write() -> None:
        with journal.transaction(MAIN) as transaction:
            entered.set()
            leave.wait(20)
            transaction.append(next_append(EMPTY))
            transaction.commit()

    with ThreadPoolExecutor(2) as pool:
        writing = pool.submit(write)
        assert entered.wait(20)
        closing = pool.submit(journal.close)
        time.sleep(0.05)
        assert not closing.done()
        leave.set()
        closing.result(20)
        writing.result(20)
    with pytest.raises(StorageUnavailable, match="closed"), journal.transaction(MAIN):
        pass
    again = postgres.open(server.url(), schema=schema)
    assert append_once(again).seq == 2
    again.close()


def test_a_snapshot_that_outlives_its_store_takes_its_connection_along(
    server: Server, schema: str, raw: psycopg.Connection[Any]
) -> None:
    journal = postgres.create(server.url(), STORE_ID, schema=schema)
    with journal.snapshot() as reads:
        journal.close()
        assert reads.head(MAIN) == EMPTY
    deadline_s = time.monotonic() + 20
    while _backends(raw) and time.monotonic() < deadline_s:
        time.sleep(0.01)
    assert _backends(raw) == 0


def test_a_thread_does_not_close_under_its_own_transaction(journal: PostgresJournal) -> None:
    with journal.transaction(MAIN), pytest.raises(StorageError, match="transaction open"):
        journal.close()
    assert append_once(journal).seq == 1


_FORKING_WRITER = """
import os, sys, time
from fencepost.ports.journal import Stream
from fencepost.storage import postgres
with postgres.open(sys.argv[1], schema=sys.argv[2]).transaction(Stream("default", "main")):
    if os.fork() == 0:
        sys.stdin.read()
        os._exit(0)
    print("held", flush=True)
    time.sleep(60)
"""


def test_case_20_a_child_that_outlives_a_killed_writer_does_not_keep_its_lock(
    journal: PostgresJournal, server: Server, schema: str
) -> None:
    append_once(journal)
    command = [sys.executable, "-c", _FORKING_WRITER, server.url(), schema]
    writer = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with writer:
        assert writer.stdout is not None and writer.stdout.readline() == b"held\n"
        with pytest.raises(StorageUnavailable), journal.transaction(MAIN, wait_s=0.1):
            pass
        writer.kill()
        writer.wait()
        with journal.transaction(MAIN, wait_s=10) as transaction:
            assert transaction.head(MAIN).seq == 1
        assert writer.stdin is not None
        writer.stdin.close()  # lets the child go
