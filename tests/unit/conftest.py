"""Fixtures of the tests of single parts: a store on a real PostgreSQL server, in a schema of its own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from fencepost.storage import postgres
from fencepost.storage.postgres.engine import PostgresJournal
from tests.support.postgres import Server, installations, running

STORE_ID = "0123456789abcdef" * 2


@pytest.fixture
def server() -> Server:
    """One is enough for what is the same in every version; the suite that ships runs on all."""
    return running(min(installations()))


@pytest.fixture
def schema(server: Server) -> str:
    return server.fresh_schema()


@pytest.fixture
def journal(server: Server, schema: str) -> Iterator[PostgresJournal]:
    journal = postgres.create(server.url(), STORE_ID, schema=schema)
    yield journal
    journal.close()


@pytest.fixture
def raw(server: Server, schema: str) -> Iterator[psycopg.Connection[Any]]:
    """A connection as any other program would open one; every name is looked for in the store's schema."""
    with psycopg.connect(server.url(), autocommit=True, options=f"-c search_path={schema}") as connection:
        yield connection
