"""Conformance suites inside a simulated world: each test runs as a task of a simulated process.

    class TestMine(InSimulation, LocksConformance):
        @pytest.fixture
        def bench(self):
            return LocksBench(locks=MyLocks(self.process), ...)

The suite takes its threads and its time from the simulated host, so that a wait of ten seconds costs nothing, and the
order in which threads take turns follows from `seed`. Fixtures are made outside of the loop, and must wait for nothing.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from random import Random
from typing import Any, ClassVar

import pytest

from fencepost.ports.threads import Threads
from fencepost.testing.simulator.faults import Faults, Rates
from fencepost.testing.simulator.hosts import Host
from fencepost.testing.simulator.loop import Loop, Process
from fencepost.testing.simulator.threads import SimThreads

STEPS_MAX = 1_000_000
TESTS = "test_"


class InSimulation:
    """Name it before the suite. `loop`, `host`, `process` and `faults` (none happens) are there for fixtures."""

    seed: ClassVar[int] = 0
    drift_ppm: ClassVar[int] = 0
    loop: Loop
    faults: Faults
    host: Host
    process: Process

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        for name in dir(cls):
            test = getattr(cls, name)
            if name.startswith(TESTS) and not hasattr(test, "in_simulation"):
                setattr(cls, name, _as_task(test))

    def setup_method(self) -> None:
        self.loop = Loop(Random(f"suite {self.seed}"))
        self.faults = Faults(Rates(), Random(f"faults {self.seed}"))
        self.host = Host(self.loop, 0, drift_ppm=self.drift_ppm)
        self.process = self.another_process("suite")

    def teardown_method(self) -> None:
        self.loop.end()

    def another_process(self, name: str) -> Process:
        """One more process of the host."""
        process = Process(self.loop, name)
        self.host.processes.append(process)
        process.at_exit.append(lambda: self.host.processes.remove(process))
        return process

    @pytest.fixture
    def threads(self) -> Threads:
        return SimThreads(self.process, self.host)

    def run_to_its_end(self, body: Callable[[], object]) -> None:
        """Run `body` as a task, and everybody else beside it; raise what it raises, or what another task raised."""
        task = self.loop.spawn(self.process, body, "suite")
        while not task.done:
            if not self.loop.step() or self.loop.steps > STEPS_MAX:
                raise AssertionError("the test waits for something that never comes")
            if self.loop.failed is not None:
                raise self.loop.failed[1]


def _as_task(test: Callable[..., object]) -> Callable[..., None]:
    @functools.wraps(test)
    def run(self: InSimulation, *arguments: Any, **named: Any) -> None:
        self.run_to_its_end(lambda: test(self, *arguments, **named))

    run.in_simulation = True  # type: ignore[attr-defined]  # a mark, so that a subclass does not wrap it again
    return run
