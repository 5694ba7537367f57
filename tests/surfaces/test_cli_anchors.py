"""What vouches for a store, as `run` and `doctor` tell it: keys, anchors, copies of a home, kept files."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.surfaces.cli_run_world import ONE, Repo, make_repo

PLAN = """
objective = "one"
[budget]
attempts = 9
[[work]]
name = "a"
run = ["sh", "-c", "echo hello > out.txt"]
outputs = ["out.txt"]
"""


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    made = make_repo(tmp_path)
    made.write("plan.toml", PLAN)
    first = made.call("run", "plan.toml")
    assert first.returncode == 0
    assert "anchors:" not in first.stdout
    return made


def found(repo: Repo, check: str) -> Any:
    items = json.loads(repo.call("doctor", "--json").stdout)["items"]
    return next(item for item in items if item["check"] == check)


def again(repo: Repo) -> str:
    return repo.call("run", "plan.toml", "--again").stdout


def test_an_untouched_store_says_nothing_of_anchors(repo: Repo) -> None:
    assert "anchors:" not in again(repo)
    assert (found(repo, "store")["level"], found(repo, "ledger")["level"]) == ("ok", "ok")


def test_anchors_that_are_lost_are_missed(repo: Repo) -> None:
    shutil.rmtree(repo.user / ".local")
    assert "anchors: no signed anchor" in again(repo)


def test_a_store_restored_from_an_older_copy_is_told_by_run_and_doctor(repo: Repo) -> None:
    home = repo.folder / ".fencepost"
    shutil.copytree(home, repo.user / "backup")
    again(repo)
    shutil.rmtree(home)
    shutil.move(repo.user / "backup", home)
    assert "restored from one" in again(repo)
    store = found(repo, "store")
    assert store["level"] == "bad" and "was signed" in store["message"]


def test_a_copied_home_is_named(repo: Repo) -> None:
    other = repo.folder.with_name("other")
    shutil.copytree(repo.folder, other)
    copy = Repo(folder=other, user=repo.user)
    assert again(copy)
    for each, named in ((repo, other), (copy, repo.folder)):
        ledger = found(each, "ledger")
        assert ledger["level"] == "warn"
        assert str(named / ".fencepost") in ledger["message"]
    assert str(other) in again(repo), "the original says whose anchors these are"


def test_lost_keys_stop_a_run_and_doctor_says_so(repo: Repo) -> None:
    for path in (repo.folder / ".fencepost/keys").iterdir():
        path.write_bytes(b"")
    done = repo.call("run", "plan.toml", "--again")
    assert done.returncode == 8
    assert "error [key_damaged]" in done.stderr
    assert found(repo, "authority")["level"] == "bad"


def test_a_kept_file_that_is_damaged_is_found_and_mended_by_doing_it_again(repo: Repo) -> None:
    kept = next(
        path
        for path in (repo.folder / ".fencepost/artifacts/sha256").rglob("*")
        if path.is_file() and path.read_bytes() == b"hello\n"
    )
    kept.chmod(0o600)
    kept.write_bytes(b"hellO\n")
    damaged = found(repo, "artifacts")
    assert damaged["level"] == "bad" and "are damaged" in damaged["message"]
    again(repo)
    assert kept.read_bytes() == b"hello\n"
    assert found(repo, "artifacts")["level"] == "ok"


def test_what_is_signed_beside_an_attempt_that_may_not_write_stays_when_its_folder_goes(tmp_path: Path) -> None:
    """A program may not submit to the store that it runs in, and no anchor stands below the HOME that it is given."""
    repo = make_repo(tmp_path)
    repo.write("inner.toml", ONE)
    submit = 'fencepost plan submit \\"$FENCEPOST_REPO/inner.toml\\"'
    repo.write("outer.toml", ONE.replace('["true"]', f'["sh", "-c", "{submit}"]'))
    assert repo.call("run", "outer.toml").returncode == 7
    assert "inside_attempt" in repo.call("order", "log", "only").stdout
    home = repo.folder / ".fencepost"
    left = Path((home / "anchored").read_text().strip())
    assert not left.is_relative_to(home / "work")
    assert list(left.glob("*.ndjson")) or left.is_dir()
    assert found(repo, "store")["level"] == "ok"
