"""What the fold of a stream's records looks like: one frozen value per subject.

A subject's value changes only in `core.evolve`, by exactly one version per record that touches it. Values are
caches: everything in them comes from records, and `journal replay` rebuilds them from nothing. `FOLD_VERSION`
goes up whenever a value's shape or meaning changes; a store with another one is rebuilt.

Accounts are part of the value whose budget they are (scope, plan, order), because they change together with it.
"""

from __future__ import annotations

from typing import Any

import msgspec

from fencepost.core.ids import sha256_of
from fencepost.core.records.plan import Acceptance, Retry, Wait

FOLD_VERSION = 8

SCOPE = "scope"
AUTHORITY = "authority"
KERNEL_RECEIPTS = "kernel:"
"""How the names of receipts begin that a supervisor writes itself, from its own measurement."""
DOMAIN = "main"  # first value of a scope's clock domain
CLOCK = f"clock:{DOMAIN}"
WAITS_KEPT = 1_024
"""Waits of one order whose end is remembered: the last ones. As `BOOTS_MAX`, no limit that can be set."""
BOOTS_MAX = 16
"""Boots of one source that are told apart (decision 0016). No limit that can be set: a fold has to do without those."""


class Value(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="t", gc=False):
    """Base of all values. `version` is 1 after the record that created the subject.

    Values are trees of plain data and form no rings, so that the collector of garbage need not look at them.
    """

    version: int


class Account(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Ceiling, held and charged per dimension. `available = ceiling - held - charged`, the only signed figure."""

    ceiling: dict[str, int] = {}
    held: dict[str, int] = {}
    charged: dict[str, int] = {}
    unknown: dict[str, int] = {}  # how many receipts that programs named do not say their amount


class ScopeState(Value, frozen=True, tag="scope"):
    scope: str
    store_id: str
    clock: str  # subject of its clock domain
    account: Account = Account()


class PrincipalState(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    kind: str
    name: str
    assurance: str
    public_key: str


class GrantState(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    audience: str
    operations: tuple[str, ...]
    expires_us: int | None = None
    revoked: bool = False


class AuthorityState(Value, frozen=True, tag="authority"):
    """The constitution in force, and everyone enrolled and granted under it."""

    constitution_version: int
    constitution: str
    vocabulary: str
    principals: dict[str, PrincipalState] = {}
    grants: dict[str, GrantState] = {}


class DecisionState(Value, frozen=True, tag="decision"):
    allow: bool
    rule: str
    reason: str
    constitution_version: int


class Boot(msgspec.Struct, frozen=True, gc=False):
    """One source's chain within one boot. Logical time is `anchor_logical_us` plus the ticks since the anchor."""

    boot_id: str
    anchor_logical_us: int
    anchor_utc_us: int
    anchor_tick: int
    last_tick: int
    last_seq: int


class Source(Boot, frozen=True, gc=False, omit_defaults=True):
    """A source: its newest boot, and those that it had before, whose readings may still come (decision 0016)."""

    earlier: tuple[Boot, ...] = ()  # at most BOOTS_MAX - 1: those that were seen last

    def boot(self, boot_id: str) -> Boot | None:
        """The chain of one boot; None for one that is new or forgotten, whose first reading is a restart."""
        if boot_id == self.boot_id:
            return self
        return next((boot for boot in self.earlier if boot.boot_id == boot_id), None)


class Proof(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The last deadline that the domain proved. It is used by the record right behind it, or by none."""

    purpose: str
    target: str
    target_version: int
    seq: int


class ClockState(Value, frozen=True, tag="clock"):
    domain: str
    state: str  # of machines.CLOCK_DOMAIN
    logical_us: int  # domain time: the greatest accepted
    uncertainty_us: int
    last_seq: int  # of the last accepted observation
    sources: dict[str, Source] = {}
    grace_from_us: int = 0
    grace_until_us: int = 0
    quarantined_seq: int = 0
    proof: Proof | None = None

    def boot(self, source: str, boot_id: str) -> Boot | None:
        """The chain that a reading of this boot goes on with; None where it is a restart, or the source is new."""
        known = self.sources.get(source)
        return None if known is None else known.boot(boot_id)


class PlanState(Value, frozen=True, tag="plan"):
    plan: str
    name: str
    revision: int
    content: str
    record_seq: int
    recovery: str
    submitted_us: int
    orders: int
    open: int  # orders that have not ended
    account: Account
    applied: int = 0
    lost: int = 0  # ended, may not fail, not applied
    deadline_us: int | None = None
    cancel: str = ""  # reason of the accepted cancel
    cancel_seq: int = 0  # of its record
    cancel_position: int = -1  # last order that it has reached
    cancel_done: bool = True
    ended_us: int | None = None


class OpenPlan(msgspec.Struct, frozen=True, array_like=True, gc=False):
    plan: str
    content: str
    seq: int  # of its revision


class NameState(Value, frozen=True, tag="name"):
    """Which plan a name means. That a content has one open plan is decided here, under the stream's lock."""

    name: str
    newest: str
    open_plans: tuple[OpenPlan, ...] = ()  # by submission

    @property
    def open(self) -> str | None:
        """The open plan that was submitted last."""
        return self.open_plans[-1].plan if self.open_plans else None

    def meant_by(self, content: str = "") -> str:
        """The plan that is meant: the newest open one of this content, else the newest open one, else the newest."""
        same = [each.plan for each in self.open_plans if each.content == content]
        return same[-1] if same else self.open or self.newest


class Terms(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """What deciders need of the spec on every step, so that they need not read it again."""

    work_kind: str
    classification: str
    attempt_time_us: int
    hold: dict[str, int]
    hold_least: dict[str, int]
    accept: Acceptance
    effects: str
    recovery: str
    outputs: tuple[str, ...]
    may: tuple[str, ...]
    submitter: str
    constitution_version: int
    organization_epoch: int
    repository: str
    input_set: str
    priority: str = "normal"
    retry: Retry | None = None
    handed: bool = False  # whether files come from other orders' outputs


class GroupState(msgspec.Struct, frozen=True, omit_defaults=True, array_like=True, gc=False):
    """Progress of one dependency group, as counts: the verdict is a function of the multiset of outcomes."""

    kind: str
    total: int
    satisfied: int = 0
    unsatisfied: int = 0


class Saved(msgspec.Struct, frozen=True, omit_defaults=True, array_like=True, gc=False):
    """The last accepted checkpoint of one kind."""

    number: int
    seq: int
    envelope: str  # digest of its record's body
    payload: str
    bytes: int


class Waited(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """How an order's waits ended: `by` an answer, the end of its children, or the time that passed.

    The last one as it was asked for, and of each that can be known again (`Wait.asked`) by what it ended.
    """

    by: str  # "answer", "children" or "time"; "" where the last one is not known, in an order that replaces another
    question: str = ""
    orders: tuple[str, ...] = ()
    after_us: int = 0
    ended: tuple[tuple[str, str], ...] = ()  # (asked, by), the newest last

    def ended_by(self, asked: str) -> str:
        """By what the wait that was asked for in this way ended, "" where none has."""
        return next((by for known, by in self.ended if known == asked), "")


class OrderState(Value, frozen=True, tag="order"):
    order: str
    plan: str | None
    task: str
    position: int
    lineage: str
    spec: str
    contract: str
    spec_seq: int
    state: str  # of machines.WORK_ORDER
    reason: str
    terms: Terms
    accounts: tuple[str, ...]  # subjects, from the scope down to this order
    account: Account
    submitted_us: int
    moved_us: int  # logical time of the last move
    may_fail: bool = False
    parent: str | None = None
    replaces: str | None = None
    groups: tuple[GroupState, ...] = ()
    generation: int = 0
    ordinal: int = 0
    failures: int = 0
    yields: int = 0
    attempt: str | None = None  # the live one, or the last
    ready_us: int = 0
    retry_due_us: int = 0
    result_seq: int = 0  # of the result that the last application judged
    application_seq: int = 0
    dependents: int = 0  # edges that name this order; the next edge's position
    told: int = -1  # last edge position whose dependent has been told of the end
    told_done: bool = True
    replaced_by: str | None = None
    checkpoint_number: int = 0  # accepted checkpoints, of all kinds
    checkpoint: str = ""  # envelope of the last one
    checkpoints: dict[str, Saved] = {}  # kind -> the last one of it
    wait: Wait | None = None  # what a `waiting` order waits for
    waited: Waited | None = None  # how its waits have ended
    answers: dict[str, int] = {}  # question -> record of its answer
    children: dict[str, str] = {}  # name -> order
    effect_open: bool = False
    effect_applied: bool = False
    note_seq: int = 0  # of the move that says why a person ended it

    @property
    def wait_until_us(self) -> int:
        """The time that ends its wait by itself, 0 for none."""
        return 0 if self.wait is None else self.wait.until_us


class AttemptState(Value, frozen=True, tag="attempt"):
    attempt: str
    order: str
    plan: str | None
    ordinal: int
    generation: int
    fence: int
    state: str  # of machines.ATTEMPT
    reason: str
    worker: str
    host: str
    boot_id: str
    hold: str
    claim: str  # digest of the claim's last revision, chained (C2)
    reserved_us: int
    activation_deadline_us: int
    reservation_seq: int
    lease_us: int = 0  # end of the lease, 0 before activation
    activated_us: int = 0
    ended_us: int = 0
    input_set: str = ""
    descriptor_seq: int = 0
    result_seq: int = 0
    result: str = ""  # facts digest
    verification_seq: int = 0
    verification: str = ""  # outcome
    application_seq: int = 0
    gone_seq: int = 0  # of the proof that its holder is gone
    yielded_seq: int = 0  # of its end, where it ended to wait
    stopped_seq: int = 0  # of its end, where its own side ended it
    stopped: str = ""  # why it did
    note: str = ""  # of its last heartbeat that had one
    heard_us: int = 0  # logical time of its last event
    checkpoint: str = ""  # envelope of the last checkpoint that it saved
    artifacts: int = 0  # files that it put into the artifact store while it ran
    late: tuple[tuple[str, str, int], ...] = ()  # (what, digest, seq) of facts kept as late records


class HoldState(Value, frozen=True, tag="hold"):
    hold: str
    attempt: str
    order: str
    accounts: tuple[str, ...]
    state: str  # of machines.BUDGET_HOLD
    held: dict[str, int]  # what it still holds
    charged: dict[str, int] = {}
    settle_by_us: int = 0
    basis: str = ""
    receipts: tuple[str, ...] = ()
    estimated_us: int = 0  # charged time that no receipt has accounted for yet
    charges: int = 0  # receipts that its program named
    unknown: dict[str, int] = {}  # dimension -> how many of them do not say its amount


class ReceiptState(Value, frozen=True, tag="receipt"):
    """One receipt of a provider account: booked once in the whole scope."""

    hold: str
    seq: int  # of the record that booked it
    digest: str = ""  # of what it says, "" where it came with a result


class WorkerState(Value, frozen=True, tag="worker"):
    worker: str
    host: str
    boot_id: str
    pid: int
    enrolled_us: int
    executors: tuple[str, ...] = ()  # work kinds that it can run


AnyValue = (
    ScopeState
    | AuthorityState
    | DecisionState
    | ClockState
    | PlanState
    | NameState
    | OrderState
    | AttemptState
    | HoldState
    | ReceiptState
    | WorkerState
)

_DECODER: msgspec.json.Decoder[AnyValue] = msgspec.json.Decoder(AnyValue, strict=True)
_ENCODER = msgspec.json.Encoder(order="deterministic")  # fields as declared, keys of maps sorted


def encode_value(value: Value) -> bytes:
    """Deterministic bytes of a value: equal values give equal bytes, in any process (W21)."""
    return _ENCODER.encode(value)


def decode_value(data: bytes) -> Any:
    return _DECODER.decode(data)


def name_subject(name: str) -> str:
    return f"name:{name}"


def decision_subject(digest: str) -> str:
    return f"decision:{digest}"


def receipt_subject(name: str) -> str:
    """Subject of a receipt by its full name, `provider:receipt`: a digest, since providers choose their own length."""
    return f"receipt:{sha256_of(name.encode()).removeprefix('sha256:')}"
