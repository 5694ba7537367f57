"""The whole system on one seed: it holds, it is repeatable, and it can fail (W21, X6).

A simulator that finds nothing in broken code is worth nothing, so that some of its tests break the code in memory and
want to be told; `tests/mutants` does the same to the sources, for many more faults.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest

from fencepost.kernel.group import Group
from fencepost.kernel.view import Memory
from fencepost.services.recover import Recoverer
from fencepost.services.upkeep import Blocked, Upkeep
from fencepost.storage import sqlite
from fencepost.testing.simulator import __main__ as command_line
from fencepost.testing.simulator.executor import SimRunning
from fencepost.testing.simulator.faults import ALL, MEANING, STRANGER, Moments, Rates, problem_of
from fencepost.testing.simulator.scenario import (
    SECOND_US,
    USUAL_MOMENTS,
    USUAL_RATES,
    Action,
    FaultEvent,
    FaultKind,
    OrderShape,
    Scenario,
    draw,
)
from fencepost.testing.simulator.shrink import Shrinker, run, signature
from fencepost.testing.simulator.world import Outcome, World

SEEDS = int(os.environ.get("FENCEPOST_SIM_SEEDS", "40"))
BREAKING_SEEDS = 40
TIMES, IN = 5, 3  # how often each fault happens in those seeds at least, and in how many of them


@pytest.mark.slow
def test_w21_everything_holds_on_a_fixed_number_of_seeds() -> None:
    """Every fault that has a name happened meanwhile, and nothing of it was idle."""
    faults: Counter[str] = Counter()
    seeds_of: Counter[str] = Counter()
    orders = executions = 0
    for seed in range(SEEDS):
        outcome = run(draw(seed))
        assert not outcome.problem, f"seed {seed}: {outcome.problem} (./dev sim --seed {seed} --seeds 1)"
        faults.update(outcome.faults)
        seeds_of.update(list(outcome.faults))
        orders += outcome.orders
        executions += outcome.executions
    assert orders > 10 * SEEDS and executions > 10 * SEEDS
    assert set(faults) <= set(MEANING), "a fault without a name of its own"
    rare = {name: (faults[name], seeds_of[name]) for name in MEANING if faults[name] < TIMES or seeds_of[name] < IN}
    assert not rare, f"too seldom (times, seeds): {rare}"
    assert seeds_of["jump"] * 4 >= SEEDS, "a clock jumps in a quarter of the seeds"
    idle = {name for name in MEANING if seeds_of[name] == SEEDS}
    assert not idle, f"no seed is without {idle}, which may hide something else"


def facts_of(outcome: Outcome) -> dict[str, Any]:
    return {"steps": outcome.steps, "digest": outcome.digest, "us": outcome.simulated_us, "faults": outcome.faults}


_ELSEWHERE = """
import json, sys
from fencepost.testing.simulator.faults import Rates
from fencepost.testing.simulator.scenario import draw
from fencepost.testing.simulator.shrink import run
outcome = run(draw(int(sys.argv[1])))
print(json.dumps([outcome.steps, outcome.digest, outcome.simulated_us]))
"""


@pytest.mark.slow
@pytest.mark.parametrize("seed", [3, 4])
def test_w21_a_seed_gives_the_same_run_to_the_last_byte_also_in_another_process(seed: int) -> None:
    here = run(draw(seed))
    assert facts_of(here) == facts_of(run(draw(seed)))
    for hash_seed, zone in (("1", "Asia/Kathmandu"), ("2", "UTC")):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "TZ": zone, "LC_ALL": "C"}
        done = subprocess.run(
            [sys.executable, "-c", _ELSEWHERE, str(seed)], env=environment, capture_output=True, text=True, check=True
        )
        assert json.loads(done.stdout) == [here.steps, here.digest, here.simulated_us]


@pytest.mark.slow
@pytest.mark.parametrize("seed", [3, 11])
def test_x6_another_engine_gives_the_same_run_to_the_last_byte(seed: int, tmp_path: Path) -> None:
    """What an author of a store does: the whole system on it, with a wrong world in between."""
    (tmp_path / "locks").mkdir()
    engine = sqlite.create(tmp_path / "store.db", "0" * 32, tmp_path / "locks")
    try:
        assert facts_of(World(draw(seed), engine=engine).run()) == facts_of(run(draw(seed)))
    finally:
        engine.close()


def test_a_scenario_is_data_and_comes_back_from_it_whole() -> None:
    for seed in range(200):
        scenario = draw(seed)
        assert msgspec.json.decode(msgspec.json.encode(scenario), type=Scenario) == scenario


RATES, MOMENTS = Rates.__struct_fields__, Moments.__struct_fields__


def test_every_fault_has_a_name_a_meaning_and_one_rate() -> None:
    assert [*RATES, *MOMENTS, "clock_drifts", "clock_skewed"] == list(MEANING)
    assert set(STRANGER) < set(RATES) and set(MOMENTS) == set(get_args(FaultKind))
    assert all(getattr(USUAL_RATES, name) for name in RATES) and all(getattr(USUAL_MOMENTS, name) for name in MOMENTS)


@pytest.mark.parametrize("name", [*RATES, *MOMENTS])
def test_a_seed_has_much_of_one_fault_and_none_of_another(name: str) -> None:
    """Each is drawn for itself: none in some seeds, often in others, and not together with its neighbours."""
    if name in RATES:
        drawn = {getattr(draw(seed).rates, name) for seed in range(40)}
        assert drawn == {0, getattr(USUAL_RATES, name), 3 * getattr(USUAL_RATES, name)}
    else:
        counts = {sum(event.kind == name for event in draw(seed).faults) for seed in range(80)}
        assert 0 in counts and max(counts) > 1


@pytest.mark.parametrize("name", RATES)
def test_a_rate_that_is_set_changes_that_one_alone(name: str) -> None:
    for seed in range(6):
        usual, changed = draw(seed), draw(seed, {name: 123_456})
        assert changed.rates == msgspec.structs.replace(usual.rates, **{name: 123_456})
        assert changed == msgspec.structs.replace(usual, rates=changed.rates, stranger_us=changed.stranger_us)
        assert changed.stranger_us == usual.stranger_us or (name in STRANGER and not usual.stranger_us)


@pytest.mark.parametrize("name", MOMENTS)
def test_a_moment_that_is_set_comes_so_often_and_changes_no_other(name: str) -> None:
    for seed in range(6):
        usual, changed = draw(seed), draw(seed, {name: 3_600})
        others = [event for event in usual.faults if event.kind != name]
        assert [event for event in changed.faults if event.kind != name] == others
        assert len(changed.faults) - len(others) == changed.length_us // SECOND_US


def test_a_world_without_faults_is_one_rate_away() -> None:
    for seed in range(3):
        kind = run(draw(seed, {ALL: 0}))
        assert not kind.problem and set(kind.faults) <= {"clock_drifts", "clock_skewed"}
    lively = run(draw(1, {ALL: 0, "exits_badly": 1_000_000, "crash": 240}))
    assert set(lively.faults) - {"clock_drifts", "clock_skewed"} == {"exits_badly", "crash"}


@pytest.mark.parametrize(
    ("name", "value"),
    [("hangs", 1_000_001), ("hangs", -1), ("crash", 36_001), ("all", 1), ("clock_drifts", 0), ("", 0)],
)
def test_a_rate_that_nobody_can_mean_is_refused(name: str, value: int) -> None:
    assert problem_of(name, value)
    with pytest.raises(ValueError, match=re.escape(problem_of(name, value))):
        draw(0, {name: value})
    with pytest.raises(SystemExit) as ended:
        command_line.main(["--rate", f"{name}={value}"])
    assert ended.value.code == 2


def stopped_worker(seed: int) -> Scenario:
    """One order that may run for long, and two hosts, of which one has a worker that stands still for two leases."""
    shape = OrderShape(place=0, attempts=5, attempt_time_us=120 * SECOND_US)
    return Scenario(
        seed=seed,
        length_us=60 * SECOND_US,
        drifts_ppm=(0, 0),
        utc_offsets_us=(0, 0),
        workers=((0, 1, -1), (1, 1, -1)),
        clients=1,
        actions=(Action(at_us=SECOND_US, client=0, kind="submit", plan=0, orders=(shape,)),),
        faults=(FaultEvent(at_us=3 * SECOND_US, kind="freeze", target=seed % 2, length_us=25 * SECOND_US),),
        rates=Rates(),
    )


def first_problem(
    words: str, seeds: int = BREAKING_SEEDS, scenario: Callable[[int], Scenario] = draw
) -> tuple[int, str]:
    """The first seed with a problem, which must be told in these words."""
    for seed in range(seeds):
        problem = run(scenario(seed)).problem
        if problem:
            assert words in problem, problem
            return seed, problem
    pytest.fail(f"nothing was found on {seeds} seeds")


def no_rows_forgotten(memory: Memory, head: object) -> None:
    memory._head = head  # type: ignore[assignment]  # any head is fine for somebody who never looks at it


def always_gone(self: Recoverer, attempt: Any, reading: Any, *, is_over: bool) -> bool:
    from fencepost.core.commands import ProveHolderGone

    command = ProveHolderGone(
        attempt=attempt.attempt,
        fence=attempt.fence,
        host=attempt.host,
        boot_id=attempt.boot_id,
        basis="locks_free",
        evidence="a lie",
    )
    return attempt.host == reading.source and self._means.issue("dispatcher", command).ok


def looks_away(self: Upkeep) -> int:
    return 0


def none_movable(self: Blocked, look: Any) -> list[Any]:
    self.unfinished = False
    self._quiet_at = look.head.seq
    return []


def no_confirm(self: SimRunning, deadline_tick_us: int) -> None:
    self._tree.deadline_tick_us = 2**62


def lost_replay(known: Callable[..., Any]) -> Callable[..., Any]:
    def decide(self: Group, ticket: Any) -> Any:
        self._rows.pop(ticket.request.key, None)
        return known(self, ticket)

    return decide


PLANTED: dict[str, tuple[type, str, Any, str]] = {
    "a cache is kept after another writer": (Memory, "at", no_rows_forgotten, ""),
    "a living holder is proved gone": (Recoverer, "_prove_gone", always_gone, "and it lives"),
    "nobody looks after backoffs, deadlines and dependents": (Upkeep, "run_once", looks_away, ", for "),
    "nobody examines what waits for budget": (Blocked, "movable", none_movable, "waits for budget"),
    "a keeper that waits for no deadline": (SimRunning, "confirm", no_confirm, "runs beside"),
    "a command key is not looked up": (Group, "_decide", lost_replay(Group._decide), "predicted operation_collision"),
}
"""Name -> what is put in whose place, and the words in which it is told. A wrong cache shows in many ways."""


@pytest.mark.slow
@pytest.mark.parametrize("name", PLANTED)
def test_it_finds_what_is_broken_on_purpose(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, attribute, broken, words = PLANTED[name]
    monkeypatch.setattr(owner, attribute, broken)
    first_problem(words, scenario=stopped_worker if owner is SimRunning else draw)


@pytest.mark.slow
def test_a_failure_is_made_small_kept_told_and_run_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    owner, attribute, broken, words = PLANTED["a living holder is proved gone"]
    with monkeypatch.context() as patch:
        patch.setattr(owner, attribute, broken)
        seed, problem = first_problem(words)
        failure = Shrinker(draw(seed), runs_max=150, tell=lambda text: None).shrink()
        assert signature(failure.problem) == signature(problem)
        before, after = draw(seed), failure.scenario
        assert len(after.actions) < len(before.actions)
        assert sum(len(action.orders) for action in after.actions) <= 4
        assert len(after.faults) <= len(before.faults)
        assert any("ProveHolderGone" in line for line in failure.story), failure.story
        assert len(failure.story) < 200
        path = tmp_path / "kept.json"
        path.write_bytes(msgspec.json.encode(failure))
        assert command_line.main(["--replay", str(path)]) == 1
        told = capsys.readouterr().out
        assert failure.problem in told and "ProveHolderGone" in told
    assert command_line.main(["--replay", str(path)]) == 0
    assert "holds now" in capsys.readouterr().out


@pytest.mark.slow
def test_the_command_line_runs_seeds_on_several_processes_and_counts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    figures = tmp_path / "figures.json"
    arguments = ["--seeds", "7", "--jobs", "2", "--json", str(figures), "--failures", str(tmp_path / "failures")]
    assert command_line.main(arguments) == 0
    document = json.loads(figures.read_bytes())
    assert (document["first_seed"], document["seeds"], document["failed"]) == (0, 7, [])
    alone = [run(draw(seed)) for seed in range(7)]
    assert document["steps"] == sum(outcome.steps for outcome in alone)
    assert document["faults"] == {
        name: sum(outcome.faults.get(name, 0) for outcome in alone) for name in sorted(MEANING)
    }
    assert document["fault_seeds"] == {
        name: sum(name in outcome.faults for outcome in alone) for name in sorted(MEANING)
    }
    told = capsys.readouterr().out
    assert "7 seeds from 0: 0 failed" in told and "transitions" in told and "hint_lost" in told
    assert not (tmp_path / "failures").exists()


def test_rates_are_set_and_listed_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    figures = tmp_path / "figures.json"
    rates = ["--rate", "all=0", "--rate", "hangs=500000", "--rate", "crash=240"]
    assert command_line.main(["--seeds", "2", "--jobs", "1", "--json", str(figures), *rates]) == 0
    document = json.loads(figures.read_bytes())
    happened = {name for name, count in document["faults"].items() if count}
    assert happened - {"clock_drifts", "clock_skewed"} == {"hangs", "crash"}
    assert document["rates"] == {"all": 0, "hangs": 500_000, "crash": 240}
    told = capsys.readouterr().out
    assert re.search(rf"{document['faults']['hangs']} +2  hangs", told) and re.search("0 +0  slow", told)
    assert command_line.main(["--rates"]) == 0
    listed = capsys.readouterr().out
    assert all(f"  {name} " in listed for name in (*RATES, *MOMENTS))


def test_a_story_is_told_of_one_seed(capsys: pytest.CaptureFixture[str]) -> None:
    assert command_line.main(["--seed", "1", "--story"]) == 0
    told = capsys.readouterr().out
    assert "SubmitPlan" in told and "is kind from now on" in told and "seed 1 holds" in told
