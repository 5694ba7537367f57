"""Who may move an order that has not ended: a second opinion, by which dead ends are judged.

A few lines a state, after the lifecycle page. Nothing here asks the core's views, reasons or tables, so that a place
that they take for one where a person must act, and where nobody need or can, is seen as what it is. What the product
says of such places (`core.views`) is compared with this from outside, by `of_words` and `of_rest`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from fencepost.core import views
from fencepost.core.records.plan import WorkOrderSpec
from fencepost.core.state import AttemptState, OrderState, PlanState
from fencepost.testing.search.expected import is_over
from fencepost.testing.search.moves import Cast
from fencepost.testing.search.place import MachineRow, Place

MOVES_ON, AT_REST, ONLY_A_PERSON = range(3)
OVER: Final = frozenset({"applied", "failed", "cancelled", "dependency_failed", "budget_exhausted"})
_MONEY: Final = "money_micros:"

SYSTEM, PERSON, CLOCK, MEMBERS, NOBODY = "system", "person", "clock", "members", "nobody"
"""Who moves it next: the system alone, a person, the person who reconciles the clock, the orders that it needs; or, in
a place that should not exist, nobody."""
_WAITS: Mapping[str, tuple[str, str]] = {
    "ready": (SYSTEM, CLOCK),
    "retry_wait": (SYSTEM, CLOCK),
    "blocked_budget": (SYSTEM, CLOCK),
    "reserved": (SYSTEM, SYSTEM),  # in doubt it cannot begin, so that its holder gives it back
    "active": (SYSTEM, SYSTEM),
    "result_pending": (SYSTEM, SYSTEM),
    "blocked_dependency": (MEMBERS, MEMBERS),
    "conflict": (PERSON, PERSON),
}
"""State -> who moves it while the clock runs, and while a reading is in doubt. What passes within a batch is not here:
an order that rests there waits for nobody."""
_STIRS_IN_DOUBT: Final = frozenset({("blocked_budget", "ready"), ("ready", "blocked_budget")})
"""What the system still moves to and fro when nothing can start."""


def waits_for(place: Place, order: OrderState) -> str:
    """Who moves an order next that has not ended."""
    in_doubt = place.clock.state != "running"
    who = _asked(order, in_doubt) if order.state == "waiting" else _WAITS.get(order.state, (NOBODY, NOBODY))[in_doubt]
    if order.state == "active" and in_doubt:
        attempt: AttemptState = place.values[order.attempt or ""]
        return CLOCK if is_over(place.clock, attempt.lease_us) else who
    if says_foreign(order) and is_foreign(place, order) and not is_spent(place, order):
        return PERSON
    if who == MEMBERS and not any(member.state not in OVER for member in _members(place, order)):
        return NOBODY
    return who


def _asked(order: OrderState, in_doubt: bool) -> str:
    """A time ends a wait by itself, unless the clock is in doubt; children do; a question alone is for a person."""
    wait = order.wait
    if wait is None:
        return NOBODY
    if wait.until_us:
        return CLOCK if in_doubt else SYSTEM
    if wait.orders:
        return MEMBERS
    return PERSON if wait.question else NOBODY


def _members(place: Place, order: OrderState) -> Iterable[OrderState]:
    if order.wait is not None:
        return [place.values[name] for name in order.wait.orders]
    spec = place.body(order.spec_seq)
    if not isinstance(spec, WorkOrderSpec):
        raise LookupError(f"{order.order} has no spec")
    return [place.values[member.order] for group in spec.groups for member in group.members]


def says_foreign(order: OrderState) -> bool:
    """Whether the order says that its currency is in the way. It may be out of date, and is examined again then."""
    return order.state == "blocked_budget" and order.reason == "currency_not_budgeted"


def is_spent(place: Place, order: OrderState) -> bool:
    """Whether the smallest next hold would not fit even if nothing else were held: it ends when it is examined."""
    for subject in order.accounts:
        account = place.values[subject].account
        for name, least in order.terms.hold_least.items():
            if account.charged.get(name, 0) + least > account.ceiling.get(name, account.charged.get(name, 0) + least):
                return True
    return False


def is_foreign(place: Place, order: OrderState) -> bool:
    """Whether some level above budgets money, and none in a currency that the order would hold or that is charged."""
    accounts = [place.values[subject].account for subject in order.accounts]
    own = any(name.startswith(_MONEY) for name in accounts[-1].ceiling)
    levels = accounts[-1:] if own else accounts[1:]
    needed = {name: amount for level in levels for name, amount in level.ceiling.items()} | dict(order.terms.hold)
    money = {name for name, amount in needed.items() if name.startswith(_MONEY) and amount}
    for account in accounts:
        named = {name for name in account.ceiling if name.startswith(_MONEY)}
        booked = [*account.charged.items(), *account.unknown.items()]
        spent = {name for name, amount in booked if name.startswith(_MONEY) and amount}
        if named and (money | spent) - named:
            return True
    return False


def rest_of(place: Place, cast: Cast) -> int:
    """`AT_REST` where everything has ended, `ONLY_A_PERSON` where nothing moves without one, else `MOVES_ON`."""
    if any(not order.told_done for order in cast.orders) or any(not plan.cancel_done for plan in cast.plans):
        return MOVES_ON
    waiting = [waits_for(place, order) for order in cast.orders if order.state not in OVER]
    if not waiting:
        unsettled = any(hold.state == "unsettled" for hold in cast.holds)
        if not unsettled:
            return AT_REST
        return MOVES_ON if place.clock.state == "running" else ONLY_A_PERSON
    return MOVES_ON if SYSTEM in waiting or NOBODY in waiting else ONLY_A_PERSON


def of_words(place: Place, cast: Cast) -> str:
    """Why what the product says of its plans is not so, "" when it is: a run ends on these words."""
    for plan in cast.plans:
        orders = [order for order in cast.orders if order.plan == plan.plan]
        waiting = [waits_for(place, order) for order in orders if order.state not in OVER]
        waiting += [SYSTEM] * (any(not order.told_done for order in orders) or not plan.cancel_done)
        ought = bool(waiting) and SYSTEM not in waiting and NOBODY not in waiting
        says = _outcome(place, plan, orders) == "waiting"
        if says and not ought:
            return f"{cast.names[plan.plan]} is said to wait for a person, and its orders wait for {_told(waiting)}"
        if ought and not says and set(waiting) != {MEMBERS}:
            return f"{cast.names[plan.plan]} is not said to wait for a person, and its orders wait for {_told(waiting)}"
    return ""


def _outcome(place: Place, plan: PlanState, orders: list[OrderState]) -> str:
    return views.plan_outcome(plan, orders, place.clock, place.values.get)


def _told(waiting: Iterable[str]) -> str:
    return ", ".join(sorted(set(waiting))) or "nothing"


def of_rest(place: Place, cast: Cast) -> str:
    """Where only a person can go on, and no service has anything to do, every order that has not ended says so."""
    for order in cast.orders:
        who = SYSTEM if order.state in OVER else waits_for(place, order)
        told = who not in (PERSON, CLOCK) or (
            views.waits_for_person(order)
            if who == PERSON
            else views.held_up_by_clock(order, place.clock, place.values.get)
        )
        if not told:
            return f"only a person can go on, and {cast.names[order.order]} says {order.reason}"
    return ""


def of_stir(place: Place, rows: Iterable[tuple[str, MachineRow]]) -> str:
    """Why a step of the system refutes that only a person can go on, "" when it does not."""
    for _, row in rows:
        stirs = place.clock.state != "running" and (row.origin, row.target) in _STIRS_IN_DOUBT
        if row.machine == "work_order" and not stirs:
            return f"only a person can go on from here, and the system moves an order from {row.origin} to {row.target}"
    return ""
