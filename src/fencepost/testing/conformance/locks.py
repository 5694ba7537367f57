"""What every adapter of the host locks port must do. Subclass it and give it the fixture `bench`.

class TestMine(LocksConformance):
    @pytest.fixture
    def bench(self, tmp_path):
        return LocksBench(
            locks=MyLocks(tmp_path),
            another=lambda: MyLocks(tmp_path),
            hold_elsewhere=...,  # see LocksBench
        )
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from fencepost.adapters.threads import SystemThreads
from fencepost.ports.locks import HostLocks
from fencepost.ports.threads import Threads
from fencepost.testing.conformance.crowd import Call, together

WAIT_S = 10.0


@dataclass(frozen=True, kw_only=True)
class LocksBench:
    """A home without locks, and other processes that use it.

    `another` gives the same home's locks as somebody else of this host has them. `hold_elsewhere` makes another process
    hold a name, returns when it does, and gives back what kills that process the hard way (SIGKILL).
    """

    locks: HostLocks
    another: Callable[[], HostLocks]
    hold_elsewhere: Callable[[str], Callable[[], None]]


class LocksConformance:
    """The contract of `fencepost.ports.locks`."""

    @pytest.fixture
    def threads(self) -> Threads:
        return SystemThreads()

    def test_one_at_a_time_holds_a_name(self, bench: LocksBench) -> None:
        held = bench.locks.take("a.lock", wait=False)
        assert held is not None
        assert bench.locks.take("a.lock", wait=False) is None
        assert bench.another().take("a.lock", wait=False) is None
        other = bench.another().take("b.lock", wait=False)
        assert other is not None
        held.release()
        other.release()

    def test_a_lock_stands_until_it_is_released(self, bench: LocksBench) -> None:
        held = bench.locks.take("a.lock", wait=False)
        assert held is not None and held.stands()
        held.release()
        assert not held.stands()

    def test_everybody_sees_that_it_is_held(self, bench: LocksBench) -> None:
        another = bench.another()
        assert not bench.locks.is_held("a.lock")
        held = bench.locks.take("a.lock", wait=True)
        assert held is not None
        assert bench.locks.is_held("a.lock") and another.is_held("a.lock")
        held.release()
        assert not bench.locks.is_held("a.lock") and not another.is_held("a.lock")

    def test_looking_takes_and_makes_nothing(self, bench: LocksBench) -> None:
        assert not bench.locks.is_held("a.lock")
        assert bench.locks.names() == []
        assert not bench.locks.remove_if_free("a.lock")
        assert bench.locks.names() == []

    def test_release_removes_the_name(self, bench: LocksBench) -> None:
        held = bench.locks.take("a.lock", wait=False)
        assert held is not None
        assert bench.locks.names() == bench.another().names() == ["a.lock"]
        held.release()
        assert bench.locks.names() == []

    def test_a_second_release_frees_nobody_else(self, bench: LocksBench) -> None:
        first = bench.locks.take("a.lock", wait=False)
        assert first is not None
        first.release()
        second = bench.locks.take("a.lock", wait=False)
        assert second is not None
        first.release()
        assert bench.locks.is_held("a.lock")
        assert bench.another().take("a.lock", wait=False) is None
        second.release()

    def test_names_are_in_order(self, bench: LocksBench) -> None:
        taken = [bench.locks.take(name, wait=False) for name in ("b.lock", "c.lock", "a.lock")]
        assert bench.locks.names() == ["a.lock", "b.lock", "c.lock"]
        for held in taken:
            assert held is not None
            held.release()

    def test_a_lock_that_is_held_is_not_removed(self, bench: LocksBench) -> None:
        held = bench.locks.take("a.lock", wait=False)
        assert held is not None
        assert not bench.locks.remove_if_free("a.lock")
        assert not bench.another().remove_if_free("a.lock")
        assert bench.locks.is_held("a.lock")
        held.release()

    def test_c17_the_host_frees_the_lock_of_the_dead_and_leaves_its_name(self, bench: LocksBench) -> None:
        kill = bench.hold_elsewhere("a.lock")
        assert bench.locks.is_held("a.lock")
        assert bench.locks.take("a.lock", wait=False) is None
        kill()
        assert not bench.locks.is_held("a.lock")
        assert bench.locks.names() == ["a.lock"]
        assert bench.locks.remove_if_free("a.lock")
        assert bench.locks.names() == []
        assert not bench.locks.remove_if_free("a.lock")

    def test_c17_what_the_dead_held_can_be_taken(self, bench: LocksBench) -> None:
        bench.hold_elsewhere("a.lock")()
        held = bench.locks.take("a.lock", wait=False)
        assert held is not None
        assert bench.another().is_held("a.lock")
        held.release()
        assert bench.locks.names() == []

    def test_who_waits_gets_it_when_the_holder_lets_go(self, bench: LocksBench, threads: Threads) -> None:
        held = bench.locks.take("a.lock", wait=False)
        assert held is not None
        waiting = Call(threads, lambda: bench.another().take("a.lock", wait=True))
        threads.sleep(0.05)
        held.release()
        assert waiting.answer() is not None
        assert bench.locks.is_held("a.lock")

    def test_who_waits_gets_it_when_the_holder_dies(self, bench: LocksBench, threads: Threads) -> None:
        kill = bench.hold_elsewhere("a.lock")
        waiting = Call(threads, lambda: bench.another().take("a.lock", wait=True))
        threads.sleep(0.05)
        kill()
        assert waiting.answer() is not None
        assert bench.locks.is_held("a.lock")

    def test_a_crowd_holds_it_one_after_the_other(self, bench: LocksBench, threads: Threads) -> None:
        """Names are removed by their holders, so that whoever waits may hold what does not stand there any more."""
        inside, most = [0], [0]

        def work() -> int:
            mine = bench.another()
            for _ in range(10):
                held = mine.take("a.lock", wait=True)
                if held is None:
                    raise AssertionError("who waits gets the lock")
                inside[0] += 1
                most[0] = max(most[0], inside[0])
                threads.sleep(0.001)
                inside[0] -= 1
                held.release()
            return 1

        assert together(threads, [work] * 4) == [1] * 4
        assert most == [1]
        assert bench.locks.names() == []

    def test_sweeps_take_nothing_from_those_who_work(self, bench: LocksBench, threads: Threads) -> None:
        inside, most, stop = [0], [0], threads.event()

        def sweep() -> int:
            mine = bench.another()
            while not stop.is_set():
                mine.remove_if_free("a.lock")
                threads.sleep(0.0005)
            return 1

        def work() -> int:
            mine = bench.another()
            for _ in range(20):
                held = mine.take("a.lock", wait=True)
                if held is None:
                    raise AssertionError("who waits gets the lock")
                inside[0] += 1
                most[0] = max(most[0], inside[0])
                threads.sleep(0.001)
                inside[0] -= 1
                held.release()
            return 1

        sweeper = Call(threads, sweep)
        together(threads, [work, work])
        stop.set()
        sweeper.answer()
        assert most == [1]

    def test_a_path_names_the_lock(self, bench: LocksBench) -> None:
        """What takes a lock by itself, an executor's supervisor say, finds by its path the one that `take` means."""
        assert bench.locks.path("a.lock") == bench.another().path("a.lock")
        assert bench.locks.path("a.lock") != bench.locks.path("b.lock")
        assert bench.locks.path("a.lock").endswith("a.lock")
