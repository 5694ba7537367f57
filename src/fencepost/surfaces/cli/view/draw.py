"""A picture as lines of a terminal: a pure function of the picture, the time, and the room that there is.

No line is wider than the room less one cell, so that none ever wraps, and there are never more lines than rows. Columns
are as wide as what is shown in them; where a reason has no room beside its order it stands below it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from fencepost.core.machines import ENDED
from fencepost.surfaces.cli.view.cells import Line, Span, clean, cut, cut_line, folded, line_width, pad, width_of
from fencepost.surfaces.cli.view.picture import NO_DETAIL, Choice, Detail, Meter, Picture, Row, choose
from fencepost.surfaces.cli.view.signs import DONE, LOST, OVER, RUNNING, UNICODE, Marks, rank_of
from fencepost.surfaces.cli.words import amount, dimension_label

NARROW = 68  # columns below which no reason stands beside its order
INLINE_LEAST = 24  # cells that a reason needs beside its order
COST_WIDTH = 100  # cells of a line from which costs have a column
COST_MOST = 24
NAME_SHARE = 3  # a name takes at most this part of the line
NOTICE_LINES_MAX = 3
BAR = 8
LOW = 18  # rows below which budgets are written without bars
_BLANK: Line = ()


class Place(NamedTuple):
    """Where a picture is drawn."""

    columns: int
    rows: int
    marks: Marks = UNICODE

    @property
    def width(self) -> int:
        """Cells that a line may have."""
        return max(self.columns - 1, 1)


def chosen(picture: Picture, place: Place) -> Choice:
    """The rows that `draw` will show, so that what is said of them can be looked up first."""
    room = place.rows - len(_head(picture, 0, place)) - len(_foot(picture, place))
    return choose(picture.rows, room, narrow=_is_narrow(place))


def draw(picture: Picture, choice: Choice, details: Mapping[str, Detail], now_us: int, place: Place) -> list[Line]:
    """The whole view, from its title to its hint. Never more lines than `place.rows`."""
    head, foot = _head(picture, now_us, place), _foot(picture, place)
    body = _body(picture, choice, details, now_us, place)
    room = max(place.rows - len(head) - len(foot), 0)
    lines = [*head, *body[:room], *foot]
    return [cut_line(line, place.width) for line in lines[: max(place.rows, 1)]]


def elapsed(time_us: int, *, runs: bool) -> str:
    """A time as a column shows it: what runs ticks in whole seconds, what was short is told in smaller ones."""
    time_us = max(time_us, 0)
    seconds = time_us // 1_000_000
    if not runs and time_us < 100_000:
        return f"{time_us // 1_000}ms"
    if not runs and seconds < 10:
        return f"{time_us / 1_000_000:.1f}s"
    if seconds < 60:
        return f"{seconds}s"
    minutes, seconds = divmod(seconds, 60)
    if minutes < 60:
        return f"{minutes}m{seconds:02}s"
    hours, minutes = divmod(minutes, 60)
    if hours < 24:
        return f"{hours}h{minutes:02}m"
    return f"{hours // 24}d{hours % 24:02}h"


def counted(counts: Mapping[str, int], marks: Marks) -> list[Span]:
    """How many of which state, the pressing ones first; states with one word stand together."""
    words: dict[tuple[str, str], int] = {}
    for state in sorted(counts, key=lambda state: (rank_of(state), state)):
        _, word, style = marks.sign(state)
        words[word, style] = words.get((word, style), 0) + counts[state]
    spans: list[Span] = []
    for (word, style), number in words.items():
        spans += [Span(marks.dot, "faint")] if spans else []
        spans.append(Span(f"{number} {word}", style))
    return spans


def _head(picture: Picture, now_us: int, place: Place) -> list[Line]:
    """Title with progress and time, what stands how, and every budget."""
    width, marks = place.width, place.marks
    counts = picture.counts()
    ended = sum(number for state, number in counts.items() if state in ENDED)
    took = elapsed((picture.ended_us or now_us) - picture.began_us, runs=True) if picture.began_us else ""
    share = f"{ended}/{len(picture.rows)}"
    bar_cells = max(0, min(24, width - 46))
    name = cut(clean(picture.name), max(width - bar_cells - len(took) - len(share) - 6, 8))
    title = [Span(name, "strong"), Span("  ")]
    if bar_cells >= 8:
        title += [*_progress(counts, bar_cells, marks), Span("  ")]
    title.append(Span(share))
    gap = width - line_width(title) - len(took)
    lines: list[Line] = [(*title, Span(" " * max(gap, 1)), Span(took))]
    lines += _wrapped_spans(counted(counts, marks), width)
    lines += _meters(picture.meters, place)
    return [*lines, _BLANK]


def _progress(counts: Mapping[str, int], cells: int, marks: Marks) -> list[Span]:
    """A bar of what was applied, what ended otherwise, what runs, and what is left."""
    total = max(sum(counts.values()), 1)
    parts = {"done": 0, "lost": 0, "moving": 0}
    for state, number in counts.items():
        rank = rank_of(state)
        kind = {DONE: "done", LOST: "lost", OVER: "lost", RUNNING: "moving"}.get(rank)
        if kind is not None:
            parts[kind] += number
    spans: list[Span] = []
    used = 0
    for kind, number in parts.items():
        share = min(max(number * cells // total, 1 if number else 0), cells - used)
        if parts["done"] == total:
            share = cells - used if kind == "done" else 0
        used += share
        spans.append(Span((marks.half if kind == "moving" else marks.full) * share, kind))
    return [*(span for span in spans if span.text), Span(marks.empty * (cells - used), "faint")]


def _wrapped_spans(spans: Sequence[Span], width: int) -> list[Line]:
    lines: list[list[Span]] = [[]]
    for span in spans:
        if line_width(lines[-1]) + width_of(span.text) > width:
            lines.append([])
        if lines[-1] or span.style != "faint" or not span.text.startswith(" "):
            lines[-1].append(span)
    return [tuple(line) for line in lines]


def _meters(meters: Sequence[Meter], place: Place) -> list[Line]:
    """Every budget: with bars in a grid as wide as the line takes, those of one column of it below each other."""
    bars = place.rows >= LOW and place.columns >= 60
    cells = [_meter(meter, place.marks, bars=bars) for meter in meters]
    if not cells:
        return []
    if not bars:
        return _flow(cells, place)
    gap = 3
    for across in range(len(cells), 0, -1):
        columns = [cells[start::across] for start in range(across)]
        labels = [max(width_of(cell[0].text) for cell in column) for column in columns]
        wide = [
            label + max(line_width(cell[1:]) for cell in column) for label, column in zip(labels, columns, strict=True)
        ]
        if across == 1 or sum(wide) + gap * (across - 1) <= place.width:
            break
    lines: list[Line] = []
    for start in range(0, len(cells), across):
        line: list[Span] = []
        for number, cell in enumerate(cells[start : start + across]):
            line += [Span(pad(cell[0].text, labels[number]), cell[0].style), *cell[1:]]
            line.append(Span(" " * (wide[number] - labels[number] - line_width(cell[1:]) + gap)))
        lines.append(tuple(line[:-1]))
    return lines


def _flow(cells: Sequence[Line], place: Place) -> list[Line]:
    """Cells behind each other, each on one line as a whole."""
    dot = Span(place.marks.dot, "faint")
    lines: list[list[Span]] = [[]]
    for cell in cells:
        if lines[-1] and line_width(lines[-1]) + width_of(dot.text) + line_width(cell) > place.width:
            lines.append([])
        lines[-1] += [dot, *cell] if lines[-1] else cell
    return [tuple(line) for line in lines]


def _meter(meter: Meter, marks: Marks, *, bars: bool) -> Line:
    """Charged of ceiling. A bar shows what is held between them; without a bar it is a number behind a plus sign."""
    used = short_amount(meter.dimension, meter.charged)
    label = Span(f"{_LABELS.get(meter.dimension) or dimension_label(meter.dimension)} ", "faint")
    if meter.ceiling is None:
        return (label, Span(used))
    held = f"+{short_amount(meter.dimension, meter.held)}" if meter.held and not bars else ""
    text = Span(f"{used}{held}/{short_amount(meter.dimension, meter.ceiling)}")
    if not bars:
        return (label, text)
    ceiling = max(meter.ceiling, 1)
    full = min(-(-meter.charged * BAR // ceiling), BAR)
    half = min(-(-meter.held * BAR // ceiling), BAR - full)
    style = "lost" if meter.charged >= meter.ceiling else "later" if full + half >= BAR else "done"
    bar = [Span(marks.full * full, style), Span(marks.half * half, "moving")]
    rest = Span(marks.empty * (BAR - full - half), "faint")
    return (label, *(span for span in (*bar, rest) if span.text), Span(" "), text)


_ROUND = re.compile(r"(?<=[dhm])00?[hms]$")  # thirty minutes, and no seconds
_LABELS = {"tokens_input": "tokens in", "tokens_output": "tokens out"}


def short_amount(dimension: str, value: int) -> str:
    """An amount in few cells: times to the second, great numbers in thousands or millions."""
    if dimension == "time_us":
        return _ROUND.sub("", elapsed(value, runs=value >= 10_000_000 or not value))
    if ":" in dimension:
        return amount(dimension, value if value % 10_000 == 0 else -(-value // 100) * 100)
    for size, unit in ((1_000_000_000, "G"), (1_000_000, "M"), (10_000, "k")):
        if value >= size:
            divisor = max(size, 1_000) if unit != "k" else 1_000
            whole, part = divmod(value * 10 // divisor, 10)
            return f"{whole}.{part}{unit}" if part and whole < 100 else f"{whole}{unit}"
    return str(value)


def _foot(picture: Picture, place: Place) -> list[Line]:
    notices = [(Span(line, "later"),) for notice in picture.notices for line in folded(clean(notice), place.width)][
        :NOTICE_LINES_MAX
    ]
    hint = [(Span(cut(picture.hint, place.width), "faint"),)] if picture.hint and place.rows >= 8 else []
    return [_BLANK, *notices, *hint] if notices or hint else []


class _Columns(NamedTuple):
    """Widths of one frame. `reason` is what is left for a reason beside its order, 0 for a line of its own."""

    step: int
    name: int
    word: int
    tries: int
    time: int
    cost: int
    reason: int


def _is_narrow(place: Place) -> bool:
    """Whether reasons stand below their orders. Decided by the room alone, so that nothing jumps as rows come."""
    return place.columns < NARROW


def _columns(picture: Picture, rows: Sequence[Row], now_us: int, place: Place) -> _Columns:
    width, marks = place.width, place.marks
    step = len(str(picture.steps)) + 1 if picture.steps > 1 else 0
    word = max((width_of(marks.sign(row.state)[1]) for row in rows), default=0)
    tries = max((len(_tries(row)) for row in rows), default=0)
    time = max((len(_time(row, now_us)) for row in rows), default=0)
    cost = min(max((width_of(row.cost) for row in rows), default=0), COST_MOST) if width >= COST_WIDTH else 0
    names = max((width_of(clean(row.name)) for row in rows), default=0)
    fixed = step + 2 + sum(size + 2 for size in (word, tries, time, cost) if size)
    if _is_narrow(place):
        name = max(min(names, width - fixed), 4)
        return _Columns(step, name, word, tries, time, cost, 0)
    name = min(names, max(width // NAME_SHARE, 12))
    name = max(min(name, width - fixed - 2 - INLINE_LEAST), min(name, 8))
    return _Columns(step, name, word, tries, time, cost, max(width - fixed - 2 - name, 0))


def _tries(row: Row) -> str:
    if not row.tries:
        return ""
    return f"{row.tries}/{row.tries_max}" if row.tries_max is not None else str(row.tries)


def _time(row: Row, now_us: int) -> str:
    if row.since_us:
        return elapsed(now_us - row.since_us, runs=True)
    if row.due_us:
        return f"in {elapsed(row.due_us - now_us, runs=True)}"
    return elapsed(row.time_us, runs=False) if row.time_us else ""


def _body(picture: Picture, choice: Choice, details: Mapping[str, Detail], now_us: int, place: Place) -> list[Line]:
    columns = _columns(picture, choice.rows, now_us, place)
    lines: list[Line] = []
    indent = " " * (columns.step + 2)
    if choice.above:
        lines.append(_fold(choice.above, indent, place.marks))
    last_step = 0
    for row in choice.rows:
        detail = details.get(row.order, NO_DETAIL)
        step = str(row.step) if row.step != last_step else ""
        last_step = row.step
        lines.append(_row(row, detail, step, columns, now_us, place.marks))
        if row.order in choice.second:
            lines += _second_line(row, detail, columns, place)
    if choice.below:
        lines.append(_fold(choice.below, indent, place.marks))
    return lines


def _fold(counts: Mapping[str, int], indent: str, marks: Marks) -> Line:
    spans = counted(counts, marks)
    return (Span(f"{indent[:-2]}{marks.cut} ", "faint"), Span("and ", "faint"), *spans)


def _row(row: Row, detail: Detail, step: str, columns: _Columns, now_us: int, marks: Marks) -> Line:
    glyph, word, style = marks.sign(row.state)
    waits = row.rank > DONE
    spans = [Span(step.rjust(columns.step - 1) + " ", "faint")] if columns.step else []
    spans += [Span(f"{glyph} ", style), Span(pad(clean(row.name), columns.name), "faint" if waits else "")]
    spans += [Span("  "), Span(pad(word, columns.word), style)]
    quiet = "faint" if waits or row.rank == DONE else ""
    for text, cells in ((_tries(row), columns.tries), (_time(row, now_us), columns.time), (row.cost, columns.cost)):
        if cells:
            spans += [Span("  "), Span(pad(text, cells, right=True), quiet)]
    if columns.reason:
        text = _reason(row, detail, columns.reason, "" if columns.cost else row.cost)
        spans += [Span("  "), Span(text, quiet)] if text else []
    return tuple(spans)


def _reason(row: Row, detail: Detail, cells: int, cost: str = "") -> str:
    """Why it is where it is, or what runs in it, in so many cells; `cost` where it has no column of its own."""
    if row.rank == RUNNING:
        return cut(clean("; ".join(text for text in (detail.note or detail.why, cost) if text)), cells)
    if row.rank == DONE and cost:
        return cut(clean(cost), cells)
    if detail.names:
        return _listed(detail.why, detail.names, cells)
    why = clean(detail.why)
    if row.may_fail and row.rank in (LOST, OVER):
        more = f"{why}; may fail" if why else "may fail"
        return more if width_of(more) <= cells else cut(why, cells)
    return cut(why, cells)


def _listed(lead: str, names: Sequence[str], cells: int) -> str:
    """`needs a, b and 3 more`: as many names as there is room for, one at least."""
    text = ""
    for number in range(len(names)):
        left = len(names) - number - 1
        more = f" and {left} more" if left else ""
        shown = f"{lead} {', '.join(map(clean, names[: number + 1]))}"
        if width_of(shown + more) <= cells:
            text = shown + more
        elif not text:
            return (
                cut(shown, max(cells - len(more), 1)) + more if cells > len(more) + len(lead) + 4 else cut(shown, cells)
            )
    return text


def _second_line(row: Row, detail: Detail, columns: _Columns, place: Place) -> list[Line]:
    indent = " " * columns.step
    room = place.width - columns.step - 2
    if row.rank == RUNNING:
        text = detail.log if columns.reason else (detail.log or _reason(row, detail, room))
        text = cut(clean(text), room)
    else:
        text = _reason(row, detail, room)
    rail = Span(f"{indent}{place.marks.rail} ", "moving" if row.rank == RUNNING else "faint")
    return [(rail, Span(text, "faint"))] if text else []
