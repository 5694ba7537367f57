"""Records of intent: plans and work orders (C1, W1)."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from fencepost.core.limits import ANSWER_CHARACTERS_MAX
from fencepost.core.records.common import (
    Amounts,
    Classification,
    Count,
    Digest,
    FailureClass,
    Name,
    PathText,
    Positive,
    Text,
)
from fencepost.core.records.envelope import Body, Wire, record_kind

Answer = Annotated[str, msgspec.Meta(max_length=ANSWER_CHARACTERS_MAX)]
Outcome = Literal["applied", "failed", "cancelled", "dependency_failed", "budget_exhausted", "unknown_terminal"]


class PlanTask(Wire, frozen=True):
    """One task of a plan revision, in definition order."""

    name: Name
    order: str
    contract: Digest


@record_kind("plan_revision", 1, "C1", "W22")
class PlanRevision(Body, frozen=True):
    """A sealed revision of a plan's graph."""

    plan: str
    name: Name
    revision: Positive
    content: Digest  # of the parsed document with first values
    objective: Text
    recovery: Literal["replace", "adopt"]
    ceilings: Amounts
    tasks: tuple[PlanTask, ...]
    deadline_us: Count | None = None  # logical
    predecessor: str | None = None
    provenance: dict[str, str] = msgspec.field(default_factory=dict)  # commit, dirtiness: told, never trusted


@record_kind("plan_cancel_requested", 1, "W19", "C25")
class PlanCancelRequested(Body, frozen=True):
    plan: str
    reason: Literal["cancel_requested", "deadline_passed", "superseded"]
    note: Text = ""


class Member(Wire, frozen=True):
    """An order that a group waits for, with the terminal outcomes that satisfy it, in byte order."""

    order: str
    contract: Digest
    outcomes: tuple[Outcome, ...]


class Group(Wire, frozen=True):
    """One dependency group; all groups of an order must hold (W15)."""

    kind: Literal["required", "optional", "alternative"]
    members: tuple[Member, ...]


class FromOrder(Wire, frozen=True):
    """Files that come from the accepted outputs of another order."""

    order: str
    files: tuple[str, ...]


class PythonCall(Wire, frozen=True):
    """A decorated callable, as its source declares it, and the interpreter that runs it (X10)."""

    call: Name  # "module:function", imported from the workspace
    name: Name
    version: Positive
    interpreter: PathText  # absolute


class Inputs(Wire, frozen=True):
    """What an attempt may read, by digest. `manifest` names the pinned files, `orders` the handed ones."""

    digest: Digest  # of the whole set
    manifest: Digest | None = None
    files: Count = 0
    bytes: Count = 0
    orders: tuple[FromOrder, ...] = ()


class Retry(Wire, frozen=True):
    on: tuple[FailureClass, ...]
    backoff_us: Count
    backoff_max_us: Count


class Acceptance(Wire, frozen=True):
    """What an accepted result must show. `schemas` maps an output path to the digest of its JSON Schema."""

    exit_code: Count = 0
    files: tuple[str, ...] = ()
    schemas: dict[str, Digest] = msgspec.field(default_factory=dict)
    verify: tuple[str, ...] = ()


class Policies(Wire, frozen=True):
    """The policies that the seed lists beside retry: each says what the kernel does, none is only carried."""

    cancellation: Literal["fence_at_once"]
    checkpoint: Literal["resume_last"]
    reconciliation: Literal["human"]
    retention: Literal["plan"]
    projection: Literal["local"]  # the route that the order's public projection may take


@record_kind("work_order_spec", 1, "W1", "C1")
class WorkOrderSpec(Body, frozen=True):
    """The immutable intent. Anything that must change is a new order that names this one in `replaces`.

    The *contract* digest leaves out repository pointer, epoch, constitution and policy digests and names
    dependencies by their contract digests; the *spec* digest covers all (lifecycle, 13).
    """

    order: str
    work_kind: Name  # "command/1", "python/1"
    schema_version: Positive
    task: Name
    position: Count
    lineage: str
    priority: Literal["low", "normal", "high"]
    submitter: str
    classification: Classification
    contract: Digest
    spec: Digest
    organization_epoch: Count
    repository: str  # accepted pointer, "none" while there is no repository acceptance
    constitution_version: Positive
    policy_context: Digest
    run: tuple[str, ...]
    environment: tuple[str, ...]
    inputs: Inputs
    outputs: tuple[str, ...]
    attempt_time_us: Positive
    ceilings: Amounts
    hold: Amounts  # what one attempt holds in each dimension that is limited
    hold_least: Amounts  # the smallest hold that it may start with
    accept: Acceptance
    effects: Literal["none", "declared", "opaque"]
    recovery: Literal["replace", "adopt"]
    policies: Policies
    output_kind: Literal["files/1"]
    may: tuple[str, ...] = ()
    groups: tuple[Group, ...] = ()
    retry: Retry | None = None
    may_fail: bool = False
    params: str = ""  # canonical JSON, "" for none
    extensions: dict[str, str] = msgspec.field(default_factory=dict)
    plan: str | None = None
    plan_revision: Count = 0
    parent: str | None = None
    replaces: str | None = None
    resumes: str | None = None  # envelope of the replaced order's last checkpoint, from which this one goes on
    python: PythonCall | None = None  # instead of `run`, for work kind "python/1"
    accounts: tuple[str, ...] = ()  # from the scope down to the order


@record_kind("work_order_moved", 1, "W13", "W19")
class WorkOrderMoved(Body, frozen=True):
    """The order takes another state, for a registered reason."""

    origin: str
    target: str
    reason: str
    ready_us: Count = 0  # when it becomes `ready`: the logical time that its place in the queue counts from
    cause: str = ""  # subject or command that brought it about
    note: Text = ""  # why, in the words of the person who cancelled it


class Wait(Wire, frozen=True):
    """What a waiting order waits for: it goes on as soon as one of these holds.

    Its question is answered, all of `orders` (its own children) have ended, or `until_us` (logical) has passed.
    `asked` says which of its program's waits it is: the same one, asked for again, is known by it.
    """

    question: str = ""
    prompt: Text = ""
    orders: tuple[str, ...] = ()
    until_us: Count = 0  # 0 for no time
    asked: Digest | None = None


@record_kind("work_order_waits", 1, "W13", "W5")
class WorkOrderWaits(Body, frozen=True):
    """The order waits, without attempt, hold or slot, for what its last attempt named (lifecycle, 9)."""

    attempt: str
    wait: Wait
    reason: str


@record_kind("answer_recorded", 1, "W5", "C25")
class AnswerRecorded(Body, frozen=True):
    """A person's answer to the question that the order asks. Recorded once, never changed."""

    question: Name
    value: Answer


@record_kind("dependency_observed", 1, "W15")
class DependencyObserved(Body, frozen=True):
    """A member of one of the order's groups has ended."""

    member: str
    outcome: Outcome
    satisfies: bool  # the outcome is in the set that the group names for this member
    group: Count


@record_kind("dependents_told", 1, "W15")
class DependentsTold(Body, frozen=True):
    """How far the end of this order has been told to its dependents. `done` closes the cursor."""

    position: Count
    done: bool


@record_kind("plan_cancel_advanced", 1, "W19")
class PlanCancelAdvanced(Body, frozen=True):
    """How far a plan's cancel has been carried to its orders, by position. `done` closes the cursor."""

    position: Count
    done: bool
