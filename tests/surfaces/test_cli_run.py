"""`fencepost run` as a user has it: documents, identity of a run, exit codes."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fencepost.app import App
from fencepost.core.commands import Activate, EnrolWorker, ReportResult, ReserveNext
from fencepost.core.ids import IdSource, sha256_of
from fencepost.core.records.attempt import ResultFacts
from fencepost.kernel.kernel import Kernel
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
        following = "fencepost plan diff plan.toml; submit it beside the open one: fencepost run plan.toml --new"
        assert following in error["next"]
    second = repo.document("run", "plan.toml", "--new")
    assert second["plan"] != first["plan"]
    assert repo.ran() == ["one", "two", "three"]


def test_new_always_makes_a_plan_whatever_ended_meanwhile(repo: Repo) -> None:
    repo.write("plan.toml", ONE)
    made = [repo.document("plan", "submit", "plan.toml", "--new") for _ in range(2)]
    repo.document("plan", "cancel", made[1]["plan"])
    made.append(repo.document("plan", "submit", "plan.toml", "--new"))
    assert len({document["plan"] for document in made}) == 3
    assert [document["fresh"] for document in made] == [True] * 3


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
    error = json.loads(refused.stderr)["error"]
    assert error["code"] == "bad_name" and "stdin" in error["message"] and 'name = "work"' in error["next"]
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


def test_a_blocked_scope_says_that_nothing_lifts_it_and_a_new_home_works(repo: Repo) -> None:
    """What a quarantine means in this version (docs/decisions/0008): nothing is lost, a new home or scope goes on."""
    repo.write("plan.toml", ONE)
    done = repo.document("run", "plan.toml")
    repo.write("second.toml", ONE)
    repo.document("plan", "submit", "second.toml")
    _quarantine_the_clock(repo)
    why = repo.document("order", "why", "second/only")
    assert "no command" in why["clock"]["message"] and "--home DIR" in why["next"]
    doctor = {item["check"]: item for item in repo.document("doctor", code=1)["items"]}
    for told in (repo.document("clock", "show"), doctor["clock"]):
        assert "no command" in told["message"] and "--home DIR" in told["next"]
    assert repo.document("run", "plan.toml")["orders"] == done["orders"], "what was done is still there to be read"
    assert repo.document("plan", "list")["items"][0]["outcome"] == "waiting"
    again = repo.document("run", "second.toml", "--home", str(repo.folder / "elsewhere"))
    assert again["outcome"] == "done"
    repo.document("init", "--scope", "other")
    assert repo.document("run", "second.toml", "--scope", "other")["outcome"] == "done"
    assert repo.document("plan", "cancel", "second")["outcome"] == "cancelled", "a cancel needs no time"
    assert repo.document("journal", "replay")["match"] is True


def test_a_conflict_of_results_waits_for_a_person_and_exits_9(repo: Repo) -> None:
    repo.write("plan.toml", ONE + 'accept = { verify = ["true"] }\n')
    repo.document("plan", "submit", "plan.toml")
    _report_twice(repo)
    document = repo.document("run", "plan.toml", "--timeout", "20s", code=9)
    assert document["outcome"] == "waiting"
    assert [(order["state"], order["reason"]) for order in document["orders"]] == [("conflict", "results_differ")]
    assert repo.document("plan", "show", "plan")["outcome"] == "waiting"


def _report_twice(repo: Repo) -> None:
    """One attempt reports two results that differ, as two executors under one fence would."""
    with opened_repo(repo) as kernel:
        worker = IdSource(b"7" * 16, 1).next("worker")
        enrol = EnrolWorker(worker=worker, host="other", boot_id="boot", pid=1, executors=("command/1",))
        kernel.write(kernel.request("dispatcher", enrol)).required()
        take = ReserveNext(worker=worker, count=1, plan=None)
        (reserved,) = kernel.write(kernel.request("dispatcher", take)).required()["reservations"]
        with kernel.reader.look() as look:
            order = look.order(reserved["order"])
            assert order is not None
            spec = look.spec(order)
        activate = Activate(
            attempt=reserved["attempt"],
            expected=reserved["version"],
            fence=reserved["fence"],
            worker=worker,
            executor="command",
            executor_version=1,
            environment=sha256_of(b"environment"),
            input_set=spec.inputs.digest,
            mode="local",
        )
        kernel.write(kernel.request("dispatcher", activate)).required()
        codes = []
        for exit_code in (0, 5):
            facts = ResultFacts(
                outcome="succeeded" if exit_code == 0 else "failed",
                input_set=spec.inputs.digest,
                output_kind="files/1",
                duration_us=1_000,
                classification="internal",
                exit_code=exit_code,
                message_code="" if exit_code == 0 else "exit_code_unexpected",
                failure=None if exit_code == 0 else "executor",
            )
            report = ReportResult(
                attempt=reserved["attempt"], fence=reserved["fence"], spec=reserved["spec"], facts=facts
            )
            refusal = kernel.write(kernel.request("executor", report)).refusal
            codes.append(None if refusal is None else refusal.code)
        assert codes == [None, "rejected_conflict"]


@contextmanager
def opened_repo(repo: Repo) -> Iterator[Kernel]:
    app = App(repo.folder / ".fencepost", scope="default", environment=repo.environment())
    try:
        app.kernel.open()
        yield app.kernel
    finally:
        app.close()


def test_a_refused_plan_writes_nothing_and_opens_no_scope(repo: Repo) -> None:
    repo.write("good.toml", ONE)
    repo.document("run", "good.toml")
    repo.write("bad.toml", ONE + 'inputs = ["nothing/**"]\n')
    head = repo.document("journal", "verify")["sequence"]
    for words in (("plan", "submit"), ("run",), ("plan", "submit", "--again"), ("plan", "diff")):
        code = 3 if words == ("plan", "diff") else 2
        bad = "good.toml" if code == 3 else "bad.toml"
        repo.error(*words, bad, "--scope", "fresh", code=code)
        assert repo.error("plan", "list", "--scope", "fresh", code=3)["code"] == "scope_not_open", words
    doctor = repo.document("doctor", "--scope", "fresh")
    assert {item["check"]: item["level"] for item in doctor["items"]}["scope"] == "warn"
    assert repo.error("plan", "list", "--scope", "fresh", code=3)["code"] == "scope_not_open", "doctor changes nothing"
    assert repo.document("journal", "verify")["sequence"] == head
    repo.document("init", "--scope", "fresh")
    assert repo.document("run", "good.toml", "--scope", "fresh")["outcome"] == "done"


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


PAID = """[budget]
attempts = 2
money = { USD = "4.00" }
[[work]]
name = "paid"
run = ["true"]
budget = { attempts = 1, money = { USD = "1.00" } }
"""


def test_w18_a_run_goes_on_once_a_person_has_budgeted_the_currency_that_it_waited_for(repo: Repo) -> None:
    """The order still says what held it up when the run begins: that is out of date, and nobody need act any more."""
    repo.write("plan.toml", PAID)
    assert repo.call("plan", "submit", "plan.toml").returncode == 0
    repo.call("budget", "set", "scope", "--money", "EUR:5")
    waits = repo.call("run", "plan.toml")
    assert waits.returncode == 9 and "paid: blocked_budget" in waits.stdout, waits.stdout
    repo.call("budget", "set", "scope", "--money", "USD:5", "--no-limit", "EUR")
    shown = json.loads(repo.call("plan", "show", "plan", "--json").stdout)
    assert shown["outcome"] == "open"
    done = repo.call("run", "plan.toml")
    assert done.returncode == 0, done.stdout
    assert "plan plan: done (1 applied)" in done.stdout
