"""`fencepost clock show`: the scope's time, its sources and how far it is behind UTC."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.surfaces.cli_world import Cli, World, draft


@pytest.fixture
def cli(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Cli:
    world = World(tmp_path)
    world.submit("p", [draft("a")])
    return Cli(world, capsys)


def test_a_running_domain(cli: Cli) -> None:
    document = cli.json("clock", "show")
    assert (document["domain"], document["state"], document["reason"]) == ("main", "running", "clock_running")
    assert document["behind_us"] < 1_000_000
    assert document["logical_us"] <= document["now_us"] <= document["utc_us"] + 1_000_000
    assert document["quarantine"] is None
    assert list(document["sources"]) == [document["this_source"]]
    text = cli("clock", "show").out
    assert "behind UTC" in text
    assert ", this host" in text
    assert max(map(len, text.splitlines())) <= 80


def test_reconcile_comes_later(cli: Cli) -> None:
    answer = cli("clock", "reconcile", "--json")
    assert (answer.code, answer.error["code"]) == (2, "unsupported_feature")
    assert "clock reconcile" in answer.error["message"]
