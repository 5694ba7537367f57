"""Names of orders, homes and stores that are not what was meant, and what is told of attempts and needs by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.surfaces.cli_run_world import ONE, Repo, make_repo

TWO = """\
[budget]
attempts = 9
calls = 9
money = { USD = "9" }
[[work]]
name = "spend"
run = ["sh", "-c", 'fencepost attempt charge --receipt "$FENCEPOST_ATTEMPT" --calls 2 --money USD:0.25; exit 3']
[[work]]
name = "after"
needs = ["spend"]
run = ["true"]
"""


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    made = make_repo(tmp_path)
    made.write("ended.toml", TWO)
    assert made.call("run", "ended.toml").returncode == 7
    return made


def test_a_name_that_another_plan_has_is_told_with_that_plan(repo: Repo) -> None:
    """The open plan is meant where no plan is named, although another one ran last."""
    repo.write("open.toml", ONE)
    repo.document("plan", "submit", "open.toml")
    for words in (("order", "show"), ("order", "why"), ("order", "retry"), ("attempt", "list")):
        error = repo.error(*words, "spend", code=3)
        assert error["message"] == "plan open has no order 'spend', plan ended has one"
        assert error["next"] == "name it ended/spend"
    assert repo.error("order", "show", "none", code=3)["next"] == "fencepost order list --plan open"
    assert repo.error("order", "show", "open/spend", code=3)["next"] == "fencepost order list --plan open"


def test_a_store_of_another_engine_is_told_as_that_where_there_is_no_home(tmp_path: Path) -> None:
    repo = make_repo(tmp_path)
    for store, code, exit_code in (("postgresql://x", "unsupported_feature", 2), ("sqlite:///x.db", "no_home", 3)):
        error = repo.error("order", "list", "--store", store, code=exit_code)
        assert error["code"] == code


def test_a_home_that_is_named_and_is_none_is_told_with_what_would_make_one(tmp_path: Path) -> None:
    repo = make_repo(tmp_path)
    error = repo.error("order", "list", "--home", "else where", code=3)
    lead, _, command = error["next"].rpartition(": ")
    assert lead == "name the folder that has it, or make one there"
    assert command == f"fencepost init --home '{repo.folder / 'else where'}'"
    assert repo.call("init", "--home", "else where").returncode == 0
    assert repo.document("order", "list", "--home", "else where", "--all")["items"] == []


def test_attempts_are_listed_with_what_each_has_cost(repo: Repo) -> None:
    (item,) = repo.document("attempt", "list", "spend")["items"]
    assert {name: item["charged"][name] for name in ("attempts", "calls", "money_micros:USD")} == {
        "attempts": 1,
        "calls": 2,
        "money_micros:USD": 250_000,
    }
    heading, row = repo.call("attempt", "list", "spend").stdout.splitlines()
    assert heading.split()[-2:] == ["TIME", "COST"]
    assert row.endswith("USD 0.25, calls 2")


def test_why_names_a_need_that_was_replaced_by_no_id(repo: Repo) -> None:
    repo.document("order", "retry", "spend")
    told = repo.call("order", "why", "after").stdout
    assert "needs spend as it was before, which is failed" in told
    assert "order_" not in told
