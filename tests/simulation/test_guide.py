"""The guide for authors holds: each of its Python blocks runs, and its suites pass."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from fencepost.testing.simulator import __main__ as command_line

ROOT = Path(__file__).resolve().parents[2]
BLOCKS = re.findall(r"```python\n(.*?)```", (ROOT / "docs/TESTING.md").read_text("utf-8"), flags=re.S)
COMMANDS = re.findall(
    r"^python -m fencepost.testing.simulator (.*)$", (ROOT / "docs/TESTING.md").read_text(), flags=re.M
)
SUITES = ROOT / "src/fencepost/testing/conformance"


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_a_block_of_the_guide_runs(number: int, tmp_path: Path) -> None:
    block = BLOCKS[number]
    path = tmp_path / f"test_block_{number}.py"
    path.write_text(block, "utf-8")
    how = ["-m", "pytest", "-q", "-p", "no:cacheprovider", str(path)] if "class Test" in block else [str(path)]
    environment = {"PYTHONPATH": f"{ROOT / 'examples/authors'}:{ROOT / 'src'}", "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        [sys.executable, *how], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout[-3_000:] + done.stderr[-3_000:]
    if "class Test" in block:
        assert re.search(r"\d+ passed", done.stdout)


@pytest.mark.parametrize("line", COMMANDS)
def test_a_command_of_the_guide_is_understood(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT / "examples" / "authors")
    options = command_line._parser().parse_args(shlex.split(line))
    assert ("--executor" in line) == (options.executor is not None)


def test_the_guide_names_every_suite() -> None:
    text = (ROOT / "docs/TESTING.md").read_text("utf-8")
    suites = re.findall(
        r"^class (\w+Conformance)\b", "".join(path.read_text("utf-8") for path in SUITES.glob("*.py")), flags=re.M
    )
    assert len(suites) > 9
    assert [name for name in suites if name not in text and name != "JournalRowsConformance"] == []
