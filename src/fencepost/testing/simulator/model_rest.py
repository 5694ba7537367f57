"""Checks for a quiet moment, which look at everything: sums, holds, plans, and whether every order can still move."""

from __future__ import annotations

from collections.abc import Iterator

from fencepost.testing.simulator.model_budgets import in_the_way, shares_of, spent_out, wanted
from fencepost.testing.simulator.model_checks import Checks
from fencepost.testing.simulator.model_moves import ORDER_REASONS, verdict_of
from fencepost.testing.simulator.model_state import ENDED, LIVE, Order, World


def problems_at_rest(world: World, checks: Checks) -> list[str]:
    return [*_accounts(world, checks), *_holds(world), *_orders(world, checks), *_children(world), *_plans(world)]


def left_behind(world: World) -> Iterator[str]:
    """Orders that wait for budget although, with nothing else under way, they would fit, or never can."""
    for order in world.orders.values():
        if order.state != "blocked_budget":
            continue
        asks, least = shares_of(world, order)
        if spent_out(world, order, least):
            yield f"{order.order} waits for budget, which is spent for good"
        elif not in_the_way(world, order, wanted(world, order, asks, least))[0]:
            yield f"{order.order} waits for budget, and would fit"


def _accounts(world: World, checks: Checks) -> Iterator[str]:
    """Held and charged are the sums of holds, and of records; nothing is below zero."""
    sums: dict[tuple[str, str], list[int]] = {}
    for hold in world.holds.values():
        for subject in hold.accounts:
            for name, amount in hold.held.items():
                sums.setdefault((subject, name), [0, 0])[0] += amount
            for name, amount in hold.charged.items():
                sums.setdefault((subject, name), [0, 0])[1] += amount
    for subject, account in world.accounts.items():
        for name in {*account.held, *account.charged}:
            own = [account.held.get(name, 0), account.charged.get(name, 0)]
            if own != sums.get((subject, name), [0, 0]) or own != checks.sums.get((subject, name), [0, 0]):
                yield f"{subject}: {name} held and charged are {own}, and its holds say otherwise"
            if min(own) < 0:
                yield f"{subject}: {name} is below zero"
    for subject in {subject for subject, _ in sums} - set(world.accounts):
        yield f"{subject} is booked on and does not exist"


def _holds(world: World) -> Iterator[str]:
    for hold in world.holds.values():
        attempt = world.attempts[hold.attempt]
        if hold.endings != (hold.state in ("settled", "released")):
            yield f"{hold.hold} is {hold.state} and has ended {hold.endings} times"
        if hold.state in ("settled", "released") and any(hold.held.values()):
            yield f"{hold.hold} has ended and holds {hold.held}"
        waits = attempt.state in ("reserved", "leased", "running", "result_reported")
        if hold.state == "held" and not waits:
            yield f"{hold.hold} is held for {attempt.attempt}, which is {attempt.state}"
        if hold.state == "unsettled" and not hold.settle_by_us:
            yield f"{hold.hold} is unsettled and nothing will end it"


def _orders(world: World, checks: Checks) -> Iterator[str]:
    queued = {key[3] for key in world.ready[""]}
    for order in world.orders.values():
        if checks.states.get(order.order) != order.state:
            yield f"{order.order}: the records lead to {checks.states.get(order.order)}, the model to {order.state}"
        attempt = world.attempts.get(order.attempt)
        if order.state in ENDED:
            if attempt is not None and attempt.state in ("reserved", *LIVE):
                yield f"{order.order} has ended and {attempt.attempt} is {attempt.state}"
            if not order.told_done and order.told + 1 >= len(order.dependents):
                yield f"{order.order} has nobody left to tell and its cursor is open"
        else:
            reasons = ORDER_REASONS.get(order.state)
            if reasons is None or order.reason not in reasons:
                yield f"{order.order} is {order.state} and says {order.reason}"
            if not _can_move(world, order, queued):
                yield f"{order.order} is {order.state} and nothing can move it"


def _can_move(world: World, order: Order, queued: set[str]) -> bool:
    attempt = world.attempts.get(order.attempt)
    if order.state == "blocked_dependency":
        members = [world.orders[name] for group in order.groups for name, _ in group.members]
        open_members = any(member.state not in ENDED or not member.told_done for member in members)
        return verdict_of(order.groups) == "open" and open_members
    if order.state == "ready":
        return order.order in queued
    if order.state in ("reserved", "active", "result_pending", "conflict"):
        states = {"reserved": ("reserved",), "active": ("leased", "running")}
        return attempt is not None and attempt.state in states.get(order.state, ("result_reported",))
    if order.state == "waiting":
        return _can_be_woken(world, order)
    if order.state == "retry_wait":
        return order.due_us > 0
    return order.state == "blocked_budget"


def _can_be_woken(world: World, order: Order) -> bool:
    """A wait holds nothing, and something of what it names is still to come."""
    wait = order.wait or {}
    attempt = world.attempts[order.attempt]
    asks = bool(wait.get("question")) and wait["question"] not in order.answers
    children = [world.orders[name] for name in wait.get("orders", ())]
    ended = bool(children) and all(child.state in ENDED for child in children)
    holds = any(world.holds[attempt.hold].held.values()) or attempt.state != "yielded"
    return not holds and not ended and bool(asks or children or wait.get("until_us"))


def _children(world: World) -> Iterator[str]:
    """No child outlives its parent once everything that the parent's end must tell is told."""
    for order in world.orders.values():
        parent = world.orders.get(order.parent)
        if parent is None:
            continue
        if order.accounts != [*parent.accounts, order.order] or order.plan != parent.plan:
            yield f"{order.order} is not in the plan and under the accounts of its parent"
        if parent.state in ENDED and parent.told_done and order.state not in ENDED:
            yield f"{order.order} is {order.state}, and its parent has ended and told of it"


def _plans(world: World) -> Iterator[str]:
    for plan in world.plans.values():
        left = sum(world.orders[name].state not in ENDED for name in plan.orders)
        if left != plan.open:
            yield f"{plan.plan} has {left} orders that have not ended, and says {plan.open}"
        named = any(each[1] == plan.plan for each in world.names[plan.name].open_plans)
        if named != bool(plan.open):
            yield f"{plan.plan} is open for {plan.open} orders, and its name says otherwise"
        if plan.cancel and plan.cancel_done and plan.open:
            yield f"{plan.plan} is cancelled throughout and {plan.open} of its orders have not ended"
