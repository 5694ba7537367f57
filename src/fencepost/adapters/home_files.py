"""What must stand where in a home: files where files belong, before anything of it is opened.

Whoever opens a pipe waits for its other end, and a device gives what it likes: a home that was copied by the wrong
tool, or that somebody has put something into, is refused with the name of what does not belong there. Links to files
and folders are as good as those.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from fencepost.adapters.durable import storage_error
from fencepost.ports.errors import StorageUnavailable

FILES = ("layout", ".gitignore", "anchored", "store.db", "store.db-wal", "store.db-shm")
KEYS_MAX = 1_000  # looked at; a home has some two dozen
LOCKS_MAX = 10_000
_KINDS = (
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


def strangers(home: Path, *, locks: bool = False) -> Iterator[tuple[Path, str]]:
    """What stands in the place of a file, and what it is; with `locks` among those too. Raises StorageError."""
    yield from _strangers(home / name for name in FILES)
    yield from _strangers(_entries(home / "keys", KEYS_MAX))
    if locks:
        yield from _strangers(_entries(home / "locks", LOCKS_MAX))


def require_files(home: Path) -> None:
    """Raises StorageUnavailable for a home in which something else stands where a file belongs."""
    for path, kind in strangers(home):
        raise StorageUnavailable(
            f"{path} is {kind}, where this home has a file",
            next_step="move it away, and restore the file from a backup",
        )


def _entries(folder: Path, most: int) -> Iterator[Path]:
    try:
        names = os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return  # whoever needs the folder says so
    for name in names[:most]:
        yield folder / name


def _strangers(paths: Iterator[Path]) -> Iterator[tuple[Path, str]]:
    for path in paths:
        try:
            mode = os.stat(path).st_mode
        except (FileNotFoundError, PermissionError):
            continue
        except OSError as error:
            raise storage_error(error, path) from error
        if not stat.S_ISREG(mode):
            yield path, next((kind for is_kind, kind in _KINDS if is_kind(mode)), "no file")
