"""The recover stage: what ends because somebody is gone, and what time proves (W10, W17, C17; decisions 1, 5, 8).

Expiry fences the old holder before anything replaces it, in one batch, and only with the proof of the domain's own
clock. A holder that its supervisor proved gone frees the order at once, without waiting for the lease. What was used
until then is charged, the rest is free again, so that a killed attempt does not wedge the next.
"""

from __future__ import annotations

from typing import Literal

from fencepost.core.commands import EndBackoff, ExpireAttempt, ProveHolderGone, Reexamine, SettleHold
from fencepost.core.decide import ending
from fencepost.core.decide.batch import Batch, Decided
from fencepost.core.decide.claim import held_elsewhere, wanted
from fencepost.core.decide.clock import prove_deadline, prove_expiry
from fencepost.core.machines import LIVE
from fencepost.core.reasons import Refusal
from fencepost.core.records.attempt import HolderGoneProof
from fencepost.core.records.budget import HoldSettled
from fencepost.core.state import AttemptState, HoldState, OrderState


def _version_refusal(subject: str, found: int, expected: int) -> Refusal | None:
    if found == expected:
        return None
    detail = {"subject": subject, "found": str(found), "expected": str(expected)}
    return Refusal(code="version_moved", field="/expected", detail=detail)


def _missing(field: str, subject: str) -> Refusal:
    return Refusal(code="not_found", field=field, detail={"subject": subject})


def expire(batch: Batch, command: ExpireAttempt) -> Decided | Refusal:
    attempt = batch.find(command.attempt, AttemptState)
    if attempt is None:
        return _missing("/attempt", command.attempt)
    if attempt.state not in LIVE and attempt.state != "reserved":
        detail = {
            "subject": attempt.attempt,
            "state": attempt.state,
            "needed": "a reservation or a live lease",
        }
        return Refusal(code="attempt_state", field="/attempt", detail=detail)
    refusal = _version_refusal(attempt.attempt, attempt.version, command.expected)
    if refusal is not None:
        return refusal
    reserved = attempt.state == "reserved"
    deadline_us = attempt.activation_deadline_us if reserved else attempt.lease_us
    refusal = prove_expiry(
        batch,
        "reservation_expiry" if reserved else "lease_expiry",
        attempt.attempt,
        attempt.version,
        attempt.fence,
        deadline_us,
    )
    if refusal is not None:
        return refusal
    proof = batch.facts[-1].seq
    if reserved:
        ending.move_attempt(batch, attempt, "expired_no_effect", reason="reservation_expired", evidence=str(proof))
        ending.release(batch, attempt, "reservation_expired")
        ending.move(batch, attempt.order, "ready", "reservation_expired", attempt.attempt)
    else:
        _end_unreported(batch, attempt, "lease_expired", "expiry", attempt.lease_us, str(proof))
    return batch.decided({"order": attempt.order, "state": ending.order_of(batch, attempt.order).state})


def _end_unreported(
    batch: Batch,
    attempt: AttemptState,
    reason: Literal["lease_expired", "holder_gone"],
    basis: Literal["expiry", "holder_gone"],
    until_us: int,
    evidence: str,
) -> None:
    """End an activated attempt that will not report: charge its time, free the rest, let the order go on."""
    ending.move_attempt(batch, attempt, "lease_expired", "cancelled_no_effect", reason=reason, evidence=evidence)
    hold = ending.hold_of(batch, attempt)
    time_us = min(max(until_us - attempt.activated_us, 0), hold.held.get(ending.TIME, 0))
    amounts, receipts, conservative = ending.used(ending.late_usages(batch, attempt), hold)
    time_us = max(time_us, amounts.pop(ending.TIME, 0))
    if time_us:
        amounts[ending.TIME] = time_us
    batch.emit(attempt.hold, HoldSettled(charged=amounts, basis=basis, receipts=receipts, flagged=conservative))
    ending.lose(batch, attempt.order, reason, attempt.attempt)


def prove_holder_gone(batch: Batch, command: ProveHolderGone) -> Decided | Refusal:
    attempt = batch.find(command.attempt, AttemptState)
    if attempt is None:
        return _missing("/attempt", command.attempt)
    if attempt.fence != command.fence:
        return Refusal(code="stale_fence", field="/fence", detail={"subject": attempt.attempt})
    if attempt.state not in LIVE and attempt.state != "reserved":
        detail = {
            "subject": attempt.attempt,
            "state": attempt.state,
            "needed": "a reservation or a live lease",
        }
        return Refusal(code="attempt_state", field="/attempt", detail=detail)
    if not _proof_fits(attempt, command):
        return Refusal(code="holder_alive", field="/basis", detail={"subject": attempt.attempt})
    batch.emit(
        attempt.attempt,
        HolderGoneProof(
            attempt=attempt.attempt,
            order=attempt.order,
            fence=attempt.fence,
            worker=attempt.worker,
            host=command.host,
            boot_id=command.boot_id,
            basis=command.basis,
            evidence=command.evidence,
        ),
    )
    proof = str(batch.facts[-1].seq)
    if attempt.state == "reserved":
        ending.move_attempt(batch, attempt, "cancelled_no_effect", reason="holder_gone", evidence=proof)
        ending.release(batch, attempt, "holder_gone")
        ending.move(batch, attempt.order, "ready", "holder_gone", attempt.attempt)
    else:
        until_us = min(batch.now_us, attempt.lease_us)
        _end_unreported(batch, attempt, "holder_gone", "holder_gone", until_us, proof)
    return batch.decided({"order": attempt.order, "state": ending.order_of(batch, attempt.order).state})


def _proof_fits(attempt: AttemptState, command: ProveHolderGone) -> bool:
    """Locks say something only on the holder's own host and boot; a later boot only on its own host."""
    if command.host != attempt.host:
        return False
    same_boot = command.boot_id == attempt.boot_id
    return same_boot if command.basis == "locks_free" else not same_boot


def settle_hold(batch: Batch, command: SettleHold) -> Decided | Refusal:
    """The facts of an ended attempt did not come by the recorded time: all that is held is charged, and flagged."""
    hold = batch.find(command.hold, HoldState)
    if hold is None:
        return _missing("/hold", command.hold)
    refusal = _version_refusal(hold.hold, hold.version, command.expected)
    if refusal is not None:
        return refusal
    if hold.state != "unsettled":
        detail = {"subject": hold.hold, "state": hold.state, "needed": "unsettled"}
        return Refusal(code="hold_state", field="/hold", detail=detail)
    refusal = prove_deadline(batch, "unsettled_hold", "budget_hold", hold.hold, hold.version, hold.settle_by_us)
    if refusal is not None:
        return refusal
    batch.emit(hold.hold, HoldSettled(charged=hold.held, basis="proved_deadline", flagged=True))
    return batch.decided({"hold": hold.hold})


def end_backoff(batch: Batch, command: EndBackoff) -> Decided | Refusal:
    order = batch.find(command.order, OrderState)
    if order is None:
        return _missing("/order", command.order)
    refusal = _version_refusal(order.order, order.version, command.expected)
    if refusal is not None:
        return refusal
    if order.state != "retry_wait":
        detail = {"subject": order.order, "state": order.state, "needed": "retry_wait"}
        return Refusal(code="order_state", field="/order", detail=detail)
    refusal = prove_deadline(batch, "backoff", "work_order", order.order, order.version, order.retry_due_us)
    if refusal is not None:
        return refusal
    ending.move(batch, order.order, "ready", "backoff_over", str(batch.facts[-1].seq))
    return batch.decided({"order": order.order})


def reexamine(batch: Batch, command: Reexamine) -> Decided | Refusal:
    """Budget may have come free, or have run out for good, since the order was blocked."""
    order = batch.find(command.order, OrderState)
    if order is None:
        return _missing("/order", command.order)
    refusal = _version_refusal(order.order, order.version, command.expected)
    if refusal is not None:
        return refusal
    if order.state != "blocked_budget":
        detail = {"subject": order.order, "state": order.state, "needed": "blocked_budget"}
        return Refusal(code="order_state", field="/order", detail=detail)
    if ending.exhausted_on_path(batch, order) is not None:
        ending.end(batch, order.order, "budget_exhausted", "budget_exhausted")
        return batch.decided({"order": order.order, "state": "budget_exhausted"})
    refusal = held_elsewhere(batch, order, wanted(batch, order))
    if refusal is not None:
        return refusal
    ending.move(batch, order.order, "ready", "budget_freed")
    return batch.decided({"order": order.order, "state": "ready"})
