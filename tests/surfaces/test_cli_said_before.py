"""What a person has to know before more is paid: what is done again, what goes on as it was, who will do nothing."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from tests.surfaces.cli_run_world import ONE, Repo, ended, interrupt, make_repo, read_until

PAYS = """\
[budget]
attempts = 9
money = { USD = "9" }
[[work]]
name = "expensive"
inputs = ["readme.txt"]
run = ["sh", "-c", 'fencepost attempt charge --receipt "$FENCEPOST_ATTEMPT" --money USD:0.40']
[[work]]
name = "cheap"
needs = ["expensive"]
inputs = ["readme.txt"]
run = ["false"]
[[work]]
name = "last"
needs = ["cheap"]
inputs = ["readme.txt"]
run = ["true"]
"""
SLEEPS = ONE.replace('["true"]', '["sh", "-c", "echo up; sleep 60"]')
AGAIN = "plan plan: the one before has ended and has 1 applied order (USD 0.40): all of it is done again"


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    made = make_repo(tmp_path)
    made.variables = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    return made


def test_a_mended_plan_says_what_it_does_again(repo: Repo) -> None:
    repo.write("plan.toml", PAYS)
    done = repo.call("run", "plan.toml")
    assert done.returncode == 7 and "done again" not in done.stdout
    repo.write("plan.toml", PAYS.replace('["false"]', '["true"]'))
    told = repo.call("plan", "submit", "plan.toml").stdout
    assert AGAIN in " ".join(told.split())
    repo.document("plan", "cancel", "plan")
    repo.write("plan.toml", PAYS)
    assert "done again" not in repo.call("run", "plan.toml").stdout, "nothing of the one before was applied"
    repo.write("plan.toml", PAYS.replace('["false"]', '["sh", "-c", "exit 4"]'))
    done = repo.call("run", "plan.toml")
    assert done.stdout.splitlines()[:2] == ["plan plan: submitted (3 orders)", AGAIN]
    told = repo.call("run", "plan.toml", "--new").stdout
    assert "the one before has ended and has 1 applied order (USD 0.40)" in told


def test_an_open_plan_says_which_file_has_changed_and_what_again_does(repo: Repo) -> None:
    repo.write("plan.toml", PAYS)
    repo.document("plan", "submit", "plan.toml")
    done = repo.call("run", "plan.toml", "--timeout", "1ms", "--no-work")
    assert "has changed" not in done.stdout and "--again" not in done.stdout
    repo.write("readme.txt", "mended")
    done = repo.call("run", "plan.toml", "--timeout", "1ms", "--no-work", "--again")
    first, second, third = done.stdout.splitlines()[:3]
    assert first.startswith("plan plan: continues")
    assert second.startswith("--again is for a plan that has ended")
    assert third.startswith("readme.txt has changed since it was pinned")
    assert third.endswith("fencepost run plan.toml --new pins the files as they are now")
    told = repo.call("plan", "submit", "plan.toml", "--again").stdout
    assert "is there already" in told and "--again is for a plan that has ended" in " ".join(told.split())


def test_why_says_that_the_workers_that_live_serve_another_plan(repo: Repo) -> None:
    repo.write("waits.toml", ONE)
    repo.document("plan", "submit", "waits.toml")
    repo.write("sleeps.toml", SLEEPS)
    running = repo.start("run", "sleeps.toml")
    try:
        read_until(running, "attempt_running")
        why = repo.document("order", "why", "waits/only")
        assert why["workers_elsewhere"] == why["workers"] != []
        assert why["next"] == "fencepost run waits.toml, or fencepost worker start"
        told = " ".join(repo.call("order", "why", "waits/only").stdout.split())
        assert "1 worker is alive in this home and serves another plan alone; no order stands before it." in told
    finally:
        interrupt(running, signal.SIGINT)
        ended(running)
    why = repo.document("order", "why", "waits/only")
    assert why["workers_elsewhere"] == why["workers"] == []
    assert [name for name in os.listdir(repo.folder / ".fencepost/locks") if "worker_" in name] == []


def test_the_lock_of_a_killed_worker_of_one_plan_goes_with_the_next_sweep(repo: Repo) -> None:
    repo.write("plan.toml", ONE)
    repo.document("run", "plan.toml")
    left = repo.folder / ".fencepost" / "locks" / f"plan_{'1' * 32}.worker_{'2' * 32}.lock"
    left.touch()
    repo.document("run", "plan.toml", "--again")
    assert not left.exists()


def test_an_order_of_a_cancelled_plan_is_sent_to_no_retry(repo: Repo) -> None:
    repo.write("plan.toml", PAYS)
    repo.document("plan", "submit", "plan.toml")
    repo.document("order", "cancel", "plan/cheap")
    repo.document("plan", "cancel", "plan")
    for name in ("cheap", "last", "expensive"):
        assert repo.document("order", "why", f"plan/{name}")["next"] == "fencepost run plan.toml --again", name
    assert "order retry" not in repo.call("run", "plan.toml").stdout


def test_what_was_left_behind_by_a_retry_is_told_what_became_of_its_cause(repo: Repo) -> None:
    plan = PAYS.replace('["false"]', '["test", "-e", "/nowhere"]')
    repo.write("plan.toml", plan.replace("/nowhere", str(repo.folder / "go")))
    repo.call("run", "plan.toml")
    repo.write("go", "")
    repo.document("order", "retry", "cheap")
    done = repo.call("run", "plan.toml")
    told = " ".join(done.stdout.split())
    assert "because of cheap as it was before, which is failed" in told
    assert "; the one in its place is applied now" in told and "order_" not in told
    why = repo.document("order", "why", "last")
    assert why["because"][0]["now"]["state"] == "applied"
    assert why["next"] == "fencepost order retry plan/last"
