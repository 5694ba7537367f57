"""What every adapter of the clock port must do. Subclass it and give it the fixtures `clock` and `threads`.

`threads` is the threads port of the same host, with which the suite lets time pass; the system's own where none is
given. A clock whose host never restarts within a test has nothing more to show.
"""

from __future__ import annotations

import re

import pytest

from fencepost.adapters.threads import SystemThreads
from fencepost.ports.clock import Clock, Reading
from fencepost.ports.threads import Threads
from fencepost.testing.conformance.crowd import together

SLEEP_S = 0.05
LATE_US = 5_000_000
_BOOT_ID = re.compile(r"[0-9a-f-]{1,64}")
_SOURCE = re.compile(r"source_[0-9a-f]{32}")


class ClockConformance:
    """The contract of `fencepost.ports.clock`."""

    @pytest.fixture
    def threads(self) -> Threads:
        return SystemThreads()

    def test_a_reading_is_of_the_documented_form(self, clock: Clock) -> None:
        reading = clock.read()
        assert isinstance(reading, Reading)
        assert all(type(value) is int for value in (reading.utc_us, reading.tick_us, reading.uncertainty_us))
        assert reading.utc_us > 0
        assert reading.tick_us >= 0
        assert reading.uncertainty_us >= 1
        assert _BOOT_ID.fullmatch(reading.boot_id)
        assert _SOURCE.fullmatch(reading.source)
        assert reading.tick_unit == "us"

    def test_ticks_never_decrease_within_a_boot(self, clock: Clock, threads: Threads) -> None:
        readings = []
        for _ in range(200):
            readings.append(clock.read())
            if not len(readings) % 50:
                threads.sleep(0.001)
        ticks = [reading.tick_us for reading in readings]
        assert ticks == sorted(ticks)
        assert {(reading.boot_id, reading.source) for reading in readings} == {
            (readings[0].boot_id, readings[0].source)
        }

    def test_ticks_are_microseconds(self, clock: Clock, threads: Threads) -> None:
        before, began_s = clock.read(), threads.monotonic()
        threads.sleep(SLEEP_S)
        passed_us = clock.read().tick_us - before.tick_us
        slept_us = (threads.monotonic() - began_s) * 1_000_000
        assert SLEEP_S * 1_000_000 * 0.99 <= passed_us <= slept_us + LATE_US

    def test_the_two_readings_are_as_close_as_it_says(self, clock: Clock, threads: Threads) -> None:
        """Where nobody sets the system's time, both move together, but for what the readings say of themselves."""
        before = clock.read()
        threads.sleep(SLEEP_S)
        after = clock.read()
        parted_us = (after.utc_us - before.utc_us) - (after.tick_us - before.tick_us)
        steered_us = 0.001 * (after.tick_us - before.tick_us)  # a system clock that is being steered
        assert abs(parted_us) <= before.uncertainty_us + after.uncertainty_us + steered_us

    def test_threads_may_share_it(self, clock: Clock, threads: Threads) -> None:
        def read() -> list[int]:
            return [clock.read().tick_us for _ in range(100)]

        for ticks in together(threads, [read] * 4):
            assert ticks == sorted(ticks)
