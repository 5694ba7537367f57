"""The exclusive right to append, on the journal's one writing connection.

Rows go to the database as they are appended, so that later reads of the transaction see them. After any
failure of a statement SQLite may have rolled the whole transaction back, so that nothing more is accepted: a
second half alone would be worse than none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import apsw

from fencepost.ports.journal import Append, EdgeRow, Head, HeadMoved, IndexRow, StateRow, Stream
from fencepost.storage.checks import SEQ_BITS, require_own, require_whole, written_once
from fencepost.storage.sqlite.queries import QUERIES
from fencepost.storage.sqlite.reads import SqliteReads


class SqliteTransaction(SqliteReads):
    """The port's `Transaction`. Made and ended by `SqliteJournal.transaction`."""

    def __init__(self, connection: apsw.Connection, path: str, numbers: dict[Stream, int], stream: Stream) -> None:
        super().__init__(connection, path, dict(numbers))
        self._committed_numbers = numbers
        self._stream = stream
        self._head: Head | None = None
        self.is_broken = False

    def head(self, stream: Stream) -> Head:
        """As `Reads.head`. Nobody else moves the own stream's head meanwhile, so that it is read once."""
        if stream != self._stream:
            return super().head(stream)
        self._require_open()
        if self._head is None:
            self._head = super().head(stream)
        return self._head

    def append(self, group: Append) -> None:
        self._require_own(group.stream)
        head = self.head(group.stream)
        if head != group.expected:
            raise HeadMoved(
                f"the head of {'/'.join(group.stream)} is {head.seq}, not {group.expected.seq}",
                next_step="read the head again in a new transaction and decide again",
            )
        require_whole(group)
        self._head = None
        with self._all_or_nothing():
            self._write_group(group)

    def _write_group(self, group: Append) -> None:
        number = self._number_made(group.stream)
        first_id = number << SEQ_BITS
        self._write("record_insert", [(first_id + seq, data) for seq, data in group.records])
        self._write("command_insert", [(number, *row) for row in group.commands])
        self._write_caches(number, group.states, group.index_delete, group.index_put, group.edges)
        self._write("stream_update", [(number, *group.head)])

    def replace_caches(
        self,
        stream: Stream,
        fold_version: int,
        states: Sequence[StateRow],
        index: Sequence[IndexRow],
        edges: Sequence[EdgeRow],
    ) -> None:
        self._require_own(stream)
        self._head = None
        with self._all_or_nothing():
            number = self._number_made(stream)
            for name in ("states_drop", "index_drop", "edges_drop"):
                self._write(name, [(number,)])
            self._write_caches(number, states, (), index, edges)
            self._write("fold_version_update", [(number, fold_version)])

    def commit(self) -> None:
        self._require_open()
        self._open = False
        try:
            self._connection.execute("COMMIT")
        except apsw.Error as error:
            self.is_broken = True
            raise self.failed(error) from error
        self._committed_numbers.update(self._numbers)

    def _write_caches(
        self,
        number: int,
        states: Iterable[StateRow],
        deletes: Iterable[tuple[str, str]],
        puts: Iterable[IndexRow],
        edges: Iterable[EdgeRow],
    ) -> None:
        self._write("state_put", [(number, *row) for row in states])
        # Deletes come first: a row that is both deleted and put has been put.
        self._write("index_delete", [(number, *key) for key in deletes])
        self._write(
            "index_put",
            [(number, stage, subject, due, rank, group) for stage, group, due, rank, subject in puts],
        )
        self._write("edge_insert", [(number, *row) for row in edges])

    def _write(self, name: str, values: Sequence[tuple[object, ...]]) -> None:
        if values:
            self._connection.executemany(QUERIES[name], values)

    @contextmanager
    def _all_or_nothing(self) -> Iterator[None]:
        """After whatever goes wrong inside, this transaction takes nothing more and cannot be committed."""
        try:
            yield
        except BaseException as error:
            self.is_broken = True
            self._open = False
            if isinstance(error, apsw.ConstraintError):
                raise written_once(f"{self._path}: {error}") from error
            if isinstance(error, apsw.Error):
                raise self.failed(error) from error
            raise

    def _number_made(self, stream: Stream) -> int:
        number = self._number(stream)
        if number == 0:
            rows = self._connection.execute(QUERIES["stream_insert"], stream).fetchall()
            number = self._numbers[stream] = int(str(rows[0][0]))
        return number

    def _require_own(self, stream: Stream) -> None:
        self._require_open()
        require_own(self._stream, stream)
