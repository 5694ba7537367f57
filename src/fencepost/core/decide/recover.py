"""The recover stage: what ends because somebody is gone, and what time proves (W10, W17, C17; decisions 1, 5, 8).

Expiry fences the old holder before anything replaces it, in one batch, and only with the proof of the domain's own
clock. A holder that its supervisor proved gone frees the order at once, without waiting for the lease. What was used
until then is charged, the rest is free again, so that a killed attempt does not wedge the next.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal, TypeVar

from fencepost.core.commands import EndBackoff, ExpireAttempt, ProveHolderGone, Reexamine, SettleHold
from fencepost.core.decide import ending
from fencepost.core.decide.batch import Batch, Decided
from fencepost.core.decide.claim import in_the_way
from fencepost.core.decide.clock import prove_deadline, prove_expiry
from fencepost.core.machines import LIVE
from fencepost.core.reasons import Refusal
from fencepost.core.records.attempt import HolderGoneProof
from fencepost.core.records.budget import HoldSettled
from fencepost.core.state import AttemptState, HoldState, OrderState

V = TypeVar("V", AttemptState, HoldState, OrderState)


HOLDING = frozenset({"reserved", *LIVE})
_STATE_CODES = {"attempt": "attempt_state", "hold": "hold_state", "order": "order_state"}


def in_state(
    batch: Batch, field: str, subject: str, kind: type[V], needed: Collection[str], expected: int | None
) -> V | Refusal:
    """The subject, if it exists, is in one of the states that the command needs and at the version that it saw.

    The order in which these are asked is one for all: whether it is there, its state, its version.
    """
    value = batch.find(subject, kind)
    if value is None:
        return Refusal(code="not_found", field=f"/{field}", detail={"subject": subject})
    if value.state not in needed:
        detail = {"subject": subject, "state": value.state, "needed": " or ".join(sorted(needed))}
        return Refusal(code=_STATE_CODES[field], field=f"/{field}", detail=detail)
    refusal = None if expected is None else ending.version_refusal(subject, value, expected)
    return value if refusal is None else refusal


def expire(batch: Batch, command: ExpireAttempt) -> Decided | Refusal:
    attempt = in_state(batch, "attempt", command.attempt, AttemptState, HOLDING, command.expected)
    if isinstance(attempt, Refusal):
        return attempt
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
    _settle_unreported(batch, attempt, basis, until_us)
    ending.lose(batch, attempt.order, reason, attempt.attempt)


def _settle_unreported(
    batch: Batch, attempt: AttemptState, basis: Literal["expiry", "holder_gone"], until_us: int
) -> None:
    """Charge the time from activation to the proved end, beside what receipts have said, and free the rest."""
    hold = ending.hold_of(batch, attempt)
    time_us = min(max(until_us - attempt.activated_us, 0), hold.held.get(ending.TIME, 0))
    amounts, receipts, conservative = ending.used(batch, ending.late_usages(batch, attempt), hold)
    known_us = amounts.pop(ending.TIME, 0)
    if max(time_us, known_us):
        amounts[ending.TIME] = max(time_us, known_us)
    settled = HoldSettled(
        charged=amounts,
        basis=basis,
        receipts=receipts,
        flagged=conservative,
        estimated_us=max(time_us - known_us, 0),
    )
    batch.emit(attempt.hold, settled)


def prove_holder_gone(batch: Batch, command: ProveHolderGone) -> Decided | Refusal:
    """End what a holder left, on the proof of its own host. One that was cancelled meanwhile is settled by it."""
    attempt = batch.find(command.attempt, AttemptState)
    cancelled = attempt is not None and ending.hold_of(batch, attempt).state == "unsettled"
    if attempt is None or not cancelled:
        known = in_state(batch, "attempt", command.attempt, AttemptState, HOLDING, None)
        if isinstance(known, Refusal):
            return known
        attempt = known
    if attempt.fence != command.fence:
        return Refusal(code="stale_fence", field="/fence", detail={"subject": attempt.attempt})
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
    if cancelled:
        _settle_unreported(batch, attempt, "holder_gone", min(batch.now_us, attempt.lease_us))
    elif attempt.state == "reserved":
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
    hold = in_state(batch, "hold", command.hold, HoldState, ("unsettled",), command.expected)
    if isinstance(hold, Refusal):
        return hold
    refusal = prove_deadline(batch, "unsettled_hold", "budget_hold", hold.hold, hold.version, hold.settle_by_us)
    if refusal is not None:
        return refusal
    estimated_us = hold.held.get(ending.TIME, 0)
    batch.emit(
        hold.hold,
        HoldSettled(charged=hold.held, basis="proved_deadline", flagged=True, estimated_us=estimated_us),
    )
    return batch.decided({"hold": hold.hold})


def end_backoff(batch: Batch, command: EndBackoff) -> Decided | Refusal:
    order = in_state(batch, "order", command.order, OrderState, ("retry_wait",), command.expected)
    if isinstance(order, Refusal):
        return order
    refusal = prove_deadline(batch, "backoff", "work_order", order.order, order.version, order.retry_due_us)
    if refusal is not None:
        return refusal
    ending.move(batch, order.order, "ready", "backoff_over", str(batch.facts[-1].seq))
    return batch.decided({"order": order.order})


def reexamine(batch: Batch, command: Reexamine) -> Decided | Refusal:
    """Budget may have come free, have run out for good, or be held up by something else, since it was blocked."""
    order = in_state(batch, "order", command.order, OrderState, ("blocked_budget",), command.expected)
    if isinstance(order, Refusal):
        return order
    if ending.exhausted_on_path(batch, order) is not None:
        ending.end(batch, order.order, "budget_exhausted", "budget_exhausted")
        return batch.decided({"order": order.order, "state": "budget_exhausted"})
    found = in_the_way(batch, order)
    if found is not None and found.code == order.reason:
        return Refusal(code=found.code, detail=found.detail)
    ending.move(batch, order.order, "ready", "budget_freed")
    if found is not None:
        # What held it up is gone, and something else does: it says so.
        ending.move(batch, order.order, "blocked_budget", found.code, found.account)
        return batch.decided({"order": order.order, "state": "blocked_budget"})
    return batch.decided({"order": order.order, "state": "ready"})
