"""What a caller of the kernel gets: a receipt after the commit, or the refusal in it."""

from __future__ import annotations

from typing import Any

import msgspec

from fencepost.core.reasons import Refusal
from fencepost.ports.errors import FencepostError


class Receipt(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Proof that a command was decided. `sequence` is the stream's head that the answer is true at.

    `fresh` is True only for the commit itself; a replay of the same command gets the first receipt with False.
    A refused command has `refusal`, and records (`count` > 0) only where the refusal is a durable fact.
    """

    key: str
    sequence: int
    first_seq: int = 0
    count: int = 0
    result: dict[str, Any] = {}
    refusal: Refusal | None = None
    fresh: bool = True

    @property
    def ok(self) -> bool:
        return self.refusal is None

    def required(self) -> dict[str, Any]:
        """The result, or `Refused` for a caller that has no use for a refusal."""
        if self.refusal is not None:
            raise Refused(self.refusal)
        return self.result


class Refused(FencepostError):
    """A command was refused and its caller cannot go on. Nobody's fault by itself: see the refusal."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.message, next_step=refusal.next_step)
        self.code = refusal.code
        self.refusal = refusal
