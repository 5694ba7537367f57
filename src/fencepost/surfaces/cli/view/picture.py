"""What a live view shows, as plain data, and which of its rows are shown where there is no room for all.

A `Picture` is made of what was read; nothing here reads, and nothing here knows a terminal. Rows are in the order in
which they are drawn: by step of the graph, then as the plan defines them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from heapq import nlargest

import msgspec

from fencepost.core.machines import ENDED
from fencepost.surfaces.cli.view.signs import BLOCKED, DONE, LATER, LOST, OVER, PERSON, RUNNING, SOON, rank_of

FOLDS = 2  # lines that say what is left out: above what has ended, below what has not


class Row(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One order as it stands. Made anew only when the order has changed."""

    order: str
    name: str
    state: str
    step: int = 1  # of the graph, from 1
    tries: int = 0  # attempts that were begun
    tries_max: int | None = None
    since_us: int = 0  # logical time at which what runs began, 0 for what does not run
    due_us: int = 0  # end of a backoff, 0 for none
    time_us: int = 0  # charged so far
    cost: str = ""  # what it was charged beside attempts and time
    moved_us: int = 0
    may_fail: bool = False

    @property
    def rank(self) -> int:
        return rank_of(self.state)

    @property
    def runs(self) -> bool:
        return self.rank == RUNNING


class Detail(msgspec.Struct, frozen=True, kw_only=True):
    """What is looked up for rows that are seen: why an order is where it is, and what runs in it."""

    why: str = ""
    names: tuple[str, ...] = ()  # orders that `why` is about
    note: str = ""  # what the running program says of itself
    log: str = ""  # the last line that it printed


NO_DETAIL = Detail()


class Meter(msgspec.Struct, frozen=True, kw_only=True):
    """One dimension of the plan's budget. `ceiling` None is no limit."""

    dimension: str
    charged: int
    held: int = 0
    ceiling: int | None = None


class Picture(msgspec.Struct, frozen=True, kw_only=True):
    """A plan, or one order with what it waits for, true at `sequence`."""

    name: str
    rows: Sequence[Row]
    steps: int = 1
    sequence: int = 0
    began_us: int = 0
    ended_us: int | None = None
    meters: tuple[Meter, ...] = ()
    notices: tuple[str, ...] = ()  # what a person should know now
    hint: str = ""  # what can be typed

    def counts(self) -> dict[str, int]:
        """How many orders are in each state."""
        found: dict[str, int] = {}
        for row in self.rows:
            found[row.state] = found.get(row.state, 0) + 1
        return found


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """The rows that are drawn, in their order, and how many of which state are not."""

    rows: tuple[Row, ...]
    above: Mapping[str, int]  # ended ones that are left out
    below: Mapping[str, int]  # others
    second: frozenset[str]  # orders that may have a line below them


def choose(rows: Sequence[Row], room: int, *, narrow: bool) -> Choice:
    """The rows for `room` lines: all where they fit; else what needs a person, runs or failed before all others."""
    room = max(room, 1)
    if len(rows) <= room:
        return Choice(rows=tuple(rows), above={}, below={}, second=_second(rows, room - len(rows), narrow=narrow))
    by_rank: dict[int, list[Row]] = {rank: [] for rank in range(OVER + 1)}
    for row in rows:
        by_rank[row.rank].append(row)
    free = max(room - FOLDS, 1)
    # A screen that is full of what runs has no place for what it says.
    pressing = len(by_rank[PERSON]) + len(by_rank[RUNNING]) + len(by_rank[LOST]) + len(by_rank[LATER])
    second_lines = pressing * 2 <= free
    taken: set[str] = set()

    def take(rank: int, lines: int) -> int:
        """Rows of a rank into at most so many lines; returns the lines used."""
        each = 2 if second_lines and (rank == RUNNING or (narrow and rank in _DOUBLE)) else 1
        number = max(lines, 0) // each
        left = [row for row in by_rank[rank] if row.order not in taken] if taken else by_rank[rank]
        found = nlargest(number, left, key=lambda row: row.moved_us) if rank == DONE else left[:number]
        taken.update(row.order for row in found)
        return len(found) * each

    for rank, share in ((PERSON, 3), (LOST, 3), (RUNNING, 2)):
        free -= take(rank, min(max(1, room // share), free))
    for rank in (PERSON, RUNNING, LOST, LATER, SOON, DONE, BLOCKED, OVER):
        free -= take(rank, free)
    above: dict[str, int] = {}
    below: dict[str, int] = {}
    for row in rows:
        if row.order not in taken:
            side = above if row.state in ENDED else below
            side[row.state] = side.get(row.state, 0) + 1
    shown = tuple(row for row in rows if row.order in taken)
    spare = room - len(shown) - bool(above) - bool(below)
    return Choice(rows=shown, above=above, below=below, second=_second(shown, spare, narrow=narrow))


def _second(rows: Sequence[Row], spare: int, *, narrow: bool) -> frozenset[str]:
    """Which rows have a line below them where there is room for so many: what runs before what failed or waits."""
    able = [row for row in rows if has_second_line(row, narrow=narrow)]
    able.sort(key=lambda row: (not row.runs, row.rank))
    return frozenset(row.order for row in able[: max(spare, 0)])


_DOUBLE = frozenset({PERSON, RUNNING, LOST, LATER})


def has_second_line(row: Row, *, narrow: bool) -> bool:
    """Whether a row may have a line below it: what runs its output, and in a narrow view all that has a reason."""
    return row.rank == RUNNING or (narrow and row.rank in _DOUBLE)
