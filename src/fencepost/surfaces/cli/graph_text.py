"""A plan's graph as plain text: steps from first to last, orders of one state and the same needs together.

Sixty orders that stand alike take a few lines and not sixty, so that a plan of some hundred orders is still read at
a glance, and nothing is wider than the terminal (80 columns in a pipe) but a name that is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fencepost.surfaces.cli.graph_model import Graph, Node
from fencepost.surfaces.cli.words import columns, one_line, wrapped

_TIE = "\u00a0"  # holds a number and its state together while lines are broken
_KINDS = {"required": "", "optional": "end of ", "alternative": "any of "}


def graph_lines(graph: Graph) -> list[str]:
    counts = ", ".join(f"{number}{_TIE}{state}" for state, number in graph.counts().items())
    number = len(graph.nodes)
    heading = f"plan {graph.name}: {number} order{'' if number == 1 else 's'}: {counts or 'none'}"
    lines = [line.replace(_TIE, " ") for line in wrapped(heading, after="  ")]
    width = max((len(node.state) for node in graph.nodes), default=0)
    names = {node.order: node.name for node in graph.nodes}
    steps = len(str(len(graph.layers)))
    for step, layer in enumerate(graph.layers, start=1):
        lines.append("")
        lead = str(step).rjust(steps)
        for nodes in _alike(layer):
            lines += _block(nodes, lead=lead, state_width=width, names=names)
            lead = " " * steps
    return lines


def _alike(layer: Sequence[Node]) -> list[list[Node]]:
    """Nodes of one state and the same needs, each set in the place of its first node."""
    sets: dict[object, list[Node]] = {}
    for node in layer:
        sets.setdefault((node.state, node.needs, node.parent), []).append(node)
    return list(sets.values())


def _block(nodes: Sequence[Node], *, lead: str, state_width: int, names: Mapping[str, str]) -> list[str]:
    start = f"{lead}  {nodes[0].state.ljust(state_width)}  "
    titles = ", ".join(_title(node) for node in nodes)
    needs = _behind(nodes[0], names)
    if needs and len(start) + len(titles) + len(needs) + 2 < columns():
        return [f"{start}{titles}  {needs}"]
    lines = wrapped(titles, indent=start, after=" " * len(start))
    if needs:
        indent = " " * (len(lead) + 4)
        lines += wrapped(needs, indent=indent, after=indent + "  ")
    return lines


def _title(node: Node) -> str:
    return one_line(node.name) + (" (may fail)" if node.may_fail else "")


def _behind(node: Node, names: Mapping[str, str]) -> str:
    """What it stands behind: the order that submitted it, and what it needs; "" for nothing."""
    parts = [f"inside {one_line(names[node.parent])}"] if node.parent else []
    parts += [f"needs {needs_text(node, names)}"] if node.needs else []
    return ", ".join(parts)


def needs_text(node: Node, names: Mapping[str, str]) -> str:
    """A node's needs in words: `a, b; end of c; any of d, e`."""
    parts = []
    for need in node.needs:
        parts.append(_KINDS[need.kind] + ", ".join(one_line(names[member]) for member in need.members))
    return "; ".join(parts)
