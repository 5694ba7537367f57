"""Time: W8, W10; the field's cases 10, 20, 42. A wrong clock expires nothing."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from fencepost.core import commands as c
from fencepost.core.evolve import Fact, evolve
from fencepost.core.limits import DAY_US, HOUR_US
from fencepost.core.machines import CorruptHistory
from fencepost.core.records.clock import ClockDeadlineEligibility, ExpiryEligibility, LogicalClockObservation
from tests.support.states import world_in
from tests.support.world import ME, SECOND, World, draft


def last(world: World) -> LogicalClockObservation:
    return [fact.body for fact in world.facts if isinstance(fact.body, LogicalClockObservation)][-1]


def observed(world: World, *, utc: int = 0, tick: int = 0) -> LogicalClockObservation:
    world.utc_us += utc
    world.tick_us += tick
    world.observe()
    return last(world)


def attempt(world: World) -> Any:
    return world.attempt_of(world.order("a"))


def test_w8_an_observation_binds_source_boot_ticks_and_the_one_before() -> None:
    world = World()
    first = world.clock.last_seq
    body = observed(world, utc=SECOND, tick=SECOND)
    assert (body.source, body.boot_id, body.tick_unit, body.disposition) == ("host-1", "boot-1", "us", "accepted")
    assert body.previous == first and body.receipt.startswith("sha256:") and body.tick == world.tick_us
    assert world.clock.logical_us == body.logical_us == body.utc_us


def test_w8_within_a_boot_time_is_ticks_and_utc_only_checks() -> None:
    world = World()
    start = world.now_us
    for step in (SECOND, -SECOND, -2 * SECOND, 0):
        observed(world, utc=step + SECOND, tick=SECOND)
    assert world.now_us == start + 4 * SECOND, "small steps are absorbed, measured against the anchor"


def test_w8_a_reading_that_is_not_newer_is_nothing() -> None:
    world = World()
    world.advance(SECOND)
    before = len(world.facts)
    observed(world)
    observed(world, tick=-10)
    assert len(world.facts) == before


@pytest.mark.parametrize("jump", [10 * 365 * DAY_US, 6 * HOUR_US, -90 * SECOND, -12 * HOUR_US, 2 * SECOND + 1])
def test_case_10_case_42_a_jump_is_kept_as_quarantined_and_expires_nothing(jump: int) -> None:
    world = world_in("active/running")
    known, before = attempt(world), world.now_us
    body = observed(world, utc=jump + 20 * SECOND, tick=20 * SECOND)
    assert body.disposition == "quarantined" and world.now_us == before == body.logical_us
    assert world.clock.state == "clock_reconciliation_required" and world.clock.quarantined_seq == len(world.facts)
    assert world.refused(world.expiry(known)) == "clock_blocked"
    assert world.ok(world.renewal(known))["renewed"] == [known.attempt], "renewals still work"
    world.utc_us -= jump
    observed(world, utc=SECOND, tick=SECOND)
    world.restart()
    assert world.clock.state == "clock_reconciliation_required", "only a person ends it"
    assert world.refused(c.ReserveNext(worker=world.worker(), count=1)) == "clock_blocked"
    world.ok(world.result(attempt(world)))
    world.ok(c.ApplyResult(attempt=known.attempt))
    world.check()


def test_case_10_exactly_the_skew_bound_is_accepted_and_does_not_add_up() -> None:
    world = World()
    assert observed(world, utc=3 * SECOND, tick=SECOND).disposition == "accepted"
    assert observed(world, utc=2 * SECOND, tick=SECOND).disposition == "quarantined", "against the anchor"


def test_case_10_a_downtime_of_three_days_is_a_restart_and_advances_nothing() -> None:
    world = world_in("active/running")
    known, before = attempt(world), world.now_us
    world.restart(3 * DAY_US)
    assert last(world).disposition == "restart" and world.now_us == before
    assert world.refused(world.expiry(known)) == "not_due"
    world.advance(9 * SECOND)
    assert world.ok(world.renewal(known))["renewed"] == [known.attempt], "every live lease gets one full interval"
    world.advance(10 * SECOND)
    world.ok(world.expiry(known))
    world.check()


def test_case_10_a_lease_that_was_nearly_over_gets_one_full_interval_after_a_restart() -> None:
    world = world_in("active/running")
    known = attempt(world)
    world.advance(9 * SECOND)
    world.restart(DAY_US)
    world.advance(2 * SECOND)
    assert world.now_us > known.lease_us and world.refused(world.expiry(known)) == "clock_grace"
    assert world.ok(world.renewal(known))["renewed"] == [known.attempt]


def test_case_20_after_sleep_holders_get_one_grace_interval_before_anything_is_taken_from_them() -> None:
    world = world_in("active/running")
    known = attempt(world)
    world.advance(120 * SECOND, step_us=120 * SECOND)
    assert last(world).disposition == "accepted", "ticks count suspended time"
    assert world.refused(world.expiry(known)) == "clock_grace"
    assert world.ok(world.renewal(known))["renewed"] == [known.attempt]
    world.advance(8 * HOUR_US, step_us=8 * HOUR_US)
    assert world.ok(world.renewal(known))["lost"][0]["code"] == "timed_out", "but not past the attempt's own time"
    world.ok(world.result(attempt(world)))


def test_case_20_a_holder_that_stays_silent_through_the_grace_is_expired_once() -> None:
    world = world_in("active/running")
    known = attempt(world)
    world.advance(30 * SECOND, step_us=30 * SECOND)
    assert world.refused(world.expiry(known)) == "clock_grace"
    world.advance(10 * SECOND)
    world.ok(world.expiry(known))
    assert world.order("a").state == "ready"
    assert world.ok(world.renewal(known))["lost"][0]["code"] == "stale_fence"


def test_case_20_a_gap_of_half_a_lease_is_no_gap() -> None:
    world = world_in("active/running")
    known = attempt(world)
    world.advance(10 * SECOND, step_us=world.limits.lease_us // 2)
    assert world.refused(world.expiry(known)) == ""


def test_w10_an_expiry_is_proved_for_one_target_version_and_fence_and_the_order_can_go_on() -> None:
    world = world_in("active/running")
    known = attempt(world)
    world.advance(10 * SECOND)
    seq = world.clock.last_seq
    world.ok(world.expiry(known))
    proof = next(fact.body for fact in world.facts if isinstance(fact.body, ExpiryEligibility))
    assert (proof.purpose, proof.target, proof.target_version, proof.fence) == (
        "lease_expiry",
        known.attempt,
        known.version,
        known.fence,
    )
    assert (proof.observation, proof.deadline_us, proof.prover, proof.domain) == (seq, known.lease_us, ME, "main")


def test_w10_every_deadline_has_a_purpose_of_its_own() -> None:
    world = world_in("retry_wait")
    world.advance(4 * SECOND)
    order = world.order("a")
    world.ok(c.EndBackoff(order=order.order, expected=order.version))
    other = world_in("cancelled/live")
    other.advance(24 * SECOND)
    hold = other.hold_of(other.order("a"))
    other.ok(c.SettleHold(hold=hold.hold, expected=hold.version))
    third = World()
    plan = third.submit(draft("a"), deadline_us=SECOND)
    third.advance(SECOND)
    third.ok(c.EnforceDeadline(plan=plan, expected=third.live.values[plan].version))
    found = [
        (body.purpose, body.target_kind)
        for one in (world, other, third)
        for body in (fact.body for fact in one.facts)
        if isinstance(body, ClockDeadlineEligibility)
    ]
    assert found == [("backoff", "work_order"), ("unsettled_hold", "budget_hold"), ("plan_deadline", "plan")]


def _proofs(world: World) -> tuple[Fact, Fact]:
    """(proof, the record that uses it) of an expiry, decided and not kept."""
    decided = world.decide(world.expiry(attempt(world)))
    proof = next(fact for fact in decided.facts if isinstance(fact.body, ExpiryEligibility))
    return proof, next(fact for fact in decided.facts if fact.seq == proof.seq + 1)


@pytest.mark.parametrize(
    "wrong",
    [
        {"domain": "other"},
        {"target_version": 99},
        {"fence": 99},
        {"clock_version": 1},
        {"observation": 1},
        {"purpose": "reservation_expiry"},
        {"deadline_us": 1},
        {"uncertainty_us": 5},
        {"logical_us": 2**50},
        {"target": "attempt_x"},
    ],
    ids=lambda wrong: next(iter(wrong)),
)
def test_w10_a_proof_of_another_domain_version_purpose_or_time_is_no_history(wrong: dict[str, Any]) -> None:
    world = world_in("active/running")
    world.advance(10 * SECOND)
    world.ok(c.TellDependents(order=world.order("a").order))
    world.refused(c.ExpireAttempt(attempt=attempt(world).attempt, expected=99))
    proof, _ = _proofs(world)
    for fact in world.decide(world.expiry(attempt(world))).facts:
        if fact.seq < proof.seq:
            evolve(world.replayed, fact)
    with pytest.raises(CorruptHistory):
        evolve(world.replayed, proof._replace(body=replace(proof.body, **wrong)))
    evolve(world.replayed, proof)


def test_w10_nothing_expires_without_the_proof_right_before_it() -> None:
    world = world_in("active/running")
    world.advance(10 * SECOND)
    decided = world.decide(world.expiry(attempt(world)))
    facts = [fact for fact in decided.facts]
    place = next(n for n, fact in enumerate(facts) if isinstance(fact.body, ExpiryEligibility))
    for fact in facts[:place]:
        evolve(world.replayed, fact)
    with pytest.raises(CorruptHistory, match="is not proved"):
        evolve(world.replayed, facts[place + 1])
    evolve(world.replayed, facts[place])
    with pytest.raises(CorruptHistory, match="is not proved"):
        evolve(world.replayed, facts[place + 1]._replace(seq=facts[place + 1].seq + 1))
    evolve(world.replayed, facts[place + 1])


@pytest.mark.parametrize(
    "wrong",
    [
        {"logical_us": 1},
        {"domain": "other"},
        {"boot_id": "boot-9"},
        {"source": "host-9"},
        {"tick": 1},
        {"disposition": "restart"},
        {"disposition": "quarantined"},
    ],
    ids=lambda wrong: next(iter(wrong.values())),
)
def test_w8_an_observation_that_nobody_could_have_made_is_no_history(wrong: dict[str, Any]) -> None:
    world = World()
    world.tick_us += SECOND
    world.utc_us += SECOND
    fact = next(f for f in world.decide(c.ObserveClock(reading=world.reading())).facts if f.subject == "clock:main")
    for one in world.decide(c.ObserveClock(reading=world.reading())).facts:
        if one.seq < fact.seq:
            evolve(world.replayed, one)
    with pytest.raises(CorruptHistory):
        evolve(world.replayed, fact._replace(body=replace(fact.body, **wrong)))
    evolve(world.replayed, fact)


@pytest.mark.parametrize("uncertainty_us", [0, 2 * SECOND])
def test_w10_a_proof_before_its_deadline_is_no_history(uncertainty_us: int) -> None:
    world = world_in("active/running")
    world.uncertainty_us = uncertainty_us
    world.advance(9 * SECOND if not uncertainty_us else 11 * SECOND)
    body = world.expiry_proof(attempt(world))
    with pytest.raises(CorruptHistory, match="does not prove"):
        evolve(world.replayed, Fact(len(world.facts) + 1, "clock:main", world.clock.version + 1, body))
