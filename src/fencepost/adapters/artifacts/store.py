"""The artifact store on a local file system.

    artifacts/sha256/ab/<62 hex>             the bytes, read-only
    artifacts/sha256/ab/<62 hex>.internal    empty: the bytes were once put as internal
    artifacts/sha256/ab/<62 hex>.private     empty: they were once put as private
    artifacts/partial/<session>/             what is being written (see `disk.Partials`)

A classification is the set of its marks, and marks are only ever added, so it can only rise, and competing
writers need no lock. The marks stand before the bytes do.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from fencepost.adapters.artifacts import disk
from fencepost.ports.artifacts import (
    ARTIFACT_BYTES_MAX,
    CLASSIFICATIONS,
    ArtifactMissing,
    ArtifactSink,
    Classification,
    Stored,
)
from fencepost.ports.errors import ContentTooLarge, IntegrityError, PathRefused

SETTLED_MAX: Final = 65_536
IN_MEMORY_BYTES_MAX: Final = 1024 * 1024


class FileArtifactStore:
    """`ports.artifacts.ArtifactStore` below the folder `artifacts/` of a home. Safe for threads and
    processes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.tree = folder / "sha256"
        self.partials = disk.Partials(folder / "partial")
        # Shards and artifacts whose entry in the folder above this process has synced itself.
        self._settled: set[str] = set()

    def close(self) -> None:
        self.partials.close()

    def sweep_partials(self) -> int:
        """Remove what killed writers left; returns the number of files."""
        with disk.storage_errors(f"sweeping {self.partials.folder}"):
            return self.partials.sweep()

    # Writing

    @contextlib.contextmanager
    def batch(self) -> Iterator[ArtifactSink]:
        pending = _Batch(self)
        try:
            yield pending
            with disk.storage_errors(f"storing artifacts in {self.folder}"):
                pending.commit()
        finally:
            pending.drop()

    def put_bytes(self, data: bytes, *, classification: Classification) -> Stored:
        with self.batch() as batch:
            return batch.put_bytes(data, classification=classification)

    def put_file(self, path: Path, *, classification: Classification, bytes_max: int = ARTIFACT_BYTES_MAX) -> Stored:
        with self.batch() as batch:
            return batch.put_file(path, classification=classification, bytes_max=bytes_max)

    def put_descriptor(
        self,
        descriptor: int,
        *,
        name: str,
        classification: Classification,
        bytes_max: int = ARTIFACT_BYTES_MAX,
        between: Callable[[], None] | None = None,
    ) -> Stored:
        with self.batch() as batch:
            return batch.put_descriptor(
                descriptor, name=name, classification=classification, bytes_max=bytes_max, between=between
            )

    def settled(self, name: str) -> bool:
        return name in self._settled

    def settle(self, names: Iterator[str] | set[str]) -> None:
        """Remember what is durable; forgetting it costs a sync, never safety."""
        if len(self._settled) > SETTLED_MAX:
            self._settled.clear()
        self._settled.update(names)

    # Reading

    def path_of(self, digest: str) -> Path:
        """Where the bytes of a digest stand, or would."""
        digits = disk.hex_of(digest)
        return self.tree / digits[:2] / digits[2:]

    def has(self, digest: str) -> bool:
        return self.path_of(digest).is_file()

    def classification(self, digest: str) -> Classification:
        path = self.path_of(digest)
        if not path.is_file():
            raise _missing(digest)
        for word in reversed(CLASSIFICATIONS[1:]):
            if _mark(path, word).exists():
                return word
        return CLASSIFICATIONS[0]

    def open(self, digest: str) -> io.BufferedReader:
        return io.BufferedReader(_VerifyingReader(self._descriptor(digest), digest), disk.CHUNK_BYTES)

    def read(self, digest: str, bytes_max: int) -> bytes:
        descriptor = self._descriptor(digest)
        try:
            with disk.storage_errors(f"reading {digest}"):
                size = os.fstat(descriptor).st_size
                if size > bytes_max:
                    raise ContentTooLarge(f"{digest} has {size} bytes, at most {bytes_max} were asked for")
                data = b"".join(_pieces(descriptor))
        finally:
            os.close(descriptor)
        if disk.digest_of(data) != digest:
            raise _rotten(digest)
        return data

    def verify(self, digest: str) -> int:
        descriptor = self._descriptor(digest)
        try:
            with disk.storage_errors(f"reading {digest}"):
                return _verify_descriptor(descriptor, digest)
        finally:
            os.close(descriptor)

    def copy_to(self, digest: str, path: Path, mode: int) -> int:
        source = self._descriptor(digest)
        try:
            with disk.storage_errors(f"writing {disk.printable(os.fsencode(path))}"):
                flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
                target = os.open(os.fsencode(path), flags, 0o600)
                try:
                    size = _copy_verified(source, target, digest)
                    os.fchmod(target, mode)
                except BaseException:
                    os.unlink(os.fsencode(path))
                    raise
                finally:
                    os.close(target)
                return size
        finally:
            os.close(source)

    def _descriptor(self, digest: str) -> int:
        try:
            return os.open(self.path_of(digest), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            raise _missing(digest) from None
        except OSError as error:
            raise disk.storage_error(error, f"opening {digest}") from error


class _Batch:
    """Puts of one `batch()` block. `commit` publishes them; `drop` removes what was not published."""

    def __init__(self, store: FileArtifactStore) -> None:
        self._store = store
        self._written: dict[str, Path] = {}  # digest -> partial file
        self._words: dict[str, Classification] = {}  # digest -> highest word in this batch

    def put_bytes(self, data: bytes, *, classification: Classification) -> Stored:
        if len(data) > ARTIFACT_BYTES_MAX:
            raise ContentTooLarge(f"{len(data)} bytes, at most {ARTIFACT_BYTES_MAX} are kept")
        stored = Stored(disk.digest_of(data), len(data))
        with disk.storage_errors("writing an artifact"):
            if self._wants(stored):
                with self._partial() as (descriptor, path):
                    disk.write_all(descriptor, data)
                    self._written[stored.digest] = path
        self._note(stored.digest, classification)
        return stored

    def put_file(self, path: Path, *, classification: Classification, bytes_max: int = ARTIFACT_BYTES_MAX) -> Stored:
        name = disk.printable(os.fsencode(path))
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            descriptor = os.open(os.fsencode(path), flags)
        except OSError as error:
            raise PathRefused(f"{name} cannot be read as a regular file: {error.strerror}") from error
        try:
            return self.put_descriptor(descriptor, name=name, classification=classification, bytes_max=bytes_max)
        finally:
            os.close(descriptor)

    def put_descriptor(
        self,
        descriptor: int,
        *,
        name: str,
        classification: Classification,
        bytes_max: int = ARTIFACT_BYTES_MAX,
        between: Callable[[], None] | None = None,
    ) -> Stored:
        with disk.storage_errors(f"storing {disk.printable(name)}"):
            if os.fstat(descriptor).st_size <= IN_MEMORY_BYTES_MAX:
                pieces: list[bytes] = []
                disk.read_steadily(descriptor, name=name, bytes_max=bytes_max, consume=pieces.append, between=between)
                return self.put_bytes(b"".join(pieces), classification=classification)
            with self._partial() as (target, path):
                stored = Stored(
                    *disk.read_steadily(
                        descriptor,
                        name=name,
                        bytes_max=bytes_max,
                        consume=lambda piece: disk.write_all(target, piece),
                        between=between,
                    )
                )
                if self._wants(stored):
                    self._written[stored.digest] = path
                else:
                    os.unlink(path)
            self._note(stored.digest, classification)
            return stored

    def commit(self) -> None:
        """Sync the bytes, give them their names, sync the folders: three steps for all puts together."""
        store = self._store
        if not self._words:
            return
        disk.sync_all(self._written.values())
        shards = {digest[7:9] for digest in self._words}
        disk.make_folder(store.tree)
        for shard in shards:
            with contextlib.suppress(FileExistsError):
                os.mkdir(store.tree / shard, 0o700)
        unsettled: set[Path] = set()
        for digest, word in self._words.items():
            final = store.path_of(digest)
            partial = self._written.pop(digest, None)
            # Bytes that were there already may be another writer's, renamed but not synced yet.
            if _add_mark(final, word) or partial is not None or not store.settled(digest):
                unsettled.add(final.parent)
            if partial is not None:
                os.rename(partial, final)
        if not all(store.settled(shard) for shard in shards):
            unsettled.add(store.tree)
        disk.sync_all(unsettled)
        store.settle(shards | set(self._words))

    def drop(self) -> None:
        """Remove partial files that were not published."""
        for path in self._written.values():
            with contextlib.suppress(OSError):
                os.unlink(path)
        self._written.clear()

    def _note(self, digest: str, word: Classification) -> None:
        known = self._words.get(digest, CLASSIFICATIONS[0])
        self._words[digest] = max(known, word, key=CLASSIFICATIONS.index)

    def _wants(self, stored: Stored) -> bool:
        """Whether the bytes still have to be written."""
        if stored.digest in self._written:
            return False
        try:
            path = self._store.path_of(stored.digest)
            if os.stat(path).st_size != stored.bytes:
                return True  # damage, which these bytes mend
        except FileNotFoundError:
            return True
        # The same size says little. What this process has not written or read itself yet is read once.
        return not self._store.settled(stored.digest) and not _is_whole(path, stored.digest)

    @contextlib.contextmanager
    def _partial(self) -> Iterator[tuple[int, Path]]:
        path = self._store.partials.new_path()
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o400)
        try:
            yield descriptor, path
        except BaseException:
            os.unlink(path)
            raise
        finally:
            os.close(descriptor)


class _VerifyingReader(io.RawIOBase):
    """Hashes what passes; the read that reaches the end compares."""

    def __init__(self, descriptor: int, digest: str) -> None:
        self._descriptor = descriptor
        self._expected = digest
        self._digest = hashlib.sha256()
        self._left = os.fstat(descriptor).st_size

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]  # typeshed: private Buffer
        with disk.storage_errors(f"reading {self._expected}"):
            size = os.readv(self._descriptor, [buffer])
        self._digest.update(memoryview(buffer)[:size])
        self._left -= size
        if (size == 0 or self._left <= 0) and "sha256:" + self._digest.hexdigest() != self._expected:
            raise _rotten(self._expected)
        return size

    def close(self) -> None:
        if not self.closed:
            os.close(self._descriptor)
        super().close()


def _copy_verified(source: int, target: int, digest: str) -> int:
    """Copy an artifact to an empty file, by shared blocks where possible; returns its size."""
    size = os.fstat(source).st_size
    if disk.try_clone(source, target):
        return _verify_descriptor(target, digest)
    disk.copy_range(source, target, digest=digest, offset=0, size=size, name="artifact")
    return size


def _verify_descriptor(descriptor: int, digest: str) -> int:
    seen = hashlib.sha256()
    size = 0
    for piece in _pieces(descriptor):
        seen.update(piece)
        size += len(piece)
    if "sha256:" + seen.hexdigest() != digest:
        raise _rotten(digest)
    return size


def _is_whole(path: Path, digest: str) -> bool:
    """Whether a stored file still has its digest; one that cannot be read has not."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        _verify_descriptor(descriptor, digest)
    except (IntegrityError, OSError):
        return False
    finally:
        os.close(descriptor)
    return True


def _pieces(descriptor: int) -> Iterator[bytes]:
    offset = 0
    while piece := os.pread(descriptor, disk.CHUNK_BYTES, offset):
        offset += len(piece)
        yield piece


def _mark(path: Path, word: Classification) -> Path:
    return path.with_name(f"{path.name}.{word}")


def _add_mark(path: Path, word: Classification) -> bool:
    """Raise the classification to `word`; whether a mark was added."""
    rank = CLASSIFICATIONS.index(word)
    if any(_mark(path, higher).exists() for higher in CLASSIFICATIONS[max(rank, 1) :]) or rank == 0:
        return False
    with contextlib.suppress(FileExistsError):
        os.close(os.open(_mark(path, word), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o400))
    return True


def _missing(digest: str) -> ArtifactMissing:
    return ArtifactMissing(f"no artifact {digest} is stored")


def _rotten(digest: str) -> IntegrityError:
    return IntegrityError(f"the stored bytes of {digest} have another digest: the disk has damaged them")
