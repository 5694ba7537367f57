"""The identity of a run: a content has one open plan of a name, however many others are open (W22)."""

from __future__ import annotations

from fencepost.core import commands as c
from fencepost.core.limits import Limits
from fencepost.core.state import NameState
from tests.support.world import World, draft, plan_of

A, B = (draft("a", run=("first",)),), (draft("a", run=("second",)),)


def name_of(world: World) -> NameState:
    return world.live.values["name:plan"]


def test_two_open_plans_of_one_name_are_each_found_by_their_content() -> None:
    world = World()
    first = world.submit(*A)
    second = world.submit(*B, mode="new")
    assert world.submit(*A) == first and world.submit(*B) == second
    assert world.refused(plan_of(draft("other"))) == "plan_changed"
    assert name_of(world).open == second, "by name alone the one that was submitted last is meant"
    world.check()


def test_when_one_of_them_ends_the_other_is_still_open() -> None:
    world = World()
    first = world.submit(*A)
    second = world.submit(*B, mode="new")
    world.ok(c.CancelPlan(plan=second))
    assert [each.plan for each in name_of(world).open_plans] == [first]
    assert world.submit(*A) == first, "no second open plan of this content"
    assert world.refused(plan_of(*B)) == "plan_changed"
    world.ok(c.CancelPlan(plan=first))
    assert name_of(world).open is None and name_of(world).newest == second
    assert world.submit(*B) == second, "an ended one is shown"
    assert world.submit(*B, mode="again") != second
    world.check()


def test_the_newest_of_two_open_plans_of_one_content_is_meant() -> None:
    world = World()
    world.submit(*A)
    second = world.submit(*A, mode="new")
    assert world.submit(*A) == second


def test_a_retry_opens_an_ended_plan_again_in_its_own_place() -> None:
    world = World()
    first = world.submit(*A)
    world.fail("a")
    second = world.submit(*B)
    world.ok(c.RetryOrder(order=world.order("a", first).order))
    assert [each.plan for each in name_of(world).open_plans] == [first, second]
    assert world.submit(*A) == first and name_of(world).open == second
    world.check()


def test_c27_open_plans_of_one_name_are_bounded() -> None:
    world = World(Limits(name_open_plans_max=2))
    first = world.submit(*A)
    world.submit(*A, mode="new")
    assert world.refused(plan_of(*A, mode="new")) == "too_large"
    world.fail("a")
    world.submit(*A, mode="new")
    ended = world.order("a", next(value.plan for value in world.live.values.values() if getattr(value, "lost", 0)))
    assert world.refused(c.RetryOrder(order=ended.order)) == "too_large"
    world.ok(c.CancelPlan(plan=first))
    world.ok(c.RetryOrder(order=ended.order))
    world.check()
