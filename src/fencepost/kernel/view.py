"""State under the lock: the store's caches, what this process remembers of them, and what the group has changed.

`Memory` keeps recently used values between groups. It is valid while the stream's head is the one that this process
wrote last; any other head empties it, and the values that are needed are read again. Values are never folded into a
remembered one that might be old, and a subject is created only at version 1, so that nothing starts from a wrong base.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fencepost.core.decide import Decided, Seen
from fencepost.core.evolve import Edge
from fencepost.core.index import Row, difference
from fencepost.core.machines import CorruptHistory
from fencepost.core.records import Body
from fencepost.kernel.rows import record_of, value_of
from fencepost.ports.journal import Cursor, Head, Reads, Stream

VALUES_MAX = 8_192
BODIES_MAX = 2_048


class Memory:
    """What a process remembers of one stream between groups. Used by the leader alone."""

    def __init__(self) -> None:
        self._head: Head | None = None
        self.values: dict[str, Any] = {}
        self.bodies: OrderedDict[int, Body] = OrderedDict()

    def at(self, head: Head) -> None:
        """Forget everything that may be old: somebody else has written since."""
        if self._head != head:
            self.forget()
            self._head = head
        elif len(self.values) > VALUES_MAX:
            for subject in list(self.values)[: len(self.values) - VALUES_MAX // 2]:
                del self.values[subject]

    def forget(self) -> None:
        """After an error nobody knows what the store holds."""
        self._head = None
        self.values.clear()
        self.bodies.clear()

    def keep(self, head: Head, values: Mapping[str, Any], bodies: Mapping[int, Body]) -> None:
        """Take over what a group made durable. Whatever interrupts this leaves a memory that is not used again."""
        self._head = None
        self.values.update(values)
        self.bodies.update(bodies)
        while len(self.bodies) > BODIES_MAX:
            self.bodies.popitem(last=False)
        self._head = head


class GroupView:
    """One group's view: answers of the store overlaid with what earlier commands of the group decided."""

    def __init__(self, reads: Reads, stream: Stream, memory: Memory) -> None:
        self._reads = reads
        self._stream = stream
        self._known = memory.values
        self._known_bodies = memory.bodies
        self._seen = Seen(self._look_up)
        self.get: Callable[[str], Any | None] = self._seen.__getitem__
        self.changed: dict[str, Any] = {}
        self.bodies: dict[int, Body] = {}
        self.edges_new: list[Edge] = []
        self._index: dict[str, dict[str, Row | None]] = {}

    def _look_up(self, subject: str) -> Any | None:
        value = self._known.get(subject)
        if value is None:
            row = self._reads.states(self._stream, (subject,)).get(subject)
            if row is not None:
                value = self._known[subject] = value_of(subject, row.data)
        return value

    def due(
        self, stage: str, now_us: int, limit: int, group: str | None, after: tuple[int, int, str] | None
    ) -> Sequence[Row]:
        mine = self._index.get(stage, {})
        cursor = None if after is None else Cursor(*after)
        found = self._reads.find_due(self._stream, stage, now_us, cursor, limit + len(mine), group)
        rows = [Row(*row) for row in found if row.subject not in mine]
        for row in mine.values():
            if (
                row is not None
                and row.due_us <= now_us
                and (group is None or row.group == group)
                and (after is None or (row.due_us, row.rank, row.subject) > after)
            ):
                rows.append(row)
        rows.sort(key=lambda row: (row.due_us, row.rank, row.subject))
        return rows[:limit]

    def edges(self, member: str, after_position: int, limit: int) -> Sequence[Edge]:
        found = [Edge(*row) for row in self._reads.edges(self._stream, member, after_position, limit)]
        if self.edges_new and len(found) < limit:
            found += [e for e in self.edges_new if e.member == member and e.position > after_position]
        return found[:limit]

    def body(self, seq: int) -> Body:
        body = self.bodies.get(seq) or self._known_bodies.get(seq)
        if body is not None:
            return body
        found = self._reads.records(self._stream, seq - 1, 1)
        if not found or found[0].seq != seq:
            raise CorruptHistory(f"record {seq} is named by the state and missing")
        decoded: Body = record_of(seq, found[0].data).body
        return decoded

    def merge(self, decided: Decided) -> None:
        """Take over what one command decided."""
        seen, changed, index = self._seen, self.changed, self._index
        for subject, value in decided.values.items():
            # Whatever the command changed it has looked up before, unless it has just made the name for it.
            put, delete = difference(seen.get(subject), value)
            for row in put:
                index.setdefault(row.stage, {})[subject] = row
            for stage, name in delete:
                index.setdefault(stage, {})[name] = None
            changed[subject] = seen[subject] = value
        for fact in decided.facts:
            self.bodies[fact.seq] = fact.body
        self.edges_new.extend(decided.edges)

    def index_put(self) -> list[Row]:
        return [row for rows in self._index.values() for row in rows.values() if row is not None]

    def index_delete(self) -> list[tuple[str, str]]:
        return [(stage, subject) for stage, rows in self._index.items() for subject, row in rows.items() if row is None]
