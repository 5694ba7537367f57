"""Every row that the deciders can take at all, from an order in any shape that they can bring it to.

The small worlds show what happens in them. This shows that nothing else happens anywhere: every command is sent to
every shape of an order in every combination of what else deciders look at (`shapes`), and the shapes behind are
searched in the same way until no new one comes, so that the set of shapes is closed under all commands. A row that
none of this takes is taken by no history, as far as these combinations are all that deciders can tell apart.

Two checks guard that last clause. Whatever the small worlds reach is reached here too (`proofs`), or the combinations
are too narrow. And every field of every value is either varied in `shapes` or listed in `FIXED` with the reason why no
row depends on it; a field or a command that is new makes `gaps` speak until somebody has decided which.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from msgspec.structs import fields

from fencepost.core import commands as c
from fencepost.core.machines import CorruptHistory
from fencepost.core.state import AttemptState, ClockState, HoldState, OrderState, PlanState, ReceiptState
from fencepost.testing.search.moves import Cast, moves_of
from fencepost.testing.search.place import MachineRow, Place, Refold, ask
from fencepost.testing.search.shapes import EVERY, Builder, Cell, Shape, Unknown, cells_of

FIRST = (Shape("ready", "", ""), Shape("blocked_dependency", "", ""))
"""Where orders are when they have been placed; births in the places that are searched add whatever else there is."""


class Taken(NamedTuple):
    """How a row was taken the first time, in words."""

    shape: Shape
    cell: Cell
    says: str


class Closure(NamedTuple):
    """What is closed: shapes, rows with a witness of each, and how much was tried."""

    shapes: frozenset[Shape]
    rows: Mapping[MachineRow, Taken]
    accepted: frozenset[type]  # commands that left records and no refusal, at least once
    places: int
    edges: int
    unknown: tuple[str, ...]  # shapes that nobody has taught the builder
    raised: int  # edges of places that contradict themselves, on which the core stops
    seconds: float  # of this process's own work


FIXED: Mapping[type, Mapping[str, str]] = {
    OrderState: {
        **dict.fromkeys(("order", "task", "lineage", "spec", "contract", "spec_seq"), "names it"),
        **dict.fromkeys(("plan", "replaces", "position", "accounts"), "says where it belongs"),
        **dict.fromkeys(("submitted_us", "moved_us", "ready_us"), "a time that only places it among others"),
        **dict.fromkeys(("generation", "ordinal", "failures"), "a count that only names what comes next"),
        **dict.fromkeys(("result_seq", "application_seq"), "names a record"),
        **dict.fromkeys(("checkpoints",), "names what is resumed from"),
        **dict.fromkeys(("dependents",), "how many are told; one stands for all"),
        **dict.fromkeys(("waited",), "is only told: whoever asks again, yields or does not"),
        **dict.fromkeys(("note_seq",), "names a record"),
        **dict.fromkeys(("may_fail",), "counts towards the plan's outcome only"),
        **dict.fromkeys(("replaced_by",), "refuses a second replacement, and leads to nothing"),
        **dict.fromkeys(("effect_open", "effect_applied"), "nothing in the core sets it (writers.effect_writers)"),
    },
    AttemptState: {
        **dict.fromkeys(("attempt", "order", "plan", "hold", "claim", "input_set", "result"), "names something"),
        **dict.fromkeys(("ordinal", "generation", "fence"), "is compared for being equal; moves try others"),
        **dict.fromkeys(("worker", "host", "boot_id"), "is compared for being equal; moves try others"),
        **dict.fromkeys(("reserved_us", "activated_us", "ended_us"), "a time that only amounts are computed from"),
        **dict.fromkeys(
            ("reservation_seq", "descriptor_seq", "result_seq", "yielded_seq", "stopped_seq"), "names a record"
        ),
        **dict.fromkeys(("stopped",), "is asked for in the batch that sets it"),
        **dict.fromkeys(("gone_seq",), "is asked for in the batch that sets it"),
        **dict.fromkeys(("reason",), "is shown, and asked by no decider"),
        **dict.fromkeys(("note", "heard_us"), "is only shown"),
        **dict.fromkeys(("artifacts",), "a count to a bound"),
        **dict.fromkeys(("late",), "says what is kept already; only receipts depend on it"),
    },
    HoldState: {
        **dict.fromkeys(("hold", "attempt", "order", "accounts"), "names something"),
        **dict.fromkeys(("charged", "basis", "receipts", "estimated_us"), "amounts and receipts of an end"),
        **dict.fromkeys(("charges",), "a count to a bound"),
        **dict.fromkeys(("unknown",), "is only shown"),
    },
    ReceiptState: {
        **dict.fromkeys(("hold", "seq"), "names where it was booked"),
    },
    PlanState: {
        **dict.fromkeys(("plan", "name", "revision", "content", "record_seq", "recovery"), "names it"),
        **dict.fromkeys(("submitted_us", "ended_us"), "a time that is only shown"),
        **dict.fromkeys(("orders", "applied", "lost"), "counts of its orders"),
        **dict.fromkeys(("cancel_seq",), "names a record"),
        **dict.fromkeys(("cancel_position",), "says where a cancel goes on"),
    },
    ClockState: {
        **dict.fromkeys(("domain", "last_seq", "quarantined_seq", "proof"), "names a record"),
        **dict.fromkeys(("sources",), "readings; moves send every kind"),
        **dict.fromkeys(("logical_us", "uncertainty_us"), "stand still; the deadlines are moved instead"),
    },
}
"""Kind of value -> field that is not varied -> why no row depends on it."""
_VARIED: Mapping[type, frozenset[str]] = {
    OrderState: frozenset(
        {
            *(
                "state",
                "reason",
                "terms",
                "account",
                "groups",
                "yields",
                "attempt",
                "retry_due_us",
                "told",
                "told_done",
            ),
            *("parent", "children", "wait", "answers", "checkpoint", "checkpoint_number"),
        }
    ),
    AttemptState: frozenset(
        {
            *("state", "lease_us", "activation_deadline_us", "verification", "verification_seq", "application_seq"),
            "checkpoint",
        }
    ),
    ReceiptState: frozenset({"digest"}),
    HoldState: frozenset({"state", "held", "settle_by_us"}),
    PlanState: frozenset({"account", "deadline_us", "cancel", "cancel_done", "open"}),
    ClockState: frozenset({"state", "grace_from_us", "grace_until_us"}),
}
_STALE = ("as of a version ago", "under fence", "by locks of", "as of another", "of another result")
"""How those moves are told that speak of something that has moved on: the small worlds send them all."""


def shape_of(place: Place, order: OrderState, values: Mapping[str, object]) -> Shape:
    """The shape of an order in a place, `values` being what a batch has changed in it."""

    def found(name: str) -> object:
        return values.get(name) or place.get(name)

    attempt = found(order.attempt) if order.attempt else None
    if not isinstance(attempt, AttemptState):
        return Shape(order.state, "", "")
    hold = found(attempt.hold)
    return Shape(order.state, attempt.state, hold.state if isinstance(hold, HoldState) else "")


def close(departures: int = EVERY) -> Closure:
    """Search until nothing new comes, in combinations that depart from the ordinary in at most so many respects."""
    return _Search(departures).run()


def taken_from(shape: Shape, departures: int = EVERY) -> frozenset[MachineRow]:
    """The rows that commands take from that one shape."""
    search = _Search(departures)
    search.expand(shape)
    return frozenset(search.rows)


class _Search:
    def __init__(self, departures: int) -> None:
        self._departures = departures
        self._builder = Builder()
        self._shapes = set(FIRST)
        self._queue = deque(FIRST)
        self._unknown: list[str] = []
        self.rows: dict[MachineRow, Taken] = {}
        self._accepted: set[type] = set()
        self._places = self._edges = self._raised = 0

    def run(self) -> Closure:
        began = time.process_time()
        while self._queue:
            try:
                self.expand(self._queue.popleft())
            except Unknown as unknown:
                self._unknown.append(str(unknown))
        return Closure(
            frozenset(self._shapes),
            self.rows,
            frozenset(self._accepted),
            self._places,
            self._edges,
            tuple(self._unknown),
            self._raised,
            time.process_time() - began,
        )

    def expand(self, shape: Shape) -> None:
        for cell in cells_of(shape, self._departures):
            self._places += 1
            self._expand(shape, cell)

    def _expand(self, shape: Shape, cell: Cell) -> None:
        place = self._builder.build(shape, cell)
        for move in moves_of(place, Cast(place)):
            if any(stale in move.says for stale in _STALE):
                continue
            self._edges += 1
            try:
                decided = ask(place, move.command)
                moves = Refold(place).fold(decided.facts).moves
            except (CorruptHistory, LookupError):
                self._raised += 1  # it contradicts itself, and nothing is written
                continue
            if decided.facts and decided.refusal is None:
                self._accepted.add(type(move.command))
            for _, row in moves:
                if row not in self.rows:
                    self.rows[row] = Taken(shape, cell, move.says)
            for value in decided.values.values():
                name = value.order if isinstance(value, OrderState | AttemptState | HoldState) else ""
                order = decided.values.get(name) or place.get(name)
                if isinstance(order, OrderState):
                    self._meet(shape_of(place, order, decided.values))

    def _meet(self, shape: Shape) -> None:
        if shape not in self._shapes:
            self._shapes.add(shape)
            self._queue.append(shape)


def gaps(closure: Closure) -> list[str]:
    """What the closure does not cover: fields that nobody has thought of, commands that were never accepted."""
    found = [f"closure: {shape}" for shape in closure.unknown]
    for kind, fixed in FIXED.items():
        names = {field.name for field in fields(kind)} - {"version"}
        for name in sorted(names - fixed.keys() - _VARIED[kind]):
            found.append(
                f"closure: {kind.__name__}.{name} is neither varied in shapes.py (and in closure._VARIED) "
                f"nor in closure.FIXED with the reason why no row depends on it"
            )
        for name in sorted((fixed.keys() | _VARIED[kind]) - names):
            found.append(f"closure: {kind.__name__}.{name} is listed and does not exist")
    for command in sorted((c.PAIRS.keys() - {c.OpenScope}) - closure.accepted, key=lambda kind: kind.__name__):
        found.append(
            f"closure: {command.__name__} never leads to a record: give it a move in moves.py, "
            f"and shapes.py a combination in which it is accepted"
        )
    return found


def uncovered(closure: Closure, rows: Iterable[MachineRow]) -> list[MachineRow]:
    """Rows that something has taken and the closure has not: as long as there are any, it proves nothing."""
    return sorted(frozenset(rows) - closure.rows.keys() - _BEFORE)


_BEFORE = frozenset({MachineRow("clock_domain", "", "running")})
"""Taken when a scope is opened, before anything that is searched here."""
