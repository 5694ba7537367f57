"""Every code that can be shown stands in the one registry, and every row of the registry is used."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import fencepost
from fencepost.core import strictjson
from fencepost.core.machines import MACHINES
from fencepost.core.reasons import FAILURES, REASONS, WAITS_AND_ENDS, Refusal, fill

SOURCE = Path(fencepost.__file__).parent
REGISTRY = {"reasons.py", "reasons_of_parts.py"}
SAYS_CODE = {"Undecodable", "Refusal", "Verdict", "_problem", "_Refused", "refuse", "_refuse", "GitFailed"}
KNOWN = set(REASONS) | set(WAITS_AND_ENDS)
# Said by the surfaces alone; they say them with the words of the situation.
OF_SURFACES = {"unsupported_platform", "waited_too_long"}


def _trees() -> Iterator[tuple[Path, ast.Module]]:
    for path in sorted(SOURCE.rglob("*.py")):
        if path.name not in REGISTRY:
            yield path, ast.parse(path.read_text(encoding="utf-8"))


def _texts(node: ast.expr | None) -> Iterator[str]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value:
        yield node.value
    elif isinstance(node, ast.IfExp):
        yield from _texts(node.body)
        yield from _texts(node.orelse)


def _codes(tree: ast.Module) -> Iterator[tuple[str, int]]:
    for node in ast.walk(tree):
        line = getattr(node, "lineno", 0)
        if (
            (isinstance(node, ast.keyword) and node.arg in ("code", "message_code"))
            or (isinstance(node, ast.Assign) and any(getattr(name, "id", "") == "code" for name in node.targets))
            or (isinstance(node, ast.AnnAssign) and getattr(node.target, "id", "") == "code")
        ):
            yield from ((text, line) for text in _texts(node.value))
        elif isinstance(node, ast.Call) and node.args:
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            if name in SAYS_CODE:
                yield from ((text, line) for text in _texts(node.args[0]))


def test_every_code_in_the_source_is_registered() -> None:
    unknown = [
        f"{path.relative_to(SOURCE)}:{line}: {code}"
        for path, tree in _trees()
        for code, line in _codes(tree)
        if re.fullmatch(r"[a-z_]+", code) and code not in KNOWN
    ]
    assert not unknown, "\n".join(unknown)


def test_every_registered_code_is_used() -> None:
    said = {
        node.value
        for _, tree in _trees()
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    assert KNOWN - said <= OF_SURFACES


def test_codes_of_tables_and_of_decoding_are_registered() -> None:
    assert set(strictjson.CODES) <= KNOWN
    for machine in MACHINES.values():
        for reasons in machine.reasons.values():
            assert set(reasons) <= set(WAITS_AND_ENDS)


def test_rows_are_complete_and_fill_their_sentences() -> None:
    for code, row in {**WAITS_AND_ENDS, **REASONS}.items():
        assert (row.code == code and row.sentence.endswith(".")) or row.sentence.startswith("{"), code
        assert row.next_step and not re.search(r"\{[a-z]", fill(row.sentence + row.next_step, {})), code
        assert 0 <= row.exit_code <= 9 and row.http_status in (200, 403, 404, 409, 422, 500, 504), code
        assert not (row.transient or row.durable) or row.sort == "refusal", code
    assert set(WAITS_AND_ENDS) >= FAILURES
    assert Refusal(code="not_found", detail={"subject": "x"}).message == "x is not known in this scope."
