"""What every adapter of the threads port must do. Subclass it and give it the fixture `threads`.

class TestMine(ThreadsConformance):
    @pytest.fixture
    def threads(self):
        return MyThreads()
"""

from __future__ import annotations

import pytest

from fencepost.ports.threads import Threads

LONG_S = 10.0
LATE_S = 5.0  # by which a wait may end too late on a machine that is busy


class ThreadsConformance:
    """The contract of `fencepost.ports.threads`."""

    # -- threads

    def test_join_returns_after_the_end(self, threads: Threads) -> None:
        done: list[str] = []

        def work() -> None:
            threads.sleep(0.05)
            done.append("worked")

        thread = threads.start(work, name="work")
        thread.join()
        assert done == ["worked"]
        thread.join()  # repeatable

    def test_several_join_the_same_thread(self, threads: Threads) -> None:
        told: list[int] = []
        first = threads.start(lambda: threads.sleep(0.05), name="first")

        def wait(number: int) -> None:
            first.join()
            told.append(number)

        waiting = [threads.start(lambda number=number: wait(number), name="waits") for number in range(4)]  # type: ignore[misc]  # a default binds the number
        for thread in waiting:
            thread.join()
        assert sorted(told) == [0, 1, 2, 3]

    # -- locks

    def test_one_thread_at_a_time_holds_a_lock(self, threads: Threads) -> None:
        lock, inside, most, times = threads.lock(), [0], [0], [0]

        def work() -> None:
            for _ in range(25):
                with lock:
                    inside[0] += 1
                    most[0] = max(most[0], inside[0])
                    threads.sleep(0.0005)
                    times[0] += 1
                    inside[0] -= 1

        running = [threads.start(work, name="work") for _ in range(4)]
        for thread in running:
            thread.join()
        assert (most[0], times[0]) == (1, 100)

    def test_a_lock_says_whether_it_is_held(self, threads: Threads) -> None:
        lock, other = threads.lock(), threads.lock()
        assert not lock.locked()
        with lock:
            assert lock.locked()
            assert not other.locked()
        assert not lock.locked()

    def test_a_lock_that_is_held_is_not_waited_for_by_who_does_not_block(self, threads: Threads) -> None:
        lock, told = threads.lock(), list[bool]()
        assert lock.acquire(blocking=False) is True
        threads.start(lambda: told.append(lock.acquire(blocking=False)), name="asks").join()
        assert told == [False]
        lock.release()
        assert not lock.locked()
        assert lock.acquire() is True
        lock.release()
        with lock:
            assert lock.acquire(blocking=False) is False

    def test_an_error_inside_frees_the_lock(self, threads: Threads) -> None:
        lock = threads.lock()
        with pytest.raises(KeyError), lock:
            raise KeyError("inside")
        assert not lock.locked()
        with lock:
            assert lock.locked()

    def test_a_lock_is_not_reentrant(self, threads: Threads) -> None:
        lock, entered = threads.lock(), threads.event()

        def twice() -> None:
            with lock, lock:
                entered.set()

        threads.start(twice, name="twice")
        assert not entered.wait(0.1)
        assert lock.locked()

    # -- events

    def test_an_event_keeps_until_it_is_cleared(self, threads: Threads) -> None:
        event = threads.event()
        assert not event.is_set()
        event.set()
        event.set()
        assert event.is_set()
        assert event.wait() is True
        assert event.wait(0) is True
        event.clear()
        assert not event.is_set()
        assert event.wait(0) is False

    @pytest.mark.parametrize("timeout_s", [-1.0, 0.0, 0.05])
    def test_a_wait_ends_with_its_time(self, threads: Threads, timeout_s: float) -> None:
        began_s = threads.monotonic()
        assert threads.event().wait(timeout_s) is False
        assert timeout_s <= threads.monotonic() - began_s < timeout_s + LATE_S

    def test_everybody_who_waits_is_told(self, threads: Threads) -> None:
        event, told = threads.event(), list[bool]()
        waiting = [threads.start(lambda: told.append(event.wait(LONG_S)), name="waits") for _ in range(3)]
        waiting.append(threads.start(lambda: told.append(event.wait()), name="waits"))
        threads.sleep(0.02)
        began_s = threads.monotonic()
        event.set()
        for thread in waiting:
            thread.join()
        assert told == [True] * 4
        assert threads.monotonic() - began_s < LATE_S

    def test_a_wait_that_timed_out_leaves_nothing_behind(self, threads: Threads) -> None:
        """Who is told of an event for which it waits no more must not be woken out of another wait."""
        first, second, heard = threads.event(), threads.event(), list[bool]()

        def work() -> None:
            first.wait(0.01)
            heard.append(second.wait(0.2))

        thread = threads.start(work, name="work")
        threads.sleep(0.05)
        first.set()
        thread.join()
        assert heard == [False]

    # -- time

    @pytest.mark.parametrize("seconds", [0.0, 0.001, 0.05])
    def test_a_sleep_lasts_at_least_its_time(self, threads: Threads, seconds: float) -> None:
        began_s = threads.monotonic()
        threads.sleep(seconds)
        assert seconds <= threads.monotonic() - began_s < seconds + LATE_S

    def test_seconds_only_grow(self, threads: Threads) -> None:
        seen: list[float] = []
        for _ in range(200):
            seen.append(threads.monotonic())
            if not len(seen) % 50:
                threads.sleep(0.001)
        assert seen == sorted(seen)
        assert seen[-1] > seen[0]

    def test_all_threads_read_the_same_seconds(self, threads: Threads) -> None:
        seen: list[float] = []
        before_s = threads.monotonic()
        threads.start(lambda: seen.append(threads.monotonic()), name="reads").join()
        assert before_s <= seen[0] <= threads.monotonic()
