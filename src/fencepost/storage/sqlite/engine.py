"""The SQLite engine: one file, one machine, any number of processes and threads.

A process writes through one connection, whose turn is taken in two steps: a lock between the threads of the
process, then the turnstile between processes. Reads never wait for a writer; each open snapshot has a
connection of its own, which is kept for the next one. WAL with `synchronous=FULL`: a commit that has returned
survives a power cut.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import apsw

from fencepost.ports.errors import IntegrityError, StorageError, StorageUnavailable
from fencepost.ports.journal import Reads, StoreInfo, Stream, Transaction
from fencepost.storage.sqlite.connections import Stamp, connect, connect_reader, read_info
from fencepost.storage.sqlite.errors import map_error
from fencepost.storage.sqlite.reads import SqliteReads
from fencepost.storage.sqlite.stops import begin_writing, end_writing
from fencepost.storage.sqlite.transaction import SqliteTransaction
from fencepost.storage.sqlite.turnstile import Turnstile

_READERS_MAX = 128  # snapshots open at one time in one process
_READERS_IDLE_MAX = 8
_BUSY_PAUSE_S = 0.001
_CLOSE_WAIT_S = 30.0


class SqliteJournal:
    """The port's `Journal`. Opened by `fencepost.storage.sqlite.open` and `create`."""

    def __init__(self, path: Path, locks_folder: Path) -> None:
        self._path = str(path)
        self._locks_folder = locks_folder
        self._process_id = os.getpid()
        self._numbers: dict[Stream, int] = {}
        self._closed = False
        self._threads = threading.Lock()
        self._owner = 0  # identity of the thread that writes, 0 for none
        self._turnstile: Turnstile | None = None
        self._writer: apsw.Connection | None = None
        self._readers_lock = threading.Lock()
        self._readers_idle: list[apsw.Connection] = []
        self._readers_open = 0
        self._watcher_lock = threading.Lock()
        self._watcher: apsw.Connection | None = None
        self._stamp: Stamp | None = None  # of a file that is read without locks
        reader = self._connect_reader()
        try:
            self._info = read_info(reader, self._path)
        except BaseException:
            reader.close()
            raise
        self._file = _file_at(self._path)
        self._readers_idle.append(reader)

    def _connect(self, *, writes: bool = False) -> apsw.Connection:
        """A further connection to the file that was opened first, and never to one that has taken its place."""
        if _file_at(self._path) != self._file:
            raise StorageUnavailable(
                f"{self._path} was removed or replaced while it was in use", next_step="restore it from a backup"
            )
        return connect(self._path, writes=True) if writes else self._connect_reader()

    @property
    def engine(self) -> str:
        return "sqlite"

    @property
    def info(self) -> StoreInfo:
        self._require_usable()
        return self._info

    @contextmanager
    def transaction(self, stream: Stream, *, wait_s: float = 30.0) -> Iterator[Transaction]:
        self._require_usable()
        if self._owner == threading.get_ident():
            raise StorageError("this thread has a transaction already", next_step="end it before you begin another")
        deadline_s = time.monotonic() + wait_s
        if not self._threads.acquire(timeout=max(wait_s, 0.0)):
            raise self._waited(wait_s)
        try:
            self._owner = threading.get_ident()
            self._require_usable()
            turnstile = self._turnstile
            if turnstile is None:
                turnstile = self._turnstile = Turnstile(self._locks_folder)
            begin_writing(id(self))
            if not turnstile.enter(deadline_s):
                raise self._waited(wait_s)
            try:
                transaction: SqliteTransaction | None = None
                # An interrupt may come between beginning and the answer that it has begun.
                try:
                    connection = self._begin_immediate(deadline_s, wait_s)
                    transaction = SqliteTransaction(connection, self._path, self._numbers, stream)
                    yield transaction
                finally:
                    if transaction is not None:
                        transaction.end()
                    self._end_writing(discard=transaction is not None and transaction.is_broken)
            finally:
                turnstile.leave()
        finally:
            end_writing(id(self))
            self._owner = 0
            self._threads.release()

    def _begin_immediate(self, deadline_s: float, wait_s: float) -> apsw.Connection:
        """Begin with the write lock. The turnstile keeps journals apart, this loop other programs and
        recovery."""
        connection = self._writer
        if connection is None:
            connection = self._writer = self._connect(writes=True)
        while True:
            try:
                connection.execute("BEGIN IMMEDIATE")
                return connection
            except apsw.BusyError as error:
                if time.monotonic() >= deadline_s:
                    raise self._waited(wait_s) from error
                time.sleep(_BUSY_PAUSE_S)
            except apsw.Error as error:
                mapped = map_error(error, self._path, connection)
                self._end_writing(discard=True)
                raise mapped from error

    def _end_writing(self, *, discard: bool) -> None:
        """Roll back what was not committed. A connection that failed is closed, which rolls back as well."""
        connection = self._writer
        if connection is None:
            return
        if not discard:
            if not connection.in_transaction:
                return
            try:
                connection.execute("ROLLBACK")
                return
            except apsw.Error:
                discard = True
        self._writer = None
        connection.close(True)

    @contextmanager
    def snapshot(self) -> Iterator[Reads]:
        self._require_usable()
        self._require_unchanged()
        connection = self._take_reader()
        reads = SqliteReads(connection, self._path, self._numbers)
        try:
            try:
                connection.execute("BEGIN")
            except apsw.Error as error:
                raise map_error(error, self._path, connection) from error
            try:
                yield reads
            except (StorageError, IntegrityError):
                self._require_unchanged()  # what was read in parts may be of two states, and no damage
                raise
            self._require_unchanged()
        finally:
            reads.end()
            self._give_reader_back(connection)

    def _connect_reader(self) -> apsw.Connection:
        connection, stamp = connect_reader(self._path)
        if self._stamp is None:
            self._stamp = stamp
        return connection

    def _require_unchanged(self) -> None:
        """A file that is read without locks must be what it was: raises StorageUnavailable where it was written."""
        if self._stamp is not None and Stamp.of(self._path) != self._stamp:
            raise StorageUnavailable(
                f"{self._path} was written while it was read from where nothing may be written",
                next_step="run the same command again",
            )

    def _take_reader(self) -> apsw.Connection:
        with self._readers_lock:
            if self._readers_open >= _READERS_MAX:
                raise StorageUnavailable(
                    f"{_READERS_MAX} snapshots are open in this process", next_step="end snapshots sooner"
                )
            self._readers_open += 1
            if self._readers_idle:
                return self._readers_idle.pop()
        try:
            return self._connect()
        except BaseException:
            with self._readers_lock:
                self._readers_open -= 1
            raise

    def _give_reader_back(self, connection: apsw.Connection) -> None:
        healthy = True
        try:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        except apsw.Error:
            healthy = False
        with self._readers_lock:
            self._readers_open -= 1
            if healthy and not self._closed and len(self._readers_idle) < _READERS_IDLE_MAX:
                self._readers_idle.append(connection)
                return
        connection.close(True)

    def change_token(self) -> int:
        """SQLite's `data_version` of a connection that never writes, so that each commit is another's."""
        self._require_usable()
        with self._watcher_lock:
            self._require_usable()
            if self._watcher is None:
                self._watcher = self._connect()
            self._require_unchanged()
            try:
                rows = self._watcher.execute("PRAGMA data_version").fetchall()
            except apsw.Error as error:
                raise map_error(error, self._path, self._watcher) from error
        return int(str(rows[0][0]))

    def close(self) -> None:
        if self._closed or self._process_id != os.getpid():
            return
        if self._owner == threading.get_ident():
            raise StorageError("this thread has a transaction open", next_step="end it before closing the store")
        if not self._threads.acquire(timeout=_CLOSE_WAIT_S):
            raise self._waited(_CLOSE_WAIT_S)
        try:
            self._closed = True
            with self._readers_lock:
                readers, self._readers_idle = self._readers_idle, []
            with self._watcher_lock:
                watchers, self._watcher = [self._watcher], None
            if self._writer is not None:
                # The log is copied back now, while nobody waits; what a reader still needs stays for the next
                # one.
                with suppress(apsw.Error):
                    self._writer.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
            for connection in (*readers, *watchers, self._writer):
                if connection is not None:
                    connection.close(True)
            self._writer = None
            if self._turnstile is not None:
                self._turnstile.close()
        finally:
            self._threads.release()

    def _require_usable(self) -> None:
        if self._process_id != os.getpid():
            raise StorageUnavailable(
                "this store was opened before the process forked",
                next_step="open the store again in the child",
            )
        if self._closed:
            raise StorageUnavailable("this store is closed", next_step="open the store again")

    def _waited(self, wait_s: float) -> StorageUnavailable:
        return StorageUnavailable(
            f"another writer has held {self._path} for {wait_s:g} s",
            next_step="see which process holds it (`fencepost doctor`), or wait longer",
        )


def _file_at(path: str) -> tuple[int, int] | None:
    """Which file stands there, None for none."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino
