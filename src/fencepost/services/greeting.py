"""The reply that says everything: who an attempt is, what its order asks for, and what earlier attempts have left."""

from __future__ import annotations

from typing import Any, Final

from fencepost.core import canonical
from fencepost.core.records.plan import AnswerRecorded
from fencepost.core.state import OrderState
from fencepost.kernel.read import Look
from fencepost.services.children import child_documents
from fencepost.services.desk import Desk

ANSWERS_BYTES_MAX: Final = 2**19
"""Of all answers in one reply; those that do not fit are asked for one by one."""


def hello_document(look: Look, desk: Desk, order: OrderState) -> dict[str, Any]:
    spec = desk.spec
    answers, left_off = _answers(look, order)
    return {
        "attempt": desk.attempt,
        "order": order.order,
        "task": order.task,
        "plan": order.plan,
        "fence": desk.lease.fence,
        "params": canonical.parse(spec.params.encode()) if spec.params else {},
        "spec": {
            "digest": spec.spec,
            "input_set": desk.input_set,
            "classification": spec.classification,
            "attempt_time_us": spec.attempt_time_us,
            "outputs": list(spec.outputs),
            "effects": spec.effects,
        },
        "number": order.checkpoint_number,
        "checkpoints": {
            kind: {
                "number": saved.number,
                "checkpoint": saved.envelope,
                "digest": saved.payload,
                "size": saved.bytes,
            }
            for kind, saved in sorted(order.checkpoints.items())
        },
        "answers": answers,
        "answers_left_off": left_off,
        "waited": _waited(order),
        "children": child_documents(look, order),
    }


def _waited(order: OrderState) -> dict[str, Any] | None:
    """The last wait that has come to its end, and by what."""
    waited = order.waited
    if waited is None or not waited.by:
        return None
    names = {child: name for name, child in order.children.items()}
    return {
        "by": waited.by,
        "question": waited.question,
        "children": [names[child] for child in waited.orders if child in names],
        "after_us": waited.after_us,
    }


def _answers(look: Look, order: OrderState) -> tuple[dict[str, str], list[str]]:
    """Question -> answer, the newest first as far as they fit, and the questions of those that do not."""
    answers: dict[str, str] = {}
    left_off = []
    room = ANSWERS_BYTES_MAX
    for question, seq in sorted(order.answers.items(), key=lambda item: -item[1]):
        value = look.body(seq, AnswerRecorded).value
        room -= len(value.encode())
        if room < 0:
            left_off.append(question)
        else:
            answers[question] = value
    return answers, left_off
