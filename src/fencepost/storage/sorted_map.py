"""A sorted map whose copies are cheap: the memory engine's tables.

Entries stand in runs of bounded length. A copy shares every run with its original and takes one for itself
when it first changes it, so that a copy costs one list of runs, and a change one run. The original is never
touched; who still holds it sees what it saw. Keys of one map must be comparable with each other.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import Any, Generic, TypeVar

_RUN_MAX = 512  # entries; a longer run is cut in two

# Any ordered type: `tuple` and `str` have no common protocol for it that is as plain as this.
Key = TypeVar("Key", bound=Any)
Value = TypeVar("Value")


class SortedMap(Generic[Key, Value]):
    """Keys in ascending order with one value each. A copy may be changed by one thread, and read by any until
    then."""

    def __init__(self) -> None:
        self._firsts: list[Key] = []  # first key of each run; no run is empty
        self._keys: list[list[Key]] = []
        self._values: list[list[Value]] = []
        self._own: set[int] = set()  # identities of the runs that no other map holds

    def copy(self) -> SortedMap[Key, Value]:
        """Return a map with the same entries. From here on neither changes a run that both hold."""
        twin: SortedMap[Key, Value] = SortedMap()
        twin._firsts, twin._keys, twin._values = self._firsts[:], self._keys[:], self._values[:]
        self._own = set()
        return twin

    def get(self, key: Key) -> Value | None:
        run = bisect_right(self._firsts, key) - 1
        if run < 0:
            return None
        keys = self._keys[run]
        place = bisect_left(keys, key)
        return self._values[run][place] if place < len(keys) and keys[place] == key else None

    def put(self, key: Key, value: Value) -> None:
        """Add an entry, or replace the value of the one that is there."""
        if not self._keys:
            self._insert_run(0, [key], [value])
            return
        run = max(bisect_right(self._firsts, key) - 1, 0)
        keys, values = self._owned(run)
        place = bisect_left(keys, key)
        if place < len(keys) and keys[place] == key:
            values[place] = value
            return
        keys.insert(place, key)
        values.insert(place, value)
        self._firsts[run] = keys[0]
        if len(keys) > _RUN_MAX:
            # A map that grows at its end keeps full runs; elsewhere a run is cut in its middle.
            cut = len(keys) - 1 if run == len(self._keys) - 1 and place == len(keys) - 1 else len(keys) // 2
            self._insert_run(run + 1, keys[cut:], values[cut:])
            del keys[cut:], values[cut:]

    def delete(self, key: Key) -> None:
        """Drop an entry; a key that is not there is no error."""
        if self.get(key) is None:
            return
        run = bisect_right(self._firsts, key) - 1
        keys, values = self._owned(run)
        place = bisect_left(keys, key)
        del keys[place], values[place]
        if keys:
            self._firsts[run] = keys[0]
        else:
            self._own.discard(id(keys))
            del self._firsts[run], self._keys[run], self._values[run]

    def from_key(self, key: Key, *, inclusive: bool) -> Iterator[tuple[Key, Value]]:
        """Entries at or beyond `key`, or only beyond it, ascending."""
        run = max(bisect_right(self._firsts, key) - 1, 0)
        while run < len(self._keys):
            keys, values = self._keys[run], self._values[run]
            place = bisect_left(keys, key) if inclusive else bisect_right(keys, key)
            yield from zip(keys[place:], values[place:], strict=True)
            run += 1

    def before_key(self, key: Key) -> Iterator[tuple[Key, Value]]:
        """Entries before `key`, descending."""
        run = bisect_right(self._firsts, key) - 1
        while run >= 0:
            keys, values = self._keys[run], self._values[run]
            place = bisect_left(keys, key)
            yield from zip(reversed(keys[:place]), reversed(values[:place]), strict=True)
            run -= 1

    def __len__(self) -> int:
        return sum(map(len, self._keys))

    def _owned(self, run: int) -> tuple[list[Key], list[Value]]:
        keys = self._keys[run]
        if id(keys) not in self._own:
            keys = self._keys[run] = keys[:]
            self._values[run] = self._values[run][:]
            self._own.add(id(keys))
        return keys, self._values[run]

    def _insert_run(self, run: int, keys: list[Key], values: list[Value]) -> None:
        self._firsts.insert(run, keys[0])
        self._keys.insert(run, keys)
        self._values.insert(run, values)
        self._own.add(id(keys))
