"""What receipts are worth: of results, of late ones, of those that say they do not know (W18; lifecycle, 8)."""

from __future__ import annotations

from typing import Any

import pytest

from fencepost.core import commands as c
from fencepost.core.decide import Batch, ending
from fencepost.core.limits import Limits
from fencepost.core.records.budget import HoldSettled
from fencepost.core.records.common import Usage
from fencepost.core.records.plan import Acceptance, WorkOrderMoved
from fencepost.core.state import HoldState
from fencepost.core.strictjson import INT_MAX
from tests.support.states import TASK, gone, world_in
from tests.support.world import SECOND, World, draft


def hold(held: dict[str, int], *receipts: str) -> HoldState:
    return HoldState(
        version=1,
        hold="hold_1",
        attempt="attempt_1",
        order="order_1",
        accounts=("scope",),
        state="held",
        held=held,
        receipts=receipts,
    )


def usage(receipt: str, *unknown: str, **amounts: int) -> Usage:
    return Usage(receipt=receipt, provider="shop", amounts=amounts, unknown=unknown)


def nothing_booked() -> Batch:
    world = World()
    return Batch(world, world.given(), len(world.facts) + 1)


def test_w18_receipts_are_added_up_each_once_and_those_that_are_booked_not_at_all() -> None:
    found = ending.used(
        nothing_booked(),
        [usage("1", calls=2), usage("2", calls=3, tokens_input=1), usage("1", calls=2), usage("0", calls=9)],
        hold({"calls": 9}, "shop:0"),
    )
    assert found == ({"calls": 5, "tokens_input": 1}, ("shop:1", "shop:2"), False)


def test_w18_what_is_unknown_is_charged_as_it_is_held_or_as_others_say_if_that_is_more() -> None:
    held = hold({"calls": 4, "tokens_input": 4, "tokens_output": 0})
    found = ending.used(nothing_booked(), [usage("1", "calls"), usage("2", "tokens_input", tokens_input=9)], held)
    assert found == ({"calls": 4, "tokens_input": 9}, ("shop:1", "shop:2"), True)
    assert ending.used(nothing_booked(), [usage("1", "calls", calls=1)], held).amounts == {"calls": 4}
    nothing = ending.used(nothing_booked(), [usage("1", "tokens_output", "time_us")], held)
    assert nothing == ({}, ("shop:1",), False), "nothing is held of these, so nothing is estimated"


def test_w18_no_sum_is_past_what_can_be_counted_and_none_is_zero() -> None:
    found = ending.used(nothing_booked(), [usage("1", calls=INT_MAX, tokens_input=0), usage("2", calls=5)], hold({}))
    assert found.amounts == {"calls": INT_MAX}


def settled(world: World) -> HoldSettled:
    return next(fact.body for fact in reversed(world.facts) if isinstance(fact.body, HoldSettled))


@pytest.mark.parametrize(
    ("usages", "duration_us", "charged"),
    [
        ((), 5, {"time_us": 5}),
        ((usage("1", calls=1),), 5, {"calls": 1, "time_us": 5}),
        ((usage("1", time_us=3),), 5, {"time_us": 3}),
        ((usage("1", calls=1), usage("2", time_us=3)), 5, {"calls": 1, "time_us": 3}),
        ((usage("1", "time_us"),), 5, {"time_us": 30 * SECOND}),
        ((usage("1", calls=1),), 0, {"calls": 1}),
        ((), 0, {}),
    ],
)
def test_w18_time_is_what_a_receipt_says_or_what_was_measured_and_never_both(
    usages: tuple[Usage, ...], duration_us: int, charged: dict[str, int]
) -> None:
    world = World()
    world.submit(draft("a"))
    world.finish("a", usage=usages, duration_us=duration_us)
    assert settled(world).charged == charged
    assert settled(world).basis == "receipts"


@pytest.mark.parametrize(("verified_us", "time"), [(0, {}), (7, {"time_us": 7})])
def test_w18_a_verifiers_time_is_charged_with_its_result(verified_us: int, time: dict[str, int]) -> None:
    world = World()
    world.submit(draft("a", accept=Acceptance(verify=("check",))))
    attempt = world.activate("a")
    world.ok(world.result(attempt, usage=(), duration_us=0))
    result = world.live.values[attempt.attempt].result
    world.ok(c.RecordVerification(attempt=attempt.attempt, result=result, outcome="passed", duration_us=verified_us))
    world.ok(c.ApplyResult(attempt=attempt.attempt))
    assert settled(world).charged == time


def late(world: World, usages: tuple[Usage, ...]) -> Any:
    attempt = world.attempt_of(world.order(TASK))
    return world.do(world.result(attempt, usage=usages))


def test_w17_a_late_receipt_that_says_nothing_of_time_leaves_the_held_time_as_an_estimate() -> None:
    world = world_in("cancelled/live")
    late(world, (usage("1", calls=2),))
    body = settled(world)
    assert body.charged == {"calls": 2, "time_us": 30 * SECOND}
    assert (body.flagged, body.estimated_us, body.receipts) == (True, 30 * SECOND, ("shop:1",))
    named = world_in("cancelled/live")
    late(named, (usage("1", calls=2, time_us=3),))
    body = settled(named)
    assert (body.charged, body.flagged, body.estimated_us) == ({"calls": 2, "time_us": 3}, False, 0)


def test_w17_nothing_is_ever_charged_for_an_attempt_that_was_never_activated() -> None:
    world = World()
    world.submit(draft("a"))
    held = world.reserve("a")
    world.ok(c.ReleaseReservation(attempt=held.attempt, fence=held.fence))
    before = world.live.values[held.hold]
    assert before.state == "released"
    refusal = world.do(
        world.result(held, world.facts_of(world.attempt_of(world.order("a")), usage=(usage("1", calls=2),)))
    )
    assert refusal.refusal is not None
    assert world.live.values[held.hold] == before and world.order("a").account.charged == {}


def moves(world: World, task: str) -> list[WorkOrderMoved]:
    order = world.order(task).order
    return [fact.body for fact in world.facts if fact.subject == order and isinstance(fact.body, WorkOrderMoved)]


def test_w18_an_order_that_ends_for_want_of_budget_says_because_of_what() -> None:
    world = World()
    world.submit(draft("a", attempts=1))
    attempt = world.activate("a")
    world.ok(
        c.ProveHolderGone(
            attempt=attempt.attempt,
            fence=attempt.fence,
            host=attempt.host,
            boot_id=attempt.boot_id,
            basis="locks_free",
            evidence="",
        )
    )
    assert (moves(world, "a")[-1].target, moves(world, "a")[-1].cause) == ("budget_exhausted", attempt.attempt)
    blocked = world_in("blocked_budget")
    order = blocked.order(TASK)
    blocked.ok(c.SetBudget(account=order.plan or "", ceilings={"time_us": SECOND}))
    told = blocked.ok(c.Reexamine(order=order.order, expected=order.version))
    assert told == {"order": order.order, "state": "budget_exhausted"}
    assert (moves(blocked, TASK)[-1].reason, moves(blocked, TASK)[-1].cause) == ("budget_exhausted", "")


def test_w18_a_ceiling_that_a_plan_is_given_later_is_shared_by_its_orders() -> None:
    world = World()
    plan = world.submit(draft("a", attempts=9), draft("b"), draft("c"))
    world.ok(c.SetBudget(account=plan, ceilings={"calls": 9}))
    attempt = world.reserve("a")
    assert world.live.values[attempt.hold].held["calls"] == 3
    alone = World()
    name = alone.ok(c.SubmitOrder(order=draft("x", ceilings={})))["order"]
    alone.ok(c.SetBudget(account=name, ceilings={"calls": 9}))
    alone.ok(c.ReserveNext(worker=alone.worker(), count=1))
    held = alone.live.values[alone.live.values[alone.live.values[name].attempt].hold].held
    assert held["calls"] == 9


def test_w15_one_batch_tells_as_many_dependents_as_the_bound() -> None:
    world = World(Limits(fanout_per_batch=1))
    world.submit(draft("a"), draft("b", "a"), draft("c", "a"))
    world.ok(c.CancelOrder(order=world.order("a").order))
    assert [world.order(task).state for task in "bc"] == ["dependency_failed", "blocked_dependency"]
    assert world.order("a").told == 0 and not world.order("a").told_done
    chain = World(Limits(fanout_per_batch=2))
    chain.submit(draft("a"), draft("b", "a"), draft("c", "b"), draft("d", "c"))
    chain.ok(c.CancelOrder(order=chain.order("a").order))
    assert [chain.order(task).state for task in "bcd"] == [
        "dependency_failed",
        "dependency_failed",
        "blocked_dependency",
    ]


def test_w15_an_end_is_carried_past_those_that_nobody_waits_for() -> None:
    world = World()
    world.submit(draft("a"), draft("b", "a"), draft("c", "a"), draft("d", "c"))
    world.ok(c.CancelOrder(order=world.order("a").order))
    assert [world.order(task).state for task in "bcd"] == ["dependency_failed"] * 3


def test_w15_a_dependent_that_ended_by_itself_learns_nothing_and_tells_its_own_in_its_own_time() -> None:
    world = World(Limits(fanout_per_batch=1))
    world.submit(draft("a"), draft("b", "a"), draft("c", "b"), draft("d", "b"))
    world.ok(c.CancelOrder(order=world.order("b").order))
    assert world.order("d").state == "blocked_dependency", "the bound is used up by the first"
    world.limits = Limits()
    world.ok(c.CancelOrder(order=world.order("a").order))
    assert world.order("d").state == "blocked_dependency", "its need has a cursor of its own"
    world.settle()
    assert world.order("d").state == "dependency_failed"


@pytest.mark.parametrize(("late_us", "code"), [(-1, ""), (0, "deadline_passed")])
def test_w19_a_plan_is_over_from_the_very_moment_of_its_deadline(late_us: int, code: str) -> None:
    world = World()
    world.submit(draft("a"), deadline_us=3 * SECOND)
    world.advance(3 * SECOND + late_us)
    order = world.order("a")
    reserve = c.Reserve(order=order.order, expected=order.version, worker=world.worker())
    assert world.refused(reserve) == code


def test_w17_late_events_are_no_receipts() -> None:
    """An event kept as late stands beside late results; only those are booked when the hold's end is proved."""
    world = world_in("active/running")
    attempt = world.attempt_of(world.order(TASK))
    world.advance(12 * SECOND)
    world.do(world.event(attempt, "heartbeat_observed"))
    world.do(world.result(attempt, usage=(usage("1", calls=2),)))
    world.ok(world.expiry(attempt))
    assert settled(world).charged["calls"] == 2 and settled(world).receipts == ("shop:1",)
    cancelled = world_in("active/running")
    attempt = cancelled.attempt_of(cancelled.order(TASK))
    cancelled.advance(12 * SECOND)
    cancelled.do(cancelled.event(attempt, "heartbeat_observed"))
    cancelled.do(cancelled.result(attempt, usage=(usage("1", calls=2),)))
    cancelled.ok(c.CancelOrder(order=cancelled.order(TASK).order))
    assert settled(cancelled).charged == {"calls": 2, "time_us": 30 * SECOND}


def test_w18_an_attempt_that_was_lost_leaves_its_order_what_it_has() -> None:
    world = World()
    world.submit(draft(TASK, attempts=2))
    gone(world, TASK)
    assert world.order(TASK).state == "ready"
