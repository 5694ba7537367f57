"""The suite that ships, on every PostgreSQL that this machine can start."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from fencepost.ports.journal import Journal
from fencepost.storage import postgres
from fencepost.testing.conformance.journal import JournalConformance, SharedJournalConformance
from tests.support.postgres import Server, installations, running

STORE_ID = "0123456789abcdef" * 2


@pytest.mark.parametrize("server", sorted(installations()), indirect=True)
class TestPostgres(JournalConformance, SharedJournalConformance):
    @pytest.fixture
    def server(self, request: pytest.FixtureRequest) -> Server:
        return running(request.param)

    @pytest.fixture
    def schema(self, server: Server) -> str:
        return server.fresh_schema()

    @pytest.fixture
    def journal(self, server: Server, schema: str) -> Iterator[Journal]:
        journal = postgres.create(server.url(), STORE_ID, schema=schema)
        yield journal
        journal.close()

    @pytest.fixture
    def reopen(self, server: Server, schema: str) -> Iterator[Callable[[], Journal]]:
        opened: list[Journal] = []

        def again() -> Journal:
            opened.append(postgres.open(server.url(), schema=schema))
            return opened[-1]

        yield again
        for journal in opened:
            journal.close()
