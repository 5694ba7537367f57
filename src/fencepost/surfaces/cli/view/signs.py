"""How states look: a sign, a letter where only ASCII can be shown, a word that is short enough for a column, a style.

The state itself is told by sign and word; colour only repeats it. Every state of the work-order machine has a row
here; one that a later program brings shows its own name.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

STYLES: Mapping[str, str] = MappingProxyType(
    {
        "": "",
        "strong": "1",
        "faint": "2",
        "done": "32",
        "lost": "31;1",
        "over": "31",
        "moving": "36;1",
        "later": "33",
        "person": "35;1",
    }
)
"""Style -> parameters of the terminal's own colours, so that light and dark themes both stay readable."""


class Sign(NamedTuple):
    """One state. `rank` says what is kept when there is no room for all: the smallest stay."""

    glyph: str
    letter: str
    word: str
    style: str
    rank: int


PERSON, RUNNING, LOST, LATER, SOON, DONE, BLOCKED, OVER = range(8)

ASKING = "asking"
"""A waiting order that asks a person: told apart within its state, since it is for whoever looks."""

SIGNS: Mapping[str, Sign] = MappingProxyType(
    {
        "conflict": Sign("!", "!", "conflict", "person", PERSON),
        "reconciling": Sign("!", "!", "unresolved", "person", PERSON),
        "unknown_terminal": Sign("!", "!", "unknown", "person", PERSON),
        "quarantined": Sign("!", "!", "quarantined", "person", PERSON),
        "blocked_policy": Sign("!", "!", "not allowed", "person", PERSON),
        "active": Sign("●", "*", "running", "moving", RUNNING),
        "result_pending": Sign("◐", "v", "checking", "moving", RUNNING),
        "cancellation_requested": Sign("◌", "c", "cancelling", "moving", RUNNING),
        "reserved": Sign("◔", "+", "starting", "moving", RUNNING),
        "failed": Sign("✗", "x", "failed", "lost", LOST),
        "budget_exhausted": Sign("✗", "x", "exhausted", "lost", LOST),
        "waiting": Sign("⋯", "w", "paused", "later", LATER),
        ASKING: Sign("?", "?", "asking", "person", PERSON),
        "retry_wait": Sign("↻", "r", "retrying", "later", LATER),
        "blocked_budget": Sign("◇", "$", "unfunded", "later", LATER),
        "ready": Sign("◦", ">", "ready", "", SOON),
        "applied": Sign("✓", "=", "applied", "done", DONE),
        "submitted": Sign("·", ".", "submitted", "faint", BLOCKED),
        "blocked_dependency": Sign("·", ".", "waiting", "faint", BLOCKED),
        "dependency_failed": Sign("⊘", "-", "not run", "over", OVER),
        "cancelled": Sign("⊘", "-", "cancelled", "faint", OVER),
    }
)

WAITING = Sign("◇", "?", "", "later", LATER)
"""Of a state that a later version brings: its own name is its word."""


class Marks(NamedTuple):
    """What lines are drawn with."""

    ascii: bool
    full: str
    half: str
    empty: str
    rail: str
    dot: str
    cut: str

    def sign(self, state: str) -> tuple[str, str, str]:
        """(sign, word, style) of a state."""
        found = SIGNS.get(state)
        if found is None:
            found = WAITING._replace(word=state.replace("_", " "))
        return (found.letter if self.ascii else found.glyph), found.word, found.style


UNICODE = Marks(False, "━", "╍", "─", "│", " · ", "…")
ASCII = Marks(True, "#", "=", ".", "|", ", ", "~")


def rank_of(state: str) -> int:
    return SIGNS.get(state, WAITING).rank
