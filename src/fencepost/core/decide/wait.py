"""Waiting without holding anything: an attempt yields, its order waits, and goes on by a new attempt (lifecycle, 9).

An order waits for an answer, for its children, for a time, or for whichever comes first. While it waits it has no
attempt, no lease, no slot and no hold, so that what it waits for can always have them.
"""

from __future__ import annotations

from fencepost.core.commands import AnswerOrder, EndWait, ReportYielded, WaitDraft
from fencepost.core.decide import ending
from fencepost.core.decide.batch import Batch, Decided
from fencepost.core.decide.clock import prove_deadline
from fencepost.core.decide.dispatch import fence_refusal, speaker
from fencepost.core.decide.drafts import out_of_range
from fencepost.core.decide.finish import ended_late
from fencepost.core.decide.recover import in_state
from fencepost.core.evolve.inside import reason_of
from fencepost.core.planfile.values import NAME_RULE
from fencepost.core.reasons import Refusal
from fencepost.core.records.attempt import AttemptYielded
from fencepost.core.records.budget import HoldSettled
from fencepost.core.records.plan import AnswerRecorded, Wait, WorkOrderWaits
from fencepost.core.state import OrderState


def report_yielded(batch: Batch, command: ReportYielded) -> Decided | Refusal:
    """The holder saw its tree end. With a checkpoint of its own the attempt is credited back; its time is charged."""
    known = speaker(batch, command)
    if isinstance(known, Refusal):
        return known
    attempt, order = known
    limits = batch.given.limits
    if command.duration_us > limits.duration_max_us:
        return out_of_range("/duration_us", "the duration", f"at most {limits.duration_max_us} us")
    refusal = _wait_refusal(command.wait, order, limits.duration_max_us)
    if refusal is not None:
        return refusal
    stale = fence_refusal(batch, attempt, command.fence)
    if stale is not None:
        return ended_late(batch, attempt, command)
    if attempt.state != "running":
        detail = {"subject": attempt.attempt, "state": attempt.state, "needed": "running"}
        return Refusal(code="attempt_state", field="/attempt", detail=detail)
    batch.emit(
        attempt.attempt,
        AttemptYielded(
            order=order.order,
            spec=command.spec,
            fence=command.fence,
            input_set=command.input_set,
            duration_us=command.duration_us,
            checkpoint=attempt.checkpoint,
            stdout=command.stdout,
            stderr=command.stderr,
        ),
    )
    credited = {"attempts": 1} if attempt.checkpoint and order.yields < limits.yields_max else {}
    charged = {ending.TIME: command.duration_us} if command.duration_us else {}
    batch.emit(
        attempt.hold,
        HoldSettled(charged=charged, basis="yielded", receipts=(ending.time_receipt(attempt),), credited=credited),
    )
    spent = ending.exhausted_on_path(batch, ending.order_of(batch, order.order)) is not None
    if spent and not command.wait.question:
        # Whatever came, no attempt could follow. A person who is asked may raise a ceiling before he answers.
        ending.end(batch, order.order, "budget_exhausted", "budget_exhausted", attempt.attempt)
        return batch.decided({"order": order.order, "state": "budget_exhausted"})
    draft = command.wait
    wait = Wait(
        question=draft.question,
        prompt=draft.prompt,
        orders=draft.orders,
        until_us=batch.now_us + draft.after_us if draft.after_us else 0,
        asked=draft.asked,
    )
    batch.emit(order.order, WorkOrderWaits(attempt=attempt.attempt, wait=wait, reason=reason_of(wait)))
    waiting = ending.order_of(batch, order.order)
    if wait.question and wait.question in waiting.answers:
        ending.move(batch, order.order, "ready", "answered", attempt.attempt)
    elif ending.children_ended(batch, waiting):
        ending.move(batch, order.order, "ready", "children_ended", attempt.attempt)
    return batch.decided({"order": order.order, "state": ending.order_of(batch, order.order).state})


def _wait_refusal(wait: WaitDraft, order: OrderState, duration_max_us: int) -> Refusal | None:
    if not (wait.question or wait.orders or wait.after_us):
        return out_of_range("/wait", "a wait", "for an answer, for children or for a time")
    if wait.question and NAME_RULE.fullmatch(wait.question) is None:
        return out_of_range("/wait/question", "the name of a question", "[a-z][a-z0-9-]{0,62}")
    own = set(order.children.values())
    if len(set(wait.orders)) != len(wait.orders) or not own.issuperset(wait.orders):
        return out_of_range("/wait/orders", "each order of a wait", "a child of the order, named once")
    if wait.after_us > duration_max_us:
        return out_of_range("/wait/after_us", "the time to wait", f"at most {duration_max_us} us")
    return None


def answer(batch: Batch, command: AnswerOrder) -> Decided | Refusal:
    order = batch.find(command.order, OrderState)
    if order is None:
        return Refusal(code="not_found", field="/order", detail={"subject": command.order})
    asked = order.wait.question if order.wait is not None else ""
    question = command.question or asked
    if question in order.answers:
        detail = {"subject": order.task, "question": question}
        return Refusal(code="already_answered", field="/question", detail=detail)
    if not question or question != asked:
        return Refusal(
            code="not_asked", field="/question", detail={"subject": order.task, "question": question or "anything"}
        )
    most = batch.given.limits.answer_bytes_max
    given = len(command.value.encode())
    if given > most:
        detail = {"subject": f"an answer of {given} bytes", "bound": f"{most} bytes"}
        return Refusal(code="too_large", field="/value", detail=detail)
    batch.emit(order.order, AnswerRecorded(question=question, value=command.value))
    ending.move(batch, order.order, "ready", "answered")
    return batch.decided({"order": order.order, "question": question})


def end_wait(batch: Batch, command: EndWait) -> Decided | Refusal:
    order = in_state(batch, "order", command.order, OrderState, ("waiting",), command.expected)
    if isinstance(order, Refusal):
        return order
    if not order.wait_until_us:
        return Refusal(code="not_due", field="/order", detail={"subject": order.order})
    refusal = prove_deadline(batch, "wait", "work_order", order.order, order.version, order.wait_until_us)
    if refusal is not None:
        return refusal
    ending.move(batch, order.order, "ready", "time_passed", str(batch.facts[-1].seq))
    return batch.decided({"order": order.order})
