"""What the PostgreSQL engine adds to the port: the database's own refusals, opening, creating, and its errors."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from types import FrameType
from typing import Any

import psycopg
import pytest

from fencepost.ports.errors import (
    FencepostError,
    IntegrityError,
    StorageError,
    StorageFull,
    StorageMismatch,
    StorageUnavailable,
)
from fencepost.ports.journal import Append, EdgeRow, StateRow, Stream
from fencepost.storage import postgres
from fencepost.storage.postgres.engine import PostgresJournal
from fencepost.storage.postgres.errors import map_error
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
ENGINE_FOLDER = str(Path(postgres.__file__).parent)


@pytest.fixture
def server() -> Server:
    """One is enough for what is the same in every version; the suite that ships runs on all."""
    return running(SERVERS[0])


@pytest.fixture
def schema(server: Server) -> str:
    return server.fresh_schema()


@pytest.fixture
def journal(server: Server, schema: str) -> Iterator[PostgresJournal]:
    journal = postgres.create(server.url(), STORE_ID, schema=schema)
    yield journal
    journal.close()


@pytest.fixture
def raw(server: Server, schema: str) -> Iterator[psycopg.Connection[Any]]:
    """A connection as any other program would open one; every name is looked for in the store's schema."""
    with psycopg.connect(server.url(), autocommit=True, options=f"-c search_path={schema}") as connection:
        yield connection


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
        found = transaction._connection.execute("SHOW synchronous_commit").fetchone()  # type: ignore[attr-defined]
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


# -- opening and creating


def test_a_store_keeps_its_identity(journal: PostgresJournal, server: Server, schema: str) -> None:
    again = postgres.create(server.url(), "f" * 32, schema=schema)
    assert again.info == journal.info
    assert again.info.store_id == STORE_ID and (again.info.layout, again.info.format) == (1, 0)
    again.close()


def test_competing_creators_make_one_store(server: Server, schema: str) -> None:
    with ThreadPoolExecutor(6) as pool:
        made = list(pool.map(lambda n: postgres.create(server.url(), f"{n:032x}", schema=schema), range(6)))
    assert len({journal.info.store_id for journal in made}) == 1
    for journal in made:
        journal.close()


def test_a_creator_that_is_killed_leaves_nothing(
    server: Server, schema: str, raw: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("fencepost.storage.postgres.connections.finish", killed)
    with pytest.raises(KeyboardInterrupt):
        postgres.create(server.url(), STORE_ID, schema=schema)
    monkeypatch.undo()
    found = raw.execute("SELECT count(*) FROM pg_namespace WHERE nspname = %s", (schema,)).fetchone()
    assert found == (0,)
    with pytest.raises(StorageUnavailable, match="no store"):
        postgres.open(server.url(), schema=schema)
    postgres.create(server.url(), STORE_ID, schema=schema).close()


@pytest.mark.parametrize(("name", "found"), [("layout", "2"), ("layout", "0"), ("format", "7"), ("layout", "one")])
def test_another_layout_or_format_is_refused(
    journal: PostgresJournal, server: Server, schema: str, raw: psycopg.Connection[Any], name: str, found: str
) -> None:
    raw.execute("UPDATE meta SET value = %s WHERE key = %s", (found, name))
    before = raw.execute("TABLE meta").fetchall()
    for call in (postgres.open, lambda url, schema: postgres.create(url, "f" * 32, schema=schema)):
        with pytest.raises(StorageMismatch) as caught:
            call(server.url(), schema=schema)
        assert caught.value.next_step
    assert raw.execute("TABLE meta").fetchall() == before


def test_another_store_behind_the_same_address_is_refused(
    journal: PostgresJournal, raw: psycopg.Connection[Any]
) -> None:
    """A connection that is made anew may lead to a database that was restored, or is another."""
    append_once(journal)
    raw.execute("UPDATE meta SET value = %s WHERE key = 'store_id'", ("f" * 32,))
    end = "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE application_name = 'fencepost'"
    raw.execute(end)
    for _ in range(2):
        with pytest.raises(StorageMismatch, match="f" * 32):
            append_once(journal)
    raw.execute("UPDATE meta SET value = %s WHERE key = 'store_id'", (STORE_ID,))
    raw.execute(end)
    assert append_once(journal).seq == 2


@pytest.mark.parametrize(
    "foreign",
    ["CREATE TABLE {}.meta (a int)", "CREATE TABLE {}.record (a int)", "CREATE VIEW {}.meta AS SELECT 1 AS key"],
)
def test_a_schema_of_something_else_is_left_alone(
    server: Server, schema: str, raw: psycopg.Connection[Any], foreign: str
) -> None:
    raw.execute(f"CREATE SCHEMA {schema}")
    raw.execute(foreign.format(schema))
    with pytest.raises(StorageMismatch, match="something else"):
        postgres.create(server.url(), STORE_ID, schema=schema)
    tables = raw.execute("SELECT count(*) FROM pg_class WHERE relnamespace = %s::regnamespace", (schema,)).fetchone()
    assert tables == (1,)


def test_a_database_in_another_encoding_is_refused(server: Server) -> None:
    with psycopg.connect(server.url(), autocommit=True) as connection:
        connection.execute("CREATE DATABASE latin TEMPLATE template0 ENCODING 'LATIN1' LOCALE_PROVIDER libc LOCALE 'C'")
    url = server.url().replace("/postgres?", "/latin?")
    with pytest.raises(StorageMismatch, match="LATIN1"):
        postgres.create(url, STORE_ID)


def test_what_is_not_there_is_unavailable_at_once(server: Server, schema: str, tmp_path: Path) -> None:
    started_s = time.monotonic()
    for url, words in (
        (server.url(), "no store"),
        (server.url().replace("/postgres?", "/nowhere?"), "does not exist"),
        (server.url(tmp_path), "cannot be used now"),
        (server.url().replace("user=fencepost", "user=stranger"), "stranger"),
    ):
        with pytest.raises(StorageUnavailable, match=words) as caught:
            postgres.open(url, schema=schema)
        assert caught.value.next_step and "\n" not in caught.value.message
    assert time.monotonic() - started_s < 5


def test_an_address_that_cannot_be_read_is_not_repeated(server: Server) -> None:
    for url in ("postgresql://me:se%cret@host/db", "postgresql://me:secret@[host/db", "password=secret nonsense"):
        with pytest.raises(StorageUnavailable) as caught:
            postgres.open(url)
        assert "cret" not in str(caught.value)
        assert caught.value.__cause__ is None and caught.value.__suppress_context__
    with pytest.raises(StorageUnavailable) as caught:
        postgres.open(server.url() + "&password=secret&port=1")
    assert "secret" not in str(caught.value) and "postgresql://" in str(caught.value)


@pytest.mark.parametrize("schema", ["", "Upper", "a b", 'a"b', "pg_mine", "x" * 64, "1a", "ä"])
def test_a_name_that_no_schema_of_a_store_has_is_refused(schema: str) -> None:
    with pytest.raises(ValueError, match="schema"):
        postgres.open("postgresql:///x", schema=schema)


# -- errors


STATES = {
    "53100": StorageFull,
    "53300": StorageUnavailable,
    "57P01": StorageUnavailable,
    "57P03": StorageUnavailable,
    "08006": StorageUnavailable,
    "28P01": StorageUnavailable,
    "3D000": StorageUnavailable,
    "42501": StorageUnavailable,
    "25006": StorageUnavailable,
    "25P03": StorageUnavailable,
    "40001": StorageUnavailable,
    "40P01": StorageUnavailable,
    "55P03": StorageUnavailable,
    "XX001": IntegrityError,
    "XX002": IntegrityError,
    "42P01": StorageMismatch,
    "42703": StorageMismatch,
    "3F000": StorageMismatch,
    "58030": StorageError,
    "22003": StorageError,
    "54000": StorageError,
    "XX000": StorageError,
}


def test_the_database_says_it_and_the_port_names_it(journal: PostgresJournal, raw: psycopg.Connection[Any]) -> None:
    """Each error comes from the server, while a record is written; nothing of it stays, and the next one is well."""
    for state, kind in STATES.items():
        raw.execute(
            "CREATE OR REPLACE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS"
            f" $$ BEGIN RAISE EXCEPTION 'it went wrong' USING ERRCODE = '{state}'; END $$"
        )
        raw.execute("CREATE TRIGGER fail BEFORE INSERT ON record EXECUTE FUNCTION fail()")
        with pytest.raises(FencepostError) as caught:
            append_once(journal, commands=[command_row("k")])
        assert type(caught.value) is kind, state
        assert caught.value.next_step and "\n" not in caught.value.message
        raw.execute("DROP TRIGGER fail ON record")
    assert append_once(journal, commands=[command_row("k")]).seq == 1


def test_an_error_without_a_state_is_the_connections() -> None:
    assert type(map_error(psycopg.OperationalError("gone"), "x")) is StorageUnavailable
    assert type(map_error(psycopg.DataError("odd"), "x")) is StorageError
    assert map_error(psycopg.OperationalError(""), "x").message


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


@pytest.mark.filterwarnings("ignore:.*was deleted while still open:ResourceWarning")
def test_case_16_an_interrupt_at_any_line_leaves_the_stream_free(journal: PostgresJournal) -> None:
    """The engine is hit at each of its lines in turn, and what follows neither waits nor meets half a group."""
    head = append_once(journal)
    line, was_hit = 1, True
    while was_hit:
        was_hit = _interrupted_at(line, journal)
        assert not journal._writers and len(journal._used) == 0
        before, head = head, append_once(journal)
        assert head.seq - before.seq in (1, 2)
        line += 1
    assert line > 50


def _interrupted_at(line: int, journal: PostgresJournal) -> bool:
    """Append once; raise KeyboardInterrupt at the so-manyeth line of the engine. Whether it came so far."""
    left = line

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal left
        if not frame.f_code.co_filename.startswith(ENGINE_FOLDER):
            return None
        if event == "line":
            left -= 1
            if left == 0:
                raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    try:
        sys.settrace(trace)
        append_once(journal)
        with journal.snapshot() as reads:
            reads.head(MAIN)
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
    return False


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


def test_without_the_driver_it_says_which_extra_is_missing() -> None:
    program = (
        "import sys; sys.modules['psycopg'] = None\n"
        "from fencepost.ports.errors import StorageUnavailable\n"
        "from fencepost.storage import postgres\n"
        "for call in (lambda url: postgres.open(url), lambda url: postgres.create(url, '0' * 32)):\n"
        "    try: call('postgresql:///x')\n"
        "    except StorageUnavailable as error: print(error.next_step)\n"
    )
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert said.splitlines() == ["pip install 'fencepost[postgres]'"] * 2


def test_the_rest_of_the_program_does_not_load_the_driver() -> None:
    program = (
        "import sys, fencepost.__main__, fencepost.app, fencepost.storage.postgres; print('psycopg' in sys.modules)"
    )
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert said == "False\n"
