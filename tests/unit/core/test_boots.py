"""Several boots of one source: each goes on by its own anchor, and none is a restart twice (W8; decision 0016).

Readings of two boots come by turns where one is late, where two containers of a host shift their ticks, and where a
host has no boot id, so that each process is a boot of its own.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from fencepost.core import commands as c
from fencepost.core.evolve import Fact, evolve
from fencepost.core.records.clock import LogicalClockObservation
from fencepost.core.state import BOOTS_MAX, CLOCK, decode_value, encode_value
from tests.support.states import TASK, world_in
from tests.support.world import SECOND, World

DAY = 86_400 * SECOND


class TwoBoots:
    """A world and two boots that live at once; `look` takes a reading of one of them, now."""

    def __init__(self, state: str = "active/running") -> None:
        self.world = world_in(state)
        self.first = self.world.reading()
        self.world.restart()
        self.second = self.world.reading()
        self.passed_us = 0

    def reading(self, boot: c.Reading) -> c.Reading:
        later_us = self.passed_us
        return replace(boot, tick_us=boot.tick_us + later_us, utc_us=boot.utc_us + later_us)

    def look(self, boot: c.Reading, later_us: int = 0) -> Any:
        self.passed_us += later_us
        return self.world.ok(c.ObserveClock(reading=self.reading(boot)))


def records_of(world: World) -> list[LogicalClockObservation]:
    return [fact.body for fact in world.facts if isinstance(fact.body, LogicalClockObservation)]


def test_w8_a_late_reading_of_an_earlier_boot_moves_nothing_and_gives_nobody_an_interval() -> None:
    two = TwoBoots()
    world = two.world
    world.advance(12 * SECOND)
    before, count = world.clock, len(world.facts)
    assert before.grace_until_us < before.logical_us
    for late in (two.first, replace(two.first, tick_us=two.first.tick_us - 1), replace(two.first, utc_us=1)):
        assert world.ok(c.ObserveClock(reading=late)) == {"logical_us": before.logical_us, "state": "running"}
    assert world.clock == before and len(world.facts) == count, "nothing is written of it"
    assert world.refused(world.expiry(world.attempt_of(world.order(TASK)))) == "", "nobody was given anything"


def test_w8_boots_that_live_at_once_move_time_by_turns() -> None:
    """Each counted as a restart of the other before, so that time stood still and every lease was given more."""
    two = TwoBoots()
    world, known = two.world, two.world.attempt_of(two.world.order(TASK))
    began_us = world.clock.logical_us
    grace_until_us = world.clock.grace_until_us
    for number in range(8):
        two.look(two.first if number % 2 else two.second, 3 * SECOND)
    assert world.clock.logical_us - began_us == 24 * SECOND
    assert world.clock.grace_until_us == grace_until_us
    assert [body.disposition for body in records_of(world)[-8:]] == ["accepted"] * 8
    assert world.refused(world.expiry(known)) == ""


def test_w8_each_boot_names_its_own_last_reading_as_the_one_before() -> None:
    two = TwoBoots()
    world = two.world
    seqs = {boot.boot_id: world.clock.boot(boot.source, boot.boot_id) for boot in (two.first, two.second)}
    for boot in (two.first, two.second, two.first):
        before = world.clock.boot(boot.source, boot.boot_id)
        assert before is not None
        two.look(boot, SECOND)
        assert records_of(world)[-1].previous == before.last_seq
    newest = world.clock.sources[two.first.source]
    assert newest.boot_id == two.second.boot_id, "the newest boot stays it"
    assert all(seqs.values())


@pytest.mark.parametrize(("past_us", "state"), [(0, "running"), (1, "clock_reconciliation_required")])
def test_w8_an_earlier_boot_is_checked_against_its_own_anchor(past_us: int, state: str) -> None:
    two = TwoBoots()
    world = two.world
    two.passed_us += SECOND
    reading = two.reading(two.first)
    off = replace(reading, utc_us=reading.utc_us + world.limits.clock_skew_max_us + past_us)
    assert world.ok(c.ObserveClock(reading=off))["state"] == state


def test_w8_an_earlier_boot_that_nobody_looked_at_for_long_opens_a_grace() -> None:
    two = TwoBoots()
    world = two.world
    world.advance(12 * SECOND)
    two.passed_us += DAY
    reading = two.reading(two.first)
    world.ok(c.ObserveClock(reading=reading))
    assert world.clock.grace_until_us == world.clock.logical_us + world.limits.lease_us


def boots_of(world: World) -> list[str]:
    source = world.clock.sources["host-1"]
    return [source.boot_id, *(boot.boot_id for boot in source.earlier)]


def test_w8_sixteen_boots_are_remembered_and_the_one_not_seen_for_longest_is_forgotten() -> None:
    world = World()
    first = world.reading()
    for _ in range(BOOTS_MAX - 1):
        world.restart()
    assert len(boots_of(world)) == BOOTS_MAX and first.boot_id in boots_of(world)
    later = replace(first, tick_us=first.tick_us + SECOND, utc_us=first.utc_us + SECOND)
    world.ok(c.ObserveClock(reading=later))
    world.restart()
    assert len(boots_of(world)) == BOOTS_MAX
    assert first.boot_id in boots_of(world), "it was seen lately, however long ago it began"
    assert "boot-2" not in boots_of(world)
    forgotten = replace(first, boot_id="boot-2", tick_us=5 * SECOND)
    world.ok(c.ObserveClock(reading=forgotten))
    assert records_of(world)[-1].disposition == "restart", "one that is forgotten counts as new"


def test_w8_a_boot_that_began_twice_in_an_older_history_is_remembered_once() -> None:
    """A late reading of an earlier boot was a restart once, and is one in journals of that time."""
    world = World()
    first = world.clock.sources["host-1"].boot_id
    world.restart()
    second = world.clock.sources["host-1"].boot_id
    body = replace(records_of(world)[0], disposition="restart", logical_us=world.clock.logical_us)
    evolve(world.live, Fact(len(world.facts) + 1, CLOCK, world.clock.version + 1, body))
    assert boots_of(world) == [first, second]


def test_w8_a_source_with_one_boot_is_written_without_others() -> None:
    world = World()
    assert b"earlier" not in encode_value(world.clock)
    world.restart()
    assert b"earlier" in encode_value(world.clock)
    assert decode_value(encode_value(world.clock)) == world.clock
    assert world.clock.boot("host-1", "boot-9") is None and world.clock.boot("host-9", "boot-1") is None


LOOK = st.tuples(st.integers(0, 3), st.integers(1, 20 * SECOND), st.booleans())


@given(looks=st.lists(LOOK, max_size=40))
def test_w8_time_never_goes_back_nor_past_what_has_passed_and_no_boot_begins_twice(
    looks: list[tuple[int, int, bool]],
) -> None:
    """Four boots of one source, in any order; some readings are late, and say what was long ago."""
    world = World()
    began_us, passed_us = world.clock.logical_us, 0
    taken: dict[int, list[c.Reading]] = {}
    for number, later_us, late in looks:
        passed_us += later_us
        mine = taken.setdefault(number, [])
        now = replace(
            world.reading(),
            boot_id=f"boot-{number + 10}",
            tick_us=number * SECOND + passed_us,
            utc_us=world.utc_us + passed_us,
        )
        mine.append(now)
        before_us = world.clock.logical_us
        world.ok(c.ObserveClock(reading=mine[len(mine) // 2] if late else now))
        assert before_us <= world.clock.logical_us <= began_us + passed_us
        assert world.clock.state == "running"
    restarts = [body.boot_id for body in records_of(world) if body.disposition == "restart"]
    assert sorted(restarts) == sorted({f"boot-{number + 10}" for number in taken})
