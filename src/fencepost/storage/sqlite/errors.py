"""What SQLite's errors mean for a caller: whose fault, and what to do next."""

from __future__ import annotations

import errno
import os

import apsw

from fencepost.ports.errors import (
    DescriptorsExhausted,
    FencepostError,
    IntegrityError,
    StorageError,
    StorageFull,
    StorageReadOnly,
    StorageUnavailable,
)

_FULL_ERRNOS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_EXHAUSTED_ERRNOS = frozenset({errno.EMFILE, errno.ENFILE})
_UNAVAILABLE = (
    apsw.CantOpenError,
    apsw.BusyError,
    apsw.LockedError,
    apsw.ReadOnlyError,
    apsw.PermissionsError,
)


def map_error(error: apsw.Error, path: str, connection: apsw.Connection | None = None) -> FencepostError:
    """Return the exception to raise from `error`. `connection` tells the operating system's reason where it
    knows."""
    system_errno = 0
    if connection is not None and isinstance(error, apsw.IOError | apsw.CantOpenError):
        system_errno = connection.system_errno
    is_full = (
        isinstance(error, apsw.FullError)
        or system_errno in _FULL_ERRNOS
        or getattr(error, "extendedresult", 0) == apsw.SQLITE_IOERR_SHMSIZE
    )
    if is_full:
        return _full(path)
    if isinstance(error, apsw.CorruptError | apsw.NotADBError):
        return IntegrityError(
            f"{path} is not an intact SQLite database: {error}",
            next_step="stop every process of this store, keep a copy of its folder, restore from a backup",
        )
    if system_errno in _EXHAUSTED_ERRNOS:
        return DescriptorsExhausted(f"{path} cannot be used now: {os.strerror(system_errno)}")
    if isinstance(error, _UNAVAILABLE):
        return StorageUnavailable(
            f"{path} cannot be used now: {error}",
            next_step="see that the file exists, that this user may write it, that no other program locks it",
        )
    return StorageError(f"{path}: {error}", next_step="look at the disk and the system log, then run again")


def map_os_error(error: OSError, path: str) -> FencepostError:
    """Return the exception to raise when the system refuses to open or make `path`."""
    if error.errno in _FULL_ERRNOS:
        return _full(path)
    if error.errno == errno.EROFS:
        return StorageReadOnly(f"{path} lies on a file system that is mounted read-only")
    if error.errno in _EXHAUSTED_ERRNOS:
        return DescriptorsExhausted(f"cannot open or create {path}: {error.strerror}")
    return StorageUnavailable(
        f"cannot open or create {path}: {error.strerror}",
        next_step="make its folder writable for this user, or name another",
    )


def _full(path: str) -> StorageFull:
    return StorageFull(
        f"no space is left for {path}: nothing of this transaction was written",
        next_step="free disk space, quota or file size limit, then run the same command again",
    )
