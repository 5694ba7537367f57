"""The interpreter of a plan is found and asked for its version; a module is read, never run."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from fencepost.adapters.interpreter import SOURCE_BYTES_MAX, find_interpreter, parse_module
from fencepost.core.planfile.callables import Declared, find_declared
from fencepost.ports.interpreter import ParsedModule, Unsuited
from tests.support.interpreters import interpreters


def answering(folder: Path, name: str, script: str) -> Path:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def test_the_one_that_runs_this_program_is_taken_as_it_is(tmp_path: Path) -> None:
    assert find_interpreter("", root=tmp_path, search="") == sys.executable


def test_a_path_counts_from_the_tree_and_keeps_its_links(tmp_path: Path) -> None:
    (tmp_path / "venv").mkdir()
    (tmp_path / "venv" / "python").symlink_to(sys.executable)
    found = find_interpreter("venv/python", root=tmp_path, search="")
    assert found == str(tmp_path / "venv" / "python")


def test_a_name_is_looked_for_on_the_path(tmp_path: Path) -> None:
    (tmp_path / "python-of-mine").symlink_to(sys.executable)
    assert find_interpreter("python-of-mine", root=Path("/"), search=str(tmp_path)) == str(tmp_path / "python-of-mine")
    missing = find_interpreter("python-of-yours", root=tmp_path, search=str(tmp_path))
    assert isinstance(missing, Unsuited) and missing.code == "python_missing"


@pytest.mark.parametrize(
    ("code", "script"),
    [
        ("python_unsuited", "echo fencepost 3 10"),
        ("python_unsuited", "echo fencepost 2 7"),
        ("python_unsuited", "echo hello"),
        ("python_unsuited", "echo fencepost 3 12; exit 1"),
        ("python_unsuited", "echo fencepost three 12"),
    ],
)
def test_what_is_too_old_or_no_python_is_refused(tmp_path: Path, code: str, script: str) -> None:
    path = answering(tmp_path, "python", script)
    answer = find_interpreter(str(path), root=tmp_path, search="")
    assert isinstance(answer, Unsuited) and answer.code == code


def test_what_cannot_be_started_and_what_is_not_there_are_told_apart(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no program")
    started = find_interpreter(str(tmp_path / "text"), root=tmp_path, search="")
    missing = find_interpreter(f".{os.sep}none", root=tmp_path, search="")
    assert isinstance(started, Unsuited) and started.code == "python_unsuited"
    assert isinstance(missing, Unsuited) and missing.code == "python_missing"


def test_a_module_is_parsed_and_nothing_of_it_is_run(tmp_path: Path) -> None:
    (tmp_path / "m.py").write_text("raise SystemExit(3)\n")
    module = parse_module(tmp_path, "m.py", sys.executable)
    assert isinstance(module, ParsedModule) and module.digest.startswith("sha256:")


@pytest.mark.parametrize(
    "source",
    [b"def f(:\n", b"\xff\xfe", b"a\0b", b"(" * 5000, b"x = 1\n" * (SOURCE_BYTES_MAX // 6 + 1), b"-" * 100_000 + b"1"],
    ids=["syntax", "no text", "nul", "nested", "large", "deep"],
)
def test_a_module_that_cannot_be_read_is_a_value(tmp_path: Path, source: bytes) -> None:
    (tmp_path / "m.py").write_bytes(source)
    answer = parse_module(tmp_path, "m.py", sys.executable)
    assert isinstance(answer, Unsuited) and answer.code == "module_unreadable"
    missing = parse_module(tmp_path, "n.py", sys.executable)
    assert isinstance(missing, Unsuited) and missing.code == "module_unreadable"


def test_x10_a_module_younger_than_this_program_is_read_by_its_own_interpreter(tmp_path: Path) -> None:
    """Another interpreter is stood in for by one that reads a statement that this one does not know."""
    source = 'import fencepost as fp\ntype X = int\n@fp.executor("a", version=2)\ndef f(x: X): pass\n'
    (tmp_path / "m.py").write_text(source)
    script = f"sed '/^type/d' | exec {sys.executable} \"$@\""
    younger = str(answering(tmp_path, "younger", script))
    real = interpreters().get("3.12", younger)
    for interpreter in (younger, real):
        module = parse_module(tmp_path, "m.py", interpreter)
        assert isinstance(module, ParsedModule)
        assert find_declared(module.tree, "m:f", "m.py") == Declared(name="a", version=2)
    assert isinstance(parse_module(tmp_path, "m.py", str(answering(tmp_path, "other", "exit 1"))), Unsuited) == (
        sys.version_info < (3, 12)
    )
