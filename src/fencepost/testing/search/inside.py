"""What a running program says of itself, as moves: checkpoints, files, charges, child orders, waits; and the answers.

`moves` sends these under every fence that an order ever gave out, as it does with everything that holders say.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from msgspec.structs import replace

from fencepost.core import commands as c
from fencepost.core.ids import sha256_of
from fencepost.core.records.common import ArtifactRef
from fencepost.core.state import AttemptState, OrderState
from fencepost.testing.search.place import Place
from fencepost.testing.search.worlds import DIGEST, UNIT_US

QUESTION = "colour"
WAIT_US = 2 * UNIT_US
_FILE = ArtifactRef(path="kept.txt", digest=DIGEST, bytes=1, mode=0o644)
_ASKED = tuple(sha256_of(word) for word in (b"time", b"question or time"))
WAITS: dict[str, tuple[str, c.WaitDraft]] = {
    "question": ("an answer", c.WaitDraft(question=QUESTION)),
    "time": ("a time", c.WaitDraft(after_us=WAIT_US, asked=_ASKED[0])),
    "question_or_time": ("an answer or a time", c.WaitDraft(question=QUESTION, after_us=WAIT_US, asked=_ASKED[1])),
}
"""What `World.waits` names, beside "children" and "children_or_question": every child that the order has by then."""


class Said(NamedTuple):
    """One thing that a program says. `spends` is the act that it is."""

    says: str
    command: Any
    spends: str


def of_attempt(place: Place, attempt: AttemptState, name: str, fence: int, spec: str, input_set: str) -> Iterator[Said]:
    """Everything that the program of an attempt says under one fence."""
    left = place.left
    order: OrderState = place.values[attempt.order]
    token: dict[str, Any] = {"attempt": attempt.attempt, "fence": fence, "spec": spec, "input_set": input_set}
    if left.get("checkpoint"):
        number = order.checkpoint_number
        for builds_on in (number, number - 1 if number else 1):
            saved = c.SaveCheckpoint(**token, kind="steps/1", builds_on=builds_on, payload=DIGEST, bytes=1)
            says = f"{name} saves a checkpoint"
            yield Said(says if builds_on == number else f"{says} that builds on another", saved, "checkpoint")
    if left.get("artifact"):
        yield Said(f"{name} keeps a file", c.RecordArtifact(**token, artifact=_FILE), "artifact")
    if left.get("charge"):
        for variant, usage in place.shared.world.charges.items():
            yield Said(f"{name} charges {variant}", c.ChargeUsage(**token, usage=usage), "charge")
    if left.get("child"):
        for says, draft in _children(place):
            yield Said(f"{name} orders {says}", c.SubmitChild(**token, order=draft), "child")
    if left.get("yield"):
        for says, wait in _waits(place, order):
            yielded = c.ReportYielded(**token, duration_us=UNIT_US, wait=wait)
            yield Said(f"{name} yields and waits for {says}", yielded, "yield")


def _children(place: Place) -> Iterator[tuple[str, c.OrderDraft]]:
    for number, draft in enumerate(place.shared.world.children):
        yield draft.task, draft
        if number == 0:
            yield f"another {draft.task}", replace(draft, run=("false",))


def _waits(place: Place, order: OrderState) -> Iterator[tuple[str, c.WaitDraft]]:
    for kind in place.shared.world.waits:
        children = tuple(order.children.values())
        if kind in WAITS:
            yield WAITS[kind]
        elif children:
            question = QUESTION if kind == "children_or_question" else ""
            told = "all its children"
            yield f"{told} or an answer" if question else told, c.WaitDraft(orders=children, question=question)
    strangers = [each.order for each in _orders(place) if order.order not in (each.parent, each.order)]
    if place.shared.world.children and strangers:
        yield "an order that is no child of its own", c.WaitDraft(orders=(strangers[0],))


def _orders(place: Place) -> list[OrderState]:
    return [value for value in place.values.values() if isinstance(value, OrderState)]


def of_order(place: Place, order: OrderState, name: str) -> Iterator[Said]:
    """What a person answers to an order."""
    if place.left.get("answer"):
        yield Said(f"a person answers {name}", c.AnswerOrder(order=order.order, value="yes"), "answer")
        named = c.AnswerOrder(order=order.order, value="no", question=QUESTION)
        yield Said(f"a person answers the question of {name}", named, "answer")
        other = c.AnswerOrder(order=order.order, value="yes", question="another")
        yield Said(f"a person answers what {name} never asked", other, "answer")
