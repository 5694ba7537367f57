"""The PostgreSQL engine: one schema of one database, any number of hosts, processes and threads.

A writer's first lock is the head row of its stream, and it holds it until its transaction ends: streams never wait
for each other, and records of one stream stand in the order of their commits. Within a process the threads of one
stream wait for each other first, so that one connection waits in the database and not one for each thread.

Writers read what is committed (READ COMMITTED): what they read of their stream after the lock cannot change. Snapshots
are REPEATABLE READ. Nothing is known of a transaction whose connection is lost; the locks of one that still runs keep
everybody out until it has ended, so that whoever has the lock afterwards sees whether it was committed.
"""

from __future__ import annotations

import math
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import psycopg
from psycopg.pq import TransactionStatus

from fencepost.ports.errors import FencepostError, StorageError, StorageMismatch, StorageUnavailable
from fencepost.ports.journal import Head, Reads, StoreInfo, Stream, Transaction
from fencepost.storage.postgres.connections import (
    PAUSE_S,
    Address,
    Connection,
    connect_deadline_s,
    connect_to_store,
    control,
    control_and_ask,
    query,
)
from fencepost.storage.postgres.errors import WAITED, is_lost, map_error
from fencepost.storage.postgres.reads import PostgresReads
from fencepost.storage.postgres.transaction import PostgresTransaction

_CONNECTIONS_MAX = 64  # in use at one time in one process
_CONNECTIONS_IDLE_MAX = 8
_CLOSE_WAIT_S = 30.0
_LOCK_WAIT_MS_MAX = 10**9
# A row is waited for in two steps, its queue and its holder, and PostgreSQL bounds each of them by itself. The bound
# of the statement bounds both. It is a little longer, so that a busy server is not taken for a lock that is held.
_LOCK_MARGIN_MS = 500
_WRITER_IDLE_MS = 300_000  # between two statements; the server ends a writer that is stopped or cut off
_SNAPSHOT = "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY"

_Answer = TypeVar("_Answer")


class PostgresJournal:
    """The port's `Journal`. Opened by `fencepost.storage.postgres.open` and `create`."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._process_id = os.getpid()
        self._numbers: dict[Stream, int] = {}
        self._closed = False
        self._turns = threading.Condition()
        self._writers: dict[Stream, int] = {}  # identity of the thread whose turn it is
        self._connections_lock = threading.Lock()
        self._idle: list[Connection] = []
        # Weak, so that one which an interrupt takes from between two lines ends with its last use, locks and all.
        self._used: weakref.WeakSet[Connection] = weakref.WeakSet()
        connection, self._info = connect_to_store(address, connect_deadline_s())
        self._idle.append(connection)

    @property
    def engine(self) -> str:
        return "postgres"

    @property
    def info(self) -> StoreInfo:
        self._require_usable()
        return self._info

    @contextmanager
    def transaction(self, stream: Stream, *, wait_s: float = 30.0) -> Iterator[Transaction]:
        deadline_s = time.monotonic() + wait_s
        with self._turn(stream, deadline_s):
            connection: Connection | None = None
            transaction: PostgresTransaction | None = None
            try:
                connection, (number, head) = self._begin(
                    lambda each: self._lock_head(each, stream, deadline_s), deadline_s
                )
                numbers = {**self._numbers, stream: number}
                transaction = PostgresTransaction(connection, self._address, numbers, stream, head)
                yield transaction
            finally:
                if transaction is not None:
                    transaction.end()
                    if transaction.is_committed:
                        self._numbers[stream] = transaction.number
                if connection is not None:
                    self._give_back(connection)

    @contextmanager
    def _turn(self, stream: Stream, deadline_s: float) -> Iterator[None]:
        """The right of one thread of this process to ask for the stream's lock."""
        thread = threading.get_ident()
        self._require_usable()  # before any lock: in a forked child it may be held by a thread that is not there
        if thread in self._writers.copy().values():
            raise StorageError("this thread has a transaction already", next_step="end it before you begin another")
        # Only a block gives back whatever interrupts it: the turn is taken within the one that ends it.
        try:
            with self._turns:
                wait_s = max(deadline_s - time.monotonic(), 0.0)
                if not self._turns.wait_for(lambda: self._closed or stream not in self._writers, wait_s):
                    raise self._waited()
                self._require_usable()
                self._writers[stream] = thread
            yield
        finally:
            if self._process_id == os.getpid():
                self._end_turn(stream, thread)

    def _end_turn(self, stream: Stream, thread: int) -> None:
        with self._turns:
            if self._writers.get(stream) == thread:
                del self._writers[stream]
                self._turns.notify_all()

    def _lock_head(self, connection: Connection, stream: Stream, deadline_s: float) -> tuple[int, Head]:
        """Begin, and lock the stream's head row, which is made for a stream that nobody has written to."""
        remaining_ms = math.ceil((deadline_s - time.monotonic()) * 1_000)
        lock_ms = min(max(remaining_ms, 1), _LOCK_WAIT_MS_MAX)
        control(
            connection,
            "BEGIN ISOLATION LEVEL READ COMMITTED, READ WRITE;"
            f" SET LOCAL lock_timeout = {lock_ms:d}; SET LOCAL statement_timeout = {lock_ms + _LOCK_MARGIN_MS:d};"
            f" SET LOCAL idle_in_transaction_session_timeout = {_WRITER_IDLE_MS:d}",
        )
        statements = self._address.statements.by_name
        rows = query(connection, statements["stream_lock"], *stream)
        if not rows:
            query(connection, statements["stream_insert"], *stream)
            rows = query(connection, statements["stream_lock"], *stream)
        self._require_same_store(rows[0][5])
        return int(str(rows[0][0])), Head._make(rows[0][1:5])

    def _begin_snapshot(self, connection: Connection) -> None:
        statement = self._address.statements.by_name["store_id"]
        self._require_same_store(control_and_ask(connection, f"{_SNAPSHOT}; {statement}"))

    def _require_same_store(self, store_id: object) -> None:
        """A schema can be dropped and made anew under a connection, which then leads to another store."""
        if store_id != self._info.store_id:
            raise self._another_store(str(store_id) if store_id else "without a name")

    @contextmanager
    def snapshot(self) -> Iterator[Reads]:
        connection: Connection | None = None
        reads: PostgresReads | None = None
        try:
            connection, _ = self._begin(self._begin_snapshot, connect_deadline_s())
            reads = PostgresReads(connection, self._address, self._numbers)
            yield reads
        finally:
            if reads is not None:
                reads.end()
            if connection is not None:
                self._give_back(connection)

    def change_token(self) -> int:
        """The number of commits of all streams, read from one row a stream."""
        connection, token = self._begin(self._read_token, connect_deadline_s())
        self._give_back(connection)
        return token

    def _read_token(self, connection: Connection) -> int:
        row = query(connection, self._address.statements.by_name["change_token"])[0]
        self._require_same_store(row[1])
        return int(str(row[0]))

    def _begin(self, first: Callable[[Connection], _Answer], deadline_s: float) -> tuple[Connection, _Answer]:
        """Return a connection and what `first` made of it. The caller gives the connection back.

        A connection may have been lost since it was used last, with all others. `first` has then done nothing that
        lasts, so that it begins again on another one; on new ones until `deadline_s`.
        """
        while True:
            connection, is_new = self._take(deadline_s)
            try:
                return connection, first(connection)
            except psycopg.Error as error:
                self._give_back(connection)
                if not is_lost(error, connection) or (is_new and time.monotonic() >= deadline_s):
                    raise self._refused(error, connection) from error
                if is_new:
                    time.sleep(PAUSE_S)
            except BaseException:
                self._give_back(connection)
                raise

    def _take(self, deadline_s: float) -> tuple[Connection, bool]:
        """Return a connection, and whether it is a new one."""
        self._require_usable()
        with self._connections_lock:
            self._require_usable()
            if len(self._used) >= _CONNECTIONS_MAX:
                raise StorageUnavailable(
                    f"{_CONNECTIONS_MAX} snapshots and transactions are open in this process",
                    next_step="end them sooner",
                )
            if self._idle:
                connection = self._idle.pop()
                self._used.add(connection)
                return connection, False
        connection = self._connect_again(deadline_s)
        with self._connections_lock:
            self._used.add(connection)
        return connection, True

    def _connect_again(self, deadline_s: float) -> Connection:
        """Return a new connection to the store that was opened: the address may lead elsewhere by now."""
        connection, info = connect_to_store(self._address, deadline_s)
        if info != self._info:
            connection.close()
            raise self._another_store(info.store_id)
        return connection

    def _another_store(self, store_id: str) -> StorageMismatch:
        return StorageMismatch(
            f"{self._address} is now the store {store_id}, not {self._info.store_id}",
            next_step="stop every process of the store, and see which database the address leads to",
        )

    def _give_back(self, connection: Connection) -> None:
        """Roll back what was not committed, and keep the connection for the next one if it is sound."""
        if self._process_id != os.getpid():
            return
        healthy = False
        try:
            if connection.info.transaction_status in (TransactionStatus.INTRANS, TransactionStatus.INERROR):
                control(connection, "ROLLBACK")
            healthy = connection.info.transaction_status == TransactionStatus.IDLE
        except psycopg.Error:
            healthy = False  # closing it, below, rolls back as well
        finally:
            with self._connections_lock:
                self._used.discard(connection)
                kept = healthy and not self._closed and len(self._idle) < _CONNECTIONS_IDLE_MAX
                if kept:
                    self._idle.append(connection)
            if not kept:
                connection.close()

    def close(self) -> None:
        if self._closed or self._process_id != os.getpid():
            return
        if threading.get_ident() in self._writers.copy().values():
            raise StorageError("this thread has a transaction open", next_step="end it before closing the store")
        with self._turns:
            self._closed = True
            self._turns.notify_all()
            ended = self._turns.wait_for(lambda: not self._writers, _CLOSE_WAIT_S)
        with self._connections_lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()
        if not ended:
            raise StorageUnavailable(
                f"a transaction on {self._address} has been open for {_CLOSE_WAIT_S:g} s after the store was closed",
                next_step="end the thread that holds it",
            )

    def _require_usable(self) -> None:
        if self._process_id != os.getpid():
            raise StorageUnavailable(
                "this store was opened before the process forked",
                next_step="open the store again in the child",
            )
        if self._closed:
            raise StorageUnavailable("this store is closed", next_step="open the store again")

    def _refused(self, error: psycopg.Error, connection: Connection) -> FencepostError:
        if error.sqlstate in WAITED:
            return self._waited()
        return map_error(error, str(self._address), connection)

    def _waited(self) -> StorageUnavailable:
        return StorageUnavailable(
            f"another writer has held the stream in {self._address} for as long as this one waits",
            next_step="see which process holds it (pg_stat_activity, pg_locks), or wait longer",
        )
