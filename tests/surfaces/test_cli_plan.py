"""`fencepost plan`: everything wrong is said at once, with its place, and nothing is written for it."""

from __future__ import annotations

import json
import os
import re
import tomllib
from pathlib import Path

import pytest

from fencepost.core.planfile import read_document
from tests.surfaces.cli_run_world import ONE, THREE, Repo, git, make_repo
from tests.unit.planfile.test_product_example import example_without_what_is_not_built

BROKEN = """\
[budget]
attempts = 1

[[work]]
name = "Wrong Name"
run = ["true"]

[[work]]
name = "a"
rum = ["true"]
needs = ["b"]

[[work]]
name = "b"
run = ["true"]
needs = ["a", "nobody"]
inputs = ["nothing/**"]
attempt_time = "5 minutes"
"""


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    return make_repo(tmp_path)


def test_plans_come_in_pages_that_lead_on(repo: Repo) -> None:
    names = [f"p{number}" for number in range(5)]
    for name in names:
        repo.write(f"{name}.toml", ONE)
        repo.document("plan", "submit", f"{name}.toml")
    seen: list[str] = []
    cursor: list[str] = []
    for _ in range(10):
        page = repo.document("plan", "list", "--limit", "2", *cursor)
        seen += [item["name"] for item in page["items"]]
        if page["next"] is None:
            break
        cursor = ["--after", page["next"]]
    assert seen == names[::-1]
    told = repo.call("plan", "list", "--limit", "2")
    assert told.stderr.startswith("more: --after plan_")
    assert repo.error("plan", "list", "--after", "plan_" + "0" * 32, code=3)["code"] == "not_found"


def test_every_problem_at_once_with_code_and_place_and_nothing_written(repo: Repo) -> None:
    repo.write("plan.toml", BROKEN)
    before = sorted(repo.folder.rglob("*"))
    document = repo.document("plan", "check", "plan.toml", code=2)
    assert document["ok"] is False and document["order"] == []
    found = {(error["code"], error["where"]["at"]) for error in document["errors"]}
    assert found == {
        ("bad_name", "/work/0/name"),
        ("unknown_key", "/work/1/rum"),
        ("missing_key", "/work/1/run"),
        ("bad_duration", "/work/2/attempt_time"),
        ("dependency_missing", "/work/2/needs/1"),
        ("dependency_cycle", "/work/1/needs"),
        ("no_match", "/work/2/inputs/0"),
        ("impossible_budget", "/budget/attempts"),
    }
    assert all(error["where"]["file"] == "plan.toml" and error["next"] for error in document["errors"])
    error = repo.error("run", "plan.toml", code=2)
    assert {(each["code"], each["where"]["at"]) for each in error["errors"]} == found
    repo.error("plan", "submit", "plan.toml", code=2)
    assert sorted(repo.folder.rglob("*")) == before
    said = repo.call("run", "plan.toml").stderr
    assert said.count("error [") == len(found)
    assert "  where: plan.toml line 11 at /work/1/needs (a)\n" in said
    lines = {error["where"]["at"]: error["where"]["line"] for error in document["errors"]}
    assert lines["/budget/attempts"] == 2 and lines["/work/2/inputs/0"] == 17
    assert lines["/work/1/run"] == 8, "what is missing is missing in its table"


def test_a_syntax_error_comes_alone_with_its_line(repo: Repo) -> None:
    repo.write("plan.toml", '[budget]\nattempts = 3\n[[work]\nname = "a"\n')
    document = repo.document("plan", "check", "plan.toml", code=2)
    assert [(error["code"], error["where"]["line"]) for error in document["errors"]] == [("syntax", 3)]
    assert "where: plan.toml line 3" in repo.call("run", "plan.toml").stderr


def test_what_is_not_built_yet_is_refused_by_name(repo: Repo) -> None:
    repo.write("plan.toml", ONE + "resources = []\n")
    document = repo.document("plan", "check", "plan.toml", code=2)
    assert [error["code"] for error in document["errors"]] == ["unsupported_feature"]


def test_check_names_the_orders_topologically_and_writes_nothing(repo: Repo) -> None:
    repo.write("plan.toml", THREE)
    document = {"ok": True, "errors": [], "warnings": [], "order": ["one", "two", "three"]}
    assert repo.document("plan", "check", "plan.toml") == document
    assert not repo.has_home()


def test_files_that_cannot_be_pinned_are_problems_of_the_plan(repo: Repo) -> None:
    (repo.folder / "outside").symlink_to("/etc/hostname")
    os.mkfifo(repo.folder / "pipe")
    repo.write("plan.toml", ONE + 'inputs = ["outside"]\n')
    document = repo.document("plan", "check", "plan.toml", code=2)
    assert [(error["code"], error["where"]["at"]) for error in document["errors"]] == [
        ("path_outside", "/work/0/inputs/0")
    ]
    repo.write("plan.toml", ONE)
    everything = repo.document("plan", "check", "plan.toml", code=2)
    assert [(error["code"], error["where"]["name"]) for error in everything["errors"]] == [("path_outside", "only")]
    assert not repo.has_home()


def test_a_name_that_is_not_utf_8_is_a_problem(repo: Repo) -> None:
    Path(os.fsdecode(os.fsencode(repo.folder) + b"/\xff")).write_bytes(b"")
    repo.write("plan.toml", ONE)
    document = repo.document("plan", "check", "plan.toml", code=2)
    assert [error["code"] for error in document["errors"]] == ["out_of_range"]


def test_a_missing_plan_file_is_not_found(repo: Repo) -> None:
    assert repo.error("run", "nothing.toml", code=3)["code"] == "plan_missing"
    assert not repo.has_home()


def test_submit_makes_a_home_and_says_so_and_is_repeatable(repo: Repo) -> None:
    repo.write("plans/plan.toml", THREE)
    done = repo.call("plan", "submit", "plans/plan.toml", "--json")
    assert (done.returncode, done.stderr) == (0, "made .fencepost\n"), "the home is made at the git root"
    first = json.loads(done.stdout)
    assert set(first) >= {"plan", "name", "digest", "revision", "sequence", "fresh", "orders"}
    assert (first["name"], first["revision"], first["fresh"]) == ("plan", 1, True)
    assert [order["name"] for order in first["orders"]] == ["one", "two", "three"]
    assert all(order["id"].startswith("order_") for order in first["orders"])
    second = repo.document("plan", "submit", "plans/plan.toml")
    assert {**second, "sequence": 0} == {**first, "fresh": False, "sequence": 0}


def test_a_plan_outside_of_a_repository_has_its_home_beside_it(tmp_path: Path) -> None:
    folder = tmp_path / "plain"
    folder.mkdir()
    repo = Repo(folder, tmp_path)
    repo.write("inner/plan.toml", ONE)
    assert repo.call("run", "inner/plan.toml").returncode == 0
    assert (folder / "inner" / ".fencepost").is_dir() and not repo.has_home()


def test_show_tells_where_the_plan_came_from(repo: Repo) -> None:
    repo.write("plan.toml", THREE)
    repo.document("plan", "submit", "plan.toml")
    shown = repo.document("plan", "show", "plan")
    assert shown["provenance"]["repository"] == str(repo.folder)
    assert re.fullmatch(r"[0-9a-f]{40}", shown["provenance"]["commit"])
    assert (shown["provenance"]["dirty"], shown["provenance"]["file"]) == ("yes", "plan.toml")
    assert [item["state"] for item in shown["items"]] == ["ready", "blocked_dependency", "blocked_dependency"]
    git(repo.folder, "add", ".")
    git(repo.folder, "commit", "-q", "-m", "second")
    repo.document("plan", "submit", "plan.toml", "--new")
    assert repo.document("plan", "show")["provenance"]["dirty"] == "no"


def test_list_and_cancel(repo: Repo) -> None:
    repo.write("plan.toml", THREE)
    repo.document("plan", "submit", "plan.toml")
    cancelled = repo.document("plan", "cancel", "plan", "--note", "no longer needed")
    assert (cancelled["name"], cancelled["open"]) == ("plan", 0)
    listed = repo.document("plan", "list")
    assert listed["next"] is None
    assert [(item["name"], item["outcome"]) for item in listed["items"]] == [("plan", "cancelled")]
    assert set(repo.states().values()) <= {"cancelled", "dependency_failed"}
    assert repo.document("run", "plan.toml", code=7)["outcome"] == "failed"


def test_diff_names_what_differs_and_exits_5(repo: Repo) -> None:
    repo.write("plan.toml", THREE)
    repo.document("plan", "submit", "plan.toml")
    assert repo.document("plan", "diff", "plan.toml")["same"] is True
    changed = THREE.replace("sleep 60", "sleep 61").replace('name = "three"', 'name = "four"')
    repo.write("plan.toml", changed)
    document = repo.document("plan", "diff", "plan.toml", code=5)
    assert (document["added"], document["removed"]) == (["four"], ["three"])
    (two,) = document["changed"]
    assert (two["name"], two["fields"]) == ("two", ["run"])
    before, after = two["values"]["run"]
    assert "sleep 60" in before and "sleep 61" in after
    assert "    + run = " in repo.call("plan", "diff", "plan.toml").stdout


def _as_toml(value: object) -> str:
    """Plan values as inline TOML; JSON is TOML here but for tables and booleans, which are written alike."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{json.dumps(key)} = {_as_toml(each)}" for key, each in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(_as_toml(each) for each in value) + "]"
    return json.dumps(value)


def test_the_example_of_the_product_page_runs_without_what_is_not_built(repo: Repo) -> None:
    """As it stands there, on a small repository; programs that need not be installed are stood in for."""
    value = example_without_what_is_not_built()
    tools = repo.folder.parent / "tools"
    tools.mkdir()
    for name, script in (
        ("ruff", "exit 1"),
        ("pytest", 'echo "<testsuite tests=\\"1\\" failures=\\"0\\"/>" > report.xml'),
        ("python", 'exec python3 "$@"'),
    ):
        path = tools / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
    # Ours is first on PATH, so the stand-ins are called by their own paths.
    for item in value["work"]:
        if item["run"][0] in ("ruff", "pytest"):
            item["run"][0] = str(tools / item["run"][0])
    repo.write("src/a.py", "A = 1\n")
    repo.write("tests/test_a.py", "def test_a():\n    pass\n")
    repo.write("pyproject.toml", "")
    repo.write("publish.sh", "grep -q 'failures=\"0\"' report.xml\n")
    repo.write(
        "check_report.py",
        "import sys, pathlib\nsys.exit('failures=\"0\"' not in pathlib.Path('report.xml').read_text())\n",
    )
    text = "\n".join(f"{json.dumps(key)} = {_as_toml(each)}" for key, each in value.items())
    assert tomllib.loads(text) == value
    repo.write("nightly.toml", text)
    assert read_document(text, syntax="toml")
    document = repo.document("run", "nightly.toml")
    assert (document["name"], document["outcome"]) == ("nightly", "done")
    states = {order["name"]: order["state"] for order in document["orders"]}
    assert states == {"lint": "failed", "tests": "applied", "publish": "applied"}
    charged = {order["name"]: order["charged"] for order in document["orders"]}
    assert charged["tests"]["calls"] == 0 and charged["tests"]["money_micros"] == {}
