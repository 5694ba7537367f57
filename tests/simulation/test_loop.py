"""The simulator's own floor: one task at a time, time that only the loop moves, and deaths without a last word."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from fencepost.testing.simulator.hosts import FIRST_TICK_US, Host
from fencepost.testing.simulator.loop import Loop, Process
from fencepost.testing.simulator.threads import SimThreads


class Bench:
    """A loop with one host and one process, and a log of what happened."""

    def __init__(self, seed: int = 1) -> None:
        self.loop = Loop(Random(seed))
        self.host = Host(self.loop, 0)
        self.process = Process(self.loop, "first")
        self.threads = SimThreads(self.process, self.host)
        self.log: list[str] = []

    def spawn(self, target: Callable[[], object], process: Process | None = None) -> None:
        self.loop.spawn(process or self.process, target, "task")

    def run(self, steps: int = 10_000) -> None:
        for _ in range(steps):
            if not self.loop.step():
                return

    def run_until_us(self, at_us: int) -> None:
        while self.loop.now_us < at_us and self.loop.step():
            pass


def test_the_same_seed_takes_the_same_turns_and_another_takes_others() -> None:
    def turns(seed: int) -> list[str]:
        bench = Bench(seed)

        def talk(name: str) -> Callable[[], None]:
            def body() -> None:
                for number in range(5):
                    bench.log.append(f"{name}{number}")
                    bench.loop.pause()

            return body

        for name in "abc":
            bench.spawn(talk(name))
        bench.run()
        assert sorted(bench.log) == sorted(f"{name}{number}" for name in "abc" for number in range(5))
        return bench.log

    assert turns(1) == turns(1)
    assert len({tuple(turns(seed)) for seed in range(8)}) > 1


def test_a_killed_process_never_runs_again_not_even_its_last_words() -> None:
    bench = Bench()

    def body() -> None:
        try:
            bench.log.append("begins")
            bench.threads.sleep(1.0)
            bench.log.append("goes on")
        finally:
            bench.log.append("last words")

    bench.spawn(body)
    bench.loop.call_at(500_000, bench.process.kill)
    bench.run()
    assert bench.log == ["begins"]


def test_a_process_that_ends_itself_has_no_last_words_either() -> None:
    bench = Bench()

    def body() -> None:
        try:
            bench.process.kill()
            bench.loop.pause()
            bench.log.append("goes on")
        finally:
            bench.log.append("last words")

    bench.spawn(body)
    bench.run()
    assert bench.log == []


def test_what_the_host_does_for_a_dead_process_happens_at_its_death_and_once() -> None:
    bench = Bench()
    locks = bench.host.locks
    held = locks.for_process(bench.process).take("name", wait=False)
    assert held is not None
    other = locks.for_process(Process(bench.loop, "other"))
    assert other.is_held("name") and other.take("name", wait=False) is None
    bench.process.kill()
    bench.process.kill()
    assert not other.is_held("name")
    assert other.take("name", wait=False) is not None


def test_a_frozen_process_stands_still_while_time_goes_on_and_runs_on_when_thawed() -> None:
    bench = Bench()

    def body() -> None:
        for _ in range(4):
            bench.threads.sleep(1.0)
            bench.log.append(f"{bench.threads.monotonic():.0f}")

    bench.spawn(body)
    bench.spawn(lambda: bench.loop.wait(20_000_000), Process(bench.loop, "clockwork"))
    bench.loop.call_at(1_500_000, bench.process.freeze)
    bench.loop.call_at(10_500_000, bench.process.thaw)
    bench.run()
    assert bench.log == ["2", "12", "13", "14"], "its host's ticks begin at one second"


def test_locks_are_held_by_one_and_events_wake_everyone() -> None:
    bench = Bench()
    lock, event = bench.threads.lock(), bench.threads.event()
    inside = 0

    def body() -> None:
        nonlocal inside
        event.wait()
        for _ in range(20):
            with lock:
                inside += 1
                assert inside == 1 and lock.locked()
                bench.loop.pause()
                inside -= 1
        bench.log.append("done")

    for _ in range(4):
        bench.spawn(body)
    bench.spawn(event.set)
    bench.run()
    assert bench.log == ["done"] * 4
    assert bench.loop.failed is None


def test_a_wait_that_timed_out_is_not_woken_for_the_sake_of_an_earlier_one() -> None:
    bench = Bench()
    event = bench.threads.event()

    def body() -> None:
        assert not event.wait(1.0)
        began = bench.threads.monotonic()
        bench.threads.sleep(5.0)
        bench.log.append(f"{bench.threads.monotonic() - began:.1f}")

    bench.spawn(body)
    bench.loop.call_at(3_000_000, event.set)
    bench.run()
    assert bench.log == ["5.0"]


def test_a_thread_that_is_joined_has_ended() -> None:
    bench = Bench()

    def child() -> None:
        bench.threads.sleep(2.0)
        bench.log.append("child")

    def parent() -> None:
        bench.threads.start(child, name="child").join()
        bench.log.append("parent")

    bench.spawn(parent)
    bench.run()
    assert bench.log == ["child", "parent"]


def test_an_error_of_a_task_is_kept_with_who_had_it() -> None:
    bench = Bench()

    def body() -> None:
        raise LookupError("nobody is here")

    bench.spawn(body)
    bench.run()
    assert bench.loop.failed is not None
    task, error = bench.loop.failed
    assert task.process is bench.process and isinstance(error, LookupError)


def test_clocks_drift_jump_and_begin_anew() -> None:
    bench = Bench()
    fast = Host(bench.loop, 1, drift_ppm=100, utc_offset_us=7)
    bench.spawn(lambda: bench.loop.wait(1_000_000_000))
    bench.run_until_us(1_000_000_000)
    slow, quick = bench.host.read(), fast.read()
    assert quick.tick_us - slow.tick_us == pytest.approx(100_000, abs=1)
    assert quick.utc_us - slow.utc_us == 7
    assert fast.tick_us() >= quick.tick_us and fast.loop_us(quick.tick_us) == pytest.approx(bench.loop.now_us, abs=3)
    before = fast.boot_id
    fast.restart()
    assert fast.tick_us() == FIRST_TICK_US and fast.boot_id != before


def test_what_waits_at_the_end_is_thrown_away_and_can_do_nothing() -> None:
    bench = Bench()

    def body() -> None:
        try:
            bench.loop.wait(None)
        finally:
            bench.log.append("thrown away")
            bench.threads.sleep(1.0)
            bench.log.append("and went on")

    bench.spawn(body)
    bench.run()
    bench.loop.end()
    assert bench.log == ["thrown away"]
