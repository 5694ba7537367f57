"""Questions to one connection inside one transaction, so that all answers are of one head."""

from __future__ import annotations

from collections.abc import Sequence

import apsw

from fencepost.ports.errors import FencepostError
from fencepost.ports.journal import CommandRow, StateRow, StoredRecord, Stream
from fencepost.storage.checks import SEQ_BITS, SEQ_MAX, require_limit
from fencepost.storage.sql_reads import SqlReads
from fencepost.storage.sqlite.errors import map_error
from fencepost.storage.sqlite.queries import QUERIES


class SqliteReads(SqlReads):
    """Reads of one connection."""

    def __init__(self, connection: apsw.Connection, path: str, numbers: dict[Stream, int]) -> None:
        super().__init__(numbers)
        self._connection = connection
        self._path = path

    def failed(self, error: apsw.Error) -> FencepostError:
        """Return what to raise for `error`."""
        return map_error(error, self._path, self._connection)

    def _rows(self, name: str, *values: object) -> list[tuple[object, ...]]:
        self._require_open()
        try:
            return self._connection.execute(QUERIES[name], values).fetchall()
        except apsw.Error as error:
            raise self.failed(error) from error

    def _rows_of_many(self, name: str, number: int, keys: Sequence[str]) -> list[tuple[object, ...]]:
        if len(keys) == 1:
            return self._rows(name, number, keys[0])
        self._require_open()
        try:
            return self._connection.executemany(QUERIES[name], [(number, key) for key in keys]).fetchall()
        except apsw.Error as error:
            raise self.failed(error) from error

    def states(self, stream: Stream, subjects: Sequence[str]) -> dict[str, StateRow]:
        number = self._number(stream)
        rows = self._rows_of_many("state", number, subjects)
        return {row.subject: row for row in map(StateRow._make, rows)}

    def commands(self, stream: Stream, keys: Sequence[str]) -> dict[str, CommandRow]:
        number = self._number(stream)
        rows = self._rows_of_many("command", number, keys)
        return {row.key: row for row in map(CommandRow._make, rows)}

    def records(self, stream: Stream, after_seq: int, limit: int) -> list[StoredRecord]:
        require_limit(limit)
        first_id = self._number(stream) << SEQ_BITS
        # Also a bound outside of the stream's range stays within the stream.
        after_id = first_id + min(max(after_seq, 0), SEQ_MAX)
        rows = self._rows("records", after_id, first_id + (1 << SEQ_BITS), limit)
        return [StoredRecord._make(row) for row in rows]
