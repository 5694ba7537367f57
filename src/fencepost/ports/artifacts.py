"""The artifact port: bytes named by their SHA-256, kept outside the journal (SPEC-005 evidence, W31).

A store keeps immutable bytes. Whoever publishes a digest (in a record, to a person) must have stored it
first:

- **Durable before it is named.** When `put_*` of a store returns, or when a `batch()` block has been left
  without an error, the bytes survive a power cut. Inside a batch a digest is known at once but neither
  visible nor durable before the block ends; leaving the block by an exception stores nothing of it that was
  not there before.
- **Never half visible.** A reader finds all bytes of a digest or none, whatever was killed or full meanwhile.
- **Same bytes once.** Any number of processes may put the same bytes at the same time; all succeed.
- **Reads are verified.** Bytes that do not have the digest they stand under raise `IntegrityError`, at the
  latest when the last byte is read.
- **Classification only rises** (public < internal < private): putting known bytes again under a lower word
  keeps the higher one.

Digests are `sha256:` and 64 lower-case hex; another form is a broken program and raises `ValueError`.
Errors: `StorageFull`, `StorageUnavailable`, `IntegrityError`, `ContentTooLarge`, `ArtifactMissing`, and for a
source file `SourceChanged` or `PathRefused`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import BinaryIO, Final, Literal, NamedTuple, Protocol

from fencepost.ports.errors import FencepostError, StorageError

Classification = Literal["public", "internal", "private"]
CLASSIFICATIONS: Final[tuple[Classification, ...]] = ("public", "internal", "private")  # rising

ARTIFACT_BYTES_MAX: Final = 4 * 1024**3
"""First value of the largest artifact, inclusive."""


class ArtifactMissing(StorageError):
    """No bytes are stored under this digest: they were never put, or retention has removed them."""

    code = "artifact_missing"


class SourceChanged(FencepostError):
    """A file was written to, cut or replaced while it was being read. Nothing of it was stored."""

    code = "source_changed"


class Stored(NamedTuple):
    """What a put returns: the name of the bytes, and how many they are."""

    digest: str
    bytes: int


class ArtifactSink(Protocol):
    """The writing half: a store (durable on return) or a batch (durable when its block is left)."""

    def put_bytes(self, data: bytes, *, classification: Classification) -> Stored:
        """Store `data`."""
        ...

    def put_file(self, path: Path, *, classification: Classification, bytes_max: int = ARTIFACT_BYTES_MAX) -> Stored:
        """Store the content of a regular file, in pieces. A link or anything else raises `PathRefused`,
        more than `bytes_max` bytes `ContentTooLarge`, a change while reading `SourceChanged`."""
        ...

    def put_descriptor(
        self,
        descriptor: int,
        *,
        name: str,
        classification: Classification,
        bytes_max: int = ARTIFACT_BYTES_MAX,
        between: Callable[[], None] | None = None,
    ) -> Stored:
        """As `put_file` for a regular file that the caller has open (and closes), read from its start; `name`
        is what messages call it. `between` is called between pieces: what it raises ends the put, and nothing is
        stored."""
        ...


class ArtifactStore(ArtifactSink, Protocol):
    """See the rules above."""

    def batch(self) -> AbstractContextManager[ArtifactSink]:
        """Many puts behind one barrier; use it from one thread. Cost: about one sync per 8 artifacts."""
        ...

    def has(self, digest: str) -> bool:
        """Whether the bytes are there, unverified."""
        ...

    def classification(self, digest: str) -> Classification:
        """The highest word that the bytes were ever put under. `ArtifactMissing` if they are not there."""
        ...

    def open(self, digest: str) -> BinaryIO:
        """A sequential reader, closed by the caller. The read that reaches the end raises `IntegrityError` if
        the bytes do not have this digest."""
        ...

    def read(self, digest: str, bytes_max: int) -> bytes:
        """All bytes, verified. More than `bytes_max` raises `ContentTooLarge` before anything is read."""
        ...

    def copy_to(self, digest: str, path: Path, mode: int) -> int:
        """Make the new file `path` (it must not exist) a verified copy with these permission bits; returns
        its size in bytes. Shares blocks where the file system can; never shares the file itself. Not synced.
        On an error there is no file at `path`."""
        ...

    def verify(self, digest: str) -> int:
        """Read all bytes and return how many they are; `IntegrityError` if they are not the ones put."""
        ...
