"""PostgreSQL and memory answer the same to the same: random groups, every question compared."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fencepost.storage import postgres
from fencepost.storage.memory import MemoryJournal
from tests.support.postgres import installations, running
from tests.unit.test_sqlite_and_memory_agree import GROUP, Group, answers, apply


@pytest.mark.parametrize("name", sorted(installations()))
@settings(max_examples=10)
@given(groups=st.lists(GROUP, min_size=1, max_size=6))
def test_engines_agree(name: str, groups: list[Group]) -> None:
    server = running(name)
    memory = MemoryJournal("0" * 32)
    database = postgres.create(server.url(), "0" * 32, schema=server.fresh_schema())
    try:
        for group in groups:
            apply(memory, group)
            apply(database, group)
            with memory.snapshot() as expected, database.snapshot() as found:
                assert answers(found) == answers(expected)
    finally:
        database.close()
