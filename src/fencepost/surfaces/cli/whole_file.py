"""Writing a file that a person names, so that it is there whole or not at all, and in the place of no other."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from fencepost.surfaces.cli.context import CommandError, recorded_is
from fencepost.surfaces.cli.frame import STDIN
from fencepost.surfaces.cli.words import one_line

MODE = 0o666
STDOUT = ("-", STDIN)
"""What stands for stdout where a file is to be written; the frame writes a lone hyphen as stdin."""


_MACHINE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EMFILE, errno.ENFILE)
"""What is the machine's trouble and not that of the path that was named."""


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Tell of a path that cannot be written as of a wrong word of the command. Raises CommandError, OSError."""
    try:
        yield
    except OSError as error:
        if error.errno in _MACHINE or error.errno is None:
            raise
        raise CommandError(
            "unwritable",
            f"{one_line(str(path))} cannot be written: {os.strerror(error.errno)}",
            next_step="name a path that can be written",
        ) from error


@contextmanager
def whole_file(path: Path, *, force: bool) -> Iterator[BinaryIO]:
    """A new file beside `path`, which takes its place when the block has been left without an error.

    A file that is there is only replaced with `force`. A link is followed, and what is no regular file (a device, a
    pipe) or is open already is written to as it is and never replaced. Raises CommandError for a path that cannot be
    written or that has a file, OSError.
    """
    if _is_open_descriptor(path) or (path.exists() and not path.is_file()):
        with naming(path):
            file = path.open("wb")
        with file:
            yield file
        return
    named, path = path, Path(os.path.realpath(path))
    if path.exists() and not force:
        raise _taken(named)
    with naming(named):
        descriptor, name = tempfile.mkstemp(prefix=f".{path.name[:100]}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as whole:
            mask = os.umask(0)
            os.umask(mask)
            os.fchmod(whole.fileno(), MODE & ~mask)
            yield whole
            whole.flush()
            os.fsync(whole.fileno())
        with naming(named):
            _place(name, path, named, force=force)
        recorded_is("the file is written all the same")
    finally:
        Path(name).unlink(missing_ok=True)


def _is_open_descriptor(path: Path) -> bool:
    """Whether a path means a file that is open already, `/dev/stdout` or `/dev/fd/3`, which the shell has named."""
    folder, name = os.path.split(os.path.abspath(path))
    return (folder == "/dev" and name in ("stdin", "stdout", "stderr")) or folder == "/dev/fd"


def _place(name: str, path: Path, named: Path, *, force: bool) -> None:
    """Give the finished file its name, which another program may have taken meanwhile."""
    if not force:
        try:
            os.link(name, path)
        except FileExistsError:
            raise _taken(named) from None
        except OSError:  # a file system without links: what comes between these two calls is not seen
            if path.exists():
                raise _taken(named) from None
        else:
            return
    os.replace(name, path)


def _taken(path: Path) -> CommandError:
    return CommandError(
        "file_exists",
        f"{one_line(str(path))} is there already; nothing was written",
        next_step="name another file, or replace it with --force",
    )
