"""What the auditor remembers: plain values in plain dictionaries, changed in place by the rules of the documents.

Nothing here knows the kernel. A step says which records it expects through `World.expect`, names that only the kernel
can choose (ids, jitter) are taken from the records with `World.adopt`, and everything else is computed. A subject's
version is counted by the one rule that all records share: whatever a record touches gets exactly one new version.
"""

from __future__ import annotations

import re
from bisect import bisect_left, insort
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

ENDED = frozenset({"applied", "failed", "cancelled", "dependency_failed", "budget_exhausted"})
"""States of an order that nothing leaves."""
LIVE = frozenset({"leased", "running"})
"""States of an attempt whose holder may speak."""
SCOPE = "scope"
CLOCK = "clock:main"
AUTHORITY = "authority"
CHILD, PARENT = -1, -2
"""In the place of a group's number: one who ends with the member, and one who may wait for its end."""
NO_PLAN = "-"  # queue of the orders outside any plan
BONUS_US = {"low": 0, "normal": 600_000_000, "high": 3_600_000_000}
"""Head start in the queue of each priority (lifecycle, Dependencies)."""
INTEGER_MAX = 2**53 - 1
_ID = re.compile(r"[a-z]+_[0-9a-f]{32}")


class Refused(NamedTuple):
    """A predicted refusal. `lasting` codes may be facts of their own (REASONS, column durable)."""

    code: str
    result: Mapping[str, Any] = {}


Outcome = Refused | dict[str, Any]
"""What a step predicts: a refusal, or the result that its caller is told."""


class Mismatch(Exception):
    """The kernel did something else than the rules say. The text is one whole sentence."""


def is_id(name: str, prefix: str) -> bool:
    return name.startswith(prefix + "_") and _ID.fullmatch(name) is not None


@dataclass(slots=True)
class Account:
    """Ceiling, held and charged of a scope, a plan or an order; dimensions that are zero may be absent."""

    ceiling: dict[str, int] = field(default_factory=dict)
    held: dict[str, int] = field(default_factory=dict)
    charged: dict[str, int] = field(default_factory=dict)
    unknown: set[str] = field(default_factory=set)  # dimensions of receipts that do not say their amount


@dataclass(slots=True)
class Group:
    """One dependency group: whom it waits for, and what it has heard so far."""

    kind: str
    members: list[tuple[str, frozenset[str]]]
    good: int = 0
    bad: int = 0


@dataclass(slots=True)
class Order:
    """One work order."""

    order: str
    plan: str
    spec: dict[str, Any]  # body of its first record
    seq: int
    state: str
    reason: str
    groups: list[Group]
    accounts: list[str]
    moved_us: int
    generation: int = 0
    ordinal: int = 0
    failures: int = 0
    yields: int = 0
    activations: int = 0
    attempt: str = ""
    ready_us: int = 0
    due_us: int = 0  # of its backoff
    result_seq: int = 0
    application_seq: int = 0
    dependents: list[tuple[str, int, frozenset[str]]] = field(default_factory=list)
    told: int = -1
    told_done: bool = True
    replaced_by: str = ""
    parent: str = ""
    checkpoint: str = ""  # envelope of the last one that was accepted
    checkpoints: int = 0
    wait: Mapping[str, Any] | None = None
    answers: set[str] = field(default_factory=set)
    children: dict[str, str] = field(default_factory=dict)  # name -> order


@dataclass(slots=True)
class Attempt:
    """One try at an order."""

    attempt: str
    order: str
    ordinal: int
    fence: int
    state: str
    reason: str
    worker: str
    host: str
    boot_id: str
    hold: str
    claim: str
    deadline_us: int
    lease_us: int = 0
    activated_us: int = 0
    input_set: str = ""
    descriptor_seq: int = 0
    result_seq: int = 0
    result: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)
    verification_seq: int = 0
    verification: str = ""
    verification_us: int = 0
    application_seq: int = 0
    late: list[tuple[str, str]] = field(default_factory=list)
    late_usages: list[Mapping[str, Any]] = field(default_factory=list)
    lapsed: bool = False  # somebody was told that its lease is over
    checkpoint: str = ""  # envelope of the last one that it saved
    artifacts: int = 0


@dataclass(slots=True)
class Hold:
    """What one attempt set aside."""

    hold: str
    attempt: str
    order: str
    accounts: list[str]
    held: dict[str, int]
    state: str = "held"
    charged: dict[str, int] = field(default_factory=dict)
    receipts: set[str] = field(default_factory=set)
    settle_by_us: int = 0
    estimated_us: int = 0
    unknown: set[str] = field(default_factory=set)
    charges: int = 0
    endings: int = 0


@dataclass(slots=True)
class Plan:
    """One plan."""

    plan: str
    name: str
    content: str
    seq: int
    deadline_us: int | None
    orders: list[str] = field(default_factory=list)  # by position
    open: int = 0
    has_ended: bool = False
    cancel: str = ""
    cancel_position: int = -1
    cancel_done: bool = True


@dataclass(slots=True)
class Name:
    """Which plans have a name."""

    newest: str
    open_plans: list[tuple[int, str, str]] = field(default_factory=list)  # (seq, plan, content)


@dataclass(slots=True)
class Source:
    """One host's clock within one boot."""

    boot_id: str
    logical_us: int
    utc_us: int
    tick_us: int
    last_tick_us: int
    last_seq: int
    before: list[Source] = field(default_factory=list)  # other boots of the host


@dataclass(slots=True)
class Clock:
    """Recorded time of the scope."""

    state: str = "running"
    logical_us: int = 0
    uncertainty_us: int = 0
    last_seq: int = 0
    grace_from_us: int = 0
    grace_until_us: int = 0
    sources: dict[str, Source] = field(default_factory=dict)

    def end_us(self, deadline_us: int) -> int:
        """When a lease or reservation ends, with the grace that a gap in observation gives it."""
        if self.grace_until_us and deadline_us >= self.grace_from_us:
            return max(deadline_us, self.grace_until_us)
        return deadline_us

    def lapsed(self, deadline_us: int) -> bool:
        return self.logical_us >= self.end_us(deadline_us)

    def past(self, deadline_us: int) -> bool:
        return self.logical_us - self.uncertainty_us >= deadline_us


class Expected(NamedTuple):
    """One predicted record."""

    kind: str
    subject: str
    version: int
    body: dict[str, Any]


class World:
    """The whole of the auditor's memory, and the batch that is being predicted."""

    def __init__(self, limits: Mapping[str, int]) -> None:
        self.limits = limits
        self.versions: dict[str, int] = {}
        self.accounts: dict[str, Account] = {}
        self.orders: dict[str, Order] = {}
        self.attempts: dict[str, Attempt] = {}
        self.holds: dict[str, Hold] = {}
        self.plans: dict[str, Plan] = {}
        self.names: dict[str, Name] = {}
        self.workers: dict[str, Mapping[str, Any]] = {}
        self.clock = Clock()
        self.constitution: Mapping[str, Any] = {}
        self.prover = ""
        self.proof_decision = ""  # that permits the prover's part of the command at hand
        self.works: dict[bytes, str] = {}  # what is to be done -> contract digest
        self.contracts: dict[str, bytes] = {}  # and back
        self.receipts: dict[str, str] = {}  # full name -> digest of what it says, "" where it came with a result
        self.ready: dict[str, list[tuple[int, int, int, str]]] = {"": []}  # plan, NO_PLAN, or "" for all -> queue
        self.last_seq = 0
        self.request: Mapping[str, Any] = {}
        self.records: Sequence[Mapping[str, Any]] = ()
        self.expected: list[Expected] = []
        self.fanout_left = 0

    def begin(self, request: Mapping[str, Any], records: Sequence[Mapping[str, Any]]) -> None:
        """Start the prediction of one command."""
        self.request = request
        self.records = records
        self.expected = []
        self.fanout_left = self.limits["fanout_per_batch"]

    @property
    def now_us(self) -> int:
        return self.clock.logical_us

    @property
    def next_seq(self) -> int:
        return self.last_seq + 1 + len(self.expected)

    def expect(self, kind: str, subject: str, body: dict[str, Any], *touched: str) -> int:
        """Predict the next record and count the versions of all that it touches; return its sequence number."""
        versions = self.versions
        own = versions.get(subject, 0) + 1
        versions[subject] = own
        if touched:
            for name in set(touched):
                if name != subject:
                    versions[name] = versions.get(name, 0) + 1
        seq = self.last_seq + 1 + len(self.expected)
        self.expected.append(Expected(kind, subject, own, body))
        return seq

    def next_record(self, kind: str) -> Mapping[str, Any]:
        """The record that the kernel wrote in the next place, for what only it can choose."""
        place = len(self.expected)
        if place >= len(self.records):
            raise Mismatch(f"predicted a record {kind}, and there are only {place} records")
        record = self.records[place]
        if record["kind"] != kind:
            raise Mismatch(f"predicted a record {kind} at {record['seq']}, which is {record['kind']}")
        return record

    def adopt(self, name: Any, prefix: str) -> str:
        """A new id that the kernel has chosen: well formed, and never used before."""
        if not isinstance(name, str) or not is_id(name, prefix):
            raise Mismatch(f"{name!r} is no id of a new {prefix}")
        if name in self.versions:
            raise Mismatch(f"{name} is given out a second time")
        return name

    def place_of(self, order: Order) -> tuple[int, int, int, str]:
        """An order's key in the queue: time when it became ready less its bonus, plan position, sequence."""
        due_us = order.ready_us - BONUS_US[order.spec["priority"]]
        return (due_us, order.spec["position"], order.seq, order.order)

    def enqueue(self, order: Order) -> None:
        key = self.place_of(order)
        insort(self.ready[""], key)
        insort(self.ready.setdefault(order.plan or NO_PLAN, []), key)

    def dequeue(self, order: Order) -> None:
        key = self.place_of(order)
        for group in ("", order.plan or NO_PLAN):
            queue = self.ready[group]
            at = bisect_left(queue, key)
            if at < len(queue) and queue[at] == key:
                del queue[at]
