"""The next step with money: it names the account that is meant, has all that lacks, and is printed only where it helps.

Each is followed here as it is printed.
"""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from tests.surfaces.cli_run_world import Repo, make_repo


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    return make_repo(tmp_path)


def follow(repo: Repo, steps: str, **words: str) -> list[str]:
    """Type what is printed; the commands that were typed."""
    commands = steps.split(", then ")
    for command in commands:
        repo.document(*(words.get(word, word) for word in shlex.split(command)[1:]))
    return commands


def ceiling(repo: Repo, account: str, dimension: str = "attempts") -> int:
    found: int = repo.document("budget", "show", account)["items"][-1]["dimensions"][dimension]["ceiling"]
    return found


ONE_ATTEMPT = """\
[budget]
attempts = 1
[[work]]
name = "a"
run = ["sh", "-c", "fencepost attempt yield --after 1ms"]
"""
ASKING = """\
[budget]
attempts = 3
[[work]]
name = "a"
budget = { attempts = 1 }
run = ["sh", "-c", "fencepost attempt yield --question go --prompt 'Publish?'"]
"""


def test_a_ceiling_is_raised_of_the_plan_that_is_meant_by_its_id_where_its_name_means_another(repo: Repo) -> None:
    repo.write("s.toml", ONE_ATTEMPT)
    first = repo.document("run", "s.toml", code=7)
    second = repo.document("run", "s.toml", "--again", code=7)
    order = first["orders"][0]["id"]
    error = repo.error("order", "retry", order, code=5)
    assert error["code"] == "budget_exhausted"
    assert repo.document("order", "why", order)["next"] == error["next"]
    commands = follow(repo, error["next"])
    assert commands[0] == f"fencepost budget set --plan {first['plan']} --attempts 2"
    assert ceiling(repo, second["plan"]) == 1, "the other plan keeps its own"
    assert repo.document("order", "show", order)["replaced_by"]
    said = repo.call("budget", "set", "--plan", second["plan"], "--attempts", "3").stdout
    assert said.startswith(f"plan s ({second['plan']})\n"), "the first one is open again, and the name means that"


def test_so_is_that_of_one_of_two_open_plans_of_one_name(repo: Repo) -> None:
    asking = ASKING.replace("attempts = 3", "attempts = 1").replace("budget = { attempts = 1 }\n", "")
    repo.write("w.toml", asking)
    first = repo.document("run", "w.toml", code=9)
    repo.write("w.toml", asking.replace("Publish?", "Publish now?"))
    second = repo.document("run", "w.toml", "--new", code=9)
    for run in (first, second):
        step = repo.document("order", "why", run["orders"][0]["id"])["next"]
        commands = follow(repo, step, VALUE="yes")
        assert commands[0] == f"fencepost budget set --plan {run['plan']} --attempts 2"
    assert [ceiling(repo, run["plan"]) for run in (first, second)] == [2, 2]


CHARGING = """\
[budget]
attempts = 30
money = { USD = "10.00" }
[[work]]
name = "a"
budget = { attempts = 5, money = { USD = "1.00" }, per_attempt = { money = { USD = "0.50" } } }
run = ["sh", "-c", "fencepost attempt charge --receipt r-$FENCEPOST_ATTEMPT --money USD:0.95 && \
fencepost attempt yield --after 1ms"]
"""


def test_w18_a_retry_that_needs_no_more_money_is_not_told_to_raise_the_ceiling(repo: Repo) -> None:
    repo.write("s.toml", CHARGING)
    for _ in range(2):
        run = repo.call("run", "s.toml")
        assert repo.states("s") == {"a": "budget_exhausted"}
        assert "next: fencepost order retry s/a\n" in run.stdout
        assert "needed 0.50, available 0.05 of 1.00" in " ".join(run.stdout.split()), (
            "what it lacked is said all the same"
        )
        follow(repo, repo.document("order", "why", "a")["next"])
    assert ceiling(repo, "s/a", "money_micros:USD") == 1_000_000


def test_w18_every_account_that_lacks_is_in_the_step(repo: Repo) -> None:
    repo.write("s.toml", ONE_ATTEMPT)
    repo.document("plan", "submit", "s.toml")
    repo.document("budget", "set", "scope", "--attempts", "1")
    assert repo.call("run", "s.toml").returncode == 7
    step = repo.document("order", "why", "a")["next"]
    commands = follow(repo, step)
    assert commands == [
        "fencepost budget set scope --attempts 2",
        "fencepost budget set --plan s --attempts 2",
        "fencepost order retry s/a",
    ]


CANCELLED = """\
[budget]
attempts = 2
[[work]]
name = "a"
run = ["false"]
[[work]]
name = "b"
run = ["fencepost", "attempt", "yield", "--question", "go", "--prompt", "Go on?"]
"""


def test_a_retry_in_a_cancelled_plan_is_refused_for_that_and_not_for_money(repo: Repo) -> None:
    repo.write("p.toml", CANCELLED)
    assert repo.call("run", "p.toml").returncode == 9
    assert repo.error("order", "retry", "a", code=5)["code"] == "budget_exhausted", "while the plan is open"
    repo.document("plan", "cancel", "p")
    error = repo.error("order", "retry", "p/a", code=5)
    assert error["code"] == "plan_cancelled"
    assert "budget set" not in error["next"]


def test_an_answer_to_a_question_that_is_not_asked_is_refused_for_that_and_not_for_money(repo: Repo) -> None:
    repo.write("w.toml", ASKING)
    assert repo.call("run", "w.toml").returncode == 9
    assert repo.error("order", "answer", "w/a", "yes", "--question", "other", code=5)["code"] == "not_asked"
    for question in ((), ("--question", "go")):
        assert repo.error("order", "answer", "w/a", "yes", *question, code=5)["code"] == "budget_exhausted"
