"""What comes late is paid for, once and in full, whatever is kept of it (W17, W18)."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from fencepost.core import commands as c
from fencepost.core.limits import Limits
from fencepost.core.records.attempt import AttemptResult
from fencepost.core.state import AttemptState
from tests.support.states import TASK, world_in
from tests.support.world import SECOND, World, draft, used


def attempt_in(world: World) -> AttemptState:
    return world.attempt_of(world.order(TASK))


def late(world: World, known: AttemptState, number: int, **amounts: int) -> c.ReportResult:
    receipt = used(known, receipt=str(number), provider="x", **amounts)
    return world.result(known, usage=(receipt,), duration_us=0)


def forged(world: World, known: AttemptState, number: int) -> c.ReportResult:
    return c.ReportResult(
        attempt=known.attempt,
        fence=known.fence + 1 + number,
        spec=world.order(TASK).spec,
        facts=world.facts_of(known, duration_us=number),
    )


def charged(world: World) -> dict[str, int]:
    return world.order(TASK).account.charged


def test_more_late_results_than_are_kept_are_all_paid_for() -> None:
    world = world_in("cancelled/live")
    known = attempt_in(world)
    count = world.limits.late_records_per_attempt + 9
    for number in range(count):
        assert world.refused(late(world, known, number, calls=1)) == "rejected_stale"
    assert charged(world)["calls"] == count
    assert len(attempt_in(world).late) == world.limits.late_records_per_attempt
    assert world.refused(late(world, known, count - 1, calls=1)) == "stale_fence", "it is not kept, and booked already"
    assert charged(world)["calls"] == count
    world.check()


def test_more_late_results_than_are_kept_are_paid_for_when_the_lease_is_ended_only_then() -> None:
    world = World(Limits(late_records_per_attempt=2))
    world.submit(draft(TASK))
    known = world.activate(TASK)
    world.advance(12 * SECOND)
    for number in range(5):
        assert world.refused(late(world, known, number, calls=1)) == "rejected_stale"
    assert world.refused(world.event(known)) == "stale_fence", "what brings no receipt takes no further room"
    world.ok(world.expiry(known))
    assert charged(world)["calls"] == 5
    world.check()


def test_reports_under_a_fence_of_nobody_take_no_room_of_those_that_count() -> None:
    world = world_in("cancelled/live")
    known = attempt_in(world)
    for number in range(world.limits.late_records_per_attempt):
        assert world.refused(forged(world, known, number)) == "stale_fence"
    assert not attempt_in(world).late
    assert world.refused(late(world, known, 99, calls=7)) == "rejected_stale"
    assert charged(world)["calls"] == 7 and len(attempt_in(world).late) == 1
    world.check()


def test_c27_what_a_hold_books_is_bounded() -> None:
    world = World(Limits(receipts_per_result_max=2, receipts_per_hold_max=4, late_records_per_attempt=3))
    world.submit(draft(TASK))
    known = world.activate(TASK)
    world.ok(c.CancelOrder(order=world.order(TASK).order))
    for number in range(8):
        world.refused(late(world, known, number, calls=1))
    assert charged(world)["calls"] == 4 and len(world.hold_of(world.order(TASK)).receipts) == 4
    world.check()


def test_distinct_receipts_of_time_are_all_charged_after_an_ordinary_end() -> None:
    world = world_in("applied")
    known = attempt_in(world)
    before = charged(world)["time_us"]
    for number, seconds in enumerate((3, 5)):
        world.refused(late(world, known, number, time_us=seconds * SECOND))
    assert charged(world)["time_us"] == before + 8 * SECOND
    world.check()


@pytest.mark.parametrize("end", ["expiry", "holder_gone", "deadline"])
def test_receipts_of_time_first_explain_what_was_estimated(end: str) -> None:
    world = World()
    world.submit(draft(TASK))
    known = world.activate(TASK)
    if end == "expiry":
        world.advance(12 * SECOND)
        world.ok(world.expiry(known))
    elif end == "holder_gone":
        world.advance(8 * SECOND)
        gone = {"host": known.host, "boot_id": known.boot_id, "basis": "locks_free", "evidence": "free"}
        world.ok(c.ProveHolderGone(attempt=known.attempt, fence=known.fence, **gone))
    else:
        world.ok(c.CancelOrder(order=world.order(TASK).order))
        world.advance(25 * SECOND)
        hold = world.hold_of(world.order(TASK))
        world.ok(c.SettleHold(hold=hold.hold, expected=hold.version))
    estimate = charged(world)["time_us"]
    assert estimate == {"expiry": 10, "holder_gone": 8, "deadline": 30}[end] * SECOND
    world.refused(late(world, known, 1, time_us=6 * SECOND))
    assert charged(world)["time_us"] == estimate, "this much was charged already"
    world.refused(late(world, known, 2, time_us=estimate))
    assert charged(world)["time_us"] == estimate + 6 * SECOND, "and not twice"
    world.check()


def test_late_time_above_an_expiry_is_charged_where_it_passes_the_estimate() -> None:
    world = world_in("active/running")
    known = attempt_in(world)
    world.advance(12 * SECOND)
    world.ok(world.expiry(known))
    assert charged(world)["time_us"] == 10 * SECOND
    world.refused(late(world, known, 1, time_us=25 * SECOND))
    assert charged(world)["time_us"] == 25 * SECOND
    world.check()


@pytest.mark.parametrize("where", ["amounts", "unknown"])
def test_no_receipt_charges_attempts(where: str) -> None:
    world = world_in("active/running")
    known = attempt_in(world)
    told: dict[str, Any] = {"amounts": {"attempts": 1}} if where == "amounts" else {"unknown": ("attempts",)}
    facts = world.facts_of(known, usage=(replace(used(known), **told),))
    assert world.refused(world.result(known, facts)) == "out_of_range"
    assert not [fact for fact in world.facts if isinstance(fact.body, AttemptResult)]


def test_a_refusal_does_not_depend_on_what_was_decided_before() -> None:
    """A ruling that the same command records first is not a fact about the attempt."""
    codes = []
    for known_ruling in (False, True):
        world = world_in("cancelled/live")
        known = attempt_in(world)
        world.limits = replace(world.limits, late_records_per_attempt=1)
        world.refused(world.result(known))  # settles the hold by the receipt of time, and is all that is kept
        stopped = c.ReportStopped(reason="drained", attempt=known.attempt, fence=known.fence, duration_us=SECOND)
        if not known_ruling:
            subject = f"decision:{world.given().questions['report_result/attempt']}"
            for fold in (world.live, world.replayed):
                del fold.values[subject]
        codes.append(world.refused(stopped))
    assert codes == ["stale_fence", "stale_fence"]


def test_a_report_for_a_reservation_is_not_said_to_be_kept() -> None:
    world = world_in("reserved")
    known = attempt_in(world)
    facts = world.facts_of(known, input_set=known.input_set)
    command = c.ReportResult(attempt=known.attempt, fence=known.fence, spec=world.order(TASK).spec, facts=facts)
    assert world.refused(command) == "stale_fence"
