"""What a person is told of an order that went wrong: the fact itself, and a step that can be typed where it stands."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from tests.surfaces.cli_run_world import ONE, Repo, ended, make_repo, read_until
from tests.surfaces.cli_world import Cli, World, draft, sh, wait_for

FAILING = """\
[budget]
attempts = 40
[[work]]
name = "schema"
run = ["sh", "-c", "echo '{\\"a\\":1}' > s.json"]
outputs = ["s.json"]
accept = { schema = { "s.json" = "schema.json" } }
[[work]]
name = "refused"
run = ["true"]
accept = { verify = ["sh", "-c", "echo not good; exit 3"] }
[[work]]
name = "unverified"
run = ["true"]
accept = { verify = ["no-such-verifier"] }
[[work]]
name = "missing"
run = ["sh", "-c", "echo x > other.xml"]
outputs = ["*.xml"]
accept = { files = ["report.xml"] }
[[work]]
name = "late"
attempt_time = "1s"
run = ["sleep", "9"]
[[work]]
name = "unknown"
run = ["no-such-program-here"]
[[work]]
name = "waits"
run = ["false"]
retry = { on = ["executor"], backoff = "1h" }
"""
FACTS = {
    "schema": ["s.json: /: 'b' is a required property", "next: fencepost order files failing/schema --attempt 1"],
    "refused": ["the verifier ended with exit code 3", "next: fencepost order log failing/refused --verifier"],
    "unverified": ["no command no-such-verifier on PATH, which is ", "next: correct accept.verify in the plan"],
    "missing": ["no output is report.xml, which accept.files asks for", "collected: other.xml"],
    "late": ["it was stopped after 1s, its attempt_time", "next: raise attempt_time in the plan, then fencepost run "],
    "unknown": ["no command no-such-program-here on PATH, which is "],
}


@pytest.fixture(scope="module")
def failed(tmp_path_factory: pytest.TempPathFactory) -> Repo:
    repo = make_repo(tmp_path_factory.mktemp("failed"))
    repo.write("schema.json", json.dumps({"type": "object", "required": ["b"]}))
    repo.write("plans/failing.toml", FAILING)
    repo.variables = {"PATH": ":".join(["/usr/bin", "/bin", *(f"/nowhere/{number}" for number in range(40))])}
    repo.document("run", "plans/failing.toml", "--timeout", "4s", code=6)
    return repo


@pytest.mark.parametrize("name", sorted(FACTS))
def test_why_show_and_the_summary_say_what_was_wrong(failed: Repo, name: str) -> None:
    why = failed.call("order", "why", name).stdout
    summary = failed.call("run", "plans/failing.toml", "--timeout", "1ms").stdout
    for fact in FACTS[name]:
        assert fact in " ".join(why.split()), why
        step = fact.removeprefix("next: ")  # which says whose it is where it does not name the order
        leads = ["next: ", f"next, for {name}: "] if step != fact else [""]
        assert any(f"{lead}{step}" in " ".join(summary.split()) for lead in leads), summary
    assert FACTS[name][0] in " ".join(failed.call("order", "show", name).stdout.split())
    assert "/nowhere/9" not in why, "PATH is cut short"


def test_a_step_about_a_plan_names_its_file_and_the_option_that_holds(failed: Repo) -> None:
    assert failed.document("order", "why", "late")["next"].endswith("then fencepost run plans/failing.toml --new")


def test_why_of_a_backoff_says_until_when(failed: Repo) -> None:
    document = failed.document("order", "why", "waits")
    assert 0 < document["due_in_us"] <= 2 * 3_600_000_000
    assert re.search(r"Due in [0-9hms]+, at [0-9T:-]+Z\.", failed.call("order", "why", "waits").stdout)


def test_a_next_step_works_in_the_folder_that_it_is_printed_in(failed: Repo) -> None:
    elsewhere = Repo(failed.user, failed.user)
    home = str(failed.folder / ".fencepost")
    step = elsewhere.document("--home", home, "order", "why", "refused")["next"]
    assert step == f"fencepost --home {home} order log failing/refused --verifier"
    assert elsewhere.call(*shlex.split(step)[1:]).stdout == "not good\n"
    error = elsewhere.error("--home", home, "order", "cancel", "refused", code=5)
    assert elsewhere.call(*shlex.split(error["next"])[1:]).returncode == 0
    assert "--home" not in failed.document("--home", home, "order", "why", "refused")["next"]
    failed.document("init", "--scope", "other")
    step = failed.error("--scope", "other", "order", "show", "x/y", code=3)["next"]
    assert step == "fencepost --scope other plan list"


def test_errors_call_an_order_by_its_name(failed: Repo) -> None:
    error = failed.error("order", "cancel", failed.document("order", "show", "late")["id"], code=5)
    assert error["message"] == "failing/late has ended as failed."
    assert error["next"] == "fencepost order show failing/late"


def test_a_fixed_source_that_is_not_pinned_anew_is_said(tmp_path: Path) -> None:
    repo = make_repo(tmp_path)
    repo.write("check.sh", "exit 1\n")
    repo.write("plan.toml", ONE.replace('["true"]', '["sh", "check.sh"]'))
    repo.document("run", "plan.toml", code=7)
    told = "check.sh has changed since it was pinned"
    assert told not in repo.call("run", "plan.toml").stdout
    repo.write("check.sh", "exit 0\n")
    again = repo.call("run", "plan.toml").stdout
    assert f"{told}; inputs are those pinned at submission: fencepost run plan.toml --again pins" in again
    assert told in repo.call("order", "why", "only").stdout
    assert told in repo.call("order", "retry", "only").stdout
    assert repo.document("run", "plan.toml", code=7)["outcome"] == "failed"
    repo.document("run", "plan.toml", "--again")


def test_an_attempt_whose_worker_was_killed_is_not_said_to_run(tmp_path: Path) -> None:
    repo = make_repo(tmp_path)
    repo.write("plan.toml", ONE.replace('["true"]', '["sh", "-c", "echo begun; sleep 60"]'))
    running = repo.start("run", "plan.toml")
    read_until(running, "only: active")
    assert "worker_gone" not in repo.document("order", "why", "only")
    running.kill()
    ended(running)
    why = repo.document("order", "why", "only")
    assert why["worker_gone"] is True and "not alive" in why["message"]
    assert why["next"] == "fencepost run plan.toml, or fencepost worker start"
    assert "worker gone" in repo.call("order", "list").stdout
    assert "not alive" in repo.call("order", "show", "only").stdout
    followed = repo.call("order", "log", "only", "--follow")
    assert (followed.returncode, followed.stdout) == (0, "begun\n")
    assert "not alive" in followed.stderr


def test_a_retry_that_waits_for_others_names_their_root(tmp_path: Path) -> None:
    repo = make_repo(tmp_path)
    after = '[[work]]\nname = "after"\nneeds = ["only"]\nrun = ["true"]\n'
    repo.write("plan.toml", ONE.replace('["true"]', '["false"]') + after)
    repo.document("run", "plan.toml", code=7)
    error = repo.error("order", "retry", "after", code=5)
    assert error["next"] == "fencepost order retry plan/only --with-dependents"
    assert "order_" not in error["message"]
    assert "start" not in repo.error("plan", "cancel", "plan", code=5)["next"]


def test_a_retry_under_one_key_is_answered_once_more(tmp_path: Path) -> None:
    repo = make_repo(tmp_path)
    repo.write("plan.toml", ONE.replace('["true"]', '["false"]'))
    repo.document("run", "plan.toml", code=7)
    first = repo.document("order", "retry", "only", "--command-key", "k1")
    for name in ("only", "plan/only", first["order"]):
        again = repo.document("order", "retry", name, "--command-key", "k1")
        assert (again["fresh"], again["order"], again["sequence"]) == (False, first["order"], first["sequence"])
    assert repo.error("order", "retry", "only", "--with-dependents", "--command-key", "k1", code=5)["code"] == (
        "operation_collision"
    )


def test_show_has_what_an_order_asks_for(tmp_path: Path) -> None:
    repo = make_repo(tmp_path)
    second = """\
[[work]]
name = "second"
needs = ["only"]
inputs = [{ from = "only", files = ["a.txt"] }]
run = ["true"]
environment = ["PATH", "EDITOR"]
params = { url = "https://example.org" }
retry = { on = ["executor"], backoff = "2s", backoff_max = "1m" }
budget = { attempts = 2 }
priority = "high"
may_fail = true
"""
    repo.write("plan.toml", ONE + 'outputs = ["*.txt"]\n' + second)
    repo.document("plan", "submit", "plan.toml")
    shown = " ".join(repo.call("order", "show", "second").stdout.split())
    for fact in (
        "environment PATH, EDITOR",
        'params {"url":"https://example.org"}',
        "inputs 2 files of the source tree,",
        "a.txt from only",
        "retry on executor, backoff 2s up to 1m",
        "priority high",
        "may fail",
        "effects declared",
        "budget attempts 2 for this order",
    ):
        assert fact in shown, fact


def test_why_of_a_currency_that_is_not_budgeted_names_it_and_its_account(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    world = World(tmp_path)
    cli = Cli(world, capsys)
    world.submit("p", [draft("paid", per_attempt={"money_micros:USD": 1_500_000})])
    cli.json("budget", "set", "scope", "--money", "EUR:5")
    with world.working(jobs=1) as app:
        wait_for(app, lambda look: look.orders(look.newest_plans(1)[0].plan)[0].state == "blocked_budget")
    document = cli.json("order", "why", "paid")
    assert document["reason"] == "currency_not_budgeted"
    (short,) = document["budget"]
    assert (short["kind"], short["name"], short["account"]) == ("scope", "default", "scope")
    assert (short["currency"], short["dimension"]) == ("USD", "money_micros:USD")
    assert (short["needed"], short["available"], short["ceiling"]) == (1_500_000, 0, None)
    assert document["next"] == "fencepost budget set scope --money USD:1.50"
    assert "scope default: USD is not budgeted, needed 1.50" in cli("order", "why", "paid").out
    cli.json(*document["next"].split()[1:])
    assert cli.json("order", "why", "paid")["budget"] == [], "nothing stands in its way any more"


def test_why_counts_no_attempt_that_was_drained_as_one_that_waited(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A drain gives its attempt back, and what ended so has waited for nothing."""
    world = World(tmp_path)
    cli = Cli(world, capsys)
    begun = sh('touch "$FENCEPOST_REPO/begun"; exec sleep 30')
    plan = world.submit("p", [draft("a", begun, environment=("PATH", "FENCEPOST_REPO"))])
    with world.working(jobs=1) as app:
        wait_for(app, lambda _: (tmp_path / "begun").exists())
    cli.json("budget", "set", "scope", "--attempts", "1")
    world.submit("q", [draft("b", priority="high", ceilings={"attempts": 1})])
    with world.working(jobs=1) as app:
        wait_for(app, lambda look: look.orders(plan)[0].state in ("blocked_budget", "budget_exhausted"))
    assert [each["state"] for each in cli.json("attempt", "list", "p/a")["items"]] == ["yielded"]
    (short,) = cli.json("order", "why", "p/a")["budget"]
    assert (short["kind"], short["dimension"], short["waits"]) == ("scope", "attempts", 0)
    assert "ended to wait" not in cli("order", "why", "p/a").out


def test_why_of_a_held_budget_counts_by_what_the_attempt_will_hold(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An attempt asks for its share; that one call would do for it helps nobody while others hold theirs."""
    world = World(tmp_path)
    cli = Cli(world, capsys)
    once = {"attempts": 1}
    orders = [draft("holder", sh("sleep 30"), ceilings=once), draft("waiter", ceilings=once)]
    world.submit("p", orders, ceilings={"attempts": 2, "calls": 5})
    with world.working(jobs=2) as app:
        wait_for(
            app,
            lambda look: (
                {order.state for order in look.orders(look.newest_plans(1)[0].plan)} == {"active", "blocked_budget"}
            ),
        )
        document = cli.json("order", "why", "waiter")
        (short,) = document["budget"]
        assert (short["kind"], short["name"], short["dimension"]) == ("plan", "p", "calls")
        assert (short["needed"], short["available"], short["ceiling"]) == (3, 2, 5)
        assert [(holder["name"], holder["amount"]) for holder in short["held_by"]] == [("p/holder", 3)]
        assert document["next"] == "fencepost budget set --plan p --calls 6"
        cli("order", "cancel", "holder")
