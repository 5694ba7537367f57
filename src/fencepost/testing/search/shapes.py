"""An order in every shape that there may be, with everything else that deciders look at in every combination.

A *shape* is what an order, its last attempt and that attempt's hold are. Everything else (time, a clock in doubt,
budgets, dependencies, the plan's cancel and deadline, what was reported and verified, older attempts, what is told) is
a *cell*, and each is put beside each shape, whether or not a history leads there. `Builder` makes the place: it takes
one that a real history led to, and changes the values in it.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from fencepost.core import commands as c
from fencepost.core.machines import ENDED, MACHINES
from fencepost.core.records.attempt import AttemptResult
from fencepost.core.records.plan import Acceptance
from fencepost.core.state import (
    CLOCK,
    SCOPE,
    Account,
    AttemptState,
    ClockState,
    GroupState,
    HoldState,
    OrderState,
    PlanState,
)
from fencepost.testing.search.moves import Cast, facts_of
from fencepost.testing.search.place import Place, ask, follow, root_of
from fencepost.testing.search.worlds import ACTS, DIGEST, SMALL, UNIT_US, VERIFIED, World, draft, group

WORLD = World(
    name="closure",
    says="a needs m, and d needs a; every act may happen at any time",
    orders=(
        draft("m", attempts=1, retry=False),
        draft("a", group("required", "m"), attempts=9, per_attempt={"calls": 2, "money_micros:USD": 1}),
        draft("d", group("required", "a"), attempts=1, retry=False),
    ),
    may={act: -1 for act in ACTS},
    results=("succeeds", "fails", "refuses", "escapes", "spends", "unknown"),
    join=draft("z", group("required", "a"), attempts=1, retry=False),
    set_to=(("plan", {"calls": 1}), ("plan", {"calls": 500}), ("a", {"attempts": 1}), ("scope", {})),
    limits=SMALL,
    uncertainty_us=1,
    renews=True,
)


class Shape(NamedTuple):
    """What an order is. `attempt` is the state of its last attempt, `hold` that of its hold; "" while it had none."""

    order: str
    attempt: str
    hold: str


class Cell(NamedTuple):
    """One combination of everything else that deciders look at."""

    time: str = "live"  # how the deadlines stand: live, over, proved, grace, doubt or doubt_over
    budget: str = "free"  # free, held, exhausted or foreign
    plan: str = ""  # "", cancelled, cancelled_all, late or late_unseen
    needs: tuple[str, str] = ("holds", "applied_told")  # verdict of the groups, state of the member
    reported: tuple[str, str] = ("succeeds", "none")  # result; verdict: none where no verifier is, "" where none spoke
    retry: bool = True  # whether a failure of the executor is tried again
    credited: bool = False  # whether an attempt was given back before
    older: str = "settled"  # hold of the attempt before
    blocked_by: str = "budget_held"
    told: bool = False  # whether dependents of an order that has ended have been told
    dependent: str = "blocked_dependency"


EVERY: Final = len(Cell._fields)
"""Departures from the ordinary: as many as there can be."""
_NEEDS = (
    ("holds", "applied_told"),
    ("fails", "failed_untold"),
    ("fails", "failed_told"),
    ("open", "ready"),
)
_WAITING_NEEDS = tuple(
    itertools.product(("holds", "open", "fails"), ("applied_told", "applied_untold", "failed_untold", "ready"))
)
_RESULTS = (
    ("succeeds", "none"),
    ("succeeds", ""),
    ("succeeds", "passed"),
    ("succeeds", "error"),
    ("fails", "none"),
    ("fails", ""),
    ("escapes", "none"),
)
_AMOUNTS = {"attempts": 1, "time_us": 2 * UNIT_US, "calls": 2, "money_micros:USD": 1}
_REPORTED = frozenset(
    {"result_reported", "accepted", "retryable_failed", "failed", "rejected_stale", "rejected_conflict"}
)
_APPLIED = frozenset({"accepted", "retryable_failed", "failed"})


def cells_of(shape: Shape, departures: int = EVERY) -> Iterator[Cell]:
    """Every combination of what deciders look at while an order is in that shape.

    The first value of each choice is the ordinary one. A sample departs from it in at most so many respects at once.
    """
    ended = shape.order in ENDED
    live = shape.attempt in ("leased", "running")
    reported = shape.attempt == "result_reported"
    waiting = shape.order == "blocked_dependency"
    blocked = shape.order == "blocked_budget"
    lost = ended and shape.order != "applied"
    choices: dict[str, Sequence[Any]] = {
        "time": ("live", "over", "proved", "grace", "doubt", "doubt_over"),
        "budget": ("free", "held", "exhausted", "foreign"),
        "plan": ("", "cancelled", "cancelled_all", "late", "late_unseen"),
        "needs": _WAITING_NEEDS if waiting else _NEEDS,
        "reported": _RESULTS if reported else _RESULTS[:1],
        "retry": (True, False) if reported else (True,),
        "credited": (False, True) if live else (False,),
        "older": ("settled", "unsettled") if live or shape.attempt == "reserved" else ("settled",),
        "blocked_by": ("budget_held", "currency_not_budgeted") if blocked else ("budget_held",),
        "told": (False, True) if ended else (False,),
        "dependent": ("blocked_dependency", "dependency_failed") if lost else ("blocked_dependency",),
    }
    ordinary = tuple(values[0] for values in choices.values())
    for combination in itertools.product(*choices.values()):
        if sum(map(operator.ne, combination, ordinary)) <= departures:
            yield Cell(**dict(zip(choices, combination, strict=True)))


class _Template(NamedTuple):
    """A place that a real history led to, and the names of what is varied in it."""

    place: Place
    member: str
    order: str
    dependent: str
    older: str
    attempt: str
    results: Mapping[str, int]  # variant -> seq of the record that reports it
    verification_seq: int


def template() -> _Template:
    """m is applied, a has tried once and failed, and its second attempt has reported; every record is real."""
    place = root_of(WORLD)
    member, order, dependent = (each.order for each in Cast(place).orders)
    for task in (member, order, order):
        place = _ran(place, task, "fails" if task == order and place.values[task].ordinal == 0 else "succeeds")
    verified = c.RecordVerification(
        attempt=place.values[order].attempt,
        result=place.values[place.values[order].attempt].result,
        outcome="passed",
        duration_us=UNIT_US,
    )
    seq = place.next_seq
    place = follow(place, ask(place, verified))
    older, attempt = (each.attempt for each in Cast(place).attempts if each.order == order)
    known: AttemptState = place.values[attempt]
    body = place.body(known.result_seq)
    if not isinstance(body, AttemptResult):
        raise LookupError("the template has no result")
    results = {}
    for number, variant in enumerate(WORLD.results):
        results[variant] = place.next_seq + number
        place.record_bodies[place.next_seq + number] = replace(body, facts=facts_of(known, variant, known.input_set))
    place.next_seq += len(results)
    first: OrderState = place.values[member]
    for name in (place.values[first.attempt or ""].hold, first.attempt or ""):
        del place.values[name]
    place.values[member] = replace(first, attempt=None)
    return _Template(place, member, order, dependent, older, attempt, results, seq)


def _ran(place: Place, name: str, variant: str) -> Place:
    """Run an order once; all but the last result of the world's second order is applied."""
    worker = Cast(place).workers[0].worker
    if place.values[name].state == "retry_wait":
        place = _done(place, c.RetryOrder(order=name))
    place = _done(place, c.Reserve(order=name, expected=place.values[name].version, worker=worker))
    attempt: AttemptState = place.values[place.values[name].attempt]
    order: OrderState = place.values[name]
    activate = c.Activate(
        attempt=attempt.attempt,
        expected=attempt.version,
        fence=attempt.fence,
        worker=worker,
        executor="command",
        executor_version=1,
        environment=DIGEST,
        input_set=order.terms.input_set,
        mode="local",
    )
    place = _done(place, activate)
    facts = facts_of(place.values[attempt.attempt], variant, order.terms.input_set)
    report = c.ReportResult(attempt=attempt.attempt, fence=attempt.fence, spec=order.spec, facts=facts)
    place = _done(place, report)
    return place if attempt.ordinal == 2 else _done(place, c.ApplyResult(attempt=attempt.attempt))


def _done(place: Place, command: Any) -> Place:
    decided = ask(place, command)
    if decided.refusal is not None:
        raise LookupError(f"the template cannot be built: {type(command).__name__} is refused, {decided.refusal.code}")
    return follow(place, decided)


class Unknown(Exception):
    """A shape holds a state that `Builder` does not know how to build. Raised for states that are new."""


_UNUSED = frozenset({"reserved", "expired_no_effect"})  # an attempt that was never activated
_USED = frozenset({"leased", "running", "yielded", "cancelled_no_effect", "lease_expired", "cancellation_requested"})
_FAR_US = 5 * UNIT_US


class Builder:
    """Makes places. The same shape and cell give the same place."""

    def __init__(self) -> None:
        self.template = template()
        self.now_us = self.template.place.now_us

    def build(self, shape: Shape, cell: Cell) -> Place:
        """The template with the order in that shape, and everything else as the cell says. Raises Unknown."""
        known = self.template
        values: dict[str, Any] = dict(known.place.values)
        values[CLOCK] = self._clock(values[CLOCK], cell)
        values[known.member] = _member(values[known.member], cell)
        values[known.dependent] = replace(values[known.dependent], state=cell.dependent, reason=_reason(cell.dependent))
        self._older(values, cell)
        self._attempt(values, shape, cell)
        self._order(values, shape, cell)
        self._accounts(values, cell)
        place = known.place
        return Place(place.shared, values, place.edge_map, place.record_bodies, place.next_seq, place.left, place.boot)

    def _deadline_us(self, cell: Cell) -> int:
        """Of everything that ends: far, over for its holder and not proved yet, or proved."""
        ahead_us = {"live": _FAR_US, "doubt": _FAR_US, "over": 0}.get(cell.time, -_FAR_US)
        return self.now_us + ahead_us

    def _clock(self, clock: ClockState, cell: Cell) -> ClockState:
        if cell.time == "grace":
            return replace(clock, grace_from_us=self.now_us - 2 * _FAR_US, grace_until_us=self.now_us + _FAR_US)
        doubt = cell.time.startswith("doubt")
        return replace(clock, state="clock_reconciliation_required" if doubt else "running")

    def _older(self, values: dict[str, Any], cell: Cell) -> None:
        """The attempt before: it failed and was settled, or it was cancelled and its time is not known yet."""
        attempt: AttemptState = values[self.template.older]
        hold: HoldState = values[attempt.hold]
        if cell.older == "unsettled":
            values[attempt.attempt] = replace(
                attempt, state="cancelled_no_effect", result="", result_seq=0, application_seq=0
            )
            time = {"time_us": 2 * UNIT_US}
            by_us = self._deadline_us(cell)
            values[hold.hold] = replace(hold, state="unsettled", held=time, receipts=(), settle_by_us=by_us)

    def _attempt(self, values: dict[str, Any], shape: Shape, cell: Cell) -> None:
        names = self.template
        attempt: AttemptState = values[names.attempt]
        hold: HoldState = values[attempt.hold]
        if not shape.attempt:
            for name in (names.attempt, attempt.hold, names.older, values[names.older].hold):
                del values[name]
            return
        if shape.attempt not in _UNUSED | _USED | _REPORTED or shape.hold not in ("held", *_HELD):
            raise Unknown(f"orders come to be {shape}, which shapes.Builder cannot build: teach it")
        ends_us = self._deadline_us(cell)
        used = shape.attempt not in _UNUSED and shape.hold != "released"
        reported = shape.attempt in _REPORTED
        seq = names.results[cell.reported[0]]
        body = names.place.body(seq)
        verified = cell.reported[1] not in ("none", "")
        values[names.attempt] = replace(
            attempt,
            state=shape.attempt,
            reason=_reason(shape.attempt, "attempt"),
            activation_deadline_us=ends_us,
            lease_us=ends_us if used else 0,
            activated_us=self.now_us - UNIT_US if used else 0,
            ended_us=0 if MACHINES["attempt"].rows[shape.attempt] else self.now_us,
            result=body.facts_digest if reported and isinstance(body, AttemptResult) else "",
            result_seq=seq if reported else 0,
            verification=cell.reported[1] if reported and verified else "",
            verification_seq=names.verification_seq if reported and verified else 0,
            application_seq=seq if shape.attempt in _APPLIED else 0,
        )
        held = {name: amount for name, amount in _AMOUNTS.items() if not used or name != "attempts"}
        values[hold.hold] = replace(
            hold,
            state=shape.hold,
            held=held if shape.hold == "held" else _HELD[shape.hold],
            charged={"attempts": 1} if used else {},
            receipts=(),
            settle_by_us=ends_us if shape.hold == "unsettled" else 0,
        )

    def _order(self, values: dict[str, Any], shape: Shape, cell: Cell) -> None:
        order: OrderState = values[self.template.order]
        tried = bool(shape.attempt)
        ended = shape.order in ENDED
        accept = Acceptance() if cell.reported[1] == "none" else VERIFIED
        counts = {"holds": (1, 0), "fails": (0, 1), "open": (0, 0)}[cell.needs[0]]
        terms = replace(order.terms, accept=accept, retry=order.terms.retry if cell.retry else None)
        values[order.order] = replace(
            order,
            state=shape.order,
            reason=cell.blocked_by if shape.order == "blocked_budget" else _reason(shape.order),
            terms=terms,
            groups=(GroupState("required", 1, *counts),),
            attempt=self.template.attempt if tried else None,
            generation=2 if tried else 0,
            ordinal=2 if tried else 0,
            failures=int(tried),
            yields=int(cell.credited),
            retry_due_us=self._deadline_us(cell),
            told=0 if cell.told else -1,
            told_done=cell.told or not ended,
        )

    def _accounts(self, values: dict[str, Any], cell: Cell) -> None:
        """Accounts hold what the holds on them hold; the plan's ceilings and what else uses it are the cell's."""
        order: OrderState = values[self.template.order]
        held: dict[str, int] = {}
        for value in values.values():
            if isinstance(value, HoldState):
                for name, amount in value.held.items():
                    held[name] = held.get(name, 0) + amount
        charged = {"attempts": 3, "time_us": 9 * UNIT_US}
        orders = [value for value in values.values() if isinstance(value, OrderState)]
        values[SCOPE] = replace(values[SCOPE], account=Account({}, held, charged))
        own = Account(order.account.ceiling, held, {"attempts": 2, "time_us": 9 * UNIT_US})
        values[order.order] = replace(order, account=own)
        plan: PlanState = values[order.plan or ""]
        ceiling = {"calls": 100, **({"money_micros:EUR": 5} if cell.budget == "foreign" else {})}
        if cell.budget == "held":
            held = {**held, "calls": held.get("calls", 0) + 99}
        if cell.budget == "exhausted":
            charged = {**charged, "calls": 100}
        deadlines = {"late": self.now_us - _FAR_US, "late_unseen": self.now_us - _FAR_US}
        values[plan.plan] = replace(
            plan,
            account=Account(ceiling, held, charged),
            cancel={"late": "deadline_passed", "late_unseen": ""}.get(
                cell.plan, "cancel_requested" if cell.plan else ""
            ),
            cancel_done=cell.plan not in ("cancelled", "late"),
            deadline_us=deadlines.get(cell.plan),
            open=sum(each.state not in ENDED for each in orders),
        )


_CANCELS = {"cancelled": "cancel_requested", "cancelled_all": "cancel_requested", "late": "deadline_passed"}
_HELD: Mapping[str, dict[str, int]] = {"unsettled": {"time_us": 2 * UNIT_US}, "settled": {}, "released": {}}


def _member(member: OrderState, cell: Cell) -> OrderState:
    state, _, told = cell.needs[1].partition("_")
    return replace(
        member,
        state=state,
        reason=_reason(state),
        told=0 if told == "told" else -1,
        told_done=told != "untold",
    )


def _reason(state: str, machine: str = "work_order") -> str:
    """The first reason that a state may show; of an end its own name."""
    return MACHINES[machine].reasons.get(state, (state,))[0]
