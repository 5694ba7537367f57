"""The dependency graph of a plan: one order of everything, every ring named, priorities raised.

Rules: orders are nodes by their position, so that a name written twice cannot hide one. The topological
order is Kahn's with ties broken by definition order, hence a function of the document alone. Nothing
recurses: a chain or a ring as long as a plan may be is an ordinary input.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heappush

import msgspec

from fencepost.core.planfile import bounds
from fencepost.core.planfile.document import PRIORITIES, Priority


class Sorted(msgspec.Struct, frozen=True, kw_only=True):
    """Positions in topological order, and the rings that keep the others out of it.

    A ring lists positions so that each needs the next and the last needs the first; it begins with the
    smallest.
    """

    order: tuple[int, ...]
    rings: tuple[tuple[int, ...], ...]


def sort_graph(needs: Sequence[Sequence[int]]) -> Sorted:
    """Sort the nodes 0..n-1, each given with the nodes that it needs.

    Rings are reported one by one, at most `bounds.RINGS_MAX`: after each, its members are taken out of the
    way and sorting goes on, so that rings which do not share a member are all found.
    """
    dependents: list[list[int]] = [[] for _ in needs]
    missing = [0] * len(needs)
    for node, needed in enumerate(needs):
        for other in dict.fromkeys(needed):
            dependents[other].append(node)
            missing[node] += 1
    order: list[int] = []
    rings: list[tuple[int, ...]] = []
    done = [False] * len(needs)
    ready = [node for node, count in enumerate(missing) if count == 0]
    heapify(ready)
    lowest = 0
    while True:
        while ready:
            node = heappop(ready)
            done[node] = True
            if not rings:
                order.append(node)
            _release(node, dependents, missing, done, ready)
        while lowest < len(needs) and done[lowest]:
            lowest += 1
        if lowest == len(needs) or len(rings) >= bounds.RINGS_MAX:
            return Sorted(order=tuple(order), rings=tuple(rings))
        ring = _ring_from(lowest, needs, done)
        rings.append(ring)
        for node in ring:
            done[node] = True
        for node in ring:
            _release(node, dependents, missing, done, ready)


def _release(
    node: int, dependents: Sequence[Sequence[int]], missing: list[int], done: Sequence[bool], ready: list[int]
) -> None:
    for dependent in dependents[node]:
        missing[dependent] -= 1
        if missing[dependent] == 0 and not done[dependent]:
            heappush(ready, dependent)


def _ring_from(start: int, needs: Sequence[Sequence[int]], done: Sequence[bool]) -> tuple[int, ...]:
    """Follow from each node the first one it still waits for until a node comes again."""
    path: list[int] = []
    places: dict[int, int] = {}
    node = start
    while node not in places:
        places[node] = len(path)
        path.append(node)
        node = next(other for other in needs[node] if not done[other])
    ring = path[places[node] :]
    first = ring.index(min(ring))
    return tuple(ring[first:] + ring[:first])


def ring_text(names: Sequence[str]) -> str:
    """The ring in words, abridged in its middle if it is long."""
    shown = list(names)
    if len(shown) > bounds.RING_NAMES_SHOWN_MAX:
        half = bounds.RING_NAMES_SHOWN_MAX // 2
        shown = [*shown[:half], f"... {len(names) - 2 * half} more ...", *shown[-half:]]
    return " -> ".join([*shown, names[0]])


def raise_priorities(
    order: Sequence[int], needs: Sequence[Sequence[int]], declared: Sequence[Priority]
) -> tuple[Priority, ...]:
    """Every order's class, raised to the highest class of the orders that wait for it, directly or not."""
    ranks = [PRIORITIES.index(priority) for priority in declared]
    for node in reversed(order):
        for other in needs[node]:
            ranks[other] = max(ranks[other], ranks[node])
    return tuple(PRIORITIES[rank] for rank in ranks)
