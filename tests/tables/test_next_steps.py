"""Every next step that names a command names one that is there, with options that it takes (X3)."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import fencepost
from fencepost.core.reasons import REASONS, WAITS_AND_ENDS
from fencepost.surfaces.cli.doctor.findings import FAULTS
from fencepost.surfaces.cli.doctor.inside import CHECKS
from fencepost.surfaces.cli.frame import LATER, NOUNS

SOURCE = Path(fencepost.__file__).parent
STEPS = {f"{row.sort} {code}": row.next_step for rows in (REASONS, WAITS_AND_ENDS) for code, row in rows.items()} | {
    f"fault {code}": fault.following for code, fault in FAULTS.items()
}
COMMAND = re.compile(r"(?<!the )(?<!of )(?<!that )\bfencepost ((?:--)?[a-z][^,;:.()`]*)")
PLACEHOLDER = re.compile(r"[A-Z][A-Z/]*|-|@(?:/[A-Z]+)?|[0-9]+|\{[a-z]+\}")
"""A word that its reader, or what prints it, puts a name into."""
EXAMINED = {
    "unauthenticated": "authority",
    "grant_missing": "authority",
    "constitution_invalid": "authority",
    "evaluation_error": "authority",
    "no_decision": "authority",
    "inputs_unavailable": "artifacts",
    "artifact_missing": "artifacts",
    "storage_error": "store",
    "storage_unavailable": "store",
    "internal_error": "store",
    "containment_lost": "processes",
}
"""Code that sends its reader to `doctor` -> the check that looks for what is behind it."""


def problem_of(words: str) -> str:
    """What is wrong with `NOUN [VERB] ...` as a command line, "" for nothing."""
    tokens = words.split()
    noun = tokens[0]
    if noun.startswith("--"):
        return "" if noun == "--help" else f"{noun} is no option of the program"
    if noun not in NOUNS:
        return f"{noun} is no command that is built"
    app = importlib.import_module(f"fencepost.surfaces.cli.{noun}").app
    rest = tokens[1:]
    if app.default_command is None:
        verb = rest.pop(0) if rest else ""
        if verb in LATER.get(noun, ()) or verb not in list(app):
            return f"{noun} {verb} is no command that is built"
        app = app[verb]
    arguments = app.assemble_argument_collection()
    known = {name: argument for argument in arguments for name in argument.names}
    unknown = [token for token in rest if token.startswith("--") and token not in {*known, "--help"}]
    if unknown:
        return f"{noun} takes no {' '.join(unknown)}"
    words = list(_words(rest, {name for name in known if name.startswith("--") and known[name].hint is not bool}))
    places = sum(argument.index is not None for argument in arguments)
    prose = [word for word in words if PLACEHOLDER.fullmatch(word) is None] or words[places:]
    return f"{noun} takes no word {' '.join(prose)!r}" if prose else ""


def _words(tokens: list[str], valued: set[str]) -> Iterator[str]:
    """What stands in no option: the words that a command takes by their places."""
    left = iter(tokens)
    for token in left:
        if token in valued:
            next(left, None)
        elif not token.startswith("--"):
            yield token


def problems_of(text: str) -> list[str]:
    return [problem for words in COMMAND.findall(text) if (problem := problem_of(words))]


@pytest.mark.parametrize("reason", sorted(STEPS))
def test_a_reason_names_only_commands_that_are_built(reason: str) -> None:
    assert problems_of(STEPS[reason]) == []


def _texts() -> Iterator[tuple[str, str]]:
    """Every text of the surfaces, the services and the kernel that is handed on as a next step."""
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.keyword) and node.arg in ("next_step", "following"):
                for part in ast.walk(node.value):
                    if isinstance(part, ast.Constant) and isinstance(part.value, str):
                        yield f"{path.relative_to(SOURCE)}:{part.lineno}", part.value


def test_so_do_the_errors_of_the_program() -> None:
    found = list(_texts())
    assert len(found) > 50
    assert [(place, problems) for place, text in found if (problems := problems_of(text))] == []


def test_the_reader_of_next_steps_finds_what_is_wrong() -> None:
    assert problems_of("fencepost effect show") == ["effect is no command that is built"]
    assert problems_of("fencepost clock reconcile") == ["clock reconcile is no command that is built"]
    assert problems_of("wait, or fencepost order why NAME --atempt 3") == ["order takes no --atempt"]
    assert problems_of("fencepost order list shows them") == ["order takes no word 'shows them'"]
    assert problems_of("fencepost order answer NAME VALUE NAME") == ["order takes no word 'NAME'"]
    assert problems_of("fencepost run PLAN --again, then fencepost order files NAME --attempt N") == []


def test_why_never_leads_back_to_itself() -> None:
    for code, row in WAITS_AND_ENDS.items():
        assert "order why" not in row.next_step, code


def test_doctor_examines_what_codes_send_their_reader_for() -> None:
    sent = {code for rows in (REASONS, WAITS_AND_ENDS) for code, row in rows.items() if "doctor" in row.next_step}
    assert sent == set(EXAMINED)
    assert set(EXAMINED.values()) <= {check.__name__.strip("_") for check in CHECKS}
