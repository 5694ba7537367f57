"""What the tests of replay share: journals, what this process finds in them, and the tool run in another place."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from contextlib import closing
from functools import cache
from pathlib import Path

import msgspec
import pytest

from fencepost.ports.journal import Stream
from fencepost.storage import sqlite
from fencepost.testing import prefixes as tool
from fencepost.testing.refill import Refill
from fencepost.testing.simulator.scenario import draw
from fencepost.testing.simulator.world import World
from tests.fixtures.renew import JOURNALS
from tests.simulation.elsewhere import ROOT, NotHere, Place, bare_python, environment

KEPT = sorted(path.name.removesuffix(".jsonl.gz") for path in JOURNALS.glob("*.jsonl.gz"))
EVERY = 500
STREAM = Stream("default", "main")


def kept(name: str) -> Path:
    return JOURNALS / f"{name}.jsonl.gz"


@cache
def found_here(journal: Path) -> bytes:
    """What this process finds, as the tool prints it."""
    fold = tool.Prefixes(readiness=True)
    with tool.open_journal(journal) as file:
        found = tool.prefixes(tool.read_lines(file), every=EVERY, fold=fold)
        return b"".join(msgspec.json.encode(prefix) + b"\n" for prefix in found)


def end_of(found: bytes) -> tool.Prefix:
    return msgspec.json.decode(found.splitlines()[-1], type=tool.Prefix)


def folder_of(config: pytest.Config) -> Path:
    """A folder that outlives the run, for what is expensive to make."""
    kept_between_runs: pytest.Cache | None = getattr(config, "cache", None)
    name = "fencepost-elsewhere"
    return kept_between_runs.mkdir(name) if kept_between_runs else Path(tempfile.gettempdir()) / f"{name}-{os.getuid()}"


def run_tool(python: Path, variables: dict[str, str], journal: Path, *more: str) -> bytes:
    command = [
        str(python),
        "-m",
        "fencepost.testing.prefixes",
        str(journal),
        "--readiness",
        "--every",
        str(EVERY),
        *more,
    ]
    done = subprocess.run(command, env=variables, capture_output=True, timeout=60, check=False, cwd=journal.parent)
    assert not done.returncode, done.stderr.decode(errors="replace")
    return done.stdout


def variables_at(place: Place, config: pytest.Config) -> dict[str, str]:
    try:
        return environment(place, folder_of(config))
    except NotHere as reason:
        pytest.skip(str(reason))


def python_of(version: str, config: pytest.Config) -> Path:
    try:
        return bare_python(version, folder_of(config))
    except NotHere as reason:
        pytest.skip(str(reason))


def parting(ours: bytes, theirs: bytes) -> str:
    """Where two runs part, in words; empty where they do not."""
    for mine, foreign in zip(ours.splitlines(), theirs.splitlines(), strict=False):
        if mine != foreign:
            one, other = json.loads(mine), json.loads(foreign)
            what = [name for name in one if one[name] != other.get(name)]
            return f"record {one['seq']}: {', '.join(what)}"
    return "" if ours == theirs else "one has more records"


def simulated(seed: int) -> bytes:
    """The journal of a simulated run, whatever its checks say of it: that is another test's matter."""
    world = World(draw(seed))
    outcome = world.run()
    with world.disk.engine.snapshot() as reads:
        return b"".join(data + b"\n" for _, data in reads.records(STREAM, 0, outcome.records))


def written(path: Path, journal: bytes) -> Path:
    path.write_bytes(journal)
    return path


def refilled(store: Path) -> tool.Prefixes:
    """The kept run, put into an empty SQLite store."""
    fold = tool.Prefixes()
    refill = Refill(str(store), fold)
    with tool.open_journal(kept("real-run")) as file:
        for line in tool.read_lines(file):
            fold.add(line)
            refill.add(line)
    with closing(refill.journal):
        refill.flush()
        refill.check()
    return fold


def opened(store: Path) -> closing[sqlite.SqliteJournal]:
    return closing(sqlite.open(store / "store.db", store / "locks"))


def run_tests_own(command: list[str], place: Place, config: pytest.Config) -> bytes:
    """The output of a program that needs these tests."""
    variables = variables_at(place, config)
    variables["PYTHONPATH"] = f"{variables['PYTHONPATH']}:{ROOT}"
    done = subprocess.run(command, env=variables, capture_output=True, timeout=60, check=False)
    assert not done.returncode, done.stderr.decode(errors="replace")
    return done.stdout
