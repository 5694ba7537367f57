"""Executors of simulated programs pass what the shipped suite asks of every executor: the simulator's own, and the
one that the guide for authors shows. The one of real programs has the whole suite (`test_executor_conformance`)."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from fencepost.ports.executor import Executor, Job
from fencepost.ports.threads import Threads
from fencepost.testing.conformance.executor import LEASE_US, ExecutorPortConformance
from fencepost.testing.simulator.authors import Parts, executor_for
from fencepost.testing.simulator.executor import Trees
from fencepost.testing.simulator.programs import Yard
from fencepost.testing.simulator.suite import InSimulation

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples" / "authors"))
own = importlib.import_module("executor")


class _Simulated(InSimulation, ExecutorPortConformance):
    programs = {  # noqa: RUF012  # read only, as the suite's own
        "exits with 3": ("simulated:exit", "3", "20000"),
        "dies by signal 9": ("simulated:signal", "9"),
        "is missing": ("simulated:missing",),
        "sleeps": ("simulated:sleep",),
        "ends after 0.8 s": ("simulated:exit", "0", "800000"),
        "answers SIGTERM with 4": ("simulated:trap", "4"),
        "does not listen": ("simulated:deaf",),
        "leaves a mark": ("simulated:exit", "0", "1000"),
    }
    parts = Parts()
    yard: Yard
    problems: list[str]

    @pytest.fixture(autouse=True)
    def world(self) -> Iterator[None]:
        self.problems = []
        self.yard = Yard(self.loop, self.faults, Trees(self.loop, self.faults), self.problems.append)
        yield
        assert self.problems == []

    def make_executor(self) -> Executor:
        return executor_for(self.parts, self.yard, self.host, self.process)

    def tick_us(self) -> int:
        return self.host.tick_us()

    def boot_id(self) -> str:
        return self.host.boot_id

    def job(self, folder: Path, program: str, *, time_limit_us: int = LEASE_US) -> Job:
        return replace(super().job(folder, program, time_limit_us=time_limit_us), lock_path="attempt.lock")

    def until_it_listens(self, job: Job, threads: Threads) -> None:
        threads.sleep(0.1)

    def has_run(self, folder: Path) -> bool:
        return self.yard.trees.count > 0


class TestSimulators(_Simulated):
    """`SimExecutor`."""


class TestOfTheGuide(_Simulated):
    """Watched for its promises as well."""

    parts = Parts(executor=own.make)


class TestOfTheGuideOtherwise(TestOfTheGuide):
    seed = 1
