"""Pieces that several record kinds share."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from fencepost.core.limits import TEXT_CHARACTERS_MAX
from fencepost.core.records.envelope import Wire

Count = Annotated[int, msgspec.Meta(ge=0, le=2**53 - 1)]
Positive = Annotated[int, msgspec.Meta(ge=1, le=2**53 - 1)]
# The length is not said twice: `$` of Python also stands before a last end of line.
Digest = Annotated[str, msgspec.Meta(pattern=r"^sha256:[0-9a-f]{64}$", max_length=71)]
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=256)]
PathText = Annotated[str, msgspec.Meta(min_length=1, max_length=4096)]
Text = Annotated[str, msgspec.Meta(max_length=TEXT_CHARACTERS_MAX)]

Amounts = dict[str, Count]
"""Dimension -> amount. Dimensions: attempts, time_us, tokens_input, tokens_output, calls, money_micros:<ISO 4217>."""

Classification = Literal["public", "internal", "private"]
CheckpointKind = Literal["blob/1", "steps/1"]
"""Registered payloads: `blob/1`, bytes that only their program reads; `steps/1`, recorded steps by name."""
StoppedFor = Literal["drained", "lease_expired", "keeper_lost"]
"""Why a holder ended its own attempt: told to stop, without a renewal, or without the supervisor of its program."""
FailureClass = Literal[
    "deterministic_input",
    "policy",
    "budget",
    "transient_dependency",
    "executor",
    "validation",
    "concurrency_conflict",
    "stale_result",
    "ambiguous_external_effect",
    "terminal",
]
RETRYABLE: frozenset[str] = frozenset({"transient_dependency", "executor", "validation"})
"""Failure classes that a retry policy may name: transient by declaration, without a possible effect (W16)."""


class ArtifactRef(Wire, frozen=True):
    """A file that stands in the artifact store. `mode` is 0o644 or 0o755."""

    path: str
    digest: Digest
    bytes: Count
    mode: int


class LogRef(Wire, frozen=True):
    """One kept stream of output: the first and the last part, with the size of the gap between them."""

    digest: Digest
    bytes_total: Count
    bytes_kept: Count


class Usage(Wire, frozen=True):
    """What one receipt says was used. Unknown is not zero: unknown dimensions are named, never counted."""

    receipt: str  # unique per provider account
    provider: str  # "kernel" for what the supervisor measured itself
    amounts: Amounts
    unknown: tuple[str, ...] = ()
