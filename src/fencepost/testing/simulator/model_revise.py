"""Cancels, ceilings, cursors, and retries on request (W19, W18, C25)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fencepost.testing.simulator.model_budgets import is_dimension
from fencepost.testing.simulator.model_moves import cancel, plan_reason, tell
from fencepost.testing.simulator.model_state import ENDED, Outcome, Plan, Refused, World


def cancel_order(world: World, command: Mapping[str, Any]) -> Outcome:
    order = world.orders.get(command["order"])
    if order is None:
        return Refused("not_found")
    if order.state in ENDED:
        return Refused("order_ended")
    cancel(world, order, "cancelled_by_request", "cancelled_by_request", command.get("note", ""))
    tell(world, order)
    return {"order": order.order, "state": order.state, "reason": order.reason}


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
            cancel(world, order, plan_reason(plan), plan_reason(plan))
            tell(world, order)
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
