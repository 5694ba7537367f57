"""File patterns of accepted specs: compiled once, and asked the same way by those who decide and those who collect."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache

from fencepost.core.machines import CorruptHistory
from fencepost.core.planfile.patterns import Pattern, compile_pattern
from fencepost.core.records.common import ArtifactRef
from fencepost.core.records.plan import WorkOrderSpec


@lru_cache(maxsize=4_096)
def pattern_of(text: str) -> Pattern:
    """A pattern of an accepted spec, which was read once before. Raises CorruptHistory if it cannot be."""
    pattern = compile_pattern(text)
    if not isinstance(pattern, Pattern):
        raise CorruptHistory(f"the pattern {text!r} of an accepted spec cannot be read: {pattern.message}")
    return pattern


def matches(text: str, path: str) -> bool:
    return pattern_of(text).matches(path)


def matches_any(texts: Iterable[str], path: str) -> bool:
    return any(matches(text, path) for text in texts)


def passes_on(names: Iterable[str], name: str) -> bool:
    """Whether a variable, or a prefix that ends in `*`, is within what an order's environment names."""
    return any(name.startswith(known[:-1]) if known.endswith("*") else name == known for known in names)


def handed_files(spec: WorkOrderSpec, applied: Callable[[str], Sequence[ArtifactRef]]) -> tuple[ArtifactRef, ...]:
    """What other orders hand over, in bytewise order of paths: the files that the spec's patterns choose.

    `applied` gives the files of an order's applied result, none for one that has none. Of two files with one path
    the order that the spec names later hands over its own.
    """
    chosen: dict[str, ArtifactRef] = {}
    for source in spec.inputs.orders:
        for ref in applied(source.order):
            if matches_any(source.files, ref.path):
                chosen[ref.path] = ref
    return tuple(chosen[path] for path in sorted(chosen, key=str.encode))
