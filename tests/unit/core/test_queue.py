"""The queue: its order, its bounds, and what never stands in anybody's way (W15, C27)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from fencepost.core import commands as c
from fencepost.core.index import Row
from fencepost.core.limits import Limits
from tests.support.world import SECOND, World, draft, group


def taken(world: World, count: int = 1, plan: str | None = None) -> list[str]:
    command = c.ReserveNext(worker=world.worker(), count=count, plan=plan)
    return [made["task"] for made in world.ok(command)["reservations"]]


def test_w15_of_orders_that_became_ready_together_the_plans_order_decides_not_that_of_writing() -> None:
    """A need is written before its dependent, so that positions and sequence numbers run against each other here."""
    world = World()
    orders = [draft(task, "need") for task in ("late", "middle")]
    world.submit(*orders, draft("free"), draft("need"))
    positions = {task: world.order(task).position for task in ("late", "middle", "free", "need")}
    written = {task: world.order(task).spec_seq for task in positions}
    assert positions["late"] < positions["free"] and written["late"] > written["free"] < written["need"]
    world.finish("need")
    first = world.order("free")
    assert first.ready_us == world.order("late").ready_us, "no time has passed"
    assert taken(world, 3) == ["late", "middle", "free"]


def test_c27_one_command_reserves_no_more_than_the_bound() -> None:
    world = World(Limits(reserve_next_max=2))
    world.submit(*(draft(task) for task in "abcd"))
    assert taken(world, 4) == ["a", "b"]


def test_a_large_plan_that_is_being_cancelled_hides_no_other() -> None:
    world = World(Limits(page_max=4, cancel_per_batch=1, plan_orders_max=40))
    big = world.submit(*(draft(f"t{number:02}") for number in range(30)))
    world.submit(draft("other", priority="low"), name="other")  # behind all of them
    world.ok(c.CancelPlan(plan=big))
    assert world.live.values[big].open == 29, "its orders still stand in the queue"
    assert taken(world) == ["other"]
    assert world.refused(c.ReserveNext(worker=world.worker(), count=1)) == "nothing_ready"
    assert world.refused(c.ReserveNext(worker=world.worker(), count=1, plan=big)) == "nothing_ready"


def test_a_large_plan_past_its_deadline_hides_no_other_before_anybody_has_ended_it() -> None:
    world = World(Limits(page_max=4, plan_orders_max=40))
    world.submit(*(draft(f"t{number:02}") for number in range(30)), deadline_us=10 * SECOND)
    world.submit(draft("other", priority="low"), name="other")  # behind all of them
    world.advance(12 * SECOND)
    assert taken(world) == ["other"]


def test_c27_how_far_the_queue_is_looked_through_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(Limits(page_max=2, cancel_per_batch=1, plan_orders_max=8))
    plans = [world.submit(*(draft(f"t{number}") for number in range(8)), name=f"p{place}") for place in range(4)]
    world.submit(draft("other", priority="low"), name="other")
    for plan in plans:
        world.ok(c.CancelPlan(plan=plan))
    looked: list[int] = []
    due = world.due

    def counted(*asked: Any) -> Sequence[Row]:
        looked.append(asked[2])
        return due(*asked)

    monkeypatch.setattr(world, "due", counted)
    assert world.refused(c.ReserveNext(worker=world.worker(), count=1)) == "nothing_ready"
    assert sum(looked) <= 2 * 8 + 12 + 2


def test_an_order_of_a_kind_that_no_executor_has_is_refused_before_it_stands_in_the_queue() -> None:
    world = World()
    single = draft("a", work_kind="model/1")
    assert world.refused(c.SubmitOrder(order=single)) == "executor_unsupported"
    assert not world.index.get("claim")


def test_a_retry_of_a_backoff_in_a_cancelled_plan_is_refused() -> None:
    world = World(Limits(cancel_per_batch=1))
    plan = world.submit(draft("first"), draft("a", group("optional", "first"), retry=True))
    world.finish("first")
    world.fail("a")
    assert world.order("a").state == "retry_wait"
    world.ok(c.CancelPlan(plan=plan))
    assert world.order("a").state == "retry_wait", "the cancel has not reached it yet"
    assert world.refused(c.RetryOrder(order=world.order("a").order)) == "plan_cancelled"
    assert world.order("a").state == "retry_wait"
