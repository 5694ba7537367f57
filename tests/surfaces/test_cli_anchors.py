"""What vouches for a store, as `run` and `doctor` tell it: keys, anchors, copies of a home, kept files."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fencepost.app import App
from fencepost.core.limits import FIRST_VALUES
from fencepost.surfaces.cli.anchors import anchor_finding
from fencepost.surfaces.cli.command_pages import PAGES
from tests.surfaces.cli_run_world import ONE, WAIT_S, Repo, ended, interrupt, make_repo

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
    told = next(line for line in again(repo).splitlines() if line.startswith("anchors:"))
    assert "none of this store is left" in told
    assert told.count(": ") == 2 and "next: fencepost journal verify --anchor SEQ:DIGEST" in told


WRITING = {
    "run": ["run", "plan.toml"],
    "again": ["run", "plan.toml", "--again"],
    "no work": ["run", "plan.toml", "--no-work", "--timeout", "1s"],
    "worker": ["worker", "start", "--until-idle"],
    "submit": ["plan", "submit", "plan.toml", "--again"],
    "cancel": ["plan", "cancel", "plan"],
    "order cancel": ["order", "cancel", "a"],
    "retry": ["order", "retry", "a"],
    "answer": ["order", "answer", "a", "yes"],
    "budget": ["budget", "set", "plan", "--attempts", "20"],
}
ANOTHER_SCOPE = ["init", "--scope", "other"]
READING = (["order", "list"], ["plan", "show"], ["journal", "replay"], ["journal", "tail"], ["order", "files", "a"])


def restored(repo: Repo) -> Path:
    """Put the home back as it was before its last run; returns the newest copy."""
    home = repo.folder / ".fencepost"
    shutil.copytree(home, repo.user / "backup")
    assert repo.call("run", "plan.toml", "--again").returncode == 0
    shutil.move(home, repo.user / "newest")
    shutil.move(repo.user / "backup", home)
    return repo.user / "newest"


def exits_told(words: list[str]) -> tuple[int, ...]:
    """The exit codes that the help of a command names."""
    return (PAGES.get(" ".join(words[:2])) or PAGES[words[0]]).exits


def refused(repo: Repo, words: list[str]) -> tuple[int, Any]:
    done = repo.call(*words, "--json")
    return done.returncode, json.loads(done.stderr.splitlines()[-1])["error"]


def test_lifecycle_17_a_store_that_is_older_than_what_was_signed_takes_no_command(repo: Repo) -> None:
    newest = restored(repo)
    home = repo.folder / ".fencepost"
    before = (home / "store.db").read_bytes()
    for name, words in WRITING.items():
        code, error = refused(repo, words)
        assert (code, error["code"]) == (8, "journal_not_as_signed"), name
        assert code in exits_told(words), name
        assert "restored from one" in error["message"] and "nothing is started" in error["message"]
        assert "put its newest copy back" in error["next"]
    for words in READING:
        assert repo.call(*words).returncode == 0, words
    assert repo.call("journal", "verify").returncode == 8
    store = found(repo, "store")
    assert store["level"] == "bad" and "was signed" in store["message"]
    assert (home / "store.db").read_bytes() == before
    shutil.rmtree(home)
    shutil.move(newest, home)
    assert repo.call("run", "plan.toml", "--again").returncode == 0, "nothing has spoiled its newest copy"
    assert found(repo, "store")["level"] == "ok"


def test_lifecycle_17_behind_a_loss_a_new_scope_and_a_new_home_go_on(repo: Repo) -> None:
    restored(repo)
    assert repo.call(*ANOTHER_SCOPE).returncode == 0
    assert repo.call("run", "plan.toml", "--scope", "other").returncode == 0
    _, error = refused(repo, WRITING["run"])
    _, _, command = error["next"].rpartition(": ")
    subprocess.run(command, shell=True, check=True, cwd=repo.folder)
    assert repo.call("run", "plan.toml").returncode == 0


def test_lifecycle_17_a_copy_of_a_home_that_stands_takes_no_command(repo: Repo) -> None:
    """Both would run the same orders, and what the copy signed would make the original look wrong."""
    other = repo.folder.with_name("other")
    shutil.copytree(repo.folder, other)
    copy = Repo(folder=other, user=repo.user)
    for name, words in {**WRITING, "scope": ANOTHER_SCOPE}.items():
        code, error = refused(copy, words)
        assert (code, error["code"]) == (5, "home_is_copy"), name
        assert code in exits_told(words), name
        assert str(repo.folder / ".fencepost") in error["message"] and str(repo.folder) in error["next"]
    for words in READING:
        assert copy.call(*words).returncode == 0, words
    ledger = found(copy, "ledger")
    assert ledger["level"] == "warn" and str(repo.folder / ".fencepost") in ledger["message"]
    assert repo.call("run", "plan.toml", "--again").returncode == 0
    assert found(repo, "ledger")["level"] == "ok"


def test_a_worker_of_a_scope_that_is_not_open_says_so_with_an_exit_code_of_its_help(repo: Repo) -> None:
    words = [*WRITING["worker"], "--scope", "other"]
    code, error = refused(repo, words)
    assert (code, error["code"]) == (3, "scope_not_open")
    assert code in exits_told(words)


def test_a_home_that_was_moved_or_whose_original_was_given_up_goes_on(repo: Repo) -> None:
    other = repo.folder.with_name("other")
    shutil.copytree(repo.folder, other)
    (repo.folder / ".fencepost").rename(repo.user / "given up")
    copy = Repo(folder=other, user=repo.user)
    assert copy.call("run", "plan.toml", "--again").returncode == 0
    moved = other.with_name("moved")
    other.rename(moved)
    assert Repo(folder=moved, user=repo.user).call("run", "plan.toml", "--again").returncode == 0
    (repo.user / "given up").rename(repo.folder / ".fencepost")
    code, error = refused(repo, WRITING["again"])
    assert (code, error["code"]) == (8, "journal_not_as_signed"), "the one that was given up is older by now"
    assert str(moved) in error["message"] and "has gone on" in error["next"]


def test_a_home_behind_a_link_is_one_home(repo: Repo) -> None:
    link = repo.folder.with_name("link")
    link.symlink_to(repo.folder)
    linked = Repo(folder=link, user=repo.user)
    assert linked.call("run", "plan.toml", "--again", "--home", str(link / ".fencepost")).returncode == 0
    assert found(repo, "ledger")["level"] == found(linked, "ledger")["level"] == "ok"
    assert "anchors:" not in again(repo)


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
    left = Path((home / "anchored").read_text().splitlines()[0])
    assert not left.is_relative_to(home / "work")
    assert list(left.glob("*.ndjson")) or left.is_dir()
    assert found(repo, "store")["level"] == "ok"


def alarms(repo: Repo, *scope: str) -> list[bool]:
    """Whether doctor and verify warn of lost anchors."""
    items = json.loads(repo.call("doctor", "--json", *scope).stdout)["items"]
    store = next(item for item in items if item["check"] == "store")
    verified = json.loads(repo.call("journal", "verify", "--json", *scope).stdout)
    return [store["level"] != "ok", verified["warning"] is not None]


def test_a_scope_that_was_never_signed_is_no_alarm(repo: Repo) -> None:
    """An alarm that people learn to ignore is worse than none."""
    for scope in ("two", "three"):
        assert repo.call("init", "--scope", scope).returncode == 0
    for _ in range(2):
        done = repo.call("run", "plan.toml", "--again", "--scope", "two")
        assert done.returncode == 0 and "anchors:" not in done.stdout
    shutil.rmtree(repo.user / ".local")
    assert repo.call("init", "--scope", "four").returncode == 0
    done = repo.call("run", "plan.toml", "--scope", "four")
    assert done.returncode == 0 and "anchors:" not in done.stdout
    told = repo.call("run", "plan.toml", "--again", "--scope", "two").stdout
    assert "none of this store is left" in told, "this one was signed"
    assert (repo.folder / ".fencepost/anchored").read_text().splitlines()[1:] == ["default", "two", "three", "four"]


def test_a_store_at_work_for_the_first_time_is_no_alarm(tmp_path: Path) -> None:
    repo = make_repo(tmp_path)
    repo.write(
        "plan.toml", PLAN.replace("echo hello > out.txt", "touch $FENCEPOST_REPO/began; sleep 60; touch out.txt")
    )
    running = repo.start("run", "plan.toml")
    until = time.monotonic() + WAIT_S
    while not (repo.folder / "began").exists():
        assert time.monotonic() < until
        time.sleep(0.02)
    assert alarms(repo) == [False, False]
    assert "not signed yet" in repo.call("journal", "verify").stdout
    interrupt(running, signal.SIGINT)
    ended(running)
    assert "1 signed anchor" in repo.call("journal", "verify").stdout


@pytest.mark.parametrize("word", ["whole", "older", "removed"])
def test_lost_anchors_are_an_alarm_whatever_is_left_of_the_homes_word(repo: Repo, word: str) -> None:
    mark = repo.folder / ".fencepost/anchored"
    checkpoints = next((repo.user / ".local").rglob("checkpoints.ndjson"))
    checkpoints.unlink()
    if word == "older":
        mark.write_text(mark.read_text().splitlines()[0] + "\n")
    elif word == "removed":
        mark.unlink()
    assert alarms(repo) == [True, True]
    assert "anchors: none of this store is left" in again(repo)
    assert alarms(repo) == [False, False]
    assert mark.read_text().splitlines()[1:] == ["default"]


def test_a_long_journal_without_an_anchor_is_an_alarm_whatever_is_written_down(
    repo: Repo,
) -> None:
    shutil.rmtree(repo.user / ".local")
    (repo.folder / ".fencepost/anchored").unlink()
    assert alarms(repo) == [False, False]
    limits = msgspec.structs.replace(FIRST_VALUES, checkpoint_interval_records=10)
    app = App(repo.folder / ".fencepost", scope="default", environment={"HOME": str(repo.user)}, limits=limits)
    try:
        found = anchor_finding(app)
    finally:
        app.close()
    assert found is not None and "nothing vouches" in found.message
