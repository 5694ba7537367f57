"""What a command has done counts whether its output can be printed or not, and where it cannot, both are told."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.surfaces.cli_run_world import CLI, ONE, Repo, make_repo

ASKS = """\
[budget]
attempts = 9

[[work]]
name = "asks"
run = ["sh", "-c", "fencepost attempt answer go --value || fencepost attempt yield --question go"]
"""
RECORDED = "what was asked is recorded all the same, at "


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    return make_repo(tmp_path)


def into_full(repo: Repo, *words: str, stderr: str = "") -> subprocess.CompletedProcess[str]:
    with open("/dev/full", "w") as full:
        return subprocess.run(
            [*CLI, *words],
            cwd=repo.folder,
            env=repo.environment(),
            stdin=subprocess.DEVNULL,
            stdout=full,
            stderr=full if stderr == "full" else subprocess.PIPE,
            encoding="utf-8",
            check=False,
            timeout=60,
        )


def told(repo: Repo, *words: str) -> Any:
    done = into_full(repo, *words, "--json")
    assert done.returncode == 1, done.stderr
    error = json.loads(done.stderr.splitlines()[-1])["error"]
    assert error["code"] == "output_failed"
    first = "standard output, or the file that was named, cannot be written: No space left on device"
    assert error["message"].startswith(first)
    return error


def test_every_command_that_records_says_that_it_has_where_it_cannot_print_it(repo: Repo) -> None:
    repo.write("plan.toml", ONE)
    assert "the home is there all the same" in told(repo, "init")["message"]
    submitted = told(repo, "plan", "submit", "plan.toml")
    assert RECORDED in submitted["message"] and submitted["next"].startswith("do not ask for it again")
    assert repo.document("plan", "submit", "plan.toml")["fresh"] is False
    for words in (
        ("budget", "set", "scope", "--calls", "7"),
        ("order", "cancel", "only"),
        ("order", "retry", "only"),
        ("plan", "cancel"),
    ):
        assert RECORDED in told(repo, *words)["message"], words
    assert repo.document("budget", "show", "scope")["items"][0]["dimensions"]["calls"]["ceiling"] == 7
    assert repo.states() == {"only": "cancelled"}
    kinds = [
        json.loads(line)["kind"] for line in repo.call("journal", "tail", "--after", "0", "--json").stdout.splitlines()
    ]
    assert kinds.count("work_order_spec") == 2, "the order and the one in its place"


def test_an_answer_is_told_to_be_recorded(repo: Repo) -> None:
    repo.write("plan.toml", ASKS)
    assert repo.call("run", "plan.toml").returncode == 9
    done = into_full(repo, "order", "answer", "asks", "yes")
    assert done.returncode == 1 and RECORDED in done.stderr
    assert repo.document("run", "plan.toml")["orders"][0]["state"] == "applied"


def test_what_has_recorded_nothing_does_not_say_that_it_has(repo: Repo) -> None:
    repo.write("plan.toml", ONE)
    run = into_full(repo, "run", "plan.toml")
    assert run.returncode == 1 and "the plan is recorded all the same" in run.stderr
    assert "next: run again, with another output: it goes on" in run.stderr
    assert repo.call("run", "plan.toml").returncode == 0
    for words in (("order", "list"), ("plan", "submit", "plan.toml"), ("journal", "replay")):
        assert "all the same" not in told(repo, *words)["message"], words
    assert "the caches are written anew" in told(repo, "journal", "replay", "--rebuild")["message"]
    assert "the file is written all the same" in told(repo, "journal", "export", "out.json")["message"]
    assert (repo.folder / "out.json").stat().st_size > 0


def test_what_can_be_told_nowhere_is_told_by_the_exit_code(repo: Repo) -> None:
    repo.write("plan.toml", ONE)
    assert into_full(repo, "plan", "submit", "plan.toml", stderr="full").returncode == 1
    assert into_full(repo, "order", "show", "nobody", stderr="full").returncode == 3
