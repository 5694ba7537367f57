"""The list of an order's pinned files, and the files laid out from it again.

    path    relative, `/` between segments; entries stand in bytewise order, no path twice
    mode    "0644", "0755" by the owner's executable bit, or "link"
    bytes   size of the content; a link's content is its target
    digest  of the content
    offset  where the content begins in the pack

A manifest is checked whole before its first file is written, and each content when it is.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from fencepost.adapters.artifacts import disk
from fencepost.ports.errors import IntegrityError, PathRefused
from fencepost.ports.packs import Entry

__all__ = ["PERMISSIONS", "Entry", "Manifest", "check_manifest", "content_digest", "encoded", "lay_out"]

PERMISSIONS: Final[dict[str, int]] = {"0644": 0o644, "0755": 0o755}


class Manifest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="inputs/1", tag_field="kind"):
    """The pinned inputs of an order: entries in bytewise order of their paths, no path twice."""

    pack: str
    entries: tuple[Entry, ...]


def content_digest(entries: Sequence[Entry]) -> str:
    """Names the files of a selection (path, mode, bytes, digest), wherever their bytes are kept."""
    rows = [[entry.path, entry.mode, entry.bytes, entry.digest] for entry in entries]
    return disk.digest_of(msgspec.json.encode(rows))


def encoded(manifest: Manifest) -> bytes:
    """Canonical JSON."""
    # For this type, whose names and values are text and small integers, sorted msgspec output is canonical
    # JSON; the general encoder's bound is that of a record, and a manifest may be larger.
    return msgspec.json.encode(manifest, order="sorted")


def check_manifest(manifest: Manifest, digest: str) -> None:
    """Refuse a manifest that this module cannot have written, before any of its files is."""
    previous = ""
    files = {entry.path for entry in manifest.entries}
    folders: set[str] = set()
    for entry in manifest.entries:
        problem = disk.path_problem(entry.path)
        if problem is not None:
            raise PathRefused(f"in the manifest {digest} the path {disk.printable(entry.path)} {problem}")
        if entry.path <= previous or entry.bytes < 0 or entry.offset < 0:
            raise IntegrityError(f"the manifest {digest} is malformed at {disk.printable(entry.path)}")
        previous = entry.path
        folder = entry.path.rpartition("/")[0]
        while folder and folder not in folders:
            if folder in files:
                raise PathRefused(f"in the manifest {digest} {disk.printable(folder)} is both a file and a folder")
            folders.add(folder)
            folder = folder.rpartition("/")[0]


def lay_out(pack: int, manifest: Manifest, destination: Path) -> None:
    """Write the files of a checked manifest from the open pack; see `Packs.materialize`."""
    root = os.path.realpath(os.fsencode(destination))
    folders: set[bytes] = {root}
    links: list[bytes] = []
    for entry in manifest.entries:
        name = os.path.join(root, entry.path.encode("utf-8"))
        folder = os.path.dirname(name)
        if folder not in folders:
            os.makedirs(folder, 0o755, exist_ok=True)
            folders.add(folder)
        if entry.mode == "link":
            target = _pack_bytes(pack, entry)
            if disk.link_leaves(entry.path, target.decode("utf-8")):
                raise PathRefused(f"the link {disk.printable(entry.path)} leaves the tree")
            os.symlink(target, name)
            links.append(name)
        else:
            _lay_out_file(pack, entry, name)
    for name in links:
        if disk.real_path_leaves(root, name):
            os.unlink(name)
            raise PathRefused(f"the link {disk.printable(os.path.relpath(name, root))} leaves the tree")


def _lay_out_file(pack: int, entry: Entry, name: bytes) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(name, flags, 0o600)
    try:
        if entry.bytes <= disk.CHUNK_BYTES:
            disk.write_all(descriptor, _pack_bytes(pack, entry))
        else:
            disk.copy_range(
                pack,
                descriptor,
                digest=entry.digest,
                offset=entry.offset,
                size=entry.bytes,
                name=disk.printable(entry.path),
            )
        os.fchmod(descriptor, PERMISSIONS[entry.mode])
    finally:
        os.close(descriptor)


def _pack_bytes(pack: int, entry: Entry) -> bytes:
    data = os.pread(pack, entry.bytes, entry.offset)
    if disk.digest_of(data) != entry.digest:
        raise IntegrityError(f"the pinned bytes of {disk.printable(entry.path)} are damaged in their pack")
    return data
