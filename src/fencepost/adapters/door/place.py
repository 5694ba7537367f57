"""Where a worker's socket stands: a folder that only its user may enter, on a path that is short enough.

A socket's path has at most `ADDRESS_BYTES_MAX` bytes on every system. The home comes first; where its path is too long,
or its file system takes no sockets, the user's folder for running programs, and then one under the system's temporary
folder. A worker takes its socket away at its end, and the folder with the last one. What a worker left that is gone
the next one that comes removes, there and in the folders of other stores beside it.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import socket
import stat
import struct
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from fencepost.ports.errors import StorageUnavailable

ADDRESS_BYTES_MAX: Final = 103
SUFFIX: Final = ".sock"
_OF_A_STORE: Final = re.compile(r"[0-9a-f]{12}")
WAITING_MAX: Final = 1_024
"""Connections that may wait to be let in; the system may have a lower bound. Past it a connection is refused at once
as a resource that is unavailable for the moment (EAGAIN)."""
SYSTEM_TEMPORARY: Final = "/tmp"
_SWEPT_MAX: Final = 256
_UNREADY: Final = ".new"
_UNREADY_S: Final = 60.0  # after which a socket that has not begun to listen belongs to nobody any more
_TRIES_MAX: Final = 8  # of a folder that goes with somebody else's last socket at the same moment
_PRIVATE: Final = 0o700


def folders_for(home: Path, store_id: str, environment: Mapping[str, str]) -> tuple[Path, ...]:
    """Folders that may hold the sockets of a home's workers, the first choice first."""
    short = store_id[:12]
    places = [home / "run"]
    running = environment.get("XDG_RUNTIME_DIR", "")
    if os.path.isabs(running):
        places.append(Path(running) / "fencepost" / short)
    # An attempt has a temporary folder of its own, deep below its home: what it starts needs the system's.
    for temporary in dict.fromkeys((tempfile.gettempdir(), SYSTEM_TEMPORARY)):
        places.append(Path(temporary) / f"fencepost-{os.geteuid()}" / short)
    return tuple(places)


def bound_socket(folders: Sequence[Path]) -> tuple[socket.socket, str]:
    """A socket that listens in the first folder that can have it, and its path. Raises StorageUnavailable."""
    troubles = []
    for folder in folders:
        path = _path_in(folder)
        if len(os.fsencode(path)) > ADDRESS_BYTES_MAX:
            troubles.append(f"{folder}: the path is too long for a socket")
            continue
        try:
            return _made(folder, path), path
        except OSError as error:
            troubles.append(f"{folder}: {error.strerror or error}")
    raise StorageUnavailable(f"no folder takes a socket ({'; '.join(troubles)})", next_step="fencepost doctor")


def _made(folder: Path, path: str) -> socket.socket:
    for left in reversed(range(_TRIES_MAX)):
        try:
            _make_private(folder)
            listener = _listening(path)
        except FileNotFoundError:
            if not left:
                raise
        else:
            made_at = os.lstat(path).st_mtime  # now, as the file system has it
            _sweep(folder, made_at)
            _sweep_beside(folder, made_at)
            return listener
    raise FileNotFoundError(0, f"{folder} is taken away again and again")


class Name(NamedTuple):
    """Which file stands under a socket's path: the one that was put there, as long as these stay the same."""

    device: int
    inode: int


def name_of(path: str) -> Name | None:
    """None where nothing stands there, or no socket."""
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return Name(found.st_dev, found.st_ino) if stat.S_ISSOCK(found.st_mode) else None


def listen_again(path: str) -> socket.socket:
    """A socket that listens under a path that another one had, whose name was taken away. Programs that run know no
    other path. Raises OSError where it cannot have it, such as where the folder is somebody else's now."""
    _make_private(Path(path).parent)
    return _listening(path)


def answers_at(folders: Sequence[Path]) -> int:
    """How many sockets in these folders somebody listens at."""
    count = 0
    for folder in folders:
        try:
            names = _names(folder)
        except OSError:
            continue  # nobody has made it
        for name in names:
            if name.endswith(SUFFIX):
                with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
                    probe.setblocking(False)
                    probe.connect(str(folder / name))
                    count += 1
    return count


def remove_socket(path: str) -> None:
    """Take a socket away, and the folders above it that were made for sockets, where nothing else is in them."""
    with contextlib.suppress(OSError):  # whoever cleaned up the folder was first
        os.unlink(path)
    _remove_empty(os.path.dirname(path))


def _remove_empty(folder: str) -> None:
    for path in (folder, os.path.dirname(folder)):
        try:
            os.rmdir(path)
        except OSError:
            return  # something is in it, or it is somebody else's


def folder_that_would_do(folders: Sequence[Path]) -> Path | None:
    """The folder that `bound_socket` would take, None where none would; nothing is made, swept or changed.

    Whether sockets can stand there is tried with one, which is taken away at once. Where the folder is not made yet,
    the nearest one above it that is there tells: the trial must not make it, since a worker that comes at the same
    moment would find it gone again.
    """
    for folder in folders:
        if len(os.fsencode(_path_in(folder))) > ADDRESS_BYTES_MAX:
            continue
        there = next(path for path in (folder, *folder.parents) if os.path.lexists(path))
        try:
            if there == folder:
                _require_own(folder)
            if there in (folder, folder.parent):
                _require_safe_above(folder)
            path = _path_in(there)
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as trial:
                trial.bind(path)
            os.unlink(path)
        except OSError:
            continue
        return folder
    return None


def _path_in(folder: Path) -> str:
    return str(folder / f"{secrets.token_hex(4)}{SUFFIX}")  # under its other name it is no longer


def _make_private(folder: Path) -> None:
    """Make a folder, and the one above it, the user's own and nobody else's. Raises OSError where they are not."""
    for path in (folder.parent, folder):
        with contextlib.suppress(FileExistsError):
            path.mkdir(mode=_PRIVATE, parents=True)
    status = _require_own(folder)
    if stat.S_IMODE(status.st_mode) != _PRIVATE:
        os.chmod(folder, _PRIVATE)
    _require_safe_above(folder)


def _require_own(folder: Path) -> os.stat_result:
    status = os.lstat(folder)
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
        raise PermissionError(0, "it is not a folder of this user")
    return status


def _require_safe_above(folder: Path) -> None:
    above = os.lstat(folder.parent)
    others_may_rename = above.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not above.st_mode & stat.S_ISVTX
    if not stat.S_ISDIR(above.st_mode) or above.st_uid not in (os.geteuid(), 0) or others_may_rename:
        raise PermissionError(0, "the folder above it belongs to others")


def _listening(path: str) -> socket.socket:
    # Only what listens gets the name that a sweep of others looks at.
    unready = path.removesuffix(SUFFIX) + _UNREADY
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.setblocking(False)
        listener.bind(unready)
        os.chmod(unready, 0o600)
        listener.listen(WAITING_MAX)
        os.rename(unready, path)
    except BaseException:
        listener.close()
        with contextlib.suppress(OSError):
            os.unlink(unready)  # it would be in the way of the next try
        raise
    return listener


def _sweep(folder: Path, now: float) -> None:
    """Remove sockets that nobody listens at."""
    for name in _names(folder):
        path = str(folder / name)
        if name.endswith(_UNREADY):
            with contextlib.suppress(OSError):
                if now - os.lstat(path).st_mtime > _UNREADY_S:
                    os.unlink(path)
            continue
        if not name.endswith(SUFFIX):
            continue
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.setblocking(False)
            try:
                probe.connect(path)
            except ConnectionRefusedError:
                os.unlink(path)


def _sweep_beside(folder: Path, now: float) -> None:
    """Remove what workers of other stores left in the same place, with its folders, whose names are those of stores."""
    if not _OF_A_STORE.fullmatch(folder.name):
        return
    for name in _names(folder.parent):
        beside = folder.parent / name
        if beside == folder or not _OF_A_STORE.fullmatch(name):
            continue
        with contextlib.suppress(OSError):
            _require_own(beside)
            _sweep(beside, now)
            os.rmdir(beside)


def _names(folder: Path) -> list[str]:
    with os.scandir(folder) as entries:
        return [entry.name for entry, _ in zip(entries, range(_SWEPT_MAX), strict=False)]


def peer_is_ours(link: socket.socket) -> bool:
    """Whether the process at the other end is this user's, where the system can tell; elsewhere the folder says so."""
    option = getattr(socket, "SO_PEERCRED", None)
    if option is None:
        return True
    credentials = link.getsockopt(socket.SOL_SOCKET, option, 12)
    _, uid, _ = struct.unpack("3i", credentials)
    return bool(uid == os.geteuid())
