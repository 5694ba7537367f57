"""The pinned sets agree with each other and with what the package declares."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[2]
REQUIREMENTS = ROOT / "requirements"


def _pins(name: str) -> dict[str, str]:
    """Returns name and version of each pin, after checking that each has a digest."""
    pins = {}
    for block in re.split(r"\n(?=\S)", (REQUIREMENTS / name).read_text("utf-8")):
        found = re.match(r"([a-z0-9-]+)==(\S+)", block)
        assert found, f"not a pin: {block!r}"
        assert re.search(r"--hash=sha256:[0-9a-f]{64}\b", block), f"no digest: {found[1]}"
        pins[found[1]] = found[2]
    return pins


def _named(name: str) -> set[str]:
    lines = (REQUIREMENTS / name).read_text("utf-8").splitlines()
    return {line for line in lines if line and not line.startswith(("#", "-"))}


def _declared() -> list[Requirement]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    return [Requirement(line) for line in project["dependencies"]]


def test_what_is_declared_is_what_is_resolved() -> None:
    assert {requirement.name for requirement in _declared()} == _named("run.in")


def test_pins_lie_within_the_declared_bounds() -> None:
    pins = _pins("run.txt")
    outside = [str(one) for one in _declared() if not one.specifier.contains(pins[one.name])]
    assert outside == []


@pytest.mark.parametrize("name", ["run", "dev"])
def test_everything_named_is_pinned(name: str) -> None:
    assert _named(f"{name}.in") - _pins(f"{name}.txt").keys() == set()


def test_tests_run_with_what_users_get() -> None:
    run, dev = _pins("run.txt"), _pins("dev.txt")
    assert {name: dev.get(name) for name in run} == run
