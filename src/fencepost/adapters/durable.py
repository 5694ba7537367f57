"""Placing small files so that they are there whole or not at all, also after a crash of the machine."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fencepost.ports.errors import (
    DescriptorsExhausted,
    StorageError,
    StorageFull,
    StorageReadOnly,
    StorageUnavailable,
)

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE})


def storage_error(error: OSError, path: Path) -> StorageError:
    """The exception that a failed file operation becomes."""
    message = f"{path}: {error.strerror or error}"
    if error.errno in _FULL:
        return StorageFull(message, next_step="free space and run again")
    if error.errno == errno.EROFS:
        return StorageReadOnly(message)
    if error.errno in _EXHAUSTED:
        return DescriptorsExhausted(message)
    return StorageUnavailable(message)


@contextmanager
def storage_errors(path: Path) -> Iterator[None]:
    """Turn every `OSError` of the block into a `StorageError` that names `path`."""
    try:
        yield
    except OSError as error:
        raise storage_error(error, path) from error


@contextmanager
def exclusive(lock_file: Path) -> Iterator[int]:
    """Hold an exclusive lock on a file (made with mode 0600), waiting for it; yields its descriptor.

    The lock excludes other processes and other threads of this one, and ends with the holder's process.
    """
    descriptor = os.open(lock_file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield descriptor
    finally:
        os.close(descriptor)


def sync_folder(folder: Path) -> None:
    """Make names that were added to or replaced in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def place_file(path: Path, data: bytes) -> None:
    """Put a file of mode 0600 at `path`, replacing what is there, whole and durable.

    Several may place the same file at once: each works under a name of its own, and the last one stands.
    """
    temporary = path.with_name(f".{path.name}.{os.urandom(8).hex()}.new")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    descriptor = os.open(temporary, flags, 0o600)
    try:
        try:
            os.fchmod(descriptor, 0o600)
            write_all(descriptor, data)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        temporary.rename(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def write_all(descriptor: int, data: bytes) -> None:
    """Write every byte; a short write of a full disk goes on until the system says why."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]
