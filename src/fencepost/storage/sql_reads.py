"""What every engine that speaks SQL asks alike: one view of the database, and the order and bounds of its pages.

An engine says how a named query is run (`_rows`), and how many keys and the records of a stream are read. Every answer
comes from one range of one index, so that its cost depends on its size alone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import MutableMapping, Sequence

from fencepost.ports.journal import CommandRow, Cursor, EdgeRow, Head, IndexRow, StateRow, Stream
from fencepost.storage.checks import EMPTY_HEAD, ended, require_limit

_INTEGER_MIN = -(1 << 63)
_INTEGER_MAX = (1 << 63) - 1


class SqlReads(ABC):
    """The port's `Reads`. Valid until the block that gave it ends; used by one thread at a time.

    `numbers` are those of the streams met so far. They never change, so that a journal shares them between reads.
    """

    def __init__(self, numbers: MutableMapping[Stream, int]) -> None:
        self._numbers = numbers
        self._open = True

    def end(self) -> None:
        """Every later call raises StorageError: its answer would be of another head."""
        self._open = False

    @abstractmethod
    def _rows(self, name: str, *values: object) -> list[tuple[object, ...]]:
        """The rows of a named query. Raises StorageError, also once the view has ended."""

    @abstractmethod
    def commands(self, stream: Stream, keys: Sequence[str]) -> dict[str, CommandRow]: ...

    def _require_open(self) -> None:
        if not self._open:
            raise ended()

    def _number(self, stream: Stream) -> int:
        """The stream's number; 0, which no stream has, when it is not stored yet."""
        number = self._numbers.get(stream)
        if number is None:
            rows = self._rows("stream", *stream)
            if not rows:
                return 0
            number = self._numbers[stream] = int(str(rows[0][0]))
        return number

    def head(self, stream: Stream) -> Head:
        rows = self._rows("stream", *stream)
        return Head._make(rows[0][1:]) if rows else EMPTY_HEAD

    def streams(self) -> list[Stream]:
        return [Stream._make(row) for row in self._rows("streams")]

    def state_page(self, stream: Stream, after: str, prefix: str, limit: int) -> list[StateRow]:
        require_limit(limit)
        name, bound = ("state_page_after", after) if after >= prefix else ("state_page_from", prefix)
        # Subjects of one prefix stand together, so that the first other one ends the page.
        page = [StateRow._make(row) for row in self._rows(name, self._number(stream), bound, limit)]
        return [row for row in page if row.subject.startswith(prefix)]

    def command(self, stream: Stream, key: str) -> CommandRow | None:
        return self.commands(stream, (key,)).get(key)

    def find_due(
        self,
        stream: Stream,
        stage: str,
        now_us: int,
        after: Cursor | None,
        limit: int,
        group: str | None = None,
    ) -> list[IndexRow]:
        require_limit(limit)
        bound = after or Cursor(due_us=_INTEGER_MIN, rank=_INTEGER_MIN, subject="")
        values = (self._number(stream), stage, *bound, min(now_us, _INTEGER_MAX), limit)
        rows = self._rows("find_due", *values) if group is None else self._rows("find_due_group", *values, group)
        return [IndexRow._make(row) for row in rows]

    def find_last(self, stream: Stream, stage: str, group: str, limit: int) -> list[IndexRow]:
        require_limit(limit)
        return [IndexRow._make(row) for row in self._rows("find_last", self._number(stream), stage, group, limit)]

    def next_due(self, stream: Stream, stage: str) -> int | None:
        rows = self._rows("next_due", self._number(stream), stage)
        return int(str(rows[0][0])) if rows else None

    def index_page(self, stream: Stream, after: tuple[str, str] | None, limit: int) -> list[IndexRow]:
        require_limit(limit)
        number = self._number(stream)
        if after is None:
            rows = self._rows("index_page_first", number, limit)
        else:
            rows = self._rows("index_page", number, *after, limit)
        return [IndexRow._make(row) for row in rows]

    def edges(self, stream: Stream, member: str, after_position: int, limit: int) -> list[EdgeRow]:
        require_limit(limit)
        return [EdgeRow._make(row) for row in self._rows("edges", self._number(stream), member, after_position, limit)]

    def edge_count(self, stream: Stream, member: str) -> int:
        rows = self._rows("edge_count", self._number(stream), member)
        return int(str(rows[0][0])) if rows else 0
