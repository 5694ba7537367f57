"""What an attempt's program said while it ran and is kept of it: its checkpoints, and files that are evidence.

The state has only how many there are; they are read from the attempt's own stretch of the journal, within a bound.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from fencepost.core.canonical import digest_of
from fencepost.core.records.attempt import AttemptArtifact, CheckpointEnvelope
from fencepost.core.records.common import ArtifactRef
from fencepost.core.state import AttemptState
from fencepost.kernel.read import Look

SCANNED_MAX: Final = 200_000
"""Records that are looked through for one attempt."""
_PAGE: Final = 1_000
_KINDS: Final = (b'"attempt_artifact"', b'"checkpoint_envelope"')


def said_by(look: Look, attempt: AttemptState) -> tuple[dict[str, Any], Sequence[ArtifactRef]]:
    """The document of what is kept, and the files of it, a path once, as it was last. `whole` is whether the bound
    has left nothing out."""
    checkpoints: list[dict[str, Any]] = []
    files: dict[str, ArtifactRef] = {}
    found = 0
    last = ""
    scanned = 0
    after = attempt.descriptor_seq or look.head.seq
    name = attempt.attempt.encode()
    while scanned < SCANNED_MAX and (found < attempt.artifacts or last != attempt.checkpoint):
        rows = look.records(after, _PAGE)
        if not rows:
            break
        for seq, data in rows:
            if name not in data or not any(kind in data for kind in _KINDS):
                continue
            record = look.record(seq)
            if record.subject != attempt.attempt:
                continue
            if isinstance(record.body, AttemptArtifact):
                found += 1
                files[record.body.artifact.path] = record.body.artifact
            elif isinstance(record.body, CheckpointEnvelope):
                last = digest_of(record.body)
                checkpoints.append(_checkpoint(record.body, last))
        scanned += len(rows)
        after = rows[-1][0]
    document = {
        "checkpoints": checkpoints,
        "files": [
            {"path": ref.path, "digest": ref.digest, "bytes": ref.bytes, "mode": f"{ref.mode:04o}"}
            for ref in files.values()
        ],
        "whole": found >= attempt.artifacts and last == attempt.checkpoint,
    }
    return document, tuple(files.values())


def _checkpoint(body: CheckpointEnvelope, envelope: str) -> dict[str, Any]:
    return {
        "number": body.number,
        "kind": body.payload_kind,
        "bytes": body.bytes,
        "payload": body.payload,
        "checkpoint": envelope,
    }
