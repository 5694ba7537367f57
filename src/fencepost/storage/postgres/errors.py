"""What PostgreSQL's errors mean for a caller: whose fault, and what to do next.

PostgreSQL names each error by five characters (SQLSTATE), the first two of them its class. An error without them
is the connection's: it could not be made, or has been lost.
"""

from __future__ import annotations

import psycopg

from fencepost.ports.errors import (
    FencepostError,
    IntegrityError,
    StorageError,
    StorageFull,
    StorageMismatch,
    StorageUnavailable,
)

WAITED = frozenset({"55P03", "57014"})  # of the statement that locks: lock not available, statement cancelled

_DISK_FULL = "53100"
_DAMAGED = frozenset({"XX001", "XX002"})  # data_corrupted, index_corrupted
_OTHER_LAYOUT = frozenset(
    {"3F000", "42P01", "42703", "42883", "42804"}
)  # no such schema, table, column, function, type
# Operator's intervention, resources but for the disk, connections, identities, an abort that asks to be tried again.
_UNAVAILABLE_CLASSES = frozenset({"08", "28", "40", "53", "57"})
_UNAVAILABLE = frozenset(
    {
        "55P03",  # a lock that is held for too long
        "25006",  # a read-only server or database
        "25P03",  # idle in a transaction for too long
        "25P04",  # a transaction that took too long
        "3D000",  # no such database
        "42501",  # no permission
    }
)
_CONNECTION_ENDS = frozenset({"25P03", "25P04", "57P01", "57P02", "57P03", "57P04", "57P05"})


def is_lost(error: psycopg.Error, connection: psycopg.Connection | None) -> bool:
    """Whether the connection is gone, so that nothing that was begun on it can be known to have been done."""
    state = error.sqlstate or ""
    if state in _CONNECTION_ENDS or state.startswith("08"):
        return True
    return isinstance(error, psycopg.OperationalError) and (connection is None or connection.closed)


def map_error(error: psycopg.Error, where: str, connection: psycopg.Connection | None = None) -> FencepostError:
    """Return the exception to raise from `error`. `where` names the store without secrets."""
    state = error.sqlstate or ""
    said = str(error).strip().partition("\n")[0] or type(error).__name__
    if state == _DISK_FULL:
        return StorageFull(
            f"no space is left for {where}: nothing of this transaction was written",
            next_step="free disk space on the server, then run the same command again",
        )
    if state in _DAMAGED:
        return IntegrityError(
            f"{where} is damaged: {said}",
            next_step="stop every process of this store, keep a copy of the server's folder, restore from a backup",
        )
    if state in _OTHER_LAYOUT:
        return StorageMismatch(
            f"{where} is not laid out as this program knows it: {said}",
            next_step="see what has changed the schema, or name another database or schema",
        )
    if state in _UNAVAILABLE or state[:2] in _UNAVAILABLE_CLASSES or is_lost(error, connection):
        return StorageUnavailable(
            f"{where} cannot be used now: {said}",
            next_step="see that the server runs, and that this user may connect and write, then run again",
        )
    return StorageError(f"{where}: {said}", next_step="look at the server's log, then run again")
