"""What money is over, what no attempt can follow, and the steps that help (W18)."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from tests.surfaces.cli_run_world import Repo, make_repo


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    return make_repo(tmp_path)


def flat(text: str) -> str:
    return " ".join(text.split())


EUROS = """\
[budget]
attempts = 9
money = { USD = "0.10" }
[[work]]
name = "a"
budget = { attempts = 4 }
retry = { on = ["executor"], backoff = "100ms" }
run = ["sh", "-c", "test $FENCEPOST_FENCE -gt 1 || { fencepost attempt charge --receipt r --money EUR:40; exit 1; }"]
[[work]]
name = "b"
needs = ["a"]
run = ["true"]
"""


def test_w18_money_of_a_currency_that_the_plan_refuses_is_over_whole_and_stops_the_plan(repo: Repo) -> None:
    repo.write("plan.toml", EUROS)
    run = repo.call("run", "plan.toml")
    assert run.returncode == 9, "a person budgets it, or the order stays"
    assert repo.states() == {"a": "blocked_budget", "b": "blocked_dependency"}
    told = json.loads(repo.call("order", "log", "a", "--stdout").stdout)
    assert told["over"] == {"money": {"EUR": "40.00"}}
    summary = flat(run.stdout)
    assert "over: EUR 40.00 in a currency that is not budgeted" in summary
    assert "EUR 40.00 (40.00 over)" in summary
    assert "plan plan: EUR is not budgeted, charged 40.00" in summary
    assert "next, for a: fencepost budget set --plan plan --money EUR:80.00" in summary
    shown = repo.document("order", "show", "a")
    assert (shown["attempts"], shown["over"]) == (1, {"money_micros:EUR": 40_000_000})
    assert "EUR 40.00 in a currency that is not budgeted above it" in flat(repo.call("order", "show", "a").stdout)
    account = repo.document("budget", "show")["items"][1]
    assert account["over"] == {"money_micros:EUR": 40_000_000}
    assert account["dimensions"]["money_micros:EUR"]["available"] == -40_000_000
    assert "EUR 40.00 over: not budgeted" in repo.call("budget", "show").stdout
    step = repo.document("order", "why", "a")["next"]
    repo.document(*shlex.split(step)[1:])
    assert "over" not in repo.call("budget", "show").stdout
    assert repo.document("run", "plan.toml")["outcome"] == "done"
    assert repo.document("order", "show", "a")["attempts"] == 2


def test_w18_money_of_a_code_that_is_no_currency_is_budgeted_where_it_was_charged(repo: Repo) -> None:
    repo.write("plan.toml", EUROS.replace("EUR:40", "ZZZ:40"))
    assert repo.call("run", "plan.toml").returncode == 9
    step = repo.document("order", "why", "a")["next"]
    assert step == "fencepost budget set --plan plan --money ZZZ:80.00"
    assert repo.call("budget", "set", "a", "--money", "YYY:1").returncode == 2, "it was never charged"
    repo.document(*shlex.split(step)[1:])
    assert repo.document("run", "plan.toml")["outcome"] == "done"


ASKING = """\
[budget]
attempts = 9
money = { USD = "9" }
[[work]]
name = "a"
budget = { attempts = 3, money = { USD = "0.20" } }
inputs = ["ask.sh"]
run = ["sh", "ask.sh"]
"""
ASK = """\
fencepost attempt answer go --value && exit 0
fencepost attempt charge --receipt r --money USD:0.25
echo state > s
fencepost attempt checkpoint s
fencepost attempt yield --question go --prompt "Go on?"
"""


def asking(repo: Repo) -> None:
    repo.write("plan.toml", ASKING)
    repo.write("ask.sh", ASK)
    assert repo.call("run", "plan.toml").returncode == 9


def test_w18_an_answer_with_which_the_order_would_end_is_refused_with_the_steps_that_help(repo: Repo) -> None:
    asking(repo)
    before = repo.document("budget", "show")["sequence"]
    refused = repo.call("order", "answer", "a", "yes", "--json")
    assert refused.returncode == 5
    error = json.loads(refused.stderr)["error"]
    assert error["code"] == "budget_exhausted"
    assert "USD 0.00 of 0.20 is left" in error["message"]
    assert repo.document("budget", "show")["sequence"] == before, "nothing is written"
    raised, _, answered = error["next"].partition("; ")[0].partition(", then ")
    assert "--anyway" in error["next"]
    why = repo.document("order", "why", "a")
    assert why["next"] == f"{raised}, then {answered}"
    assert "an answer would end it, since no attempt can follow: USD 0.00 of 0.20 is left" in why["details"]
    for command in (raised, answered.replace("VALUE", "yes")):
        repo.document(*shlex.split(command)[1:])
    assert repo.document("run", "plan.toml")["outcome"] == "done"


def test_w18_an_answer_is_given_all_the_same_where_that_is_asked_for(repo: Repo) -> None:
    asking(repo)
    repo.document("order", "answer", "a", "no", "--anyway")
    repo.document("run", "plan.toml", code=7)
    assert repo.states() == {"a": "budget_exhausted"}


def test_w18_an_answer_that_was_given_is_found_by_its_key_whatever_is_left_by_now(repo: Repo) -> None:
    asking(repo)
    key = ("--command-key", "answer-1")
    first = repo.document("order", "answer", "a", "no", "--anyway", *key)
    again = repo.document("order", "answer", "a", "no", *key)
    assert (first["fresh"], again["fresh"]) == (True, False)


@pytest.mark.parametrize("value", ["", "-"])
def test_an_empty_answer_is_refused(repo: Repo, value: str) -> None:
    asking(repo)
    repo.document("budget", "set", "a", "--money", "USD:5")
    refused = repo.call("order", "answer", "a", value)
    assert refused.returncode == 2
    assert "the answer is empty" in refused.stderr and "in quotes" in refused.stderr
    assert repo.states() == {"a": "waiting"}


LEFT_OUT = """\
[budget]
attempts = 9
money = { USD = "0.20" }
[[work]]
name = "a"
budget = { attempts = 3, per_attempt = { money = { USD = "0.10" } } }
retry = { on = ["executor"], backoff = "100ms" }
run = ["sh", "-c", "test $FENCEPOST_FENCE -gt 9 || { fencepost attempt charge --receipt r --money USD:0.15; exit 3; }"]
"""


def test_w18_a_retry_that_is_left_out_for_want_of_budget_is_said_with_the_commands_that_help(repo: Repo) -> None:
    repo.write("plan.toml", LEFT_OUT)
    said = "no further attempt: USD 0.05 of 0.20 is left in plan plan, an attempt needs 0.10"
    run = repo.call("run", "plan.toml")
    assert said in flat(run.stdout) and run.returncode == 7
    assert said in flat(repo.call("order", "show", "a").stdout)
    why = repo.document("order", "why", "a")
    assert said in why["details"]
    log, raised, retried = why["next"].split(", then ")
    assert (log, raised) == ("fencepost order log plan/a", "fencepost budget set --plan plan --money USD:0.25")
    assert f"next: {why['next']}" in run.stdout

    refused = repo.call("order", "retry", "a", "--json")
    assert refused.returncode == 5, "it would end at once"
    error = json.loads(refused.stderr)["error"]
    assert (error["code"], error["next"]) == ("budget_exhausted", f"{raised}, then {retried}")
    assert repo.document("order", "show", "a")["replaced_by"] is None
    for command in (raised, retried):
        repo.document(*shlex.split(command)[1:])
    assert said not in repo.call("order", "why", "a").stdout


TRIED = """\
[budget]
attempts = 9
[[work]]
name = "a"
budget = { attempts = 2 }
retry = { on = ["executor"], backoff = "100ms" }
run = ["false"]
"""


def test_an_order_that_had_all_its_tries_misses_none(repo: Repo) -> None:
    repo.write("plan.toml", TRIED)
    run = repo.call("run", "plan.toml")
    assert run.returncode == 7 and "no further attempt" not in run.stdout
    assert repo.document("order", "retry", "a")["state"] == "ready", "a replacement has tries of its own"


SHARED_TIME = """\
[budget]
attempts = 9
time = "2500ms"
[[work]]
name = "a"
attempt_time = "2s"
retry = { on = ["executor"], backoff = "100ms" }
run = ["sh", "-c", "sleep 0.7; exit 1"]
"""


def test_w18_a_time_that_lacks_is_raised_by_what_can_be_written(repo: Repo) -> None:
    repo.write("plan.toml", SHARED_TIME)
    repo.call("run", "plan.toml")
    step = repo.document("order", "why", "a")["next"].split(", then ")[1]
    assert step.startswith("fencepost budget set --plan plan --time 2s")
    repo.document(*shlex.split(step)[1:])
    assert repo.document("order", "retry", "a")["state"] == "ready"
