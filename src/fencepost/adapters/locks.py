"""Host locks as `flock` on files of one folder."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from fencepost.adapters.durable import storage_errors
from fencepost.ports.locks import HeldLock


class FolderLocks:
    """`HostLocks` whose names are files in `folder`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def path(self, name: str) -> str:
        return str(self._folder / name)

    def take(self, name: str, *, wait: bool) -> HeldLock | None:
        """Lock files are removed by their holder and by sweeps, so that what was locked may not stand there any
        more: then it is made anew."""
        path = self._folder / name
        with storage_errors(path):
            descriptor = _locked(path, wait=wait)
        return None if descriptor is None else _Held(path, descriptor)

    def is_held(self, name: str) -> bool:
        """Looks through a shared lock, so that those who look do not see each other."""
        path = self._folder / name
        with storage_errors(path):
            return _is_locked(path)

    def remove_if_free(self, name: str) -> bool:
        path = self._folder / name
        with storage_errors(path):
            return _removed(path)

    def names(self) -> list[str]:
        with storage_errors(self._folder):
            return sorted(os.listdir(self._folder))


class _Held:
    def __init__(self, path: Path, descriptor: int) -> None:
        self._path = path
        self._descriptor = descriptor

    def stands(self) -> bool:
        with storage_errors(self._path):
            return self._descriptor >= 0 and _stands_at(self._path, self._descriptor)

    def release(self) -> None:
        """What stands at the path may be another's by now: then only the own lock is freed."""
        if self._descriptor < 0:
            return
        try:
            if self.stands():
                self._path.unlink(missing_ok=True)
        finally:
            os.close(self._descriptor)
            self._descriptor = -1


def _locked(path: Path, *, wait: bool) -> int | None:
    """The flock on the file that stands at `path`, as a descriptor; None if another has it and `wait` is false."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            if _stands_at(path, descriptor):
                return descriptor
        except BlockingIOError:
            os.close(descriptor)
            return None
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _is_locked(path: Path) -> bool:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    else:
        return False
    finally:
        os.close(descriptor)


def _removed(path: Path) -> bool:
    """Remove a lock file that nobody holds; return whether it went."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not _stands_at(path, descriptor):
            return False  # somebody has removed it meanwhile, and what stands there now is another's
        path.unlink(missing_ok=True)
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)
    return True


def _stands_at(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False
