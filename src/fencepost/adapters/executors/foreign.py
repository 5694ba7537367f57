"""Reading from a folder that a command can write: what stands under a name may be anything by now.

Nothing here follows a link, waits for a pipe or reads without a bound, so that whatever a command put in the place of
a file costs an error and no more. Only the standard library: the keeper uses this.
"""

from __future__ import annotations

import errno
import os
import stat

_FLAGS = os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0) | os.O_NONBLOCK


class NotRegular(OSError):
    """Something stands there, and it is no regular file of a permitted size."""


def open_folder(path: str) -> int:
    """The folder itself, not what a link there means. Raises OSError."""
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | _FLAGS)


def open_regular(name: str, *, folder: int | None = None) -> int:
    """A regular file for reading. Raises FileNotFoundError, NotRegular or another OSError; waits for nobody."""
    try:
        descriptor = os.open(name, os.O_RDONLY | _FLAGS, dir_fd=folder)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EMLINK, errno.ENXIO):
            raise NotRegular(error.errno, "no regular file stands there", name) from error
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise NotRegular(errno.EINVAL, "no regular file stands there", name)
    return descriptor


def read_regular(name: str, *, bytes_max: int, folder: int | None = None) -> bytes:
    """The whole content of a regular file of at most `bytes_max` bytes. Raises as `open_regular` does."""
    descriptor = open_regular(name, folder=folder)
    try:
        content = read_from(descriptor, bytes_max + 1)
    finally:
        os.close(descriptor)
    if len(content) > bytes_max:
        raise NotRegular(errno.EFBIG, f"more than the {bytes_max} bytes that can have been kept", name)
    return content


def read_from(descriptor: int, bytes_max: int) -> bytes:
    """The first `bytes_max` bytes of an open file, or all of a shorter one. Does not move its place."""
    pieces: list[bytes] = []
    done = 0
    while done < bytes_max:
        piece = os.pread(descriptor, min(bytes_max - done, 1024 * 1024), done)
        if not piece:
            break
        pieces.append(piece)
        done += len(piece)
    return b"".join(pieces)
