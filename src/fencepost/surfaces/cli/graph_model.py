"""The graph of a plan as it is drawn: current orders, their groups of needs, and layers by longest path."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from fencepost.core.state import OrderState, PlanState
from fencepost.kernel.read import Look
from fencepost.surfaces.cli.needs_read import Group, newest_of, read_groups


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
    parent: str = ""  # the order that submitted it itself, "" for none that is drawn

    def before(self) -> tuple[str, ...]:
        """Everyone that it is drawn behind."""
        return (*self.members(), *([self.parent] if self.parent else []))

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
    by_id = {order.order: order for order in every}
    newest = newest_of(by_id)
    current = [by_id[newest[order.order]] for order in every if order.replaces is None]
    groups = needs_of(current, read_groups(look, current), newest)
    return make_graph(plan, look.head.seq, current, groups)


def needs_of(
    current: Sequence[OrderState], read: Mapping[str, Sequence[Group]], newest: Mapping[str, str]
) -> dict[str, dict[int, list[str]]]:
    """Order -> number of the group -> members as they stand; those that are not drawn are left out."""
    drawn = {order.order for order in current}
    groups: dict[str, dict[int, list[str]]] = {}
    for order in current:
        groups[order.order] = own = {}
        for number, group in enumerate(read.get(order.order, ())):
            members = [newest.get(member.order, member.order) for member in group.members]
            if kept := [member for member in members if member in drawn and member != order.order]:
                own[number] = kept
    return groups


def make_graph(
    plan: PlanState, sequence: int, orders: list[OrderState], groups: Mapping[str, Mapping[int, list[str]]]
) -> Graph:
    nodes = nodes_of(orders, groups)
    return Graph(plan=plan.plan, name=plan.name, sequence=sequence, nodes=nodes, layers=layers_of(nodes))


def nodes_of(orders: Sequence[OrderState], groups: Mapping[str, Mapping[int, list[str]]]) -> tuple[Node, ...]:
    """Orders with their needs, members of a group in the order of the orders."""
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
                parent=order.parent if order.parent in place else "",
            )
        )
    return tuple(nodes)


def layers_of(nodes: tuple[Node, ...]) -> tuple[tuple[Node, ...], ...]:
    """Layers by longest path, each in definition order. Plans have no ring, so that every node gets a layer."""
    dependents: dict[str, list[str]] = {node.order: [] for node in nodes}
    waiting = {node.order: len(node.before()) for node in nodes}
    for node in nodes:
        for member in node.before():
            dependents[member].append(node.order)
    layer = {node.order: 0 for node in nodes}
    free = [node.order for node in nodes if not waiting[node.order]]
    for name in free:  # grows while it is walked
        for dependent in dependents[name]:
            layer[dependent] = max(layer[dependent], layer[name] + 1)
            waiting[dependent] -= 1
            if not waiting[dependent]:
                free.append(dependent)
    layers: list[list[Node]] = [[] for _ in range(max(layer.values(), default=-1) + 1)]
    for node in nodes:
        layers[layer[node.order]].append(node)
    return tuple(map(tuple, layers))
