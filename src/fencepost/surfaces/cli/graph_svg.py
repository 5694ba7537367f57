"""A plan's graph as SVG: layers from left to right, states by colour and by word, the same bytes for the same graph.

The layout is the usual one, kept small: an edge that spans several layers gets a bend in each layer between, which
it shares with the others of its kind from the same order; nodes are moved towards the middle of their neighbours in a
fixed number of sweeps; and orders that are tied to nobody stand in a grid below. All numbers are integers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from xml.sax.saxutils import escape, quoteattr

from fencepost.surfaces.cli.graph_model import Graph, Node
from fencepost.surfaces.cli.graph_text import needs_text
from fencepost.surfaces.cli.words import count, one_line

_MARGIN = 24
_HEAD = 44  # title and counts above the drawing
_BOX = 44
_GAP = 16  # between boxes of one layer
_BEND = 14  # height that an edge takes in a layer which it only passes
_BETWEEN = 72  # room between layers for the edges
_CHARACTER = 8
_PADDING = 24
_SWEEPS = 8
_BENDS_MAX = 20_000  # beyond, edges go straight to where they end
_GRID_COLUMNS_MAX = 6
_WIDTH_LEAST = 480

_PALETTES = {
    "done": ("#d9f2e1", "#1b7f43"),
    "lost": ("#fbdcdc", "#b3261e"),
    "stopped": ("#e6e6e6", "#5f6368"),
    "moving": ("#d8e8fd", "#1a5fb4"),
    "free": ("#ffffff", "#1a5fb4"),
    "waiting": ("#fdf1cf", "#8a6100"),
    "person": ("#eadcf9", "#6f2dbd"),
}
_PALETTE_OF = {
    "applied": "done",
    "failed": "lost",
    "dependency_failed": "lost",
    "budget_exhausted": "lost",
    "cancelled": "stopped",
    "cancellation_requested": "stopped",
    "reserved": "moving",
    "active": "moving",
    "result_pending": "moving",
    "ready": "free",
    "conflict": "person",
    "reconciling": "person",
    "unknown_terminal": "person",
    "quarantined": "person",
}
_DASHES = {"required": "", "optional": ' stroke-dasharray="8 4"', "alternative": ' stroke-dasharray="2 4"'}


@dataclass(kw_only=True)
class _Slot:
    """A place in a layer: a node's box, or a bend of an edge that only passes."""

    node: Node | None = None
    x: int = 0
    y: int = 0  # of its middle
    width: int = 0
    before: list[_Slot] = field(default_factory=list)
    after: list[_Slot] = field(default_factory=list)

    @property
    def height(self) -> int:
        return _BEND if self.node is None else _BOX


@dataclass(frozen=True, kw_only=True)
class _Edge:
    """From a member to its dependent, through the bends between."""

    kind: str
    slots: tuple[_Slot, ...]


def graph_svg(graph: Graph) -> str:
    """The whole document, with a title, a description and a legend."""
    tied = {member for node in graph.nodes for member in node.members()}
    tied |= {node.order for node in graph.nodes if node.needs}
    slots = {node.order: _Slot(node=node, width=_box_width(node)) for node in graph.nodes}
    columns = [[slots[node.order] for node in layer if node.order in tied] for layer in graph.layers]
    columns = [column for column in columns if column]
    edges = _edges(graph, slots, columns)
    _untangle(columns)
    right, bottom = _place(columns)
    loose = [slots[node.order] for node in graph.nodes if node.order not in tied]
    right, bottom = _place_grid(loose, right=right, top=bottom + (_GAP if tied else 0))
    return _document(graph, edges, list(slots.values()), width=max(right, _WIDTH_LEAST) + _MARGIN, bottom=bottom)


def _box_width(node: Node) -> int:
    return max(len(node.name) * _CHARACTER, len(_state_text(node)) * (_CHARACTER - 1)) + _PADDING


def _state_text(node: Node) -> str:
    return f"{node.state}, may fail" if node.may_fail else node.state


def _edges(graph: Graph, slots: Mapping[str, _Slot], columns: list[list[_Slot]]) -> list[_Edge]:
    """All edges; adds the bends to the columns and ties neighbours to each other."""
    layer = {id(slot): step for step, column in enumerate(columns) for slot in column}
    pairs: dict[tuple[str, str], str] = {}
    for node in graph.nodes:
        for need in node.needs:
            for member in need.members:
                pairs.setdefault((member, node.order), need.kind)
    spans = {pair: layer[id(slots[pair[1]])] - layer[id(slots[pair[0]])] for pair in pairs}
    bent = sum(span - 1 for span in spans.values()) <= _BENDS_MAX
    bends: dict[tuple[str, str, int], _Slot] = {}
    tied: set[tuple[int, int]] = set()
    edges = []
    for (member, dependent), kind in pairs.items():
        first, last = slots[member], slots[dependent]
        chain = [first]
        for step in range(layer[id(first)] + 1, layer[id(last)]) if bent else ():
            if (member, kind, step) not in bends:
                bends[member, kind, step] = _Slot()
                columns[step].append(bends[member, kind, step])
            chain.append(bends[member, kind, step])
        chain.append(last)
        for left, right in pairwise(chain):
            if (id(left), id(right)) not in tied:
                tied.add((id(left), id(right)))
                left.after.append(right)
                right.before.append(left)
        edges.append(_Edge(kind=kind, slots=tuple(chain)))
    return edges


def _untangle(columns: list[list[_Slot]]) -> None:
    """Move slots towards the middle of their neighbours, forwards and backwards in turn. Ties stay as they are."""
    for sweep in range(_SWEEPS):
        forward = sweep % 2 == 0
        for column in columns if forward else reversed(columns):
            _stack(column)
            column.sort(key=lambda slot: _middle(slot, slot.before if forward else slot.after))
            _stack(column)


def _middle(slot: _Slot, neighbours: Sequence[_Slot]) -> int:
    if not neighbours:
        return slot.y
    return sum(other.y for other in neighbours) // len(neighbours)


def _stack(column: Sequence[_Slot]) -> int:
    """Set the middles of a column's slots round zero, and return its height."""
    height = sum(slot.height + _GAP for slot in column) - _GAP
    y = -height // 2
    for slot in column:
        slot.y = y + slot.height // 2
        y += slot.height + _GAP
    return height


def _place(columns: Sequence[Sequence[_Slot]]) -> tuple[int, int]:
    """Give every slot its place; return the right and the bottom end of all."""
    tallest = max((_stack(column) for column in columns), default=0)
    x = _MARGIN
    for column in columns:
        width = max(slot.width for slot in column)
        for slot in column:
            slot.x = x
            slot.width = width
            slot.y += _MARGIN + _HEAD + tallest // 2
        x += width + _BETWEEN
    return (x - _BETWEEN if columns else _MARGIN), _MARGIN + _HEAD + tallest


def _place_grid(slots: Sequence[_Slot], *, right: int, top: int) -> tuple[int, int]:
    """Place what is tied to nobody in rows below the rest."""
    if not slots:
        return right, top
    width = max(slot.width for slot in slots)
    fits = (max(right, _WIDTH_LEAST * 2) - _MARGIN + _GAP) // (width + _GAP)
    columns = max(1, min(fits, _GRID_COLUMNS_MAX, len(slots)))
    for number, slot in enumerate(slots):
        row, column = divmod(number, columns)
        slot.width = width
        slot.x = _MARGIN + column * (width + _GAP)
        slot.y = top + row * (_BOX + _GAP) + _BOX // 2
    rows = -(-len(slots) // columns)
    return max(right, _MARGIN + columns * (width + _GAP) - _GAP), top + rows * (_BOX + _GAP) - _GAP


def _document(graph: Graph, edges: Sequence[_Edge], slots: Sequence[_Slot], *, width: int, bottom: int) -> str:
    counts = ", ".join(f"{number} {state}" for state, number in graph.counts().items()) or "no orders"
    title = escape(f"Plan {one_line(graph.name)}")
    size = f"{count(len(graph.nodes), 'order')} in {count(len(graph.layers), 'step')}"
    described = escape(f"{size}: {counts}. Arrows lead to dependents.")
    kinds = {edge.kind for edge in edges}
    legend = _legend([kind for kind in _DASHES if kind in kinds], top=bottom + _GAP)
    height = bottom + _GAP + (30 if legend else 0) + _MARGIN // 2
    names = {node.order: node.name for node in graph.nodes}
    return "\n".join(
        [
            '<?xml version="1.0" encoding="UTF-8"?>',
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}"'
            f' viewBox="0 0 {width} {height}" role="img" aria-labelledby="title desc"'
            ' font-family="ui-monospace, Menlo, Consolas, monospace" font-size="13">',
            f'<title id="title">{title}</title>',
            f'<desc id="desc">{described}</desc>',
            '<defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8"'
            ' orient="auto"><path d="M0 0L8 4L0 8z" fill="#5f6368"/></marker></defs>',
            f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
            f'<text x="{_MARGIN}" y="{_MARGIN + 6}" font-size="16" font-weight="bold" fill="#202124">{title}</text>',
            f'<text x="{_MARGIN}" y="{_MARGIN + 26}" font-size="12" fill="#5f6368">{escape(counts)}</text>',
            '<g fill="none" stroke="#5f6368" stroke-width="1.2">',
            *(_path(edge) for edge in edges),
            "</g>",
            *(_box(slot.node, slot, names) for slot in slots if slot.node is not None),
            *legend,
            "</svg>",
            "",
        ]
    )


def _path(edge: _Edge) -> str:
    first, *rest = edge.slots
    x, y = first.x + first.width, first.y
    parts = [f"M{x} {y}"]
    for slot in rest:
        middle = (x + slot.x) // 2
        parts.append(f"C{middle} {y} {middle} {slot.y} {slot.x} {slot.y}")
        x, y = slot.x, slot.y
        if slot.node is None:
            x += slot.width
            parts.append(f"H{x}")
    return f'<path d="{" ".join(parts)}"{_DASHES[edge.kind]} marker-end="url(#arrow)"/>'


def _box(node: Node, slot: _Slot, names: Mapping[str, str]) -> str:
    fill, stroke = _PALETTES[_PALETTE_OF.get(node.state, "waiting")]
    needs = f"; needs {needs_text(node, names)}" if node.needs else ""
    told = escape(f"{node.name}: {node.state} ({node.reason}){needs}")
    x, y = slot.x, slot.y - _BOX // 2
    return (
        f"<g data-order={quoteattr(node.order)} data-state={quoteattr(node.state)}><title>{told}</title>"
        f'<rect x="{x}" y="{y}" width="{slot.width}" height="{_BOX}" rx="6" fill="{fill}" stroke="{stroke}"'
        f' stroke-width="1.5"/>'
        f'<text x="{x + 12}" y="{y + 18}" fill="#202124">{escape(one_line(node.name))}</text>'
        f'<text x="{x + 12}" y="{y + 35}" font-size="11" fill="{stroke}">{escape(_state_text(node))}</text></g>'
    )


def _legend(kinds: Sequence[str], *, top: int) -> list[str]:
    """What the lines mean; nothing where there are none."""
    parts = []
    x = _MARGIN
    for kind in kinds:
        y = top + 12
        parts.append(f'<path d="M{x} {y}H{x + 36}" fill="none" stroke="#5f6368"{_DASHES[kind]}/>')
        parts.append(f'<text x="{x + 44}" y="{y + 4}" font-size="11" fill="#5f6368">{kind}</text>')
        x += 44 + len(kind) * _CHARACTER + _PADDING
    return parts
