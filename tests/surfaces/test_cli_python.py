"""X10, plan files: `executor = "python"` is checked against the source tree before anything is submitted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.surfaces.cli_run_world import Repo, make_repo

PLAN = """
[budget]
attempts = 3
[[work]]
name = "a"
executor = "python"
call = "work:summarize"
"""
MODULE = """
import fencepost as fp

@fp.executor("summarize", version=2)
def summarize(attempt):
    raise SystemExit(3)
"""


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    return make_repo(tmp_path)


def codes(repo: Repo) -> dict[str, str]:
    done = repo.call("plan", "check", "plan.toml", "--json")
    return {error["where"]["at"]: error["code"] for error in json.loads(done.stdout)["errors"]}


def test_x10_name_version_and_interpreter_stand_in_the_spec(repo: Repo) -> None:
    repo.write("plan.toml", PLAN)
    repo.write("work.py", MODULE)
    assert codes(repo) == {}
    repo.document("plan", "submit", "plan.toml")
    spec = repo.document("order", "show", "a")["spec"]
    interpreter = spec["python"].pop("interpreter")
    assert Path(interpreter).is_absolute()
    assert spec["work_kind"] == "python/1" and spec["run"] == []
    assert spec["python"] == {"call": "work:summarize", "name": "summarize", "version": 2}


@pytest.mark.parametrize(
    ("code", "at", "plan", "module"),
    [
        ("module_missing", "/work/0/call", PLAN.replace("work:", "nowhere:"), MODULE),
        ("module_not_pinned", "/work/0/call", PLAN + 'inputs = ["other.py"]\n', MODULE),
        ("module_unreadable", "/work/0/call", PLAN, "def summarize(:\n"),
        ("function_missing", "/work/0/call", PLAN, "import fencepost\n"),
        ("not_an_executor", "/work/0/call", PLAN, "def summarize(attempt):\n    pass\n"),
        ("not_literal", "/work/0/call", PLAN, MODULE.replace("version=2", "version=V")),
        ("python_missing", "/python", 'python = "no-such-python"\n' + PLAN, MODULE),
        ("python_unsuited", "/python", 'python = "/bin/true"\n' + PLAN, MODULE),
    ],
)
def test_x10_each_thing_that_is_wrong_has_its_code(repo: Repo, code: str, at: str, plan: str, module: str) -> None:
    repo.write("plan.toml", plan)
    repo.write("work.py", module)
    repo.write("other.py", "")
    assert codes(repo) == {at: code}


def test_x10_nothing_of_the_module_runs_at_submission(repo: Repo) -> None:
    repo.write("plan.toml", PLAN)
    repo.write("work.py", f"open('ran', 'w').close()\n{MODULE}")
    repo.document("plan", "submit", "plan.toml")
    assert not (repo.folder / "ran").exists()


def test_x10_another_callable_is_another_plan(repo: Repo) -> None:
    repo.write("plan.toml", PLAN)
    repo.write("work.py", MODULE + MODULE.replace("def summarize", "def other"))
    repo.document("plan", "submit", "plan.toml")
    repo.write("plan.toml", PLAN.replace("work:summarize", "work:other"))
    changed = repo.document("plan", "diff", "plan.toml", code=5)["changed"]
    assert [change["fields"] for change in changed] == [["call"]]
