"""What programs say while their worker is busy: nothing of it is lost, late, or in anybody's way (W5, C8)."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from fencepost.core.commands import AppendEvent, Request
from fencepost.core.records.attempt import LateRecord
from fencepost.kernel.receipts import Receipt
from fencepost.ports.errors import StorageUnavailable
from tests.services.speaker import Speaker
from tests.services.test_inside import begin, heartbeats, records_of
from tests.services.world import World


@pytest.fixture
def speaker(world: World) -> Iterator[Speaker]:
    made = Speaker(world)
    yield made
    made.close()


class TakenMeanwhile:
    """A desk's lock that a request takes just when the renewal looks whether it is free."""

    def __init__(self, lock: Any, seconds: float) -> None:
        self._lock = lock
        self._seconds = seconds
        self._armed = True

    def _be_taken(self) -> None:
        if self._armed and not self._lock.locked():
            self._armed = False
            self._lock.acquire()
            threading.Timer(self._seconds, self._lock.release).start()

    def locked(self) -> bool:
        found = bool(self._lock.locked())
        self._be_taken()
        return found

    def acquire(self, blocking: bool = True) -> bool:
        if not blocking:
            self._be_taken()
        return bool(self._lock.acquire(blocking))

    def release(self) -> None:
        self._lock.release()

    def __enter__(self) -> object:
        return self._lock.__enter__()

    def __exit__(self, *told: Any) -> None:
        self._lock.__exit__(*told)


def notes_of(requests: Sequence[Request]) -> list[str]:
    commands = [request.command for request in requests]
    return [command.note for command in commands if isinstance(command, AppendEvent) and command.note]


def test_c8_a_request_that_takes_its_time_holds_no_renewal_up(world: World, speaker: Speaker) -> None:
    _, attempt = begin(world, speaker)
    attempt.heartbeat("one")
    attempt.heartbeat("two")
    desk = next(iter(world.workers[0]._sink._desks.values()))
    desk.lock = TakenMeanwhile(desk.lock, 8.0)
    time.sleep(7.0)  # a lease here lasts 5 s, and is renewed each second
    assert speaker.state().state == "running"


def test_w5_a_heartbeat_that_is_recorded_while_its_attempt_reports_is_not_late(
    world: World, speaker: Speaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, attempt = begin(world, speaker)
    attempt.heartbeat("one")
    attempt.heartbeat("two")
    kernel = world.app.kernel
    real = kernel.write_many
    delayed = threading.Event()

    def slow(requests: Sequence[Request]) -> list[Receipt]:
        if notes_of(requests) == ["two"] and len(requests) == 1 and not delayed.is_set():
            delayed.set()
            speaker.end()
            time.sleep(1.5)  # the program ends meanwhile, and would have reported long ago
        return real(requests)

    monkeypatch.setattr(kernel, "write_many", slow)
    world.until_ended(plan)
    assert delayed.is_set()
    assert heartbeats(world) == ["one", "two"]
    assert records_of(world, LateRecord) == []


def test_w5_a_heartbeat_outlives_a_store_that_is_away(
    world: World, speaker: Speaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, attempt = begin(world, speaker)
    attempt.heartbeat("one")
    attempt.heartbeat("two")
    kernel = world.app.kernel
    real = kernel.write_many
    failed = threading.Event()

    def away(requests: Sequence[Request]) -> list[Receipt]:
        if notes_of(requests) == ["two"] and not failed.is_set():
            failed.set()
            raise StorageUnavailable("away")
        return real(requests)

    monkeypatch.setattr(kernel, "write_many", away)
    world.until(failed.is_set, what="the heartbeat was never written")
    world.until(lambda: heartbeats(world) == ["one", "two"], what="the heartbeat is lost")
    speaker.end()
    world.until_ended(plan)


def test_w5_the_last_heartbeat_of_a_drained_attempt_is_recorded(world: World, speaker: Speaker) -> None:
    _, attempt = begin(world, speaker)
    attempt.heartbeat("one")
    assert attempt.heartbeat("two")["recorded"] is False
    world.workers[0].stop()
    assert heartbeats(world) == ["one", "two"]
