"""Attempts that their own side ended: drains, lost leases and lost keepers, in time and too late (lifecycle, 8)."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from fencepost.core import commands as c
from fencepost.core.evolve import Fact, evolve
from fencepost.core.limits import Limits
from fencepost.core.machines import CorruptHistory
from fencepost.core.records.attempt import AttemptMoved, AttemptStopped, LateRecord
from fencepost.core.records.budget import HoldSettled
from fencepost.core.records.common import LogRef, StoppedFor
from fencepost.core.state import AttemptState, HoldState
from tests.support.states import PRINTED, TASK, stopped, world_in
from tests.support.world import SECOND, World, draft

OTHER = LogRef(digest="sha256:" + "6" * 64, bytes_total=4, bytes_kept=2)


def attempt(world: World) -> AttemptState:
    return world.attempt_of(world.order(TASK))


def hold(world: World, known: AttemptState) -> HoldState:
    value = world.live.values[known.hold]
    assert isinstance(value, HoldState)
    return value


def late(world: World) -> list[LateRecord]:
    return [fact.body for fact in world.facts if isinstance(fact.body, LateRecord)]


@pytest.mark.parametrize("state", ["active/leased", "active/running"])
def test_lifecycle_8_a_lost_keeper_is_no_failure_and_its_order_runs_again(state: str) -> None:
    world = world_in(state)
    mine = attempt(world)
    world.ok(stopped(mine, "keeper_lost", duration_us=3 * SECOND))
    order = world.order(TASK)
    assert (order.state, order.reason, order.failures, order.yields) == ("ready", "keeper_lost", 0, 0)
    assert attempt(world).state == "cancelled_no_effect" and attempt(world).reason == "keeper_lost"
    assert order.account.charged == {"attempts": 1, "time_us": 3 * SECOND}
    assert (hold(world, mine).state, hold(world, mine).held) == ("settled", {})
    world.finish(TASK)
    assert world.order(TASK).state == "applied"
    assert world.order(TASK).account.charged["attempts"] == 2
    world.check()


def test_lifecycle_8_attempts_and_budget_alone_say_whether_another_one_follows_a_lost_keeper() -> None:
    world = World(Limits())
    world.submit(draft(TASK, attempts=2))
    world.worker(1)
    for state in ("ready", "budget_exhausted"):
        world.ok(stopped(world.activate(TASK), "keeper_lost"))
        assert world.order(TASK).state == state
    assert world.order(TASK).account.charged["attempts"] == 2
    world.check()


@pytest.mark.parametrize("reason", ["drained", "lease_expired", "keeper_lost"])
def test_w5_a_stop_says_what_was_printed_and_its_moves_rest_on_it(reason: StoppedFor) -> None:
    world = world_in("active/running")
    mine = attempt(world)
    world.ok(stopped(mine, reason, stderr=OTHER))
    known = attempt(world)
    body = world.body(known.stopped_seq)
    assert isinstance(body, AttemptStopped)
    assert (body.reason, body.note, body.duration_us) == (reason, "the tree is empty", SECOND)
    assert (body.stdout, body.stderr) == (PRINTED, OTHER)
    moves = [fact.body for fact in world.facts if fact.seq > known.stopped_seq and isinstance(fact.body, AttemptMoved)]
    assert [move.evidence for move in moves] == [str(known.stopped_seq)] * (1 if reason == "drained" else 2)
    world.check()


def ends(known: AttemptState, world: World) -> dict[str, c.AnyCommand]:
    yielded = world.yielding(known, question="go", duration_us=3 * SECOND)
    return {
        "stop": stopped(known, "drained", duration_us=3 * SECOND, stderr=OTHER),
        "yield": replace(yielded, stdout=PRINTED, stderr=OTHER),
    }


@pytest.mark.parametrize("what", ["stop", "yield"])
def test_w17_an_end_that_is_told_too_late_changes_nothing_and_its_facts_still_count(what: str) -> None:
    world = world_in("cancelled/live")
    mine = attempt(world)
    before = world.order(TASK)
    for _ in range(2):
        assert world.refused(ends(mine, world)[what]) == "rejected_stale"
    (kept,) = late(world)
    assert (kept.what, kept.disposition, kept.duration_us) == (what, "rejected_stale", 3 * SECOND)
    assert (kept.stdout, kept.stderr, kept.facts) == (PRINTED, OTHER, None)
    after = world.order(TASK)
    assert (after.state, after.reason, after.wait, after.yields) == (before.state, before.reason, None, 0)
    assert after.account.charged == {"attempts": 1, "time_us": 3 * SECOND}
    world.check()


@pytest.mark.parametrize("what", ["stop", "yield"])
def test_case_01_a_late_end_before_anybody_ended_the_lease_is_booked_with_the_expiry(what: str) -> None:
    world = world_in("active/running")
    mine = attempt(world)
    world.advance(12 * SECOND)
    assert world.refused(ends(mine, world)[what]) == "rejected_stale"
    assert hold(world, mine).state == "held"
    world.ok(world.expiry(attempt(world)))
    settled = hold(world, mine)
    assert f"kernel:{mine.attempt}:time" in settled.receipts
    charged_us = settled.charged["time_us"]
    assert settled.estimated_us == charged_us - 3 * SECOND
    assert world.refused(world.result(mine, duration_us=3 * SECOND)) == "rejected_stale"
    assert hold(world, mine).charged["time_us"] == charged_us, "its time was told before"
    world.check()


@pytest.mark.parametrize("what", ["stop", "yield"])
def test_w17_late_ends_are_kept_within_the_bound_and_paid_for_beyond_it(what: str) -> None:
    world = world_in("cancelled/live")
    world.limits = replace(world.limits, late_records_per_attempt=1)
    mine = attempt(world)
    assert world.refused(world.event(mine, "heartbeat_observed")) == "rejected_stale"
    assert world.refused(ends(mine, world)[what]) == "rejected_stale", "its time is booked"
    assert [body.what for body in late(world)] == ["event"]
    assert world.order(TASK).account.charged["time_us"] == 3 * SECOND
    assert world.refused(ends(mine, world)[what]) == "stale_fence", "nothing new in it, and no room"
    world.check()


def test_w17_while_its_hold_is_held_a_late_stop_is_kept_beyond_the_bound_for_its_time() -> None:
    world = world_in("active/running")
    world.limits = replace(world.limits, late_records_per_attempt=1)
    mine = attempt(world)
    world.advance(12 * SECOND)
    assert world.refused(world.event(mine, "heartbeat_observed")) == "rejected_stale"
    assert world.refused(stopped(mine, "drained")) == "rejected_stale"
    assert world.refused(stopped(mine, "drained", duration_us=2 * SECOND)) == "stale_fence", "its time is told already"
    assert [body.what for body in late(world)] == ["event", "stop"]
    world.check()


def test_w17_a_late_fact_that_is_no_end_says_nothing_of_time() -> None:
    world = world_in("active/running")
    mine = attempt(world)
    world.advance(12 * SECOND)
    assert world.refused(world.event(mine, "heartbeat_observed")) == "rejected_stale"
    world.ok(world.expiry(attempt(world)))
    assert hold(world, mine).receipts == ()
    assert hold(world, mine).estimated_us == hold(world, mine).charged["time_us"] > 0


@pytest.mark.parametrize("state", ["reserved", "active/running"])
def test_w17_a_stop_under_a_fence_that_its_attempt_never_had_is_kept_by_nobody(state: str) -> None:
    world = world_in(state)
    mine = attempt(world)
    fence = mine.fence + (state != "reserved")
    assert world.refused(replace(stopped(mine, "drained"), fence=fence)) == "stale_fence"
    assert late(world) == []


@pytest.mark.parametrize("reason", ["drained", "lease_expired", "keeper_lost"])
def test_a_stop_without_its_record_is_no_history(reason: StoppedFor) -> None:
    world = world_in("ready/keeper lost")
    found: list[Fact] = [fact for fact in world.facts if isinstance(fact.body, AttemptStopped)]
    behind: Any = next(fact for fact in world.facts if fact.seq == found[0].seq + 2)
    assert behind.body.target == "cancelled_no_effect"
    fresh = world_in("active/running")
    mine = attempt(fresh)
    requested = replace(behind.body, origin="running", target="cancellation_requested", reason="cancel_requested")
    seq = len(fresh.facts) + 1
    evolve(fresh.replayed, Fact(seq, mine.attempt, mine.version + 1, replace(requested, order=mine.order)))
    lie = replace(behind.body, order=mine.order, reason=reason)
    with pytest.raises(CorruptHistory, match=f"that it was stopped: {reason}"):
        evolve(fresh.replayed, Fact(seq + 1, mine.attempt, mine.version + 2, lie))


@pytest.mark.parametrize("reason", ["lease_expired", "keeper_lost"])
def test_lifecycle_8_no_history_gives_an_attempt_back_but_for_a_drain(reason: StoppedFor) -> None:
    world = world_in("active/running")
    mine = attempt(world)
    before = len(world.facts)
    world.ok(stopped(mine, reason))
    fresh = world_in("active/running")
    for fact in world.facts[before:]:
        if not isinstance(fact.body, HoldSettled):
            evolve(fresh.replayed, fact)
            continue
        with pytest.raises(CorruptHistory, match="credits what nobody gives"):
            evolve(fresh.replayed, fact._replace(body=replace(fact.body, credited={"attempts": 1})))
        return
    pytest.fail("the stop settles no hold")


@pytest.mark.parametrize("change", [{"duration_us": 1}, {"stdout": PRINTED}, {"stderr": PRINTED}])
def test_w17_no_late_fact_but_an_end_tells_what_was_printed(change: dict[str, Any]) -> None:
    world = world_in("cancelled/live")
    known = attempt(world)
    body = LateRecord(
        order=known.order,
        fence=known.fence,
        what="event",
        digest=PRINTED.digest,
        disposition="rejected_stale",
        reason="stale_fence",
    )
    seq = len(world.facts) + 1
    with pytest.raises(CorruptHistory, match="tells of an end"):
        evolve(world.replayed, Fact(seq, known.attempt, known.version + 1, replace(body, **change)))
    evolve(world.replayed, Fact(seq, known.attempt, known.version + 1, replace(body, what="stop", **change)))
