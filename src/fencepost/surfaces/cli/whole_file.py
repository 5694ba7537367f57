"""Writing a file that a person names, so that it is there whole or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from fencepost.surfaces.cli.frame import STDIN

MODE = 0o666
STDOUT = ("-", STDIN)
"""What stands for stdout where a file is to be written; the frame writes a lone hyphen as stdin."""


@contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """A new file beside `path`, which takes its place when the block has been left without an error. Raises OSError.

    A link is followed, and what is no regular file (a device, a pipe) is written to as it is and never replaced.
    """
    if path.absolute().parts[1:2] == ("dev",) or (path.exists() and not path.is_file()):
        with path.open("wb") as file:
            yield file
        return
    path = Path(os.path.realpath(path))
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name[:100]}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            mask = os.umask(0)
            os.umask(mask)
            os.fchmod(file.fileno(), MODE & ~mask)
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
