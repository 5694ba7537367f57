"""The pack port: the files of a source tree that a submission pins, and one manifest for each selection of them.

Rules that every implementation keeps:
- **Read once.** A submission reads every file that any of its orders selects once, into one pack.
- **Durable before it is named.** When `write` returns a pack, its bytes survive a power cut; a manifest is as
  durable as the sink that it was put into.
- **Nothing that leaves the tree.** Links whose target lies outside, by its text or as it really resolves, are
  problems, as is everything that is no regular file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Literal, Protocol

import msgspec

from fencepost.ports.artifacts import ArtifactSink, Classification

Mode = Literal["0644", "0755", "link"]


class Entry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One file of a pack or manifest: `offset` is where its content begins in the pack; a link's content is its
    target."""

    path: str
    mode: Mode
    bytes: int
    digest: str
    offset: int


class ManifestStored(msgspec.Struct, frozen=True, kw_only=True):
    """`digest` is the artifact and what an order is bound to; `content_digest` says the same about its files
    alone."""

    digest: str
    content_digest: str
    files: int
    bytes: int


class PathProblem(msgspec.Struct, frozen=True, kw_only=True):
    """Why a path was refused. `path` is printable, "" where no single one is meant. Codes: path_outside,
    bad_path_name, not_regular, no_file, source_changed, too_large, too_many."""

    code: str
    path: str
    message: str


class PackWritten(msgspec.Struct, frozen=True, kw_only=True):
    """A durable pack. `fresh` is false when the same pack was there already."""

    pack: str
    bytes: int
    entries: tuple[Entry, ...]
    fresh: bool


class PackRefused(msgspec.Struct, frozen=True, kw_only=True):
    """Nothing was written; a bounded number of problems, in the order of the paths."""

    problems: tuple[PathProblem, ...]


class Packs(Protocol):
    """All packs of one home."""

    def write(
        self, root: Path, paths: Iterable[str], between: Callable[[], None] | None = None
    ) -> PackWritten | PackRefused:
        """Read the files `paths` below `root` and write them as one durable pack. `between` is called between pieces:
        what it raises gives the pack up. Raises StorageError."""
        ...

    def put_manifest(
        self,
        written: PackWritten,
        paths: Iterable[str],
        *,
        classification: Classification,
        sink: ArtifactSink | None = None,
    ) -> ManifestStored:
        """Store the manifest of one selection of a pack's files in `sink` (first value: the store). A path that
        is not in the pack is a broken program and raises `KeyError`."""
        ...
