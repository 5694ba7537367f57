"""One readable line a record: number, kind, whom it is about, and what it says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from fencepost.core.chain import BrokenChain, open_record
from fencepost.core.state import AttemptState, HoldState, OrderState, PlanState
from fencepost.kernel.read import Look
from fencepost.surfaces.cli.words import amounts, one_line

_KIND_WIDTH = 26
_SUBJECT_WIDTH = 20
_NUMBER_WIDTH = 12  # of the number and of the blanks between the columns
_WHAT_WIDTH = 36
_COLUMN_LEAST = 8
_NAMES_MAX = 10_000
_WHAT = (
    "state",
    "action",
    "rule",
    "decision",
    "outcome",
    "disposition",
    "family",
    "reason",
    "message",
    "name",
    "work_kind",
    "note",
)


class RecordLines:
    """Makes lines of at most `columns`, None for as long as they are; remembers names of the subjects it has met."""

    def __init__(self, columns: int | None) -> None:
        self._end = None if columns is None else max(columns - 1, 1)
        # On a narrow terminal what happened keeps its place, and the columns before it give way.
        before = _KIND_WIDTH + _SUBJECT_WIDTH if columns is None else max(columns - _WHAT_WIDTH - _NUMBER_WIDTH, 0)
        self._kind_width = min(_KIND_WIDTH, max(before * 3 // 5, _COLUMN_LEAST))
        self._subject_width = min(_SUBJECT_WIDTH, max(before - self._kind_width, _COLUMN_LEAST))
        self._names: dict[str, str] = {}

    def line(self, look: Look, seq: int, data: bytes) -> str:
        try:
            record = open_record(seq, data)
        except BrokenChain as error:
            return one_line(f"{seq:>6}  {error.problem}")[: self._end]
        subject = self._name(look, record.subject)[: self._subject_width].ljust(self._subject_width)
        kind = record.kind[: self._kind_width].ljust(self._kind_width)
        what = what_of(msgspec.to_builtins(record.body))
        text = f"{seq:>6}  {kind}  {subject}  {what}"
        return one_line(text)[: self._end].rstrip()

    def _name(self, look: Look, subject: str) -> str:
        known = self._names.get(subject)
        if known is None:
            if len(self._names) >= _NAMES_MAX:
                self._names.clear()
            known = self._names[subject] = _named(look, subject)
        return known


def _named(look: Look, subject: str) -> str:
    """A short name: the task of an order, `task#2` for its second attempt, else the end of the id."""
    value = look.get(subject)
    if isinstance(value, PlanState):
        return value.name
    if isinstance(value, OrderState):
        return value.task
    if isinstance(value, HoldState):
        value = look.get(value.attempt)
    if isinstance(value, AttemptState):
        order = look.order(value.order)
        return f"{order.task if order is not None else value.order[-8:]}#{value.ordinal}"
    kind, _, rest = subject.rpartition("_")
    if kind and len(rest) == 32:
        return f"{kind}_..{rest[-8:]}"
    return subject.replace("sha256:", "")


def what_of(body: Mapping[str, Any]) -> str:
    """The gist of a body: where it moved, or its most telling fields."""
    if "origin" in body and "target" in body:
        return f"{body['origin']} -> {body['target']} ({body.get('reason', '')})"
    texts = [body[name] for name in _WHAT if isinstance(body.get(name), str)]
    parts = [text for text in texts if text and not text.startswith("sha256:")]
    facts = body.get("facts")
    if isinstance(facts, dict):
        parts += [str(facts[name]) for name in ("outcome", "message") if facts.get(name)]
    parts += [f"{name} {amounts(body[name])}" for name in ("ceilings", "amounts", "charged") if body.get(name)]
    return ", ".join(dict.fromkeys(parts))
