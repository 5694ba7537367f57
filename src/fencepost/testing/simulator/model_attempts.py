"""What holders say: renewals, events, results and stops; and what becomes of a result.

Only a live fence changes anything. What comes late is kept once for each attempt, kind and digest, within a bound,
and its receipts are paid for all the same. A result is evidence: the acceptance contract alone decides (W5, W7, W17).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fencepost.testing.simulator.model_budgets import (
    TIME,
    add_up,
    adjust,
    is_dimension,
    settle,
    settle_from_result,
    settle_late,
)
from fencepost.testing.simulator.model_canonical import canonical, digest_of
from fencepost.testing.simulator.model_moves import (
    enter,
    enter_attempt,
    lose,
    move,
    move_attempt,
    plan_of,
    plan_over,
    revise_claim,
)
from fencepost.testing.simulator.model_state import LIVE, Attempt, Mismatch, Order, Outcome, Refused, World


def is_live(world: World, attempt: Attempt, fence: int) -> bool:
    """Whether a holder with this fence may still change something. A lease that was over once never goes on."""
    if attempt.fence != fence or attempt.state not in LIVE:
        return False
    if world.clock.lapsed(attempt.lease_us):
        attempt.lapsed = True
    elif attempt.lapsed:
        raise Mismatch(f"the lease of {attempt.attempt} was over, its holder was told so, and it goes on again")
    return not attempt.lapsed


def renew_leases(world: World, command: Mapping[str, Any]) -> Outcome:
    worker = command["worker"]
    if worker not in world.workers:
        return Refused("not_found")
    if len(command["attempts"]) > world.limits["renewal_attempts_max"]:
        return Refused("too_large")
    renewed: list[str] = []
    lost: list[dict[str, str]] = []
    for held in command["attempts"]:
        name = held["attempt"]
        code = _renewal_code(world, name, held["fence"], worker)
        if code:
            lost.append({"attempt": name, "code": code})
        elif name not in renewed:
            renewed.append(name)
    until_us = world.now_us + world.limits["lease_us"]
    if renewed:
        world.expect("lease_renewal", worker, {"attempts": renewed, "until_us": until_us}, *renewed)
        for name in renewed:
            attempt = world.attempts[name]
            attempt.lease_us = until_us
            revise_claim(attempt)
    return {"until_us": until_us, "renewed": renewed, "lost": lost}


def _renewal_code(world: World, name: str, fence: int, worker: str) -> str:
    attempt = world.attempts.get(name)
    if attempt is None:
        return "not_found"
    if attempt.worker != worker:
        return "wrong_holder"
    if not is_live(world, attempt, fence):
        return "stale_fence"
    order = world.orders[attempt.order]
    over = plan_over(world, plan_of(world, order))
    if over:
        return over
    longest_us = order.spec["attempt_time_us"] + world.limits["collect_us"]
    return "timed_out" if world.now_us >= attempt.activated_us + longest_us else ""


def append_event(world: World, command: Mapping[str, Any]) -> Outcome:
    attempt = world.attempts.get(command["attempt"])
    if attempt is None:
        return Refused("not_found")
    order = world.orders[attempt.order]
    if command["spec"] != order.spec["spec"] or command["input_set"] != attempt.input_set:
        return Refused("spec_mismatch")
    if not is_live(world, attempt, command["fence"]):
        return late(world, attempt, command, "event")
    body = {key: command[key] for key in ("family", "spec", "fence", "input_set")}
    body["order"] = order.order
    body.update({key: command[key] for key in ("pid", "note") if command.get(key)})
    if command["family"] == "execution_started" and attempt.state == "leased":
        enter_attempt(attempt, "running", "attempt_running")
    world.expect("attempt_event", attempt.attempt, body)
    return {"attempt": attempt.attempt, "lease_until_us": attempt.lease_us}


def late(world: World, attempt: Attempt, command: Mapping[str, Any], what: str) -> Outcome:
    """A late fact is kept once; it moves nothing."""
    digest = digest_of(command)
    if (what, digest) in attempt.late:
        return Refused("rejected_stale")
    if not _has_room(world, attempt, command["fence"]):
        return Refused("stale_fence")
    _keep(world, attempt, what, digest, "stale_fence")
    return Refused("rejected_stale")


def _has_room(world: World, attempt: Attempt, fence: int) -> bool:
    """One late fact more is kept of a fence that the attempt really had."""
    known = fence == attempt.fence and attempt.state != "reserved"
    return known and len(attempt.late) < world.limits["late_records_per_attempt"]


def _keep(
    world: World,
    attempt: Attempt,
    what: str,
    digest: str,
    reason: str,
    *,
    facts: Mapping[str, Any] | None = None,
    told: Mapping[str, Any] | None = None,
) -> None:
    body: dict[str, Any] = {
        "order": attempt.order,
        "fence": attempt.fence,
        "what": what,
        "digest": digest,
        "disposition": "rejected_conflict" if reason == "results_differ" else "rejected_stale",
        "reason": reason,
    }
    if facts is not None:
        body["facts"] = facts
        attempt.late_usages.extend(facts.get("usage", ()))
    if told is not None:
        body |= {key: told[key] for key in ("duration_us", "stdout", "stderr") if told.get(key)}
        attempt.late_usages.append(_time_used(attempt, told))
    world.expect("late_record", attempt.attempt, body)
    attempt.late.append((what, digest))


def report_result(world: World, command: Mapping[str, Any]) -> Outcome:
    attempt = world.attempts.get(command["attempt"])
    if attempt is None:
        return Refused("not_found")
    order = world.orders[attempt.order]
    facts = command["facts"]
    if command["spec"] != order.spec["spec"] or facts["input_set"] != attempt.input_set:
        return Refused("spec_mismatch")
    code = _out_of_bounds(world, facts)
    if code:
        return Refused(code)
    digest = digest_of(facts)
    if attempt.result and attempt.fence == command["fence"]:
        if attempt.result != digest:
            return _second_result(world, order, attempt, facts, digest)
        return {"attempt": attempt.attempt, "duplicate": True, "application": attempt.application_seq}
    if not is_live(world, attempt, command["fence"]):
        return _late_result(world, attempt, command["fence"], facts, digest)
    body = {
        "order": order.order,
        "spec": command["spec"],
        "fence": command["fence"],
        "claim": attempt.claim,
        "facts_digest": digest,
        "facts": facts,
    }
    waits = facts["outcome"] == "succeeded" and order.spec["accept"].get("verify")
    reason = "waiting_for_verification" if waits else "waiting_for_reduction"
    enter(world, order, "result_pending", reason)
    enter_attempt(attempt, "result_reported", reason)
    attempt.result_seq = world.expect("attempt_result", attempt.attempt, body, order.order)
    attempt.result, attempt.facts = digest, facts
    return {"attempt": attempt.attempt, "duplicate": False, "application": 0}


def _out_of_bounds(world: World, facts: Mapping[str, Any]) -> str:
    limits = world.limits
    usages = facts.get("usage", ())
    if len(facts.get("artifacts", ())) > limits["artifacts_per_result_max"]:
        return "too_large"
    if len(usages) > limits["receipts_per_result_max"]:
        return "too_large"
    names = {(usage["provider"], usage["receipt"]) for usage in usages}
    dimensions = [name for usage in usages for name in (*usage["amounts"], *usage.get("unknown", ()))]
    if len(names) != len(usages):
        return "out_of_range"
    if any(
        len(canonical(f"{provider}:{receipt}")) - 2 > limits["receipt_name_bytes_max"] for provider, receipt in names
    ):
        return "too_large"
    bad = (
        not all(map(is_dimension, dimensions))
        or "attempts" in dimensions
        or facts["duration_us"] > limits["duration_max_us"]
    )
    return "out_of_range" if bad else ""


def _second_result(world: World, order: Order, attempt: Attempt, facts: Mapping[str, Any], digest: str) -> Outcome:
    """Another result of one attempt is kept; before the first is applied a person must say which counts."""
    if ("result", digest) in attempt.late:
        return Refused("rejected_conflict")
    if _has_room(world, attempt, attempt.fence):
        _keep(world, attempt, "result", digest, "results_differ", facts=facts)
    if order.state == "result_pending" and order.attempt == attempt.attempt:
        move(world, order, "conflict", "results_differ", attempt.attempt)
        settle_from_result(world, attempt, attempt.facts)
    settle_late(world, attempt, facts.get("usage", ()))
    return Refused("rejected_conflict", {"disposition": "rejected_conflict"})


def _late_result(world: World, attempt: Attempt, fence: int, facts: Mapping[str, Any], digest: str) -> Outcome:
    """A late result is kept within the bound and paid for beyond it."""
    if fence != attempt.fence or attempt.state == "reserved":
        return Refused("stale_fence")
    if ("result", digest) in attempt.late:
        return Refused("rejected_stale")
    before = len(world.expected)
    usages = facts.get("usage", ())
    if _is_kept(world, attempt, fence, usages):
        _keep(world, attempt, "result", digest, "stale_fence", facts=facts)
    settle_late(world, attempt, usages)
    if len(world.expected) == before:
        return Refused("stale_fence")
    return Refused("rejected_stale", {"disposition": "rejected_stale"})


def _is_kept(world: World, attempt: Attempt, fence: int, usages: Any) -> bool:
    """A hold that is still held books from the records alone: new receipts are kept, up to the bound of a hold."""
    hold = world.holds[attempt.hold]
    if hold.state != "held":
        return _has_room(world, attempt, fence)
    waiting = set(add_up(world, attempt.late_usages, hold)[1])
    fresh = set(add_up(world, usages, hold)[1]) - waiting
    fits = len(waiting) + len(fresh) <= world.limits["receipts_per_hold_max"]
    return fits and (bool(fresh) or _has_room(world, attempt, fence))


def report_stopped(world: World, command: Mapping[str, Any]) -> Outcome:
    """A drain is credited back, the loss of a lease or of a keeper is not; its time stays charged."""
    attempt = world.attempts.get(command["attempt"])
    if attempt is None:
        return Refused("not_found")
    duration_us = command["duration_us"]
    if duration_us > world.limits["duration_max_us"]:
        return Refused("out_of_range")
    if not is_live(world, attempt, command["fence"]):
        return ended_late(world, attempt, command, "stop")
    order = world.orders[attempt.order]
    reason = command.get("reason", "drained")
    body = {"order": order.order, "fence": command["fence"], "reason": reason, "duration_us": duration_us}
    body |= {key: command[key] for key in ("note", "stdout", "stderr") if command.get(key)}
    seq = world.expect("attempt_stopped", attempt.attempt, body)
    drained = reason == "drained"
    credited = {"attempts": 1} if drained and order.yields < world.limits["yields_max"] else {}
    paused = drained and attempt.state == "running"
    path = ("yielded",) if paused else ("cancellation_requested", "cancelled_no_effect")
    move_attempt(world, attempt, *path, reason=reason, evidence=str(seq))
    charged = {TIME: duration_us} if duration_us else {}
    receipt = f"kernel:{attempt.attempt}:time"
    settle(world, world.holds[attempt.hold], "stopped", charged, receipts=[receipt], credited=credited)
    order.activations -= len(credited)
    lose(world, order, reason, attempt.attempt)
    return {"order": order.order}


def ended_late(world: World, attempt: Attempt, command: Mapping[str, Any], what: str) -> Outcome:
    """A late word of an end without a result: what it took and printed is kept within the bound, and its time paid."""
    fence = command["fence"]
    if fence != attempt.fence or attempt.state == "reserved":
        return Refused("stale_fence")
    digest = digest_of(command)
    if (what, digest) in attempt.late:
        return Refused("rejected_stale")
    before = len(world.expected)
    usages = (_time_used(attempt, command),)
    if _is_kept(world, attempt, fence, usages):
        _keep(world, attempt, what, digest, "stale_fence", told=command)
    settle_late(world, attempt, usages)
    return Refused("rejected_stale" if len(world.expected) > before else "stale_fence")


def _time_used(attempt: Attempt, told: Mapping[str, Any]) -> dict[str, Any]:
    amounts = {TIME: told["duration_us"]}
    return {"receipt": f"{attempt.attempt}:time", "provider": "kernel", "amounts": amounts}


def record_verification(world: World, command: Mapping[str, Any]) -> Outcome:
    attempt = world.attempts.get(command["attempt"])
    if attempt is None:
        return Refused("not_found")
    if attempt.result != command["result"]:
        return Refused("spec_mismatch")
    if attempt.verification_seq:
        return Refused("verification_known")
    if command["duration_us"] > world.limits["duration_max_us"]:
        return Refused("out_of_range")
    order = world.orders[attempt.order]
    if order.state != "result_pending" or order.attempt != attempt.attempt:
        return _verified_late(world, attempt, command)
    body = {key: command[key] for key in ("attempt", "result", "outcome", "duration_us")}
    body["order"] = order.order
    for key in ("exit_code", "signal", "stdout", "stderr"):
        if command.get(key) is not None:
            body[key] = command[key]
    if command.get("message"):
        body["message"] = command["message"]
    attempt.verification_seq = world.expect("verification_receipt", attempt.attempt, body, order.order)
    attempt.verification, attempt.verification_us = command["outcome"], command["duration_us"]
    attempt.reason = order.reason = "waiting_for_reduction"
    return {"attempt": attempt.attempt, "outcome": command["outcome"]}


def _verified_late(world: World, attempt: Attempt, command: Mapping[str, Any]) -> Outcome:
    hold = world.holds[attempt.hold]
    receipt = f"kernel:{attempt.attempt}:verifier"
    full = len(hold.receipts) >= world.limits["receipts_per_hold_max"]
    if hold.state != "settled" or full or receipt in hold.receipts or not command["duration_us"]:
        return Refused("attempt_state")
    adjust(world, hold, {TIME: command["duration_us"]}, [receipt])
    return Refused("rejected_stale")
