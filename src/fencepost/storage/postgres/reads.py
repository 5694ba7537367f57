"""Questions to one view of the database: a snapshot, or a transaction that reads under its lock.

Every answer comes from one range of one index, so that its cost depends on its size alone.
"""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence

import psycopg

from fencepost.ports.errors import FencepostError
from fencepost.ports.journal import CommandRow, StateRow, StoredRecord, Stream
from fencepost.storage.checks import SEQ_MAX, require_limit
from fencepost.storage.postgres.connections import Address, Connection, query
from fencepost.storage.postgres.errors import map_error
from fencepost.storage.sql_reads import SqlReads


class PostgresReads(SqlReads):
    """Reads of one connection."""

    def __init__(self, connection: Connection, address: Address, numbers: MutableMapping[Stream, int]) -> None:
        super().__init__(numbers)
        self._connection = connection
        self._address = address
        self._statements = address.statements.by_name

    def failed(self, error: psycopg.Error) -> FencepostError:
        """Return what to raise for `error`."""
        return map_error(error, str(self._address), self._connection)

    def _rows(self, name: str, *values: object) -> list[tuple[object, ...]]:
        self._require_open()
        try:
            return query(self._connection, self._statements[name], *values)
        except psycopg.Error as error:
            raise self.failed(error) from error

    def states(self, stream: Stream, subjects: Sequence[str]) -> dict[str, StateRow]:
        rows = self._rows("states", self._number(stream), list(subjects)) if subjects else []
        return {row.subject: row for row in map(StateRow._make, rows)}

    def commands(self, stream: Stream, keys: Sequence[str]) -> dict[str, CommandRow]:
        rows = self._rows("commands", self._number(stream), list(keys)) if keys else []
        return {row.key: row for row in map(CommandRow._make, rows)}

    def records(self, stream: Stream, after_seq: int, limit: int) -> list[StoredRecord]:
        require_limit(limit)
        rows = self._rows("records", self._number(stream), min(max(after_seq, 0), SEQ_MAX), limit)
        return [StoredRecord._make(row) for row in rows]
