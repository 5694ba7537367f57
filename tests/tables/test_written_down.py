"""What every command does in every state, as text that is reviewed as a diff: the whole table, not only its codes.

Each file in `written/` is one state. A cell that says what it said in an earlier state names that state. After a
wanted change, run this file with FENCEPOST_WRITE_DOWN=1 and read the diff.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pytest

from tests.support.states import BUILDERS, world_in
from tests.tables.scribe import Scribe
from tests.tables.test_command_matrix import COMMANDS

WRITTEN = Path(__file__).resolve().parent / "written"
REWRITE = "FENCEPOST_WRITE_DOWN"
SAME = "  as when "

Cells = Mapping[str, list[str]]


def file_of(state: str) -> Path:
    return WRITTEN / f"{state.replace('/', '_')}.txt"


def cells_of(state: str) -> Cells:
    """Command -> what it does in that state."""
    told = {}
    for command, make in COMMANDS.items():
        world = world_in(state)
        made = make(world)
        told[command] = [f"  {line}" for line in Scribe(world).lines(world.decide(made))]
    return told


@cache
def read(state: str) -> Cells:
    """What is written down, with the cells of other states in their places."""
    _, *cells = file_of(state).read_text(encoding="utf-8").rstrip("\n").split("\n\n")
    told = {}
    for cell in cells:
        command, *lines = cell.split("\n")
        same = lines[0].startswith(SAME)
        told[command] = list(read(lines[0].removeprefix(SAME))[command]) if same else lines
    return told


def write() -> None:
    first: dict[tuple[str, str], str] = {}
    for state in BUILDERS:
        page = [f"An order that is {state}\n"]
        for command, lines in cells_of(state).items():
            known = first.setdefault((command, "\n".join(lines)), state)
            page.append("\n".join([command, *(lines if known == state else [f"{SAME}{known}"])]) + "\n")
        file_of(state).write_text("\n".join(page), encoding="utf-8")


@pytest.mark.parametrize("state", BUILDERS)
def test_every_command_does_what_is_written_down(state: str) -> None:
    if os.environ.get(REWRITE) and state == next(iter(BUILDERS)):
        write()
        read.cache_clear()
    told, written = cells_of(state), read(state)
    for command in COMMANDS:
        assert told[command] == written.get(command), f"{command} when {state}; if that is wanted: {REWRITE}=1"
    assert set(told) == set(written)
