"""SQLite engine: `create` makes a store or opens the one that is there, `open` opens one that must exist."""

from __future__ import annotations

from pathlib import Path

from fencepost.storage.sqlite.connections import create_file
from fencepost.storage.sqlite.engine import SqliteJournal

__all__ = ["SqliteJournal", "create", "open"]


def create(path: Path, store_id: str, locks_folder: Path) -> SqliteJournal:
    """Open the store at `path`, made with `store_id` (32 hex digits) when there was none.

    Safe against competing creators and against being killed. A store that exists keeps its own `store_id`:
    look at `info`. Raises StorageUnavailable, StorageFull, StorageMismatch or IntegrityError.
    """
    create_file(path, store_id, locks_folder)
    return SqliteJournal(path, locks_folder)


def open(path: Path, locks_folder: Path) -> SqliteJournal:
    """Open an existing store. Raises StorageUnavailable, StorageMismatch or IntegrityError; changes
    nothing."""
    return SqliteJournal(path, locks_folder)
