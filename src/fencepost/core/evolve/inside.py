"""Folding of what a running program says: checkpoints, files, charges, waits, and a person's answers."""

from __future__ import annotations

from fencepost.core.amounts import charged_with, counted_with
from fencepost.core.canonical import digest_of, encode_trusted
from fencepost.core.charges import booked, receipt_name
from fencepost.core.evolve.attempt import is_live, require_live_fence
from fencepost.core.evolve.edit import Edit, book, move_attempt, move_order
from fencepost.core.ids import sha256_of
from fencepost.core.records import attempt, budget, plan
from fencepost.core.records.plan import Wait
from fencepost.core.state import AttemptState, HoldState, OrderState, ReceiptState, Saved, receipt_subject


def _speaker(
    edit: Edit, body: attempt.CheckpointEnvelope | attempt.AttemptArtifact | attempt.AttemptYielded
) -> tuple[AttemptState, OrderState]:
    """The attempt that a record is about, speaking under its live fence about its own spec, and its order."""
    known = edit.need(edit.fact.subject, AttemptState)
    order = edit.need(body.order, OrderState)
    require_live_fence(edit, known, order, body.fence)
    if body.spec != order.spec or body.input_set != known.input_set:
        raise edit.corrupt(f"{known.attempt} speaks of another spec or input set")
    return known, order


def checkpoint_envelope(edit: Edit, body: attempt.CheckpointEnvelope) -> None:
    """Each checkpoint of an order builds on the one before, whoever saved that: none is lost, none overtakes (W6)."""
    known, order = _speaker(edit, body)
    edit.require(
        body.builds_on == order.checkpoint_number and body.number == body.builds_on + 1,
        f"checkpoint {body.number} of {order.order} does not build on its last",
    )
    envelope = sha256_of(encode_trusted(body))
    saved = Saved(body.number, edit.fact.seq, envelope, body.payload, body.bytes)
    edit.change(known.attempt, known, checkpoint=envelope, heard_us=edit.now_us)
    edit.change(
        order.order,
        order,
        checkpoint_number=body.number,
        checkpoint=envelope,
        checkpoints={**order.checkpoints, body.payload_kind: saved},
    )


def attempt_artifact(edit: Edit, body: attempt.AttemptArtifact) -> None:
    known, _ = _speaker(edit, body)
    edit.change(known.attempt, known, artifacts=known.artifacts + 1, heard_us=edit.now_us)


def attempt_yielded(edit: Edit, body: attempt.AttemptYielded) -> None:
    known, _ = _speaker(edit, body)
    edit.require(body.checkpoint == known.checkpoint, f"{known.attempt} saved another checkpoint last")
    move_attempt(edit, known, "yielded", "yielded", yielded_seq=edit.fact.seq)


def reason_of(wait: Wait) -> str:
    """What an order shows while it waits: the strongest of what may let it go on by itself."""
    if wait.orders:
        return "waiting_for_children"
    if not wait.question:
        return "waiting_for_time"
    return "waiting_for_answer_or_time" if wait.until_us else "waiting_for_answer"


def work_order_waits(edit: Edit, body: plan.WorkOrderWaits) -> None:
    order = edit.need(edit.fact.subject, OrderState)
    known = edit.need(body.attempt, AttemptState)
    edit.require(
        order.attempt == known.attempt and known.state == "yielded", f"{order.order} waits without having yielded"
    )
    wait = body.wait
    own = set(order.children.values())
    edit.require(
        bool(wait.question or wait.orders or wait.until_us > edit.now_us) and own.issuperset(wait.orders),
        f"{order.order} waits for nothing that can come",
    )
    edit.require(body.reason == reason_of(wait), f"{order.order} waits for another reason than it names")
    move_order(edit, order, "waiting", body.reason, wait=wait)


def answer_recorded(edit: Edit, body: plan.AnswerRecorded) -> None:
    order = edit.need(edit.fact.subject, OrderState)
    asked = order.wait is not None and order.wait.question == body.question
    edit.require(asked and body.question not in order.answers, f"{order.order} does not ask {body.question!r}")
    edit.change(order.order, order, answers={**order.answers, body.question: edit.fact.seq})


def usage_charged(edit: Edit, body: budget.UsageCharged) -> None:
    """A receipt is booked once in the scope, on the hold that its attempt had, whatever became of both (W18, W17)."""
    hold = edit.need(edit.fact.subject, HoldState)
    known = edit.need(body.attempt, AttemptState)
    order = edit.need(body.order, OrderState)
    edit.require(
        (hold.attempt, hold.order, known.fence, order.spec) == (body.attempt, body.order, body.fence, body.spec),
        f"the charge on {hold.hold} is of another attempt, order, fence or spec",
    )
    edit.require(hold.state != "released" and known.descriptor_seq > 0, f"{known.attempt} never ran")
    accepted = is_live(edit, known)
    edit.require(accepted == (body.disposition == "accepted"), f"the charge of {known.attempt} is of another kind")
    charged, freed = booked(body.usage, hold.held)
    edit.require(freed == body.freed, f"the charge on {hold.hold} uses up another part of it")
    receipt = ReceiptState(version=1, hold=hold.hold, seq=edit.fact.seq, digest=digest_of(body.usage))
    edit.create(receipt_subject(receipt_name(body.usage)), receipt)
    held = edit.less(hold.held, freed, hold.hold)
    unknown = body.usage.unknown
    edit.change(
        hold.hold,
        hold,
        held=held,
        charged=charged_with(hold.charged, charged),
        charges=hold.charges + 1,
        unknown=counted_with(hold.unknown, unknown),
    )
    book(edit, hold.accounts, free=freed, charge=charged, unknown=unknown)
