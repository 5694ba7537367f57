"""Dependency verdicts: the order in which orders finish never matters (W15).

A plan is a random graph with groups of every kind, and for each task how its own work ends once it may run. What
becomes of every task then follows from the graph alone: `expected` says it by the words of the lifecycle page, task
by task, and shares nothing with the kernel. The plan is then carried out in many orders, with attempts that overlap,
cancels that come early or late, and ends that are told to dependents page by page whenever it suits; small plans in
every order that there is. Each time the same states, the same reasons, the same accounts and the same counts must
come out; ids, sequence numbers and versions may differ.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fencepost.core import commands as c
from fencepost.core.canonical import digest_of
from fencepost.core.limits import Limits
from fencepost.core.machines import ENDED
from fencepost.core.readiness import verdict, verdict_of_all
from fencepost.core.records.plan import Outcome
from fencepost.core.state import SCOPE, GroupState, OrderState, PlanState
from tests.conftest import profile_name
from tests.support.states import gone
from tests.support.world import SECOND, World, draft, group

TASKS = ("a", "b", "c", "d", "e", "f")
SMALL = Limits(fanout_per_batch=2, cancel_per_batch=2, page_max=3)
WIDE = Limits()
EXAMPLES = settings.get_profile(profile_name()).max_examples
pytestmark = pytest.mark.timeout(3_600 if profile_name() == "nightly" else 120)
OUTCOMES: tuple[tuple[Outcome, ...], ...] = (
    ("applied",),
    ("failed",),
    ("applied", "failed"),
    ("cancelled", "dependency_failed"),
    ("budget_exhausted",),
    ("applied", "failed", "cancelled", "dependency_failed", "budget_exhausted"),
)
ENDS = ("applied", "failed", "cancelled", "budget_exhausted")


class Need(NamedTuple):
    kind: str
    members: tuple[str, ...]
    outcomes: tuple[Outcome, ...]


class Task(NamedTuple):
    name: str
    needs: tuple[Need, ...]
    end: str  # of its own work, once it may run
    may_fail: bool


Plan = tuple[Task, ...]


@st.composite
def plans(draw: st.DrawFn, most: int = len(TASKS)) -> Plan:
    tasks: list[Task] = []
    for place, name in enumerate(TASKS[: draw(st.integers(2, most))]):
        needs = []
        for _ in range(draw(st.integers(0, min(place, 3)))):
            members = draw(st.lists(st.sampled_from(TASKS[:place]), min_size=1, max_size=3, unique=True))
            kind = draw(st.sampled_from(["required", "required", "alternative", "optional"]))
            needs.append(Need(kind, tuple(members), draw(st.sampled_from(OUTCOMES))))
        tasks.append(Task(name, tuple(needs), draw(st.sampled_from(ENDS)), draw(st.booleans())))
    return tuple(tasks)


def expected(plan: Plan) -> dict[str, str]:
    """What becomes of each task, by the words of the lifecycle page."""
    became: dict[str, str] = {}
    for task in plan:
        lost = False
        for need in task.needs:
            inside = [became[member] in need.outcomes for member in need.members]
            lost = lost or (need.kind == "required" and not all(inside))
            lost = lost or (need.kind == "alternative" and not any(inside))
        became[task.name] = "dependency_failed" if lost else task.end
    return became


# Carrying a plan out


def begun(plan: Plan, limits: Limits = SMALL) -> World:
    world = World(limits)
    world.submit(
        *(
            draft(
                task.name,
                *(group(need.kind, *need.members, outcomes=need.outcomes) for need in task.needs),
                attempts=1,
                may_fail=task.may_fail,
            )
            for task in plan
        )
    )
    for number in range(1, 4):
        world.worker(number, host=f"host-{number}")
    return world


Step = Callable[[World], None]


def _apply(world: World, task: Task) -> None:
    world.ok(c.ApplyResult(attempt=world.attempt_of(world.order(task.name)).attempt))


def _cancel(world: World, task: Task) -> None:
    world.ok(c.CancelOrder(order=world.order(task.name).order))


def _lose(world: World, task: Task) -> None:
    gone(world, task.name)


def _activate(world: World, task: Task) -> None:
    world.activate(task.name)


def _tell(world: World, task: Task) -> None:
    world.ok(c.TellDependents(order=world.order(task.name).order))


def _report(world: World, task: Task) -> None:
    attempt = world.attempt_of(world.order(task.name))
    failing: dict[str, Any] = {
        "outcome": "failed",
        "exit_code": 1,
        "failure": "executor",
        "message_code": "exit_code_unexpected",
    }
    world.ok(world.result(attempt, **(failing if task.end == "failed" else {})))


def steps_now(world: World, plan: Plan) -> list[Step]:
    """What may be done next: each task's own next step, and telling whoever waits to be told."""
    found: list[Step] = []
    for task in plan:
        order = world.order(task.name)
        if order.state == "ready":
            found.append(partial(_lose if task.end == "budget_exhausted" else _activate, task=task))
        elif order.state == "active" and task.end != "cancelled":
            found.append(partial(_report, task=task))
        elif order.state == "result_pending":
            found.append(partial(_apply, task=task))
        if order.state in ("ready", "active") and task.end == "cancelled":
            found.append(partial(_cancel, task=task))
        if order.state in ENDED and not order.told_done:
            found.append(partial(_tell, task=task))
    return found


def picture(world: World, plan: Plan) -> dict[str, Any]:
    """Where a plan has come to, without ids, sequence numbers and versions.

    A group's counts are left out: an order that no longer waits learns of no further end.
    """
    tasks: dict[str, Any] = {}
    for task in plan:
        order = world.order(task.name)
        tasks[task.name] = {
            "state": order.state,
            "reason": order.reason,
            "contract": order.contract,
            "verdict": verdict_of_all(order.groups),
            "tried": order.ordinal if task.end != "cancelled" else 0,  # a cancel may come before or after the start
            "failures": order.failures,
            "charged": dict(order.account.charged) if task.end != "cancelled" else {},
            "told": (order.dependents, order.told, order.told_done),
            "moved_us": order.moved_us,
        }
    [state] = [value for value in world.live.values.values() if isinstance(value, PlanState)]
    return {"tasks": tasks, "plan": [state.orders, state.open, state.applied, state.lost]}


def settled(world: World) -> None:
    """Settle what cancelled attempts left open, so that accounts can be compared."""
    for value in list(world.live.values.values()):
        if isinstance(value, OrderState) and value.attempt is not None:
            hold = world.live.values[world.live.values[value.attempt].hold]
            if hold.state == "unsettled":
                world.advance(max(hold.settle_by_us - world.now_us, 0) + SECOND)
                world.ok(c.SettleHold(hold=hold.hold, expected=hold.version))


def require_outcome(world: World, plan: Plan) -> dict[str, Any]:
    """The plan has come to an end, and to the one that the graph says."""
    became = expected(plan)
    for task in plan:
        order = world.order(task.name)
        assert order.state == became[task.name], f"{task.name} is {order.state}, not {became[task.name]}"
    found = picture(world, plan)
    settled(world)
    world.check()
    for subject in (SCOPE, *(world.order(task.name).order for task in plan)):
        assert not world.live.values[subject].account.held, f"{subject} still holds something"
    return found


def finished(plan: Plan, choose: Callable[[int], int], limits: Limits) -> dict[str, Any]:
    """Carry the plan out, choosing among what may be done until nothing may."""
    world = begun(plan, limits)
    for _ in range(100):
        steps = steps_now(world, plan)
        if not steps:
            return require_outcome(world, plan)
        steps[choose(len(steps))](world)
    raise AssertionError("the plan does not come to an end")


@settings(max_examples=EXAMPLES)
@given(plan=plans(), data=st.data())
def test_w15_the_order_of_finishing_never_matters(plan: Plan, data: st.DataObject) -> None:
    first = finished(plan, lambda count: 0, WIDE)
    last = finished(plan, lambda count: count - 1, SMALL)
    choices = data.draw(st.lists(st.integers(0, 11), min_size=1, max_size=60))
    turn = itertools.cycle(choices)
    drawn = finished(plan, lambda count: next(turn) % count, SMALL)
    assert digest_of(first) == digest_of(last) == digest_of(drawn), (first, last, drawn)


def _all_ends(world: World, plan: Plan, left: list[int]) -> Iterator[World]:
    """Every way to go on, depth first; no more of them than `left` says."""
    steps = steps_now(world, plan)
    if not steps:
        left[0] -= 1
        yield world
    for step in steps:
        if left[0] > 0:
            other = world.fork()
            step(other)
            yield from _all_ends(other, plan, left)


WAYS_MAX = 60 if profile_name() != "nightly" else 5_000


@settings(max_examples=max(EXAMPLES // 10, 5))
@given(plan=plans(most=4))
def test_w15_every_way_through_a_small_plan_ends_alike(plan: Plan) -> None:
    quick = tuple(task._replace(end="budget_exhausted" if task.end == "failed" else task.end) for task in plan)
    found = {digest_of(require_outcome(world, quick)) for world in _all_ends(begun(quick), quick, [WAYS_MAX])}
    assert len(found) == 1


counts = st.builds(
    lambda kind, satisfied, unsatisfied, rest: GroupState(
        kind=kind, total=max(satisfied + unsatisfied + rest, 1), satisfied=satisfied, unsatisfied=unsatisfied
    ),
    st.sampled_from(["required", "alternative", "optional"]),
    st.integers(0, 5),
    st.integers(0, 5),
    st.integers(0, 5),
)


@settings(max_examples=EXAMPLES * 5)
@given(state=counts, satisfies=st.booleans())
def test_w15_a_verdict_once_given_never_changes(state: GroupState, satisfies: bool) -> None:
    """So that it may be acted upon at once, whatever else ends later."""
    known = verdict(state)
    ended = state.satisfied + state.unsatisfied
    if ended == state.total:
        assert known != "open", "all have ended, and nothing follows"
        return
    after = GroupState(
        kind=state.kind,
        total=state.total,
        satisfied=state.satisfied + satisfies,
        unsatisfied=state.unsatisfied + (not satisfies),
    )
    assert known in ("open", verdict(after))


@settings(max_examples=EXAMPLES * 5)
@given(state=counts)
def test_w15_a_verdict_is_given_as_soon_as_it_is_certain(state: GroupState) -> None:
    """Nothing waits for ends that cannot change it. An optional group waits for all of its members, by its meaning."""
    rest = state.total - state.satisfied - state.unsatisfied
    ends = {
        verdict(
            GroupState(
                kind=state.kind,
                total=state.total,
                satisfied=state.satisfied + satisfied,
                unsatisfied=state.unsatisfied + rest - satisfied,
            )
        )
        for satisfied in range(rest + 1)
    }
    waits = rest > 0 if state.kind == "optional" else len(ends) > 1
    assert (verdict(state) == "open") == waits


@settings(max_examples=EXAMPLES)
@given(states=st.lists(counts, max_size=4), data=st.data())
def test_w15_groups_are_judged_together_in_any_order(states: list[GroupState], data: st.DataObject) -> None:
    shuffled = data.draw(st.permutations(states))
    assert verdict_of_all(shuffled) == verdict_of_all(states)
    each = {verdict(state) for state in states}
    known = verdict_of_all(states)
    assert known == ("fails" if "fails" in each else "open" if "open" in each else "holds")
