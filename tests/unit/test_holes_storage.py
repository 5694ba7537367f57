"""A transaction is of one stream, and a stream is its scope *and* its name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from fencepost.ports.errors import StorageError
from fencepost.ports.journal import Append, Head, Journal, StoredRecord, Stream
from fencepost.storage import sqlite
from fencepost.storage.memory import MemoryJournal

STORE_ID = "0123456789abcdef" * 2
ENGINES: dict[str, Callable[[Path], Journal]] = {
    "memory": lambda folder: MemoryJournal(STORE_ID),
    "sqlite": lambda folder: sqlite.create(folder / "store.db", STORE_ID, folder / "locks"),
}


@pytest.mark.parametrize("engine", sorted(ENGINES))
@pytest.mark.parametrize("other", [Stream("scope", "other"), Stream("other", "main")])
def test_a_transaction_writes_to_no_stream_of_another_name_or_scope(engine: str, other: Stream, tmp_path: Path) -> None:
    journal = ENGINES[engine](tmp_path)
    group = Append(
        stream=other,
        expected=Head(0, 0, "", 0),
        head=Head(0, 1, "digest", 1),
        records=[StoredRecord(1, b"{}")],
    )
    with journal.transaction(Stream("scope", "main")) as transaction, pytest.raises(StorageError, match="not for"):
        transaction.append(group)
    with journal.snapshot() as reads:
        assert reads.streams() == []
    journal.close()
