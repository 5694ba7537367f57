"""Cancels, ceilings, cursors, and retries on request (W19, W18, C25)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fencepost.testing.simulator.model_budgets import is_dimension, release, settle_from_result, unsettle
from fencepost.testing.simulator.model_moves import end, move, move_attempt, plan_reason, tell
from fencepost.testing.simulator.model_state import ENDED, LIVE, Order, Outcome, Plan, Refused, World


def cancel_order(world: World, command: Mapping[str, Any]) -> Outcome:
    order = world.orders.get(command["order"])
    if order is None:
        return Refused("not_found")
    if order.state in ENDED:
        return Refused("order_ended")
    _cancel(world, order, "cancelled_by_request")
    return {"order": order.order, "state": order.state, "reason": order.reason}


def _cancel(world: World, order: Order, reason: str) -> None:
    """A cancel revokes the fence and ends the order at once; what was used is settled when it is known."""
    attempt = world.attempts.get(order.attempt)
    if attempt is not None and order.state == "reserved":
        move_attempt(world, attempt, "cancelled_no_effect", reason=reason)
        release(world, attempt, reason)
    elif attempt is not None and order.state == "active" and attempt.state in LIVE:
        move(world, order, "cancellation_requested", "cancel_requested", reason)
        move_attempt(world, attempt, "cancellation_requested", "cancelled_no_effect", reason=reason)
        unsettle(world, attempt)
    elif attempt is not None and order.state in ("result_pending", "conflict"):
        target = "rejected_conflict" if order.state == "conflict" else "rejected_stale"
        move_attempt(world, attempt, target, reason=reason)
        settle_from_result(world, attempt, attempt.facts)
    end(world, order, "cancelled", reason)


def cancel_plan(world: World, command: Mapping[str, Any]) -> Outcome:
    plan = world.plans.get(command["plan"])
    if plan is None:
        return Refused("not_found")
    if not plan.open:
        return Refused("plan_ended")
    if plan.cancel:
        return {"plan": plan.plan, "open": plan.open, "done": plan.cancel_done}
    return start_cancel(world, plan, "cancel_requested", command.get("note", ""))


def start_cancel(world: World, plan: Plan, reason: str, note: str) -> Outcome:
    """Request the cancel and carry it to the first page of orders."""
    body = {"plan": plan.plan, "reason": reason}
    if note:
        body["note"] = note
    world.expect("plan_cancel_requested", plan.plan, body)
    plan.cancel, plan.cancel_position, plan.cancel_done = reason, -1, False
    return _advance(world, plan)


def advance_cancel(world: World, command: Mapping[str, Any]) -> Outcome:
    plan = world.plans.get(command["plan"])
    if plan is None:
        return Refused("not_found")
    if plan.cancel_done:
        return {"plan": plan.plan, "open": plan.open, "done": True}
    return _advance(world, plan)


def _advance(world: World, plan: Plan) -> Outcome:
    most = world.limits["cancel_per_batch"]
    start = plan.cancel_position + 1
    page = plan.orders[start : start + most]
    for name in page:
        order = world.orders[name]
        if order.state not in ENDED:
            _cancel(world, order, plan_reason(plan))
    plan.cancel_position = start + len(page) - 1
    plan.cancel_done = len(page) < most
    world.expect("plan_cancel_advanced", plan.plan, {"position": plan.cancel_position, "done": plan.cancel_done})
    return {"plan": plan.plan, "open": plan.open, "done": plan.cancel_done}


def tell_dependents(world: World, command: Mapping[str, Any]) -> Outcome:
    order = world.orders.get(command["order"])
    if order is None:
        return Refused("not_found")
    tell(world, order)
    return {"order": order.order, "done": order.told_done}


def ceilings_are_wrong(ceilings: Mapping[str, int]) -> bool:
    """Whether a dimension is unknown, or nobody could try even once."""
    return not all(map(is_dimension, ceilings)) or ceilings.get("attempts", 1) < 1


def set_budget(world: World, command: Mapping[str, Any]) -> Outcome:
    subject = command["account"]
    account = world.accounts.get(subject)
    if account is None:
        return Refused("not_found")
    if command.get("expected") and command["expected"] != world.versions[subject]:
        return Refused("version_moved")
    ceilings = command["ceilings"]
    if ceilings_are_wrong(ceilings):
        return Refused("out_of_range")
    body = {"ceilings": ceilings}
    if command.get("note"):
        body["note"] = command["note"]
    world.expect("budget_ceiling_set", subject, body)
    account.ceiling = dict(ceilings)
    return {"account": subject}
