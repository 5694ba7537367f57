"""Whatever a plan, a program or a person writes, it is read on a terminal as what it is and does nothing there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fencepost.surfaces.cli.words import MARKS_MAX, STACKED_MAX, block, one_line
from tests.surfaces.cli_run_world import Repo, make_repo

EVIL = (
    "\x1b[31mred \x9b31m \u202eevil\u2066 ze\u200bro \u061c a"
    + "\u0301" * 40
    + "\u0e01"
    + "\u0e47" * 40
    + "\U000e0041\ufeff"
)
STEERS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff\U000e0000-\U000e0fff]"
    f"|\u0301{{{STACKED_MAX + 1}}}|\u0e47{{{MARKS_MAX + 1}}}"
)
PROGRAM = """\
import subprocess, sys
evil = __EVIL__
print(evil, flush=True)
subprocess.run(["fencepost", "attempt", "heartbeat", "--note", evil], check=True)
if sys.argv[1] == "asks":
    subprocess.run(["fencepost", "attempt", "yield", "--question", "go", "--prompt", evil], check=True)
else:
    import fencepost as fp
    fp.attempt().artifact("program.py")
    sys.exit(3)
"""

COMMANDS = (
    *("plan show plan", "plan list", "order list", "order show asks", "order show fails", "order why asks"),
    *("order why fails", "attempt list asks", "attempt show asks", "attempt show fails", "journal tail", "budget show"),
)


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    made = make_repo(tmp_path)
    made.write("program.py", PROGRAM.replace("__EVIL__", ascii(EVIL)))
    orders = "".join(
        f'[[work]]\nname = "{name}"\nmay_fail = true\nrun = ["python3", "program.py", "{name}"]\n'
        for name in ("asks", "fails")
    )
    made.write("plan.toml", f"objective = {_toml(EVIL)}\n[budget]\nattempts = 9\n{orders}")
    return made


def _toml(text: str) -> str:
    return '"' + "".join(f"\\U{ord(character):08x}" for character in text) + '"'


def test_whatever_is_said_for_people_steers_no_terminal(repo: Repo) -> None:
    said = {"run": repo.call("run", "plan.toml")}
    assert said["run"].returncode == 9, said["run"].stderr
    for words in COMMANDS:
        said[words] = repo.call(*words.split())
    plan = (repo.folder / "plan.toml").read_text().replace(_toml(EVIL), _toml(EVIL * 2))
    said["plan diff"] = repo.call("plan", "diff", repo.write("plan.toml", plan).name)
    said["error"] = repo.call("order", "show", EVIL)
    for words, done in said.items():
        found = STEERS.search(done.stdout + done.stderr)
        assert found is None, (words, ascii(found), ascii(done.stdout), ascii(done.stderr))
    assert "evil" in said["plan show plan"].stdout and "evil" in said["order why asks"].stdout


def test_documents_keep_the_text(repo: Repo) -> None:
    assert repo.call("run", "plan.toml").returncode == 9
    assert repo.document("plan", "show", "plan")["objective"] == EVIL
    assert EVIL in _texts(repo.document("attempt", "show", "fails"))


def _texts(value: object) -> list[str]:
    if isinstance(value, dict):
        return [text for each in value.values() for text in _texts(each)]
    if isinstance(value, list):
        return [text for each in value for text in _texts(each)]
    return [value] if isinstance(value, str) else []


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain"),
        ("日本語 ज़ैं กี่ Việt", "日本語 ज़ैं กี่ Việt"),
        ("a\u200bb\u2060c\ufeff", "abc"),
        ("flag \U0001f3f4\U000e0067\U000e0062\U000e007f", "flag \U0001f3f4"),
        ("x\u061cy", "x?y"),
        ("e" + "\u0301" * 9 + "f", "e" + "\u0301" * STACKED_MAX + "f"),
        ("\u0e01" + "\u0e47" * 9, "\u0e01" + "\u0e47" * MARKS_MAX),
    ],
)
def test_what_scripts_need_stays(text: str, shown: str) -> None:
    assert one_line(text) == shown
    assert block(f"{text}\n\t{text}") == f"{shown}\n\t{shown}"
