"""Every refusal of the table in its words: where in the command it points and what its sentence is filled with.

`refusals_written.txt` is reviewed as a diff; FENCEPOST_WRITE_DOWN=1 writes it anew.
"""

from __future__ import annotations

import json
import os
import string
from pathlib import Path
from typing import Any

import pytest

from fencepost.core.decide import Decided
from fencepost.core.reasons import REASONS, Refusal
from tests.support.world import World
from tests.tables.scribe import Scribe
from tests.tables.test_refusals import CASES, Case

WRITTEN = Path(__file__).resolve().parent / "refusals_written.txt"
REWRITE = "FENCEPOST_WRITE_DOWN"
TOLD_BY_THE_KERNEL = {"scope_not_open": ("scope",)}
"""Names that a decider cannot fill, since no command says which scope it is for."""


def refusals_of(function: Case, monkeypatch: pytest.MonkeyPatch) -> list[tuple[World, Refusal]]:
    """Every refusal that a case provokes, with the world as it was before it."""
    found = []
    decide = World.decide

    def watched(self: World, command: Any, **who: str) -> Decided:
        decided = decide(self, command, **who)
        if decided.refusal is not None:
            found.append((self.fork(), decided.refusal))
        return decided

    with monkeypatch.context() as patched:
        patched.setattr(World, "decide", watched)
        function()
    return found


def told(function: Case, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    lines = []
    for world, refusal in refusals_of(function, monkeypatch):
        detail = json.dumps(refusal.detail, sort_keys=True, ensure_ascii=False)
        lines.append(Scribe(world).plain(f"  {refusal.code} at {refusal.field or '-'} {detail}"))
        lines.append(Scribe(world).plain(f"    {refusal.message} | {refusal.next_step}"))
    return lines


def written() -> dict[str, list[str]]:
    found = {}
    for cell in WRITTEN.read_text(encoding="utf-8").rstrip("\n").split("\n\n"):
        name, *lines = cell.split("\n")
        found[name] = lines
    return found


@pytest.fixture(scope="module", autouse=True)
def _write_down() -> None:
    if os.environ.get(REWRITE):
        with pytest.MonkeyPatch.context() as monkeypatch:
            cells = ["\n".join([name, *told(function, monkeypatch)]) + "\n" for _, name, function in CASES]
        WRITTEN.write_text("\n".join(cells), encoding="utf-8")


@pytest.mark.parametrize(("name", "function"), [(n, f) for _, n, f in CASES], ids=[n for _, n, _ in CASES])
def test_every_refusal_says_what_is_written_down(name: str, function: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    assert told(function, monkeypatch) == written()[name], f"if that is wanted: {REWRITE}=1"


@pytest.mark.parametrize("function", [f for _, _, f in CASES], ids=[n for _, n, _ in CASES])
def test_every_refusal_fills_its_sentence(function: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name of the sentence that is not given reads as `it`, which only a name of no importance may."""
    for _, refusal in refusals_of(function, monkeypatch):
        reason = REASONS[refusal.code]
        text = reason.sentence + reason.next_step
        names = {name for _, name, _, _ in string.Formatter().parse(text) if name}
        told = {*refusal.detail, *TOLD_BY_THE_KERNEL.get(refusal.code, ())}
        assert names <= told, f"{refusal.code}: {sorted(names - set(refusal.detail))} not told"
