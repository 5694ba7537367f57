"""The house rules hold in every file of the repository."""

from __future__ import annotations

import importlib
import importlib.util
import tomllib
import types
from collections.abc import Iterable

import pytest

from tests.tidy.files import ROOT, Finding, kept_files, modules_of_package
from tests.tidy.rules import (
    FUNCTION_LINES_MAX,
    MODULE_LINES_MAX,
    RULES,
    Rule,
    above_ratchet,
    function_lengths,
    module_lengths,
    storage_knows_no_state,
)


def _report(findings: Iterable[Finding]) -> None:
    lines = [str(finding) for finding in sorted(findings)]
    if lines:
        pytest.fail("\n".join([f"{len(lines)} breaks of a house rule:", *lines]), pytrace=False)


def test_there_is_something_to_look_at() -> None:
    paths = {source.path for source in kept_files()}
    assert {"pyproject.toml", "dev", "LICENSE", "requirements/dev.txt", "src/fencepost/__init__.py"} <= paths


@pytest.mark.parametrize("rule", [rule for rule, _ in RULES], ids=lambda rule: rule.__name__)
def test_house_rule(rule: Rule) -> None:
    about = dict(RULES)[rule]
    _report(finding for source in kept_files() if about(source.path) for finding in rule(source))


def _ratchet(table: str) -> dict[str, int]:
    tables: dict[str, dict[str, int]] = tomllib.loads((ROOT / "tests/tidy/ratchet.toml").read_text("utf-8"))
    return tables[table]


def test_modules_are_short() -> None:
    lengths = dict(pair for source in modules_of_package() for pair in module_lengths(source))
    tolerated = _ratchet("module_lines")
    _report(above_ratchet(lengths, limit=MODULE_LINES_MAX, tolerated=tolerated, unit="module"))


def test_functions_are_short() -> None:
    lengths: dict[str, int] = {}
    for source in modules_of_package():
        for name, lines in function_lengths(source):
            lengths[name] = max(lines, lengths.get(name, 0))
    tolerated = _ratchet("function_lines")
    _report(above_ratchet(lengths, limit=FUNCTION_LINES_MAX, tolerated=tolerated, unit="function"))


def test_storage_names_no_state() -> None:
    if importlib.util.find_spec("fencepost.core.machines") is None:
        pytest.skip("fencepost.core.machines is not there yet")
    machines = importlib.import_module("fencepost.core.machines").MACHINES
    states = frozenset(str(state) for machine in machines.values() for state in machine.states)
    assert states, "no machine has a state; the rule would prove nothing"
    sources = [
        source
        for source in kept_files()
        if source.path.startswith("src/fencepost/")
        and (source.path.endswith(".sql") or source.path.startswith("src/fencepost/storage/"))
        and source.path.endswith((".sql", ".py"))
    ]
    _report(finding for source in sources for finding in storage_knows_no_state(source, states))


def test_public_names_are_what_the_package_lists() -> None:
    package = importlib.import_module("fencepost")
    listed = list(package.__all__)
    assert len(listed) == len(set(listed)), "a name stands twice in __all__"
    missing = [name for name in listed if not hasattr(package, name)]
    assert not missing, f"__all__ lists what cannot be imported: {missing}"
    feature = type(importlib.import_module("__future__").annotations)
    unlisted = sorted(
        name
        for name, value in vars(package).items()
        if not name.startswith("_") and not isinstance(value, (types.ModuleType, feature)) and name not in listed
    )
    assert not unlisted, f"public but not in __all__; list it or give it an underscore: {unlisted}"
