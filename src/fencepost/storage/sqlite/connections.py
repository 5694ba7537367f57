"""Opening and creating the file: what every connection is set to, and what is checked before it is used.

SQLite reads a store with a log through an index beside it, which it makes where it is missing. Where nothing may be
written and the log is missing or empty, everything is in the file: it is then read without index, log and locks
(`immutable`), and `Stamp` tells whether somebody who may write has changed it meanwhile.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

import apsw

from fencepost.ports.errors import StorageLogUnread, StorageMismatch, StorageUnavailable
from fencepost.ports.journal import StoreInfo
from fencepost.storage.sqlite.errors import map_error, map_os_error
from fencepost.storage.sqlite.queries import QUERIES, SCHEMA
from fencepost.storage.sqlite.turnstile import FileLock

LAYOUT = 1  # of tables, as in schema.sql
FORMAT = 0  # of records

_APPLICATION_ID = 0x66656E63  # "fenc", so that `file` names what it sees
_CREATE_WAIT_S = 30.0
_READER_BUSY_MS = 5_000
_CACHE_KIB = 8_192  # each commit may search all of it; what it lacks is in the memory of the system
_CHECKPOINT_PAGES = 1_000  # larger ones make the slowest commits slower, smaller ones all
_LOG_BYTES_MAX = 64 * 1024 * 1024  # what an emptied log keeps on disk


class Stamp(NamedTuple):
    """What a file that is read without locks looked like: it is another one as soon as somebody writes."""

    inode: int
    bytes: int
    modified_ns: int
    log_bytes: int

    @classmethod
    def of(cls, path: str) -> Stamp:
        """Raises StorageUnavailable where there is no such file."""
        try:
            status = os.stat(path)
        except OSError as error:
            raise map_os_error(error, path) from error
        return cls(status.st_ino, status.st_size, status.st_mtime_ns, _bytes_of(f"{path}-wal"))


def _bytes_of(path: str) -> int:
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return 0
    except OSError as error:
        raise map_os_error(error, path) from error


def connect_reader(path: str) -> tuple[apsw.Connection, Stamp | None]:
    """A connection that only reads, with the file's stamp where it is read without locks.

    Raises StorageUnavailable, StorageLogUnread.
    """
    try:
        return connect(path), None
    except StorageUnavailable as error:
        is_closed = isinstance(error.__cause__, apsw.CantOpenError | apsw.ReadOnlyError) and not os.access(
            os.path.dirname(path), os.W_OK
        )
        if not is_closed or not os.path.isfile(path):
            raise
        return _connect_frozen(path)


def _connect_frozen(path: str) -> tuple[apsw.Connection, Stamp]:
    stamp = Stamp.of(path)
    if stamp.log_bytes:
        raise StorageLogUnread(
            f"{path}-wal holds {stamp.log_bytes} bytes of records, and its index cannot be made beside it"
        )
    name = f"file:{quote(os.path.abspath(path))}?immutable=1"
    return connect(name, flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI), stamp


def connect(path: str, *, writes: bool = False, flags: int = apsw.SQLITE_OPEN_READWRITE) -> apsw.Connection:
    """Return a connection to an existing file. Raises StorageUnavailable when there is none."""
    try:
        connection = apsw.Connection(path, flags=flags)
    except apsw.Error as error:
        raise map_error(error, path) from error
    try:
        # Writers wait at the turnstile. Readers meet a lock only while the log is recovered or put away.
        connection.set_busy_timeout(0 if writes else _READER_BUSY_MS)
        connection.pragma("synchronous", "FULL")
        connection.pragma("recursive_triggers", True)
        connection.pragma("cache_size", -_CACHE_KIB)
        connection.pragma("temp_store", "MEMORY")
        if writes:
            connection.pragma("wal_autocheckpoint", _CHECKPOINT_PAGES)
            connection.pragma("journal_size_limit", _LOG_BYTES_MAX)
        else:
            connection.pragma("query_only", True)
            connection.execute("PRAGMA schema_version").fetchall()  # opens the log and its index, if nothing has yet
    except apsw.Error as error:
        mapped = map_error(error, path, connection)
        connection.close(True)
        raise mapped from error
    return connection


def read_info(connection: apsw.Connection, path: str) -> StoreInfo:
    """Return who the store is. Raises StorageMismatch for anything that this program did not lay out."""
    try:
        pairs = {str(key): str(value) for key, value in connection.execute(QUERIES["meta"])}
        info = StoreInfo(store_id=pairs["store_id"], layout=int(pairs["layout"]), format=int(pairs["format"]))
    except (apsw.SQLError, KeyError, ValueError) as error:
        raise StorageMismatch(
            f"{path} is a database of something else", next_step="name another file, or move this one away"
        ) from error
    except apsw.Error as error:
        raise map_error(error, path, connection) from error
    for name, found, known in (("layout", info.layout, LAYOUT), ("format", info.format, FORMAT)):
        if found != known:
            raise StorageMismatch(
                f"{path} has {name} {found}, this program knows {name} {known}; nothing was changed",
                next_step=f"use the version of fencepost that wrote {name} {found}, or a new home",
            )
    return info


def create_file(path: Path, store_id: str, locks_folder: Path) -> None:
    """Make the store unless it exists. Competing creators and killed ones leave a whole store or none."""
    if path.exists():
        return
    lock = FileLock(locks_folder / "create")
    try:
        if not lock.acquire(time.monotonic() + _CREATE_WAIT_S):
            raise StorageUnavailable(
                f"another process has been creating {path} for {_CREATE_WAIT_S:g} s",
                next_step="end that process, then run again",
            )
        if not path.exists():
            _create_locked(path, store_id)
    finally:
        lock.close()


def _create_locked(path: Path, store_id: str) -> None:
    draft = path.with_name(path.name + ".new")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _remove_draft(draft)
        _write_draft(draft, store_id)
        os.replace(draft, path)
        _sync_folder(path.parent)
    except OSError as error:
        raise map_os_error(error, str(path)) from error
    finally:
        with suppress(OSError):
            _remove_draft(draft)


def _write_draft(draft: Path, store_id: str) -> None:
    connection: apsw.Connection | None = None
    try:
        connection = apsw.Connection(str(draft))
        connection.pragma("synchronous", "FULL")
        connection.pragma("application_id", _APPLICATION_ID)
        connection.execute("BEGIN IMMEDIATE")
        connection.execute(SCHEMA)
        pairs = (("store_id", store_id), ("layout", str(LAYOUT)), ("format", str(FORMAT)))
        connection.executemany(QUERIES["meta_insert"], pairs)
        connection.execute("COMMIT")
        connection.pragma("journal_mode", "WAL")
        connection.close()
    except apsw.Error as error:
        mapped = map_error(error, str(draft), connection)
        if connection is not None:
            connection.close(True)
        raise mapped from error
    descriptor = os.open(draft, os.O_RDONLY)
    try:
        os.fchmod(descriptor, 0o600)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _remove_draft(draft: Path) -> None:
    for suffix in ("", "-journal", "-wal", "-shm"):
        draft.with_name(draft.name + suffix).unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
