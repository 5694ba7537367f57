"""A fair turn between processes: a turnstile before the writer's lock.

SQLite's busy timeout starves: a process that has just committed finds the lock free and takes it again, while
the others sleep. Here a process passes the turnstile first and holds it until it has the writer's lock.
Whoever has just written finds the turnstile held by one who waits, so that nobody writes twice past a waiting
process; among those who wait at the turnstile, chance decides.

Locks are `flock`: they belong to the open file, so that two journals of one process exclude each other too,
and the system drops them when the process dies. An inherited descriptor would keep them for a child, so a
child closes its own.
"""

from __future__ import annotations

import fcntl
import os
import time
import weakref
from pathlib import Path

from fencepost.storage.sqlite.errors import map_os_error

# Equal for all who wait, since a newcomer that looks more often than the rest would pass them.
_PAUSE_S = 0.000_3

_open_locks: weakref.WeakSet[FileLock] = weakref.WeakSet()


class FileLock:
    """An exclusive lock on one file, which is made when missing and never removed."""

    def __init__(self, path: Path) -> None:
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise map_os_error(error, str(path)) from error
        _open_locks.add(self)

    def acquire(self, deadline_s: float) -> bool:
        """Wait until `deadline_s` of the monotonic clock; False when it passed. One system call when free."""
        while True:
            try:
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return True
            except BlockingIOError:
                remaining_s = deadline_s - time.monotonic()
                if remaining_s <= 0:
                    return False
                # There is no flock with a timeout. A short sleep costs less than a thread that cannot be
                # recalled.
                time.sleep(min(_PAUSE_S, remaining_s))

    def release(self) -> None:
        fcntl.flock(self._descriptor, fcntl.LOCK_UN)

    def close(self) -> None:
        """Close the file and with it drop the lock. A second call does nothing."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class Turnstile:
    """The right to write to one store, given to competing processes in turn."""

    def __init__(self, folder: Path) -> None:
        self._entry = FileLock(folder / "turnstile")
        self._writer = FileLock(folder / "writer")

    def enter(self, deadline_s: float) -> bool:
        """Return True with the right to write, False when `deadline_s` of the monotonic clock has passed."""
        if not self._entry.acquire(deadline_s):
            return False
        try:
            return self._writer.acquire(deadline_s)
        finally:
            self._entry.release()

    def leave(self) -> None:
        self._writer.release()

    def close(self) -> None:
        self._entry.close()
        self._writer.close()


def _close_in_child() -> None:
    for lock in list(_open_locks):
        lock.close()


os.register_at_fork(after_in_child=_close_in_child)
