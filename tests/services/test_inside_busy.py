"""What programs say while their worker is busy: nothing of it is lost, late, or in anybody's way (W5, C8)."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from fencepost.core.commands import AppendEvent, RecordArtifact, Request
from fencepost.core.records.attempt import LateRecord
from fencepost.kernel.receipts import Receipt
from fencepost.ports.errors import StorageFull, StorageUnavailable
from fencepost.sdk.client import Attempt
from fencepost.sdk.wire import Refused
from fencepost.surfaces.cli.order_files import kept_of
from tests.services.speaker import Speaker
from tests.services.test_inside import begin, code_of, heartbeats, records_of
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


def test_w5_a_file_that_is_kept_again_as_it_once_was_is_what_is_listed(world: World, speaker: Speaker) -> None:
    plan, attempt = begin(world, speaker)
    path = speaker.workspace / "a.txt"
    said = []
    for text in ("one", "one", "two", "one"):
        path.write_text(text)
        said.append(attempt.artifact("a.txt"))
    assert [reply["duplicate"] for reply in said] == [False, True, False, False]
    with world.app.kernel.reader.look() as look:
        _, refs = kept_of(look, world.order(plan, "a"), None)
    assert [ref.digest for ref in refs] == [said[-1]["digest"]]
    speaker.end()
    world.until_ended(plan)
    world.check()


def test_w5_a_file_whose_keeping_was_left_open_is_not_mistaken_for_what_was_kept_before(
    world: World, speaker: Speaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, attempt = begin(world, speaker)
    path = speaker.workspace / "a.txt"
    path.write_text("one")
    first = attempt.artifact("a.txt")
    kernel = world.app.kernel
    real = kernel.write_many

    def unsure(requests: Sequence[Request]) -> list[Receipt]:
        done = real(requests)
        if any(isinstance(request.command, RecordArtifact) for request in requests):
            raise StorageFull("written, and the answer is lost")
        return done

    path.write_text("two")
    with monkeypatch.context() as patched:
        patched.setattr(kernel, "write_many", unsure)
        with pytest.raises(Refused):
            attempt.artifact("a.txt")
    path.write_text("one")
    assert attempt.artifact("a.txt")["duplicate"] is False
    with world.app.kernel.reader.look() as look:
        _, refs = kept_of(look, world.order(plan, "a"), None)
    assert [ref.digest for ref in refs] == [first["digest"]]
    speaker.end()
    world.until_ended(plan)


@pytest.mark.parametrize(
    "wish",
    [
        {"after": "1s", "after_us": 5_000_000_000},
        {"after": "1s", "after_us": 0},
        {"prompt": "Why?", "after": "1s"},
        {"question": "go", "after_us": 0},
    ],
)
def test_w5_a_wish_of_which_a_part_would_not_be_heard_is_refused(
    world: World, speaker: Speaker, wish: dict[str, Any]
) -> None:
    plan, attempt = begin(world, speaker)
    assert code_of(lambda: attempt.request("yield", **wish)) == "out_of_range"
    speaker.end()
    world.until_ended(plan)
    assert world.order(plan, "a").state == "applied"


def test_w5_every_reply_says_whether_to_stop(world: World, speaker: Speaker) -> None:
    plan, attempt = begin(world, speaker)
    token, path = speaker.environment["FENCEPOST_TOKEN"], speaker.environment["FENCEPOST_SOCKET"]
    attempt.status()

    def reply_to(said: str, **fields: Any) -> dict[str, Any]:
        with socket.socket(socket.AF_UNIX) as link:
            link.connect(path)
            link.sendall(json.dumps({"v": 1, "token": said, **fields}).encode() + b"\n")
            reply: dict[str, Any] = json.loads(link.makefile().readline())
        return reply

    asked = [("nothing", {}), ("status", {"more": 1}), ("checkpoint", {"bytes": 2**40}), ("status", {"v": 9})]
    for op, fields in asked:
        assert reply_to(token, op=op, **fields)["stopping"] == ""
    assert reply_to("0" * 64, op="status")["stopping"] == ""
    desk = next(iter(world.workers[0]._sink._desks.values()))
    desk.lease.stopping = True
    told = reply_to(token, op="checkpoint", bytes=2**40)
    assert (told["error"]["code"], told["stopping"]) == ("too_large", "draining")
    speaker.end()
    world.until_ended(plan)
    assert reply_to(token, op="status")["stopping"] == "stale_fence"


def test_w5_stopping_says_that_the_attempt_is_over(world: World, speaker: Speaker) -> None:
    plan, _ = begin(world, speaker)
    other = Attempt(speaker.environment)
    speaker.end()
    world.until_ended(plan)
    assert other.stopping == "stale_fence"
    world.workers[0].stop()
    late = Attempt(speaker.environment)
    assert late.stopping == "worker_gone"
    other.close()
    late.close()


def test_w5_files_that_are_kept_delay_no_other_program(world: World) -> None:
    """Four attempts keep files without an end; a fifth says what it says at once."""
    speakers = [Speaker(world, name) for name in "abcde"]
    plan = world.submit(*(speaker.draft() for speaker in speakers))
    world.worker(jobs=5)
    attempts = [speaker.next(30) for speaker in speakers]
    gate = threading.Event()
    real = world.app.workspaces.keep
    keeping: list[int] = []

    def slowly(*arguments: Any, **named: Any) -> Any:
        keeping.append(1)
        gate.wait(30)
        return real(*arguments, **named)

    world.app.workspaces.keep = slowly  # type: ignore[method-assign]  # a copy that takes its time
    for speaker in speakers[:4]:
        (speaker.workspace / "big").write_text("big")
    threads = [threading.Thread(target=attempt.artifact, args=("big",)) for attempt in attempts[:4]]
    for thread in threads:
        thread.start()
    world.until(lambda: len(keeping) == 4, what="four files are not kept at once")
    began = time.monotonic()
    attempts[4].status()
    attempts[4].heartbeat("on")
    attempts[4].charge(receipt="r", calls=1)
    took = time.monotonic() - began
    gate.set()
    for thread in threads:
        thread.join()
    assert took < 5
    for speaker in speakers:
        speaker.end()
    world.until_ended(plan)
    for speaker in speakers:
        speaker.close()


@pytest.mark.parametrize("asked", ["artifact", "child"])
def test_w5_a_slot_is_free_when_its_program_is_dead_whatever_is_copied_for_it(world: World, asked: str) -> None:
    one, two = Speaker(world, "a"), Speaker(world, "b")
    plan = world.submit(one.draft(), two.draft())
    world.worker(jobs=1)
    attempt = one.next()
    with (one.workspace / "big").open("wb") as file:
        file.truncate(700 * 2**20)
    desk = next(iter(world.workers[0]._sink._desks.values()))
    told: list[str] = []
    real = type(desk).go_on

    def tells(self: Any) -> None:
        real(self)
        told.append("a piece")
        time.sleep(0.1)  # a slow disk

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(type(desk), "go_on", tells)

        def ask() -> None:
            with pytest.raises(Refused):
                attempt.artifact("big") if asked == "artifact" else attempt.child("kid", ["true"], inputs=["big"])

        thread = threading.Thread(target=ask)
        thread.start()
        world.until(lambda: told, what="nothing is copied")
        one.end()
        began = time.monotonic()
        two.next(60)
        assert time.monotonic() - began < 10
        thread.join()
    two.end()
    world.until_ended(plan)
    one.close()
    two.close()
    world.check()
