"""Payloads of checkpoints by their registered kinds: what is one, and what one of a chain is based on.

`blob/1` is any bytes. `steps/1` is an object in canonical JSON whose `base` names the payload that it goes on from.
"""

from __future__ import annotations

import re
from typing import Final, get_args

from fencepost.core import canonical
from fencepost.core.canonical import Undecodable
from fencepost.core.records.common import CheckpointKind
from fencepost.core.state import Saved
from fencepost.sdk import wire
from fencepost.services.desk import Desk
from fencepost.services.means import Means
from fencepost.services.requests import Declined

BLOB: Final = "blob/1"
"""What a program saves of its own state; laid out as a file for the next attempt."""
STEPS: Final = "steps/1"
KINDS: Final = get_args(CheckpointKind)
DIGEST: Final = re.compile("sha256:[0-9a-f]{64}")


def require_kind(kind: str) -> None:
    """Raises Declined for a kind that is not registered."""
    if kind not in KINDS:
        step = f"name one of {', '.join(KINDS)}"
        raise Declined("unknown_tag", f"{kind!r} is no registered kind of checkpoint", where="/kind", next_step=step)


def base_of(data: bytes) -> str:
    """The payload that one of a chain is based on, "" for none."""
    return _base_in(canonical.parse(data))


def _base_in(value: object) -> str:
    base = value.get("base") if isinstance(value, dict) else None
    return base if isinstance(base, str) and DIGEST.fullmatch(base) is not None else ""


def checked_base(kind: str, data: bytes) -> str:
    """What a payload that is what its kind says is based on, "" for nothing. Raises Declined."""
    require_kind(kind)
    if kind != STEPS:
        return ""
    try:
        value = canonical.parse(data)
        exact = canonical.encode(value)
    except Undecodable as error:
        raise Declined(error.code, f"the payload is no {kind}: {error}", where="/bytes") from None
    if not isinstance(value, dict):
        raise Declined("wrong_type", f"the payload of {kind} is an object", where="/bytes")
    if exact != data:
        raise Declined("bad_value", f"the payload of {kind} is canonical JSON (RFC 8785)", where="/bytes")
    return _base_in(value)


def require_chained(means: Means, desk: Desk, base: str, saved: Saved | None) -> None:
    """A payload is based on the last one, or on what that one is based on. Whatever lies in the store has a digest;
    through its chain a program gets what its own order has kept, and nothing else. Raises Declined."""
    allowed: tuple[str, ...] = ("",)
    if saved is not None:
        if desk.chain[0] != saved.payload:
            last = means.artifacts.read(saved.payload, wire.PAYLOAD_BYTES_MAX)
            desk.chain = (saved.payload, base_of(last))
        allowed = desk.chain
    if base not in allowed:
        raise Declined("checkpoint_moved", "the payload is not based on the last one of its kind", where="/bytes")
