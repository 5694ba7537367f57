"""How orders and attempts move, and how the end of an order reaches those that wait for it.

A group's verdict is the table of the lifecycle page. An order that ends tells its dependents in pages of at most
`fanout_per_batch` a batch, those that end by it tell theirs, and what is left stays behind a cursor.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from hashlib import sha256
from typing import Any

from fencepost.testing.simulator.model_budgets import release, settle_from_result, shares_of, spent_out, unsettle
from fencepost.testing.simulator.model_state import (
    CHILD,
    ENDED,
    LIVE,
    PARENT,
    Attempt,
    Group,
    Mismatch,
    Order,
    Plan,
    World,
)

ORDER_REASONS: dict[str, frozenset[str]] = {
    "blocked_dependency": frozenset({"waiting_for_dependencies", "dependency_undecided"}),
    "blocked_budget": frozenset({"budget_held", "currency_not_budgeted"}),
    "ready": frozenset(
        {
            "waiting_for_worker",
            "lease_expired",
            "holder_gone",
            "keeper_lost",
            "drained",
            "reservation_expired",
            "reservation_released",
            "budget_freed",
            "backoff_over",
            "retry_requested",
            "answered",
            "children_ended",
            "time_passed",
        }
    ),
    "reserved": frozenset({"waiting_for_activation"}),
    "active": frozenset({"attempt_running"}),
    "result_pending": frozenset({"waiting_for_reduction", "waiting_for_verification"}),
    "retry_wait": frozenset({"backoff"}),
    "conflict": frozenset({"results_differ"}),
    "waiting": frozenset(
        {"waiting_for_answer", "waiting_for_answer_or_time", "waiting_for_children", "waiting_for_time"}
    ),
}
"""What an order that has not ended may show when a command is over; other states are only passed in this version."""


def verdict(group: Group) -> str:
    """`holds`, `fails` or `open`, from how many members ended inside and outside of their sets."""
    total = len(group.members)
    if group.kind == "required":
        return "fails" if group.bad else "holds" if group.good == total else "open"
    if group.kind == "optional":
        return "holds" if group.good + group.bad == total else "open"
    return "holds" if group.good else "fails" if group.bad == total else "open"


def verdict_of(groups: Iterable[Group]) -> str:
    found = {verdict(group) for group in groups}
    return "fails" if "fails" in found else "open" if "open" in found else "holds"


def enter(world: World, order: Order, target: str, reason: str) -> list[str]:
    """Put an order into a state; return what else that touches: its plan, and its plan's name at the plan's end."""
    if order.state in ENDED:
        raise Mismatch(f"{order.order} has ended as {order.state} and would become {target}")
    if order.state == "ready":
        world.dequeue(order)
    order.state, order.reason, order.moved_us, order.wait = target, reason, world.now_us, None
    if target == "ready":
        order.ready_us = world.now_us
        world.enqueue(order)
    if target not in ENDED:
        return []
    order.told_done = not order.dependents
    return _count_end(world, world.plans[order.plan]) if order.plan else []


def _count_end(world: World, plan: Plan) -> list[str]:
    plan.open -= 1
    if plan.open:
        return [plan.plan]
    plan.has_ended = True
    name = world.names[plan.name]
    name.open_plans = [each for each in name.open_plans if each[1] != plan.plan]
    return [plan.plan, f"name:{plan.name}"]


def move(world: World, order: Order, target: str, reason: str, cause: str = "", note: str = "") -> None:
    """Predict that an order moves."""
    body: dict[str, Any] = {"origin": order.state, "target": target, "reason": reason}
    if target == "ready" and world.now_us:
        body["ready_us"] = world.now_us
    if cause:
        body["cause"] = cause
    if note:
        body["note"] = note
    touched = enter(world, order, target, reason)
    world.expect("work_order_moved", order.order, body, *touched)


def end(world: World, order: Order, target: str, reason: str, cause: str = "") -> None:
    move(world, order, target, reason, cause)
    tell(world, order)


def claim(previous: str, attempt: str, worker: str, fence: int, state: str, ends_us: int) -> str:
    """Revision of a claim: each names the one before it."""
    return "sha256:" + sha256(f"{previous}|{attempt}|{worker}|{fence}|{state}|{ends_us}".encode()).hexdigest()


def enter_attempt(attempt: Attempt, target: str, reason: str) -> None:
    attempt.state, attempt.reason = target, reason
    revise_claim(attempt)


def revise_claim(attempt: Attempt) -> None:
    ends_us = attempt.lease_us or attempt.deadline_us
    attempt.claim = claim(attempt.claim, attempt.attempt, attempt.worker, attempt.fence, attempt.state, ends_us)


def move_attempt(world: World, attempt: Attempt, *path: str, reason: str, evidence: str = "") -> None:
    """Predict that an attempt moves; a state that it passes on the way to its cancel says `cancel_requested`."""
    for target in path:
        shown = "cancel_requested" if target == "cancellation_requested" else reason
        body: dict[str, Any] = {
            "order": attempt.order,
            "origin": attempt.state,
            "target": target,
            "reason": shown,
        }
        if evidence:
            body["evidence"] = evidence
        enter_attempt(attempt, target, shown)
        world.expect("attempt_moved", attempt.attempt, body)


def lose(world: World, order: Order, reason: str, cause: str) -> None:
    """An active order lost its attempt without a report: another follows if attempts and budget allow."""
    _, least = shares_of(world, order)
    if spent_out(world, order, least):
        end(world, order, "budget_exhausted", "budget_exhausted", cause)
    else:
        move(world, order, "ready", reason, cause)


def plan_reason(plan: Plan) -> str:
    """What an accepted cancel of a plan says to its orders, "" while there is none."""
    return {"": "", "deadline_passed": "deadline_passed"}.get(plan.cancel, "plan_cancelled")


def plan_over(world: World, plan: Plan | None) -> str:
    """Why a plan gets no new reservation, activation or renewal, "" if it does."""
    if plan is None:
        return ""
    if plan.cancel == "deadline_passed" or (plan.deadline_us is not None and world.now_us >= plan.deadline_us):
        return "deadline_passed"
    return "plan_cancelled" if plan.cancel else ""


def plan_of(world: World, order: Order) -> Plan | None:
    return world.plans[order.plan] if order.plan else None


def observe(world: World, order: Order, member: str, outcome: str, number: int, outcomes: frozenset[str]) -> None:
    """Predict that an order hears of one member's end; `outcomes` are those that its group names for it."""
    group = order.groups[number]
    satisfies = outcome in outcomes
    group.good += satisfies
    group.bad += not satisfies
    body = {"member": member, "outcome": outcome, "satisfies": satisfies, "group": number}
    world.expect("dependency_observed", order.order, body)


def settle_readiness(world: World, order: Order, cause: str) -> bool:
    """Move a waiting order by its verdict; return whether that ended it."""
    found = verdict_of(order.groups)
    if found == "holds":
        move(world, order, "ready", "waiting_for_worker", cause)
    elif found == "fails":
        plan = plan_of(world, order)
        cancelled = plan_reason(plan) if plan is not None else ""
        if cancelled:
            move(world, order, "cancelled", cancelled, cause)
        else:
            move(world, order, "dependency_failed", "dependency_failed", cause)
    elif order.state == "submitted":
        move(world, order, "blocked_dependency", "waiting_for_dependencies", cause)
    return found == "fails"


def children_ended(world: World, parent: Order) -> bool:
    """Whether a waiting order waits for children, and all of them have ended."""
    names = (parent.wait or {}).get("orders", ())
    return bool(names) and all(world.orders[name].state in ENDED for name in names)


def cancel(world: World, order: Order, reason: str, cause: str, note: str = "") -> None:
    """A cancel revokes the fence and ends the order at once; what was used is settled when it is known. A person's note
    stands with the end alone."""
    attempt = world.attempts.get(order.attempt)
    if attempt is not None and order.state == "reserved":
        move_attempt(world, attempt, "cancelled_no_effect", reason=reason)
        release(world, attempt, reason)
    elif attempt is not None and order.state == "active" and attempt.state in LIVE:
        move(world, order, "cancellation_requested", "cancel_requested", cause)
        move_attempt(world, attempt, "cancellation_requested", "cancelled_no_effect", reason=reason)
        unsettle(world, attempt)
    elif attempt is not None and order.state in ("result_pending", "conflict"):
        target = "rejected_conflict" if order.state == "conflict" else "rejected_stale"
        move_attempt(world, attempt, target, reason=reason)
        settle_from_result(world, attempt, attempt.facts)
    move(world, order, "cancelled", reason, cause if cause != reason else "", note)


def tell(world: World, first: Order) -> None:
    """Carry ends on to dependents, first come first told, within what is left of the batch's fanout."""
    waiting = deque([first])
    while waiting and world.fanout_left > 0:
        order = waiting.popleft()
        if order.told_done or order.state not in ENDED:
            continue
        start = order.told + 1
        page = order.dependents[start : start + world.fanout_left]
        for name, number, outcomes in page:
            dependent = world.orders[name]
            if number == CHILD:
                if dependent.state not in ENDED:
                    cancel(world, dependent, "parent_ended", order.order)
                    waiting.append(dependent)
            elif number == PARENT:
                if dependent.state == "waiting" and children_ended(world, dependent):
                    move(world, dependent, "ready", "children_ended", order.order)
            elif dependent.state == "blocked_dependency":
                observe(world, dependent, order.order, order.state, number, outcomes)
                if settle_readiness(world, dependent, order.order):
                    waiting.append(dependent)
        world.fanout_left -= max(len(page), 1)
        order.told = start + len(page) - 1 if page else len(order.dependents) - 1
        order.told_done = order.told + 1 >= len(order.dependents)
        world.expect("dependents_told", order.order, {"position": order.told, "done": order.told_done})
