"""What is shown: every pending item explains itself, and the documents say what the states say (W13, W28, X3)."""

from __future__ import annotations

import pytest

from fencepost.core import commands as c
from fencepost.core.limits import Limits
from fencepost.core.machines import ENDED
from fencepost.core.state import AttemptState
from fencepost.core.views import (
    account_document,
    attempt_document,
    held_up_by_clock,
    only_a_person_can_move,
    order_document,
    plan_outcome,
    waits_for_person,
    why,
)
from tests.support.states import BUILDERS, TASK, world_in
from tests.support.world import SECOND, World, draft


@pytest.mark.parametrize("state", BUILDERS)
def test_x3_every_order_explains_itself_in_one_sentence_with_a_next_step(state: str) -> None:
    world = world_in(state)
    order = world.order("a")
    told = why(order)
    assert told["reason"] == order.reason and told["message"].endswith(".") and told["next"]
    assert told["ended"] == (order.state in ENDED)
    document = order_document(order, None)
    assert (document["state"], document["reason"], document["effects"]) == (order.state, order.reason, [])
    assert document["charged"]["time_us"] == order.account.charged.get("time_us", 0)
    if order.attempt:
        shown = attempt_document(world.attempt_of(order))
        assert shown["attempt"] == order.attempt and shown["reason"] == world.attempt_of(order).reason


def test_w15_who_waits_behind_a_persons_decision_says_so() -> None:
    world = world_in("conflict")
    conflict, after = world.order("a"), world.order("after")
    assert waits_for_person(conflict) and not waits_for_person(after)
    assert why(after)["reason"] == "waiting_for_dependencies"
    assert why(after, undecided=True)["reason"] == "dependency_undecided"
    assert why(conflict, undecided=True)["reason"] == "results_differ"
    plan = world.live.values[conflict.plan or ""]
    orders = [world.order(task) for task in ("first", "a", "after", "cleanup")]
    assert (
        not only_a_person_can_move(orders, world.clock, world.get)
        and plan_outcome(plan, orders, world.clock, world.get) == "open"
    )
    world.finish("first")
    orders = [world.order(task) for task in ("first", "a", "after", "cleanup")]
    assert (
        only_a_person_can_move(orders, world.clock, world.get)
        and plan_outcome(plan, orders, world.clock, world.get) == "waiting"
    )


def _running(world: World, task: str) -> AttemptState:
    attempt = world.activate(task)
    world.ok(world.event(attempt, "execution_started"))
    return world.attempt_of(world.order(task))


def test_w15_nobody_need_act_while_an_end_has_not_been_told_to_everyone() -> None:
    """A child asks a person, and the end of its parent is on its way to it: it is cancelled without an answer."""
    world = World(limits=Limits(fanout_per_batch=1))
    world.submit(draft("a"), draft("after", "a"))
    attempt = world.activate("a")
    child = world.ok(world.child(attempt, draft("kid")))["order"]
    world.ok(world.yielding(_running(world, "a.kid"), question="colour"))
    world.ok(c.CancelOrder(order=world.order("a").order))
    orders = [world.order(task) for task in ("a", "after", "a.kid")]
    assert [order.state for order in orders] == ["cancelled", "dependency_failed", "waiting"]
    assert waits_for_person(orders[2]) and not only_a_person_can_move(orders, world.clock, world.get)
    world.ok(c.TellDependents(order=world.order("a").order))
    assert world.live.values[child].state == "cancelled"


def test_w19_nobody_need_act_while_a_cancel_is_on_its_way() -> None:
    world = World(limits=Limits(cancel_per_batch=1))
    world.submit(draft("a"), draft("b"))
    for task in ("a", "b"):
        world.ok(world.yielding(_running(world, task), question="colour"))
    assert only_a_person_can_move([world.order("a"), world.order("b")], world.clock, world.get)
    world.ok(c.CancelPlan(plan=world.order("a").plan or ""))
    orders = [world.order("a"), world.order("b")]
    assert [order.state for order in orders] == ["cancelled", "waiting"]
    assert not only_a_person_can_move(orders, world.clock, world.get)


def doubt(world: World) -> None:
    world.tick_us += SECOND
    world.utc_us += 61 * SECOND
    world.observe()


def test_w8_an_attempt_that_outlived_its_lease_waits_for_the_person_whom_the_clock_waits_for() -> None:
    """It can neither report any more nor be ended while the clock is in doubt: `run` says so and does not wait."""
    world = world_in("active/running")
    known = world.attempt_of(world.order(TASK))
    orders = [world.order(TASK)]
    doubt(world)
    assert not only_a_person_can_move(orders, world.clock, world.get), "its lease goes on, and it may report"
    assert not held_up_by_clock(orders[0], world.clock, world.get)
    world = world_in("active/running")
    world.advance(known.lease_us - world.now_us)
    doubt(world)
    orders = [world.order(TASK)]
    assert world.refused(world.result(known)) == "rejected_stale"
    assert world.refused(world.expiry(known)) == "clock_blocked"
    assert only_a_person_can_move(orders, world.clock, world.get)
    assert held_up_by_clock(orders[0], world.clock, world.get)


def test_accounts_show_what_is_left_even_below_zero() -> None:
    world = world_in("active/running")
    account = world.live.values[world.order("a").order].account
    shown = account_document("a", account)["dimensions"]
    assert shown["attempts"] == {"ceiling": 3, "held": 0, "charged": 1, "available": 2, "unknown": 0}
    assert shown["time_us"] == {"ceiling": None, "held": 30 * SECOND, "charged": 0, "available": None, "unknown": 0}
