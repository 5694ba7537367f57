"""`./dev` in a clone of its own: what it lists and refuses, and that its set-up survives company and kills.

The clone's backend stands in its own folder and its pinned set is empty, so that nothing is fetched.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

BACKEND = """
import base64, hashlib, os, pathlib, zipfile

def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    info = "clone-1.dist-info/"
    files = {
        "clone.pth": os.path.abspath("src"),
        info + "METADATA": "Metadata-Version: 2.1\\nName: clone\\nVersion: 1\\n",
        info + "WHEEL": "Wheel-Version: 1.0\\nGenerator: c\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n",
        info + "RECORD": "",
    }
    with zipfile.ZipFile(pathlib.Path(wheel_directory, "clone-1-py3-none-any.whl"), "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return "clone-1-py3-none-any.whl"
"""


def _environment(**changes: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHON", "PYTHONPATH")}
    return {**kept, "PIP_NO_INDEX": "1", **changes}


def _dev(clone: Path, *arguments: str, **changes: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(clone / "dev"), *arguments],
        env=_environment(**changes),
        cwd=clone.parent,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    folder = tmp_path / "a clône [with] spaces"
    (folder / "requirements").mkdir(parents=True)
    (folder / "src" / "fencepost").mkdir(parents=True)
    shutil.copy(ROOT / "dev", folder / "dev")
    (folder / "requirements" / "run.txt").write_text("")
    (folder / "requirements" / "dev.txt").write_text("# nothing\n")
    (folder / "src" / "fencepost" / "_version.py").write_text('__version__ = "1"\n')
    (folder / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
        '[project]\nname = "clone"\nversion = "1"\n'
    )
    (folder / "backend.py").write_text(BACKEND)
    return folder


def test_alone_it_lists_its_commands(clone: Path) -> None:
    answer = _dev(clone)
    assert answer.returncode == 0
    built = ("run", "test", "check", "bench", "sim", "mutants", "setup", "docs", "clean")
    for command in (*built, "crash", "evidence"):
        assert command in answer.stdout
    assert not (clone / ".venv").exists()


@pytest.mark.parametrize("command", ["crash", "evidence"])
def test_refuses_by_name_what_is_not_built(clone: Path, command: str) -> None:
    answer = _dev(clone, command)
    assert answer.returncode == 2
    assert f"{command} is not built yet" in answer.stderr


def test_refuses_an_unknown_command(clone: Path) -> None:
    answer = _dev(clone, "tset")
    assert answer.returncode == 2
    assert "unknown command: tset" in answer.stderr


def test_says_which_python_is_missing(clone: Path, tmp_path: Path) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("sh", "dirname", "cat", "cmp"):
        found = shutil.which(name)
        assert found is not None
        (tools / name).symlink_to(found)
    old = tools / "python3"
    old.write_text("#!/bin/sh\nexit 1\n")
    old.chmod(0o755)
    answer = _dev(clone, "setup", PATH=str(tools))
    assert answer.returncode == 2
    assert "no Python 3.11 or later found" in answer.stderr
    answer = _dev(clone, "setup", PYTHON=str(old))
    assert answer.returncode == 2
    assert f"PYTHON={old} is not a working Python 3.11 or later" in answer.stderr


def _wait_for(path: Path) -> None:
    end = time.monotonic() + 30
    while not path.exists():
        assert time.monotonic() < end, f"{path.name} did not appear"
        time.sleep(0.01)


@pytest.mark.slow
def test_set_up_survives_a_kill_company_and_change(clone: Path) -> None:
    environment = _environment(PYTHON=sys.executable)
    command = [str(clone / "dev"), "setup"]
    killed = subprocess.Popen(command, env=environment, start_new_session=True, stderr=subprocess.DEVNULL)
    _wait_for(clone / ".venv" / "bin" / "python")
    os.killpg(killed.pid, signal.SIGKILL)
    killed.wait(timeout=10)
    assert not (clone / ".venv" / "fencepost-setup.stamp").exists()

    pair = [subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    told = [process.communicate(timeout=90)[1] for process in pair]
    assert [process.returncode for process in pair] == [0, 0], told
    assert sum("making .venv" in text for text in told) == 1, told
    assert sum(".venv is ready" in text for text in told) == 1, told

    assert _dev(clone, "setup").stderr == ""
    assert _dev(clone, "setup", PYTHON=sys.executable).stderr == ""

    (clone / "requirements" / "dev.txt").write_text("# changed\n")
    renewed = _dev(clone, "setup")
    assert renewed.returncode == 0, renewed.stderr
    assert "making" not in renewed.stderr
    assert ".venv is ready" in renewed.stderr

    for word, module in (("sim", "fencepost.testing"), ("mutants", "tests")):
        answer = _dev(clone, word)
        assert answer.returncode == 1 and f"No module named '{module}'" in answer.stderr, "the clone has none such"

    assert _dev(clone, "clean").returncode == 0
    assert not (clone / ".venv").exists()
