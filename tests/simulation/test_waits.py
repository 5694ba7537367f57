"""Bounds on each wait: what only delays is found, and nobody is blamed for what a fault has delayed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from fencepost.core.state import AttemptState
from fencepost.kernel.read import Look
from fencepost.ports.clock import Reading
from fencepost.services import finish, worker
from fencepost.services.leases import Lease, Leases
from fencepost.services.recover import Recoverer
from fencepost.testing.simulator import waits
from fencepost.testing.simulator.faults import ALL, Rates
from fencepost.testing.simulator.scenario import SECOND_US, Action, FaultEvent, OrderShape, Scenario, draw
from fencepost.testing.simulator.shrink import run
from tests.simulation.test_simulator import first_problem


def told_nothing(self: Lease, deadline_tick_us: int) -> None:
    self.deadline_tick_us = deadline_tick_us


def only_when_over(known: Callable[..., bool]) -> Callable[..., bool]:
    def prove(self: Recoverer, attempt: AttemptState, reading: Reading, *, is_over: bool) -> bool:
        return is_over and known(self, attempt, reading, is_over=is_over)

    return prove


def renews_late(known: Callable[[Leases], int]) -> Callable[[Leases], int]:
    def run_once(self: Leases) -> int:
        self._means.threads.sleep(4.5)
        return known(self)

    return run_once


DELAYS: dict[str, tuple[Any, str, Any, str]] = {
    "looks come every twenty seconds": (worker, "LOOK_S", 20.0, ", for "),
    "a keeper is not told of renewals": (Lease, "confirm", told_nothing, "is not told that its lease goes on"),
    "renewals come late": (Leases, "run_once", renews_late(Leases.run_once), "is not renewed"),
    "the dead are waited for": (Recoverer, "_prove_gone", only_when_over(Recoverer._prove_gone), "nobody proves it"),
}
"""Name -> what is put in whose place, and the words in which it is told. In the end all of them come to rest."""


@pytest.mark.slow
@pytest.mark.parametrize("name", DELAYS)
def test_what_only_delays_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, attribute, broken, words = DELAYS[name]
    monkeypatch.setattr(owner, attribute, broken)
    first_problem(words)


def one_order(*faults: FaultEvent, stranger_us: int = 0) -> Scenario:
    shape = OrderShape(place=0, attempts=5, attempt_time_us=20 * SECOND_US)
    return Scenario(
        seed=1,
        length_us=40 * SECOND_US,
        drifts_ppm=(0,),
        utc_offsets_us=(0,),
        workers=((0, 1, -1),),
        clients=1,
        actions=(Action(at_us=5 * SECOND_US, client=0, kind="submit", plan=0, orders=(shape,)),),
        faults=faults,
        rates=Rates(),
        stranger_us=stranger_us,
    )


def never_due(known: Callable[..., Any]) -> Callable[..., Any]:
    def due(self: Look, stage: str, **named: Any) -> Any:
        return [] if stage == "claim" else known(self, stage, **named)

    return due


WHOLE_RUN_US = 60 * SECOND_US


@pytest.mark.parametrize(
    ("fault", "waits_us"),
    [
        (None, 0),
        (FaultEvent(at_us=4 * SECOND_US, kind="store_away", length_us=25 * SECOND_US), 25 * SECOND_US),
        (FaultEvent(at_us=4 * SECOND_US, kind="freeze", length_us=25 * SECOND_US), 25 * SECOND_US),
        (FaultEvent(at_us=4 * SECOND_US, kind="host_sleep", length_us=25 * SECOND_US), 25 * SECOND_US),
    ],
    ids=lambda value: value.kind if isinstance(value, FaultEvent) else "",
)
def test_a_wait_counts_only_while_somebody_could_end_it(
    fault: FaultEvent | None, waits_us: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An order that nobody claims is told some seconds after it was ready, or after what kept everybody from it."""
    monkeypatch.setattr(Look, "due", never_due(Look.due))
    outcome = run(one_order(*(() if fault is None else (fault,))))
    assert "has a free slot" in outcome.problem, outcome.problem
    began_us = 5 * SECOND_US if fault is None else fault.at_us + waits_us
    late_us = outcome.simulated_us - began_us
    assert waits.CLAIMED_US < late_us < waits.CLAIMED_US + waits.STEADY_US + 3 * SECOND_US, late_us


def stands_still(seed: int) -> Scenario:
    """One order with a verifier, and two workers of one host, of which whichever verifies stands still meanwhile."""
    shape = OrderShape(place=0, attempt_time_us=2 * SECOND_US, verify=True)
    action = Action(at_us=SECOND_US, client=0, kind="submit", plan=0, orders=(shape,))
    return msgspec.structs.replace(
        one_order(),
        seed=seed,
        length_us=60 * SECOND_US,
        workers=((0, 1, -1), (0, 1, -1)),
        actions=(action,),
        rates=Rates(freeze_verifying=1_000_000),
    )


@pytest.mark.parametrize("take", ["no silent worker's", "none that is locked"])
def test_a_result_whose_worker_stands_still_as_it_verifies_is_not_left_to_it(
    take: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert [run(stands_still(seed)).problem for seed in range(3)] == ["", "", ""]
    if take == "no silent worker's":
        monkeypatch.setattr(finish, "estimated_now_us", lambda clock, reading: 0)
    else:
        monkeypatch.setattr(finish, "finish_lock", lambda attempt, late=False: f"{attempt}.finish.lock")
    found = [run(stands_still(seed)).problem for seed in range(3)]
    assert any("nobody brings its result to an end" in problem for problem in found), found


@pytest.mark.slow
def test_in_a_kind_world_every_wait_is_far_from_its_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the services need without a fault is less than half of what they are given: a bound is no chance."""
    longest: dict[str, float] = {}
    known = waits.Waits._conditions

    def conditions(self: waits.Waits) -> Any:
        for key, bound_us, words in known(self):
            waited_us = self._loop.now_us - self._since.get(key, self._loop.now_us)
            longest[key[0]] = max(longest.get(key[0], 0.0), waited_us / bound_us)
            yield key, bound_us, words

    monkeypatch.setattr(waits.Waits, "_conditions", conditions)
    for seed in range(12):
        assert not run(draw(seed, {ALL: 0})).problem
    assert longest and max(longest.values()) < 0.5, longest
