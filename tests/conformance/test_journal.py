"""Every engine runs the suite that ships."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fencepost.ports.journal import Journal
from fencepost.storage import sqlite
from fencepost.storage.memory import MemoryJournal
from fencepost.testing.conformance.journal import JournalConformance, SharedJournalConformance

STORE_ID = "0123456789abcdef" * 2


class TestMemory(JournalConformance):
    @pytest.fixture
    def journal(self) -> Iterator[Journal]:
        journal = MemoryJournal(STORE_ID)
        yield journal
        journal.close()


class TestSqlite(JournalConformance, SharedJournalConformance):
    @pytest.fixture
    def journal(self, tmp_path: Path) -> Iterator[Journal]:
        journal = sqlite.create(tmp_path / "store.db", STORE_ID, tmp_path / "locks")
        yield journal
        journal.close()

    @pytest.fixture
    def reopen(self, tmp_path: Path) -> Iterator[Callable[[], Journal]]:
        opened: list[Journal] = []

        def again() -> Journal:
            opened.append(sqlite.open(tmp_path / "store.db", tmp_path / "locks"))
            return opened[-1]

        yield again
        for journal in opened:
            journal.close()
