"""Payloads of checkpoints by their registered kinds: what is one, and what one of a chain may take the place of.

`blob/1` is any bytes. `steps/1` is an object in canonical JSON: `base` is the digest of the payload that it goes on
from, or null, and `steps` are those that were recorded since, each with `arguments` (a digest), `name` and `value` (the
JSON of the value, as a text). What was acknowledged is never lost: a payload is based on the last one, or takes its
place and begins with its steps.
"""

from __future__ import annotations

import re
from typing import Final, get_args

import msgspec

from fencepost.core import canonical
from fencepost.core.canonical import Undecodable
from fencepost.core.ids import sha256_of
from fencepost.core.records.common import CheckpointKind
from fencepost.core.state import Saved
from fencepost.sdk import wire
from fencepost.sdk.steps import NAME_BYTES_MAX
from fencepost.services.desk import Desk
from fencepost.services.means import Means
from fencepost.services.requests import Declined

BLOB: Final = "blob/1"
"""What a program saves of its own state; laid out as a file for the next attempt."""
STEPS: Final = "steps/1"
KINDS: Final = get_args(CheckpointKind)
DIGEST: Final = re.compile("sha256:[0-9a-f]{64}")
_FIELDS: Final = {"base", "steps"}
_STEP_FIELDS: Final = {"arguments", "name", "value"}
_END: Final = b"]}"
_JSON: Final = msgspec.json.Decoder(msgspec.Raw)  # reads any value, and makes nothing of it


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
        if not isinstance(value, dict):
            raise Declined("wrong_type", f"the payload of {kind} is an object", where="/bytes")
        problem = _steps_problem(value)  # first, since it costs far less than to encode what has another shape
        if problem:
            raise Declined("bad_value", f"the payload is no {kind}: {problem}", where="/bytes")
        exact = canonical.encode(value)
    except Undecodable as error:
        raise Declined(error.code, f"the payload is no {kind}: {error}", where="/bytes") from None
    if exact != data:
        raise Declined("bad_value", f"the payload of {kind} is canonical JSON (RFC 8785)", where="/bytes")
    return _base_in(value)


def _steps_problem(value: dict[str, object]) -> str:
    """The first thing in which an object is no payload of steps, "" for none."""
    if value.keys() != _FIELDS:
        return "it has the fields `base` and `steps`, and no others"
    if value["base"] is not None and not _base_in(value):
        return "`base` is the digest of a payload, or null"
    steps = value["steps"]
    if not isinstance(steps, list) or not steps:
        return "`steps` is a list of one step or more"
    names: set[str] = set()
    for place, step in enumerate(steps):
        problem = _step_problem(step, names)
        if problem:
            return f"step {place} {problem}"
    return ""


def _step_problem(step: object, names: set[str]) -> str:
    if not isinstance(step, dict) or step.keys() != _STEP_FIELDS:
        return "has the fields `arguments`, `name` and `value`, and no others"
    arguments, name, value = (step[field] for field in sorted(_STEP_FIELDS))
    if not isinstance(arguments, str) or DIGEST.fullmatch(arguments) is None:
        return "has as `arguments` what is no digest"
    if not isinstance(name, str) or not 1 <= len(name.encode()) <= NAME_BYTES_MAX:
        return f"has as `name` what is no text of 1 to {NAME_BYTES_MAX} bytes"
    if name in names:
        return "has the name of another one"
    names.add(name)
    try:
        _JSON.decode(value if isinstance(value, str) else "")
    except (msgspec.DecodeError, RecursionError):
        return "has as `value` what is no text of JSON"
    return ""


def require_chained(means: Means, desk: Desk, base: str, data: bytes, saved: Saved | None) -> None:
    """A payload is based on the last one, or has the base of the last one and begins with its steps. Whatever lies in
    the store has a digest; through its chain a program gets what its own order has kept, and nothing else. Raises
    Declined."""
    if saved is None:
        moved = base != ""
    else:
        if desk.chain[0] != saved.payload:
            last = means.artifacts.read(saved.payload, wire.PAYLOAD_BYTES_MAX)
            desk.chain = (saved.payload, base_of(last))
        moved = base != saved.payload and (base != desk.chain[1] or not _goes_on(data, saved))
    if moved:
        message = "the payload is not based on the last one of its kind, and does not begin with its steps either"
        step = "read the last payload again, and go on from that"
        raise Declined("checkpoint_moved", message, where="/bytes", next_step=step)


def _goes_on(data: bytes, saved: Saved) -> bool:
    """Whether canonical `data`, of the same base as the last payload, begins with its steps: then it is that one up to
    its end, byte for byte."""
    return sha256_of(data[: saved.bytes - len(_END)] + _END) == saved.payload
