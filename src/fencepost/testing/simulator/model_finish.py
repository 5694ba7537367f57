"""The reducer's word on a result: the acceptance contract, retries and their backoff, what the record must name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fencepost.testing.simulator.model_budgets import settle_from_result, shares_of, spent_out
from fencepost.testing.simulator.model_canonical import digest_of
from fencepost.testing.simulator.model_files import matches, matches_any
from fencepost.testing.simulator.model_moves import enter, enter_attempt, plan_of, plan_over, tell
from fencepost.testing.simulator.model_state import Attempt, Mismatch, Order, Outcome, Refused, World

FAILURES = frozenset(
    {
        "executor_failed",
        "exit_code_unexpected",
        "inputs_unavailable",
        "killed_by_signal",
        "outputs_missing",
        "outputs_refused",
        "result_invalid",
        "schema_failed",
        "spawn_failed",
        "stopped_on_order",
        "timed_out",
        "verifier_error",
        "verifier_failed",
    }
)
RETRYABLE = frozenset({"transient_dependency", "executor", "validation"})
_TARGETS = {"applied": ("applied", "accepted"), "retry": ("retry_wait", "retryable_failed"), "failed": ("failed",) * 2}


def judge(order: Order, attempt: Attempt) -> tuple[str, str]:
    """(reason, failure class) of a result under its order's contract; the class is "" for one that is accepted."""
    facts, accept = attempt.facts, order.spec["accept"]
    if not facts.get("tree_empty", True):
        return "containment_lost", "terminal"
    if facts["outcome"] == "failed":
        code = facts.get("message_code", "")
        return code if code in FAILURES else "executor_failed", facts.get("failure") or "executor"
    if facts.get("failure"):
        return "result_invalid", "executor"
    if facts.get("exit_code") != accept.get("exit_code", 0):
        return "exit_code_unexpected", "executor"
    paths = [ref["path"] for ref in facts.get("artifacts", ())]
    if not all(matches_any(order.spec["outputs"], path) for path in paths):
        return "outputs_refused", "validation"
    if not all(any(matches(text, path) for path in paths) for text in accept.get("files", ())):
        return "outputs_missing", "validation"
    passed = {each["subject"] for each in facts.get("validation", ()) if each["check"] == "schema" and each["passed"]}
    if not passed.issuperset(accept.get("schemas", {})):
        return "schema_failed", "validation"
    if accept.get("verify") and attempt.verification != "passed":
        if attempt.verification == "error":
            return "verifier_error", "executor"
        return "verifier_failed", "validation"
    return "applied", ""


def apply_result(world: World, command: Mapping[str, Any]) -> Outcome:
    attempt = world.attempts.get(command["attempt"])
    if attempt is None:
        return Refused("not_found")
    order = world.orders[attempt.order]
    if attempt.application_seq:
        told = {"order": order.order, "state": order.state, "application": attempt.application_seq}
        return {**told, "duplicate": True}
    if attempt.state != "result_reported" or order.state != "result_pending" or order.attempt != attempt.attempt:
        return Refused("attempt_state")
    if order.spec["accept"].get("verify") and attempt.facts["outcome"] == "succeeded" and not attempt.verification_seq:
        return Refused("verification_missing")
    if world.constitution["version"] != order.spec["constitution_version"]:
        return Refused("spec_mismatch")
    settle_from_result(world, attempt, attempt.facts)
    _write(world, order, attempt)
    tell(world, order)
    return {
        "order": order.order,
        "state": order.state,
        "reason": order.reason,
        "application": order.application_seq,
        "duplicate": False,
    }


def _write(world: World, order: Order, attempt: Attempt) -> None:
    reason, failure = judge(order, attempt)
    decision = "applied"
    body: dict[str, Any] = {}
    if failure:
        decision = "failed"
        body["failure"] = failure
        if _may_retry(world, order, failure):
            decision = "retry"
            body["backoff"] = _backoff(world, order)
    spec = order.spec
    versions = world.versions
    body |= {
        "order": order.order,
        "attempt": attempt.attempt,
        "decision": decision,
        "reason": reason,
        "checked": {
            "order_version": versions[order.order],
            "attempt_version": versions[attempt.attempt],
            "generation": attempt.fence,
            "spec": spec["spec"],
            "input_set": attempt.input_set,
            "constitution_version": world.constitution["version"],
            "organization_epoch": spec["organization_epoch"],
            "repository": spec["repository"],
        },
        "applied_events": [
            seq for seq in (attempt.descriptor_seq, attempt.result_seq, attempt.verification_seq) if seq
        ],
    }
    state, attempt_state = _TARGETS[decision]
    touched = enter(world, order, state, "backoff" if decision == "retry" else reason)
    order.result_seq, order.application_seq = attempt.result_seq, world.next_seq
    attempt.application_seq = world.next_seq
    order.failures += bool(failure)
    if decision == "retry":
        order.due_us = body["backoff"]["due_us"]
    enter_attempt(attempt, attempt_state, reason)
    body["projection"] = digest_of(
        {
            "order": order.order,
            "version": versions[order.order] + 1,
            "spec": spec["spec"],
            "state": order.state,
            "reason": order.reason,
            "attempt": attempt.attempt,
            "generation": order.generation,
            "failures": order.failures,
            "retry_due_us": order.due_us,
            "result_seq": order.result_seq,
            "application_seq": order.application_seq,
        }
    )
    world.expect("result_application", order.order, body, attempt.attempt, *touched)


def _may_retry(world: World, order: Order, failure: str) -> bool:
    """A retry needs a policy that names the failure, a plan that goes on, and a budget that can carry it."""
    retry = order.spec.get("retry")
    if not retry or failure not in retry["on"] or failure not in RETRYABLE:
        return False
    _, least = shares_of(world, order)
    return not spent_out(world, order, least) and not plan_over(world, plan_of(world, order))


def _backoff(world: World, order: Order) -> dict[str, int]:
    """Doubled with each failure up to the policy's bound, and lengthened by a drawn part of at most a tenth."""
    retry = order.spec["retry"]
    failures = order.failures + 1
    delay_us = retry["backoff_us"]
    for _ in range(failures - 1):
        if delay_us >= retry["backoff_max_us"]:
            break
        delay_us *= 2
    delay_us = min(delay_us, retry["backoff_max_us"])
    drawn = world.next_record("result_application")["body"].get("backoff") or {}
    jitter_us = drawn.get("jitter_us")
    most_us = delay_us * world.limits["jitter_ppm_max"] // 1_000_000
    if not isinstance(jitter_us, int) or not 0 <= jitter_us <= most_us:
        raise Mismatch(f"{order.order}: a jitter of {jitter_us} is not from 0 to {most_us} us")
    due_us = world.now_us + delay_us + jitter_us
    return {"failures": failures, "delay_us": delay_us, "jitter_us": jitter_us, "due_us": due_us}
