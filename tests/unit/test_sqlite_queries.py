"""Named queries: how they are loaded, that all are used, and that each is answered from an index."""

from __future__ import annotations

import re
from pathlib import Path

import apsw
import pytest

from fencepost.storage import sqlite
from fencepost.storage.queries import parse_queries
from fencepost.storage.sqlite.queries import QUERIES, SCHEMA

# Bounded by what they return, and read whole on purpose.
READ_WHOLE = {"meta", "streams"}


@pytest.fixture(scope="module")
def connection() -> apsw.Connection:
    connection = apsw.Connection(":memory:")
    connection.execute(SCHEMA)
    return connection


@pytest.mark.parametrize("name", sorted(QUERIES))
def test_every_query_finds_its_rows_by_key(connection: apsw.Connection, name: str) -> None:
    plan = [str(row[3]) for row in connection.execute("EXPLAIN QUERY PLAN " + QUERIES[name], _nulls(name))]
    assert not any("TEMP B-TREE" in step for step in plan), plan
    if name not in READ_WHOLE:
        assert not any(step.startswith("SCAN") for step in plan), plan


@pytest.mark.parametrize("name", ["find_due", "find_due_group", "find_last", "state_page_after", "records"])
def test_pages_are_ranges(connection: apsw.Connection, name: str) -> None:
    """Every bound is part of the search, so that a page costs by its limit."""
    plan = " ".join(str(row[3]) for row in connection.execute("EXPLAIN QUERY PLAN " + QUERIES[name], _nulls(name)))
    wanted = {
        "find_due": r"stream=\? AND stage=\? AND \(due_us,rank,subject\)>\(\?,\?,\?\) AND due_us<\?",
        "find_due_group": r"stage=\? AND group=\? AND \(due_us,rank,subject\)>\(\?,\?,\?\) AND due_us<\?",
        "find_last": r"stream=\? AND stage=\? AND group=\?",
        "state_page_after": r"stream=\? AND subject>\?",
        "records": r"rowid>\? AND rowid<\?",
    }
    assert re.search(wanted[name], plan), plan


def test_every_query_is_used() -> None:
    folder = Path(sqlite.__file__).parent
    files = (*folder.glob("*.py"), folder.parent / "sql_reads.py")
    text = "".join(path.read_text(encoding="utf-8") for path in files)
    assert [name for name in QUERIES if f'"{name}"' not in text] == []


@pytest.mark.parametrize(
    "text",
    [
        "-- name: a\n-- Why.\nSELECT 1;\n-- name: a\n-- Why.\nSELECT 2;\n",
        "-- name: a\nSELECT 1;\n",
        "-- name: a\n-- Why.\nSELECT 1\n",
    ],
)
def test_a_query_without_name_comment_or_end_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="query a"):
        parse_queries(text)


def _nulls(name: str) -> tuple[None, ...]:
    return (None,) * max((int(number) for number in re.findall(r"\?(\d+)", QUERIES[name])), default=0)
