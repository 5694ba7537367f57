"""What a cancel does to each state that it may find an order in, and what it leaves alone (W19, G1)."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from fencepost.core import commands as c
from fencepost.core.records.attempt import AttemptMoved
from fencepost.core.records.plan import WorkOrderMoved
from tests.support.states import TASK, world_in
from tests.support.world import SECOND, World, draft


@pytest.mark.parametrize("state", ["reconciling", "unknown_terminal"])
def test_g1_while_an_effect_may_have_happened_nothing_is_cancelled(state: str) -> None:
    world = World()
    plan = world.submit(draft("a"), draft("b"))
    order = world.order("a")
    world.live.values[order.order] = replace(order, state=state)
    refusal = world.decide(c.CancelOrder(order=order.order)).refusal
    assert refusal is not None and (refusal.code, refusal.field) == ("order_state", "/order")
    assert refusal.detail == {"subject": order.order, "state": state, "needed": "an effect that is resolved"}
    decided = world.decide(c.CancelPlan(plan=plan))
    moved = {fact.subject for fact in decided.facts if isinstance(fact.body, WorkOrderMoved)}
    assert moved == {world.order("b").order}, "a plan's cancel passes it by"


@pytest.mark.parametrize(
    ("state", "path"),
    [
        ("reserved", ["cancelled_no_effect"]),
        ("active/leased", ["cancellation_requested", "cancelled_no_effect"]),
        ("active/running", ["cancellation_requested", "cancelled_no_effect"]),
        ("result_pending", ["rejected_stale"]),
        ("conflict", ["rejected_conflict"]),
        ("retry_wait", []),
        ("ready", []),
        ("blocked_dependency", []),
        ("blocked_budget", []),
    ],
)
def test_w19_a_cancel_ends_the_attempt_that_is_there_and_no_other(state: str, path: list[str]) -> None:
    world = world_in(state)
    order = world.order(TASK)
    decided = world.do(c.CancelOrder(order=order.order))
    assert decided.refusal is None and world.order(TASK).state == "cancelled"
    moved = [fact.body for fact in decided.facts if isinstance(fact.body, AttemptMoved)]
    assert [body.target for body in moved] == path
    world.check()


def test_w19_a_deadline_is_enforced_on_the_version_that_was_seen() -> None:
    world = World()
    plan = world.submit(draft("a"), deadline_us=SECOND)
    version = world.live.values[plan].version
    refusal = world.decide(c.EnforceDeadline(plan=plan, expected=version + 1)).refusal
    assert refusal is not None and (refusal.code, refusal.field) == ("version_moved", "/expected")
    assert refusal.detail == {"subject": plan, "found": str(version), "expected": str(version + 1)}


def test_w15_an_order_that_has_not_ended_or_has_told_everybody_tells_nobody() -> None:
    world = World()
    world.submit(draft("a"), draft("b", "a"))
    order = world.order("a").order
    first = world.decide(c.TellDependents(order=order))
    assert first.result == {"order": order, "done": True} and order not in first.values
    world.ok(c.CancelOrder(order=order))
    again = world.decide(c.TellDependents(order=order))
    assert again.result == {"order": order, "done": True} and order not in again.values
