"""What `order why` advises works in the state in which it is advised."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from tests.surfaces.cli_run_world import Repo, make_repo
from tests.surfaces.cli_world import Cli, World, draft, sh

FAILING = """\
[budget]
attempts = 40
[[work]]
name = "code"
run = ["false"]
[[work]]
name = "signal"
run = ["sh", "-c", "kill -9 $$"]
[[work]]
name = "late"
attempt_time = "1s"
run = ["sleep", "9"]
[[work]]
name = "spawn"
run = ["no-such-program-here"]
[[work]]
name = "nothing"
run = ["true"]
outputs = ["out.txt"]
accept = { files = ["out.txt"] }
[[work]]
name = "schema"
run = ["sh", "-c", "echo '{}' > out.json"]
outputs = ["out.json"]
accept = { schema = { "out.json" = "schema.json" } }
[[work]]
name = "verifier"
run = ["true"]
accept = { verify = ["false"] }
[[work]]
name = "after"
needs = ["code"]
run = ["true"]
"""
REASONS = {
    "code": "exit_code_unexpected",
    "signal": "killed_by_signal",
    "late": "timed_out",
    "spawn": "spawn_failed",
    "nothing": "outputs_missing",
    "schema": "schema_failed",
    "verifier": "verifier_failed",
    "after": "dependency_failed",
}
_PLACEHOLDER = re.compile(r"\b[A-Z]{2,}\b|\bN\b")


@pytest.fixture(scope="module")
def failed(tmp_path_factory: pytest.TempPathFactory) -> Repo:
    repo = make_repo(tmp_path_factory.mktemp("failed"))
    repo.write("schema.json", json.dumps({"type": "object", "required": ["count"]}))
    repo.write("plan.toml", FAILING)
    repo.document("run", "plan.toml", code=7)
    return repo


@pytest.mark.parametrize("name", sorted(REASONS))
def test_the_advice_for_an_order_that_failed_works(failed: Repo, name: str) -> None:
    why = failed.document("order", "why", name)
    assert why["reason"] == REASONS[name]
    for step in why["next"].split(", then "):
        edited_first = step.startswith("fencepost run ")
        if step.startswith("fencepost ") and not _PLACEHOLDER.search(step) and "order retry" not in step:
            if edited_first:
                assert step == "fencepost run plan.toml --again" and failed.folder.joinpath("plan.toml").is_file()
                continue
            done = failed.call(*shlex.split(step)[1:])
            assert done.returncode == 0, (step, done.stderr)
    if name == "schema":
        assert "out.json" in failed.call(*shlex.split(why["next"])[1:]).stdout, "the file that does not follow it"
    if name == "after":
        assert why["next"] == "fencepost order retry plan/code --with-dependents"


def test_the_summary_of_a_run_gives_the_same_advice(failed: Repo) -> None:
    told = failed.call("run", "plan.toml").stdout
    assert "next: fencepost order files plan/schema --attempt 1" in told
    assert " N\n" not in told and "NAME" not in told


def test_an_order_that_was_cancelled_is_retried_as_advised(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    world = World(tmp_path / "home")
    world.submit("p", [draft("a", sh("sleep 60"))])
    cli = Cli(world, capsys)
    cli.json("order", "cancel", "a")
    advice = cli.json("order", "why", "a")["next"]
    assert cli(*shlex.split(advice)[1:]).code == 0
    assert cli.json("order", "list")["items"][0]["state"] == "ready"


def test_doctor_finds_missing_files_and_keys(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    world = World(tmp_path / "home")
    world.work(world.submit("p", [draft("a", sh("echo kept > out.txt"), outputs=("out.txt",))]))
    cli = Cli(world, capsys)
    items = {item["check"]: item for item in cli.json("doctor")["items"]}
    assert (items["artifacts"]["level"], items["authority"]["level"]) == ("ok", "ok")
    digest = cli.json("order", "files", "a")["items"][0]["digest"]
    with world.open() as app:
        app.artifacts.path_of(digest).unlink()
    answer = cli("doctor", "--json")
    items = {item["check"]: item for item in answer.document["items"]}
    assert (answer.code, items["artifacts"]["level"]) == (1, "bad")
    assert digest in items["artifacts"]["message"] and "p/a" in items["artifacts"]["message"]
    for path in (world.home / "keys").iterdir():
        if "human" in path.name:
            path.unlink()
    items = {item["check"]: item for item in cli("doctor", "--json").document["items"]}
    assert items["authority"]["level"] == "bad", items["authority"]


EXHAUSTED = """\
[budget]
attempts = 9
calls = 3
[[work]]
name = "a"
budget = { attempts = 3, per_attempt = { calls = 2 } }
run = ["sh", "-c", "fencepost attempt charge --receipt a1 --calls 2"]
[[work]]
name = "b"
needs = ["a"]
budget = { attempts = 3, per_attempt = { calls = 2 } }
run = ["true"]
[[work]]
name = "c"
needs = ["b"]
run = ["true"]
"""
WITH_CHILD = """\
[budget]
attempts = 9
calls = 3
[[work]]
name = "parent"
inputs = ["kid.toml"]
budget = { attempts = 9, calls = 3 }
run = ["sh", "-c", "fencepost attempt charge --receipt r --calls 2; fencepost attempt child kid.toml; exit 3"]
[[work]]
name = "after"
needs = ["parent"]
run = ["true"]
"""
KID = 'name = "kid"\nbudget = { attempts = 2, per_attempt = { calls = 2 } }\nrun = ["true"]\n'


def test_an_exhausted_budget_is_raised_and_everything_behind_it_comes_back_as_advised(tmp_path: Path) -> None:
    repo = make_repo(tmp_path)
    repo.write("plan.toml", EXHAUSTED)
    repo.document("run", "plan.toml", code=7)
    assert repo.states() == {"a": "applied", "b": "budget_exhausted", "c": "dependency_failed"}
    summary = repo.call("run", "plan.toml").stdout
    assert "because of plan/b, which is budget_exhausted" in " ".join(summary.split())
    step = repo.document("order", "why", "b")["next"]
    assert step.endswith(", then fencepost order retry plan/b --with-dependents")
    for command in step.split(", then "):
        assert repo.call(*shlex.split(command)[1:]).returncode == 0
    assert {order["state"] for order in repo.document("run", "plan.toml")["orders"]} == {"applied"}


def test_an_exhausted_child_is_brought_back_by_the_order_that_asked_for_it(tmp_path: Path) -> None:
    repo = make_repo(tmp_path)
    repo.write("kid.toml", KID)
    repo.write("plan.toml", WITH_CHILD)
    repo.document("run", "plan.toml", code=7)
    assert repo.states()["parent.kid"] == "budget_exhausted"
    step = repo.document("order", "why", "parent.kid")["next"]
    assert step.endswith(", then fencepost order retry plan/parent --with-dependents"), step
    for command in step.split(", then "):
        assert repo.call(*shlex.split(command)[1:]).returncode == 0, command


OVER = """\
[budget]
attempts = 9
calls = 9
[[work]]
name = "a"
budget = { attempts = 3, calls = 2, per_attempt = { calls = 2 } }
run = ["sh", "-c", "fencepost attempt charge --receipt a1 --calls 5"]
"""


def test_what_was_used_beyond_a_ceiling_is_marked(tmp_path: Path) -> None:
    repo = make_repo(tmp_path)
    repo.write("plan.toml", OVER)
    summary = repo.call("run", "plan.toml").stdout
    assert "over its ceiling by calls 3" in summary
    shown = repo.document("order", "show", "a")
    assert (shown["state"], shown["over"]) == ("applied", {"calls": 3})
    assert "calls 3 more than this order's ceiling" in repo.call("order", "show", "a").stdout
    assert repo.document("attempt", "show", "a")["over"] == {"calls": 3}
    assert "calls 3 more than was set aside for it" in repo.call("attempt", "show", "a").stdout
