"""The configuration cascade: which source wins, where each value comes from, what is refused, what never leaks."""

from __future__ import annotations

import os
from inspect import signature
from pathlib import Path
from typing import Any

import pytest

from fencepost.adapters.executors.environment import attempt_environment
from fencepost.config import SETTINGS, ConfigError, load, unknown_variables
from fencepost.config.files import line_of
from fencepost.config.settings import OTHER_VARIABLES
from fencepost.core.instant import parse_duration
from tests.surfaces.cli_run_world import ONE, Repo, make_repo

HOUR_US = 3_600_000_000


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    return make_repo(tmp_path)


def viewed(repo: Repo, *words: str) -> dict[str, Any]:
    return {item["key"]: item for item in repo.document("config", "view", *words)["items"]}


def loaded(folder: Path, flags: dict[str, Any] | None = None, **variables: str) -> Any:
    return load(flags or {}, variables, folder, 2)


def problems(folder: Path, text: str, name: str = "fencepost.toml") -> list[dict[str, Any]]:
    (folder / name).write_text(text)
    with pytest.raises(ConfigError) as caught:
        loaded(folder)
    return [problem.document() for problem in caught.value.problems]


def test_each_source_overrides_the_next_and_says_its_place(repo: Repo) -> None:
    profile = repo.user / ".config" / "fencepost" / "config.toml"
    profile.parent.mkdir(parents=True)
    profile.write_text("# mine\njobs = 1\n")
    item = viewed(repo)["jobs"]
    assert (item["value"], item["kind"], item["place"]) == (1, "user", f"{profile}:2")
    repo.write("pyproject.toml", "[project]\nname = 'x'\n\n[tool.fencepost]\njobs = 2\n")
    item = viewed(repo)["jobs"]
    assert (item["value"], item["kind"], item["place"]) == (2, "project", f"{repo.folder}/pyproject.toml:5")
    repo.write("fencepost.toml", "jobs = 3\n")
    item = viewed(repo)["jobs"]
    assert (item["value"], item["kind"], item["place"]) == (3, "project", f"{repo.folder}/fencepost.toml:1")
    repo.variables = {"FENCEPOST_JOBS": "4"}
    item = viewed(repo)["jobs"]
    assert (item["value"], item["kind"], item["place"]) == (4, "environment", "FENCEPOST_JOBS")
    item = viewed(repo, "--jobs", "5")["jobs"]
    assert (item["value"], item["kind"], item["place"]) == (5, "flag", "--jobs")
    assert [other["value"] for other in item["overrides"]] == [4, 3, 2, 1]
    shown = repo.call("config", "view", "--jobs", "5").stdout
    assert "not used: FENCEPOST_JOBS" in shown and f"not used: {repo.folder}/fencepost.toml:1" in shown


def test_a_view_that_is_too_wide_puts_each_source_below_its_value(repo: Repo) -> None:
    path = repo.write("fencepost.toml", "jobs = 3\n")
    repo.variables = {"COLUMNS": "40"}
    assert f"jobs         3\n               {path}:1\n" in repo.call("config", "view").stdout
    repo.variables = {"COLUMNS": "160"}
    assert f"jobs         3        {path}:1\n" in repo.call("config", "view").stdout


def test_every_setting_is_used_by_what_it_names(repo: Repo) -> None:
    """Nothing is accepted and ignored: each key, set in a file, is seen where the program uses it."""
    used = {"home": "here/.fencepost", "scope": "team", "jobs": 3, "timeout": "1ms", "keep_failed": "3h"}
    assert {setting.key for setting in SETTINGS} == used.keys() | {"store"}
    repo.write("fencepost.toml", "".join(f"{key} = {value!r}\n" for key, value in used.items()))
    repo.write("plan.toml", ONE)
    assert repo.document("run", "plan.toml", "--no-work", code=6)["outcome"] == "timeout"
    assert (repo.folder / "here" / ".fencepost" / "layout").is_file() and not repo.has_home()
    worker = repo.call("worker", "start", "--until-idle")
    assert "serves scope team with 3 jobs" in worker.stderr
    assert repo.document("order", "list")["items"][0]["state"] == "applied"
    config = loaded(repo.folder)
    assert (config.timeout_us, config.keep_failed_us) == (1_000, 3 * HOUR_US)


def test_keep_failed_decides_how_long_a_failed_workspace_stays(repo: Repo) -> None:
    repo.write("plan.toml", ONE.replace("true", "false"))
    failed = repo.document("run", "plan.toml", code=7)["orders"][0]["attempt"]
    work = repo.folder / ".fencepost" / "work"
    assert failed in os.listdir(work)
    repo.document("worker", "start", "--until-idle")
    assert failed in os.listdir(work)
    repo.variables = {"FENCEPOST_KEEP_FAILED": "1ms"}
    repo.document("worker", "start", "--until-idle")
    assert failed not in os.listdir(work)


def test_paths_of_a_file_are_taken_from_its_folder(tmp_path: Path) -> None:
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    (tmp_path / "fencepost.toml").write_text('home = "state/.fencepost"\nstore = "sqlite:state/.fencepost/store.db"\n')
    config = loaded(inner)
    assert config.home == str(tmp_path / "state" / ".fencepost")
    assert config.store == f"sqlite:{tmp_path}/state/.fencepost/store.db"
    (tmp_path / "fencepost.toml").write_text('home = "~/fp"\n')
    assert loaded(inner, HOME="/users/one").home == "/users/one/fp"
    with pytest.raises(ConfigError, match="HOME is not set"):
        loaded(inner)


def test_no_file_above_the_repository_or_the_home_steers_it(tmp_path: Path) -> None:
    (tmp_path / "fencepost.toml").write_text('scope = "stranger"\n')
    plain = tmp_path / "plain" / "inner"
    plain.mkdir(parents=True)
    assert loaded(plain).scope == "default"
    (tmp_path / "plain" / ".fencepost").mkdir()
    (tmp_path / "plain" / ".fencepost" / "layout").write_text("1\n")
    assert loaded(plain).scope == "default"
    (tmp_path / "plain" / "fencepost.toml").write_text('scope = "own"\n')
    assert loaded(plain).scope == "own"
    repo = make_repo(tmp_path)
    assert loaded(repo.folder).scope == "default"


def test_a_plan_in_another_project_runs_as_that_project_says(repo: Repo, tmp_path: Path) -> None:
    other = make_repo(tmp_path, "other")
    other.write("fencepost.toml", 'scope = "team"\n')
    other.write("plan.toml", ONE)
    repo.write("fencepost.toml", 'scope = "mine"\n')
    repo.document("run", str(other.folder / "plan.toml"))
    assert other.document("plan", "list")["items"][0]["name"] == "plan"


def test_the_copy_of_a_projects_file_in_a_workspace_names_no_store(repo: Repo) -> None:
    """Inside an attempt the working directory holds a copy of the project's file: it must not lead elsewhere."""
    repo.write("fencepost.toml", 'home = "state"\nscope = "team"\n')
    script = "fencepost config view --json > seen.json; fencepost order list --json > orders.json"
    repo.write(
        "plan.toml",
        '[budget]\nattempts = 3\n[[work]]\nname = "only"\noutputs = ["*.json"]\n'
        f'run = ["sh", "-c", {script!r}]\nenvironment = ["PATH"]\n',
    )
    repo.variables = {"FENCEPOST_JOBS": "2"}
    repo.document("run", "plan.toml")
    target = repo.folder / "taken"
    repo.document("order", "files", "only", "--to", str(target))
    seen = (target / "seen.json").read_text()
    assert f'"{repo.folder}/state"' in seen and "/work/" not in seen
    assert '"kind": "environment"' not in seen
    assert '"name": "only"' in (target / "orders.json").read_text()


def test_no_variable_of_an_attempt_is_a_setting() -> None:
    told = {
        name: "x" for name, one in signature(attempt_environment).parameters.items() if one.kind == one.KEYWORD_ONLY
    }
    base = {setting.variable: "x" for setting in SETTINGS}
    environment = attempt_environment(["FENCEPOST_*", "PATH"], base, **{**told, "fence": 1})
    ours = {name for name in environment if name.startswith("FENCEPOST_")}
    assert ours <= OTHER_VARIABLES
    assert not ours & {setting.variable for setting in SETTINGS}


@pytest.mark.parametrize(
    ("text", "code", "told", "following"),
    [
        ("scoop = 'x'", "unknown_key", "scoop", "did you mean scope?"),
        ("zzz = 1", "unknown_key", "zzz", "use one of home, jobs"),
        ("jobs = '4'", "wrong_type", "no whole number", "write jobs = 4"),
        ("jobs = true", "wrong_type", "True", "write jobs = 4"),
        ("jobs = 0", "out_of_range", "between 1 and 1000", "from 1 to 1000"),
        ("jobs = 1001", "out_of_range", "between 1 and 1000", "from 1 to 1000"),
        ("scope = 'No Name'", "bad_name", "No Name", "[a-z][a-z0-9-]{0,62}"),
        ("scope = 3", "wrong_type", "no text", 'write scope = "team"'),
        ("timeout = '2 hours'", "bad_duration", "2 hours", "d, h, m, s, ms"),
        ("keep_failed = '0s'", "bad_duration", "0s", "between 1ms and 365d"),
        ("home = ''", "out_of_range", "empty", "write home = "),
        ("store = 'mysql:x'", "unsupported_feature", "mysql:x", "sqlite:PATH"),
        ("jobs = ", "syntax", "line 1", "correct the line"),
    ],
)
def test_a_key_that_cannot_be_used_says_its_place_and_what_to_write(
    tmp_path: Path, text: str, code: str, told: str, following: str
) -> None:
    (document,) = problems(tmp_path, f"\n{text}\n".lstrip("\n") if code == "syntax" else f"\n{text}\n")
    assert (document["code"], document["where"]["file"]) == (code, str(tmp_path / "fencepost.toml"))
    assert told in document["message"] and following in document["next"]
    assert document["where"]["line"] == (1 if code == "syntax" else 2)


def test_all_problems_of_a_file_are_told_at_once(repo: Repo) -> None:
    path = repo.write("fencepost.toml", "jobs = 0\nscope = 'A'\nscoop = 1\n")
    error = repo.error("config", "validate", code=2)
    assert [problem["code"] for problem in error["errors"]] == ["out_of_range", "bad_name", "unknown_key"]
    assert [problem["where"]["line"] for problem in error["errors"]] == [1, 2, 3]
    assert f"where: {path} line 3 at /scoop" in repo.call("plan", "list").stderr


@pytest.mark.parametrize(("name", "text"), [("tool", "tool = 1\n"), ("table", "[tool]\nfencepost = 3\n")])
def test_a_pyproject_whose_tables_are_none_is_refused(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / "pyproject.toml").write_text(f"# fencepost {name}\n{text}")
    with pytest.raises(ConfigError, match="no table"):
        loaded(tmp_path)


def test_files_that_cannot_be_read_are_told_and_never_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fencepost.toml")
    with pytest.raises(ConfigError, match="no regular file"):
        loaded(tmp_path)
    (tmp_path / "fencepost.toml").unlink()
    (tmp_path / "fencepost.toml").symlink_to("fencepost.toml")
    with pytest.raises(ConfigError, match="cannot be read"):
        loaded(tmp_path)
    (tmp_path / "fencepost.toml").unlink()
    (tmp_path / "fencepost.toml").write_bytes(b"scope = '\xff'\n")
    with pytest.raises(ConfigError) as caught:
        loaded(tmp_path)
    assert caught.value.code == "syntax"


def test_a_pyproject_of_others_is_nobodys_business(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("this is = = no toml\n")
    assert loaded(tmp_path).scope == "default"


@pytest.mark.parametrize(
    ("variables", "code"),
    [
        ({"FENCEPOST_JOBS": "many"}, "wrong_type"),
        ({"FENCEPOST_JOBS": "²"}, "wrong_type"),
        ({"FENCEPOST_JOBS": "9" * 5_000}, "wrong_type"),
        ({"FENCEPOST_JOBS": "-1"}, "out_of_range"),
        ({"FENCEPOST_SCOPE": "A B"}, "bad_name"),
        ({"FENCEPOST_TIMEOUT": "soon"}, "bad_duration"),
        ({"FENCEPOST_STORE": "x"}, "unsupported_feature"),
    ],
)
def test_a_variable_that_cannot_be_used_is_named(tmp_path: Path, variables: dict[str, str], code: str) -> None:
    (name,) = variables
    with pytest.raises(ConfigError) as caught:
        loaded(tmp_path, **variables)
    document = caught.value.problems[0].document()
    assert (document["code"], document["where"]["file"]) == (code, name)
    assert f"unset {name}" in document["next"]


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("--jobs", "0"), "out_of_range"),
        (("--jobs", "2000"), "out_of_range"),
        (("--timeout", "x"), "bad_duration"),
        (("--scope", ""), "out_of_range"),
    ],
)
def test_an_option_that_cannot_be_used_is_usage(repo: Repo, words: tuple[str, ...], code: str) -> None:
    repo.write("plan.toml", ONE)
    error = repo.error("run", "plan.toml", *words, code=2)
    assert (error["code"], error["where"]["file"]) == (code, words[0])
    assert not repo.has_home()


def test_without_home_and_with_relative_profile_there_is_no_user_file(tmp_path: Path) -> None:
    (tmp_path / "fencepost").mkdir()
    (tmp_path / "fencepost" / "config.toml").write_text("jobs = 9\n")
    assert loaded(tmp_path).jobs == 2
    assert loaded(tmp_path, XDG_CONFIG_HOME=".").jobs == 2
    assert loaded(tmp_path, XDG_CONFIG_HOME=str(tmp_path)).jobs == 9


def test_lines_are_those_of_the_key_and_of_no_look_alike() -> None:
    text = 'a = """\njobs = 1\n"""\n"jobs" = 2\n[tool]\njobs = 3\n'
    assert line_of(text, "jobs", "") == 4
    assert line_of("[tool.fencepost]\n# jobs = 1\njobs = 2\n[x]\njobs = 4\n", "jobs", "tool.fencepost") == 3
    assert line_of("tool.fencepost.jobs = 2\n", "jobs", "tool.fencepost") == 1
    assert line_of("tool = {fencepost = {jobs = 2}}\n", "jobs", "tool.fencepost") is None


def test_a_variable_that_is_no_setting_is_told(repo: Repo) -> None:
    repo.variables = {"FENCEPOST_SCOOP": "x", "FENCEPOST_DEBUG": "0", "FENCEPOST_REPO": "/r"}
    assert repo.document("config", "view")["ignored"] == [{"variable": "FENCEPOST_SCOOP", "like": "FENCEPOST_SCOPE"}]
    assert "did you mean FENCEPOST_SCOPE?" in repo.call("config", "view").stdout
    assert unknown_variables({"FENCEPOST_ZZZZZZ": ""}) == {"FENCEPOST_ZZZZZZ": ""}


def test_config_validate_reads_one_file(repo: Repo) -> None:
    path = repo.write("else/pyproject.toml", "[tool.fencepost]\njobs = 3\nscope = 'x'\n")
    assert repo.document("config", "validate", str(path))["keys"] == ["jobs", "scope"]
    path.write_text("[tool.fencepost]\njob = 3\n")
    error = repo.error("config", "validate", str(path), code=2)
    assert (error["code"], error["where"]["line"]) == ("unknown_key", 2)
    assert repo.error("config", "validate", "none.toml", code=3)["code"] == "not_found"


def test_every_example_of_a_setting_is_one() -> None:
    import tomllib

    for setting in SETTINGS:
        value = tomllib.loads(f"{setting.key} = {setting.example}")[setting.key]
        assert value and (setting.kind != "duration" or parse_duration(value))


def test_what_to_write_instead_is_written_where_it_was_wrong(repo: Repo) -> None:
    repo.variables = {"FENCEPOST_JOBS": "many", "FENCEPOST_SCOPE": "s" * 5_000}
    steps = [problem["next"] for problem in repo.error("config", "validate", code=2)["errors"]]
    assert "write FENCEPOST_JOBS=4; or unset FENCEPOST_JOBS" in steps
    assert "write FENCEPOST_SCOPE=team; or unset FENCEPOST_SCOPE" in steps
    repo.variables = {}
    assert repo.error("plan", "list", "--scope", "s" * 5_000, code=2)["next"] == "write --scope team"
