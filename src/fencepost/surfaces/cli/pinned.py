"""Whether the source tree still is what a plan pinned: a plan works with its pinned inputs whatever the tree is like.

Only what was pinned is looked at, and no more than a bounded part of it: this is a hint for a person, no evidence.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterable
from pathlib import Path

from fencepost.app import App
from fencepost.core.records.plan import PlanRevision
from fencepost.core.state import OrderState, PlanState
from fencepost.kernel.read import Look
from fencepost.ports.errors import FencepostError
from fencepost.ports.packs import Entry
from fencepost.surfaces.cli.typed import plan_file
from fencepost.surfaces.cli.words import one_line

FILES_MAX = 5_000
BYTES_MAX = 64 * 2**20
_PIECE = 2**20


def pinned_hint(app: App, look: Look, plan: str | None, orders: Iterable[OrderState]) -> str | None:
    """One line that says that a pinned file has changed since and what pins it anew; None where none is seen to."""
    found = look.find(plan, PlanState) if plan is not None else None
    if found is None:
        return None
    root = look.body(found.record_seq, PlanRevision).provenance.get("repository", "")
    digests = dict.fromkeys(manifest for order in orders if (manifest := look.spec(order).inputs.manifest) is not None)
    path = _first_change(app, Path(root), digests) if os.path.isabs(root) else None
    if path is None:
        return None
    way = "--new" if found.open else "--again"
    return (
        f"{one_line(path)} has changed since it was pinned; inputs are those pinned at submission: "
        f"fencepost run {plan_file(look, plan)} {way} pins the files as they are now"
    )


def _first_change(app: App, root: Path, manifests: Iterable[str]) -> str | None:
    seen: set[str] = set()
    left_bytes = BYTES_MAX
    for manifest in manifests:
        try:
            entries = app.packs.read_manifest(manifest).entries
        except FencepostError:
            return None  # what is damaged is told by whoever needs it
        for entry in entries:
            if entry.path in seen:
                continue
            seen.add(entry.path)
            left_bytes -= entry.bytes
            if len(seen) > FILES_MAX or left_bytes < 0:
                return None
            if not _is_same(root / entry.path, entry):
                return entry.path
    return None


def _is_same(path: Path, entry: Entry) -> bool:
    """Whether the file has the pinned bytes; one that cannot be read counts as the same, one that is gone does not."""
    try:
        found = path.lstat()
        if entry.mode == "link":
            return stat.S_ISLNK(found.st_mode) and _digest(os.fsencode(os.readlink(path))) == entry.digest
        if not stat.S_ISREG(found.st_mode) or found.st_size != entry.bytes:
            return False
        digest = hashlib.sha256()
        with path.open("rb") as file:
            while piece := file.read(_PIECE):
                digest.update(piece)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return f"sha256:{digest.hexdigest()}" == entry.digest


def _digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"
