"""`fencepost run` as a user has it: documents, identity of a run, exit codes."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.surfaces.cli_run_world import CLI, ONE, THREE, WAIT_S, Repo, ended, make_repo, read_until


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    return make_repo(tmp_path)


def go(repo: Repo) -> None:
    repo.write("go", "")


def test_a_run_says_each_change_and_ends_with_what_proves_it(repo: Repo) -> None:
    go(repo)
    repo.write("plan.toml", THREE)
    done = repo.call("run", "plan.toml", "--jobs", "1")
    assert done.returncode == 0, done.stderr
    assert done.stderr == "made .fencepost\n"
    lines = done.stdout.splitlines()
    assert lines[:4] == [
        "plan plan: submitted (3 orders)",
        "one: active (attempt_running)",
        "one: applied",
        "two: ready (waiting_for_worker)",
    ]
    assert "plan plan: done (3 applied)" in lines
    assert any("one.txt  sha256:" in line and line.endswith("4 bytes") for line in lines)
    assert repo.ran() == ["one", "two", "three"]


def test_the_document_of_a_run(repo: Repo) -> None:
    go(repo)
    repo.write("plan.toml", THREE)
    done = repo.call("run", "plan.toml", "--json")
    document = json.loads(done.stdout)
    assert {"plan", "name", "outcome", "sequence", "projection_digest", "orders"} <= set(document)
    assert (document["name"], document["outcome"]) == ("plan", "done")
    first = document["orders"][0]
    assert {"name", "id", "state", "reason", "attempts", "charged", "artifacts", "effects"} <= set(first)
    assert first["artifacts"][0]["path"] == "one.txt"
    assert first["artifacts"][0]["digest"].startswith("sha256:")
    assert first["charged"]["attempts"] == 1 and first["charged"]["time_us"] > 0
    assert "one: applied" in done.stderr, "progress goes to stderr"
    replayed = repo.document("journal", "replay")
    assert replayed["match"] is True


def test_a_finished_plan_prints_its_recorded_outcome_and_does_nothing(repo: Repo) -> None:
    go(repo)
    repo.write("plan.toml", THREE)
    first = repo.document("run", "plan.toml")
    again = repo.document("run", "plan.toml")
    assert again["plan"] == first["plan"] and again["orders"] == first["orders"]
    assert again["sequence"] == first["sequence"] or again["sequence"] - first["sequence"] <= 1
    assert repo.ran() == ["one", "two", "three"]


def test_a_finished_plan_with_a_failure_keeps_its_exit_code(repo: Repo) -> None:
    repo.write("plan.toml", ONE.replace('"true"', '"false"'))
    first = repo.document("run", "plan.toml", code=7)
    assert first["outcome"] == "failed"
    assert first["orders"][0]["reason"] == "exit_code_unexpected"
    assert repo.document("run", "plan.toml", code=7)["plan"] == first["plan"]


def test_again_submits_a_finished_plan_anew(repo: Repo) -> None:
    go(repo)
    repo.write("plan.toml", THREE)
    first = repo.document("run", "plan.toml")
    second = repo.document("run", "plan.toml", "--again")
    assert second["plan"] != first["plan"] and second["outcome"] == "done"
    assert repo.ran() == ["one", "two", "three"] * 2


def test_an_open_plan_continues_with_the_inputs_of_its_submission(repo: Repo) -> None:
    text = '[budget]\nattempts = 3\n[[work]]\nname = "a"\nrun = ["cat", "readme.txt"]\ninputs = ["readme.txt"]\n'
    repo.write("plan.toml", text)
    submitted = repo.document("plan", "submit", "plan.toml")
    assert submitted["fresh"] is True
    repo.write("readme.txt", "changed since\n")
    (repo.folder / "readme.txt").unlink()
    assert repo.document("plan", "submit", "plan.toml")["fresh"] is False
    ran = repo.document("run", "plan.toml")
    assert ran["plan"] == submitted["plan"]
    assert repo.call("order", "log", "a").stdout.count("a repository") == 1


def test_an_open_plan_of_other_content_is_plan_changed(repo: Repo) -> None:
    repo.write("plan.toml", THREE)
    first = repo.document("plan", "submit", "plan.toml")
    go(repo)
    repo.write("plan.toml", THREE.replace("three orders", "3 orders"))
    for arguments in (("run", "plan.toml"), ("plan", "submit", "plan.toml"), ("run", "plan.toml", "--again")):
        error = repo.error(*arguments, code=5)
        assert error["code"] == "plan_changed"
        assert "run PLAN --new" in error["next"]
    second = repo.document("run", "plan.toml", "--new")
    assert second["plan"] != first["plan"]
    assert repo.ran() == ["one", "two", "three"]


def test_the_same_content_in_json_and_with_other_spacing_is_the_same_plan(repo: Repo) -> None:
    repo.write("plan.toml", ONE)
    first = repo.document("plan", "submit", "plan.toml")
    document = {"work": [{"run": ["true"], "name": "only"}], "budget": {"attempts": 3}, "name": "plan"}
    repo.write("other.json", json.dumps(document))
    second = repo.document("plan", "submit", "other.json")
    assert (second["plan"], second["fresh"]) == (first["plan"], False)


def test_a_plan_from_stdin_needs_a_name(repo: Repo) -> None:
    refused = repo.call("run", "-", "--json", stdin=ONE)
    assert refused.returncode == 2
    assert json.loads(refused.stderr)["error"]["code"] == "bad_name"
    done = repo.call("run", "-", "--json", stdin='name = "piped"\n' + ONE)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["name"] == "piped"


def test_no_work_waits_for_others_and_timeout_ends_the_wait(repo: Repo) -> None:
    repo.write("plan.toml", ONE)
    waited = repo.document("run", "plan.toml", "--no-work", "--timeout", "300ms", code=6)
    assert waited["outcome"] == "timeout"
    waiting = repo.start("run", "plan.toml", "--no-work")
    read_until(waiting, "waiting for others")
    worker = repo.call("worker", "start", "--until-idle")
    assert worker.returncode == 0, worker.stderr
    code, said = ended(waiting)
    assert code == 0 and "plan plan: done" in said


def test_a_repository_named_with_repo_is_the_one_that_is_pinned(repo: Repo, tmp_path: Path) -> None:
    other = make_repo(tmp_path, "other")
    other.write("readme.txt", "the other one\n")
    repo.write("plan.toml", ONE.replace('["true"]', '["grep", "other", "readme.txt"]'))
    done = repo.call("run", "plan.toml", "--repo", str(other.folder))
    assert done.returncode == 0, done.stdout + done.stderr
    assert other.has_home() and not repo.has_home()


def test_a_verifier_gets_files_that_the_order_does_not_name(repo: Repo) -> None:
    """The verifier's own files are pinned with the order, whatever its inputs are."""
    repo.write("check.sh", "grep -q made out.txt\n")
    repo.write(
        "plan.toml",
        '[budget]\nattempts = 3\n[[work]]\nname = "a"\nrun = ["sh", "-c", "echo made > out.txt"]\n'
        'inputs = ["readme.txt"]\noutputs = ["out.txt"]\naccept = { verify = ["sh", "check.sh"] }\n',
    )
    assert repo.document("run", "plan.toml")["outcome"] == "done"
    repo.write("check.sh", "grep -q something-else out.txt\n")
    failed = repo.document("run", "plan.toml", "--again", code=7)
    assert failed["orders"][0]["reason"] == "verifier_failed"


def test_a_schema_is_pinned_and_checked(repo: Repo) -> None:
    repo.write("schemas/out.json", json.dumps({"type": "object", "required": ["count"]}))
    plan = (
        '[budget]\nattempts = 3\n[[work]]\nname = "a"\nrun = ["sh", "-c", "echo \'{COUNT}\' > out.json"]\n'
        'inputs = ["readme.txt"]\noutputs = ["out.json"]\naccept = { schema = { "out.json" = "schemas/out.json" } }\n'
    )
    repo.write("good.toml", plan.replace("{COUNT}", '{\\"count\\": 1}'))
    repo.write("bad.toml", plan.replace("{COUNT}", "{}"))
    assert repo.document("run", "good.toml")["outcome"] == "done"
    assert repo.document("run", "bad.toml", code=7)["orders"][0]["reason"] == "schema_failed"


def test_a_closed_stdout_stops_nothing(repo: Repo) -> None:
    go(repo)
    repo.write("plan.toml", THREE)
    read_end, write_end = os.pipe()
    process = subprocess.Popen(
        [*CLI, "run", "plan.toml"],
        cwd=repo.folder,
        env=repo.environment(),
        stdin=subprocess.DEVNULL,
        stdout=write_end,
        stderr=subprocess.PIPE,
        encoding="utf-8",
    )
    os.close(write_end)
    os.close(read_end)
    _, said = process.communicate(timeout=WAIT_S)
    assert (process.returncode, said) == (0, "made .fencepost\n")
    assert repo.ran() == ["one", "two", "three"]


def test_a_command_key_makes_a_submission_repeatable(repo: Repo) -> None:
    repo.write("plan.toml", ONE)
    first = repo.document("plan", "submit", "plan.toml", "--new", "--command-key", "mine")
    second = repo.document("plan", "submit", "plan.toml", "--new", "--command-key", "mine", code=0)
    assert second["plan"] == first["plan"] and second["fresh"] is False


def test_a_finished_plan_is_found_again_whatever_the_tree_is_like_by_now(repo: Repo) -> None:
    repo.write("plan.toml", ONE + 'inputs = ["readme.txt"]\n')
    first = repo.document("run", "plan.toml")
    (repo.folder / "readme.txt").unlink()
    assert repo.document("run", "plan.toml")["plan"] == first["plan"]
    assert repo.error("run", "plan.toml", "--again", code=2)["code"] == "no_match"


def test_what_waits_for_a_person_exits_9(repo: Repo) -> None:
    """A clock that contradicts itself starts nothing new, and only a person can say what holds."""
    repo.write("plan.toml", ONE)
    repo.document("plan", "submit", "plan.toml")
    _quarantine_the_clock(repo)
    document = repo.document("run", "plan.toml", code=9)
    assert document["outcome"] == "waiting"
    assert repo.call("run", "plan.toml").stdout.count("nothing new starts") == 1


def _quarantine_the_clock(repo: Repo) -> None:
    """Give the scope a reading whose UTC is an hour off, as a host with a wrong clock would."""
    script = (
        "import os, msgspec; from pathlib import Path; from fencepost.app import App;"
        "from fencepost.core.commands import ObserveClock; from fencepost.kernel.group import clock_reading;"
        "app = App(Path('.fencepost'), scope='default', environment=os.environ); app.kernel.open();"
        "now = app.kernel.clock.read();"
        "wrong = msgspec.structs.replace(clock_reading(now), utc_us=now.utc_us + 3_600_000_000);"
        "print(app.kernel.write(app.kernel.request('sampler', ObserveClock(reading=wrong)))); app.close()"
    )
    done = subprocess.run(
        [CLI[0], "-c", script], cwd=repo.folder, env=repo.environment(), capture_output=True, text=True, check=True
    )
    assert "refusal" in done.stdout
