"""Pinned inputs: one pack of bytes for a submission, and a manifest for each selection of files.

A submission reads every file that any of its orders selects once and writes their contents, without repeats,
one after the other into `packs/<64 hex>`, synced once and named by the SHA-256 over the contents' digests in
their order. A manifest is an artifact: the entries of one order's selection, where in which pack their bytes
are, and nothing else. Its digest pins the order's inputs; `content_digest` names the same files without their
place in a pack, so that it stays the same when only files outside the selection change.

Only links whose target, by its text and as it really resolves, lies
inside the tree are pinned. Everything is verified again when it is laid out.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import stat
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from fencepost.adapters.artifacts import disk
from fencepost.adapters.artifacts.manifest import Manifest, check_manifest, content_digest, encoded, lay_out
from fencepost.ports.artifacts import (
    ArtifactMissing,
    ArtifactSink,
    ArtifactStore,
    Classification,
    SourceChanged,
)
from fencepost.ports.errors import ContentTooLarge, IntegrityError, PathRefused, StorageUnavailable
from fencepost.ports.packs import Entry, ManifestStored, Mode, PackRefused, PackWritten, PathProblem

__all__ = ["ManifestStored", "PackLimits", "PackRefused", "PackWritten", "Packs", "PathProblem", "inspect_paths"]

MANIFEST_BYTES_MAX: Final = 256 * 1024 * 1024
BUFFER_BYTES_MAX: Final = 64 * 1024 * 1024  # a pack up to this size is not written at all if it is there already
READ_TRIES: Final = 3


class PackLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds of one pack, all inclusive."""

    files_max: int = 200_000
    file_bytes_max: int = 2 * 1024**3
    total_bytes_max: int = 16 * 1024**3
    problems_max: int = 100


class _Refused(Exception):
    """Ends the reading of one path within this module."""

    def __init__(self, code: str, path: str, message: str) -> None:
        super().__init__(message)
        self.problem = PathProblem(code=code, path=disk.printable(path), message=message)


class Packs:
    """The folder `packs/` of a home, and the manifests in its artifact store."""

    def __init__(self, folder: Path, store: ArtifactStore, limits: PackLimits | None = None) -> None:
        self.folder = folder
        self._store = store
        self._limits = limits or PackLimits()
        self._partials = disk.Partials(folder / "partial")
        self._settled: set[str] = set()  # packs that this process has synced, one per submission

    def close(self) -> None:
        self._partials.close()

    def sweep_partials(self) -> int:
        """Remove what killed writers left; returns the number of files."""
        with disk.storage_errors(f"sweeping {self.folder}"):
            return self._partials.sweep()

    def path_of(self, pack: str) -> Path:
        return self.folder / disk.hex_of(pack)

    def write(
        self, root: Path, paths: Iterable[str], between: Callable[[], None] | None = None
    ) -> PackWritten | PackRefused:
        """Read the files `paths` below `root` and write them as one durable pack.

        Raises `StorageFull` and `StorageUnavailable`; then no pack is visible.
        """
        ordered = sorted(set(paths))
        reader = _TreeReader(root, self._limits, between)
        with disk.storage_errors(f"writing a pack in {self.folder}"):
            problems = _check_paths(reader, ordered, self._limits)
            if problems:
                return PackRefused(problems=problems)
            output = _Output(self._partials)
            try:
                entries = tuple(reader.add(path, output) for path in ordered)
                digest = output.digest()
                fresh = output.publish(self.path_of(digest), settled=digest in self._settled)
                self._settled.add(digest)
            except _Refused as refused:
                return PackRefused(problems=(refused.problem,))
            finally:
                output.drop()
        return PackWritten(pack=digest, bytes=output.size, entries=entries, fresh=fresh)

    def inspect(self, root: Path, paths: Iterable[str]) -> tuple[PathProblem, ...]:
        """As `inspect_paths`, within this folder's limits."""
        return inspect_paths(root, paths, self._limits)

    def put_manifest(
        self,
        written: PackWritten,
        paths: Iterable[str],
        *,
        classification: Classification,
        sink: ArtifactSink | None = None,
    ) -> ManifestStored:
        """Store the manifest of one selection of a pack's files, durable as `sink` (first value: the store)
        is.

        A path that is not in the pack is a broken program and raises `KeyError`.
        """
        by_path = {entry.path: entry for entry in written.entries}
        entries = tuple(by_path[path] for path in sorted(set(paths)))
        manifest = Manifest(pack=written.pack, entries=entries)
        stored = (sink or self._store).put_bytes(encoded(manifest), classification=classification)
        return ManifestStored(
            digest=stored.digest,
            content_digest=content_digest(entries),
            files=len(entries),
            bytes=sum(entry.bytes for entry in entries),
        )

    def read_manifest(self, digest: str) -> Manifest:
        """The manifest behind an input-set digest. `IntegrityError` if the artifact is none."""
        data = self._store.read(digest, MANIFEST_BYTES_MAX)
        try:
            manifest = msgspec.json.decode(data, type=Manifest)
        except msgspec.MsgspecError as error:
            raise IntegrityError(f"{digest} is not a manifest of inputs: {error}") from error
        check_manifest(manifest, digest)
        return manifest

    def materialize(self, manifest_digest: str, destination: Path) -> Manifest:
        """Lay out exactly the pinned files below the folder `destination`, which must exist and be empty of
        them.

        Every byte is verified. Not synced: a workspace is made again rather than recovered. Raises
        `IntegrityError` (damage), `PathRefused` (a path or link leaves `destination`, or two paths clash),
        `ArtifactMissing` (manifest or pack gone), `StorageFull`, `StorageUnavailable`.
        """
        manifest = self.read_manifest(manifest_digest)
        try:
            pack = os.open(self.path_of(manifest.pack), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            raise ArtifactMissing(f"the pack {manifest.pack} is gone") from None
        try:
            with disk.storage_errors("laying out pinned inputs"):
                lay_out(pack, manifest, destination)
        except StorageUnavailable as error:
            if isinstance(error.__cause__, FileExistsError | NotADirectoryError):
                raise PathRefused(f"{manifest_digest} clashes with what is laid out already") from error
            raise
        finally:
            os.close(pack)
        return manifest


def inspect_paths(root: Path, paths: Iterable[str], limits: PackLimits | None = None) -> tuple[PathProblem, ...]:
    """The problems of these paths that can be seen without reading the files: for checking a plan."""
    limits = limits or PackLimits()
    with disk.storage_errors(f"looking at {disk.printable(os.fsencode(root))}"):
        return _check_paths(_TreeReader(root, limits), sorted(set(paths)), limits)


def _check_paths(reader: _TreeReader, ordered: Sequence[str], limits: PackLimits) -> tuple[PathProblem, ...]:
    if len(ordered) > limits.files_max:
        message = f"{len(ordered)} files are selected, at most {limits.files_max} can be pinned"
        return (PathProblem(code="too_many", path="", message=message),)
    problems: list[PathProblem] = []
    for path in ordered:
        try:
            reader.check(path)
        except _Refused as refused:
            problems.append(refused.problem)
            if len(problems) >= limits.problems_max:
                break
    return tuple(problems)


class _TreeReader:
    """Reads files below one root, following no link, with the bounds of one pack."""

    def __init__(self, root: Path, limits: PackLimits, between: Callable[[], None] | None = None) -> None:
        self._between = between
        self._root = os.path.realpath(os.fsencode(root))
        self._limits = limits
        self._total_bytes = 0
        self._real_folders: set[str] = {""}
        self._places: dict[str, int] = {}  # digest -> offset

    def check(self, path: str) -> None:
        """Raise what can be said about a path without reading it."""
        problem = disk.path_problem(path)
        if problem is not None:
            code = "path_outside" if "plain" in problem else "bad_path_name"
            raise _Refused(code, path, f"the path {problem}")
        folder = path.rpartition("/")[0]
        if folder not in self._real_folders:
            if disk.real_path_leaves(self._root, self._native(folder)):
                raise _Refused("path_outside", path, "the path leaves the tree through a link")
            self._real_folders.add(folder)
        try:
            status = os.lstat(self._native(path))
        except (FileNotFoundError, NotADirectoryError):
            raise _Refused("no_file", path, "the file is not there (any more)") from None
        if stat.S_ISLNK(status.st_mode):
            self._link_target(path)
            return
        if not stat.S_ISREG(status.st_mode):
            raise _Refused("not_regular", path, "only regular files and links can be pinned")
        if status.st_size > self._limits.file_bytes_max:
            message = f"the file has {status.st_size} bytes, at most {self._limits.file_bytes_max} can be pinned"
            raise _Refused("too_large", path, message)
        self._total_bytes += status.st_size
        if self._total_bytes > self._limits.total_bytes_max:
            message = f"the selected files have more than {self._limits.total_bytes_max} bytes together"
            raise _Refused("too_large", path, message)

    def add(self, path: str, output: _Output) -> Entry:
        """Read one checked file and append its bytes to `output` unless they are in it already."""
        start = output.size
        try:
            mode, digest, size = self._read(path, output)
        except (FileNotFoundError, NotADirectoryError):
            raise _Refused("no_file", path, "the file is not there (any more)") from None
        except PermissionError:
            raise _Refused("no_file", path, "the file may not be read") from None
        offset = self._places.setdefault(digest, start)
        if offset == start:
            output.accept(digest)
        else:
            output.rewind(start)
        return Entry(path=path, mode=mode, bytes=size, digest=digest, offset=offset)

    def _read(self, path: str, output: _Output) -> tuple[Mode, str, int]:
        start = output.size
        try:
            descriptor = os.open(self._native(path), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            if error.errno != errno.ELOOP:
                raise
            target = self._link_target(path)
            output.append(target)
            return "link", disk.digest_of(target), len(target)
        try:
            for tries_left in reversed(range(READ_TRIES)):
                try:
                    digest, size = disk.read_steadily(
                        descriptor,
                        name=path,
                        bytes_max=self._limits.file_bytes_max,
                        consume=output.append,
                        between=self._between,
                    )
                except SourceChanged as error:
                    if not tries_left:
                        raise _Refused("source_changed", path, error.message) from None
                    output.rewind(start)
                else:
                    executable = os.fstat(descriptor).st_mode & stat.S_IXUSR
                    return ("0755" if executable else "0644"), digest, size
        except ContentTooLarge as error:
            raise _Refused("too_large", path, error.message) from None
        except PathRefused as error:
            raise _Refused("not_regular", path, error.message) from None
        finally:
            os.close(descriptor)
        raise RuntimeError("unreachable: the last try returns or raises")

    def _link_target(self, path: str) -> bytes:
        name = self._native(path)
        target = os.readlink(name)
        try:
            text = target.decode("utf-8")
        except UnicodeDecodeError:
            raise _Refused("bad_path_name", path, "the link's target is not valid UTF-8") from None
        if disk.link_leaves(path, text) or disk.real_path_leaves(self._root, name):
            raise _Refused("path_outside", path, f"the link leaves the tree: {disk.printable(text)}")
        return target

    def _native(self, path: str) -> bytes:
        return os.path.join(self._root, path.encode("utf-8"))


class _Output:
    """A growing pack: in memory up to `BUFFER_BYTES_MAX`, then in a partial file."""

    def __init__(self, partials: disk.Partials) -> None:
        self.size = 0
        self._partials = partials
        self._buffer = bytearray()
        self._contents = hashlib.sha256()
        self._descriptor = -1
        self._path: Path | None = None

    def append(self, data: bytes) -> None:
        if self._path is None and self.size + len(data) > BUFFER_BYTES_MAX:
            self._spill()
        if self._path is None:
            self._buffer += data
        else:
            disk.write_all(self._descriptor, data)
        self.size += len(data)

    def rewind(self, size: int) -> None:
        """Forget what was appended after the pack had `size` bytes."""
        if self._path is None:
            del self._buffer[size:]
        elif size != self.size:
            os.ftruncate(self._descriptor, size)
            os.lseek(self._descriptor, size, os.SEEK_SET)
        self.size = size

    def accept(self, digest: str) -> None:
        """What was appended last is a content of its own, with this digest."""
        self._contents.update(bytes.fromhex(disk.hex_of(digest)))

    def digest(self) -> str:
        return "sha256:" + self._contents.hexdigest()

    def publish(self, final: Path, *, settled: bool) -> bool:
        """Make the pack durable under its name; whether it had to be written. One that is damaged there is mended."""
        disk.make_folder(final.parent)
        try:
            fresh = os.stat(final).st_size != self.size or not (settled or self._stands_at(final))
        except FileNotFoundError:
            fresh = True
        if fresh:
            path = self._path or self._spill()
            os.fsync(self._descriptor)
            os.rename(path, final)
            self._path = None
        # A pack that was there may be another writer's, renamed but not synced yet.
        if fresh or not settled:
            disk.sync_file(final.parent)
        return fresh

    def _stands_at(self, final: Path) -> bool:
        """Whether the file there has exactly these bytes; one that cannot be read has not."""
        try:
            known = os.open(final, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            for start in range(0, self.size, disk.CHUNK_BYTES):
                size = min(disk.CHUNK_BYTES, self.size - start)
                if self._path is None:
                    own = bytes(self._buffer[start : start + size])
                else:
                    own = os.pread(self._descriptor, size, start)
                if os.pread(known, size, start) != own:
                    return False
        except OSError:
            return False
        finally:
            os.close(known)
        return True

    def drop(self) -> None:
        """Close, and remove what was not published."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
        if self._path is not None:
            with contextlib.suppress(OSError):
                os.unlink(self._path)
            self._path = None

    def _spill(self) -> Path:
        path = self._partials.new_path()
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o400)
        self._path = path
        disk.write_all(self._descriptor, memoryview(self._buffer))
        self._buffer = bytearray()
        return path
