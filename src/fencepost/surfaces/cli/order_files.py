"""The files of a result: listed, or written as verified copies.

Nothing that is there already is replaced unless it is the same, nothing leaves the folder, and nothing is written
before every file has been looked at.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

from fencepost.core.records.common import ArtifactRef
from fencepost.core.state import OrderState
from fencepost.kernel.read import Look
from fencepost.ports.artifacts import ArtifactStore
from fencepost.ports.errors import PathRefused
from fencepost.surfaces.cli.attempt_said import said_by
from fencepost.surfaces.cli.context import CommandError, recorded_is
from fencepost.surfaces.cli.whole_file import naming
from fencepost.surfaces.cli.words import count, one_line

_PIECE = 2**20


def files_of(look: Look, order: OrderState, ordinal: int | None) -> tuple[dict[str, Any], Sequence[ArtifactRef]]:
    """The document of a result's files, and their references. Raises CommandError."""
    seq = order.result_seq
    if ordinal is not None:
        attempt = next((one for one in look.attempts(order.order) if one.ordinal == ordinal), None)
        if attempt is None:
            raise CommandError(
                "not_found", f"{order.task} has no attempt {ordinal}", next_step="fencepost attempt list"
            )
        seq = attempt.result_seq
    elif order.state != "applied":
        raise CommandError(
            "order_state",
            f"{order.task} is {order.state}: only an applied result has files that count",
            next_step=_left(order),
        )
    facts = look.facts(seq)
    references = facts.artifacts if facts is not None else ()
    items = [
        {"path": ref.path, "digest": ref.digest, "bytes": ref.bytes, "mode": f"{ref.mode:04o}"} for ref in references
    ]
    return {"name": order.task, "id": order.order, "state": order.state, "items": items}, references


def kept_of(look: Look, order: OrderState, ordinal: int | None) -> tuple[dict[str, Any], Sequence[ArtifactRef]]:
    """As `files_of`, for what a program kept while it ran: of one attempt, first value the last one."""
    attempts = look.attempts(order.order)
    attempt = next((one for one in reversed(attempts) if ordinal in (None, one.ordinal)), None)
    if attempt is None:
        which = "attempt yet" if ordinal is None else f"attempt {ordinal}"
        raise CommandError("not_found", f"{order.task} has no {which}", next_step="fencepost attempt list")
    said, references = said_by(look, attempt)
    return {"name": order.task, "id": order.order, "state": order.state, "items": said["files"]}, references


def _left(order: OrderState) -> str:
    """Which command has what an order's last attempt left, or says why there is nothing."""
    if order.result_seq and order.ordinal:
        return f"fencepost order files {order.order} --attempt {order.ordinal} has what its last attempt left"
    return f"fencepost order why {order.order}"


def copy_files(store: ArtifactStore, references: Sequence[ArtifactRef], to: Path) -> list[str]:
    """Write what is not there yet; return those paths. Raises CommandError, PathRefused, OSError, StorageError."""
    with naming(to):
        to.mkdir(parents=True, exist_ok=True)
    root = Path(os.path.realpath(to))
    missing = []
    for ref in references:
        target = _target(root, ref.path)
        if not os.path.lexists(target):
            missing.append((ref, target))
        elif not _same(target, ref):
            raise CommandError(
                "file_exists",
                f"{one_line(ref.path)} is there already and differs; nothing was written",
                next_step="name another folder with --to, or move that file away",
            )
    for ref, target in missing:
        with naming(target.parent):
            target.parent.mkdir(parents=True, exist_ok=True)
            if not os.access(target.parent, os.W_OK | os.X_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        try:
            store.copy_to(ref.digest, target, ref.mode & 0o777)
        except FileExistsError as error:
            raise CommandError(
                "file_exists", f"{one_line(ref.path)} appeared meanwhile", next_step="run it again"
            ) from error
    recorded_is("the files are there all the same")
    return [ref.path for ref, _ in missing]


def _target(root: Path, path: str) -> Path:
    """Where a path of a result stands below the root. No link on the way is followed out of it."""
    parts = path.split("/")
    if path.startswith("/") or "\0" in path or any(part in ("", ".", "..") for part in parts):
        raise PathRefused(f"the path {one_line(path)!r} leaves the folder", next_step="fencepost journal verify")
    target = root.joinpath(*parts)
    parent = Path(os.path.realpath(target.parent))
    if parent != root and root not in parent.parents:
        raise PathRefused(
            f"the path {one_line(path)!r} leaves the folder over a link", next_step="name another folder with --to"
        )
    return target


def _same(path: Path, ref: ArtifactRef) -> bool:
    """Whether a regular file with exactly these bytes stands there."""
    found = path.lstat()
    if not stat.S_ISREG(found.st_mode) or found.st_size != ref.bytes:
        return False
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(_PIECE):
            digest.update(piece)
    return f"sha256:{digest.hexdigest()}" == ref.digest


def files_text(document: Mapping[str, Any], out: TextIO) -> None:
    if not document["items"]:
        print(f"{document['name']} has no files", file=out)
    written = set(document.get("written", ()))
    for item in document["items"]:
        mark = "" if "written" not in document else "wrote " if item["path"] in written else "same  "
        print(f"{mark}{one_line(item['path'])}  {count(item['bytes'], 'byte')}", file=out)
        print(f"  {item['digest']}", file=out)
