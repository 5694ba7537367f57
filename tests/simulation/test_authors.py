"""X6: executors and stores of others in the simulator: right ones pass, and each mistake is found, told and made small.

The executors and stores are those of `examples/authors`, which the guide for authors shows.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from fencepost.adapters.threads import SystemThreads
from fencepost.ports.executor import Ended
from fencepost.ports.journal import Journal
from fencepost.storage.memory import MemoryJournal
from fencepost.testing.conformance.journal import JournalConformance
from fencepost.testing.conformance.journal_crash import CrashConformance
from fencepost.testing.simulator import __main__ as command_line
from fencepost.testing.simulator.authors import Parts, WatchedRunning
from fencepost.testing.simulator.faults import Rates
from fencepost.testing.simulator.scenario import SECOND_US, Action, FaultEvent, OrderShape, Scenario, draw
from fencepost.testing.simulator.shrink import Shrinker, run, signature

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "authors"
sys.path.insert(0, str(EXAMPLES))
own = importlib.import_module("executor")  # as an author has it: a module of one's own on the path
mistakes = importlib.import_module("mistakes")

SEEDS = 12
BREAKING_SEEDS = 30


@pytest.mark.slow
def test_x6_a_right_executor_passes_whatever_goes_wrong() -> None:
    executions, faults = 0, set[str]()
    for seed in range(SEEDS):
        outcome = run(draw(seed), parts=Parts(executor=own.make))
        assert not outcome.problem, f"seed {seed}: {outcome.problem}"
        executions += outcome.executions
        faults.update(outcome.faults)
    assert executions > 10 * SEEDS
    assert {"hangs", "keeper_killed", "not_contained", "spawn_fails", "exits_badly", "crash", "freeze"} <= faults


def slept_through(seed: int) -> Scenario:
    """One order that may run for long, on hosts that sleep through the end of its lease, while no lease is renewed."""
    shape = OrderShape(place=0, attempts=5, attempt_time_us=120 * SECOND_US)
    return Scenario(
        seed=seed,
        length_us=60 * SECOND_US,
        drifts_ppm=(0, 0),
        utc_offsets_us=(0, 0),
        workers=((0, 1, -1), (1, 1, -1)),
        clients=1,
        actions=(Action(at_us=SECOND_US, client=0, kind="submit", plan=0, orders=(shape,)),),
        faults=(
            FaultEvent(at_us=3 * SECOND_US, kind="store_away", length_us=40 * SECOND_US),
            *(
                FaultEvent(at_us=3 * SECOND_US, kind="host_sleep", target=target, length_us=25 * SECOND_US)
                for target in (0, 1)
            ),
        ),
        rates=Rates(hangs=1_000_000),
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", mistakes.EXECUTORS)
def test_x6_an_executor_with_a_mistake_is_found(name: str) -> None:
    make, words = mistakes.EXECUTORS[name]
    scenario: Callable[[int], Scenario] = slept_through if "grace" in name else draw
    for seed in range(BREAKING_SEEDS):
        problem = run(scenario(seed), parts=Parts(executor=make)).problem
        if problem:
            assert words in problem, problem
            return
    pytest.fail(f"nothing was found on {BREAKING_SEEDS} seeds")


@pytest.mark.slow
def test_the_same_world_holds_with_the_right_executor() -> None:
    for seed in range(5):
        assert not run(slept_through(seed), parts=Parts(executor=own.make)).problem


def four_orders(*actions: Action, rates: Rates) -> Scenario:
    """One plan of four orders on one worker, two of them with a verifier."""
    shapes = tuple(
        OrderShape(place=place, attempts=2, attempt_time_us=120 * SECOND_US, verify=bool(place % 2))
        for place in range(4)
    )
    return Scenario(
        seed=1,
        length_us=40 * SECOND_US,
        drifts_ppm=(0,),
        utc_offsets_us=(0,),
        workers=((0, 4, -1),),
        clients=1,
        actions=(Action(at_us=SECOND_US, client=0, kind="submit", plan=0, orders=shapes), *actions),
        faults=(),
        rates=rates,
    )


CANCEL = Action(at_us=6 * SECOND_US, client=0, kind="cancel_plan", plan=0)


def test_a_program_that_takes_its_grace_was_told_to_stop() -> None:
    """Also by an author's executor: what is asked of it is known, and from then on its grace counts."""
    scenario = four_orders(CANCEL, rates=Rates(hangs=1_000_000))
    outcome = run(scenario, parts=Parts(executor=own.make))
    assert (outcome.problem, outcome.executions) == ("", 4)


def test_a_worker_that_tells_no_program_of_an_author_to_stop_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(WatchedRunning, "stop", lambda self, reason, grace_us: None)
    scenario = four_orders(CANCEL, rates=Rates(hangs=1_000_000))
    assert "is not told to stop" in run(scenario, parts=Parts(executor=own.make)).problem


def test_nobody_is_to_stop_what_nothing_ends() -> None:
    """The supervisor has said that something of the tree is left, and is gone: there is nobody to be told."""
    rates = Rates(not_contained=1_000_000, not_ended=1_000_000, verifier_fails=1_000_000)
    outcome = run(four_orders(rates=rates), parts=Parts(executor=own.make))
    assert not outcome.problem
    assert outcome.faults["not_contained"] and outcome.faults["not_ended"]


def test_a_worker_that_is_late_to_report_the_end_of_an_authors_program_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Once it has heard of the end, the bounds on what a worker owes hold as with the simulator's executor."""
    known = WatchedRunning.wait

    def wait(self: WatchedRunning, timeout_s: float | None) -> Ended | None:
        ended = known(self, timeout_s)
        self._yard.loop.wait(self._yard.loop.now_us + 12 * SECOND_US)
        return ended

    monkeypatch.setattr(WatchedRunning, "wait", wait)
    problem = run(four_orders(rates=Rates()), parts=Parts(executor=own.make)).problem
    assert "and its worker does not say so" in problem, problem


@pytest.mark.slow
def test_x6_a_mistake_is_made_small_and_told() -> None:
    make, words = mistakes.EXECUTORS["says that the tree is empty too soon"]
    parts = Parts(executor=make)
    shapes = tuple(OrderShape(place=place, verify=bool(place % 2), attempts=3) for place in range(4))
    actions = tuple(
        Action(at_us=number * SECOND_US, client=0, kind="submit", plan=number, orders=shapes) for number in range(3)
    )
    large = replace(slept_through(0), actions=actions, rates=Rates(not_contained=500_000, exits_badly=200_000))
    failure = Shrinker(large, runs_max=150, tell=lambda text: None, parts=parts).shrink()
    assert words in failure.problem
    assert (len(failure.scenario.actions), failure.scenario.faults) == (1, ())
    assert len(failure.scenario.actions[0].orders) == 1
    assert any("starts attempt" in line for line in failure.story), failure.story
    assert len(failure.story) < 30
    assert signature(run(failure.scenario, parts=parts).problem) == signature(failure.problem)
    assert not run(failure.scenario, parts=Parts(executor=own.make)).problem


@pytest.mark.slow
def test_x6_a_seed_runs_the_same_with_the_same_executor() -> None:
    one, other = (run(draw(5), parts=Parts(executor=own.make)) for _ in range(2))
    assert (one.digest, one.steps, one.faults) == (other.digest, other.steps, other.faults)


# Stores


def failing(suite: type[Any], **given: Any) -> list[str]:
    """Names of the tests of a suite that a store fails; those with parameters of their own are left out."""
    found = []
    for name, test in inspect.getmembers(suite, inspect.isfunction):
        wanted = [each for each in inspect.signature(test).parameters if each != "self"]
        if not name.startswith("test_") or not set(wanted) <= set(given):
            continue
        try:
            test(suite(), **{each: given[each]() for each in wanted})
        except (Exception, pytest.fail.Exception):
            found.append(name)
    return found


def failing_of(make: Callable[[], Journal]) -> list[str]:
    given: dict[str, Any] = {"journal": make, "threads": SystemThreads, "crash": lambda: mistakes.reopen}
    return failing(JournalConformance, **given) + failing(CrashConformance, **given)


def test_a_right_store_passes_both_suites() -> None:
    assert failing_of(mistakes.KeptJournal) == []


@pytest.mark.parametrize("name", mistakes.STORES)
def test_x6_a_suite_finds_the_mistake_of_a_store(name: str) -> None:
    make, test = mistakes.STORES[name]
    assert test in failing_of(make)


def first_problem(parts: Parts, seeds: int = BREAKING_SEEDS) -> str:
    return next((problem for seed in range(seeds) if (problem := run(draw(seed), parts=parts).problem)), "")


@pytest.mark.slow
def test_x6_the_simulator_finds_a_store_that_loses_the_last_commit() -> None:
    assert first_problem(Parts(store=mistakes.ForgetfulJournal, reopen=mistakes.reopen))


@pytest.mark.slow
def test_x6_a_store_that_keeps_what_it_was_given_runs_as_the_one_in_memory() -> None:
    """Also through power cuts, which cut off whoever writes."""
    cuts = 0
    for seed in range(SEEDS):
        outcome = run(draw(seed), parts=Parts(store=mistakes.KeptJournal, reopen=mistakes.reopen))
        assert not outcome.problem, f"seed {seed}: {outcome.problem}"
        cuts += outcome.faults.get("host_restart", 0)
    assert cuts
    parts = Parts(store=mistakes.KeptJournal)
    assert run(draw(3), parts=parts).digest == run(draw(3)).digest


def test_each_run_gets_a_store_of_its_own_which_is_closed() -> None:
    made: list[MemoryJournal] = []

    def store() -> Journal:
        made.append(MemoryJournal("0" * 32))
        return made[-1]

    for _ in range(2):
        assert not run(draw(4), parts=Parts(store=store)).problem
    assert len(made) == 2 and made[0] is not made[1]
    for journal in made:
        with pytest.raises(Exception, match="closed"):
            journal.change_token()


# The command line


@pytest.mark.slow
def test_the_command_line_runs_shrinks_and_replays_an_authors_parts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(EXAMPLES)
    right = ["--executor", "executor:make", "--store", "mistakes:KeptJournal", "--reopen", "mistakes:reopen"]
    assert command_line.main(["--seeds", "6", "--jobs", "2", *right, "--failures", str(tmp_path)]) == 0
    assert "6 seeds from 0: 0 failed" in capsys.readouterr().out
    make, words = mistakes.EXECUTORS["says that the tree is empty too soon"]
    seed = next(seed for seed in range(BREAKING_SEEDS) if words in run(draw(seed), parts=Parts(executor=make)).problem)
    wrong = ["--executor", f"mistakes:{make.__name__}"]
    assert command_line.main(["--seed", str(seed), "--shrink-runs", "20", *wrong, "--failures", str(tmp_path)]) == 1
    kept = tmp_path / f"seed-{seed}.json"
    assert words in msgspec.json.decode(kept.read_bytes())["problem"]
    capsys.readouterr()
    assert command_line.main(["--replay", str(kept), *wrong]) == 1
    assert "is empty while it runs" in capsys.readouterr().out
    assert command_line.main(["--replay", str(kept), *right]) == 0
    assert "holds now" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "words"), [("nothing", "MODULE:NAME"), ("no_such:make", "no_such"), ("executor:no", "no")]
)
def test_a_part_that_is_not_there_is_told(
    name: str, words: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(EXAMPLES)
    with pytest.raises(SystemExit):
        command_line.main(["--seeds", "1", "--executor", name])
    assert words in capsys.readouterr().err
