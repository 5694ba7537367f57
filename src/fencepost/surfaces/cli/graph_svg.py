"""A plan's graph as SVG: states by sign, word and colour, needs by the kind of their line, both explained in it.

The same bytes for the same graph. Colours stand in the drawing itself and are changed by a style sheet where a reader
prefers a dark page, so that programs without style sheets show the light one. A large plan is drawn with one line a
box: the state's word is then in the box's title, its sign and colour in the list above.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from xml.sax.saxutils import escape, quoteattr

from fencepost.surfaces.cli.graph_layout import CHILD, Edge, Layout, Sizes, Slot, lay_out
from fencepost.surfaces.cli.graph_model import Graph, Node
from fencepost.surfaces.cli.graph_text import needs_text
from fencepost.surfaces.cli.view.signs import UNICODE, rank_of
from fencepost.surfaces.cli.words import count, one_line

_MARGIN = 24
_TITLE = 34  # height of the title
_CHIP = 24  # height of a line of the list of states
_CHARACTER = 8
_SMALL = 7  # width of a character of the smaller letters
_TIGHT_FROM = 40  # orders in one layer, or loose, from which boxes have one line
_WIDTH_LEAST = 640

_LIGHT = {
    "done": ("#e2f5e7", "#176f31"),
    "lost": ("#ffe2e0", "#b42318"),
    "over": ("#f6eceb", "#8c4a45"),
    "moving": ("#cfe5ff", "#0b5cad"),
    "later": ("#fff1c9", "#8a5a00"),
    "ready": ("#ffffff", "#0b5cad"),
    "waiting": ("#f3f4f6", "#57606a"),
    "person": ("#eddcff", "#6e34b8"),
}
_DARK = {
    "done": ("#12301d", "#56d364"),
    "lost": ("#3d1514", "#ff8b83"),
    "over": ("#2b2020", "#c99a96"),
    "moving": ("#0c2d52", "#79c0ff"),
    "later": ("#37290a", "#e3b341"),
    "ready": ("#0d1117", "#79c0ff"),
    "waiting": ("#1c2128", "#9da7b3"),
    "person": ("#2d1f47", "#d2a8ff"),
}
_PAPER, _INK, _PALE, _LINE = (
    ("#ffffff", "#0d1117"),
    ("#1f2328", "#e6edf3"),
    ("#57606a", "#9da7b3"),
    ("#6e7781", "#768390"),
)
_CLASS_OF = {
    "applied": "done",
    "failed": "lost",
    "budget_exhausted": "lost",
    "dependency_failed": "over",
    "cancelled": "over",
    "cancellation_requested": "moving",
    "reserved": "moving",
    "active": "moving",
    "result_pending": "moving",
    "ready": "ready",
    "retry_wait": "later",
    "waiting": "later",
    "blocked_budget": "later",
    "submitted": "waiting",
    "blocked_dependency": "waiting",
    "blocked_policy": "person",
    "conflict": "person",
    "reconciling": "person",
    "unknown_terminal": "person",
    "quarantined": "person",
}
_DASHES = {
    "required": "",
    "optional": ' stroke-dasharray="7 4"',
    "alternative": ' stroke-dasharray="1.5 4"',
    CHILD: ' stroke-dasharray="8 3 1.5 3"',
}
_MEANINGS = {"required": "needs", "optional": "needs its end", "alternative": "needs any of them", CHILD: "its child"}


def graph_svg(graph: Graph) -> str:
    """The whole document, with a title, a description and a legend."""
    tight = _is_tight(graph)
    sizes = Sizes(
        margin=_MARGIN,
        box=26 if tight else 44,
        gap=8 if tight else 16,
        bend=4 if tight else 10,
        between=84 if tight else 76,
        width_of=lambda node: _box_width(node, tight=tight),
    )
    # The list of states is as wide as the drawing, which it stands above: its height is needed first, and is small.
    top = _MARGIN + _TITLE + _CHIP + 16
    layout = lay_out(graph, sizes, top=top, width_least=_WIDTH_LEAST * 2)
    width = max(layout.right, _WIDTH_LEAST) + _MARGIN
    chips, lines = _chips(graph, width)
    shift = (lines - 1) * _CHIP
    for slot in {id(slot): slot for slot in _all_slots(layout)}.values():
        slot.y += shift
    return _document(graph, layout, chips, width=width, bottom=layout.bottom + shift, tight=tight)


def _is_tight(graph: Graph) -> bool:
    return (
        max((len(layer) for layer in graph.layers), default=0) >= _TIGHT_FROM // 2
        or len(graph.nodes) >= _TIGHT_FROM * 2
    )


def _all_slots(layout: Layout) -> list[Slot]:
    return [*layout.slots, *(slot for edge in layout.edges for slot in edge.slots)]


def _box_width(node: Node, *, tight: bool) -> int:
    name = len(one_line(node.name)) * _CHARACTER + 42
    return name if tight else max(name, len(_state_text(node)) * _SMALL + 44)


def _state_text(node: Node) -> str:
    return f"{node.state}, may fail" if node.may_fail else node.state


def _class_of(state: str) -> str:
    return _CLASS_OF.get(state, "later")


def _chips(graph: Graph, width: int) -> tuple[list[str], int]:
    """How many orders are in which state, each with its sign and colour; and the number of lines that takes."""
    parts: list[str] = []
    x, line = _MARGIN, 0
    counts = graph.counts()
    for state in sorted(counts, key=lambda state: (rank_of(state), state)):
        text = f"{counts[state]} {state}"
        wide = 26 + len(text) * _SMALL + 18
        if x + wide > width and x > _MARGIN:
            x, line = _MARGIN, line + 1
        y = _MARGIN + _TITLE + line * _CHIP
        name = _class_of(state)
        fill, stroke = _LIGHT[name]
        sign = escape(UNICODE.sign(state)[0])
        parts.append(
            f'<g class="{name}">'
            f'<rect x="{x}" y="{y - 10}" width="20" height="18" rx="4" fill="{fill}" stroke="{stroke}"/>'
            f'<text class="tone" x="{x + 10}" y="{y + 4}" text-anchor="middle" font-size="12" fill="{stroke}">'
            f"{sign}</text></g>"
            f'<text class="pale" x="{x + 26}" y="{y + 3}" font-size="12" fill="{_PALE[0]}">{escape(text)}</text>'
        )
        x += wide
    return parts, line + 1


def _document(graph: Graph, layout: Layout, chips: Sequence[str], *, width: int, bottom: int, tight: bool) -> str:
    counts = ", ".join(f"{number} {state}" for state, number in graph.counts().items()) or "no orders"
    title = escape(f"Plan {one_line(graph.name)}")
    size = f"{count(len(graph.nodes), 'order')} in {count(len(graph.layers), 'step')}"
    described = escape(f"{size}: {counts}. Arrows lead to dependents.")
    kinds = {edge.kind for edge in layout.edges}
    legend = _legend([kind for kind in _DASHES if kind in kinds], top=bottom + 20)
    height = bottom + (52 if legend else 20)
    names = {node.order: node.name for node in graph.nodes}
    states = {node.order: node.state for node in graph.nodes}
    return "\n".join(
        [
            '<?xml version="1.0" encoding="UTF-8"?>',
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}"'
            f' viewBox="0 0 {width} {height}" role="img" aria-labelledby="title desc"'
            ' font-family="ui-monospace, Menlo, Consolas, \'DejaVu Sans Mono\', monospace" font-size="13">',
            f'<title id="title">{title}</title>',
            f'<desc id="desc">{described}</desc>',
            f"<style>{_style()}</style>",
            '<defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7"'
            f' orient="auto"><path class="head" d="M0 0L8 4L0 8z" fill="{_LINE[0]}"/></marker></defs>',
            f'<rect class="paper" width="{width}" height="{height}" fill="{_PAPER[0]}"/>',
            f'<text class="ink" x="{_MARGIN}" y="{_MARGIN + 8}" font-size="16" font-weight="bold" fill="{_INK[0]}">'
            f"{title}"
            f'<tspan class="pale" font-size="12" font-weight="normal" fill="{_PALE[0]}" dx="12">{size}</tspan></text>',
            *chips,
            f'<g class="lines" fill="none" stroke="{_LINE[0]}" stroke-width="1.2">',
            *(_path(edge, states) for edge in layout.edges),
            "</g>",
            *(_box(slot.node, slot, names, tight=tight) for slot in layout.slots if slot.node is not None),
            *legend,
            "</svg>",
            "",
        ]
    )


def _style() -> str:
    """What changes on a dark page, and under a pointer."""
    rules = [
        f".paper{{fill:{_PAPER[1]}}}",
        f".ink{{fill:{_INK[1]}}}",
        f".pale{{fill:{_PALE[1]}}}",
        f".lines,.key{{stroke:{_LINE[1]}}}",
        f".head{{fill:{_LINE[1]}}}",
    ]
    for name, (fill, tone) in _DARK.items():
        rules.append(f".{name} rect{{fill:{fill};stroke:{tone}}}.{name} .tone{{fill:{tone}}}")
    return f".lines path:hover{{stroke-width:3}}@media (prefers-color-scheme:dark){{{''.join(rules)}}}"


def _path(edge: Edge, states: Mapping[str, str]) -> str:
    first, *rest = edge.slots
    x, y = first.x + first.width, first.y
    parts = [f"M{x} {y}"]
    for slot in rest:
        middle = (x + slot.x) // 2
        parts.append(f"H{slot.x}" if y == slot.y else f"C{middle} {y} {middle} {slot.y} {slot.x} {slot.y}")
        x, y = slot.x, slot.y
        if slot.node is None:
            x += slot.width
            parts.append(f"H{x}")
    # What has been met holds nobody up any more.
    is_met = edge.kind != CHILD and first.node is not None and states[first.node.order] == "applied"
    met = ' stroke-opacity="0.45"' if is_met else ""
    return f'<path d="{" ".join(parts)}"{_DASHES[edge.kind]}{met} marker-end="url(#arrow)"/>'


def _box(node: Node, slot: Slot, names: Mapping[str, str], *, tight: bool) -> str:
    name = _class_of(node.state)
    fill, stroke = _LIGHT[name]
    needs = f"; needs {needs_text(node, names)}" if node.needs else ""
    told = escape(f"{node.name}: {node.state} ({node.reason}){needs}")
    x, y = slot.x, slot.y - slot.height // 2
    line = y + (17 if tight else 18)
    frame = ' stroke-dasharray="4 3"' if node.may_fail else ""
    parts = [
        f"<g class={quoteattr(name)} data-order={quoteattr(node.order)} data-state={quoteattr(node.state)}>"
        f"<title>{told}</title>",
        f'<rect x="{x}" y="{y}" width="{slot.width}" height="{slot.height}" rx="6" fill="{fill}" stroke="{stroke}"'
        f' stroke-width="1.5"{frame}/>',
        f'<text class="ink" x="{x + 30}" y="{line}" fill="{_INK[0]}">{escape(one_line(node.name))}</text>',
    ]
    if not tight:
        text = escape(_state_text(node))
        parts.append(f'<text class="tone" x="{x + 30}" y="{y + 35}" font-size="11" fill="{stroke}">{text}</text>')
    sign = escape(UNICODE.sign(node.state)[0])
    parts.append(f'<text class="tone" x="{x + 16}" y="{line}" text-anchor="middle" fill="{stroke}">{sign}</text></g>')
    return "".join(parts)


def _legend(kinds: Sequence[str], *, top: int) -> list[str]:
    """What the lines mean; nothing where there are none."""
    parts = []
    x = _MARGIN
    for kind in kinds:
        y = top + 8
        text = _MEANINGS[kind]
        parts.append(f'<path class="key" d="M{x} {y}H{x + 36}" fill="none" stroke="{_LINE[0]}"{_DASHES[kind]}/>')
        parts.append(f'<text class="pale" x="{x + 44}" y="{y + 4}" font-size="12" fill="{_PALE[0]}">{text}</text>')
        x += 44 + len(text) * _SMALL + 28
    if kinds:
        text = "a dashed frame: may fail"
        parts.append(f'<text class="pale" x="{x}" y="{top + 12}" font-size="12" fill="{_PALE[0]}">{text}</text>')
    return parts
