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

from fencepost.core.canonical import digest_of
from fencepost.core.evolve.inside import reason_of
from fencepost.core.machines import ENDED, MACHINES
from fencepost.core.records.attempt import AttemptResult
from fencepost.core.records.plan import Acceptance, Wait
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
    ReceiptState,
    receipt_subject,
)
from fencepost.testing.search.inside import QUESTION
from fencepost.testing.search.place import Place
from fencepost.testing.search.template import Template, template
from fencepost.testing.search.worlds import DIGEST, RECEIPTS, UNIT_US, VERIFIED


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
    parent: str = ""  # "" for none, active, waiting for this order, or ended_untold
    child: str = "applied_told"  # state of its child, and whether its end has been told
    wait: str = "question"  # what a waiting order waits for
    saved: bool = False  # whether the attempt saved a checkpoint
    answered: bool = False  # whether the question that it may ask has its answer
    booked: str = ""  # a receipt that may be charged: "" for not yet, same, other or result


EVERY: Final = len(Cell._fields)
"""Departures from the ordinary: as many as there can be."""
_INSIDE: Final = ("parent", "child", "wait", "saved", "answered", "booked")
"""What programs say and whose child an order is. It is not put beside everything else in every combination: beside each
of its own stands at most one other departure, beside a single one of its own at most two."""
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
_WAITS = ("question", "time", "time_passed", "question_or_time", "children", "children_or_question")
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
    running = shape.attempt == "running"
    inside: dict[str, Sequence[Any]] = {
        "parent": ("", "active", "waiting", "ended_untold"),
        "child": ("applied_told", "ready", "applied_untold"),
        "wait": _WAITS if shape.order == "waiting" else _WAITS[:1],
        "saved": (False, True) if running else (False,),
        "answered": (False, True) if running else (False,),
        "booked": ("", "same", "other", "result") if live or reported else ("",),
    }
    ordinary = tuple(values[0] for values in choices.values())
    ordinary_inside = tuple(values[0] for values in inside.values())
    said = [
        (sum(map(operator.ne, combination, ordinary_inside)), dict(zip(inside, combination, strict=True)))
        for combination in itertools.product(*inside.values())
    ]
    for combination in itertools.product(*choices.values()):
        outside = sum(map(operator.ne, combination, ordinary))
        beside = 0 if outside > 2 else 1 if outside == 2 else len(inside)
        for own, chosen in said:
            if own <= beside and outside + own <= departures:
                yield Cell(**dict(zip(choices, combination, strict=True)), **chosen)


class Unknown(Exception):
    """A shape holds a state that `Builder` does not know how to build. Raised for states that are new."""


_UNUSED = frozenset({"reserved", "expired_no_effect"})  # an attempt that was never activated
_USED = frozenset({"leased", "running", "yielded", "cancelled_no_effect", "lease_expired", "cancellation_requested"})
_FAR_US = 5 * UNIT_US


class Builder:
    """Makes places. The same shape and cell give the same place."""

    def __init__(self) -> None:
        self._templates = {nested: template(nested=nested) for nested in (False, True)}
        self.template = self._templates[False]
        self.now_us = self.template.place.now_us

    def build(self, shape: Shape, cell: Cell) -> Place:
        """A template with the order in that shape, and everything else as the cell says. Raises Unknown."""
        known = self.template = self._templates[cell.parent != ""]
        self.now_us = known.place.now_us
        values: dict[str, Any] = dict(known.place.values)
        values[CLOCK] = self._clock(values[CLOCK], cell)
        values[known.member] = _other(values[known.member], cell.needs[1])
        values[known.dependent] = replace(values[known.dependent], state=cell.dependent, reason=_reason(cell.dependent))
        self._older(values, cell)
        self._attempt(values, shape, cell)
        self._order(values, shape, cell)
        self._inside(values, shape, cell)
        if known.parent:
            _parent(values, known, cell, self.now_us)
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
            told=order.dependents - 1 if cell.told else -1,
            told_done=cell.told or not ended,
        )

    def _inside(self, values: dict[str, Any], shape: Shape, cell: Cell) -> None:
        """Its child, what it waits for, what its program saved and charged, and what was answered."""
        names = self.template
        values[names.child] = _other(values[names.child], cell.child)
        order: OrderState = values[names.order]
        wait = Wait(
            question=QUESTION if "question" in cell.wait else "",
            orders=(names.child,) if "children" in cell.wait else (),
            until_us=self._until_us(cell),
        )
        waits = shape.order == "waiting"
        values[names.order] = replace(
            order,
            reason=reason_of(wait) if waits else order.reason,
            wait=wait if waits else None,
            answers={QUESTION: names.verification_seq} if cell.answered else {},
            checkpoint_number=int(cell.saved),
            checkpoint=DIGEST if cell.saved else "",
        )
        if cell.saved:
            values[names.attempt] = replace(values[names.attempt], checkpoint=DIGEST)
        if cell.booked:
            said = {"same": digest_of(RECEIPTS["one call"]), "other": DIGEST, "result": ""}[cell.booked]
            name = receipt_subject("gateway:r1")
            values[name] = ReceiptState(
                version=1, hold=values[names.older].hold, seq=names.verification_seq, digest=said
            )

    def _until_us(self, cell: Cell) -> int:
        if cell.wait == "time_passed":
            return self.now_us - _FAR_US
        return self._deadline_us(cell) if "time" in cell.wait else 0

    def _accounts(self, values: dict[str, Any], cell: Cell) -> None:
        """Accounts hold what the holds on them hold; the plan's ceilings and what else uses it are the cell's."""
        order: OrderState = values[self.template.order]
        charged = {"attempts": 4, "time_us": 9 * UNIT_US}
        orders = [value for value in values.values() if isinstance(value, OrderState)]
        values[SCOPE] = replace(values[SCOPE], account=Account({}, _held_on(values, SCOPE), charged))
        own = Account(order.account.ceiling, _held_on(values, order.order), {"attempts": 2, "time_us": 9 * UNIT_US})
        values[order.order] = replace(order, account=own)
        if self.template.parent:
            parent: OrderState = values[self.template.parent]
            account = Account(parent.account.ceiling, _held_on(values, parent.order), charged)
            values[parent.order] = replace(parent, account=account)
        plan: PlanState = values[order.plan or ""]
        held = _held_on(values, plan.plan)
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


def _held_on(values: dict[str, Any], subject: str) -> dict[str, int]:
    """What all holds hold together whose path has that account."""
    held: dict[str, int] = {}
    for value in values.values():
        if isinstance(value, HoldState) and subject in value.accounts:
            for name, amount in value.held.items():
                held[name] = held.get(name, 0) + amount
    return held


def _other(order: OrderState, says: str) -> OrderState:
    """Another order in the state that a cell says, its end told or not."""
    state, _, told = says.partition("_")
    return replace(
        order,
        state=state,
        reason=_reason(state),
        told=order.dependents - 1 if told == "told" else -1,
        told_done=told != "untold",
    )


def _parent(values: dict[str, Any], names: Template, cell: Cell, now_us: int) -> None:
    """The order that it is a child of: it runs, waits for it, or has ended and has not told it."""
    if cell.parent == "active":
        return
    parent: OrderState = values[names.parent]
    attempt: AttemptState = values[parent.attempt or ""]
    hold: HoldState = values[attempt.hold]
    waits = cell.parent == "waiting"
    ended = "yielded" if waits else "cancelled_no_effect"
    values[attempt.attempt] = replace(attempt, state=ended, reason=_reason(ended, "attempt"), ended_us=now_us)
    values[hold.hold] = replace(hold, state="settled", held={})
    values[parent.order] = replace(
        parent,
        state="waiting" if waits else "cancelled",
        reason="waiting_for_children" if waits else "cancelled_by_request",
        wait=Wait(orders=(names.order,)) if waits else None,
        told_done=waits,
    )


def _reason(state: str, machine: str = "work_order") -> str:
    """The first reason that a state may show; of an end its own name."""
    return MACHINES[machine].reasons.get(state, (state,))[0]
