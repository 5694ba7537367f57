"""What ends because time proves it or because its holder is gone (W10, W17), and orders that are looked at again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fencepost.testing.simulator.model_budgets import (
    TIME,
    in_the_way,
    release,
    settle,
    settle_unreported,
    shares_of,
    spent_out,
    wanted,
)
from fencepost.testing.simulator.model_clock import prove
from fencepost.testing.simulator.model_moves import end, lose, move, move_attempt
from fencepost.testing.simulator.model_state import LIVE, Attempt, Outcome, Refused, World


def expire_attempt(world: World, command: Mapping[str, Any]) -> Outcome:
    attempt = world.attempts.get(command["attempt"])
    if attempt is None:
        return Refused("not_found")
    if attempt.state != "reserved" and attempt.state not in LIVE:
        return Refused("attempt_state")
    version = world.versions[attempt.attempt]
    if version != command["expected"]:
        return Refused("version_moved")
    reserved = attempt.state == "reserved"
    deadline_us = attempt.deadline_us if reserved else attempt.lease_us
    clock = world.clock
    if clock.state != "running":
        return Refused("clock_blocked")
    if not clock.past(deadline_us):
        return Refused("not_due")
    if not clock.past(clock.end_us(deadline_us)):
        return Refused("clock_grace")
    purpose = "reservation_expiry" if reserved else "lease_expiry"
    body = {"purpose": purpose, "target": attempt.attempt, "target_version": version, "fence": attempt.fence}
    proof = prove(world, "expiry_eligibility", {**body, "deadline_us": deadline_us})
    order = world.orders[attempt.order]
    if reserved:
        move_attempt(world, attempt, "expired_no_effect", reason="reservation_expired", evidence=str(proof))
        release(world, attempt, "reservation_expired")
        move(world, order, "ready", "reservation_expired", attempt.attempt)
    else:
        _end_unreported(world, attempt, "lease_expired", "expiry", attempt.lease_us, proof)
    return {"order": order.order, "state": order.state}


def _end_unreported(world: World, attempt: Attempt, reason: str, basis: str, until_us: int, proof: int) -> None:
    path = ("lease_expired", "cancelled_no_effect")
    move_attempt(world, attempt, *path, reason=reason, evidence=str(proof))
    settle_unreported(world, attempt, basis, until_us)
    lose(world, world.orders[attempt.order], reason, attempt.attempt)


def prove_holder_gone(world: World, command: Mapping[str, Any]) -> Outcome:
    attempt = world.attempts.get(command["attempt"])
    if attempt is None:
        return Refused("not_found")
    cancelled = world.holds[attempt.hold].state == "unsettled"
    if not cancelled and attempt.state != "reserved" and attempt.state not in LIVE:
        return Refused("attempt_state")
    if attempt.fence != command["fence"]:
        return Refused("stale_fence")
    same_boot = command["boot_id"] == attempt.boot_id
    if command["host"] != attempt.host or same_boot != (command["basis"] == "locks_free"):
        return Refused("holder_alive")
    body = {key: command[key] for key in ("attempt", "host", "boot_id", "basis", "evidence")}
    body |= {"order": attempt.order, "fence": attempt.fence, "worker": attempt.worker}
    proof = world.expect("holder_gone_proof", attempt.attempt, body)
    order = world.orders[attempt.order]
    until_us = min(world.now_us, attempt.lease_us)
    if cancelled:
        settle_unreported(world, attempt, "holder_gone", until_us)
    elif attempt.state == "reserved":
        move_attempt(world, attempt, "cancelled_no_effect", reason="holder_gone", evidence=str(proof))
        release(world, attempt, "holder_gone")
        move(world, order, "ready", "holder_gone", attempt.attempt)
    else:
        _end_unreported(world, attempt, "holder_gone", "holder_gone", until_us, proof)
    return {"order": order.order, "state": order.state}


def _deadline(world: World, purpose: str, kind: str, target: str, version: int, deadline_us: int) -> str | int:
    """Predict a proof and return its sequence number, or return the code that refuses it."""
    if world.clock.state != "running":
        return "clock_blocked"
    if not world.clock.past(deadline_us):
        return "not_due"
    body = {"purpose": purpose, "target_kind": kind, "target": target, "target_version": version}
    return prove(world, "clock_deadline_eligibility", {**body, "deadline_us": deadline_us})


def settle_hold(world: World, command: Mapping[str, Any]) -> Outcome:
    hold = world.holds.get(command["hold"])
    if hold is None:
        return Refused("not_found")
    if hold.state != "unsettled":
        return Refused("hold_state")
    version = world.versions[hold.hold]
    if version != command["expected"]:
        return Refused("version_moved")
    proof = _deadline(world, "unsettled_hold", "budget_hold", hold.hold, version, hold.settle_by_us)
    if isinstance(proof, str):
        return Refused(proof)
    charged = dict(hold.held)
    settle(world, hold, "proved_deadline", charged, flagged=True, estimated_us=charged.get(TIME, 0))
    return {"hold": hold.hold}


def end_backoff(world: World, command: Mapping[str, Any]) -> Outcome:
    order = world.orders.get(command["order"])
    if order is None:
        return Refused("not_found")
    if order.state != "retry_wait":
        return Refused("order_state")
    version = world.versions[order.order]
    if version != command["expected"]:
        return Refused("version_moved")
    proof = _deadline(world, "backoff", "work_order", order.order, version, order.due_us)
    if isinstance(proof, str):
        return Refused(proof)
    move(world, order, "ready", "backoff_over", str(proof))
    return {"order": order.order}


def enforce_deadline(world: World, command: Mapping[str, Any]) -> Outcome:
    from fencepost.testing.simulator.model_revise import start_cancel

    plan = world.plans.get(command["plan"])
    if plan is None:
        return Refused("not_found")
    version = world.versions[plan.plan]
    if version != command["expected"]:
        return Refused("version_moved")
    if not plan.open:
        return Refused("plan_ended")
    if plan.cancel:
        return Refused("plan_cancelled")
    if plan.deadline_us is None:
        return Refused("not_due")
    proof = _deadline(world, "plan_deadline", "plan", plan.plan, version, plan.deadline_us)
    if isinstance(proof, str):
        return Refused(proof)
    return start_cancel(world, plan, "deadline_passed", "")


def end_wait(world: World, command: Mapping[str, Any]) -> Outcome:
    order = world.orders.get(command["order"])
    if order is None:
        return Refused("not_found")
    if order.state != "waiting":
        return Refused("order_state")
    version = world.versions[order.order]
    if version != command["expected"]:
        return Refused("version_moved")
    until_us = (order.wait or {}).get("until_us", 0)
    if not until_us:
        return Refused("not_due")
    proof = _deadline(world, "wait", "work_order", order.order, version, until_us)
    if isinstance(proof, str):
        return Refused(proof)
    move(world, order, "ready", "time_passed", str(proof))
    return {"order": order.order}


def reexamine(world: World, command: Mapping[str, Any]) -> Outcome:
    """Look again at an order that waits for budget: it may have come free, or have run out for good."""
    order = world.orders.get(command["order"])
    if order is None:
        return Refused("not_found")
    if order.state != "blocked_budget":
        return Refused("order_state")
    if world.versions[order.order] != command["expected"]:
        return Refused("version_moved")
    asks, least = shares_of(world, order)
    if spent_out(world, order, least):
        end(world, order, "budget_exhausted", "budget_exhausted")
        return {"order": order.order, "state": "budget_exhausted"}
    code, account = in_the_way(world, order, wanted(world, order, asks, least))
    if code and code == order.reason:
        return Refused(code)
    move(world, order, "ready", "budget_freed")
    if code:
        move(world, order, "blocked_budget", code, account)
    return {"order": order.order, "state": order.state}
