"""Folding of plans, orders and their dependencies, one record at a time (W15, W19; lifecycle, 12)."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from fencepost.core import commands as c
from fencepost.core.evolve import Fact, evolve
from fencepost.core.machines import CorruptHistory
from fencepost.core.records.budget import BudgetCeilingSet
from fencepost.core.records.plan import (
    DependencyObserved,
    DependentsTold,
    PlanCancelAdvanced,
    PlanCancelRequested,
    WorkOrderMoved,
    WorkOrderSpec,
)
from fencepost.core.state import NameState, name_subject
from tests.support.states import TASK, world_in
from tests.support.world import SECOND, World, draft, group


def fold(world: World, subject: str, body: Any, **changes: Any) -> Any:
    """Fold one record more, on a subject that is first changed as a test likes; returns its value behind the record."""
    known: Any = world.live.get(subject)
    if changes:
        known = replace(known, **changes)
        world.live.values[subject] = known
    version = 1 if known is None else known.version + 1
    evolve(world.live, Fact(len(world.facts) + 1, subject, version, body))
    return world.live.get(subject)


def corrupt(world: World, subject: str, body: Any, **changes: Any) -> bool:
    try:
        fold(world, subject, body, **changes)
    except CorruptHistory:
        return True
    return False


def test_w1_an_order_is_born_submitted_now_and_as_its_spec_says() -> None:
    world = World()
    world.submit(draft("a", priority="high"))
    world.advance(SECOND)
    first = world.body(world.order("a").spec_seq)
    assert isinstance(first, WorkOrderSpec)
    name = "order_" + "a" * 32
    born = fold(world, name, replace(first, order=name, plan=None))
    assert (born.state, born.reason, born.parent) == ("submitted", "just_submitted", None)
    assert (born.submitted_us, born.moved_us, born.terms.priority) == (world.now_us, world.now_us, "high")


def test_w16_a_plan_that_had_ended_is_open_again_with_a_new_order() -> None:
    world = World()
    plan = world.submit(draft("a"), draft("b"))
    later = world.submit(draft("a"), draft("b"), draft("c"), mode="new")
    world.order("a", plan)
    for task in "ab":
        world.ok(c.CancelOrder(order=world.order(task, plan).order))
    ended = world.live.values[plan]
    name: NameState = world.live.values[name_subject("plan")]
    assert ended.ended_us == world.now_us and [each.plan for each in name.open_plans] == [later]
    world.ok(c.RetryOrder(order=world.order("a", plan).order))
    again = world.live.values[plan]
    name = world.live.values[name_subject("plan")]
    assert (again.ended_us, again.open, again.orders) == (None, 1, 3)
    assert [each.plan for each in name.open_plans] == [plan, later], "in the order in which they were written"
    world.ok(c.RetryOrder(order=world.order("b", plan).order))
    assert len(world.live.values[name_subject("plan")].open_plans) == 2, "once"


@pytest.mark.parametrize(
    ("changes", "wrong"),
    [
        ({"state": "failed"}, False),
        ({"state": "ready"}, True),
        ({"state": "applied"}, True),
        ({"state": "failed", "replaced_by": "order_y"}, True),
    ],
)
def test_w16_only_what_ended_without_being_applied_is_replaced_and_only_once(
    changes: dict[str, Any], wrong: bool
) -> None:
    world = World()
    world.ok(c.SubmitOrder(order=draft("x")))
    old = next(value for value in world.live.values.values() if getattr(value, "task", "") == "x")
    spec = world.body(old.spec_seq)
    assert isinstance(spec, WorkOrderSpec)
    world.live.values[old.order] = replace(old, **changes)
    name = "order_" + "a" * 32
    assert corrupt(world, name, replace(spec, order=name, replaces=old.order)) == wrong
    if not wrong:
        assert world.live.values[old.order].replaced_by == name


def test_w10_a_backoff_ends_by_proof_alone() -> None:
    world = world_in("retry_wait")
    order = world.order(TASK)
    moved = WorkOrderMoved(origin="retry_wait", target="ready", reason="backoff_over", ready_us=world.now_us)
    assert corrupt(world, order.order, moved)
    asked = replace(moved, reason="retry_requested")
    assert not corrupt(world, order.order, asked), "a person needs none"


def test_w15_every_member_is_heard_once_in_a_group_that_is_there() -> None:
    world = World()
    world.submit(draft("a"), draft("b", group("optional", "a")))
    world.ok(c.CancelOrder(order=world.order("a").order))
    a, b = world.order("a"), world.order("b")
    told = DependencyObserved(member=a.order, outcome="cancelled", satisfies=False, group=0)
    groups = b.groups
    assert groups[0].unsatisfied == groups[0].total == 1
    assert corrupt(world, b.order, told), "the only member has been heard"
    assert corrupt(world, b.order, replace(told, satisfies=True))
    assert corrupt(world, b.order, replace(told, group=1))
    fresh = (replace(groups[0], unsatisfied=0),)
    assert fold(world, b.order, told, groups=fresh).groups == groups
    two = (replace(groups[0], total=2),)
    heard = fold(world, b.order, replace(told, satisfies=True), groups=two).groups[0]
    assert (heard.satisfied, heard.unsatisfied, heard.total) == (1, 1, 2)


@pytest.mark.parametrize(
    ("told", "position", "done", "wrong"),
    [
        (-1, -1, False, False),
        (-1, 0, False, False),
        (-1, 1, True, False),
        (0, 0, False, False),
        (0, 1, True, False),
        (-1, 2, True, True),
        (1, 0, False, True),
        (-1, 1, False, True),
        (-1, 0, True, True),
    ],
)
def test_w15_a_cursor_goes_forward_to_the_last_dependent(told: int, position: int, done: bool, wrong: bool) -> None:
    world = World()
    world.submit(draft("a"), draft("b", "a"), draft("c", "a"))
    order = world.order("a").order
    body = DependentsTold(position=position, done=done)
    assert corrupt(world, order, body, state="failed", told=told, told_done=False) == wrong
    if not wrong:
        assert (world.live.values[order].told, world.live.values[order].told_done) == (position, done)
    assert corrupt(world, order, body, told=told, told_done=True), "whoever has told everybody tells nobody"


def test_w19_a_cancel_is_requested_once_and_a_deadlines_only_by_proof() -> None:
    world = World()
    plan = world.submit(draft("a"))
    assert corrupt(world, plan, PlanCancelRequested(plan=plan, reason="deadline_passed"))
    value = fold(world, plan, PlanCancelRequested(plan=plan, reason="cancel_requested"))
    assert (value.cancel, value.cancel_position, value.cancel_done) == ("cancel_requested", -1, False)
    assert corrupt(world, plan, PlanCancelRequested(plan=plan, reason="cancel_requested"))


@pytest.mark.parametrize(
    ("position", "done", "wrong"), [(3, False, False), (4, False, False), (2, False, True), (4, True, True)]
)
def test_w19_a_cancel_is_carried_on_and_never_back(position: int, done: bool, wrong: bool) -> None:
    world = World()
    plan = world.submit(draft("a"))
    body = PlanCancelAdvanced(position=position, done=False)
    changes = {"cancel": "cancel_requested", "cancel_position": 3, "cancel_done": done}
    assert corrupt(world, plan, body, **changes) == wrong


@pytest.mark.parametrize("subject", ["clock:main", "plan_x"])
def test_w18_only_what_has_an_account_has_ceilings(subject: str) -> None:
    assert corrupt(World(), subject, BudgetCeilingSet(ceilings={"calls": 1}))
