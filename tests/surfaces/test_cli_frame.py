"""The frame: nouns and verbs, errors in one form, exit codes, what a later version brings, how fast it starts."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from fencepost._version import __version__
from fencepost.surfaces.cli.frame import LATER, NOUNS, run
from tests.surfaces.cli_run_world import ONE, Repo, make_repo


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    return make_repo(tmp_path)


def test_version_and_help(repo: Repo) -> None:
    assert repo.call("version").stdout == f"fencepost {__version__}\n"
    assert repo.call("--version").stdout == f"fencepost {__version__}\n"
    assert repo.document("version")["version"] == __version__
    shown = repo.call("--help")
    assert shown.returncode == 0
    assert all(f"  {noun} " in shown.stdout for noun in NOUNS)
    assert repo.call().stdout == shown.stdout


@pytest.mark.parametrize("noun", sorted(NOUNS))
def test_every_noun_of_the_help_is_there(repo: Repo, noun: str) -> None:
    done = repo.call(noun, "--help")
    assert done.returncode == 0, done.stderr
    assert f"fencepost {noun}" in done.stdout


def test_version_loads_nothing_and_help_no_command() -> None:
    script = (
        "import sys; sys.argv = ['fencepost', '{0}']; from fencepost.__main__ import main; main();"
        "print(sorted(name for name in sys.modules if name.partition('.')[0] in ('cyclopts', 'apsw', 'msgspec')))"
    )
    for word in ("version", "--help"):
        done = subprocess.run(
            [sys.executable, "-c", script.format(word)], capture_output=True, text=True, check=True, timeout=30
        )
        assert done.stdout.splitlines()[-1] == "[]"


def test_a_command_does_not_search_what_it_loads_for_garbage() -> None:
    script = (
        "import gc, sys; sys.argv = ['fencepost', 'version']; import fencepost.__main__ as entry; entry.main();"
        "print(gc.get_threshold()[0] == entry.GARBAGE_OBJECTS_MAX, gc.isenabled(), gc.get_freeze_count() > 0)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=30)
    assert done.stdout.splitlines()[-1] == "True True True"


LATER_WORDS = [(noun, verb) for noun, verbs in sorted(LATER.items()) for verb in sorted(verbs) or ["list"]]


def test_what_a_later_version_brings_is_refused_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    for noun, verb in LATER_WORDS:
        assert run([noun, verb, "--json"]) == 2
        told = capsys.readouterr()
        assert told.out == ""
        error = json.loads(told.err)["error"]
        assert error["code"] == "unsupported_feature" and noun in error["message"]


def test_every_command_of_the_product_page_is_known_or_refused_by_name() -> None:
    nouns = {
        *("init", "run", "plan", "order", "attempt", "effect", "clock", "assignment", "review", "board", "usage"),
        *("event", "sink", "authority", "repo", "budget", "journal", "worker", "server", "dev", "status", "doctor"),
        *("config", "version", "migrate", "completion"),
    }
    assert nouns == set(NOUNS) | set(LATER)


@pytest.mark.parametrize(
    "words", [["pan"], ["plan", "chekc"], ["plan", "check"], ["run", "--nope"], ["--nope"], ["run", "a", "--jobs", "x"]]
)
def test_usage_errors_exit_2_in_one_form(repo: Repo, words: list[str]) -> None:
    done = repo.call(*words)
    assert (done.returncode, done.stdout) == (2, "")
    first, second = done.stderr.splitlines()
    assert first.startswith("error [usage]: ") and second.startswith("  next: fencepost ")
    document = json.loads(repo.call(*words, "--json").stderr)
    assert set(document["error"]) == {"code", "message", "where", "next"}
    assert not repo.has_home()


def test_a_read_without_a_home_exits_3(repo: Repo) -> None:
    for words in (("plan", "list"), ("plan", "show"), ("plan", "cancel")):
        error = repo.error(*words, code=3)
        assert error["code"] == "no_home" and error["next"].endswith("to begin anew here: fencepost init")
    assert not repo.has_home()


def test_a_scope_that_nobody_opened_is_not_made_by_a_read(repo: Repo) -> None:
    repo.document("init")
    assert repo.error("plan", "list", "--scope", "other", code=3)["code"] == "scope_not_open"
    repo.document("init", "--scope", "other")
    assert repo.document("plan", "list", "--scope", "other")["items"] == []


def test_global_options_may_stand_before_the_noun_and_between(repo: Repo) -> None:
    repo.document("init")
    home = str(repo.folder / ".fencepost")
    expected = {"items": [], "next": None}
    for words in (
        ["--json", "plan", "list"],
        ["plan", "--json", "list"],
        ["--home", home, "--scope=default", "--json", "plan", "list"],
        ["plan", "list", "--home", home, "--json"],
    ):
        done = repo.call(*words)
        assert (done.returncode, json.loads(done.stdout)) == (0, expected), done.stderr


def test_a_store_of_another_kind_is_refused(repo: Repo) -> None:
    repo.document("init")
    own = repo.folder / ".fencepost" / "store.db"
    for url in ("postgresql://host/db", f"sqlite:{own}.other"):
        error = repo.error("--store", url, "plan", "list", code=2)
        assert error["code"] == "unsupported_feature"
    assert repo.document("plan", "list", "--store", f"sqlite:{own}")["items"] == []


def test_init_is_idempotent_and_says_what_it_made(repo: Repo) -> None:
    first = repo.document("init")
    assert (first["fresh"], first["home"]) == (True, str(repo.folder / ".fencepost"))
    again = repo.document("init")
    assert {**again, "fresh": True} == first
    home = repo.folder / ".fencepost"
    assert (home / "layout").read_text() == "1\n"
    assert (home / ".gitignore").read_text() == "*\n"
    assert (home / "keys").stat().st_mode & 0o777 == 0o700
    for name in ("store.db", "artifacts", "packs", "work", "locks", "wake"):
        assert (home / name).exists()


def test_an_unexpected_failure_is_short_and_its_place_is_shown_on_request(repo: Repo) -> None:
    repo.document("init")
    store = repo.folder / ".fencepost" / "store.db"
    store.write_bytes(b"this is no database" * 100)
    done = repo.call("plan", "list")
    assert done.returncode in (1, 8)
    assert done.stderr.startswith("error [") and "Traceback" not in done.stderr
    repo.variables = {"FENCEPOST_DEBUG": "1"}
    assert "Traceback" in repo.call("plan", "list").stderr


def test_doctor_is_well_in_a_fresh_home_and_without_one(repo: Repo) -> None:
    outside = repo.document("doctor")
    assert outside["ok"] is True
    assert {"check": "home", "level": "warn"}.items() <= next(
        item for item in outside["items"] if item["check"] == "home"
    ).items()
    repo.document("init")
    found = {item["check"]: item["level"] for item in repo.document("doctor")["items"]}
    assert {
        *("python", "platform", "git", "locale", "umask", "temporary", "boot", "program", "config", "limits"),
        *(
            "repository",
            "filesystem",
            "owner",
            "home",
            "door",
            "locks",
            "keys",
            "disk",
            "store",
            "ledger",
            "clock",
            "workers",
        ),
        *("processes", "workspaces", "wake-ups", "executor", "authority", "artifacts"),
    } == set(found)
    assert "bad" not in found.values()


def test_doctor_finds_loose_keys_missing_folders_and_a_broken_store(repo: Repo) -> None:
    repo.document("init")
    home = repo.folder / ".fencepost"
    (home / "keys").chmod(0o755)
    levels = {item["check"]: item["level"] for item in repo.document("doctor", code=1)["items"]}
    assert levels["keys"] == "bad"
    (home / "keys").chmod(0o700)
    (home / "wake").rmdir()
    levels = {item["check"]: item["level"] for item in repo.document("doctor", code=1)["items"]}
    assert levels["home"] == "bad"
    repo.document("init")
    (home / "store.db").write_bytes(b"this is no database" * 100)
    levels = {item["check"]: item["level"] for item in repo.document("doctor", code=1)["items"]}
    assert levels["store"] == "bad"


def test_a_record_that_is_not_there_is_not_replayed_to(repo: Repo) -> None:
    repo.document("init")
    error = repo.error("journal", "replay", "--to", "99999", code=2)
    assert error["message"].startswith("there is no record 99999: the last one is ")


def test_config_validate_says_that_nothing_is_set(repo: Repo) -> None:
    assert repo.call("config", "validate").stdout == (
        "ok: no file, variable or option sets anything; the first values hold\n"
    )
    repo.write("fencepost.toml", 'scope = "team"\n')
    assert "fencepost.toml" in repo.call("config", "validate").stdout


@pytest.mark.parametrize("harm", ["folder", "files"])
def test_lost_keys_are_named_by_doctor_and_refused_by_init(repo: Repo, harm: str) -> None:
    repo.document("init")
    keys = repo.folder / ".fencepost" / "keys"
    for path in keys.iterdir():
        path.unlink()
    if harm == "folder":
        keys.rmdir()
    found = [item for item in repo.document("doctor", code=1)["items"] if item["level"] == "bad"]
    assert {item["code"] for item in found} == {"keys_missing"}
    assert all("init" not in item["next"] for item in found)
    error = repo.error("init", code=8)
    assert error["code"] == "key_damaged"
    assert "backup" in error["next"]
    assert keys.exists() == (harm == "files")


def test_a_lost_store_is_never_replaced_by_an_empty_one_in_silence(repo: Repo) -> None:
    repo.document("init")
    store = repo.folder / ".fencepost" / "store.db"
    for path in store.parent.glob("store.db*"):
        path.unlink()
    error = repo.error("init", code=1)
    assert error["code"] == "storage_unavailable"
    assert "store.db is missing" in error["message"]
    assert not store.exists()
    (repo.folder / ".fencepost").rename(repo.folder / ".fencepost.old")
    assert repo.document("init")["fresh"]


def test_doctor_finds_processes_that_an_ended_attempt_left(repo: Repo) -> None:
    repo.write("plan.toml", ONE)
    attempt = repo.document("run", "plan.toml")["orders"][0]["attempt"]
    left = subprocess.Popen(["sleep", "30"], env={**repo.environment(), "FENCEPOST_ATTEMPT": attempt})
    try:
        items = {item["check"]: item for item in repo.document("doctor", code=1)["items"]}
        assert items["processes"]["level"] == "bad"
        assert items["processes"]["next"] == f"kill {left.pid}"
    finally:
        left.kill()
        left.wait()


def test_config_view_names_the_source_of_each_value(repo: Repo) -> None:
    repo.write("fencepost.toml", 'scope = "team"\n')
    repo.variables = {"FENCEPOST_JOBS": "3"}
    items = {item["key"]: item for item in repo.document("config", "view")["items"]}
    assert (items["scope"]["value"], items["scope"]["source"]) == ("team", str(repo.folder / "fencepost.toml"))
    assert (items["jobs"]["value"], items["jobs"]["source"]) == (3, "environment")
    assert items["home"]["source"] == "first value"
    flagged = repo.document("config", "view", "--scope", "mine")["items"]
    assert {item["key"]: item["source"] for item in flagged}["scope"] == "flag"


@pytest.mark.parametrize(
    ("text", "code"), [("scoop = 1\n", "unknown_key"), ("jobs = true\n", "wrong_type"), ("jobs = \n", "syntax")]
)
def test_config_validate_refuses_what_cannot_be_used(repo: Repo, text: str, code: str) -> None:
    repo.write("fencepost.toml", text)
    error = repo.error("config", "validate", code=2)
    assert error["code"] == code and "fencepost.toml" in error["message"]


def test_c26_a_scope_has_a_name_and_a_new_one_is_told(repo: Repo) -> None:
    """A scope that was only mistyped would run everything again."""
    repo.write("p.toml", ONE)
    for name in ("Bad Scope", "../x", "ä", "a/b"):
        refused = repo.call("run", "p.toml", "--scope", name)
        assert (refused.returncode, "bad_name" in refused.stderr) == (2, True), (name, refused.stderr)
    assert not (repo.folder / ".fencepost").exists()
    assert "made scope other" in repo.call("run", "p.toml", "--scope", "other").stderr, "the first one of a store"
    assert "made scope" not in repo.call("run", "p.toml", "--scope", "other").stderr
    before = repo.document("journal", "verify", "--scope", "other")["sequence"]
    for words in (("run", "p.toml"), ("plan", "submit", "p.toml"), ("worker", "start"), ("order", "list")):
        error = repo.error(*words, "--scope", "othr", code=3)
        assert error["code"] == "scope_not_open" and error["message"].endswith("; did you mean other?"), words
        assert error["next"] == "fencepost --scope othr init"
    assert repo.document("journal", "verify", "--scope", "other")["sequence"] == before
    assert "made scope third" in repo.call("init", "--scope", "third").stderr
    assert repo.document("run", "p.toml", "--scope", "third")["outcome"] == "done"


def test_a_home_that_is_made_beside_another_is_told_with_it(repo: Repo) -> None:
    """One that was only mistyped would run everything again."""
    repo.write("p.toml", ONE)
    assert repo.call("run", "p.toml").stderr == "made .fencepost\n"
    told = repo.call("run", "p.toml", "--home", "tpyo").stderr
    assert told == "made tpyo; it knows nothing of the plans in .fencepost\n"


def test_where_there_is_no_home_those_below_are_named(repo: Repo) -> None:
    repo.write("sub dir/deep/p.toml", ONE)
    here = repo.folder / "sub dir" / "deep"
    repo.document("init", "--home", str(here / ".fencepost"))
    error = repo.error("order", "list", code=3)
    assert error["code"] == "no_home" and error["message"].endswith("; one lies below: sub dir/deep/.fencepost")
    assert error["next"] == "cd 'sub dir/deep', or add --home 'sub dir/deep/.fencepost'"
    assert repo.document("plan", "list", "--home", "sub dir/deep/.fencepost")["items"] == []
    repo.document("init", "--home", str(repo.folder / "near" / ".fencepost"))
    error = repo.error("order", "list", code=3)
    assert "some lie below: near/.fencepost, sub dir/deep/.fencepost" in error["message"]
    assert error["next"].startswith("cd near, ")


@pytest.mark.parametrize(("layout", "next_step"), [("9\n", "use the fencepost that made it"), (None, "fencepost init")])
def test_doctor_sends_only_an_unfinished_home_to_init(repo: Repo, layout: str | None, next_step: str) -> None:
    assert repo.call("init").returncode == 0
    place = repo.folder / ".fencepost" / "layout"
    if layout is None:
        place.unlink()
    else:
        place.write_text(layout)
    shown = repo.call("doctor", "--home", str(place.parent))
    assert shown.returncode == 1
    assert next_step in " ".join(shown.stdout.split()), shown.stdout
