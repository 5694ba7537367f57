"""What every adapter of wake-ups must do. Subclass it and give it the fixture `wakeups`.

Hints may be lost, so that a suite can only show what holds while nothing is lost on purpose.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fencepost.adapters.threads import SystemThreads
from fencepost.ports.threads import Threads
from fencepost.ports.wakeups import Wakeups
from fencepost.testing.conformance.crowd import together

_LONG_S = 10.0


class WakeupsConformance:
    """The contract of `fencepost.ports.wakeups` within one process. `threads` may be another host's than this one's."""

    @pytest.fixture
    def threads(self) -> Threads:
        return SystemThreads()

    def test_a_hint_after_the_ticket_is_not_missed(self, wakeups: Wakeups) -> None:
        ticket = wakeups.ticket()
        wakeups.notify()
        assert wakeups.wait(ticket, _LONG_S) is True
        assert wakeups.wait(ticket, 0) is True

    @pytest.mark.parametrize("timeout_s", [-1.0, 0.0, 0.05])
    def test_without_a_hint_the_time_runs_out(self, wakeups: Wakeups, threads: Threads, timeout_s: float) -> None:
        wakeups.notify()
        started_s = threads.monotonic()
        assert wakeups.wait(wakeups.ticket(), timeout_s) is False
        assert timeout_s <= threads.monotonic() - started_s < timeout_s + 5

    def test_every_waiting_thread_is_told(self, wakeups: Wakeups, threads: Threads) -> None:
        ticket = wakeups.ticket()

        def notify() -> bool:
            wakeups.notify()
            return True

        assert together(threads, [lambda: wakeups.wait(ticket, _LONG_S)] * 4 + [notify]) == [True] * 5

    def test_who_waits_already_is_told_at_once(self, wakeups: Wakeups, threads: Threads) -> None:
        ticket = wakeups.ticket()

        def notify() -> bool:
            threads.sleep(0.05)
            wakeups.notify()
            return True

        began_s = threads.monotonic()
        assert together(threads, [lambda: wakeups.wait(ticket, _LONG_S), notify]) == [True, True]
        assert threads.monotonic() - began_s < _LONG_S / 2

    def test_closing_wakes_and_may_be_repeated(self, wakeups: Wakeups) -> None:
        ticket = wakeups.ticket()
        wakeups.close()
        wakeups.close()
        assert wakeups.wait(ticket, 0) is True
        wakeups.notify()


class SharedWakeupsConformance:
    """What an adapter adds that reaches further. `another()` makes one more for the same store."""

    @pytest.fixture
    def threads(self) -> Threads:
        return SystemThreads()

    def test_others_are_told(self, wakeups: Wakeups, another: Callable[[], Wakeups]) -> None:
        others = [another(), another()]
        for _ in range(20):
            tickets = [other.ticket() for other in others]
            wakeups.notify()
            assert all(other.wait(ticket, _LONG_S) for other, ticket in zip(others, tickets, strict=True))

    def test_one_that_came_later_is_told(self, wakeups: Wakeups, another: Callable[[], Wakeups]) -> None:
        wakeups.notify()
        other = another()
        ticket = other.ticket()
        wakeups.notify()
        assert other.wait(ticket, _LONG_S)

    def test_one_that_left_is_no_hindrance(self, wakeups: Wakeups, another: Callable[[], Wakeups]) -> None:
        leaving, staying = another(), another()
        wakeups.notify()
        leaving.close()
        ticket = staying.ticket()
        wakeups.notify()
        assert staying.wait(ticket, _LONG_S)

    def test_a_crowd_of_hints_never_blocks(
        self, wakeups: Wakeups, another: Callable[[], Wakeups], threads: Threads
    ) -> None:
        other = another()
        ticket = other.ticket()
        started_s = threads.monotonic()
        for _ in range(5_000):
            wakeups.notify()
        assert threads.monotonic() - started_s < _LONG_S
        assert other.wait(ticket, _LONG_S)
