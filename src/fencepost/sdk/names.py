"""Several names where several are meant. A text is a sequence of texts too, one for each of its characters, so that a
name that stands alone by mistake would be taken apart without a word; it is refused here.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, ValuesView
from collections.abc import Set as AbstractSet

TYPE_CHECKING = False  # that of `typing`, without loading it
if TYPE_CHECKING:
    from typing import TypeAlias

Names: TypeAlias = list[str] | tuple[str, ...] | AbstractSet[str] | ValuesView[str] | Iterator[str]
"""What a type checker takes for several names. It has no `Sequence`, which a single text is."""


def several(names: object, what: str) -> tuple[str, ...]:
    """The names as a tuple, paths as texts; messages call them `what`. Raises TypeError for one name alone, and for
    what is no text."""
    if isinstance(names, str | bytes | os.PathLike):
        shown = repr(names)[:80]
        raise TypeError(f"{what} are a list of texts, and {shown} is one alone: write [{shown}]")
    if not isinstance(names, Iterable):
        raise TypeError(f"{what} are a list of texts, not of type {type(names).__name__}")
    found = []
    for place, each in enumerate(names):
        name = os.fspath(each) if isinstance(each, os.PathLike) else each
        if not isinstance(name, str):
            raise TypeError(f"{what} are a list of texts, and [{place}] is of type {type(each).__name__}")
        found.append(name)
    return tuple(found)
