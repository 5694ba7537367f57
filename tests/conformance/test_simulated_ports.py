"""The store, the hints and the artifacts of simulated processes pass the suites of the real ones.

What the simulator hands to the kernel has to keep the same contracts as what it stands for, or what it shows says
nothing. Threads, clocks, locks, ledgers and executors of the simulator are beside their real ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from fencepost.adapters.artifacts.memory import MemoryArtifactStore
from fencepost.ports.journal import Journal
from fencepost.ports.wakeups import Wakeups
from fencepost.storage.memory import MemoryJournal
from fencepost.testing.conformance.artifacts import ArtifactBench, ArtifactStoreConformance
from fencepost.testing.conformance.journal import JournalConformance, SharedJournalConformance
from fencepost.testing.conformance.wakeups import SharedWakeupsConformance, WakeupsConformance
from fencepost.testing.simulator.disk import Disk
from fencepost.testing.simulator.loop import Process
from fencepost.testing.simulator.stores import Hints
from fencepost.testing.simulator.suite import InSimulation


class NobodyLooks:
    """The `Watch` of a store that is looked at from outside alone."""

    def begun(self, process: Process) -> None:
        return None

    def committed(self, process: Process, append: object) -> None:
        return None


class TestJournal(InSimulation, JournalConformance, SharedJournalConformance):
    """Through the same way as in a run: every call is a step, at which others go on."""

    @pytest.fixture
    def disk(self) -> Disk:
        disk = Disk(self.loop, self.faults, MemoryJournal("0123456789abcdef" * 2))
        disk.watch = NobodyLooks()
        return disk

    @pytest.fixture
    def journal(self, disk: Disk) -> Journal:
        return disk.journal(self.process)

    @pytest.fixture
    def reopen(self, disk: Disk) -> Callable[[], Journal]:
        return lambda: disk.journal(self.another_process("another"))


class TestJournalOtherwise(TestJournal):
    seed = 1


class TestWakeups(InSimulation, WakeupsConformance, SharedWakeupsConformance):
    @pytest.fixture
    def hints(self) -> Hints:
        return Hints(self.loop, self.faults)

    @pytest.fixture
    def wakeups(self, hints: Hints) -> Wakeups:
        return hints.for_process(self.process)

    @pytest.fixture
    def another(self, hints: Hints) -> Iterator[Callable[[], Wakeups]]:
        yield lambda: hints.for_process(self.another_process("another"))


class TestArtifacts(InSimulation, ArtifactStoreConformance):
    @pytest.fixture
    def bench(self) -> ArtifactBench:
        store = MemoryArtifactStore()

        def damage(digest: str) -> None:
            store.content[digest] = store.content[digest][:-1] + b"?"

        return ArtifactBench(store=store, damage=damage)
