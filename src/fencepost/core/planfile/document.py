"""The checked plan, with every first value written out.

Rules: what stands here has passed every check, so nobody downstream asks again. Durations are integer
microseconds, money is integer micros of its currency, and every amount stands under the name of its
dimension: "attempts", "time_us", "tokens_input", "tokens_output", "calls", "money_micros:USD". Tuples keep
the order in which the plan was written. Files are still patterns: resolving and pinning them is done at
submission.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from fencepost.core.shares import MONEY

Priority = Literal["low", "normal", "high"]
Classification = Literal["public", "internal", "private"]
Effects = Literal["none", "declared"]
Executor = Literal["command", "python"]
GroupKind = Literal["required", "optional", "alternative"]

EXECUTORS: Final[tuple[Executor, ...]] = ("command", "python")
PRIORITIES: Final[tuple[Priority, ...]] = ("low", "normal", "high")
CLASSIFICATIONS: Final[tuple[Classification, ...]] = ("public", "internal", "private")
OUTCOMES: Final = (
    "applied",
    "failed",
    "cancelled",
    "dependency_failed",
    "budget_exhausted",
    "unknown_terminal",
)
"""Terminal outcomes of an order, in the order in which they are written."""

RETRY_CLASSES: Final = ("executor", "transient_dependency", "validation")
"""Classes of failure that a plan may declare transient."""

ENVIRONMENT_FIRST: Final = ("PATH", "LANG", "LC_*", "TZ")
MAY_FIRST: Final = ("workspace.write",)
MONEY_PREFIX: Final = MONEY


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """An order that a group waits for, and the outcomes that satisfy it, in the order of `OUTCOMES`."""

    name: str
    outcomes: tuple[str, ...]


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """One predicate over other orders' outcomes; all groups of an order must hold.

    An optional group holds when every member is terminal, so its members carry every outcome.
    """

    kind: GroupKind
    members: tuple[Member, ...]


class FilePatterns(msgspec.Struct, frozen=True, kw_only=True):
    """Files of the repository that are pinned for the order."""

    patterns: tuple[str, ...]


class FromOrder(msgspec.Struct, frozen=True, kw_only=True):
    """Outputs of another order, which is in `needs` and whose outputs cover the patterns."""

    order: str
    patterns: tuple[str, ...]


class Retry(msgspec.Struct, frozen=True, kw_only=True):
    """Which failures another attempt follows, and after which pause; backoff_us <= backoff_max_us."""

    on: tuple[str, ...]
    backoff_us: int
    backoff_max_us: int


class Accept(msgspec.Struct, frozen=True, kw_only=True):
    """What proves that an attempt did its work.

    `files` are patterns within the outputs, each of which must match something. `schema` pairs a pattern
    within the outputs with the repository path of a JSON Schema. `verify` is the argument list of the
    verifier, () for none.
    """

    exit_code: int = 0
    files: tuple[str, ...] = ()
    schema: tuple[tuple[str, str], ...] = ()
    verify: tuple[str, ...] = ()


class WorkItem(msgspec.Struct, frozen=True, kw_only=True):
    """One work order as the plan defines it.

    `run` is the command of executor "command", `call` the "module:function" of executor "python"; the other is empty.
    `inputs` of None, and inputs without any `FilePatterns`, pin every file that git tracks or does not
    ignore. `budget` holds the order's ceilings (attempts always), `per_attempt` what one attempt holds in
    every other limited dimension but time, which is `attempt_time_us`. `priority` is raised to that of the
    orders that depend on this one; `priority_declared` is what the plan says.
    """

    name: str
    position: int
    executor: Executor
    run: tuple[str, ...]
    may_fail: bool
    environment: tuple[str, ...]
    needs: tuple[Group, ...]
    inputs: tuple[FilePatterns | FromOrder, ...] | None
    outputs: tuple[str, ...]
    attempt_time_us: int
    attempt_time_declared: bool
    budget: dict[str, int]
    per_attempt: dict[str, int]
    per_attempt_declared: dict[str, int]
    retry: Retry | None
    accept: Accept
    priority: Priority
    priority_declared: Priority
    classification: Classification
    may: tuple[str, ...]
    effects: Effects
    params: dict[str, object]
    call: str = ""

    def hold(self) -> dict[str, int]:
        """What one attempt of this order holds, by dimension."""
        return {"attempts": 1, "time_us": self.attempt_time_us, **self.per_attempt}

    def pins_every_file(self) -> bool:
        """Whether the order's workspace starts from all files of the repository that may be pinned."""
        return not any(isinstance(item, FilePatterns) for item in self.inputs or ())


class PlanDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A whole plan. `deadline_us` is elapsed time from submission, None for no deadline. `python` is the interpreter
    of its callables as it is written, "" for the one that runs fencepost."""

    name: str
    objective: str
    deadline_us: int | None
    recovery: Literal["replace"]
    budget: dict[str, int]
    work: tuple[WorkItem, ...]
    python: str = ""
