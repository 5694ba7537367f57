"""Commands: everything that anyone may ask of the kernel, as frozen values with a wire form.

A command says what is asked, never what the outcome is. Who asks, on which grant and under which command key stands
beside it in `Request`. The digest of a command covers its canonical bytes and the principal, so that an exact replay
is recognised and anything else under the same key is a collision.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from fencepost.core.records.attempt import ResultFacts
from fencepost.core.records.authority import PrincipalKind
from fencepost.core.records.common import (
    Amounts,
    ArtifactRef,
    CheckpointKind,
    Classification,
    Count,
    Digest,
    LogRef,
    Name,
    Positive,
    StoppedFor,
    Text,
    Usage,
)
from fencepost.core.records.plan import Acceptance, Outcome, PythonCall, Retry

Key = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
Subject = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]


class Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    """Base of the pieces of commands: trees of plain data, which the collector of garbage need not look at."""


class Command(Part, frozen=True, tag_field="command"):
    """Base of all commands. `pairs` are the questions that authority answers: "action/resource kind"."""

    @property
    def pairs(self) -> tuple[str, ...]:
        return PAIRS[type(self)]

    @property
    def attributes(self) -> dict[str, str]:
        """Named attributes that the decision may depend on; never ids or times."""
        return {}


class Reading(Part, frozen=True):
    """One reading of one source's clocks (see `ports.clock`)."""

    source: Name
    boot_id: Name
    utc_us: Count
    tick_us: Count
    uncertainty_us: Count


class PrincipalDraft(Part, frozen=True):
    principal: Subject
    kind: PrincipalKind
    name: Name
    public_key: str
    assurance: Literal["service", "session", "presence"]


class GrantDraft(Part, frozen=True):
    grant: Subject
    chain: Digest
    audience: Subject
    operations: tuple[str, ...]


class OpenScope(Command, frozen=True, tag="open_scope"):
    """The first command of a scope: constitution, principals, grants and the first clock reading in one batch."""

    scope: Name
    store_id: str
    schema_registry: Digest
    constitution_version: Positive
    constitution: Digest
    vocabulary: Digest
    policies: str
    schema: str
    principals: tuple[PrincipalDraft, ...]
    grants: tuple[GrantDraft, ...]
    reading: Reading


class ObserveClock(Command, frozen=True, tag="observe_clock"):
    reading: Reading


class MemberDraft(Part, frozen=True):
    """A task of the same plan by name, or an existing order by id; the other is ""."""

    outcomes: tuple[Outcome, ...]
    task: str = ""
    order: str = ""


class GroupDraft(Part, frozen=True):
    kind: Literal["required", "optional", "alternative"]
    members: tuple[MemberDraft, ...]


class FromDraft(Part, frozen=True):
    task: str
    files: tuple[str, ...]


class OrderDraft(Part, frozen=True):
    """A work order as its submitter writes it; ids, digests and holds are computed by the kernel."""

    task: Name
    work_kind: Name
    priority: Literal["low", "normal", "high"]
    classification: Classification
    effects: Literal["none", "declared"]
    attempt_time_us: Positive
    accept: Acceptance
    run: tuple[str, ...] = ()
    environment: tuple[str, ...] = ()
    attempt_time_least_us: Count = 0  # an attempt may be given less time, down to this; 0 for no less
    manifest: Digest | None = None
    manifest_content: Digest | None = None  # digest of its files alone, the same whatever else was packed with them
    manifest_files: Count = 0
    manifest_bytes: Count = 0
    handed: tuple[FromDraft, ...] = ()
    outputs: tuple[str, ...] = ()
    groups: tuple[GroupDraft, ...] = ()
    ceilings: Amounts = {}
    per_attempt: Amounts = {}
    retry: Retry | None = None
    may: tuple[str, ...] = ()
    may_fail: bool = False
    params: str = ""  # canonical JSON, "" for none
    python: PythonCall | None = None  # instead of `run`, for work kind "python/1"


class SubmitPlan(Command, frozen=True, tag="submit_plan"):
    """Place a plan, or find the one that is there already.

    `mode` "continue" finds an open plan of the same content, or a finished one; "again" wants a new one after a
    finished one; "new" wants one beside an open one.
    """

    name: Name
    objective: Text
    content: Digest
    orders: tuple[OrderDraft, ...]
    recovery: Literal["replace"]
    mode: Literal["continue", "again", "new"]
    ceilings: Amounts = {}
    deadline_us: Positive | None = None  # from now
    provenance: dict[str, str] = {}
    predecessor: str = ""  # plan that the submitter saw last under this name


class SubmitOrder(Command, frozen=True, tag="submit_order"):
    """Place one order outside any plan. Its groups name existing orders by id."""

    order: OrderDraft

    @property
    def attributes(self) -> dict[str, str]:
        return {"classification": self.order.classification, "work_kind": self.order.work_kind}


class CancelPlan(Command, frozen=True, tag="cancel_plan"):
    plan: Subject
    note: Text = ""


class CancelOrder(Command, frozen=True, tag="cancel_order"):
    order: Subject
    note: Text = ""


class RetryOrder(Command, frozen=True, tag="retry_order"):
    """Make a backoff due, or replace an order that ended without being applied, with its dependents if so asked.

    A replacement has the ceilings that a person has set since, and goes on from the last checkpoint, unless it begins
    `from_start`.
    """

    order: Subject
    with_dependents: bool = False
    from_start: bool = False


class SetBudget(Command, frozen=True, tag="set_budget"):
    """Replace the ceilings of an account (`scope`, a plan or an order). Dimensions not named are not limited."""

    account: Subject
    ceilings: Amounts
    expected: Count = 0  # version that the caller saw, 0 for any
    note: Text = ""


class EnrolWorker(Command, frozen=True, tag="enrol_worker"):
    worker: Subject
    host: Name
    boot_id: Name
    pid: Positive
    executors: tuple[str, ...]


class Reserve(Command, frozen=True, tag="reserve"):
    order: Subject
    expected: Positive
    worker: Subject


class ReserveNext(Command, frozen=True, tag="reserve_next"):
    """Reserve up to `count` orders, the first in the queue's order that may run, of one plan or of any."""

    worker: Subject
    count: Positive
    plan: str | None = None


class ReleaseReservation(Command, frozen=True, tag="release_reservation"):
    attempt: Subject
    fence: Positive


class Activate(Command, frozen=True, tag="activate"):
    attempt: Subject
    expected: Positive
    fence: Positive
    worker: Subject
    executor: Name
    executor_version: Positive
    environment: Digest
    input_set: Digest
    mode: Name
    handed: tuple[ArtifactRef, ...] = ()
    extensions: dict[str, str] = {}


class Held(Part, frozen=True):
    """A token as its holder has it: a fence, not a credential."""

    attempt: Subject
    fence: Positive


class RenewLeases(Command, frozen=True, tag="renew_leases"):
    worker: Subject
    attempts: tuple[Held, ...]


class AppendEvent(Command, frozen=True, tag="append_event"):
    attempt: Subject
    fence: Positive
    spec: Digest
    input_set: Digest
    family: Literal["execution_started", "heartbeat_observed", "cancellation_acknowledged", "execution_stopped"]
    pid: Count = 0
    note: Text = ""


class SaveCheckpoint(Command, frozen=True, tag="save_checkpoint"):
    """Keep a state that the next attempt resumes from. Its payload is durable in the artifact store already (W6)."""

    attempt: Subject
    fence: Positive
    spec: Digest
    input_set: Digest
    kind: CheckpointKind
    builds_on: Count  # number of the order's last accepted checkpoint, 0 for none
    payload: Digest
    bytes: Count
    artifacts: tuple[ArtifactRef, ...] = ()


class RecordArtifact(Command, frozen=True, tag="record_artifact"):
    """Keep a file of a running attempt as evidence. Its bytes are durable in the artifact store already."""

    attempt: Subject
    fence: Positive
    spec: Digest
    input_set: Digest
    artifact: ArtifactRef


class ChargeUsage(Command, frozen=True, tag="charge_usage"):
    """Book what one receipt says: once, as it is, and under a stale fence too (W18, W17)."""

    attempt: Subject
    fence: Positive
    spec: Digest
    input_set: Digest
    usage: Usage


class WaitDraft(Part, frozen=True):
    """What to wait for, any one of it: an answer, the end of all named children, a time from now. 0 and "" for none.

    `asked` is the digest of what makes it this one of a program's waits, so that the next attempt knows it again.
    """

    question: str = ""
    prompt: Text = ""
    orders: tuple[Subject, ...] = ()
    after_us: Count = 0
    asked: Digest | None = None


class ReportYielded(Command, frozen=True, tag="report_yielded"):
    """The attempt has ended by itself so as to wait without holding anything (lifecycle, 9)."""

    attempt: Subject
    fence: Positive
    spec: Digest
    input_set: Digest
    duration_us: Count
    wait: WaitDraft
    stdout: LogRef | None = None
    stderr: LogRef | None = None


class SubmitChild(Command, frozen=True, tag="submit_child"):
    """Place an order inside a running one: in its plan, under its ceilings, found again by (parent, name)."""

    attempt: Subject
    fence: Positive
    spec: Digest
    input_set: Digest
    order: OrderDraft  # `task` is the child's own name


class AnswerOrder(Command, frozen=True, tag="answer_order"):
    """A person's answer to what an order asks; without `question`, to whatever it asks now."""

    order: Subject
    value: str  # at most `answer_bytes_max`: which one is too large is told as that, with its size
    question: str = ""


class EndWait(Command, frozen=True, tag="end_wait"):
    """Let an order go on whose time to wait has passed."""

    order: Subject
    expected: Positive


class ReportResult(Command, frozen=True, tag="report_result"):
    attempt: Subject
    fence: Positive
    spec: Digest
    facts: ResultFacts


class ReportStopped(Command, frozen=True, tag="report_stopped"):
    """The holder ended its own attempt before it was done and saw its tree end.

    A drain is a planned pause. Anything else was none: the supervisor ended the tree because nobody had renewed the
    lease in time, or the supervisor itself was lost.
    """

    attempt: Subject
    fence: Positive
    duration_us: Count
    reason: StoppedFor
    note: Text = ""
    stdout: LogRef | None = None
    stderr: LogRef | None = None


class RecordVerification(Command, frozen=True, tag="record_verification"):
    attempt: Subject
    result: Digest
    outcome: Literal["passed", "failed", "error"]
    duration_us: Count
    exit_code: int | None = None
    signal: int | None = None
    stdout: LogRef | None = None
    stderr: LogRef | None = None
    message: Text = ""


class ApplyResult(Command, frozen=True, tag="apply_result"):
    attempt: Subject


class ExpireAttempt(Command, frozen=True, tag="expire_attempt"):
    """End a reservation that was not activated in time, or a lease that was not renewed."""

    attempt: Subject
    expected: Positive


class ProveHolderGone(Command, frozen=True, tag="prove_holder_gone"):
    attempt: Subject
    fence: Positive
    host: Name
    boot_id: Name
    basis: Literal["locks_free", "later_boot"]
    evidence: Text


class SettleHold(Command, frozen=True, tag="settle_hold"):
    """Settle a hold whose facts did not come by its recorded time."""

    hold: Subject
    expected: Positive


class EndBackoff(Command, frozen=True, tag="end_backoff"):
    order: Subject
    expected: Positive


class Reexamine(Command, frozen=True, tag="reexamine"):
    """Look again at an order that was blocked when it was tried."""

    order: Subject
    expected: Positive


class TellDependents(Command, frozen=True, tag="tell_dependents"):
    """Carry an order's end on to the next page of its dependents."""

    order: Subject


class AdvanceCancel(Command, frozen=True, tag="advance_cancel"):
    """Carry a plan's cancel on to its next page of orders."""

    plan: Subject


class EnforceDeadline(Command, frozen=True, tag="enforce_deadline"):
    plan: Subject
    expected: Positive


PAIRS: dict[type[Command], tuple[str, ...]] = {
    OpenScope: ("open_scope/scope",),
    ObserveClock: ("sample_clock/clock_domain",),
    SubmitPlan: ("submit_work/plan",),
    SubmitOrder: ("submit_work/work_order",),
    CancelPlan: ("cancel_work/plan",),
    CancelOrder: ("cancel_work/work_order",),
    RetryOrder: ("retry_work/work_order",),
    SetBudget: ("set_budget/account",),
    EnrolWorker: ("enrol_worker/worker",),
    Reserve: ("reserve_attempt/work_order",),
    ReserveNext: ("reserve_attempt/work_order",),
    ReleaseReservation: ("reserve_attempt/work_order",),
    Activate: ("activate_attempt/attempt",),
    RenewLeases: ("renew_lease/attempt",),
    AppendEvent: ("append_event/attempt",),
    SaveCheckpoint: ("save_checkpoint/attempt",),
    RecordArtifact: ("append_event/attempt",),
    ChargeUsage: ("charge_usage/attempt",),
    ReportYielded: ("report_result/attempt",),
    SubmitChild: ("submit_child/attempt",),
    AnswerOrder: ("answer_work/work_order",),
    EndWait: ("propagate_readiness/work_order", "prove_clock_deadline/clock_domain"),
    ReportResult: ("report_result/attempt",),
    ReportStopped: ("report_result/attempt",),
    RecordVerification: ("record_verification/attempt",),
    ApplyResult: ("apply_result/work_order",),
    ExpireAttempt: ("expire_attempt/attempt", "prove_clock_deadline/clock_domain"),
    ProveHolderGone: ("prove_holder_gone/attempt",),
    SettleHold: ("expire_attempt/attempt", "prove_clock_deadline/clock_domain"),
    EndBackoff: ("propagate_readiness/work_order", "prove_clock_deadline/clock_domain"),
    Reexamine: ("reexamine_work/work_order",),
    TellDependents: ("propagate_readiness/work_order",),
    AdvanceCancel: ("propagate_readiness/work_order",),
    EnforceDeadline: ("enforce_deadline/plan", "prove_clock_deadline/clock_domain"),
}
"""Which pairs a command needs: the first for its own principal, a second one for the prover of a deadline."""

AnyCommand = (
    OpenScope
    | ObserveClock
    | SubmitPlan
    | SubmitOrder
    | CancelPlan
    | CancelOrder
    | RetryOrder
    | SetBudget
    | EnrolWorker
    | Reserve
    | ReserveNext
    | ReleaseReservation
    | Activate
    | RenewLeases
    | AppendEvent
    | SaveCheckpoint
    | RecordArtifact
    | ChargeUsage
    | ReportYielded
    | SubmitChild
    | AnswerOrder
    | EndWait
    | ReportResult
    | ReportStopped
    | RecordVerification
    | ApplyResult
    | ExpireAttempt
    | ProveHolderGone
    | SettleHold
    | EndBackoff
    | Reexamine
    | TellDependents
    | AdvanceCancel
    | EnforceDeadline
)

NEEDS_CLOCK: frozenset[type[Command]] = frozenset(PAIRS) - {OpenScope, ObserveClock}
"""Commands that name an accepted observation; the sampler's comes first when the last one is too old. Every command
is judged by a grant that may end, and whatever makes an order ready gives it its place in the queue."""

MEASURES_TIME: frozenset[type[Command]] = frozenset({ProveHolderGone, ReportYielded})
"""Commands that measure time from now or until now: they rest on a reading of this moment. An older one, however little
older, would take from a charge what had passed since, and all of it from an attempt that began after it; and it would
end a wait before its time has passed."""


class Request(Part, frozen=True):
    """A command with who asks for it, on which grant (digest of its chain), and under which key."""

    command: AnyCommand
    key: Key
    principal: Subject
    grant: Digest
    assurance: Literal["service", "session", "presence"]
