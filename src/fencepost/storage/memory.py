"""The memory engine: the same port without a disk, for tests, simulation and trials.

Each stream is one immutable-by-convention version of eight tables. A transaction changes a copy, which shares
what it does not change, and `commit` puts the copy in the place of the version that was there. A snapshot
keeps the version that it began with.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice

from fencepost.ports.errors import StorageError, StorageUnavailable
from fencepost.ports.journal import (
    Append,
    CommandRow,
    Cursor,
    EdgeRow,
    Head,
    HeadMoved,
    IndexRow,
    Reads,
    StateRow,
    StoredRecord,
    StoreInfo,
    Stream,
    Transaction,
)
from fencepost.storage.checks import (
    EMPTY_HEAD,
    ended,
    require_limit,
    require_own,
    require_whole,
    written_once,
)
from fencepost.storage.sorted_map import SortedMap

LAYOUT = 1
FORMAT = 0

_POSITION_END = 1 << 63  # beyond every position
_ENDLESS = (float("inf"),)  # beyond every `due_us`


class _Tables:
    """One version of one stream."""

    def __init__(self) -> None:
        self.head = EMPTY_HEAD
        self.records: SortedMap[int, StoredRecord] = SortedMap()
        self.commands: SortedMap[str, CommandRow] = SortedMap()
        self.states: SortedMap[str, StateRow] = SortedMap()
        self.index: SortedMap[tuple[str, str], IndexRow] = SortedMap()
        self.due: SortedMap[tuple[object, ...], IndexRow] = SortedMap()  # stage, due_us, rank, subject
        self.group_due: SortedMap[tuple[object, ...], IndexRow] = SortedMap()  # stage, group, then as above
        self.edges: SortedMap[tuple[str, int], EdgeRow] = SortedMap()

    def copy(self) -> _Tables:
        twin = _Tables()
        twin.head = self.head
        twin.records = self.records.copy()
        twin.commands = self.commands.copy()
        twin.states = self.states.copy()
        twin.index = self.index.copy()
        twin.due = self.due.copy()
        twin.group_due = self.group_due.copy()
        twin.edges = self.edges.copy()
        return twin

    def drop_caches(self) -> None:
        self.states = SortedMap()
        self.index = SortedMap()
        self.due = SortedMap()
        self.group_due = SortedMap()
        self.edges = SortedMap()

    def index_delete(self, stage: str, subject: str) -> None:
        row = self.index.get((stage, subject))
        if row is not None:
            self.index.delete((stage, subject))
            self.due.delete((stage, row.due_us, row.rank, subject))
            self.group_due.delete((stage, row.group, row.due_us, row.rank, subject))

    def index_put(self, row: IndexRow) -> None:
        self.index_delete(row.stage, row.subject)
        self.index.put((row.stage, row.subject), row)
        self.due.put((row.stage, row.due_us, row.rank, row.subject), row)
        self.group_due.put((row.stage, row.group, row.due_us, row.rank, row.subject), row)

    def edge_insert(self, row: EdgeRow) -> None:
        if self.edges.get((row.member, row.position)) is not None:
            raise written_once(f"edge {row.position} of {row.member}")
        self.edges.put((row.member, row.position), row)

    def command_insert(self, row: CommandRow) -> None:
        if self.commands.get(row.key) is not None:
            raise written_once(f"command {row.key}")
        self.commands.put(row.key, row)


class _MemoryReads:
    """The port's `Reads` of versions that nobody changes, or that only this transaction changes."""

    def __init__(self, streams: dict[Stream, _Tables]) -> None:
        self._streams = streams
        self._open = True

    def end(self) -> None:
        self._open = False

    def _require_open(self) -> None:
        if not self._open:
            raise ended()

    def _tables(self, stream: Stream) -> _Tables:
        self._require_open()
        return self._streams.get(stream) or _Tables()

    def head(self, stream: Stream) -> Head:
        return self._tables(stream).head

    def streams(self) -> list[Stream]:
        self._require_open()
        return sorted(stream for stream, tables in self._streams.items() if tables.head.seq > 0)

    def states(self, stream: Stream, subjects: Sequence[str]) -> dict[str, StateRow]:
        table = self._tables(stream).states
        rows = (table.get(subject) for subject in subjects)
        return {row.subject: row for row in rows if row is not None}

    def state_page(self, stream: Stream, after: str, prefix: str, limit: int) -> list[StateRow]:
        require_limit(limit)
        table = self._tables(stream).states
        entries = table.from_key(max(after, prefix), inclusive=after < prefix)
        return [row for subject, row in islice(entries, limit) if subject.startswith(prefix)]

    def command(self, stream: Stream, key: str) -> CommandRow | None:
        return self._tables(stream).commands.get(key)

    def commands(self, stream: Stream, keys: Sequence[str]) -> dict[str, CommandRow]:
        table = self._tables(stream).commands
        rows = (table.get(key) for key in keys)
        return {row.key: row for row in rows if row is not None}

    def records(self, stream: Stream, after_seq: int, limit: int) -> list[StoredRecord]:
        require_limit(limit)
        entries = self._tables(stream).records.from_key(after_seq, inclusive=False)
        return [record for _, record in islice(entries, limit)]

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
        tables = self._tables(stream)
        table, start = (tables.due, (stage,)) if group is None else (tables.group_due, (stage, group))
        found: list[IndexRow] = []
        for _, row in islice(table.from_key((*start, *(after or ())), inclusive=False), limit):
            if row.stage != stage or (group is not None and row.group != group) or row.due_us > now_us:
                break
            found.append(row)
        return found

    def find_last(self, stream: Stream, stage: str, group: str, limit: int) -> list[IndexRow]:
        require_limit(limit)
        entries = self._tables(stream).group_due.before_key((stage, group, *_ENDLESS))
        return [row for _, row in islice(entries, limit) if (row.stage, row.group) == (stage, group)]

    def next_due(self, stream: Stream, stage: str) -> int | None:
        for _, row in self._tables(stream).due.from_key((stage,), inclusive=False):
            return row.due_us if row.stage == stage else None
        return None

    def index_page(self, stream: Stream, after: tuple[str, str] | None, limit: int) -> list[IndexRow]:
        require_limit(limit)
        entries = self._tables(stream).index.from_key(after or ("", ""), inclusive=after is None)
        return [row for _, row in islice(entries, limit)]

    def edges(self, stream: Stream, member: str, after_position: int, limit: int) -> list[EdgeRow]:
        require_limit(limit)
        entries = self._tables(stream).edges.from_key((member, after_position), inclusive=False)
        return [row for _, row in islice(entries, limit) if row.member == member]

    def edge_count(self, stream: Stream, member: str) -> int:
        for _, row in self._tables(stream).edges.before_key((member, _POSITION_END)):
            return row.position + 1 if row.member == member else 0
        return 0


class _MemoryTransaction(_MemoryReads):
    def __init__(self, journal: MemoryJournal, stream: Stream, streams: dict[Stream, _Tables]) -> None:
        self._journal = journal
        self._stream = stream
        self._work = streams[stream].copy() if stream in streams else _Tables()
        super().__init__({**streams, stream: self._work})

    def append(self, group: Append) -> None:
        self._require_own(group.stream)
        if self._work.head != group.expected:
            raise HeadMoved(
                f"the head of {'/'.join(group.stream)} is {self._work.head.seq}, not {group.expected.seq}",
                next_step="read the head again in a new transaction and decide again",
            )
        require_whole(group)
        try:
            self._apply(group)
        except BaseException:
            self._open = False  # half a group is in the copy, which nobody shall see
            raise

    def _apply(self, group: Append) -> None:
        work = self._work
        for record in group.records:
            work.records.put(record.seq, record)
        for command in group.commands:
            work.command_insert(command)
        for stage, subject in group.index_delete:
            work.index_delete(stage, subject)
        self._put_caches(group.states, group.index_put, group.edges)
        work.head = group.head

    def replace_caches(
        self,
        stream: Stream,
        fold_version: int,
        states: Sequence[StateRow],
        index: Sequence[IndexRow],
        edges: Sequence[EdgeRow],
    ) -> None:
        self._require_own(stream)
        self._work.drop_caches()
        try:
            self._put_caches(states, index, edges)
        except BaseException:
            self._open = False
            raise
        self._work.head = self._work.head._replace(fold_version=fold_version)

    def commit(self) -> None:
        self._require_open()
        self._open = False
        self._journal.publish(self._stream, self._work)

    def _put_caches(self, states: Iterable[StateRow], index: Iterable[IndexRow], edges: Iterable[EdgeRow]) -> None:
        for state in states:
            self._work.states.put(state.subject, state)
        for row in index:
            self._work.index_put(row)
        for edge in edges:
            self._work.edge_insert(edge)

    def _require_own(self, stream: Stream) -> None:
        self._require_open()
        require_own(self._stream, stream)


class MemoryJournal:
    """The port's `Journal` in this process's memory. Gone at its end."""

    def __init__(self, store_id: str) -> None:
        self._info = StoreInfo(store_id=store_id, layout=LAYOUT, format=FORMAT)
        self._writer = threading.Lock()
        self._owner = 0  # identity of the thread that writes, 0 for none
        self._streams: dict[Stream, _Tables] = {}  # replaced as a whole, never changed
        self._commits = 0
        self._closed = False

    @property
    def engine(self) -> str:
        return "memory"

    @property
    def info(self) -> StoreInfo:
        self._require_usable()
        return self._info

    @contextmanager
    def transaction(self, stream: Stream, *, wait_s: float = 30.0) -> Iterator[Transaction]:
        self._require_usable()
        if self._owner == threading.get_ident():
            raise StorageError("this thread has a transaction already", next_step="end it before you begin another")
        if not self._writer.acquire(timeout=max(wait_s, 0.0)):
            raise StorageUnavailable(
                f"another writer has held the store for {wait_s:g} s",
                next_step="wait longer, or end that writer",
            )
        try:
            self._owner = threading.get_ident()
            self._require_usable()
            transaction = _MemoryTransaction(self, stream, self._streams)
            try:
                yield transaction
            finally:
                transaction.end()
        finally:
            self._owner = 0
            self._writer.release()

    def publish(self, stream: Stream, tables: _Tables) -> None:
        """Make a transaction's version the one that everybody sees. Only for the transaction that holds the
        lock."""
        self._streams = {**self._streams, stream: tables}
        self._commits += 1

    @contextmanager
    def snapshot(self) -> Iterator[Reads]:
        self._require_usable()
        reads = _MemoryReads(self._streams)
        try:
            yield reads
        finally:
            reads.end()

    def change_token(self) -> int:
        self._require_usable()
        return self._commits

    def close(self) -> None:
        self._closed = True

    def _require_usable(self) -> None:
        if self._closed:
            raise StorageUnavailable("this store is closed", next_step="open the store again")
