"""Help: every command has a purpose, options in groups, examples that parse, exit codes, within 80 columns."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import pytest
from cyclopts import App

from fencepost.core.reasons import EXIT_MEANINGS, REASONS, WAITS_AND_ENDS
from fencepost.surfaces.cli import reference
from fencepost.surfaces.cli.command_pages import PAGES
from fencepost.surfaces.cli.command_tree import SHARED, Command, read_all
from fencepost.surfaces.cli.doctor.findings import FAULTS
from fencepost.surfaces.cli.frame import NOUNS, run
from fencepost.surfaces.cli.help import TOPICS, command_help, topic_help
from tests.surfaces.cli_run_world import Repo, make_repo

COMMANDS = {command.name: command for noun in read_all() for command in noun.commands}


@pytest.fixture(autouse=True)
def eighty_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


def test_every_command_has_a_page_and_every_page_a_command() -> None:
    assert set(PAGES) == set(COMMANDS), "src/fencepost/surfaces/cli/command_pages.py"
    assert all(page.examples and set(page.exits) <= EXIT_MEANINGS.keys() for page in PAGES.values())


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_x3_help_of_a_command_is_whole(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    command = COMMANDS[name]
    for words in ([*command.words, "--help"], [*command.words, "-h", "--json"], ["help", *command.words]):
        assert run(words) == 0
        shown = capsys.readouterr().out
        assert shown == command_help(command.words[0], command.words[-1])
    assert shown.startswith(f"usage: fencepost {name}")
    assert max(map(len, shown.splitlines())) <= 80
    assert command.summary and command.summary.split()[0] in shown
    for one in (*command.arguments, *command.options, *command.shared):
        assert f"  {one.name}" in shown and one.about, f"{name} says nothing of {one.name}"
    assert [one.name for one in command.shared] == list(SHARED)
    assert "\nexamples:\n" in shown and "\nexit codes: " in shown


@pytest.mark.parametrize(
    ("name", "line"), [(name, example.line) for name, page in sorted(PAGES.items()) for example in page.examples]
)
def test_every_example_parses_as_the_command_that_it_shows(name: str, line: str) -> None:
    if line.startswith("eval"):
        line = line.removeprefix('eval "$(').removesuffix(')"')
    words = shlex.split(line.partition(" | ")[0])
    command = COMMANDS[name]
    assert tuple(words[1 : 1 + len(command.words)]) == command.words
    root = App(name="fencepost")
    module = __import__(f"fencepost.surfaces.cli.{words[1]}", fromlist=["app"])
    root.command(module.app)
    root.parse_args(words[1:], exit_on_error=False, print_error=False)


def test_a_noun_lists_its_verbs(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["order", "--help"]) == 0
    shown = capsys.readouterr().out
    verbs = [name.split()[1] for name in COMMANDS if name.startswith("order ")]
    assert verbs and all(f"\n  {verb} " in shown for verb in verbs)
    assert max(map(len, shown.splitlines())) <= 80


def test_the_main_help_fits_and_names_every_noun(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"]) == 0
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) <= 80
    assert all(f"\n  {noun} " in shown for noun in NOUNS)


@pytest.mark.parametrize("name", sorted(TOPICS))
def test_topics_fit(name: str) -> None:
    assert max(map(len, topic_help([name]).splitlines())) <= 80


@pytest.mark.parametrize("code", sorted({*REASONS, *WAITS_AND_ENDS, *FAULTS}))
def test_every_code_is_explained(code: str) -> None:
    shown = topic_help([code])
    assert shown.startswith(code) and "\n  next: " in shown


@pytest.mark.parametrize(
    ("words", "near"),
    [
        (["help", "exit-code"], "exit-codes"),
        (["help", "plan_chnged"], "plan_changed"),
        (["help", "ordr"], "order"),
        (["ordr"], "order"),
        (["order", "wyh", "x"], "why"),
        (["order", "wyh", "--help"], "why"),
        (["order", "list", "--sate", "x"], "--state"),
        (["run", "x", "--job", "1"], "--jobs"),
    ],
)
def test_a_word_that_is_none_names_the_nearest(words: list[str], near: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(words) == 2
    told = capsys.readouterr().err
    assert near in told and told.startswith("error [usage]: ") and len(told.splitlines()) == 2


def test_a_word_too_many_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["order", "list", "extra"]) == 2
    assert capsys.readouterr().err.splitlines()[0] == "error [usage]: extra: no such word is expected here"


def test_help_needs_no_home_and_makes_none(tmp_path: Path) -> None:
    repo: Repo = make_repo(tmp_path)
    assert repo.call("order", "why", "--help").returncode == 0
    assert repo.call("order", "log", "x", "--", "--help").returncode == 2
    assert not repo.has_home()


def test_pages_show_every_command_setting_and_fault() -> None:
    pages = reference.pages()
    assert all(f"`{_usage(command)}`" in pages["COMMANDS.md"] for command in COMMANDS.values())
    assert all(f"| `{code}` | " in pages["DOCTOR.md"] for code in FAULTS)
    assert "`FENCEPOST_KEEP_FAILED`" in pages["CONFIGURATION.md"]


def _usage(command: Command) -> str:
    return command.usage()


def test_drift_of_the_pages_is_found_and_mended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reference, "docs_folder", lambda: tmp_path)
    assert reference.main(["--check"]) == 1
    assert reference.main([]) == 0
    assert sorted(os.listdir(tmp_path)) == ["COMMANDS.md", "CONFIGURATION.md", "DOCTOR.md"]
    assert reference.main(["--check"]) == 0
    (tmp_path / "DOCTOR.md").write_text("else")
    assert reference.drift(tmp_path) == ["DOCTOR.md"]
    assert reference.main(["--chekc"]) == 2
