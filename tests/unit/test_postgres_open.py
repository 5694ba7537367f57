"""Opening and creating a store on PostgreSQL, and what its errors mean."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
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
from fencepost.storage import postgres
from fencepost.storage.postgres.engine import PostgresJournal
from fencepost.storage.postgres.errors import map_error
from fencepost.testing.conformance.journal_rows import MAIN, append_once, command_row
from tests.support.postgres import Server

STORE_ID = "0123456789abcdef" * 2


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


def head_of(journal: PostgresJournal) -> None:
    with journal.snapshot() as reads:
        reads.head(MAIN)


def write_to(journal: PostgresJournal) -> None:
    with journal.transaction(MAIN):
        pass


USES: dict[str, Callable[[PostgresJournal], object]] = {
    "snapshot": head_of,
    "transaction": write_to,
    "change_token": PostgresJournal.change_token,
    "append": lambda journal: append_once(journal, commands=[command_row("second")]),
}


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("again", [True, False])
def test_a_schema_that_is_made_anew_under_a_running_engine_is_not_used(
    journal: PostgresJournal, server: Server, schema: str, raw: psycopg.Connection[Any], use: str, again: bool
) -> None:
    """The connection is sound and is used again: it is asked each time whose tables it has come to."""
    append_once(journal, commands=[command_row("first")])
    head_of(journal)
    raw.execute(f'DROP SCHEMA "{schema}" CASCADE')  # type: ignore[call-overload]  # a name of the tests' own
    if again:
        postgres.create(server.url(), "f" * 32, schema=schema).close()
    for _ in range(2):
        with pytest.raises(StorageMismatch, match="f" * 32 if again else None):
            USES[use](journal)
    if again:
        assert raw.execute("SELECT (SELECT count(*) FROM stream), (SELECT count(*) FROM record)").fetchone() == (0, 0)


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
