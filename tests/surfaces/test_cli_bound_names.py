"""What binds takes no order of a plan that was not meant, says what it took, and a wrong name is told the right one."""

from __future__ import annotations

from pathlib import Path

import pytest

from fencepost.surfaces.cli import names
from fencepost.surfaces.cli.context import CommandError
from tests.surfaces.cli_run_world import ONE, Repo, make_repo
from tests.surfaces.cli_world import World, draft

ASKS = """\
[budget]
attempts = 9
[[work]]
name = "publish"
inputs = ["readme.txt"]
run = ["sh", "-c", '''
fencepost attempt answer go --value || fencepost attempt yield --question go --prompt "ship it?
to $FENCEPOST_WORK_ORDER"
''']
[[work]]
name = "after"
needs = ["publish"]
inputs = ["readme.txt"]
run = ["true"]
"""
BINDING = {
    "answer": ("order", "answer", "publish", "yes"),
    "cancel": ("order", "cancel", "publish"),
    "retry": ("order", "retry", "publish"),
    "budget": ("budget", "set", "publish", "--attempts", "5"),
    "plan": ("plan", "cancel"),
}


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    return make_repo(tmp_path)


def submit(repo: Repo, *names: str) -> None:
    for name in names:
        repo.write(f"{name}.toml", ASKS)
        repo.document("plan", "submit", f"{name}.toml")


@pytest.mark.parametrize("name", BINDING)
def test_what_binds_takes_no_bare_name_that_two_open_plans_have(repo: Repo, name: str) -> None:
    submit(repo, "prod", "stage")
    before = repo.document("journal", "verify")["sequence"]
    error = repo.error(*BINDING[name], code=2)
    assert error["code"] == "ambiguous"
    wanted = ("stage", "prod") if name == "plan" else ("stage/publish", "prod/publish")
    assert error["next"] == f"name one: {', '.join(wanted)}"
    assert repo.document("journal", "verify")["sequence"] == before
    assert repo.document("order", "show", "publish")["plan"], "what only looks takes the newest"


@pytest.mark.parametrize("name", BINDING)
def test_what_binds_takes_no_bare_name_of_an_older_plan_that_is_open(repo: Repo, name: str) -> None:
    """The plan that ran last has ended, and the same words would mean another one."""
    submit(repo, "prod", "stage")
    repo.document("plan", "cancel", "stage")
    assert repo.error(*BINDING[name], code=2)["code"] == "ambiguous"
    assert repo.call("order", "cancel", "prod/publish").stdout == "prod/publish: cancelled (cancelled_by_request)\n"


def test_two_open_plans_of_one_name_are_told_apart_by_ids(repo: Repo) -> None:
    submit(repo, "prod")
    repo.write("prod.toml", ASKS.replace("attempts = 9", "attempts = 8"))
    repo.document("plan", "submit", "prod.toml", "--new")
    plans = [item["plan"] for item in repo.document("plan", "list")["items"]]
    orders = [repo.document("order", "list", "--plan", plan)["items"][0]["id"] for plan in plans]
    for words in (*BINDING.values(), ("order", "cancel", "prod/publish"), ("plan", "cancel", "prod")):
        error = repo.error(*words, code=2)
        assert error["code"] == "ambiguous"
        for wanted in plans if words[0] == "plan" else orders:
            assert f"{wanted} (of prod, submitted " in error["next"], words
    assert repo.error("budget", "set", "--plan", "prod", "--attempts", "9", code=2)["code"] == "ambiguous"
    told = repo.call("order", "cancel", orders[1]).stdout
    assert told == f"prod/publish ({orders[1]}): cancelled (cancelled_by_request)\n"
    step = repo.document("order", "why", orders[0])["name"]
    assert step and repo.document("budget", "set", orders[0], "--attempts", "4")["account"] == orders[0]
    repo.document("plan", "cancel", plans[0])
    assert [item["outcome"] for item in repo.document("plan", "list")["items"]] == ["cancelled", "failed"]


def test_a_step_about_one_of_two_open_plans_of_one_name_can_be_typed(repo: Repo) -> None:
    submit(repo, "prod")
    repo.write("prod.toml", ASKS.replace("attempts = 9", "attempts = 8"))
    done = repo.call("run", "prod.toml", "--new")
    assert done.returncode == 9
    (step,) = [line for line in done.stdout.splitlines() if ": fencepost order answer" in line]
    command = step.partition(": fencepost ")[2]
    assert repo.call(*command.replace("VALUE", "yes").split()).returncode == 0


def test_an_answer_says_what_was_answered(repo: Repo) -> None:
    repo.write("prod.toml", ASKS)
    assert repo.call("run", "prod.toml").returncode == 9
    error = repo.error("order", "answer", "after", "yes", code=5)
    assert error["code"] == "not_asked"
    assert error["message"].endswith("; prod/publish asks go")
    assert error["next"] == "fencepost order answer prod/publish VALUE"
    error = repo.error("order", "answer", "publish", "yes", "--question", "other", code=5)
    assert error["message"].endswith("does not ask other now; it asks go")
    done = repo.call("order", "answer", "publish", "yes", "--command-key", "k")
    first, second, third = done.stdout.splitlines()
    assert (first, second) == ("prod/publish: go is answered", "  asked: ship it?")
    assert third.startswith("    to order_")
    again = repo.document("order", "answer", "publish", "yes", "--command-key", "k")
    assert (again["fresh"], again["question"]) == (False, "go")


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (("order", "why", "publsh"), "publish"),
        (("order", "answer", "prod/publsh", "yes"), "publish"),
        (("plan", "show", "prd"), "prod"),
        (("order", "list", "--plan", "prd"), "prod"),
        (("budget", "show", "publsh"), "publish"),
        (("budget", "set", "prd", "--attempts", "3"), "prod"),
        (("order", "list", "--state", "runing"), "active"),
        (("order", "list", "--state", "aplied"), "applied"),
        (("attempt", "list", "aftr"), "after"),
    ],
)
def test_a_wrong_name_is_told_the_one_that_it_is_like(repo: Repo, words: tuple[str, ...], meant: str) -> None:
    submit(repo, "prod")
    error = repo.error(*words, code=2 if "--state" in words else 3)
    assert error["message"].endswith(f"; did you mean {meant}?")


def test_the_name_of_a_plan_file_is_told_its_plan(repo: Repo) -> None:
    submit(repo, "prod")
    (repo.folder / "sub").mkdir()
    for file in ("prod.toml", "sub/prod.toml"):
        assert repo.error("plan", "show", file, code=3)["next"] == "name it prod"
        assert repo.error("order", "why", file, code=3)["next"] == "fencepost order list --plan prod"
    assert "file" not in repo.error("plan", "show", "other.toml", code=3)["message"]


def test_a_name_that_is_alone_needs_no_plan(repo: Repo) -> None:
    submit(repo, "prod")
    repo.write("beside.toml", ONE)
    repo.document("plan", "submit", "beside.toml")
    assert repo.error("order", "cancel", "publish", code=3)["next"] == "name it prod/publish"
    assert repo.call("order", "cancel", "only").stdout.startswith("beside/only: cancelled")


def test_of_more_plans_than_are_looked_through_a_bare_name_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path)
    plans = [world.submit(f"p{number}", [draft("a" if number else "only")]) for number in range(3)]
    with world.open() as app, app.kernel.reader.look() as look:
        assert names.bound_order(look, "p0/only").plan == plans[0]
        monkeypatch.setattr(names, "PLANS_MEANT_MAX", 3)
        with pytest.raises(CommandError, match="2 plans that may be meant"):
            names.bound_order(look, "a")
        monkeypatch.setattr(names, "PLANS_MEANT_MAX", 2)
        for bound in (lambda: names.bound_order(look, "a"), lambda: names.bound_plan(look, None)):
            with pytest.raises(CommandError, match="more than 2 plans may be meant") as refused:
                bound()
            assert refused.value.code == "ambiguous"
        assert names.bound_order(look, "p0/only").plan == plans[0], "with its plan it is found at once"
        assert names.bound_plan(look, "p1").plan == plans[1]


def test_again_says_that_a_plan_is_open_only_where_it_is(repo: Repo) -> None:
    """A repeated command is told what is there, whatever has ended since."""
    repo.write("one.toml", ONE)
    repo.document("run", "one.toml")
    submit = ("plan", "submit", "one.toml", "--again", "--command-key", "again-1")
    assert "submitted" in repo.call(*submit).stdout
    said = " ".join(repo.call(*submit).stdout.split())
    assert "is there already" in said and "this one is open" in said
    repo.document("run", "one.toml")
    said = " ".join(repo.call(*submit).stdout.split())
    assert "is there already" in said and "this one is open" not in said
