"""The exclusive right to append: a transaction that holds the lock on its stream's head row.

Rows go to the database as they are appended, so that later reads of the transaction see them. After any failure of a
statement PostgreSQL accepts nothing more in a transaction, and neither does this one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import psycopg

from fencepost.ports.errors import StorageUnavailable
from fencepost.ports.journal import Append, CommandRow, EdgeRow, Head, HeadMoved, IndexRow, StateRow, Stream
from fencepost.storage.checks import require_own, require_whole, written_once
from fencepost.storage.postgres.connections import Address, Connection, finish, query
from fencepost.storage.postgres.errors import is_lost
from fencepost.storage.postgres.reads import PostgresReads


class PostgresTransaction(PostgresReads):
    """The port's `Transaction`. Made and ended by `PostgresJournal.transaction`, which has read `head` under the
    lock."""

    def __init__(
        self, connection: Connection, address: Address, numbers: Mapping[Stream, int], stream: Stream, head: Head
    ) -> None:
        # A stream's first row is another's to see only once it is committed: so is its number.
        super().__init__(connection, address, dict(numbers))
        self._stream = stream
        self._head = head
        self.is_committed = False

    @property
    def number(self) -> int:
        """Of the own stream."""
        return self._numbers[self._stream]

    def head(self, stream: Stream) -> Head:
        """As `Reads.head`. Nobody else moves the own stream's head meanwhile."""
        if stream != self._stream:
            return super().head(stream)
        self._require_open()
        return self._head

    def append(self, group: Append) -> None:
        self._require_own(group.stream)
        if self._head != group.expected:
            raise HeadMoved(
                f"the head of {'/'.join(group.stream)} is {self._head.seq}, not {group.expected.seq}",
                next_step="read the head again in a new transaction and decide again",
            )
        require_whole(group)
        with self._all_or_nothing():
            self._write("record_insert", group.records)
            self._write("command_insert", group.commands)
            self._write_caches(group.states, group.index_delete, group.index_put, group.edges)
            query(self._connection, self._statements["stream_update"], self.number, *group.head)
        self._head = group.head

    def replace_caches(
        self,
        stream: Stream,
        fold_version: int,
        states: Sequence[StateRow],
        index: Sequence[IndexRow],
        edges: Sequence[EdgeRow],
    ) -> None:
        self._require_own(stream)
        with self._all_or_nothing():
            for name in ("states_drop", "index_drop", "edges_drop"):
                query(self._connection, self._statements[name], self.number)
            self._write_caches(states, (), index, edges)
            query(self._connection, self._statements["fold_version_update"], self.number, fold_version)
        self._head = self._head._replace(fold_version=fold_version)

    def commit(self) -> None:
        self._require_open()
        self._open = False
        try:
            finish(self._connection, self._address)
        except psycopg.Error as error:
            if is_lost(error, self._connection):
                raise StorageUnavailable(
                    f"{self._address} was lost while a transaction was committed: it stands as a whole or not at all",
                    next_step="run the same command again: its key says whether it was committed",
                ) from error
            raise self.failed(error) from error
        self.is_committed = True

    def _write_caches(
        self,
        states: Iterable[StateRow],
        deletes: Sequence[tuple[str, str]],
        puts: Iterable[IndexRow],
        edges: Sequence[EdgeRow],
    ) -> None:
        # A later row of one key replaces an earlier one, and one statement must not meet a key twice.
        self._write("state_put", [*{row.subject: row for row in states}.values()])
        # Deletes come first: a row that is both deleted and put has been put.
        self._write("index_delete", deletes)
        self._write("index_put", [*{(row.stage, row.subject): row for row in puts}.values()])
        self._write("edge_insert", edges)

    def _write(self, name: str, rows: Sequence[tuple[object, ...] | CommandRow]) -> None:
        """Run a statement that takes the stream's number and then the rows, as one array for each column."""
        if rows:
            columns = [list(column) for column in zip(*rows, strict=True)]
            query(self._connection, self._statements[name], self.number, *columns)

    @contextmanager
    def _all_or_nothing(self) -> Iterator[None]:
        """After whatever goes wrong inside, this transaction takes nothing more and cannot be committed."""
        try:
            yield
        except BaseException as error:
            self._open = False
            if isinstance(error, psycopg.errors.UniqueViolation):
                raise written_once(f"{self._address}: {error.diag.message_detail or error}") from error
            if isinstance(error, psycopg.Error):
                raise self.failed(error) from error
            raise

    def _require_own(self, stream: Stream) -> None:
        self._require_open()
        require_own(self._stream, stream)
