"""What a callable may raise, and what an attempt raises at it.

    Failure                  ends the attempt as failed, in the class that it names
      TransientError         transient_dependency: somebody else's fault, and it may pass
      InputError             deterministic_input: the same input fails the same way again
        StepRefused          a step cannot be recorded as it is
        StepChanged          a recorded step was asked for with other arguments
    Stopping                 the attempt is to end now; no `Exception`, so that nobody catches it by the way

Any other exception ends the attempt in the class `executor`.
"""

from __future__ import annotations

TYPE_CHECKING = False  # that of `typing`, without loading it
if TYPE_CHECKING:
    from typing import ClassVar, Final, Literal

    Kind = Literal["deterministic_input", "transient_dependency", "executor", "validation"]

KINDS: Final[tuple[Kind, ...]] = ("deterministic_input", "transient_dependency", "executor", "validation")
"""Classes of failure that a callable may claim; the plan's `retry` says which of them are tried again."""


class Failure(Exception):
    """The attempt has failed in a class. Raises ValueError for one that no callable may claim."""

    first_kind: ClassVar[Kind] = "executor"
    code: ClassVar[str] = "callable_failed"

    def __init__(self, message: str = "", *, kind: Kind | None = None) -> None:
        super().__init__(message)
        self.kind = checked_kind(self.first_kind if kind is None else kind)


class TransientError(Failure):
    """A service that is needed failed, and may work later."""

    first_kind = "transient_dependency"


class InputError(Failure):
    """The input is at fault: trying again ends the same way."""

    first_kind = "deterministic_input"


class StepRefused(InputError):
    """A step has a bad name, is asked for twice in one run, or has arguments or a value that cannot be recorded."""

    code = "step_refused"


class StepChanged(InputError):
    """A step of this name was recorded with other arguments."""

    code = "step_changed"


class Stopping(BaseException):
    """The attempt is to end now: its worker drains, its lease is lost, or its order was cancelled. `reason` says which.

    Let it through, after whatever has to be put away. What was recorded stays; a drained attempt costs nothing.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def checked_kind(kind: str) -> Kind:
    """Raises ValueError unless a callable may claim this class."""
    for known in KINDS:
        if kind == known:
            return known
    raise ValueError(f"a callable fails as one of {', '.join(KINDS)}, not as {kind!r}")
