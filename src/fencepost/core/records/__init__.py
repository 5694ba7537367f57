"""Record kinds: the vocabulary of the journal. One module a subject; `KINDS` is the registry."""

from __future__ import annotations

from fencepost.core.records import attempt, authority, budget, clock, plan
from fencepost.core.records.envelope import FORMAT, KIND_OF, KINDS, Body, Kind, Record, Span, Stamp

__all__ = [
    "FORMAT",
    "KINDS",
    "KIND_OF",
    "Body",
    "Kind",
    "Record",
    "Span",
    "Stamp",
    "attempt",
    "authority",
    "budget",
    "clock",
    "plan",
]
