"""Stores that are on a disk keep what they answered when their process is gone in the middle of something.

What stands in the files just then is copied and opened elsewhere, while the first one lives on and knows of nothing.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fencepost.ports.journal import Journal
from fencepost.storage import sqlite
from fencepost.testing.conformance.journal_crash import CrashConformance

STORE_ID = "0123456789abcdef" * 2


class TestSqlite(CrashConformance):
    @pytest.fixture
    def opened(self) -> Iterator[list[tuple[Path, Journal]]]:
        opened: list[tuple[Path, Journal]] = []
        yield opened
        for _, journal in opened:
            journal.close()

    @pytest.fixture
    def journal(self, tmp_path: Path, opened: list[tuple[Path, Journal]]) -> Journal:
        folder = tmp_path / "0"
        folder.mkdir()
        journal = sqlite.create(folder / "store.db", STORE_ID, folder / "locks")
        opened.append((folder, journal))
        return journal

    @pytest.fixture
    def crash(self, tmp_path: Path, opened: list[tuple[Path, Journal]]) -> Callable[[Journal], Journal]:
        def crash(journal: Journal) -> Journal:
            before = next(folder for folder, each in opened if each is journal)
            folder = tmp_path / str(len(opened))
            shutil.copytree(before, folder)
            opened.append((folder, sqlite.open(folder / "store.db", folder / "locks")))
            return opened[-1][1]

        return crash
