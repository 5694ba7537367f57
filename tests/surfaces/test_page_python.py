"""docs/PYTHON.md: every file that it shows is written, and every command that it shows is run, in their order."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fencepost.core.reasons import REASONS, WAITS_AND_ENDS
from fencepost.sdk import failures, host, steps
from tests.surfaces.cli_run_world import CLI, WAIT_S, make_repo

PAGE = (Path(__file__).parents[2] / "docs" / "PYTHON.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"(?:^`([\w./-]+)`:\n\n)?^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def test_every_block_of_the_page_does_what_it_says(tmp_path: Path) -> None:
    repo = make_repo(tmp_path)
    blocks = BLOCK.findall(PAGE)
    assert len(blocks) == len(re.findall(r"^```\w+$", PAGE, re.MULTILINE)) >= 8
    ran: list[str] = []

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        ran.append(words[-1])
        return subprocess.run(
            words,
            cwd=repo.folder,
            env=repo.environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            check=False,
        )

    for name, kind, text in blocks:
        if name:
            repo.write(name, text)
            if name.startswith("test_"):
                done = run(sys.executable, name)
                assert done.returncode == 0, (text, done.stderr)
            continue
        assert kind == "sh"
        for line in text.splitlines():
            command, _, remark = line.partition("#")
            words = shlex.split(command)
            assert words[0] == "fencepost"
            done = run(*CLI, *words[1:])
            wanted = int(remark.split()[2].rstrip(":")) if "exit code" in remark else 0
            assert done.returncode == wanted, (line, done.stdout, done.stderr)
    assert len(ran) == 9
    assert run(*CLI, "attempt", "list", "poll").stdout.count("yielded") == 4
    assert (repo.folder / "out" / "summary.md").read_text() == "- A step is recorded before it returns.\n"


def test_the_page_names_codes_and_bounds_as_they_are() -> None:
    codes = set(re.findall(r"`([a-z]+(?:_[a-z]+)+)`", PAGE))
    known = {*REASONS, *WAITS_AND_ENDS, *failures.KINDS, "tokens_input"}
    assert codes - known == set()
    assert f"{steps.STEPS_MAX:,}" in PAGE and f"{steps.NAME_BYTES_MAX} bytes" in PAGE
    assert (steps.VALUE_BYTES_MAX, host.PLACES_MAX) == (2**20, 8)
    assert f"{host.MESSAGE_CHARACTERS_MAX:,} characters" in PAGE


def test_the_callable_of_the_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    readme = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    (text,) = [text for _, kind, text in BLOCK.findall(readme) if kind == "python"]
    monkeypatch.chdir(tmp_path)
    answer = {"id": "r1", "tokens": 3, "price": "0.004", "summary": "short"}
    names: dict[str, Any] = {"fetch": lambda url: f"text of {url}", "ask_model": lambda text: {**answer, "text": text}}
    exec(text, names)
    charges: list[dict[str, Any]] = []
    attempt = SimpleNamespace(
        params={"url": "u"},
        step=lambda name, function, *arguments: function(*arguments),
        charge=lambda **charge: charges.append(charge),
    )
    assert names["summarize"](attempt).files == ("summary.md",)
    assert (tmp_path / "summary.md").read_text() == "short"
    assert charges == [{"receipt": "r1", "tokens_input": 3, "money": {"USD": "0.004"}}]
