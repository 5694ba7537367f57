"""Reading back what an attempt left: only what was declared, only regular files, within bounds.

The folder is foreign. It is walked by descriptors and without following links; what cannot be kept is a typed
problem. The bounds of the whole are checked before the first byte is stored.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from typing import Final, Literal

import msgspec

from fencepost.adapters.artifacts import disk
from fencepost.ports.artifacts import ArtifactSink, Classification, SourceChanged
from fencepost.ports.errors import ContentTooLarge, PathRefused
from fencepost.ports.workspace import Output, OutputProblem

PATH_WALKED_BYTES_MAX: Final = 16_384
"""How long the path of a folder may be that is still looked into, several times what an output may have."""


class CollectLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds of what one attempt may hand in, all inclusive."""

    files_max: int = 10_000
    file_bytes_max: int = 1024**3
    total_bytes_max: int = 4 * 1024**3
    scanned_max: int = 1_000_000
    problems_max: int = 20


class _Found(msgspec.Struct, frozen=True, kw_only=True):
    """A declared output before its bytes are read: `source` is where they are, below the root."""

    path: str
    source: str
    bytes: int


class Collector:
    """Walks one workspace by descriptors and keeps what is wanted of it."""

    def __init__(self, root: int, real_root: bytes, limits: CollectLimits) -> None:
        self._root = root
        self._real_root = real_root
        self._limits = limits
        self.outputs: list[Output] = []
        self.problems: list[OutputProblem] = []

    def find(self, declared: Callable[[str], bool]) -> list[_Found]:
        """The wanted files in bytewise order."""
        found: list[_Found] = []
        for scanned, (path, status) in enumerate(self._walk()):
            if scanned >= self._limits.scanned_max:
                self._problem("too_many", "", f"the workspace holds more than {self._limits.scanned_max} files")
                return []
            if stat.S_ISDIR(status.st_mode):
                message = f"its paths are longer than {PATH_WALKED_BYTES_MAX} bytes: what lies below was not looked at"
                self._problem("bad_path_name", path, message)
                continue
            if not declared(path):
                continue
            file = self._examine(path, status)
            if file is not None:
                found.append(file)
        return sorted(found, key=lambda file: file.path)

    def names(self) -> tuple[str, ...]:
        """Every path that can be kept as text, in bytewise order. Raises ContentTooLarge."""
        found = []
        for scanned, (path, status) in enumerate(self._walk()):
            if scanned >= self._limits.files_max:
                raise ContentTooLarge(f"the workspace holds more than {self._limits.files_max} files")
            if not stat.S_ISDIR(status.st_mode) and disk.path_problem(path) is None:
                found.append(path)
        return tuple(sorted(found, key=str.encode))

    def within_bounds(self, wanted: Sequence[_Found]) -> bool:
        """Check the bounds of the whole before a byte is stored (case 40)."""
        limits = self._limits
        if len(wanted) > limits.files_max:
            self._problem("too_many", "", f"{len(wanted)} outputs, at most {limits.files_max} are kept")
            return False
        total = sum(file.bytes for file in wanted)
        if total > limits.total_bytes_max:
            message = f"the outputs have {total} bytes together, at most {limits.total_bytes_max} are kept"
            self._problem("too_large", "", message)
            return False
        return True

    def keep(self, wanted: Sequence[_Found], sink: ArtifactSink, classification: Classification) -> None:
        for file in wanted:
            try:
                descriptor = disk.open_beneath(self._root, file.source)
            except OSError as error:
                self._problem("unreadable", file.path, f"the file cannot be read: {error.strerror}")
                continue
            try:
                executable = os.fstat(descriptor).st_mode & stat.S_IXUSR
                # The bound is the size that was counted: a file that has grown is refused.
                stored = sink.put_descriptor(
                    descriptor, name=file.path, classification=classification, bytes_max=file.bytes
                )
            except (SourceChanged, ContentTooLarge) as error:
                self._problem("source_changed", file.path, error.message)
                continue
            except PathRefused as error:
                self._problem("not_regular", file.path, error.message)
                continue
            finally:
                os.close(descriptor)
            mode: Literal["0644", "0755"] = "0755" if executable else "0644"
            self.outputs.append(Output(path=file.path, mode=mode, digest=stored.digest, bytes=stored.bytes))

    def _examine(self, path: str, status: os.stat_result) -> _Found | None:
        problem = disk.path_problem(path)
        if problem is not None:
            self._problem("bad_path_name", path, f"the path {problem}")
            return None
        source = path
        if stat.S_ISLNK(status.st_mode):
            followed = self._follow(path)
            if followed is None:
                return None
            source, status = followed
        if not stat.S_ISREG(status.st_mode):
            self._problem("not_regular", path, "only regular files are kept as outputs")
            return None
        if status.st_size > self._limits.file_bytes_max:
            message = f"the file has {status.st_size} bytes, at most {self._limits.file_bytes_max} are kept"
            self._problem("too_large", path, message)
            return None
        return _Found(path=path, source=source, bytes=status.st_size)

    def _follow(self, path: str) -> tuple[str, os.stat_result] | None:
        """The regular file that a link means; None, with a problem if it leaves the tree, where it means
        none."""
        name = os.path.join(self._real_root, path.encode("utf-8"))
        if disk.real_path_leaves(self._real_root, name):
            self._problem("path_outside", path, "the link leaves the workspace")
            return None
        real = os.path.realpath(name)
        try:
            status = os.lstat(real)
            source = os.path.relpath(real, self._real_root).decode("utf-8")
        except (OSError, UnicodeDecodeError):
            return None
        return (source, status) if stat.S_ISREG(status.st_mode) else None

    def _walk(self) -> Iterator[tuple[str, os.stat_result]]:
        """Everything below the root that is no folder, and folders too deep to enter. Names that are not
        UTF-8 carry surrogates. Paths too long for an output are walked too: one that was declared is a problem."""
        waiting = [""]
        while waiting:
            prefix = waiting.pop()
            try:
                folder = self._open_folder(prefix)
            except OSError as error:
                self._problem("unreadable", prefix, f"the folder cannot be read: {error.strerror}")
                continue
            try:
                names = os.listdir(folder)
                for name in names:
                    raw = os.fsencode(name)
                    path = prefix + raw.decode("utf-8", "surrogateescape")
                    try:
                        status = os.lstat(raw, dir_fd=folder)
                    except OSError as error:
                        if error.errno != errno.ENOENT:
                            self._problem("unreadable", path, f"the file cannot be read: {error.strerror}")
                        continue
                    if stat.S_ISDIR(status.st_mode) and len(raw) + len(prefix) < PATH_WALKED_BYTES_MAX:
                        waiting.append(path + "/")
                    else:
                        yield path, status
            finally:
                os.close(folder)

    def _open_folder(self, prefix: str) -> int:
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        here = os.dup(self._root)
        for segment in prefix.split("/")[:-1]:
            outer = here
            name = segment.encode("utf-8", "surrogateescape")
            try:
                here = os.open(name, flags, dir_fd=outer)
            except PermissionError:
                # A tool left a folder without permissions; it is ours to read, and nobody else uses it now.
                os.chmod(name, 0o700, dir_fd=outer)
                here = os.open(name, flags, dir_fd=outer)
            finally:
                os.close(outer)
        return here

    def _problem(self, code: str, path: str, message: str) -> None:
        if len(self.problems) < self._limits.problems_max:
            shown = disk.printable(path.encode("utf-8", "surrogateescape"))
            self.problems.append(OutputProblem(code=code, path=shown, message=message))
