"""Leases without a clock that waits and a store that hurries: what counts from when, and who is stopped (C8)."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from fencepost.adapters.threads import SystemThreads
from fencepost.core.limits import Limits
from fencepost.services.attempt import Attempts
from fencepost.services.leases import Lease, Leases

LIMITS = Limits()
SLOW_US = 4_000_000
"""How long the store takes to answer."""
SENT_US = 1_000


class Slow:
    """The means of a worker whose store answers late, and the moments at which it was asked."""

    def __init__(self, result: dict[str, Any]) -> None:
        self.tick_us = SENT_US
        self.threads = SystemThreads()
        self.kernel = SimpleNamespace(limits=LIMITS, request=lambda name, command: command)
        self.base_environment: dict[str, str] = {}
        self._result = result

    def reading(self) -> Any:
        return SimpleNamespace(tick_us=self.tick_us)

    def issue(self, name: str, command: Any) -> Any:
        self.tick_us += SLOW_US
        return SimpleNamespace(ok=True, refusal=None, result=self._result)

    def insist(self, requests: Any, until_tick_us: int) -> list[Any]:
        return [self.issue("", each) for each in requests]


class Running:
    """What runs under a lease, as far as a lease knows it."""

    def __init__(self) -> None:
        self.said: list[Any] = []

    def confirm(self, deadline_tick_us: int) -> None:
        self.said.append(deadline_tick_us)

    def stop(self, reason: str, grace_us: int) -> None:
        self.said.append(reason)


def lease(name: str = "attempt_1") -> Lease:
    return Lease(attempt=name, order="order_1", fence=1, deadline_tick_us=5, lock=SystemThreads().lock())


def leases(means: Any) -> Leases:
    return Leases(means, "worker_1")


def test_c8_a_renewed_lease_counts_from_the_moment_of_its_request() -> None:
    mine, running = lease(), Running()
    mine.bind(running)  # type: ignore[arg-type]  # all that a lease asks of it
    every = leases(Slow({"renewed": [mine.attempt], "lost": []}))
    every.add(mine)
    assert every.run_once() == 1
    assert mine.deadline_tick_us == SENT_US + LIMITS.lease_us
    assert running.said == [5, SENT_US + LIMITS.lease_us]


def test_c8_an_activated_lease_counts_from_the_moment_of_its_request() -> None:
    means: Any = Slow({})
    attempts = Attempts(means, "worker_1", leases(means), None, None, None)  # type: ignore[arg-type]  # not asked here
    reservation = {"attempt": "attempt_1", "order": "order_1", "version": 1, "fence": 1}
    task: Any = SimpleNamespace(spec=SimpleNamespace(environment=(), work_kind="command/1"), inputs="", handed=())
    activated = attempts._activate(reservation, task)
    assert activated is not None and activated.deadline_tick_us == SENT_US + LIMITS.lease_us


@pytest.mark.parametrize("state", ["cancelled_no_effect", "result_reported", None])
def test_what_the_state_no_longer_calls_live_is_stopped_without_a_renewal(state: str | None) -> None:
    means: Any = Slow({})
    lost, kept = lease(), lease("attempt_2")
    found = {"attempt_2": SimpleNamespace(state="running")}
    if state is not None:
        found["attempt_1"] = SimpleNamespace(state=state)
    look = SimpleNamespace(many=lambda names: found)
    means.kernel.reader = SimpleNamespace(look=lambda: nullcontext(look))
    every = leases(means)
    every.add(lost)
    every.add(kept)
    every.check()
    assert (lost.lost, kept.lost) == ("stale_fence", "")
    assert means.tick_us == SENT_US, "nothing was asked of the store"


def test_what_was_lost_or_drained_before_it_runs_is_stopped_at_once() -> None:
    for code, reason in (("stale_fence", "lease_lost"), ("", "stopped")):
        mine, running = lease(), Running()
        if code:
            mine.lose(code)
        else:
            mine.drain(0, 0)
        mine.bind(running)  # type: ignore[arg-type]  # all that a lease asks of it
        assert running.said == [5, reason]


def test_a_lease_that_comes_during_a_drain_is_drained() -> None:
    every = leases(Slow({}))
    before, later = lease(), lease("attempt_2")
    every.add(before)
    every.drain(5_000_000)
    every.add(later)
    assert before.stopping and later.stopping
