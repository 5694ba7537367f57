"""The graph of a plan as it is drawn: current orders, their groups of needs, and layers by longest path."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from fencepost.core.state import OrderState, PlanState
from fencepost.kernel.read import Look


class Need(msgspec.Struct, frozen=True, kw_only=True):
    """One dependency group; `members` are ids of orders that are drawn."""

    kind: str
    members: tuple[str, ...]


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """One order as it stands; a replacement stands in the place of what it replaces."""

    order: str
    name: str
    state: str
    reason: str
    may_fail: bool
    needs: tuple[Need, ...]

    def members(self) -> tuple[str, ...]:
        """Everyone that it needs, each once, in the order of its groups."""
        return tuple(dict.fromkeys(member for need in self.needs for member in need.members))


class Graph(msgspec.Struct, frozen=True, kw_only=True):
    """Nodes in definition order. `layers` holds them by step: nothing needs an order of its own step or a later one."""

    plan: str
    name: str
    sequence: int
    nodes: tuple[Node, ...]
    layers: tuple[tuple[Node, ...], ...]

    def counts(self) -> dict[str, int]:
        """How many orders are in each state, by name of the state."""
        counts: dict[str, int] = {}
        for node in self.nodes:
            counts[node.state] = counts.get(node.state, 0) + 1
        return dict(sorted(counts.items()))


def read_graph(look: Look, plan: PlanState) -> Graph:
    every = look.orders(plan.plan, replaced=True)
    current = look.orders(plan.plan)
    newest = _newest({order.order: order for order in every})
    groups: dict[str, dict[int, list[str]]] = {order.order: {} for order in current}
    for order in every:
        member = newest[order.order]
        for dependent, group, _ in look.edges(order.order):
            if dependent in groups and member in groups and member != dependent:
                groups[dependent].setdefault(group, []).append(member)
    return make_graph(plan, look.head.seq, current, groups)


def make_graph(
    plan: PlanState, sequence: int, orders: list[OrderState], groups: Mapping[str, Mapping[int, list[str]]]
) -> Graph:
    place = {order.order: number for number, order in enumerate(orders)}
    nodes = []
    for order in orders:
        needs = []
        for group, members in sorted(groups[order.order].items()):
            chosen = tuple(sorted(dict.fromkeys(members), key=lambda member: place[member]))
            needs.append(Need(kind=order.groups[group].kind, members=chosen))
        nodes.append(
            Node(
                order=order.order,
                name=order.task,
                state=order.state,
                reason=order.reason,
                may_fail=order.may_fail,
                needs=tuple(needs),
            )
        )
    return Graph(plan=plan.plan, name=plan.name, sequence=sequence, nodes=tuple(nodes), layers=layers_of(tuple(nodes)))


def _newest(by_id: Mapping[str, OrderState]) -> dict[str, str]:
    """Each order's last replacement."""
    newest = {}
    for name in by_id:
        last = by_id[name]
        while last.replaced_by is not None and last.replaced_by in by_id:
            last = by_id[last.replaced_by]
        newest[name] = last.order
    return newest


def layers_of(nodes: tuple[Node, ...]) -> tuple[tuple[Node, ...], ...]:
    """Layers by longest path, each in definition order. Plans have no ring, so that every node gets a layer."""
    dependents: dict[str, list[str]] = {node.order: [] for node in nodes}
    waiting = {node.order: len(node.members()) for node in nodes}
    for node in nodes:
        for member in node.members():
            dependents[member].append(node.order)
    layer = {node.order: 0 for node in nodes}
    free = [node.order for node in nodes if not waiting[node.order]]
    for name in free:  # grows while it is walked
        for dependent in dependents[name]:
            layer[dependent] = max(layer[dependent], layer[name] + 1)
            waiting[dependent] -= 1
            if not waiting[dependent]:
                free.append(dependent)
    count = max(layer.values(), default=-1) + 1
    return tuple(tuple(node for node in nodes if layer[node.order] == step) for step in range(count))
