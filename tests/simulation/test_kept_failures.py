"""What has failed once is run again, and is seen to fail without its mending (W21).

A run that failed is one order of steps, and any change of the code deals them anew: it would go on passing and test
nothing. So each kept failure is a scenario under several orders of steps, names its mending as changes of text
(`failures/mendings.toml`), and has to fail as it did once these are undone.
"""

from __future__ import annotations

import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import msgspec
import pytest

from fencepost.testing.simulator.shrink import Failure, run
from tests.simulation.undone import FAILURES, PACKAGE, Change, Mending, load, parts_of, seeds_of, undone

ROOT = Path(__file__).parents[2]
KEPT = sorted(path.stem for path in FAILURES.glob("*.json"))
MENDINGS = load()
ORDERS = 2  # of steps, of each failure, in every run of the tests


def test_every_kept_failure_names_its_mending_and_every_mending_its_failure() -> None:
    assert [mending.failure for mending in MENDINGS] == KEPT
    assert all(mending.changes for mending in MENDINGS)


@pytest.mark.parametrize("mending", MENDINGS, ids=lambda mending: mending.failure)
def test_a_mending_can_be_undone_and_leaves_a_program(mending: Mending) -> None:
    changes: dict[str, list[Change]] = defaultdict(list)
    for change in mending.changes:
        changes[change.file].append(change)
    for file, those in changes.items():
        text = (PACKAGE / file).read_text("utf-8")
        without = undone(text, those)
        assert without != text
        compile(without, file, "exec")


def problems_of(mending: Mending, orders: int) -> list[str]:
    failure = msgspec.json.decode((FAILURES / f"{mending.failure}.json").read_bytes(), type=Failure)
    parts = parts_of(mending)
    problems = []
    for seed in seeds_of(failure.scenario.seed, orders):
        problem = run(msgspec.structs.replace(failure.scenario, seed=seed), parts=parts).problem
        if problem:
            problems.append(f"seed {seed}: {problem}\nit was: {failure.problem}")
    return problems


@pytest.mark.slow
@pytest.mark.parametrize("mending", MENDINGS, ids=lambda mending: mending.failure)
def test_what_failed_once_holds_now(mending: Mending) -> None:
    problems = problems_of(mending, ORDERS)
    assert not problems, problems[0]


@pytest.mark.nightly
@pytest.mark.timeout(1_200)
@pytest.mark.parametrize("mending", MENDINGS, ids=lambda mending: mending.failure)
def test_what_failed_once_holds_under_every_order_that_is_tried(mending: Mending) -> None:
    problems = problems_of(mending, mending.orders)
    assert not problems, problems[0]


@pytest.mark.slow
@pytest.mark.parametrize("name", KEPT)
def test_it_fails_again_once_its_mending_is_undone(name: str) -> None:
    """Where it does not, look for a seed that does (`./dev sim` in a copy), and keep that in its place."""
    command = [sys.executable, "-m", "tests.simulation.undone", name]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=110)
    assert done.returncode == 1 and done.stdout.startswith("order "), f"{done.stdout}{done.stderr}"
