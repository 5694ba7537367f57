"""Clocks of the host, of the simulator and of tests pass the suite that ships."""

from __future__ import annotations

import pytest

from fencepost.adapters.clock import SystemClock
from fencepost.adapters.entropy import SystemEntropy
from fencepost.adapters.threads import SystemThreads
from fencepost.ports.clock import Clock
from fencepost.ports.threads import Threads
from fencepost.testing.conformance.clock import ClockConformance
from fencepost.testing.fakes import FakeClock
from fencepost.testing.simulator.suite import InSimulation


class TestSystem(ClockConformance):
    @pytest.fixture
    def clock(self) -> Clock:
        return SystemClock(SystemEntropy())


class TestSystemWithoutABootId(ClockConformance):
    """Where the system has none, each process is a boot of its own."""

    @pytest.fixture
    def clock(self, monkeypatch: pytest.MonkeyPatch) -> Clock:
        monkeypatch.setattr("fencepost.adapters.clock.host_boot_id", lambda: None)
        return SystemClock(SystemEntropy())


class _MovingThreads(SystemThreads):
    """Time passes on a fake clock as it is slept on the system's."""

    def __init__(self, clock: FakeClock) -> None:
        self._clock = clock

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        self._clock.advance(int(seconds * 1_000_000))


class TestFake(ClockConformance):
    @pytest.fixture
    def clock(self) -> FakeClock:
        return FakeClock()

    @pytest.fixture
    def threads(self, clock: FakeClock) -> Threads:
        return _MovingThreads(clock)


class TestSimulated(InSimulation, ClockConformance):
    @pytest.fixture
    def clock(self) -> Clock:
        return self.host


class TestSimulatedSlow(TestSimulated):
    drift_ppm = -50
