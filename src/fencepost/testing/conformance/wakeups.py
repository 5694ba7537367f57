"""What every adapter of wake-ups must do. Subclass it and give it the fixture `wakeups`.

Hints may be lost, so that a suite can only show what holds while nothing is lost on purpose.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from fencepost.ports.wakeups import Wakeups

_LONG_S = 10.0


class WakeupsConformance:
    """The contract of `fencepost.ports.wakeups` within one process."""

    def test_a_hint_after_the_ticket_is_not_missed(self, wakeups: Wakeups) -> None:
        ticket = wakeups.ticket()
        wakeups.notify()
        assert wakeups.wait(ticket, _LONG_S) is True
        assert wakeups.wait(ticket, 0) is True

    @pytest.mark.parametrize("timeout_s", [-1.0, 0.0, 0.05])
    def test_without_a_hint_the_time_runs_out(self, wakeups: Wakeups, timeout_s: float) -> None:
        wakeups.notify()
        started_s = time.monotonic()
        assert wakeups.wait(wakeups.ticket(), timeout_s) is False
        assert timeout_s <= time.monotonic() - started_s < timeout_s + 5

    def test_every_waiting_thread_is_told(self, wakeups: Wakeups) -> None:
        answers: list[bool] = []
        ticket = wakeups.ticket()
        threads = [threading.Thread(target=lambda: answers.append(wakeups.wait(ticket, _LONG_S))) for _ in range(4)]
        for thread in threads:
            thread.start()
        wakeups.notify()
        for thread in threads:
            thread.join()
        assert answers == [True] * 4

    def test_closing_wakes_and_may_be_repeated(self, wakeups: Wakeups) -> None:
        ticket = wakeups.ticket()
        wakeups.close()
        wakeups.close()
        assert wakeups.wait(ticket, 0) is True
        wakeups.notify()


class SharedWakeupsConformance:
    """What an adapter adds that reaches further. `another()` makes one more for the same store."""

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

    def test_a_crowd_of_hints_never_blocks(self, wakeups: Wakeups, another: Callable[[], Wakeups]) -> None:
        other = another()
        ticket = other.ticket()
        started_s = time.monotonic()
        for _ in range(5_000):
            wakeups.notify()
        assert time.monotonic() - started_s < _LONG_S
        assert other.wait(ticket, _LONG_S)
