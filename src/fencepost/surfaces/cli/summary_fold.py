"""Orders that have come to the same end, told as one; and every step to take once, however many orders it helps.

A plan of a hundred orders behind one that failed has one thing to say, and it is said once: what is the same in state,
reason and cause stands in one row, with what all of it took.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from fencepost.surfaces.cli.summary_table import Entry
from fencepost.surfaces.cli.words import count

FOLDED_LEAST = 3  # orders: fewer are told one by one
NAMES_SHOWN_MAX = 3
STEPS_SHOWN_MAX = 8
_ACTING = re.compile(r"\bfencepost (?:order (?:answer|retry)|budget set) ")


def folded_rows(entries: Sequence[Entry], *, kept: Sequence[bool]) -> list[list[int]]:
    """Positions of the orders that each row tells of, each row at the place of its first order. Those that are `kept`
    have rows of their own, as have those that nothing more is known of than their state."""
    alike: dict[tuple[object, ...], list[int]] = {}
    for place, entry in enumerate(entries):
        own = place if kept[place] else -1
        alike.setdefault((own, entry.state, entry.told, entry.below), []).append(place)
    rows = [group if len(group) >= FOLDED_LEAST else [place] for group in alike.values() for place in group]
    return sorted({row[0]: row for row in rows}.values())


def names_text(names: Sequence[str], *, is_run: bool) -> str:
    """The orders of one row; `is_run` says that the plan has no others between the first and the last."""
    if len(names) == 1:
        return names[0]
    if is_run:
        return f"{names[0]} ... {names[-1]} ({len(names)})"
    more = len(names) - NAMES_SHOWN_MAX
    shown = ", ".join(names[:NAMES_SHOWN_MAX])
    return f"{shown} and {more} more" if more > 0 else shown


def is_acting(step: str) -> bool:
    """Whether an order goes on only behind this step, so that it is told for each, and not for one of those alike."""
    return _ACTING.search(step) is not None


def step_lines(steps: Sequence[tuple[str, str]]) -> list[str]:
    """The steps to take, once each, from pairs of a row's names and its step, "" for none. A step that does not say
    which order it is for has the names before it, so that the line ends with what can be typed."""
    found: dict[str, list[str]] = {}
    for names, step in steps:
        if step:
            found.setdefault(step, []).append(names)
    lines = []
    for step, whose in list(found.items())[:STEPS_SHOWN_MAX]:
        is_told = len(found) == 1 or any(_names(step, name.split(" ", 1)[0].rstrip(",")) for name in whose)
        lines.append(f"next: {step}" if is_told else f"next, for {'; '.join(whose)}: {step}")
    more = len(found) - STEPS_SHOWN_MAX
    return [*lines, f"and {count(more, 'more step')}"] if more > 0 else lines


def _names(step: str, task: str) -> bool:
    """Whether a step names the order, as PLAN/TASK."""
    return re.search(rf"/{re.escape(task)}(?![a-z0-9-])", step) is not None
