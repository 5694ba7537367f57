"""The artifact store in memory, for simulation and tests. Durable means: until the object goes."""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Callable, Iterator
from pathlib import Path

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


class MemoryArtifactStore:
    """`ports.artifacts.ArtifactStore` in a dictionary, for one thread."""

    def __init__(self) -> None:
        self.content: dict[str, bytes] = {}
        self.words: dict[str, Classification] = {}

    @contextlib.contextmanager
    def batch(self) -> Iterator[ArtifactSink]:
        pending = MemoryArtifactStore()
        yield pending
        self.content.update(pending.content)
        for digest, word in pending.words.items():
            self._raise(digest, word)

    def put_bytes(self, data: bytes, *, classification: Classification) -> Stored:
        digest = disk.digest_of(data)
        self.content[digest] = bytes(data)
        self._raise(digest, classification)
        return Stored(digest, len(data))

    def put_file(self, path: Path, *, classification: Classification, bytes_max: int = ARTIFACT_BYTES_MAX) -> Stored:
        name = disk.printable(os.fsencode(path))
        try:
            descriptor = os.open(os.fsencode(path), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
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
        pieces: list[bytes] = []
        disk.read_steadily(descriptor, name=name, bytes_max=bytes_max, consume=pieces.append, between=between)
        return self.put_bytes(b"".join(pieces), classification=classification)

    def has(self, digest: str) -> bool:
        disk.hex_of(digest)
        return digest in self.content

    def classification(self, digest: str) -> Classification:
        self._find(digest)
        return self.words[digest]

    def open(self, digest: str) -> io.BytesIO:
        return io.BytesIO(self._verified(digest))

    def read(self, digest: str, bytes_max: int) -> bytes:
        size = len(self._find(digest))
        if size > bytes_max:
            raise ContentTooLarge(f"{digest} has {size} bytes, at most {bytes_max} were asked for")
        return self._verified(digest)

    def copy_to(self, digest: str, path: Path, mode: int) -> int:
        data = self._verified(digest)
        with disk.storage_errors(f"writing {disk.printable(os.fsencode(path))}"):
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            target = os.open(os.fsencode(path), flags, 0o600)
            try:
                disk.write_all(target, data)
                os.fchmod(target, mode)
            except BaseException:
                os.unlink(os.fsencode(path))
                raise
            finally:
                os.close(target)
        return len(data)

    def verify(self, digest: str) -> int:
        return len(self._verified(digest))

    def _raise(self, digest: str, word: Classification) -> None:
        known = self.words.get(digest, CLASSIFICATIONS[0])
        self.words[digest] = max(known, word, key=CLASSIFICATIONS.index)

    def _find(self, digest: str) -> bytes:
        disk.hex_of(digest)
        if digest not in self.content:
            raise ArtifactMissing(f"no artifact {digest} is stored")
        return self.content[digest]

    def _verified(self, digest: str) -> bytes:
        data = self._find(digest)
        if disk.digest_of(data) != digest:
            raise IntegrityError(f"the stored bytes of {digest} have another digest")
        return data
