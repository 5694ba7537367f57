"""An empty store, filled from the records of a journal through the journal port, caches and all (W21).

It shows that nothing but the records is needed. It is no restored store: the answers that command keys have had are no
part of a journal.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fencepost.core.evolve import Edge
from fencepost.core.index import Row
from fencepost.core.state import FOLD_VERSION, SCOPE
from fencepost.kernel import replay
from fencepost.kernel.read import Reader
from fencepost.ports.errors import IntegrityError
from fencepost.ports.journal import Append, EdgeRow, Head, IndexRow, Journal, Reads, StateRow, StoredRecord, Stream
from fencepost.storage.memory import MemoryJournal
from fencepost.testing.prefixes import READY_MAX, Prefixes

_GROUP_RECORDS = 500  # records that are put into a store in one transaction
_IN_MEMORY = "memory"
_PAGE = 1_000


class Refill:
    """Puts what a fold makes of each record into a store that was empty."""

    def __init__(self, place: str, fold: Prefixes) -> None:
        """`place` is `memory` or a folder that does not exist yet, for a SQLite store."""
        self._place = place
        self._fold = fold
        self._journal: Journal | None = None
        self._head = Head(0, 0, "", 0)
        self._records: list[StoredRecord] = []
        self._states: list[StateRow] = []
        self._index: dict[tuple[str, str], Row | None] = {}
        self._edges: list[Edge] = []

    @property
    def journal(self) -> Journal:
        if self._journal is None:
            raise ValueError("a store is made with the first record")
        return self._journal

    def add(self, data: bytes) -> None:
        """Take over the record that the fold has just had."""
        fold = self._fold
        if self._journal is None:
            self._journal = _empty_store(self._place, fold.replayed.values[SCOPE].store_id)
        changed = fold.changed
        self._records.append(StoredRecord(fold.replayed.link.seq, data))
        self._states += changed.states
        self._index.update(dict.fromkeys(changed.index_delete))
        self._index.update({(row.stage, row.subject): row for row in changed.index_put})
        self._edges += changed.edges
        if len(self._records) == _GROUP_RECORDS:
            self.flush()

    def flush(self) -> None:
        """Commit what was added. A second call does nothing."""
        fold = self._fold
        if not self._records or fold.where is None:
            return
        stream = Stream(fold.where.scope, fold.where.stream)
        link = fold.replayed.link
        head = Head(fold.where.epoch, link.seq, link.digest, FOLD_VERSION)
        group = Append(
            stream=stream,
            expected=self._head,
            head=head,
            records=self._records,
            states=self._states,
            index_put=[IndexRow(*row) for row in self._index.values() if row is not None],
            index_delete=[key for key, row in self._index.items() if row is None],
            edges=[EdgeRow(*edge) for edge in self._edges],
        )
        with self.journal.transaction(stream) as transaction:
            transaction.append(group)
            transaction.commit()
        self._head = head
        self._records, self._states, self._index, self._edges = [], [], {}, []

    def check(self) -> None:
        """Compare the store with a replay of its own records, and its queue with the fold's. Raises IntegrityError."""
        fold = self._fold
        if fold.where is None:
            return
        stream = Stream(fold.where.scope, fold.where.stream)
        compared = replay.compare(self.journal, stream)
        if not compared.match:
            raise IntegrityError(f"{compared.differs} is not what the records lead to")
        if compared.projection_digest != fold.replayed.digest():
            raise IntegrityError("the store's projections are not those of the fold")
        wanted = fold.ready()
        if wanted is None:
            return
        with Reader(self.journal, stream).look() as look:
            shown = look.ready(wanted.as_of_event, wanted.sequence, READY_MAX)
        if shown != wanted:
            raise IntegrityError("the store's queue is not the one of the fold")


def _empty_store(place: str, store_id: str) -> Journal:
    if place == _IN_MEMORY:
        return MemoryJournal(store_id)
    from fencepost.storage import sqlite  # its driver is not there where only msgspec is

    folder = Path(place)
    (folder / "locks").mkdir(parents=True)
    return sqlite.create(folder / "store.db", store_id, folder / "locks")


def first_difference(ours: Journal, theirs: Journal, stream: Stream) -> str:
    """Name the first cached row of a stream that two stores do not have alike; empty where there is none."""
    with ours.snapshot() as one, theirs.snapshot() as other:
        if one.head(stream) != other.head(stream):
            return f"head {other.head(stream).seq} instead of {one.head(stream).seq}"
        for what in (_state_rows, _index_rows, _edge_rows):
            mine, foreign = what(one, stream), what(other, stream)
            for row in mine:
                if row != next(foreign, None):
                    return f"{type(row).__name__} {'/'.join(str(part) for part in row[:2])}"
            if (extra := next(foreign, None)) is not None:
                return f"{type(extra).__name__} {'/'.join(str(part) for part in extra[:2])}"
    return ""


def _state_rows(reads: Reads, stream: Stream) -> Iterator[tuple[Any, ...]]:
    after = ""
    while page := reads.state_page(stream, after, "", _PAGE):
        yield from page
        after = page[-1].subject


def _index_rows(reads: Reads, stream: Stream) -> Iterator[tuple[Any, ...]]:
    after: tuple[str, str] | None = None
    while page := reads.index_page(stream, after, _PAGE):
        yield from page
        after = (page[-1].stage, page[-1].subject)


def _edge_rows(reads: Reads, stream: Stream) -> Iterator[tuple[Any, ...]]:
    for row in _state_rows(reads, stream):
        after = -1
        while page := reads.edges(stream, row[0], after, _PAGE):
            yield from page
            after = page[-1].position
