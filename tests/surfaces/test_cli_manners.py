"""How the command line behaves towards people, terminals and pipes, whatever the command."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from fencepost.surfaces.cli.frame import NOUNS
from fencepost.surfaces.cli.record_line import RecordLines
from tests.surfaces.cli_run_world import CLI, ONE, THREE, Repo, ended, make_repo, read_until

SCARCE = """\
[budget]
attempts = 2
[[work]]
name = "greedy"
run = ["false"]
may_fail = true
priority = "high"
retry = { on = ["executor"], backoff = "1ms" }
[[work]]
name = "hungry"
run = ["true"]
needs = [{ done = ["greedy"] }]
"""


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    return make_repo(tmp_path)


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Repo:
    repo = make_repo(tmp_path_factory.mktemp("ran"))
    repo.write("plan.toml", ONE.replace('["true"]', '["sh", "-c", "echo said"]'))
    repo.document("run", "plan.toml")
    return repo


@pytest.mark.parametrize("noun", sorted(NOUNS))
def test_help_shows_no_value_that_only_means_not_given(ran: Repo, noun: str) -> None:
    helps = [ran.call(noun, "--help").stdout]
    if "Commands" in helps[0]:
        verbs = [line.split()[1] for line in helps[0].splitlines() if line.startswith("│ ")]
        helps += [ran.call(noun, verb, "--help").stdout for verb in verbs if verb.isalpha() and verb.islower()]
    for text in helps:
        assert "False]" not in text and "--empty-" not in text and "[default: ()]" not in text, text


def test_a_reader_that_has_read_enough_is_no_failure(ran: Repo) -> None:
    for words in (["journal", "export"], ["journal", "tail", "--after", "0"], ["order", "list"]):
        reading, writing = os.pipe()
        os.close(reading)
        done = subprocess.run([*CLI, *words], cwd=ran.folder, env=ran.environment(), stdout=writing, check=False)
        os.close(writing)
        assert done.returncode == 0, words


@pytest.mark.parametrize("words", [["journal", "tail", "--follow"], ["order", "watch", "--plan", "plan"]])
def test_ctrl_c_while_following_is_130(repo: Repo, words: list[str]) -> None:
    repo.write("plan.toml", THREE)
    repo.document("plan", "submit", "plan.toml")
    following = repo.start(*words)
    read_until(following, "one")
    following.send_signal(signal.SIGINT)
    assert ended(following) == (130, "") or following.returncode == 130


def test_a_name_that_the_terminal_cannot_show_is_no_failure(repo: Repo) -> None:
    repo.write("plan.toml", ONE.replace("[budget]", 'objective = "größer"\n[budget]'))
    repo.document("run", "plan.toml")
    repo.variables = {"LC_ALL": "C", "LANG": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = repo.call("plan", "show", "plan")
    assert (done.returncode, done.stderr) == (0, "")
    assert "gr\\xf6\\xdfer" in done.stdout


def test_with_json_a_log_says_nothing_else(ran: Repo) -> None:
    done = ran.call("order", "log", "only", "--json")
    assert done.stderr == ""
    assert json.loads(done.stdout)["streams"][0]["text"] == "said\n"


def test_a_folder_is_no_plan_file(repo: Repo) -> None:
    for words in (("run", "."), ("plan", "check", ".")):
        error = repo.error(*words, code=2)
        assert error["code"] == "not_regular"


def test_a_folder_that_has_a_home_is_no_home(ran: Repo) -> None:
    for words in (("plan", "list"), ("run", "plan.toml")):
        error = ran.error("--home", str(ran.folder), *words, code=3)
        assert (error["code"], error["next"]) == ("no_home", f"--home {ran.folder}/.fencepost")
    assert not (ran.folder / "layout").exists()


def test_config_view_says_which_home_is_found(ran: Repo) -> None:
    items = {item["key"]: item for item in ran.document("config", "view")["items"]}
    assert (items["home"]["value"], items["home"]["found"]) == (None, str(ran.folder / ".fencepost"))
    assert f"{ran.folder}/.fencepost" in ran.call("config", "view").stdout


def test_text_keeps_to_the_width_of_the_terminal(repo: Repo) -> None:
    repo.write("plan.toml", THREE)
    repo.document("plan", "submit", "plan.toml")
    for words in (("plan", "list"), ("order", "graph"), ("order", "show", "two"), ("order", "why", "two")):
        for width in (60, 120):
            repo.variables = {"COLUMNS": str(width)}
            lines = repo.call(*words).stdout.splitlines()
            assert all(len(line) < width for line in lines if " " in line.strip()), (words, width)
    assert len(repo.call("plan", "list").stdout.splitlines()) == 2, "ids have room beside the rest"


def test_a_narrow_journal_keeps_what_happened(ran: Repo) -> None:
    rows = [json.loads(line) for line in ran.call("journal", "export").stdout.splitlines()]
    moved = next(row for row in rows if row["kind"] == "work_order_moved" and row["body"]["target"] == "ready")

    class Nobody:
        def get(self, subject: str) -> None:
            return None

    data = next(
        line.encode()
        for line in ran.call("journal", "export").stdout.splitlines()
        if json.loads(line)["seq"] == moved["seq"]
    )
    line = RecordLines(60).line(Nobody(), moved["seq"], data)  # type: ignore[arg-type]  # a view that knows no names
    assert len(line) < 60
    assert "submitted -> ready" in line


def test_lists_count_each_order_once_however_often_it_was_replaced(repo: Repo) -> None:
    repo.write("plan.toml", ONE.replace('["true"]', '["false"]'))
    repo.document("run", "plan.toml", code=7)
    repo.document("order", "retry", "only")
    (item,) = repo.document("plan", "list")["items"]
    assert (item["orders"], item["open"], item["outcome"]) == (1, 1, "open")
    assert "cancelled, 0 of 1 order still ending" in repo.call("plan", "cancel", "plan").stdout
    (item,) = repo.document("plan", "list")["items"]
    assert (item["orders"], item["open"], item["outcome"]) == (1, 0, "cancelled")


def test_the_summary_says_what_lacks_in_a_budget(repo: Repo) -> None:
    repo.write("plan.toml", SCARCE)
    done = repo.call("run", "plan.toml")
    assert done.returncode == 7
    assert "plan plan: attempts needed 1, available 0 of 2" in done.stdout
    assert "next: fencepost budget set --plan plan --attempts 3, then fencepost order retry plan/hungry" in done.stdout


def test_the_step_for_a_spent_budget_brings_back_what_needed_the_order(repo: Repo) -> None:
    """Typed as it stands: the ceiling that it names would do."""
    repo.write("plan.toml", SCARCE + '[[work]]\nname = "after"\nneeds = ["hungry"]\nrun = ["true"]\n')
    repo.call("run", "plan.toml")
    following = repo.document("order", "why", "hungry")["next"]
    assert following.endswith(", then fencepost order retry plan/hungry --with-dependents")
    for step in following.split(", then "):
        done = repo.call(*step.split()[1:])
        assert done.returncode == 0, (step, done.stderr)
    assert {each["name"]: each["state"] for each in repo.document("order", "list")["items"]}["after"] in (
        "blocked_dependency",
        "ready",
    )
