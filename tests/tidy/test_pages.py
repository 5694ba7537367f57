"""The pages say what the program does: generated ones are up to date, links resolve, named commands exist."""

from __future__ import annotations

import importlib
import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cyclopts import App, CycloptsError
from jsonschema import Draft202012Validator

from fencepost.core import schemas
from fencepost.core.canonical import digest_of
from fencepost.core.machines import MACHINES
from fencepost.core.planfile.check import check_text
from fencepost.core.reasons import REASONS, WAITS_AND_ENDS
from fencepost.surfaces.cli import reference
from fencepost.surfaces.cli.frame import LATER, NOUNS
from fencepost.testing import docs
from tests.tidy.files import ROOT, kept_files

README = (ROOT / "README.md").read_text("utf-8")
PAGES = {source.path: source.text for source in kept_files() if source.path.endswith(".md")}
DECISION_LINES_MAX = 60


def test_generated_pages_are_up_to_date() -> None:
    assert docs.drift(ROOT / "docs") == [], "./dev docs writes them anew"


def test_pages_about_the_surface_are_up_to_date() -> None:
    assert reference.drift(ROOT / "docs") == [], "./dev docs writes them anew"


def test_drift_is_found_and_mended(tmp_path: Path) -> None:
    docs.write(tmp_path)
    assert docs.drift(tmp_path) == []
    (tmp_path / "REASONS.md").write_text("something else")
    (tmp_path / "LIFECYCLE.md").unlink()
    (tmp_path / "schemas" / "of_old.1.json").write_text("{}")
    assert docs.drift(tmp_path) == [
        "LIFECYCLE.md is missing",
        "REASONS.md is not what its source says",
        "schemas/of_old.1.json belongs to no record kind",
    ]
    assert docs.write(tmp_path) == ["LIFECYCLE.md", "REASONS.md", "schemas/of_old.1.json"]
    assert docs.drift(tmp_path) == []


def test_the_generator_refuses_other_words(capsys: pytest.CaptureFixture[str]) -> None:
    assert docs.main(["--chekc"]) == 2
    assert "usage" in capsys.readouterr().err


def test_lifecycle_shows_every_state_and_reason() -> None:
    page = docs.lifecycle_page()
    for machine in MACHINES.values():
        section = page.split(f"## Machine `{machine.name}`")[1].split("\n## ")[0]
        for state, targets in machine.rows.items():
            assert f"| `{state}` | " in section
            assert all(f"    {state} --> {target}\n" in section for target in targets)
        for state, codes in machine.reasons.items():
            assert all(f"| `{state}` | `{code}` | " in section for code in codes)


def test_reasons_shows_every_code_in_each_of_its_meanings() -> None:
    page = docs.reasons_page()
    for row in (*REASONS.values(), *WAITS_AND_ENDS.values()):
        title = next(title for sort, title, _ in docs.SORTS if sort == row.sort)
        section = page.split(f"\n## {title}\n")[1].split("\n## ")[0]
        assert f"\n| `{row.code}` | " in section


def test_schemas_are_listed_by_the_digest_of_what_stands_there() -> None:
    folder = ROOT / "docs" / "schemas"
    registry = json.loads((folder / "registry.json").read_text("utf-8"))
    assert registry["registry"] == schemas.registry_digest()
    assert len(registry["kinds"]) == len(schemas.registry())
    for kind in registry["kinds"]:
        schema = json.loads((folder / kind["schema"]).read_text("utf-8"))
        Draft202012Validator.check_schema(schema)
        assert digest_of(schema) == kind["digest"]


_LINK = re.compile(r"\[[^\]\n]*\]\(([^)\s]+)\)")


def _without_code(text: str) -> str:
    return re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)


def _anchors(text: str) -> set[str]:
    titles = re.findall(r"^#+ (.+)$", _without_code(text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("path", sorted(PAGES))
def test_internal_links_resolve(path: str) -> None:
    for link in _LINK.findall(_without_code(PAGES[path])):
        if re.match(r"[a-z]+:", link):
            continue
        name, _, anchor = link.partition("#")
        target = (ROOT / path).parent / name if name else ROOT / path
        assert target.exists(), f"{path} links to {link}"
        if anchor:
            assert anchor in _anchors(target.read_text("utf-8")), f"{path} links to {link}"


def _shell_lines(text: str) -> Iterator[str]:
    for block in re.findall(r"^```sh\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
        yield from (line for line in block.splitlines() if line.strip())


SHELL_LINES = sorted({line for text in PAGES.values() for line in _shell_lines(text)})


def _app_of(noun: str) -> Any:
    assert noun in NOUNS, f"fencepost {noun} is no command"
    return importlib.import_module(f"fencepost.surfaces.cli.{noun}").app


def _verbs(app: Any) -> set[str]:
    """Names of an app's own commands; none for a noun that is a command itself."""
    return {name for name in app if not name.startswith("-")} if app.default_command is None else set()


@pytest.mark.parametrize("line", SHELL_LINES)
def test_every_command_of_a_shell_block_exists(line: str) -> None:
    words = shlex.split(line, comments=True)
    assert words[0] in ("fencepost", "./dev"), f"this test cannot tell whether {words[0]} exists"
    if words[0] == "./dev":
        assert words[1] in _dev_commands()
        return
    root = App(name="fencepost")
    root.command(_app_of(words[1]))
    try:
        root.parse_args(words[1:], exit_on_error=False, print_error=False)
    except CycloptsError as error:
        pytest.fail(f"{line}: {error}", pytrace=False)


def _dev_commands() -> set[str]:
    usage = (ROOT / "dev").read_text("utf-8").split("<<'TEXT'\n")[1].split("\nTEXT\n")[0]
    return set(re.findall(r"^  ([a-z]+) ", usage, re.MULTILINE))


def test_readme_lists_exactly_the_commands_that_there_are() -> None:
    section = README.split("\n## Commands\n")[1].split("\n## ")[0]
    listed: dict[str, set[str]] = {}
    for row in re.findall(r"^\| (`fencepost .*?) \| ", section, re.MULTILINE):
        noun = ""
        for span in re.findall(r"`([^`]+)`", row):
            words = span.split()
            if words[0] == "fencepost":
                noun = words[1]
            verbs = words[2:] if words[0] == "fencepost" else words
            listed.setdefault(noun, set()).update(word for word in verbs if word.islower())
    assert listed == {noun: _verbs(_app_of(noun)) for noun in NOUNS}


@pytest.mark.parametrize("noun", sorted(noun for noun, verbs in LATER.items() if not verbs))
def test_readme_names_no_command_of_a_later_version(noun: str) -> None:
    assert f"`fencepost {noun}" not in README


def test_readme_shows_plans_that_pass_the_check() -> None:
    blocks = re.findall(r"^```toml\n(.*?)^```", README, re.DOTALL | re.MULTILINE)
    assert blocks
    for block in blocks:
        checked = check_text(block, syntax="toml", stem="hello", tree=["hello.toml"])
        assert checked.problems == ()


@pytest.mark.parametrize(
    ("shown", "head", "work"),
    [
        ("[[work.effect]]", "", '[[work.effect]]\nname = "e"\nadapter = "git-push"'),
        ('effects = "opaque"', "", 'effects = "opaque"'),
        ("reviews", "[reviewers.second]\nrun = ['true']", "review = { by = 'second' }"),
        ("resource lanes", "", "resources = [{ name = 'db', mode = 'write' }]"),
        ('recovery = "adopt"', 'recovery = "adopt"', ""),
    ],
)
def test_what_readme_calls_not_built_is_refused_by_name(shown: str, head: str, work: str) -> None:
    assert shown in README.split("\n## Not built yet\n")[1].split("\n## ")[0]
    text = f"{head}\n[budget]\nattempts = 1\n[[work]]\nname = 'a'\nrun = ['true']\n{work}\n"
    checked = check_text(text, syntax="toml", stem="plan")
    assert checked.document is None
    assert "unsupported_feature" in {problem.code for problem in checked.problems}


def test_readme_gives_every_exit_code_its_registered_meaning() -> None:
    section = README.split("\n## Exit codes\n")[1].split("\n## ")[0]
    rows = dict(re.findall(r"^\| (\d) \| (.+) \|$", section, re.MULTILINE))
    assert rows == {str(code): text for code, text in docs.EXIT_CODES.items()}
    assert {row.exit_code for row in (*REASONS.values(), *WAITS_AND_ENDS.values())} <= docs.EXIT_CODES.keys()


def test_architecture_lists_every_folder_of_the_package() -> None:
    page = PAGES["docs/ARCHITECTURE.md"]
    listed = set(re.findall(r"^\| `([^`]+)` \| ", page.split("\n## Layers\n")[1], re.MULTILINE))
    package = ROOT / "src" / "fencepost"
    parts = {path.name for path in package.iterdir() if path.is_file() and not path.name.startswith(("_", "."))}
    folders = {f"{path.name}/" for path in package.iterdir() if path.is_dir() and path.name != "__pycache__"}
    inner = {f"core/{path.name}/" for path in (package / "core").iterdir() if (path / "__init__.py").is_file()}
    assert listed == (parts - {"py.typed"}) | folders | inner
    named = set(re.findall(r"`(tests/[a-z]+)`", page))
    assert named == {name for name in named if (ROOT / name).is_dir()}


def test_decisions_are_numbered_short_and_of_one_form() -> None:
    records = {path.name: path.read_text("utf-8") for path in sorted((ROOT / "docs" / "decisions").glob("*.md"))}
    assert [int(name[:4]) for name in records] == list(range(1, len(records) + 1))
    for name, text in records.items():
        lines = text.splitlines()
        assert lines[0].startswith(f"# {int(name[:4])}. "), name
        assert [line for line in lines if line.startswith("## ")] == ["## Context", "## Decision", "## Consequence"], (
            name
        )
        assert len(lines) <= DECISION_LINES_MAX, name
