"""Folding of attempts, results and their accounting."""

from __future__ import annotations

from typing import get_args

from fencepost.core.amounts import charged_with
from fencepost.core.canonical import encode_trusted, sanitize
from fencepost.core.deadlines import has_lapsed
from fencepost.core.evolve.edit import (
    Edit,
    book,
    claim_digest,
    claim_revision,
    move_attempt,
    move_order,
    require_verdict,
)
from fencepost.core.ids import sha256_of
from fencepost.core.limits import LEASE_MAX_US, NOTE_BYTES_MAX
from fencepost.core.machines import BUDGET_HOLD, LIVE, CorruptHistory
from fencepost.core.records import attempt, budget
from fencepost.core.records.common import StoppedFor
from fencepost.core.records.envelope import Wire
from fencepost.core.state import (
    CLOCK,
    KERNEL_RECEIPTS,
    AttemptState,
    ClockState,
    HoldState,
    OrderState,
    ReceiptState,
    WorkerState,
    receipt_subject,
)

_ONE_ATTEMPT = {"attempts": 1}
STOPS = frozenset(get_args(StoppedFor))
"""Reasons of a move that rest on the holder's own word, but for a lease that the clock has ended."""


def is_live(edit: Edit, known: AttemptState) -> bool:
    """Whether the attempt's fence is live: what decides about renewals, events and reports."""
    return known.state in LIVE and not has_lapsed(edit.need(CLOCK, ClockState), known.lease_us)


def require_live_fence(edit: Edit, known: AttemptState, order: OrderState, fence: int) -> None:
    """What is said of an order comes from its own attempt, under the fence that is live (W17)."""
    if known.fence != fence or order.attempt != known.attempt or not is_live(edit, known):
        raise edit.corrupt(f"{known.attempt} speaks under a stale fence")


def _require_lease(edit: Edit, until_us: int, what: str) -> None:
    """A lease ends after now, and within the longest one that there may be (C2)."""
    edit.require(edit.now_us < until_us <= edit.now_us + LEASE_MAX_US, f"{what} is not from now to a permitted end")


def worker_enrolled(edit: Edit, body: attempt.WorkerEnrolled) -> None:
    edit.create(
        body.worker,
        WorkerState(
            version=1,
            worker=body.worker,
            host=body.host,
            boot_id=body.boot_id,
            pid=body.pid,
            enrolled_us=edit.now_us,
            executors=body.executors,
        ),
    )


def attempt_reservation(edit: Edit, body: attempt.AttemptReservation) -> None:
    name = edit.fact.subject
    order = edit.need(body.order, OrderState)
    if body.generation != order.generation + 1 or body.ordinal != order.ordinal + 1:
        raise CorruptHistory(f"record {edit.fact.seq}: generation or ordinal of {order.order} is not the next")
    if body.fence != body.generation:
        raise edit.corrupt(f"the fence of {name} is not its generation")
    if (body.plan, body.spec, body.order_version, body.accounts) != (
        order.plan,
        order.spec,
        order.version,
        order.accounts,
    ):
        raise edit.corrupt(f"{name} is reserved for another version of {order.order}")
    worker = edit.need(body.worker, WorkerState)
    if body.host != worker.host or body.boot_id != worker.boot_id:
        raise edit.corrupt(f"{name} is held by another host")
    _require_lease(edit, body.activation_deadline_us, f"the reservation of {name}")
    if body.amounts.get("attempts") != 1:
        raise edit.corrupt(f"{name} does not hold exactly one attempt")
    require_verdict(edit, order, "holds")
    born = AttemptState(
        version=1,
        attempt=name,
        order=body.order,
        plan=body.plan,
        ordinal=body.ordinal,
        generation=body.generation,
        fence=body.fence,
        state="reserved",
        reason="waiting_for_activation",
        worker=body.worker,
        host=body.host,
        boot_id=body.boot_id,
        hold=body.hold,
        claim=claim_digest("", name, body.worker, body.fence, "reserved", body.activation_deadline_us),
        reserved_us=edit.now_us,
        activation_deadline_us=body.activation_deadline_us,
        reservation_seq=edit.fact.seq,
    )
    edit.create(name, born)
    edit.create(
        body.hold,
        HoldState(
            version=1,
            hold=body.hold,
            attempt=name,
            order=body.order,
            accounts=body.accounts,
            state=BUDGET_HOLD.first[0],
            held=body.amounts,
        ),
    )
    move_order(
        edit,
        order,
        "reserved",
        "waiting_for_activation",
        generation=body.generation,
        ordinal=body.ordinal,
        attempt=name,
    )
    book(edit, body.accounts, hold=body.amounts)


def attempt_descriptor(edit: Edit, body: attempt.AttemptDescriptor) -> None:
    """Activation charges one attempt in its own record, so that a crash cannot pass the ceiling (lifecycle, 8)."""
    known = edit.need(edit.fact.subject, AttemptState)
    if known.version != body.reservation_version or known.fence != body.fence or known.claim != body.claim:
        raise CorruptHistory(f"record {edit.fact.seq}: {known.attempt} is not the reservation that was activated")
    move_attempt(
        edit,
        known,
        "leased",
        "waiting_for_start",
        lease_us=body.lease_until_us,
        activated_us=body.lease_from_us,
        input_set=body.input_set,
        descriptor_seq=edit.fact.seq,
    )
    order = edit.need(body.order, OrderState)
    if order.attempt != known.attempt or order.spec != body.spec or known.worker != body.worker:
        raise edit.corrupt(f"{known.attempt} is activated for another order, spec or worker")
    edit.require((body.checkpoint or "") == order.checkpoint, f"{known.attempt} resumes from another checkpoint")
    edit.require(body.lease_from_us == edit.now_us, f"the lease of {known.attempt} is not new")
    _require_lease(edit, body.lease_until_us, f"the lease of {known.attempt}")
    lapsed = has_lapsed(edit.need(CLOCK, ClockState), known.activation_deadline_us)
    edit.require(not lapsed, f"the reservation of {known.attempt} is over")
    move_order(edit, order, "active", "attempt_running")
    hold = edit.need(known.hold, HoldState)
    held = edit.less(hold.held, _ONE_ATTEMPT, known.hold)
    edit.change(known.hold, hold, held=held, charged=charged_with(hold.charged, _ONE_ATTEMPT))
    book(edit, hold.accounts, free=_ONE_ATTEMPT, charge=_ONE_ATTEMPT)


def lease_renewal(edit: Edit, body: attempt.LeaseRenewal) -> None:
    worker = edit.need(edit.fact.subject, WorkerState)
    edit.change(worker.worker, worker)
    _require_lease(edit, body.until_us, f"the renewed lease of {worker.worker}")
    for name in body.attempts:
        known = edit.need(name, AttemptState)
        if not is_live(edit, known) or known.worker != worker.worker:
            raise CorruptHistory(f"record {edit.fact.seq}: {name} has no live lease of {worker.worker}")
        renewed = edit.change(name, known, lease_us=body.until_us)
        edit.change(name, renewed, claim=claim_revision(known.claim, renewed))


def attempt_event(edit: Edit, body: attempt.AttemptEvent) -> None:
    known = edit.need(edit.fact.subject, AttemptState)
    if known.fence != body.fence or known.order != body.order or not is_live(edit, known):
        raise edit.corrupt(f"{known.attempt} speaks under a stale fence")
    if body.input_set != known.input_set or body.spec != edit.need(body.order, OrderState).spec:
        raise edit.corrupt(f"{known.attempt} speaks of another spec or input set")
    heard: dict[str, object] = {"heard_us": edit.now_us}
    if body.family == "heartbeat_observed" and body.note:
        heard["note"] = sanitize(body.note, NOTE_BYTES_MAX)
    if body.family == "execution_started" and known.state == "leased":
        move_attempt(edit, known, "running", "attempt_running", **heard)
    else:
        edit.change(known.attempt, known, **heard)


def attempt_result(edit: Edit, body: attempt.AttemptResult) -> None:
    """A result under a live fence ends the lease: nothing of that attempt expires any more (lifecycle, 3)."""
    known = edit.need(edit.fact.subject, AttemptState)
    order = edit.need(body.order, OrderState)
    require_live_fence(edit, known, order, body.fence)
    if body.spec != order.spec or body.claim != known.claim or body.facts.input_set != known.input_set:
        raise edit.corrupt(f"{known.attempt} reports on another spec, claim or input set")
    if body.facts_digest != sha256_of(encode_trusted(body.facts)):
        raise edit.corrupt(f"the digest of {known.attempt}'s result is not that of its facts")
    waits = body.facts.outcome == "succeeded" and order.terms.accept.verify
    reason = "waiting_for_verification" if waits else "waiting_for_reduction"
    move_attempt(edit, known, "result_reported", reason, result_seq=edit.fact.seq, result=body.facts_digest)
    move_order(edit, order, "result_pending", reason)


def attempt_stopped(edit: Edit, body: attempt.AttemptStopped) -> None:
    known = edit.need(edit.fact.subject, AttemptState)
    order = edit.need(body.order, OrderState)
    require_live_fence(edit, known, order, body.fence)
    edit.require(not known.stopped_seq, f"{known.attempt} is stopped twice")
    edit.change(known.attempt, known, stopped_seq=edit.fact.seq, stopped=body.reason)


def late_record(edit: Edit, body: attempt.LateRecord) -> None:
    known = edit.need(edit.fact.subject, AttemptState)
    if any((what, digest) == (body.what, body.digest) for what, digest, _ in known.late):
        raise CorruptHistory(f"record {edit.fact.seq}: this late {body.what} is kept already")
    edit.require((known.fence, known.order) == (body.fence, body.order), f"{known.attempt} has another fence or order")
    late = known.state != "reserved" and not is_live(edit, known)
    edit.require(late, f"{known.attempt} may still speak, so that this {body.what} is not late")
    conflicts = body.what == "result" and bool(known.result)
    edit.require(conflicts == (body.disposition == "rejected_conflict"), f"this late {body.what} is of another kind")
    edit.require(body.digest != known.result, f"{known.attempt} has reported this very result")
    if body.what not in ("stop", "yield"):
        printed = body.stdout is not None or body.stderr is not None
        edit.require(not (body.duration_us or printed), f"this late {body.what} tells of an end")
    edit.require(body.facts is None or body.what == "result", f"this late {body.what} has the facts of a result")
    if body.facts is not None:
        edit.require(body.digest == sha256_of(encode_trusted(body.facts)), f"this late {body.what} has another digest")
    edit.change(known.attempt, known, late=(*known.late, (body.what, body.digest, edit.fact.seq)))


def verification_receipt(edit: Edit, body: attempt.VerificationReceipt) -> None:
    known = edit.need(body.attempt, AttemptState)
    order = edit.need(body.order, OrderState)
    waits = known.state == "result_reported" and order.state == "result_pending" and order.attempt == known.attempt
    if known.result != body.result or known.verification_seq or not waits:
        raise CorruptHistory(f"record {edit.fact.seq}: this verification is for another result of {known.attempt}")
    edit.change(
        known.attempt,
        known,
        verification_seq=edit.fact.seq,
        verification=body.outcome,
        reason="waiting_for_reduction",
    )
    edit.change(order.order, order, reason="waiting_for_reduction")


_APPLIED = {
    "applied": ("applied", "accepted"),
    "retry": ("retry_wait", "retryable_failed"),
    "failed": ("failed", "failed"),
}


def result_application(edit: Edit, body: attempt.ResultApplication) -> None:
    projection = application_projection(edit, body)
    if projection != body.projection:
        raise CorruptHistory(f"record {edit.fact.seq}: the projection of {body.order} is not the recorded one")


def application_projection(edit: Edit, body: attempt.ResultApplication) -> str:
    """Apply the decision, and return the digest of the order's own projection behind it."""
    order = edit.need(body.order, OrderState)
    known = edit.need(body.attempt, AttemptState)
    order_target, attempt_target = _APPLIED[body.decision]
    checked = body.checked
    if not (
        order.attempt == known.attempt
        and order.version == checked.order_version
        and order.spec == checked.spec
        and known.version == checked.attempt_version
        and known.generation == checked.generation
        and known.input_set == checked.input_set
    ):
        raise edit.corrupt(f"the application of {known.attempt} rests on other versions")
    if (body.failure is None) != (body.decision == "applied") or (body.backoff is None) != (body.decision != "retry"):
        raise edit.corrupt(f"the decision about {known.attempt} does not follow from its verdict")
    changes: dict[str, object] = {"result_seq": known.result_seq, "application_seq": edit.fact.seq}
    if body.decision != "applied":
        changes["failures"] = order.failures + 1
    if body.backoff is not None:
        changes["retry_due_us"] = body.backoff.due_us
    reason = "backoff" if body.decision == "retry" else body.reason
    moved = move_order(edit, order, order_target, reason, **changes)
    move_attempt(edit, known, attempt_target, body.reason, application_seq=edit.fact.seq)
    return projection_digest(moved)


class Projection(Wire, frozen=True):
    """What a ResultApplication's digest covers: the order's own projection, without its accounting."""

    order: str
    version: int
    spec: str
    state: str
    reason: str
    attempt: str | None
    generation: int
    failures: int
    retry_due_us: int
    result_seq: int
    application_seq: int


def projection_digest(order: OrderState) -> str:
    projected = Projection(
        order=order.order,
        version=order.version,
        spec=order.spec,
        state=order.state,
        reason=order.reason,
        attempt=order.attempt,
        generation=order.generation,
        failures=order.failures,
        retry_due_us=order.retry_due_us,
        result_seq=order.result_seq,
        application_seq=order.application_seq,
    )
    return sha256_of(encode_trusted(projected))


def attempt_moved(edit: Edit, body: attempt.AttemptMoved) -> None:
    known = edit.need(edit.fact.subject, AttemptState)
    if known.state != body.origin:
        raise CorruptHistory(f"record {edit.fact.seq}: {known.attempt} is {known.state}, not {body.origin}")
    if body.target in ("leased", "accepted") or (body.target == "result_reported" and known.state in LIVE):
        raise edit.corrupt(f"{known.attempt} becomes {body.target} by another record")
    if body.target == "expired_no_effect":
        edit.require_proof("reservation_expiry", known.attempt, known.version)
    elif body.target == "lease_expired" and body.reason == "lease_expired":
        edit.require_proof("lease_expiry", known.attempt, known.version)
    elif body.target == "lease_expired":
        edit.require(known.gone_seq == edit.fact.seq - 1, f"the holder of {known.attempt} is not proved gone")
    elif body.reason in STOPS and known.state != "lease_expired":
        edit.require(known.stopped == body.reason, f"nobody said of {known.attempt} that it was stopped: {body.reason}")
    move_attempt(edit, known, body.target, body.reason)


def holder_gone_proof(edit: Edit, body: attempt.HolderGoneProof) -> None:
    known = edit.need(edit.fact.subject, AttemptState)
    if known.fence != body.fence or known.worker != body.worker:
        raise CorruptHistory(f"record {edit.fact.seq}: the proof is for another holder than that of {known.attempt}")
    edit.change(known.attempt, known, gone_seq=edit.fact.seq)


def _may_credit(edit: Edit, hold: HoldState, basis: str) -> bool:
    """A planned pause costs no attempt (lifecycle, 8): a drain, or a yield with a checkpoint of its own."""
    known = edit.need(hold.attempt, AttemptState)
    return (basis == "stopped" and known.stopped == "drained") or (basis == "yielded" and bool(known.checkpoint))


def _remember(edit: Edit, hold: HoldState, receipts: tuple[str, ...]) -> None:
    """A receipt of a provider is booked once in the whole scope. The kernel's own name their attempt."""
    for name in receipts:
        if not name.startswith(KERNEL_RECEIPTS):
            edit.create(receipt_subject(name), ReceiptState(version=1, hold=hold.hold, seq=edit.fact.seq))


def hold_settled(edit: Edit, body: budget.HoldSettled) -> None:
    hold = edit.need(edit.fact.subject, HoldState)
    BUDGET_HOLD.require(hold.state, "settled")
    if body.basis == "proved_deadline":
        edit.require_proof("unsettled_hold", hold.hold, hold.version)
    if not set(body.receipts).isdisjoint(hold.receipts):
        raise edit.corrupt(f"a receipt of {hold.hold} is booked twice")
    _remember(edit, hold, body.receipts)
    edit.require(body.estimated_us <= body.charged.get("time_us", 0), f"{hold.hold} estimates more than it charges")
    if body.credited:
        earned = body.credited == _ONE_ATTEMPT and _may_credit(edit, hold, body.basis)
        edit.require(earned, f"{hold.hold} credits what nobody gives")
        order = edit.need(hold.order, OrderState)
        edit.change(order.order, order, yields=order.yields + 1)
    charged = charged_with(hold.charged, body.charged)
    edit.change(
        hold.hold,
        hold,
        state="settled",
        held={},
        charged=edit.less(charged, body.credited, hold.hold) if body.credited else charged,
        basis=body.basis,
        receipts=(*hold.receipts, *body.receipts),
        estimated_us=body.estimated_us,
    )
    book(edit, hold.accounts, free=hold.held, charge=body.charged, credit=body.credited)


def hold_released(edit: Edit, body: budget.HoldReleased) -> None:
    hold = edit.need(edit.fact.subject, HoldState)
    BUDGET_HOLD.require(hold.state, "released")
    edit.change(hold.hold, hold, state="released", held={}, basis=body.reason)
    book(edit, hold.accounts, free=hold.held)


def hold_unsettled(edit: Edit, body: budget.HoldUnsettled) -> None:
    hold = edit.need(edit.fact.subject, HoldState)
    BUDGET_HOLD.require(hold.state, "unsettled")
    edit.require(
        sorted((*body.freed, *body.dimensions)) == sorted(hold.held), f"{hold.hold} holds other dimensions than these"
    )
    freed = {dimension: hold.held[dimension] for dimension in body.freed}
    held = edit.less(hold.held, freed, hold.hold)
    edit.change(hold.hold, hold, state="unsettled", held=held, settle_by_us=body.settle_by_us)
    book(edit, hold.accounts, free=freed)


def hold_adjusted(edit: Edit, body: budget.HoldAdjusted) -> None:
    hold = edit.need(edit.fact.subject, HoldState)
    if BUDGET_HOLD.rows[hold.state]:
        raise CorruptHistory(f"record {edit.fact.seq}: {hold.hold} has not ended, so nothing is adjusted")
    if set(body.receipts) & set(hold.receipts):
        raise CorruptHistory(f"record {edit.fact.seq}: a receipt of {hold.hold} is booked twice")
    _remember(edit, hold, body.receipts)
    edit.require(body.explained_us <= hold.estimated_us, f"{hold.hold} has no such estimate")
    edit.change(
        hold.hold,
        hold,
        charged=charged_with(hold.charged, body.charged),
        receipts=(*hold.receipts, *body.receipts),
        estimated_us=hold.estimated_us - body.explained_us,
    )
    book(edit, hold.accounts, charge=body.charged)
