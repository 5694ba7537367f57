"""What makes work findable, row by row: the stage, the group, when it is due, and what comes before what (W15)."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from fencepost.core import commands as c
from fencepost.core.deadlines import effective_end_us, has_lapsed, is_past
from fencepost.core.index import Row, difference, rows_of
from fencepost.core.limits import HOUR_US, MINUTE_US
from tests.support.states import TASK, world_in
from tests.support.world import SECOND, World, draft


def found(world: World, task: str) -> list[tuple[str, str, int, int]]:
    order = world.order(task)
    rows = rows_of(order)
    assert {row.subject for row in rows} == {order.order}
    return [(row.stage, row.group, row.due_us, row.rank) for row in rows]


@pytest.mark.parametrize(("priority", "ahead_us"), [("low", 0), ("normal", 10 * MINUTE_US), ("high", HOUR_US)])
def test_w15_a_ready_order_stands_in_the_queue_by_its_priority_and_its_place(priority: str, ahead_us: int) -> None:
    world = World()
    plan = world.submit(draft("first"), draft("a", priority=priority))
    seq = world.order("a").spec_seq
    assert found(world, "a") == [
        ("task", plan, 1, seq),
        ("claim", plan, world.now_us - ahead_us, (1 << 40) | seq),
    ]


def test_w15_a_blocked_order_keeps_the_place_that_it_had() -> None:
    world = world_in("blocked_budget")
    order = world.order(TASK)
    stages = {row.stage: row for row in rows_of(order)}
    assert set(stages) == {"task", "budget"}
    assert stages["budget"].due_us == order.ready_us - 10 * MINUTE_US and stages["budget"].group == order.plan


def test_w15_orders_outside_plans_belong_to_no_group() -> None:
    world = World()
    name = world.ok(c.SubmitOrder(order=draft("x")))["order"]
    assert [(row.stage, row.group) for row in rows_of(world.live.values[name])] == [("task", ""), ("claim", "")]


def test_w19_plans_are_found_by_their_deadline_and_by_a_cancel_that_is_not_done() -> None:
    world = World()
    plan = world.submit(draft("a"), deadline_us=9 * SECOND)
    value = world.live.values[plan]
    birth = Row("plan", "plan", value.submitted_us, value.record_seq, plan)
    deadline = Row("deadline", "", world.now_us + 9 * SECOND, value.record_seq, plan)
    assert rows_of(value) == [birth, deadline]
    cancelled = replace(value, cancel="cancel_requested", cancel_done=False)
    assert rows_of(cancelled) == [birth, Row("revise", "", 0, value.record_seq, plan)]
    assert difference(value, cancelled) == ([Row("revise", "", 0, value.record_seq, plan)], [("deadline", plan)])


def test_w10_ends_by_the_clock_at_their_exact_moments() -> None:
    world = World()
    clock = world.clock
    assert not has_lapsed(clock, clock.logical_us + 1) and has_lapsed(clock, clock.logical_us)
    assert is_past(clock, clock.logical_us) and not is_past(clock, clock.logical_us + 1)
    assert effective_end_us(clock, 5) == 5
    graced = replace(clock, grace_from_us=10, grace_until_us=20)
    assert [effective_end_us(graced, end_us) for end_us in (9, 10, 15, 20, 25)] == [9, 20, 20, 20, 25]
    assert effective_end_us(replace(clock, grace_from_us=0, grace_until_us=0), 5) == 5
