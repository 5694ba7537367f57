"""Connections: where a store is, what every connection is set to, and what is checked before it is used.

A connection is made on autocommit, so that transactions begin and end where the engine says so and nowhere else.
"""

from __future__ import annotations

import math
import os
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from psycopg import pq
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.types.array import ListBinaryDumper
from psycopg.types.numeric import Int8BinaryDumper

from fencepost.ports.errors import StorageError, StorageMismatch, StorageUnavailable
from fencepost.ports.journal import StoreInfo
from fencepost.storage.postgres.errors import map_error
from fencepost.storage.postgres.queries import statements_for

LAYOUT = 1  # of tables, as in schema.sql
FORMAT = 0  # of records

Connection = psycopg.Connection[tuple[object, ...]]

_CREATE_WAIT_S = 30.0
_CONNECT_WAIT_S = 10.0
PAUSE_S = 0.02  # before a server that has just refused or ended a connection is asked again
# Whoever sets these in the address means it. A peer that is gone without a word is noticed within a minute.
_DEFAULTS: dict[str, str] = {
    "application_name": "fencepost",
    "connect_timeout": "10",
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    "tcp_user_timeout": "60000",
}
# Every query has an index that gives its rows in their order. A planner that has not yet seen a table's size might
# still read and sort the whole of it: it is told not to. A commit that has returned is on the server's disk.
_SETTINGS = """
SET enable_seqscan = off; SET enable_bitmapscan = off; SET enable_sort = off;
SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off';
"""

_open_connections: weakref.WeakSet[Connection] = weakref.WeakSet()


class Address:
    """Where a store is: the database as libpq takes it, and the schema in it. `str()` of it holds no secret."""

    def __init__(self, url: str, schema: str) -> None:
        self.statements = statements_for(schema)
        try:
            given = {name: str(value) for name, value in conninfo_to_dict(url).items() if value is not None}
            # Bytes of text are the order of pages, so that they must be the same on both sides.
            self.conninfo = make_conninfo("", **{**_DEFAULTS, **given, "client_encoding": "UTF8"})
        except psycopg.Error:
            # The library's message repeats parts of the address, and there may be a password in it.
            raise StorageUnavailable(
                "the address of the PostgreSQL database cannot be read",
                next_step="write it as postgresql://user@host:port/database",
            ) from None
        host = given.get("host", given.get("hostaddr", ""))
        port = f":{given['port']}" if "port" in given else ""
        self._shown = f"postgresql://{host}{port}/{given.get('dbname', '')} (schema {schema})"

    def __str__(self) -> str:
        return self._shown


def _seconds_left(address: Address, deadline_s: float) -> int:
    """How long one try to connect may take: whole seconds, two at the least, which is the library's own floor."""
    asked = int(conninfo_to_dict(address.conninfo).get("connect_timeout") or 0)
    left = max(math.ceil(deadline_s - time.monotonic()), 2)
    return min(asked, left) if asked > 0 else left


def connect(address: Address, deadline_s: float) -> Connection:
    """Return a new connection. A server that is starting or recovering is waited for until `deadline_s`.

    `deadline_s` is of the monotonic clock. Raises StorageUnavailable.
    """
    was_refused = False
    while True:
        try:
            connection = psycopg.Connection.connect(
                address.conninfo,
                autocommit=True,
                connect_timeout=_seconds_left(address, deadline_s),
                cursor_factory=psycopg.RawCursor[tuple[object, ...]],
            )
        except psycopg.Error as error:
            now = pq.PGconn.ping(make_conninfo(address.conninfo, connect_timeout=2).encode())
            # One that broke off and is well by now may just have begun to recover. One that refuses does it again.
            is_passing = now == pq.Ping.REJECT or (now == pq.Ping.OK and not was_refused)
            if not is_passing or time.monotonic() >= deadline_s:
                raise map_error(error, str(address)) from error
            was_refused = now == pq.Ping.OK
            time.sleep(PAUSE_S)
            continue
        break
    _open_connections.add(connection)
    try:
        # Every number is a bigint, so that a statement has the same types each time, and bytes go as they are.
        for kind, dumper in ((int, Int8BinaryDumper), (list, ListBinaryDumper)):
            connection.adapters.register_dumper(kind, dumper)
        control(connection, _SETTINGS)
    except psycopg.Error as error:
        connection.close()
        raise map_error(error, str(address), connection) from error
    except BaseException:
        connection.close()
        raise
    return connection


def control(connection: Connection, statements: str) -> str:
    """Run statements without values or rows; return what the server says of the last. Raises psycopg's errors."""
    with _closed_by_interrupts(connection):
        # Several statements at once cannot be prepared, and none of these is worth it.
        cursor = connection.execute(statements, prepare=False)
        while cursor.nextset():
            pass
        return cursor.statusmessage or ""


def control_and_ask(connection: Connection, statements: str) -> str:
    """Run statements without values, and return the text that the last one answers with, "" for none."""
    with _closed_by_interrupts(connection):
        cursor = connection.execute(statements, prepare=False)
        while cursor.nextset():
            pass
        row = cursor.fetchone()
        return "" if row is None else str(row[0])


def query(connection: Connection, statement: str, *values: object) -> list[tuple[object, ...]]:
    """Return the rows of one statement of this package's files. Raises psycopg's errors."""
    with _closed_by_interrupts(connection):
        try:
            cursor = connection.execute(statement, values, binary=True)
        except UnicodeEncodeError as error:  # half a character
            raise psycopg.DataError(str(error)) from error
        return cursor.fetchall() if cursor.description else []


@contextmanager
def _closed_by_interrupts(connection: Connection) -> Iterator[None]:
    """The library may know less than the server of a statement that was broken off: which ones are prepared."""
    try:
        yield
    except psycopg.Error:
        raise
    except BaseException:
        connection.close()
        raise


def connect_to_store(address: Address, deadline_s: float) -> tuple[Connection, StoreInfo]:
    """Return a connection and who the store is. Raises StorageUnavailable, StorageMismatch or IntegrityError."""
    connection = connect(address, deadline_s)
    try:
        return connection, _read_info(connection, address)
    except BaseException:
        connection.close()
        raise


def _read_info(connection: Connection, address: Address) -> StoreInfo:
    """Return who the store is. Raises StorageMismatch for anything that this program did not lay out."""
    statements = address.statements
    try:
        if not query(connection, statements.by_name["store_exists"], statements.schema)[0][0]:
            raise StorageUnavailable(f"there is no store in {address}", next_step="name another database or schema")
        pairs = {str(key): str(value) for key, value in query(connection, statements.by_name["meta"])}
        info = StoreInfo(store_id=pairs["store_id"], layout=int(pairs["layout"]), format=int(pairs["format"]))
    except (psycopg.errors.UndefinedColumn, psycopg.errors.WrongObjectType, KeyError, ValueError) as error:
        raise _of_something_else(address) from error
    except psycopg.Error as error:
        raise map_error(error, str(address), connection) from error
    for name, found, known in (("layout", info.layout, LAYOUT), ("format", info.format, FORMAT)):
        if found != known:
            raise StorageMismatch(
                f"{address} has {name} {found}, this program knows {name} {known}; nothing was changed",
                next_step=f"use the version of fencepost that wrote {name} {found}, or a new schema",
            )
    return info


def create_store(address: Address, store_id: str) -> None:
    """Lay the store out unless there is one. Competing creators and killed ones leave a whole store or none."""
    connection = connect(address, time.monotonic() + _CONNECT_WAIT_S)
    statements = address.statements
    try:
        control(
            connection,
            f"BEGIN ISOLATION LEVEL READ COMMITTED, READ WRITE; SET LOCAL lock_timeout = {int(_CREATE_WAIT_S * 1_000)}",
        )
        query(connection, statements.by_name["create_lock"])
        if not query(connection, statements.by_name["store_exists"], statements.schema)[0][0]:
            _require_encoding(connection, address)
            control(connection, f'CREATE SCHEMA IF NOT EXISTS "{statements.schema}"')
            control(connection, statements.layout)
            pairs = {"store_id": store_id, "layout": str(LAYOUT), "format": str(FORMAT)}
            query(connection, statements.by_name["meta_insert"], list(pairs), list(pairs.values()))
        finish(connection, address)
    except (psycopg.errors.DuplicateTable, psycopg.errors.DuplicateObject, psycopg.errors.DuplicateFunction) as error:
        raise _of_something_else(address) from error
    except psycopg.Error as error:
        raise map_error(error, str(address), connection) from error
    finally:
        connection.close()


def finish(connection: Connection, address: Address) -> None:
    """Commit. Raises psycopg's errors, and StorageError when the database has rolled back without one."""
    # COMMIT of a transaction in which a statement has failed succeeds, and rolls back.
    said = control(connection, "COMMIT")
    if said != "COMMIT":
        raise StorageError(
            f"{address} answered COMMIT with {said}: nothing of this transaction was written",
            next_step="look at the server's log, then run again",
        )


def connect_deadline_s() -> float:
    """Until when a reader waits for a server that starts, on the monotonic clock."""
    return time.monotonic() + _CONNECT_WAIT_S


def _require_encoding(connection: Connection, address: Address) -> None:
    encoding = query(connection, address.statements.by_name["encoding"])[0][0]
    if encoding != "UTF8":
        raise StorageMismatch(
            f"{address} is a database in {encoding}, a store needs UTF8",
            next_step="make the database with ENCODING 'UTF8'",
        )


def _of_something_else(address: Address) -> StorageMismatch:
    return StorageMismatch(
        f"{address} holds tables of something else", next_step="name another schema, or another database"
    )


def _cut_in_child() -> None:
    """A child that kept the socket would keep the connection, and its locks, alive after the parent's death.

    Its descriptor leads nowhere from now on. Nothing is said to the server, unlike by closing the connection, which
    is the parent's; and a number that was closed would be another file's next.
    """
    connections = [connection for connection in _open_connections if not connection.closed]
    _open_connections.clear()
    if connections:
        nowhere = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        for connection in connections:
            os.dup2(nowhere, connection.fileno(), inheritable=False)
        os.close(nowhere)


os.register_at_fork(after_in_child=_cut_in_child)
