"""File patterns in the most naive way, and what one order hands to another.

`*` stands for any run of characters within a segment, `**` alone in a segment for any number of segments; a final
`**` for at least one. Everything else is literal.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from itertools import product
from typing import Any

from fencepost.testing.simulator.model_state import Order, World

_SEGMENTS_MAX = 128
_BYTES_MAX = 1024


@lru_cache(maxsize=4096)
def _regex(pattern: str) -> re.Pattern[str]:
    segments = pattern.split("/")
    text = ""
    for place, segment in enumerate(segments):
        last = place == len(segments) - 1
        if segment == "**":
            text += "(?:[^/]+/)*[^/]+" if last else "(?:[^/]+/)*"
        else:
            text += "[^/]*".join(map(re.escape, segment.split("*"))) + ("" if last else "/")
    return re.compile(text, re.DOTALL)


@lru_cache(maxsize=16384)
def matches(pattern: str, path: str) -> bool:
    return _regex(pattern).fullmatch(path) is not None


def matches_any(patterns: Iterable[str], path: str) -> bool:
    return any(matches(pattern, path) for pattern in patterns)


@lru_cache(maxsize=4096)
def readable(pattern: str) -> bool:
    """Whether a pattern is one: relative, inside the tree, of whole segments, within its bounds."""
    segments = pattern.split("/")
    return (
        all(part not in ("", ".", "..") and ("**" not in part or part == "**") for part in segments)
        and not re.search("[\0\\\\\ud800-\udfff]", pattern)
        and len(pattern.encode()) <= _BYTES_MAX
        and len(segments) <= _SEGMENTS_MAX
    )


@lru_cache(maxsize=4096)
def covered(outputs: tuple[str, ...], pattern: str) -> bool:
    """Whether the outputs match every path that the pattern can match, by trying out paths of every shape."""
    if pattern in outputs:
        return True
    longest = max((len(each.split("/")) for each in outputs), default=0) + 1
    parts: list[list[str]] = []
    segments = pattern.split("/")
    for place, segment in enumerate(segments):
        if segment == "**":
            least = 1 if place == len(segments) - 1 else 0
            parts.append(["\1/" * count for count in range(least, longest + 1)])
        else:
            parts.append([segment.replace("*", text) + "/" for text in ({"", "\1"} if "*" in segment else {""})])
    tried = ("".join(choice)[:-1] for choice in product(*parts))
    return all(matches_any(outputs, path) for path in tried if path and "//" not in path and path[0] != "/")


def handed_files(world: World, order: Order) -> list[Mapping[str, Any]]:
    """The files that other orders' accepted results hand to this one, in bytewise order of their paths."""
    chosen: dict[str, Mapping[str, Any]] = {}
    for source in order.spec["inputs"].get("orders", ()):
        producer = world.orders[source["order"]]
        if producer.state == "applied":
            for ref in world.attempts[producer.attempt].facts.get("artifacts", ()):
                if matches_any(source["files"], ref["path"]):
                    chosen[ref["path"]] = ref
    return [chosen[path] for path in sorted(chosen, key=lambda path: path.encode())]
