"""From a failing run to the shortest one that still fails the same way, piece by piece."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import msgspec
from msgspec.structs import replace

from fencepost.testing.simulator.authors import NO_PARTS, Parts
from fencepost.testing.simulator.scenario import SECOND_US, Action, OrderShape, Scenario, without_order
from fencepost.testing.simulator.world import Outcome, World

RUNS_MAX = 600
OTHER_ORDERS = 2  # how many other orders of steps are tried with a smaller scenario before it counts as well

_ID = re.compile(r"[a-z]+_[0-9a-f]{6,32}")
_NUMBER = re.compile(r"\d+")


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """A failing run as it is kept: enough to run it again, and to read it."""

    problem: str
    scenario: Scenario
    runs: int = 0  # that it took to make it this small
    story: list[str] = []


def signature(problem: str) -> str:
    """What stays the same of a problem when ids and numbers change."""
    first = problem.splitlines()[0] if problem else ""
    return _NUMBER.sub("N", _ID.sub("ID", first))


def run(scenario: Scenario, *, with_story: bool = False, parts: Parts = NO_PARTS) -> Outcome:
    """One run; a store of an author's is made for it, and closed after it."""
    world = World(scenario, with_story=with_story, parts=parts)
    try:
        return world.run()
    finally:
        world.disk.engine.close()


class Shrinker:
    """Tries smaller scenarios until none of them fails any more, or until `runs_max` were tried."""

    def __init__(
        self,
        scenario: Scenario,
        *,
        runs_max: int = RUNS_MAX,
        tell: Callable[[str], None] = print,
        keep: Callable[[Failure], None] | None = None,
        parts: Parts = NO_PARTS,
    ) -> None:
        """`keep` is handed what is there at once, and whenever it became smaller: an interrupt loses nothing."""
        self._best = scenario
        self._runs_max = self._left = runs_max
        self._tell = tell
        self._keep = keep
        self.runs = 0
        self._parts = parts
        self._outcome = run(scenario, parts=parts)
        self._wanted = signature(self._outcome.problem)
        self._hand_over()

    def shrink(self) -> Failure:
        if self._wanted:
            self._cut()
            improved = True
            while improved and self._left > 0:
                improved = any([self._try_all(step) for step in _STEPS])
        told = run(self._best, with_story=True, parts=self._parts)
        return Failure(problem=told.problem, scenario=self._best, runs=self.runs, story=told.story)

    def _hand_over(self) -> None:
        if self._keep is not None and self._wanted:
            self._keep(Failure(problem=self._outcome.problem, scenario=self._best, runs=self.runs))

    def _cut(self) -> None:
        """Leave out what comes after the failure: it costs time and tells nothing."""
        end_us = self._outcome.simulated_us + 1
        if end_us < self._best.length_us:
            self._fails(_until(self._best, end_us))

    def _try_all(self, step: Callable[[Scenario], Iterator[Scenario]]) -> bool:
        """Take over the first smaller scenario of a kind that still fails, as often as there is one."""
        improved = False
        going_on = True
        while going_on and self._left > 0:
            going_on = False
            for smaller in step(self._best):
                if self._left <= 0:
                    break
                if self._fails(smaller):
                    going_on = improved = True
                    break
        return improved

    def _fails(self, smaller: Scenario) -> bool:
        for number in range(1 + OTHER_ORDERS):
            candidate = replace(smaller, seed=smaller.seed + number * 1_000_003)
            self._left -= 1
            self.runs += 1
            outcome = run(candidate, parts=self._parts)
            if signature(outcome.problem) == self._wanted:
                self._best, self._outcome = candidate, outcome
                self._tell(f"{self.runs} of {self._runs_max}: {size(candidate)}, {outcome.steps} steps")
                self._hand_over()
                return True
            if self._left <= 0:
                return False
        return False


def size(scenario: Scenario) -> str:
    orders = sum(len(action.orders) for action in scenario.actions)
    return (
        f"{len(scenario.drifts_ppm)} hosts, {len(scenario.workers)} workers, {len(scenario.actions)} actions, "
        f"{orders} orders, {len(scenario.faults)} faults"
    )


def _halves(count: int) -> Iterator[range]:
    """Ranges to leave out: halves first, then quarters, down to single ones."""
    length = count
    while length:
        for start in range(0, count, length):
            yield range(start, min(start + length, count))
        length //= 2


def _fewer_faults(scenario: Scenario) -> Iterator[Scenario]:
    for gone in _halves(len(scenario.faults)):
        yield replace(scenario, faults=tuple(each for at, each in enumerate(scenario.faults) if at not in gone))


def _fewer_rates(scenario: Scenario) -> Iterator[Scenario]:
    for name, rate in msgspec.structs.asdict(scenario.rates).items():
        if rate:
            yield replace(scenario, rates=scenario.rates.without(name))


def _usual_pages(scenario: Scenario) -> Iterator[Scenario]:
    if scenario.small_pages:
        yield replace(scenario, small_pages=False)


def _no_stranger(scenario: Scenario) -> Iterator[Scenario]:
    if scenario.stranger_us:
        yield replace(scenario, stranger_us=0)


def _fewer_actions(scenario: Scenario) -> Iterator[Scenario]:
    for gone in _halves(len(scenario.actions)):
        yield replace(scenario, actions=tuple(each for at, each in enumerate(scenario.actions) if at not in gone))


def _fewer_workers(scenario: Scenario) -> Iterator[Scenario]:
    if len(scenario.workers) > 1:
        for gone in range(len(scenario.workers)):
            yield replace(scenario, workers=tuple(each for at, each in enumerate(scenario.workers) if at != gone))
    for place, (host, jobs, plan) in enumerate(scenario.workers):
        for simpler in ((host, jobs // 2, plan), (host, jobs, -1)):
            if simpler[1] and simpler != scenario.workers[place]:
                yield replace(scenario, workers=(*scenario.workers[:place], simpler, *scenario.workers[place + 1 :]))


def _fewer_hosts(scenario: Scenario) -> Iterator[Scenario]:
    if len(scenario.drifts_ppm) > 1:
        yield replace(scenario, drifts_ppm=scenario.drifts_ppm[:-1], utc_offsets_us=scenario.utc_offsets_us[:-1])
    if any(scenario.drifts_ppm) or any(scenario.utc_offsets_us):
        none = (0,) * len(scenario.drifts_ppm)
        yield replace(scenario, drifts_ppm=none, utc_offsets_us=none)


def _fewer_clients(scenario: Scenario) -> Iterator[Scenario]:
    if scenario.clients > 1:
        yield replace(scenario, clients=1, actions=tuple(replace(each, client=0) for each in scenario.actions))


def _with(scenario: Scenario, place: int, action: Action) -> Scenario:
    return replace(scenario, actions=(*scenario.actions[:place], action, *scenario.actions[place + 1 :]))


def _fewer_orders(scenario: Scenario) -> Iterator[Scenario]:
    for place, action in enumerate(scenario.actions):
        for gone in _halves(len(action.orders)):
            smaller = action
            for shape in action.orders[gone.start : gone.stop]:
                smaller = without_order(smaller, shape.place)
            if smaller.orders:
                yield _with(scenario, place, smaller)


_PLAIN = OrderShape(place=0)


def _plainer_orders(scenario: Scenario) -> Iterator[Scenario]:
    for place, action in enumerate(scenario.actions):
        if action.ceilings and action.kind == "submit":
            yield _with(scenario, place, replace(action, ceilings=()))
        if action.deadline_us is not None:
            yield _with(scenario, place, replace(action, deadline_us=None))
        for at, shape in enumerate(action.orders):
            for simpler in _plainer(shape):
                orders = (*action.orders[:at], simpler, *action.orders[at + 1 :])
                yield _with(scenario, place, replace(action, orders=orders))


def _plainer(shape: OrderShape) -> Iterator[OrderShape]:
    for field in OrderShape.__struct_fields__:
        plain = getattr(_PLAIN, field)
        if field != "place" and getattr(shape, field) != plain:
            yield replace(shape, **{field: plain})
    if len(shape.says) > 1:
        for gone in shape.says:
            yield replace(shape, says=tuple(each for each in shape.says if each != gone))


def _shorter(scenario: Scenario) -> Iterator[Scenario]:
    """Without what comes after the middle, and with less to wait for."""
    for part in (2, 4):
        shorter_us = scenario.length_us - scenario.length_us // part
        if shorter_us >= SECOND_US:
            yield _until(scenario, shorter_us)


def _until(scenario: Scenario, end_us: int) -> Scenario:
    return replace(
        scenario,
        length_us=end_us,
        actions=tuple(each for each in scenario.actions if each.at_us <= end_us),
        faults=tuple(each for each in scenario.faults if each.at_us <= end_us),
    )


_STEPS: tuple[Callable[[Scenario], Iterator[Scenario]], ...] = (
    _shorter,
    _no_stranger,
    _usual_pages,
    _fewer_faults,
    _fewer_actions,
    _fewer_rates,
    _fewer_orders,
    _fewer_workers,
    _fewer_hosts,
    _fewer_clients,
    _plainer_orders,
)
