"""Whatever stands in a home in the place of a file, no command waits for it, and each says what to do."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.surfaces.cli_run_world import ONE, Repo, make_repo

MOST_WORDS = ("run plan.toml", "plan list", "order list", "journal verify", "budget set --plan plan --calls 3", "init")


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    made = make_repo(tmp_path)
    made.write("plan.toml", ONE)
    assert made.call("run", "plan.toml").returncode == 0
    return made


def a_pipe(path: Path) -> None:
    os.mkfifo(path)


def a_folder(path: Path) -> None:
    path.mkdir()


def a_device(path: Path) -> None:
    path.symlink_to("/dev/zero")


@pytest.mark.parametrize("kind", [a_pipe, a_folder, a_device])
@pytest.mark.parametrize("name", ["store.db", "keys/human.id", "store.db-wal", "anchored"])
def test_another_thing_in_the_place_of_a_file_is_refused_at_once(repo: Repo, name: str, kind: object) -> None:
    home = repo.folder / ".fencepost"
    path = home / name if not name.startswith("keys/") else sorted((home / "keys").glob("*.id"))[0]
    path.unlink(missing_ok=True)
    assert callable(kind)
    kind(path)
    for words in MOST_WORDS if (name, kind) == ("store.db", a_pipe) else ("run plan.toml", "init"):
        error = repo.error(*words.split(), code=1)
        assert (error["code"], str(path) in error["message"]) == ("storage_unavailable", True), (words, error)
        assert kind.__name__.removeprefix("a_") in error["message"] and "move it away" in error["next"]
    items = repo.document("doctor", code=1)["items"]
    assert [(item["code"], item["where"]) for item in items if item["level"] == "bad"] == [
        ("home_file_strange", str(path))
    ]


def test_a_link_to_a_file_is_as_good_as_one(repo: Repo) -> None:
    layout = repo.folder / ".fencepost" / "layout"
    layout.rename(repo.folder / "layout")
    layout.symlink_to(repo.folder / "layout")
    assert repo.call("plan", "list").returncode == 0


@pytest.mark.parametrize("words", ["run plan.toml", "init", "plan submit plan.toml", "order list", "worker start"])
def test_a_home_whose_path_is_no_text_is_refused_before_anything_is_made(tmp_path: Path, words: str) -> None:
    repo = make_repo(tmp_path)
    repo.write("plan.toml", ONE)
    before = sorted(os.listdir(os.fsencode(repo.folder)))
    repo.variables["FENCEPOST_HOME"] = os.fsdecode(os.fsencode(repo.folder) + b"/\xff")
    error = repo.error(*words.split(), code=2)
    assert (error["code"], "\\xff" in error["message"], "--home DIR" in error["next"]) == ("bad_path_name", True, True)
    assert sorted(os.listdir(os.fsencode(repo.folder))) == before
    del repo.variables["FENCEPOST_HOME"]
    assert repo.call("run", "plan.toml").returncode == 0
