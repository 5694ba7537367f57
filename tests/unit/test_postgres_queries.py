"""Named queries on PostgreSQL: that all are used, and that each is answered from an index, in its order."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fencepost.storage import postgres
from fencepost.storage.postgres.connections import Address, Connection, connect, connect_deadline_s
from fencepost.storage.postgres.queries import statements_for
from tests.support.postgres import installations, running

STORE_ID = "0" * 32
# Bounded by what they return, and read whole on purpose.
READ_WHOLE = {"meta", "streams", "change_token"}
# One row, found by what the database knows of itself.
OF_THE_DATABASE = {"encoding", "store_exists", "create_lock"}
QUERIES = statements_for("fencepost").by_name
PLANNED = sorted(QUERIES.keys() - OF_THE_DATABASE)


@pytest.fixture(scope="module", params=sorted(installations()))
def connection(request: pytest.FixtureRequest) -> Iterator[Connection]:
    """As the engine has one, to an empty store of the schema that the files name: a planner knows nothing yet."""
    url = running(request.param).url()
    postgres.create(url, STORE_ID).close()
    connection = connect(Address(url, "fencepost"), connect_deadline_s())
    connection.execute("SET plan_cache_mode = force_generic_plan")
    yield connection
    connection.close()


def plan_of(connection: Connection, name: str) -> list[dict[str, Any]]:
    """The nodes of the plan that a query gets once it is prepared, whatever its values."""
    count = max((int(number) for number in re.findall(r"\$(\d+)", QUERIES[name])), default=0)
    nulls = f"({', '.join(['NULL'] * count)})" if count else ""
    connection.execute(f"PREPARE planned AS {QUERIES[name]}")
    try:
        cursor = connection.execute(f"EXPLAIN (FORMAT JSON) EXECUTE planned {nulls}")
        found = cursor.fetchall()[0][0]
    finally:
        connection.execute("DEALLOCATE planned")
    root = (json.loads(found) if isinstance(found, str) else found)[0]["Plan"]  # type: ignore[index]  # a document
    return list(nodes(root))


def nodes(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield node
    for child in node.get("Plans", ()):
        yield from nodes(child)


@pytest.mark.parametrize("name", PLANNED)
def test_every_query_finds_its_rows_by_key(connection: Connection, name: str) -> None:
    kinds = [node["Node Type"] for node in plan_of(connection, name)]
    if name not in READ_WHOLE:
        assert not {"Seq Scan", "Bitmap Heap Scan", "Sort", "Incremental Sort"} & {*kinds}, kinds


@pytest.mark.parametrize("name", ["find_due", "find_due_group", "find_last", "state_page_after", "records", "edges"])
def test_pages_are_ranges(connection: Connection, name: str) -> None:
    """Every bound is part of the search, so that a page costs by its limit."""
    (scan,) = (node for node in plan_of(connection, name) if "Index Name" in node)
    wanted = {
        "find_due": ("findable_due", r"stream = .*stage = .*ROW\(due_us, rank, subject\) > ROW.*due_us <= "),
        "find_due_group": ("findable_group", r"stage = .*group.* = .*ROW\(due_us, rank, subject\) > ROW.*due_us <= "),
        "find_last": ("findable_group", r"stream = .*stage = .*group.* = "),
        "state_page_after": ("state_pkey", r"stream = .*subject > "),
        "records": ("record_pkey", r"stream = .*seq > "),
        "edges": ("edge_pkey", r'stream = .*member = .*"position" > '),
    }
    index, condition = wanted[name]
    assert scan["Index Name"] == index
    assert re.search(condition, scan["Index Cond"]), scan["Index Cond"]
    assert "Filter" not in scan


def test_every_query_is_used() -> None:
    folder = Path(postgres.__file__).parent
    files = (*folder.glob("*.py"), folder.parent / "sql_reads.py")
    text = "".join(path.read_text(encoding="utf-8") for path in files)
    assert [name for name in QUERIES if f'"{name}"' not in text] == []


def test_every_name_is_said_with_its_schema() -> None:
    """No search path is relied on."""
    statements = statements_for("elsewhere")
    text = "\n".join([*statements.by_name.values(), statements.layout])
    assert "fencepost" not in re.sub(r"--.*", "", text)
    named = re.findall(r"\b(?:FROM|INTO|UPDATE|ON|TABLE|FUNCTION)\s+(\S+)", re.sub(r"--.*", "", text))
    known = ("meta", "stream", "record", "command", "state", "findable", "edge", "refuse_change")
    assert [name for name in named if name.strip('"();').startswith(known)] == []
