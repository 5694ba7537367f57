"""Where the orders of a plan stand when it is drawn: layers from left to right, with few crossings and short edges.

The usual way, in integers, so that the same graph is the same drawing. An edge that spans several layers gets a bend in
each layer between, which it shares with the others of its kind from the same order. Sweeps move each slot towards the
middle of its neighbours, neighbouring slots are then exchanged while that removes crossings, and the order with the
fewest crossings is kept. Last, slots move up and down towards their neighbours without changing that order: edges
become short, and what belongs together stands side by side. Orders that are tied to nobody stand in a grid below.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from fencepost.surfaces.cli.graph_model import Graph, Node

ORDER_SWEEPS = 12
EXCHANGE_ROUNDS = 20
EXCHANGE_SLOTS_MAX = 1_500  # larger drawings keep what the sweeps gave them
PLACE_SWEEPS = 6
BENDS_MAX = 20_000  # beyond, edges go straight to where they end
GRID_COLUMNS_MAX = 6
CHILD = "child"  # kind of the edge from an order to one that it submitted itself


@dataclass(kw_only=True, eq=False)
class Slot:
    """A place in a layer: a node's box, or a bend of an edge that only passes."""

    node: Node | None = None
    x: int = 0
    y: int = 0  # of its middle
    width: int = 0
    height: int = 0
    place: int = 0  # within its layer
    before: list[Slot] = field(default_factory=list)
    after: list[Slot] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Edge:
    """From a member to its dependent, through the bends between."""

    kind: str
    slots: tuple[Slot, ...]


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Lengths of a drawing, in its own units."""

    margin: int
    box: int  # height of a box
    gap: int  # between boxes of one layer
    bend: int  # height that an edge takes in a layer which it only passes
    between: int  # room between layers for the edges
    width_of: Callable[[Node], int]


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Everything in its place; `right` and `bottom` are the ends of all of it."""

    slots: tuple[Slot, ...]
    edges: tuple[Edge, ...]
    right: int
    bottom: int


def lay_out(graph: Graph, sizes: Sizes, *, top: int, width_least: int) -> Layout:
    """Place a graph below `top`. Loose orders take the width of the rest, `width_least` at least."""
    tied = {member for node in graph.nodes for member in node.before()}
    tied |= {node.order for node in graph.nodes if node.before()}
    slots = {node.order: Slot(node=node, width=sizes.width_of(node), height=sizes.box) for node in graph.nodes}
    columns = [[slots[node.order] for node in layer if node.order in tied] for layer in graph.layers]
    columns = [column for column in columns if column]
    edges = _edges(graph, slots, columns, sizes)
    _number(columns)
    _untangle(columns)
    _straighten(columns, sizes)
    right, bottom = _place(columns, sizes, top)
    loose = [slots[node.order] for node in graph.nodes if node.order not in tied]
    start = bottom + (sizes.gap * 2 if columns else 0)
    right, bottom = _place_grid(loose, sizes, right=right, bottom=bottom, top=start, width_least=width_least)
    return Layout(slots=tuple(slots.values()), edges=tuple(edges), right=right, bottom=bottom)


def _edges(graph: Graph, slots: Mapping[str, Slot], columns: list[list[Slot]], sizes: Sizes) -> list[Edge]:
    """All edges; adds the bends to the columns and ties neighbours to each other."""
    layer = {id(slot): step for step, column in enumerate(columns) for slot in column}
    pairs: dict[tuple[str, str], str] = {}
    for node in graph.nodes:
        for need in node.needs:
            for member in need.members:
                pairs.setdefault((member, node.order), need.kind)
        if node.parent:
            pairs.setdefault((node.parent, node.order), CHILD)
    spans = {pair: layer[id(slots[pair[1]])] - layer[id(slots[pair[0]])] for pair in pairs}
    bent = sum(span - 1 for span in spans.values()) <= BENDS_MAX
    bends: dict[tuple[str, str, int], Slot] = {}
    tied: set[tuple[int, int]] = set()
    edges = []
    for (member, dependent), kind in pairs.items():
        first, last = slots[member], slots[dependent]
        chain = [first]
        for step in range(layer[id(first)] + 1, layer[id(last)]) if bent else ():
            if (member, kind, step) not in bends:
                bends[member, kind, step] = Slot(height=sizes.bend)
                columns[step].append(bends[member, kind, step])
            chain.append(bends[member, kind, step])
        chain.append(last)
        for left, right in pairwise(chain):
            if (id(left), id(right)) not in tied:
                tied.add((id(left), id(right)))
                left.after.append(right)
                right.before.append(left)
        edges.append(Edge(kind=kind, slots=tuple(chain)))
    return edges


def _number(columns: Sequence[Sequence[Slot]]) -> None:
    for column in columns:
        for place, slot in enumerate(column):
            slot.place = place


def _untangle(columns: list[list[Slot]]) -> None:
    """Order each layer so that few edges cross. Ties stay as they are."""
    best = [list(column) for column in columns]
    fewest = _crossings(columns)
    for sweep in range(ORDER_SWEEPS):
        if not fewest:
            break
        forward = sweep % 2 == 0
        for column in columns if forward else reversed(columns):
            column.sort(key=lambda slot: _middle_place(slot, slot.before if forward else slot.after))
            for place, slot in enumerate(column):
                slot.place = place
        found = _crossings(columns)
        if found < fewest:
            best, fewest = [list(column) for column in columns], found
    columns[:] = best
    _number(columns)
    if fewest and sum(map(len, columns)) <= EXCHANGE_SLOTS_MAX:
        _exchange(columns)


def _middle_place(slot: Slot, neighbours: Sequence[Slot]) -> int:
    """Where its neighbours stand on average, in thousandths of a place."""
    if not neighbours:
        return slot.place * 1_000
    return sum(other.place for other in neighbours) * 1_000 // len(neighbours)


def _crossings(columns: Sequence[Sequence[Slot]]) -> int:
    """How many pairs of edges between neighbouring layers cross."""
    total = 0
    for column in columns:
        seen: list[int] = []
        for slot in column:
            ends = sorted(other.place for other in slot.after)
            for end in ends:
                total += len(seen) - bisect_right(seen, end)
            for end in ends:
                insort(seen, end)
    return total


def _exchange(columns: Sequence[list[Slot]]) -> None:
    """Exchange neighbours within a layer as long as that removes crossings."""
    for _ in range(EXCHANGE_ROUNDS):
        moved = False
        for column in columns:
            for place in range(len(column) - 1):
                upper, lower = column[place], column[place + 1]
                if _between(lower, upper) < _between(upper, lower):
                    column[place], column[place + 1] = lower, upper
                    lower.place, upper.place = place, place + 1
                    moved = True
        if not moved:
            return


def _between(upper: Slot, lower: Slot) -> int:
    """Crossings of the edges of two neighbours when `upper` stands above `lower`."""
    total = 0
    for above, below in ((upper.before, lower.before), (upper.after, lower.after)):
        places = sorted(other.place for other in below)
        total += sum(bisect_right(places, other.place - 1) for other in above)
    return total


def _straighten(columns: Sequence[Sequence[Slot]], sizes: Sizes) -> None:
    """Give every slot a height near those of its neighbours, with the layers' order kept."""
    for column in columns:
        y = 0
        for slot in column:
            slot.y = y + slot.height // 2
            y += slot.height + sizes.gap
        for slot in column:
            slot.y -= y // 2
    for sweep in range(PLACE_SWEEPS):
        forward = sweep % 2 == 0
        both = sweep >= PLACE_SWEEPS - 2
        for column in columns if forward else reversed(columns):
            wanted = []
            for slot in column:
                near = [*slot.before, *slot.after] if both else slot.before if forward else slot.after
                wanted.append(sum(other.y for other in near) // len(near) if near else slot.y)
            _settle(column, wanted, sizes)


def _settle(column: Sequence[Slot], wanted: Sequence[int], sizes: Sizes) -> None:
    """The heights nearest to those wanted at which no two slots touch: neighbours that would are moved together."""
    offsets = [0]
    for upper, lower in pairwise(column):
        offsets.append(offsets[-1] + (upper.height + lower.height) // 2 + sizes.gap)
    blocks: list[tuple[int, int]] = []  # (sum of what is wanted, slots)
    for want, offset in zip(wanted, offsets, strict=True):
        total, number = want - offset, 1
        while blocks and blocks[-1][0] * number > total * blocks[-1][1]:
            before, count = blocks.pop()
            total, number = total + before, number + count
        blocks.append((total, number))
    place = 0
    for total, number in blocks:
        for _ in range(number):
            column[place].y = total // number + offsets[place]
            place += 1


def _place(columns: Sequence[Sequence[Slot]], sizes: Sizes, top: int) -> tuple[int, int]:
    """Give every slot its place on the drawing; return the right and the bottom end of all."""
    if not columns:
        return sizes.margin, top
    highest = min(slot.y - slot.height // 2 for column in columns for slot in column)
    x = sizes.margin
    bottom = top
    for column in columns:
        width = max(slot.width for slot in column)
        for slot in column:
            slot.x, slot.width = x, width
            slot.y += top - highest
            bottom = max(bottom, slot.y + slot.height - slot.height // 2)
        x += width + sizes.between
    return x - sizes.between, bottom


def _place_grid(
    slots: Sequence[Slot], sizes: Sizes, *, right: int, bottom: int, top: int, width_least: int
) -> tuple[int, int]:
    """Place what is tied to nobody in rows below the rest."""
    if not slots:
        return right, bottom
    width = max(slot.width for slot in slots)
    fits = (max(right, width_least) - sizes.margin + sizes.gap) // (width + sizes.gap)
    columns = max(1, min(fits, GRID_COLUMNS_MAX, len(slots)))
    for number, slot in enumerate(slots):
        row, column = divmod(number, columns)
        slot.width = width
        slot.x = sizes.margin + column * (width + sizes.gap)
        slot.y = top + row * (sizes.box + sizes.gap) + sizes.box // 2
    rows = -(-len(slots) // columns)
    end = sizes.margin + columns * (width + sizes.gap) - sizes.gap
    return max(right, end), top + rows * (sizes.box + sizes.gap) - sizes.gap
