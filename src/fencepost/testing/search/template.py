"""Places that real histories led to, from which `shapes` makes every other one.

In each, one order stands between others: it needs one that is applied, another needs it, and it has a child. It has
tried once and failed, and its second attempt has reported. In the *plain* one these are the orders of a plan; in the
*nested* one they are children of an order that still runs, so that the order is a child itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from msgspec.structs import replace

from fencepost.core import commands as c
from fencepost.core.records.attempt import AttemptResult
from fencepost.core.state import AttemptState, OrderState
from fencepost.testing.search.moves import Cast, facts_of
from fencepost.testing.search.place import Place, ask, follow, root_of
from fencepost.testing.search.worlds import ACTS, DIGEST, RECEIPTS, SMALL, UNIT_US, World, draft, group

_M = draft("m", attempts=1, retry=False)
_A = draft("a", group("required", "m"), attempts=9, per_attempt={"calls": 2, "money_micros:USD": 1})
_D = draft("d", group("required", "a"), attempts=1, retry=False)
_KID = draft("kid", attempts=1, retry=False)
PLAIN = World(
    name="closure",
    says="a needs m, and d needs a; a has a child; every act may happen at any time",
    orders=(_M, _A, _D),
    may={act: -1 for act in ACTS},
    results=("succeeds", "fails", "refuses", "escapes", "spends", "repeats", "unknown"),
    children=(_KID, draft("next", group("required", "kid"), attempts=1, retry=False)),
    charges=RECEIPTS,
    waits=("question", "time", "question_or_time", "children", "children_or_question"),
    join=draft("z", group("required", "a"), attempts=1, retry=False),
    set_to=(("plan", {"calls": 1}), ("plan", {"calls": 500}), ("a", {"attempts": 1}), ("scope", {})),
    limits=replace(SMALL, children_depth_max=3),
    uncertainty_us=1,
    renews=True,
)
NESTED = replace(
    PLAIN,
    name="nested closure",
    says="m, a and d as in the plain one, as children of p, which runs",
    orders=(draft("p", attempts=99),),
    join=draft("z", group("required", "p.a"), attempts=1, retry=False),
    set_to=(("plan", {"calls": 1}), ("plan", {"calls": 500}), ("p", {"attempts": 1}), ("p.a", {"attempts": 1})),
)


class Template(NamedTuple):
    """One such place, and the names of what is varied in it."""

    place: Place
    member: str
    order: str
    dependent: str
    child: str
    parent: str  # "" in the plain one
    older: str
    attempt: str
    results: Mapping[str, int]  # variant -> seq of the record that reports it
    verification_seq: int


def template(*, nested: bool) -> Template:
    """m is applied, a has tried once and failed, and its second attempt has reported; every record is real."""
    place, parent = root_of(NESTED if nested else PLAIN), ""
    if nested:
        parent = Cast(place).orders[0].order
        place = _started(place, parent)
        for child in (_M, _A, _D):
            place = _ordered(place, parent, child)
    member, order, dependent = (each.order for each in Cast(place).orders if each.order != parent)
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
    for number, variant in enumerate(place.shared.world.results):
        results[variant] = place.next_seq + number
        place.record_bodies[place.next_seq + number] = replace(body, facts=facts_of(known, variant, known.input_set))
    place.next_seq += len(results)
    first: OrderState = place.values[member]
    for name in (place.values[first.attempt or ""].hold, first.attempt or ""):
        del place.values[name]
    place.values[member] = replace(first, attempt=None)
    child_name = place.values[order].children["kid"]
    return Template(place, member, order, dependent, child_name, parent, older, attempt, results, seq)


def _started(place: Place, name: str) -> Place:
    """Reserve an order, and start its attempt."""
    worker = Cast(place).workers[0].worker
    place = _done(place, c.Reserve(order=name, expected=place.values[name].version, worker=worker))
    attempt: AttemptState = place.values[place.values[name].attempt]
    activate = c.Activate(
        attempt=attempt.attempt,
        expected=attempt.version,
        fence=attempt.fence,
        worker=worker,
        executor="command",
        executor_version=1,
        environment=DIGEST,
        input_set=place.values[name].terms.input_set,
        mode="local",
    )
    place = _done(place, activate)
    event = c.AppendEvent(**token_of(place, name), family="execution_started")
    return _done(place, event)


def token_of(place: Place, name: str) -> dict[str, Any]:
    """What the program of an order's attempt names whenever it says something."""
    order: OrderState = place.values[name]
    attempt: AttemptState = place.values[order.attempt or ""]
    return {
        "attempt": attempt.attempt,
        "fence": attempt.fence,
        "spec": order.spec,
        "input_set": attempt.input_set,
    }


def _ordered(place: Place, parent: str, child: c.OrderDraft) -> Place:
    return _done(place, c.SubmitChild(**token_of(place, parent), order=child))


def _ran(place: Place, name: str, variant: str) -> Place:
    """Run an order once; all but the last result of the order in the middle is applied. It orders its child then."""
    if place.values[name].state == "retry_wait":
        place = _done(place, c.RetryOrder(order=name))
    place = _started(place, name)
    attempt: AttemptState = place.values[place.values[name].attempt]
    order: OrderState = place.values[name]
    if attempt.ordinal == 2:
        place = _ordered(place, name, _KID)
    facts = facts_of(place.values[attempt.attempt], variant, order.terms.input_set)
    report = c.ReportResult(attempt=attempt.attempt, fence=attempt.fence, spec=order.spec, facts=facts)
    place = _done(place, report)
    return place if attempt.ordinal == 2 else _done(place, c.ApplyResult(attempt=attempt.attempt))


def _done(place: Place, command: Any) -> Place:
    decided = ask(place, command)
    if decided.refusal is not None:
        raise LookupError(f"the template cannot be built: {type(command).__name__} is refused, {decided.refusal.code}")
    return follow(place, decided)
