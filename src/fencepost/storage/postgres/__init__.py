"""PostgreSQL engine: `create` makes a store or opens the one that is there, `open` opens one that must exist.

Needs the extra `postgres` (psycopg 3). Without it this package can be imported, and says what is missing once it is
asked for a store.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fencepost.ports.errors import StorageUnavailable

if TYPE_CHECKING:
    from fencepost.storage.postgres.engine import PostgresJournal

__all__ = ["create", "open"]

_SCHEMA = "fencepost"


def create(url: str, store_id: str, *, schema: str = _SCHEMA) -> PostgresJournal:
    """Open the store in `schema` of the database at `url`, made with `store_id` (32 hex digits) when there is none.

    The database must exist; `url` is anything that libpq takes (`postgresql://user@host:port/database`). Safe against
    competing creators and against being killed. A store that exists keeps its own `store_id`: look at `info`. Raises
    StorageUnavailable, StorageFull, StorageMismatch or IntegrityError, and ValueError for a name that no schema has.
    """
    _require_driver()
    from fencepost.storage.postgres.connections import Address, create_store
    from fencepost.storage.postgres.engine import PostgresJournal

    address = Address(url, schema)
    create_store(address, store_id)
    return PostgresJournal(address)


def open(url: str, *, schema: str = _SCHEMA) -> PostgresJournal:
    """Open an existing store. Raises StorageUnavailable, StorageMismatch or IntegrityError; changes nothing."""
    _require_driver()
    from fencepost.storage.postgres.connections import Address
    from fencepost.storage.postgres.engine import PostgresJournal

    return PostgresJournal(Address(url, schema))


def _require_driver() -> None:
    try:
        import psycopg  # noqa: F401  # only whether it is there, with the C library that it needs
    except ImportError as error:
        raise StorageUnavailable(
            f"a store on PostgreSQL needs psycopg, which cannot be loaded here ({error})",
            next_step="pip install 'fencepost[postgres]'",
        ) from error
