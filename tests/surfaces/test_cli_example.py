"""The example that ships: real input, each kind of dependency, a retry that is used, a verifier, files handed on."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest

from fencepost.core.planfile import check_text
from tests.surfaces.cli_run_world import Repo, git, make_repo

EXAMPLE = Path(__file__).parents[2] / "examples" / "repository-check.toml"


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    made = make_repo(tmp_path)
    made.write("src/good.py", "GOOD = 1\n")
    made.write("src/bad.py", "def broken(:\n")
    made.write("ü ber.txt", "text\n")
    git(made.folder, "add", ".")
    git(made.folder, "commit", "-q", "-m", "second")
    return made


def test_it_shows_what_the_product_can_do() -> None:
    checked = check_text(EXAMPLE.read_bytes(), syntax="toml", stem=EXAMPLE.stem)
    assert checked.document is not None, checked.problems
    work = checked.document.work
    assert len(work) >= 6
    assert {group.kind for item in work for group in item.needs} == {"required", "alternative", "optional"}
    assert any(item.may_fail for item in work)
    assert any(item.retry is not None for item in work)
    assert any(item.accept.verify for item in work)


def test_it_runs_on_any_repository_and_its_retry_is_used(repo: Repo) -> None:
    shutil.copy(EXAMPLE, repo.folder.parent / "check.toml")
    started = time.monotonic()
    document = repo.document("run", "../check.toml", "--repo", ".")
    assert time.monotonic() - started < 30
    assert document["outcome"] == "done"
    orders = {order["name"]: order for order in document["orders"]}
    assert orders["python-syntax"]["state"] == "failed", "the order that may fail does, for src/bad.py"
    assert (orders["unchanged"]["state"], orders["changed"]["state"]) == ("applied", "failed")
    assert (orders["rehearsal"]["attempts"], orders["rehearsal"]["failures"]) == (2, 1)
    assert orders["report"]["artifacts"][0]["path"] == "repository-check/report.md"
    repo.call("order", "files", "report", "--to", str(repo.folder.parent / "out"))
    report = next((repo.folder.parent / "out").rglob("report.md")).read_text()
    assert "2 commits" in report and "4 files" in report and "some do not compile" in report
    assert repo.document("journal", "replay")["match"] is True


def test_it_runs_where_the_work_tree_is_changed(repo: Repo) -> None:
    repo.write("src/bad.py", "GOOD = 2\n")
    repo.write("examples/repository-check.toml", EXAMPLE.read_text())
    document = repo.document("run", "examples/repository-check.toml")
    states = {order["name"]: order["state"] for order in document["orders"]}
    assert document["outcome"] == "done"
    assert (states["unchanged"], states["changed"], states["python-syntax"]) == ("failed", "applied", "applied")
