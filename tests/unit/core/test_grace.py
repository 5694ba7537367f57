"""Grace after a gap, to the microsecond; and times that are kept to be proved later (W8, W10; case 20)."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from fencepost.core import commands as c
from fencepost.core.deadlines import effective_end_us, has_lapsed, is_past
from fencepost.core.evolve import Fact, evolve
from fencepost.core.machines import CorruptHistory
from fencepost.core.state import AUTHORITY, Value
from tests.support.states import TASK, world_in
from tests.support.world import SECOND, World, draft


def attempt(world: World) -> Any:
    return world.attempt_of(world.order(TASK))


def put(world: World, value: Value, subject: str) -> None:
    for fold in (world.live, world.replayed):
        fold.values[subject] = value


def test_case_20_a_second_gap_takes_nothing_from_those_whose_grace_is_still_open() -> None:
    world = world_in("active/running")
    known = attempt(world)
    world.advance(12 * SECOND, step_us=12 * SECOND)
    first = world.clock
    assert first.grace_from_us <= known.lease_us < first.logical_us < first.grace_until_us
    world.advance(6 * SECOND, step_us=6 * SECOND)
    second = world.clock
    assert second.grace_from_us == first.grace_from_us and second.grace_until_us > first.grace_until_us
    assert world.refused(world.expiry(known)) == "clock_grace"
    assert world.ok(world.renewal(known))["renewed"] == [known.attempt]


def test_w10_hosts_that_take_turns_to_look_leave_no_gap_between_them() -> None:
    """Each of two sources looks every six seconds, the domain is seen every three: what lapses then can be ended."""
    world = world_in("active/running")
    known = attempt(world)
    world.ok(c.ObserveClock(reading=replace(world.reading(), source="host-2")))
    for number in range(8):
        world.tick_us += 3 * SECOND
        world.utc_us += 3 * SECOND
        other = replace(world.reading(), source="host-2") if number % 2 else world.reading()
        world.ok(c.ObserveClock(reading=other))
    assert world.refused(world.expiry(known)) == ""


def test_case_20_a_restart_within_a_grace_takes_nothing_either() -> None:
    world = world_in("active/running")
    known = attempt(world)
    world.advance(12 * SECOND, step_us=12 * SECOND)
    world.restart()
    assert world.refused(world.expiry(known)) == "clock_grace"
    assert world.ok(world.renewal(known))["renewed"] == [known.attempt]


def test_case_20_a_gap_after_the_grace_is_over_begins_a_new_one() -> None:
    world = world_in("active/running")
    known = attempt(world)
    world.advance(12 * SECOND, step_us=12 * SECOND)
    world.advance(10 * SECOND)
    assert world.clock.logical_us == world.clock.grace_until_us, "at its end it is over"
    before = world.now_us
    world.advance(6 * SECOND, step_us=6 * SECOND)
    assert world.clock.grace_from_us == before + 1 > known.lease_us
    assert world.refused(world.expiry(known)) == "", "its lease and its grace ended before this gap"


def test_case_20_a_grace_is_for_what_ended_from_its_beginning_on_and_for_nothing_before() -> None:
    clock = replace(World().clock, logical_us=150, grace_from_us=100, grace_until_us=200)
    assert [effective_end_us(clock, end) for end in (99, 100, 150, 199, 200, 201)] == [99, 200, 200, 200, 200, 201]
    assert has_lapsed(clock, 99) and not has_lapsed(clock, 100)
    at_end = replace(clock, logical_us=200)
    assert has_lapsed(at_end, 100) and is_past(at_end, 200) and not is_past(at_end, 201)
    assert not is_past(replace(at_end, uncertainty_us=1), 200), "a reading reaches back as far as it is uncertain"


def test_w10_within_the_uncertainty_of_a_reading_a_grace_is_not_over() -> None:
    world = world_in("active/running")
    known = attempt(world)
    world.uncertainty_us = 2 * SECOND
    world.advance(20 * SECOND, step_us=20 * SECOND)
    world.advance(11 * SECOND)
    assert world.now_us >= world.clock.grace_until_us, "it is over for its holder"
    assert world.refused(world.expiry(known)) == "clock_grace", "and not proved over for others"
    world.advance(SECOND)
    assert world.refused(world.expiry(known)) == ""


def test_w10_a_proof_within_a_grace_is_no_history() -> None:
    world = world_in("active/running")
    world.advance(20 * SECOND, step_us=20 * SECOND)
    body = world.expiry_proof(attempt(world))
    with pytest.raises(CorruptHistory, match="has a grace left"):
        evolve(world.replayed, Fact(len(world.facts) + 1, "clock:main", world.clock.version + 1, body))


def test_a_cancelled_attempts_time_waits_for_its_holder_one_lease_longer_than_its_lease() -> None:
    world = world_in("active/running")
    known = attempt(world)
    world.ok(c.CancelOrder(order=known.order))
    hold = world.hold_of(world.order(TASK))
    assert hold.settle_by_us == known.lease_us + world.limits.lease_us
    settle = c.SettleHold(hold=hold.hold, expected=hold.version)
    world.advance(hold.settle_by_us - world.now_us - 1)
    assert world.refused(settle) == "not_due"
    world.advance(1)
    assert world.refused(settle) == ""


def test_g1_a_plans_cancel_leaves_an_order_whose_effect_may_have_happened_to_a_person() -> None:
    world = World()
    plan = world.submit(draft(TASK), draft("b"))
    order = replace(world.order(TASK), effect_open=True)
    put(world, order, order.order)
    world.ok(c.CancelPlan(plan=plan))
    assert world.order(TASK).state == order.state and world.order("b").state == "cancelled"
    assert world.live.values[plan].cancel_done, "the cursor does not wait for it"
    assert world.refused(c.CancelOrder(order=order.order)) == "order_state"


def test_w7_a_result_is_applied_under_the_constitution_of_its_spec_or_not_at_all() -> None:
    world = world_in("result_pending")
    known = attempt(world)
    authority = world.live.values[AUTHORITY]
    put(world, replace(authority, constitution_version=authority.constitution_version + 1), AUTHORITY)
    assert world.refused(c.ApplyResult(attempt=known.attempt)) == "spec_mismatch"
    assert world.order(TASK).state == "result_pending"
    put(world, authority, AUTHORITY)
    world.ok(c.ApplyResult(attempt=known.attempt))
