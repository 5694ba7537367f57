"""Threads of the system and of the simulator pass the suite that ships."""

from __future__ import annotations

import pytest

from fencepost.adapters.threads import SystemThreads
from fencepost.ports.threads import Threads
from fencepost.testing.conformance.threads import ThreadsConformance
from fencepost.testing.simulator.suite import InSimulation


class TestSystem(ThreadsConformance):
    @pytest.fixture
    def threads(self) -> Threads:
        return SystemThreads()


class TestSimulated(InSimulation, ThreadsConformance):
    """Its threads are those that a simulation gives to every suite."""


class TestSimulatedOnASlowClock(InSimulation, ThreadsConformance):
    seed = 1
    drift_ppm = -5_000


class TestSimulatedOnAFastClock(InSimulation, ThreadsConformance):
    seed = 2
    drift_ppm = 5_000
