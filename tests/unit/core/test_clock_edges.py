"""Readings at the exact bounds, and what an observation's record says of them (W8, W10)."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from fencepost.core import commands as c
from fencepost.core.canonical import digest_of
from fencepost.core.limits import Limits
from fencepost.core.records.clock import LogicalClockObservation
from tests.support.states import TASK, world_in
from tests.support.world import SECOND, World


def observed(world: World) -> LogicalClockObservation:
    body = world.facts[-1].body
    assert isinstance(body, LogicalClockObservation)
    return body


def test_w8_an_observation_names_its_reading_by_digest_and_the_one_before_it() -> None:
    world = World()
    first = world.clock.last_seq
    world.tick_us += SECOND
    world.utc_us += SECOND
    reading = world.reading()
    world.observe()
    assert observed(world).receipt == digest_of(reading) and observed(world).previous == first
    other = replace(reading, source="host-2")
    world.ok(c.ObserveClock(reading=other))
    assert observed(world).disposition == "restart" and observed(world).previous == 0, "the first of its source"
    before = world.clock.sources["host-1"].last_seq
    world.restart()
    assert observed(world).disposition == "restart" and observed(world).previous == before


@pytest.mark.parametrize("sign", [-1, 1])
@pytest.mark.parametrize(("past_us", "disposition"), [(0, "accepted"), (1, "quarantined")])
def test_w8_a_reading_may_differ_by_as_much_as_the_skew_and_no_more(sign: int, past_us: int, disposition: str) -> None:
    world = World()
    world.tick_us += SECOND
    world.utc_us += SECOND + sign * (world.limits.clock_skew_max_us + past_us)
    world.observe()
    assert observed(world).disposition == disposition


@pytest.mark.parametrize(("past_us", "graced"), [(0, False), (1, True)])
def test_w10_a_gap_of_half_a_lease_needs_no_grace_and_a_longer_one_does(past_us: int, graced: bool) -> None:
    world = World(replace(Limits(), lease_us=10 * SECOND))
    gap_us = 5 * SECOND + past_us
    world.tick_us += gap_us
    world.utc_us += gap_us
    world.observe()
    body = observed(world)
    assert body.disposition == "accepted"
    # From right behind the last reading, so that a lease that was over by then stays over, for one lease from now.
    told = (body.grace_from_us, body.grace_until_us)
    assert told == ((world.now_us - gap_us + 1, world.now_us + 10 * SECOND) if graced else (0, 0))


def test_w10_nothing_is_proved_while_a_person_is_waited_for() -> None:
    world = world_in("active/running")
    attempt = world.attempt_of(world.order(TASK))
    world.tick_us += SECOND
    world.utc_us += 3_600 * SECOND
    assert world.observe() == {"logical_us": world.now_us, "state": "clock_reconciliation_required"}
    assert world.refused(world.expiry(attempt)) == "clock_blocked"
    waiting = world_in("retry_wait")
    order = waiting.order(TASK)
    waiting.tick_us += SECOND
    waiting.utc_us += 3_600 * SECOND
    waiting.observe()
    assert waiting.refused(c.EndBackoff(order=order.order, expected=order.version)) == "clock_blocked"


def test_w8_a_restart_ends_no_quarantine_and_is_told_so() -> None:
    world = World()
    world.tick_us += SECOND
    world.utc_us += 3_600 * SECOND
    told = world.observe()
    records = len(world.facts)
    world.restart()
    assert len(world.facts) == records
    assert world.observe() == told == {"logical_us": world.now_us, "state": "clock_reconciliation_required"}
