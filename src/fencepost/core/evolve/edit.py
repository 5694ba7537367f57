"""The working copy of one record's changes: every subject it touches gets exactly one new version."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

from msgspec.structs import replace

from fencepost.core.amounts import charged_with, counted_with, minus, plus, shortfall
from fencepost.core.ids import sha256_of
from fencepost.core.machines import ATTEMPT, ENDED, WORK_ORDER, CorruptHistory, Machine, order_guard
from fencepost.core.readiness import Verdict, verdict_of_all
from fencepost.core.records.envelope import Body
from fencepost.core.state import (
    CLOCK,
    Account,
    AttemptState,
    ClockState,
    NameState,
    OrderState,
    PlanState,
    Value,
    name_subject,
)


class Edge(NamedTuple):
    """`dependent` hears of the end of `member`: made with the younger of the two, never changed.

    `group` is the number of a dependency group, or says which kin the two are (`CHILD`, `PARENT`).
    """

    member: str
    position: int
    dependent: str
    group: int
    outcomes: str


CHILD = -1
"""Group of the edge from an order to its child: the child ends with it."""
PARENT = -2
"""Group of the edge from a child to the order that it is part of, which may wait for its end."""


class Fact(NamedTuple):
    """A record as far as folding needs it: everything but the chain."""

    seq: int
    subject: str
    subject_version: int
    body: Body


class Fold(Protocol):
    """Where states live while records are folded into them."""

    def get(self, subject: str) -> Any | None: ...

    def put(self, subject: str, value: Value) -> None: ...

    def add_edge(self, edge: Edge) -> None: ...


V = TypeVar("V", bound=Value)


class Edit:
    """Collects one record's changes and hands them to the fold at once. A subject is created only at version 1."""

    __slots__ = ("_edges", "_fold", "_look_up", "_touched", "fact")

    def __init__(self, fold: Fold, fact: Fact) -> None:
        self._fold = fold
        self._look_up = fold.get
        self._touched: dict[str, Value] = {}
        self._edges: list[Edge] = []
        self.fact = fact

    def corrupt(self, problem: str) -> CorruptHistory:
        return CorruptHistory(f"record {self.fact.seq}: {problem}")

    def require(self, holds: bool, problem: str) -> None:
        """Raise CorruptHistory, with `problem` in words, unless `holds`."""
        if not holds:
            raise self.corrupt(problem)

    def less(self, left: Mapping[str, int], right: Mapping[str, int], what: str) -> dict[str, int]:
        """left - right. Raises CorruptHistory below zero."""
        try:
            return minus(left, right)
        except ValueError as error:
            raise self.corrupt(f"{what}: {error}") from error

    def require_proof(self, purpose: str, target: str, target_version: int) -> None:
        """Nothing ends by time unless the record right before proves it, for this purpose and version (W10)."""
        proof = self.need(CLOCK, ClockState).proof
        known = proof is not None and (proof.purpose, proof.target, proof.target_version, proof.seq) == (
            purpose,
            target,
            target_version,
            self.fact.seq - 1,
        )
        self.require(known, f"{purpose} of {target} is not proved")

    @property
    def now_us(self) -> int:
        """Accepted logical time at this record."""
        return self.need(CLOCK, ClockState).logical_us

    def find(self, subject: str) -> Any | None:
        return self._touched.get(subject) or self._look_up(subject)

    def need(self, subject: str, kind: type[V]) -> V:
        value = self._touched.get(subject) or self._look_up(subject)
        if not isinstance(value, kind):
            raise CorruptHistory(f"record {self.fact.seq}: {subject} is no {kind.__name__}")
        return value

    def create(self, subject: str, value: Value) -> None:
        if value.version != 1 or self.find(subject) is not None:
            raise CorruptHistory(f"record {self.fact.seq}: {subject} exists already")
        self._touched[subject] = value

    def change(self, subject: str, value: V, **changes: Any) -> V:
        """Put `value` with `changes`; the version goes up once per record, however often this is called."""
        if subject not in self._touched:
            changes["version"] = value.version + 1
        changed = replace(value, **changes)
        self._touched[subject] = changed
        return changed

    def add_edge(self, edge: Edge) -> None:
        self._edges.append(edge)

    def close(self) -> None:
        _, subject, version, _ = self.fact
        own = self._touched.get(subject)
        if own is None or own.version != version:
            found = own.version if own is not None else None
            raise self.corrupt(f"{subject} is at version {found}, not {version}")
        put = self._fold.put
        for subject, value in self._touched.items():
            put(subject, value)
        for edge in self._edges:
            self._fold.add_edge(edge)


def claim_revision(previous: str, attempt: AttemptState) -> str:
    """Digest of a claim's revision: each names the one before, so that a token can be checked in full (C2)."""
    ends_us = attempt.lease_us or attempt.activation_deadline_us
    return claim_digest(previous, attempt.attempt, attempt.worker, attempt.fence, attempt.state, ends_us)


def claim_digest(previous: str, attempt: str, worker: str, fence: int, state: str, ends_us: int) -> str:
    """The same of an attempt that is not written down yet. `ends_us` is its lease's end, else its deadline."""
    return sha256_of(f"{previous}|{attempt}|{worker}|{fence}|{state}|{ends_us}".encode())


def move_attempt(edit: Edit, attempt: AttemptState, target: str, reason: str, **changes: Any) -> AttemptState:
    """Move an attempt along its table and revise its claim."""
    name = attempt.attempt
    ATTEMPT.require(attempt.state, target)
    _require_reason(edit, ATTEMPT, target, reason)
    if target == "reconciling":
        order = edit.need(attempt.order, OrderState)
        edit.require(order.effect_open or order.effect_applied, f"{name} has no possible effect")
    if not ATTEMPT.rows[target]:
        changes["ended_us"] = edit.now_us
    ends_us = changes.get("lease_us") or attempt.lease_us or attempt.activation_deadline_us
    claim = claim_digest(attempt.claim, name, attempt.worker, attempt.fence, target, ends_us)
    return edit.change(name, attempt, state=target, reason=reason, claim=claim, **changes)


def move_order(edit: Edit, order: OrderState, target: str, reason: str, **changes: Any) -> OrderState:
    """Move an order along its table, within the guards, and keep its plan's counts."""
    WORK_ORDER.require(order.state, target)
    _require_reason(edit, WORK_ORDER, target, reason)
    # Guards speak of effects: without one they have nothing to say but that nothing is to be reconciled.
    if order.effect_open or order.effect_applied or target == "reconciling":
        _require_guards(edit, order, target, reason)
    ends = target in ENDED
    if ends:
        changes["told_done"] = order.dependents == 0
    moved = edit.change(order.order, order, state=target, reason=reason, moved_us=edit.now_us, **changes)
    if ends and order.plan is not None:
        _count_end(edit, moved)
    return moved


def _require_guards(edit: Edit, order: OrderState, target: str, reason: str) -> None:
    guard = order_guard(
        target,
        effect_open=order.effect_open,
        effect_applied=order.effect_applied,
        after_effect_failure=reason != "cancelled_after_effect" and _fails_after_effect(order, target),
    )
    if guard is not None:
        raise edit.corrupt(f"guard {guard} forbids {order.state} -> {target}")


def require_verdict(edit: Edit, order: OrderState, verdict: Verdict) -> None:
    """The groups of an order are re-read whenever it moves on because of them (W15)."""
    if verdict_of_all(order.groups) != verdict:
        raise edit.corrupt(f"the dependencies of {order.order} say otherwise")


def _require_reason(edit: Edit, machine: Machine, target: str, reason: str) -> None:
    known = machine.reasons.get(target)
    if known is not None and reason not in known:
        raise edit.corrupt(f"{machine.name}: {target} cannot show the reason {reason!r}")


def _fails_after_effect(order: OrderState, target: str) -> bool:
    started = order.state in ("active", "result_pending")
    return order.effect_applied and started and target not in ("result_pending", "applied")


def _count_end(edit: Edit, order: OrderState) -> None:
    plan = edit.need(order.plan or "", PlanState)
    left = plan.open - 1
    applied = plan.applied + (order.state == "applied")
    lost = plan.lost + (order.state != "applied" and not order.may_fail)
    ended_us = edit.now_us if left == 0 else None
    edit.change(plan.plan, plan, open=left, applied=applied, lost=lost, ended_us=ended_us)
    if left == 0:
        subject = name_subject(plan.name)
        name = edit.need(subject, NameState)
        edit.change(subject, name, open_plans=tuple(each for each in name.open_plans if each.plan != plan.plan))


def book(
    edit: Edit,
    accounts: tuple[str, ...],
    *,
    hold: Mapping[str, int] | None = None,
    free: Mapping[str, int] | None = None,
    charge: Mapping[str, int] | None = None,
    credit: Mapping[str, int] | None = None,
    unknown: Sequence[str] = (),
) -> None:
    """Book the same amounts on every account of a path: held up and down, charged up and down; `unknown` are the
    dimensions whose amount a receipt does not say.

    No hold passes a ceiling, on any account of its path (W18).
    """
    for subject in accounts:
        value = edit.find(subject)
        if value is None:
            raise CorruptHistory(f"record {edit.fact.seq}: account {subject} is missing")
        account: Account = value.account
        held, charged = account.held, account.charged
        if hold:
            if shortfall(account, hold):
                raise edit.corrupt(f"account {subject}: the hold passes its ceiling")
            held = plus(held, hold)
        if free:
            held = edit.less(held, free, subject)
        if charge:
            charged = charged_with(charged, charge)
        if credit:
            charged = edit.less(charged, credit, subject)
        noted = counted_with(account.unknown, unknown) if unknown else account.unknown
        edit.change(subject, value, account=Account(account.ceiling, held, charged, noted))
