"""Locks of a folder and of the simulator pass the suite that ships."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fencepost.adapters.locks import FolderLocks
from fencepost.testing.conformance.locks import LocksBench, LocksConformance
from fencepost.testing.simulator.suite import InSimulation

HOLD = """
import sys, time
from pathlib import Path
from fencepost.adapters.locks import FolderLocks
held = FolderLocks(Path(sys.argv[1])).take(sys.argv[2], wait=True)
print("held", flush=True)
time.sleep(60)
"""


class TestFolder(LocksConformance):
    @pytest.fixture
    def bench(self, tmp_path: Path) -> Iterator[LocksBench]:
        folder = tmp_path / "locks é"
        folder.mkdir()
        processes: list[subprocess.Popen[str]] = []

        def hold(name: str) -> Callable[[], None]:
            process = subprocess.Popen(
                [sys.executable, "-c", HOLD, str(folder), name], stdout=subprocess.PIPE, text=True
            )
            processes.append(process)
            assert process.stdout is not None
            assert process.stdout.readline() == "held\n"

            def kill() -> None:
                process.kill()
                process.wait()

            return kill

        yield LocksBench(locks=FolderLocks(folder), another=lambda: FolderLocks(folder), hold_elsewhere=hold)
        for process in processes:
            process.kill()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()

    def test_w17_a_lock_whose_file_was_removed_takes_away_no_other(self, bench: LocksBench) -> None:
        """Who cleans up by hand removes the file of a lock that is held: the next one makes its own there."""
        first = bench.locks.take("a.lock", wait=False)
        assert first is not None
        Path(bench.locks.path("a.lock")).unlink()
        second = bench.another().take("a.lock", wait=False)
        assert second is not None and not first.stands()
        first.release()
        assert second.stands() and bench.locks.is_held("a.lock")
        assert bench.another().take("a.lock", wait=False) is None
        second.release()
        assert bench.locks.names() == []

    def test_w17_a_lock_whose_folder_is_gone_is_freed(self, bench: LocksBench) -> None:
        held = bench.locks.take("a.lock", wait=False)
        assert held is not None
        path = Path(bench.locks.path("a.lock"))
        path.unlink()
        path.parent.rmdir()
        held.release()
        assert not held.stands()


class TestSimulated(InSimulation, LocksConformance):
    @pytest.fixture
    def bench(self) -> LocksBench:
        locks = self.host.locks

        def hold(name: str) -> Callable[[], None]:
            process = self.another_process("holder")
            assert locks.for_process(process).take(name, wait=False) is not None
            return process.kill

        return LocksBench(
            locks=locks.for_process(self.process),
            another=lambda: locks.for_process(self.another_process("another")),
            hold_elsewhere=hold,
        )


class TestSimulatedOtherwise(TestSimulated):
    seed = 1
