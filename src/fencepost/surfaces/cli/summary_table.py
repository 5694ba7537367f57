"""The table at the end of a run, as lines: for each order its state, attempts, time, cost, what proves it, or why not.

It fits the width that it is given: a name that is too long for its column stands on a line of its own, and reasons are
broken between words. Only what will be copied, a next step or a path, is never broken.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from fencepost.surfaces.cli.view.cells import Line, Span, clean, folded, pad, width_of
from fencepost.surfaces.cli.view.signs import Marks

TIME_CELLS = 8  # of the longest time, so that columns stand where they stood the last time
NAME_MOST = 24  # cells of a name before it takes a line of its own
COST_MOST = 16  # cells of a cost; of several the first, which is money, has the column
LAST_LEAST = 20  # cells in which a proof or reason is broken; with less what does not fit stands below
_HEADINGS = ("ORDER", "STATE", "TRIES", "TIME", "COST", "PROOF, OR WHY NOT")


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One order. `told` stands in the last column, `below` on lines of their own, `copied` are never broken."""

    name: str
    state: str
    tries: str
    time: str
    cost: str = ""
    told: str = ""
    below: tuple[str, ...] = ()
    copied: tuple[str, ...] = ()


def table_lines(entries: Sequence[Entry], *, width: int, marks: Marks | None) -> list[Line]:
    """The table. With `marks` each order begins with the sign of its state."""
    lead = 2 if marks is not None else 0
    cells = [
        min(max((width_of(clean(entry.name)) for entry in entries), default=0), NAME_MOST),
        max((len(entry.state) for entry in entries), default=0),
        max((len(entry.tries) for entry in entries), default=0),
        TIME_CELLS,
        min(max((width_of(_first(entry.cost)) for entry in entries), default=0), COST_MOST),
    ]
    cells = [max(size, len(heading)) if size else 0 for size, heading in zip(cells, _HEADINGS, strict=False)]
    if lead + sum(size + 2 for size in cells if size) - 2 > width:
        # Attempts, time and cost have no columns here, and stand below their order.
        cells[0] = min(cells[0], max(width - lead - 2 - cells[1], len(_HEADINGS[0])))
        cells[2:] = [0, 0, 0]
    before = lead + sum(size + 2 for size in cells if size)
    last = width - before
    lines: list[Line] = [_headings(cells, lead, last)]
    for entry in entries:
        lines += _entry(entry, cells, lead, last, width, marks)
    return lines


def _headings(cells: Sequence[int], lead: int, last: int) -> Line:
    shown = [
        Span(pad(heading, size, right=heading in ("TRIES", "TIME")) + "  ", "faint")
        for heading, size in zip(_HEADINGS, cells, strict=False)
        if size
    ]
    end = [Span(_HEADINGS[-1], "faint")] if last >= len(_HEADINGS[-1]) else []
    return (Span(" " * lead), *shown, *end)


def _entry(entry: Entry, cells: Sequence[int], lead: int, last: int, width: int, marks: Marks | None) -> list[Line]:
    glyph, style = "", ""
    if marks is not None:
        glyph, _, style = marks.sign(entry.state)
    name = clean(entry.name)
    lines: list[Line] = []
    start = [Span(f"{glyph} ", style)] if lead else []
    if width_of(name) > cells[0]:
        lines.append((*start, Span(name)))
        start, name = [Span(" " * lead)], ""
    row = [*start, Span(pad(name, cells[0])), Span("  "), Span(pad(entry.state, cells[1]), style)]
    for text, size, right in (
        (entry.tries, cells[2], True),
        (entry.time, cells[3], True),
        (_first(entry.cost), cells[4], False),
    ):
        row += [Span("  "), Span(pad(text, size, right=right))] if size else []
    below = list(entry.below)
    if not cells[2] and entry.tries != "-":
        below.insert(0, ", ".join(part for part in (f"tries {entry.tries}", f"time {entry.time}", entry.cost) if part))
    elif _first(entry.cost) != entry.cost:
        below.insert(0, f"cost {entry.cost}")
    told: list[str] = []
    if last >= LAST_LEAST or width_of(clean(entry.told)) <= last:
        told = folded(clean(entry.told), last)
    elif entry.told:
        below.insert(0, entry.told)
    lines.append((*row, Span("  "), Span(told[0])) if told else tuple(row))
    indent = " " * (width - last)
    lines += [(Span(f"{indent}{line}"),) for line in told[1:]]
    inner = " " * (lead + 2)
    for text in below:
        lines += [(Span(f"{inner}{line}"),) for line in folded(clean(text), width - len(inner))]
    for text in entry.copied:
        lines += [(Span(f"{inner}{line}"),) for line in unbroken(clean(text), width - len(inner))]
    return lines


def _first(cost: str) -> str:
    return cost.split(", ", 1)[0]


def unbroken(text: str, cells: int) -> list[str]:
    """Text whose commands stay whole: where it is too long it is broken behind a semicolon, and nowhere else."""
    if width_of(text) <= cells or "; " not in text:
        return [text]
    first, *rest = text.split("; ")
    return [f"{first};", *(f"  {part}{';' if number < len(rest) - 1 else ''}" for number, part in enumerate(rest))]
