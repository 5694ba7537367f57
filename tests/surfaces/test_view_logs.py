"""The last line of what runs, as the live view shows it: text, and nothing that is to stay secret."""

from __future__ import annotations

import random
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fencepost.adapters.executors.log_reader import read_tail
from fencepost.surfaces.cli.view.logs import TAIL_BYTES, last_log_line
from tests.services.world import World, draft, opened_world

PRINTS = """
import os, sys, time, pathlib
token = os.environ["FENCEPOST_TOKEN"]
print("calling with", token, flush=True)
sys.stderr.write("in pieces " + token[:20])
sys.stderr.flush()
time.sleep(0.3)
sys.stderr.write(token[20:] + " end\\n")
sys.stderr.flush()
while not pathlib.Path(sys.argv[1]).exists():
    time.sleep(0.02)
"""


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with opened_world(tmp_path) as made:
        yield made


def shown(folder: Path, data: bytes) -> str:
    """What the view shows of a program that has printed `data`."""
    (folder / "stdout").write_bytes(data)
    app: Any = SimpleNamespace(
        workspaces=SimpleNamespace(find=lambda attempt: SimpleNamespace(logs=folder)),
        log_tail=lambda path, bytes_max: read_tail(str(path), bytes_max),
    )
    return last_log_line(app, "attempt_" + "0" * 32)


def test_x10_the_token_of_an_attempt_is_shown_by_nobody_who_looks_on(world: World, tmp_path: Path) -> None:
    """In the live view and in what follows a log, also where it was printed in two pieces."""
    go = tmp_path / "go"
    plan = world.submit(draft("a", sys.executable, "-c", PRINTS, str(go)))
    worker = threading.Thread(target=world.worker, kwargs={"jobs": 1})
    worker.start()
    seen: set[str] = set()
    try:
        until = time.monotonic() + 30
        while time.monotonic() < until and not any(line.endswith(" end") for line in seen):
            attempt = world.order(plan, "a").attempt
            seen |= {last_log_line(world.app, attempt)} if attempt else set()
            time.sleep(0.02)
        assert attempt is not None
        logs = world.app.workspaces.find(attempt).logs
        live = {name: world.app.log(logs / name).text() for name in ("stdout", "stderr")}
    finally:
        go.touch()
        worker.join()
        world.until_ended(plan)
    assert live == {
        "stdout": b"calling with " + b"*" * 64 + b"\n",
        "stderr": b"in pieces " + b"*" * 64 + b" end\n",
    }
    assert seen <= {"", "calling with " + "*" * 64, "in pieces", "in pieces " + "*" * 64 + " end"}


@pytest.mark.parametrize(
    ("data", "line"),
    [
        (b"step 3 of 9\n", "step 3 of 9"),
        (b"\x1b[32mgreen\x1b[0m\n", "green"),
        (b"10%\r20%\r30%", "30%"),
        ("Größe: 3 €\n".encode(), "Größe: 3 €"),
        ("still coming: €".encode()[:-1], "still coming:"),
        ("€".encode()[1:] + b" cut before\n", "cut before"),
        ("caf\u00e9 au lait".encode("latin-1"), "caf\ufffd au lait"),
        (b"a line\n\x7fELF\x02\x01\x01\x00\x00\x00\x00", "a line"),
        (b"PK\x03\x04\x14\x00\n\xff\xfe\xfd\x81\x92\xa3\n", ""),
    ],
)
def test_only_text_is_shown(tmp_path: Path, data: bytes, line: str) -> None:
    assert shown(tmp_path, data) == line


def test_bytes_that_are_no_text_show_nothing(tmp_path: Path) -> None:
    assert shown(tmp_path, b"unpacking\n" + random.Random(1).randbytes(TAIL_BYTES - 12) + b"\n") in ("", "unpacking")
