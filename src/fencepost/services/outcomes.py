"""What a callable's child process said came of it: a claim in bytes, read as the foreign text that they are.

It can give a failure its class and its words, and name the files of a success. It cannot make a success of anything:
the exit code, the collected outputs and the order's acceptance decide. What is no outcome counts as nothing told.
"""

from __future__ import annotations

import re
from typing import Annotated, Literal

import msgspec

from fencepost.core import canonical
from fencepost.core.records.common import FailureClass

OUTCOME_BYTES_MAX = 4 * 2**20
CODES = frozenset(
    {
        "callable_failed",
        "callable_raised",
        "executor_changed",
        "executor_failed",
        "import_failed",
        "outputs_missing",
        "result_invalid",
        "step_changed",
        "step_refused",
    }
)
"""What a child process may name as the cause of a failure."""
_CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]")

ClaimedClass = Literal["deterministic_input", "transient_dependency", "executor", "validation"]


class Outcome(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One outcome, as `fencepost.sdk.host` writes it."""

    v: Literal[1]
    outcome: Literal["succeeded", "failed", "stopped", "yielded"]
    failure: ClaimedClass | None = None
    code: str = ""
    message: str = ""
    files: Annotated[tuple[str, ...], msgspec.Meta(max_length=1_000)] = ()

    def failed_as(self) -> tuple[FailureClass, str, str] | None:
        """(failure class, reason code, message) of a failure; None for anything else. A message has no control
        characters but ends of lines."""
        if self.outcome == "succeeded":
            return None
        if self.outcome == "yielded":
            return "executor", "callable_failed", "the callable ended as if it waited, and told nobody for what"
        if self.outcome == "stopped":
            return "executor", "stopped_on_order", f"the callable stopped: {_CONTROL.sub(' ', self.message)}"
        code = self.code if self.code in CODES else "callable_failed"
        return self.failure or "executor", code, _CONTROL.sub("\ufffd", self.message)


def outcome_in(data: bytes | None) -> Outcome | None:
    """What was told in these bytes, None for nothing that counts."""
    if data is None:
        return None
    try:
        return canonical.decode(data, Outcome)
    except canonical.Undecodable:
        return None
