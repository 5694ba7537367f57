"""What a running program says, through a real worker's socket, and what becomes of it (W5, W6, X10)."""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import socket
import stat
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fencepost.core.commands import AnswerOrder, CancelOrder, SetBudget
from fencepost.core.records.attempt import AttemptEvent
from fencepost.core.records.plan import Acceptance
from fencepost.ports.door import Asked
from fencepost.ports.errors import StorageUnavailable
from fencepost.sdk import wire
from fencepost.sdk.client import Attempt
from fencepost.sdk.wire import Connection, Refused, StaleFence
from tests.kernel.support import raising
from tests.services.speaker import Speaker
from tests.services.world import World, draft


@pytest.fixture
def speaker(world: World) -> Iterator[Speaker]:
    made = Speaker(world)
    yield made
    made.close()


def begin(world: World, speaker: Speaker, **changes: Any) -> tuple[str, Attempt]:
    plan = world.submit(speaker.draft(**changes))
    world.worker(jobs=1)
    return plan, speaker.next()


def code_of(call: Callable[[], object]) -> str:
    with pytest.raises(Refused) as refused:
        call()
    assert refused.value.exit_code > 0
    return refused.value.code


def records_of(world: World, kind: type[Any]) -> list[Any]:
    with world.app.kernel.reader.look() as look:
        bodies = [look.record(seq).body for seq, _ in look.records(0, 100_000)]
    return [body for body in bodies if isinstance(body, kind)]


def heartbeats(world: World) -> list[str]:
    return [event.note for event in records_of(world, AttemptEvent) if event.family == "heartbeat_observed"]


# Who speaks


def test_w5_what_is_said_stands_in_the_journal_when_the_reply_comes(world: World, speaker: Speaker) -> None:
    plan, attempt = begin(world, speaker)
    assert attempt.heartbeat("at work")["recorded"] is True
    assert speaker.state().note == "at work"
    (speaker.workspace / "seen.txt").write_text("seen")
    kept = attempt.artifact("seen.txt")
    assert (kept["path"], kept["size"]) == ("seen.txt", 4)
    assert world.app.artifacts.read(kept["digest"], 100) == b"seen"
    assert speaker.state().artifacts == 1
    saved = attempt.checkpoint(b"state")
    assert world.order(plan, "a").checkpoints["blob/1"].envelope == saved["checkpoint"]
    charged = attempt.charge(receipt="r1", calls=2, money={"USD": "0.004"})
    assert world.order(plan, "a").account.charged["money_micros:USD"] == 4_000
    assert (charged["duplicate"], charged["over"]) == (False, {}), "nobody limits it"
    speaker.end()
    world.until_ended(plan)
    assert world.order(plan, "a").state == "applied"
    world.check()


def test_w18_what_is_left_and_over_is_told_in_the_form_of_a_charge(world: World, speaker: Speaker) -> None:
    limits = {"calls": 3, "tokens_input": 10, "money_micros:USD": 1_000_000}
    _, attempt = begin(world, speaker, ceilings={"attempts": 9, **{name: 9 * each for name, each in limits.items()}})
    first = attempt.charge(receipt="r1", calls=1, money={"USD": "0.5"})
    assert first["left"] == {"calls": 2, "tokens_input": 10, "money": {"USD": "0.50"}}
    assert first["over"] == {}
    again = attempt.charge(receipt="r1", calls=1, money={"USD": "0.5"})
    assert (again["duplicate"], again["left"], again["over"]) == (True, first["left"], {})
    second = attempt.charge(receipt="r2", calls=3, tokens_output=7, money={"USD": "0.75"})
    assert second["left"] == {"calls": 0, "tokens_input": 10, "money": {"USD": "0.00"}}
    assert second["over"] == {"calls": 1, "money": {"USD": "0.25"}}, "nobody limits tokens_output"
    third = attempt.charge(receipt="r3", **second["over"])
    assert (third["over"], third["left"]) == (second["over"], second["left"]), "what is told can be said"
    fourth = attempt.charge(receipt="r4", unknown=["money:EUR"])
    assert fourth["over"] == {"money": {"EUR": "0.00"}}, "how much it was nobody knows, and nothing of it was allowed"
    speaker.end()


def next_of(call: Callable[[], object]) -> str:
    with pytest.raises(Refused) as refused:
        call()
    return refused.value.next


def test_w5_what_is_refused_says_what_to_do_instead(world: World, speaker: Speaker) -> None:
    _, attempt = begin(world, speaker, ceilings={"attempts": 9})
    elsewhere = "name a file of the workspace, by its path from there"
    for path in ("/etc/passwd", "../there"):
        assert next_of(lambda path=path: attempt.artifact(path)) == elsewhere
    asked = "wait for it: fencepost attempt yield --question q"
    assert next_of(lambda: attempt.request("answer", question="q")) == asked
    assert next_of(lambda: attempt.wait(children=["kid"])) == "submit it first: fencepost attempt child FILE"
    assert next_of(lambda: attempt.output("kid", "a.txt")) == "submit it first: fencepost attempt child FILE"
    attempt.child("kid", ["true"])
    assert next_of(lambda: attempt.wait(children=["kit"])) == "name one of the children, such as kid"
    assert next_of(lambda: attempt.output("kid", "a.txt")) == "wait for it: fencepost attempt yield --child kid"
    assert next_of(lambda: attempt.checkpoint(b"", kind="odd/1")) == "name one of blob/1, steps/1"
    with pytest.raises(Refused) as refused:
        attempt.child("other", ["true"], outputs="a.txt")
    assert (refused.value.code, refused.value.where) == ("wrong_type", "/order/outputs")
    link = Connection(speaker.environment["FENCEPOST_SOCKET"], "0" * 64)
    assert next_of(lambda: link.ask("hello")).startswith("send FENCEPOST_TOKEN as this attempt was given it")
    link.close()
    speaker.end()


def test_w18_a_currency_that_nobody_can_read_is_named(world: World, speaker: Speaker) -> None:
    _, attempt = begin(world, speaker)
    with pytest.raises(Refused) as refused:
        attempt.charge(receipt="r", money={"usd": "0.5"})
    assert (refused.value.code, refused.value.where) == ("out_of_range", "/amounts/money/usd")
    assert refused.value.message == "'usd' is no currency"
    assert refused.value.next == "write the three capital letters of ISO 4217, such as USD"
    speaker.end()


def test_w5_hello_says_who_the_attempt_is_and_what_it_was_given(world: World, speaker: Speaker) -> None:
    plan, attempt = begin(world, speaker, params='{"url":"https://example.org"}', outputs=("a.txt",))
    hello = attempt.hello()
    state = speaker.state()
    assert (hello["attempt"], hello["fence"], hello["plan"]) == (state.attempt, state.fence, plan)
    assert (hello["order"], hello["task"]) == (state.order, "a")
    assert hello["params"] == attempt.params == {"url": "https://example.org"}
    assert hello["spec"]["outputs"] == ["a.txt"]
    assert (hello["number"], hello["checkpoints"], hello["children"], hello["answers"]) == (0, {}, {}, {})
    assert 0 < hello["lease_left_us"] <= world.app.kernel.limits.lease_us
    assert (attempt.attempt, attempt.order, attempt.fence) == (state.attempt, state.order, state.fence)
    assert speaker.environment["FENCEPOST_CHECKPOINT"] == ""


def test_x10_a_token_opens_its_own_attempt_alone_and_dies_with_it(world: World, speaker: Speaker) -> None:
    other = Speaker(world, "b")
    plan = world.submit(speaker.draft(), other.draft())
    world.worker(jobs=2)
    one, two = speaker.next(), other.next()
    token, path = speaker.environment["FENCEPOST_TOKEN"], speaker.environment["FENCEPOST_SOCKET"]
    assert len(token) == 64 and token != other.environment["FENCEPOST_TOKEN"]
    assert one.hello()["attempt"] != two.hello()["attempt"]
    for wrong in (
        "",
        "0" * 64,
        token[:-1],
        token.upper(),
        token + "0",
        other.environment["FENCEPOST_TOKEN"][:-1] + "g",
    ):
        if wrong != token:
            link = Connection(path, wrong)
            assert code_of(lambda link=link: link.ask("hello")) == "denied"
            link.close()
    speaker.end()
    world.until(lambda: world.order(plan, "a").state == "applied")
    again = Connection(path, token)
    with pytest.raises(StaleFence):
        again.ask("status")
    again.close()
    assert two.hello()["ok"] is True
    other.end()
    world.until_ended(plan)
    other.close()


def test_x10_a_token_stands_nowhere_but_in_its_program(world: World, speaker: Speaker) -> None:
    plan, attempt = begin(world, speaker)
    token = speaker.environment["FENCEPOST_TOKEN"]
    attempt.checkpoint(b"state")
    attempt.heartbeat("note")
    link = Connection(speaker.environment["FENCEPOST_SOCKET"], token)
    told = []
    for fields in ({token: 1}, {"note": 1, "x" + token: 2}, {"note": "my " + token}, {"kind": token}, {"v": 2}):
        op = "resume" if "kind" in fields else "heartbeat"
        with pytest.raises(Refused) as refused:
            link.ask(op, None, **fields)
        told.append(json.dumps([refused.value.message, refused.value.where, refused.value.next]))
    link.close()
    assert not [text for text in told if token in text], told
    arguments = b"".join(
        Path(f"/proc/{name}/cmdline").read_bytes()
        for name in os.listdir("/proc")
        if name.isdigit() and Path(f"/proc/{name}/cmdline").exists()
    )
    assert token.encode() not in arguments
    speaker.end()
    world.until_ended(plan)
    holding = [
        path
        for path in world.folder.rglob("*")
        if path.is_file() and path.parent != speaker.place and token.encode() in path.read_bytes()
    ]
    assert holding == []


def test_x10_a_token_that_a_program_prints_is_not_kept_with_its_log(world: World) -> None:
    plan = world.submit(draft("a", "sh", "-c", "echo before; env; env >&2; echo after"))
    world.worker(jobs=1)
    world.until_ended(plan)
    facts = world.facts(plan, "a")
    for log in (facts.stdout, facts.stderr):
        assert log is not None
        lines = world.app.artifacts.read(log.digest, 1_000_000).splitlines()
        assert b"FENCEPOST_TOKEN=" + b"*" * 64 in lines
    assert lines and world.app.artifacts.read(facts.stdout.digest, 1_000_000).splitlines()[-1] == b"after"


def test_x10_a_verifier_has_nobody_to_speak_to(world: World) -> None:
    check = "! env | grep -E '^FENCEPOST_(SOCKET|TOKEN|CHECKPOINT)='"
    plan = world.submit(
        draft("a", "sh", "-c", f"! {{ {check}; }}", accept=Acceptance(verify=("sh", "-c", check))),
        draft("b", "true", accept=Acceptance(verify=("fencepost", "attempt", "status"))),
    )
    world.worker(jobs=1)
    world.until_ended(plan)
    assert world.order(plan, "a").state == "applied"
    assert world.order(plan, "b").state == "failed"


def test_w5_the_token_is_not_kept_by_the_worker_either(world: World, speaker: Speaker) -> None:
    _, attempt = begin(world, speaker)
    attempt.hello()
    sink = world.workers[0]._sink
    assert speaker.environment["FENCEPOST_TOKEN"] not in repr(vars(sink))
    assert list(sink._desks) == [
        "sha256:" + hashlib.sha256(speaker.environment["FENCEPOST_TOKEN"].encode()).hexdigest()
    ]


# Lease and fence


def test_w5_a_cancelled_attempt_is_told_at_once_and_may_still_say_what_it_spent(world: World) -> None:
    speaker = Speaker(world, stubborn=True)
    plan, attempt = begin(world, speaker)
    assert attempt.stopping == ""
    attempt.charge(receipt="before", calls=1)
    world.write("human", CancelOrder(order=world.order(plan, "a").order)).required()
    world.until(lambda: attempt.status()["stopping"], 5)
    began = time.monotonic()
    for call in (
        lambda: attempt.heartbeat("late"),
        lambda: attempt.checkpoint(b"late"),
        lambda: attempt.child("late", ["true"]),
        lambda: attempt.request("yield", after="1s"),
        attempt.hello,
    ):
        with pytest.raises(StaleFence):
            call()
    assert code_of(lambda: attempt.charge(receipt="late", calls=5)) == "rejected_stale"
    assert code_of(lambda: attempt.charge(receipt="late", calls=5)) == "rejected_stale"
    assert time.monotonic() - began < 1.5
    assert attempt.stopping != ""
    world.until_ended(plan)
    assert world.order(plan, "a").account.charged["calls"] == 6
    assert world.order(plan, "a").checkpoint_number == 0
    world.until(lambda: world.hold(world.attempts(plan, "a")[0]).state == "settled")
    speaker.close()
    world.check()


def test_w5_what_was_read_before_the_end_and_is_answered_after_it_counts_for_nothing(
    world: World, speaker: Speaker
) -> None:
    """The lease of an attempt holds on for some seconds when its tree has ended, and nobody waits for answers then."""
    plan, attempt = begin(world, speaker)
    sink = world.workers[0]._sink
    token = speaker.environment["FENCEPOST_TOKEN"]
    said: list[tuple[str, dict[str, Any]]] = [
        ("status", {}),
        ("heartbeat", {"note": "late"}),
        ("yield", {"after": "1s"}),
        ("charge", {"receipt": "late", "amounts": {"calls": 1}}),
        ("hello", {}),
    ]
    asked = [
        sink.read(json.dumps({"v": 1, "token": token, "op": operation, **fields}).encode())
        for operation, fields in said
    ]
    attempt.connection.close()
    speaker.end()
    world.until_ended(plan)
    for (operation, _), each in zip(said, asked, strict=True):
        assert isinstance(each, Asked), (operation, each)
        reply = sink.answer(each, None).reply
        assert (reply["ok"], reply["error"]["code"]) == (False, "stale_fence"), (operation, reply)
    assert not world.order(plan, "a").account.charged.get("calls")
    assert heartbeats(world) == []
    world.check()


def test_w5_a_lost_lease_is_told_without_asking_the_store(world: World) -> None:
    speaker = Speaker(world, stubborn=True)
    _, attempt = begin(world, speaker)
    attempt.hello()
    gate = threading.Event()
    world.trouble.before_begin = lambda: (gate.wait(10), None)[1]
    try:
        [lease] = world.workers[0]._leases.all()
        lease.lose("stale_fence")
        began = time.monotonic()
        with pytest.raises(StaleFence):
            attempt.checkpoint(b"late")
        assert attempt.status()["stopping"] == "stale_fence"
        assert time.monotonic() - began < 1
    finally:
        world.trouble.before_begin = None
        gate.set()
    speaker.close()


def test_w5_a_drain_is_told_with_whatever_the_program_says_next(world: World) -> None:
    speaker = Speaker(world, stubborn=True)
    plan, attempt = begin(world, speaker)
    world.workers[0].request_stop()
    assert attempt.heartbeat("going")["stopping"] == "draining"
    assert attempt.stopping == "draining"
    saved = attempt.checkpoint(b"what I have")
    assert (saved["number"], saved["stopping"]) == (1, "draining")
    speaker.end()
    world.workers[0].stop()
    assert world.order(plan, "a").checkpoint_number == 1
    speaker.close()


def test_lifecycle_9_what_a_program_asks_while_its_worker_drains_is_asked(world: World) -> None:
    speaker = Speaker(world, stubborn=True)
    plan, attempt = begin(world, speaker)
    world.workers[0].request_stop()
    assert attempt.request("yield", question="colour", prompt="which?")[0]["yielding"] is True
    speaker.end()
    world.workers[0].stop()
    order = world.order(plan, "a")
    assert order.state == "waiting" and order.wait is not None and order.wait.question == "colour"
    speaker.close()


def test_w5_a_start_that_could_not_be_told_is_told_before_the_wait(world: World, speaker: Speaker) -> None:
    """A wait needs an attempt that has been told to run."""
    plan = world.submit(speaker.draft())
    world.trouble.before_append = _refusing_starts(world)
    world.worker(jobs=1)
    attempt = speaker.next()
    time.sleep(0.3)
    assert speaker.state().state == "leased"
    world.trouble.before_append = None
    attempt.request("yield", after="1d")
    speaker.end()
    assert world.until_state(plan, "a", "waiting", "failed").state == "waiting"
    assert [each.state for each in world.attempts(plan, "a")] == ["yielded"]


def _refusing_starts(world: World) -> Callable[[], None]:
    """A store that fails as soon as a program runs."""

    def hook() -> None:
        if world.processes():
            raise StorageUnavailable("simulated: the store is away")

    return hook


# A crowd at the door


@pytest.mark.slow
def test_x10_a_program_that_floods_its_worker_holds_nobody_up(world: World) -> None:
    """Connections by the thousand, garbage, half lines, payloads that never come, replies that nobody reads."""
    flood = """
import json, os, socket, threading, time
path, token = os.environ["FENCEPOST_SOCKET"], os.environ["FENCEPOST_TOKEN"]
until = time.monotonic() + 6
lines = [
    b"", b"x", b"{" * 70_000, b"\\xff\\n" * 100, b"null\\n",
    json.dumps({"v": 1, "token": token, "op": "checkpoint", "bytes": 16_000_000}).encode() + b"\\n" + b"x" * 100,
    json.dumps({"v": 1, "token": token, "op": "hello"}).encode() + b"\\n",
    json.dumps({"v": 1, "token": "0" * 64, "op": "hello"}).encode() + b"\\n",
    (json.dumps({"v": 1, "token": token, "op": "heartbeat"}).encode() + b"\\n") * 500,
]
count = 0
def pour(number):
    global count
    kept = []
    while time.monotonic() < until:
        try:
            link = socket.socket(socket.AF_UNIX)
            link.settimeout(1)
            link.connect(path)
            link.sendall(lines[count % len(lines)])
            kept.append(link)
        except OSError:
            pass
        count += 1
        if len(kept) > 60:
            for link in kept: link.close()
            kept.clear()
threads = [threading.Thread(target=pour, args=(n,)) for n in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(count)
"""
    speaker = Speaker(world, "b")
    plan = world.submit(draft("a", sys.executable, "-S", "-c", flood), speaker.draft())
    world.worker(jobs=2)
    attempt = speaker.next()
    slowest = 0.0
    for number in range(30):
        began = time.monotonic()
        attempt.heartbeat(f"{number}")
        attempt.checkpoint(f"{number}".encode(), builds_on=number)
        slowest = max(slowest, time.monotonic() - began)
        time.sleep(0.1)
    assert slowest < 5
    speaker.end()
    world.until_ended(plan)
    assert {task: order.state for task, order in world.orders(plan).items()} == {"a": "applied", "b": "applied"}
    assert world.order(plan, "b").checkpoint_number == 30
    assert len(world.attempts(plan, "a")) == len(world.attempts(plan, "b")) == 1
    log = world.facts(plan, "a").stdout
    assert log is not None and int(world.app.artifacts.read(log.digest, 100)) > 200
    speaker.close()
    world.check()


@pytest.mark.parametrize("seed", range(4))
def test_w5_whatever_is_said_twice_or_answered_never_happens_once(world: World, speaker: Speaker, seed: int) -> None:
    """Random requests, said again at random, over a store that loses answers: the journal has each of them once."""
    chance = random.Random(seed)
    plan, attempt = begin(world, speaker)
    charged: dict[str, int] = {}
    saved: list[bytes] = []
    kept: list[bytes] = []
    for step in range(40):
        if chance.random() < 0.2:
            world.trouble.after_commit = raising(StorageUnavailable("the answer is lost"))
        times = chance.choice((1, 1, 2, 3))
        match chance.choice(("charge", "checkpoint", "artifact", "old")):
            case "charge":
                receipt = f"r{chance.randrange(12)}"
                amount = charged.setdefault(receipt, chance.randrange(1, 9))
                for _ in range(times):
                    attempt.charge(receipt=receipt, calls=amount)
            case "checkpoint":
                data = f"{step}".encode()
                for _ in range(times):
                    assert attempt.checkpoint(data, builds_on=len(saved))["number"] == len(saved) + 1
                saved.append(data)
            case "artifact":
                data = f"file {step % 9}".encode()
                (speaker.workspace / "file.txt").write_bytes(data)
                for _ in range(times):
                    attempt.artifact("file.txt")
                kept += [data] if kept[-1:] != [data] else []  # once for each change
            case "old" if len(saved) > 1:
                number = chance.randrange(len(saved) - 1)
                again = attempt.checkpoint(saved[number], builds_on=number)
                assert (again["number"], again["duplicate"]) == (number + 1, True)
        world.trouble.after_commit = None
    order = world.order(plan, "a")
    assert order.account.charged.get("calls", 0) == sum(charged.values())
    assert order.checkpoint_number == len(saved)
    assert attempt.resume() == (saved[-1] if saved else None)
    assert speaker.state().artifacts == len(kept)
    speaker.end()
    world.until_ended(plan)
    world.check()


# Heartbeats


def test_w5_heartbeats_are_recorded_once_a_second_and_the_newest_is_not_lost(world: World, speaker: Speaker) -> None:
    plan, attempt = begin(world, speaker)
    recorded = [attempt.heartbeat(f"{number}")["recorded"] for number in range(60)]
    assert recorded[0] is True and sum(recorded) < 8
    world.until(lambda: speaker.state().note == "59", 5)
    assert len(heartbeats(world)) < 10
    attempt.heartbeat("last")
    attempt.heartbeat("the very last")
    speaker.end()
    world.until_ended(plan)
    assert heartbeats(world)[-1] == "the very last"
    world.check()


@pytest.mark.parametrize("past", [-1, 0, 1])
def test_w5_a_note_has_a_bound(world: World, speaker: Speaker, past: int) -> None:
    _, attempt = begin(world, speaker)
    note = "n" * (world.app.kernel.limits.text_bytes_max + past)
    if past > 0:
        assert code_of(lambda: attempt.heartbeat(note)) == "bad_value"
    else:
        assert attempt.heartbeat(note)["recorded"] is True


@pytest.mark.parametrize(
    ("note", "code"), [("a\0b", "nul_character"), ("\ud800", "lone_surrogate"), (1, "wrong_type"), (None, "wrong_type")]
)
def test_w5_a_note_is_text(world: World, speaker: Speaker, note: Any, code: str) -> None:
    _, attempt = begin(world, speaker)
    assert code_of(lambda: attempt.heartbeat(note)) == code
    assert attempt.heartbeat("fine é 💡")["recorded"] is True
    assert speaker.state().note == "fine é 💡"


# Checkpoints


def test_w6_a_checkpoint_builds_on_the_last_one(world: World, speaker: Speaker) -> None:
    plan, attempt = begin(world, speaker)
    assert attempt.resume() is None
    assert code_of(lambda: attempt.request("resume")) == "no_checkpoint"
    first = attempt.checkpoint(b"one", builds_on=0)
    assert (first["number"], first["duplicate"]) == (1, False)
    assert code_of(lambda: attempt.checkpoint(b"two", builds_on=0)) == "checkpoint_moved"
    assert code_of(lambda: attempt.checkpoint(b"two", builds_on=7)) == "checkpoint_moved"
    assert attempt.checkpoint(b"two", builds_on=1)["number"] == 2
    assert attempt.checkpoint({"b": [1, "é"], "a": None})["number"] == 3
    assert attempt.resume() == '{"a":null,"b":[1,"é"]}'.encode()
    assert attempt.resume_value() == {"a": None, "b": [1, "é"]}
    assert attempt.checkpoint(b"")["number"] == 4
    assert attempt.resume() == b""
    steps = b'{"base":null,"steps":[{"arguments":"sha256:%064d","name":"a","value":"1"}]}' % 0
    assert attempt.checkpoint(steps, kind="steps/1")["number"] == 5
    assert (attempt.resume("steps/1"), attempt.resume()) == (steps, b"")
    assert world.order(plan, "a").checkpoint_number == 5


def test_w6_a_checkpoint_that_is_sent_twice_is_one(world: World, speaker: Speaker) -> None:
    plan, attempt = begin(world, speaker)
    first = attempt.checkpoint(b"one")
    for again in (attempt.checkpoint(b"one"), attempt.checkpoint(b"one", builds_on=0)):
        assert (again["number"], again["checkpoint"], again["duplicate"]) == (1, first["checkpoint"], True)
    second = attempt.checkpoint(b"two", builds_on=1)
    assert attempt.checkpoint(b"one", builds_on=0)["checkpoint"] == first["checkpoint"]
    assert attempt.checkpoint(b"two", builds_on=1)["checkpoint"] == second["checkpoint"]
    assert world.order(plan, "a").checkpoint_number == 2
    assert attempt.checkpoint(b"one", builds_on=2)["number"] == 3  # said again on purpose


def test_w6_an_answer_that_was_lost_after_the_commit_is_given_again(world: World, speaker: Speaker) -> None:
    plan, attempt = begin(world, speaker)
    world.trouble.after_commit = raising(StorageUnavailable("the answer is lost"))
    saved = attempt.checkpoint(b"one")
    world.trouble.after_commit = None
    assert saved["number"] == world.order(plan, "a").checkpoint_number == 1


def test_w5_while_the_store_is_away_a_program_is_told_and_nothing_has_happened(
    world: World, speaker: Speaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, attempt = begin(world, speaker)
    monkeypatch.setattr("fencepost.services.desk.PATIENCE_US", 0)
    (speaker.workspace / "a.txt").write_text("a")
    world.trouble.before_commit = raising(StorageUnavailable("simulated: the store is away"), times=1_000)
    for call in (
        lambda: attempt.checkpoint(b"state"),
        lambda: attempt.charge(receipt="r", calls=1),
        lambda: attempt.artifact("a.txt"),
        lambda: attempt.child("kid", ["true"]),
        lambda: attempt.heartbeat("note"),
    ):
        with pytest.raises(Refused) as refused:
            call()
        assert (refused.value.code, refused.value.exit_code) == ("storage_unavailable", 1)
    world.trouble.before_commit = None
    order = world.order(plan, "a")
    assert (order.checkpoint_number, order.children, order.account.charged) == (0, {}, {"attempts": 1})
    assert speaker.state().artifacts == 0
    assert attempt.checkpoint(b"state", builds_on=0)["number"] == 1
    attempt.charge(receipt="r", calls=1)
    assert world.order(plan, "a").account.charged == {"attempts": 1, "calls": 1}
    world.until(lambda: speaker.state().note == "note", 6)  # a heartbeat that failed goes with the next renewal


@pytest.mark.parametrize(
    ("payload", "code"),
    [
        (b"", "syntax"),
        (b"[]", "wrong_type"),
        (b'{"a": 1}', "bad_value"),
        (b'{"b":1,"a":2}', "bad_value"),
        (b'{"a":1.5}', "float"),
        (b'{"a":1,"a":1}', "duplicate_key"),
        (b'{"a":"\xff"}', "invalid_utf8"),
        (b'{"a":1}\n', "trailing_bytes"),
        (b"[" * 100_000, "too_deep"),
        (b'{"a":9007199254740992}', "integer_out_of_range"),
    ],
)
def test_w6_recorded_steps_are_canonical_json(world: World, speaker: Speaker, payload: bytes, code: str) -> None:
    plan, attempt = begin(world, speaker)
    assert code_of(lambda: attempt.checkpoint(payload, kind="steps/1")) == code
    assert attempt.checkpoint(payload)["number"] == 1  # a blob is any bytes
    assert code_of(lambda: attempt.checkpoint(payload, kind="blob/2")) == "unknown_tag"
    assert world.order(plan, "a").checkpoint_number == 1


@pytest.mark.slow
@pytest.mark.parametrize("past", [-1, 0, 1])
def test_w6_a_payload_has_a_bound(world: World, speaker: Speaker, past: int) -> None:
    _, attempt = begin(world, speaker)
    size = wire.PAYLOAD_BYTES_MAX + past
    if past <= 0:
        assert attempt.checkpoint(b"x" * size)["number"] == 1
        assert attempt.resume() == b"x" * size
        return
    assert code_of(lambda: attempt.checkpoint(b"x" * size)) == "too_large"
    request = {"v": 1, "token": speaker.environment["FENCEPOST_TOKEN"], "op": "checkpoint", "bytes": size}
    with socket.socket(socket.AF_UNIX) as link:
        link.connect(speaker.environment["FENCEPOST_SOCKET"])
        link.sendall(wire.encode(request) + b"\n")
        reply = json.loads(link.makefile("rb").readline())
    assert (reply["error"]["code"], reply["exit"]) == ("too_large", 2)


def test_w6_a_checkpoint_survives_its_killed_worker_and_its_attempt_is_never_opened_again(world: World) -> None:
    speaker = Speaker(world)
    plan = world.submit(speaker.draft())
    doomed = world.other_worker(jobs=1)
    first = speaker.next()
    assert first.checkpoint(b"page 12")["number"] == 1
    old = speaker.state().attempt
    doomed.send_signal(signal.SIGKILL)
    doomed.wait()
    world.worker(jobs=1)
    second = speaker.next()
    assert second.attempt != old and second.fence == first.fence + 1
    assert second.resume() == b"page 12"
    assert Path(speaker.environment["FENCEPOST_CHECKPOINT"]).read_bytes() == b"page 12"
    assert second.hello()["checkpoints"]["blob/1"]["number"] == 1
    assert code_of(lambda: second.checkpoint(b"page 1", builds_on=0)) == "checkpoint_moved"
    assert second.checkpoint(b"page 13", builds_on=1)["number"] == 2
    speaker.end()
    world.until_ended(plan)
    states = {each.attempt: each for each in world.attempts(plan, "a")}
    assert states[old].state not in ("accepted", "running", "leased")
    assert states[old].ended_us > 0 and states[old].result_seq == 0
    assert states[second.attempt].state == "accepted"
    with world.app.kernel.reader.look() as look:
        descriptor = look.record(states[second.attempt].descriptor_seq).body
    assert descriptor.checkpoint == states[old].checkpoint
    speaker.close()
    world.check()


# Charges


def test_w5_a_receipt_is_booked_once_whoever_says_it_again(world: World, speaker: Speaker) -> None:
    plan, attempt = begin(world, speaker)
    for _ in range(3):
        attempt.charge(receipt="resp_1", tokens_input=1_200, tokens_output=7, money={"USD": "0.004", "EUR": "1"})
    assert code_of(lambda: attempt.charge(receipt="resp_1", tokens_input=1_201)) == "receipt_differs"
    attempt.charge(receipt="resp_1", provider="other", tokens_input=1)
    charged = world.order(plan, "a").account.charged
    assert (charged["tokens_input"], charged["tokens_output"]) == (1_201, 7)
    assert (charged["money_micros:USD"], charged["money_micros:EUR"]) == (4_000, 1_000_000)


def test_w18_what_a_program_does_not_know_is_charged_as_it_is_held(world: World, speaker: Speaker) -> None:
    limits = {"calls": 3, "tokens_output": 10, "money_micros:USD": 1_000_000}
    ceilings = {"attempts": 9, **{name: 9 * each for name, each in limits.items()}}
    plan, attempt = begin(world, speaker, ceilings=ceilings)
    attempt.charge(receipt="r1", calls=1, tokens_output=2)
    told = attempt.charge(receipt="r2", calls=1, unknown=("tokens_output", "money:USD", "money:EUR"))
    assert told["left"] == {"calls": 1, "tokens_output": 0, "money": {"USD": "0.00"}}
    assert told["over"] == {"money": {"EUR": "0.00"}}, "the only one that the order may not use at all"
    again = attempt.charge(receipt="r2", calls=1, unknown=["money:EUR", "tokens_output", "money:USD"])
    assert (again["duplicate"], again["left"]) == (True, told["left"]), "whatever the order of the names"
    assert code_of(lambda: attempt.charge(receipt="r2", calls=1, tokens_output=3)) == "receipt_differs"
    least = attempt.charge(receipt="r3", calls=7, unknown=("calls",))
    assert (least["left"]["calls"], least["over"]) == (0, {"calls": 6}), "an amount beside it is the least"
    account = world.order(plan, "a").account
    charged = {"attempts": 1, "calls": 9, "tokens_output": 10, "money_micros:USD": 1_000_000}
    assert account.charged == charged
    counted = {"calls": 1, "tokens_output": 1, "money_micros:USD": 1, "money_micros:EUR": 1}
    assert account.unknown == counted
    speaker.end()
    world.until_ended(plan)
    account = world.order(plan, "a").account
    assert {**account.charged, "time_us": 0} == {**charged, "time_us": 0} and account.unknown == counted
    world.check()


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["tokens"], "'tokens' is nothing that is charged"),
        (["attempts"], "'attempts' is nothing that is charged"),
        (["time_us"], "'time_us' is nothing that is charged"),
        (["calls", "money:usd"], "'money:usd' is nothing that is charged"),
        (["money_micros:USD"], "'money_micros:USD' is nothing that is charged"),
        (["money:calls"], "'money:calls' is nothing that is charged"),
        ([""], "'' is nothing that is charged"),
        (["calls", "calls"], "calls is named twice"),
    ],
)
def test_w18_what_is_unknown_is_a_dimension_that_is_charged(
    world: World, speaker: Speaker, names: list[str], message: str
) -> None:
    plan, attempt = begin(world, speaker)
    with pytest.raises(Refused) as refused:
        attempt.charge(receipt="r", unknown=names)
    last = f"/unknown/{len(names) - 1}"
    assert (refused.value.code, refused.value.where, refused.value.message) == ("out_of_range", last, message)
    with pytest.raises(TypeError, match="what is unknown"):
        attempt.charge(receipt="r", unknown="calls")  # type: ignore[arg-type]  # a mistake that a checker flags
    assert world.order(plan, "a").account.unknown == {}


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"receipt": "r", "amounts": {}, "unknown": "calls"}, "wrong_type"),
        ({"receipt": "r", "amounts": {}, "unknown": [1]}, "wrong_type"),
        ({"receipt": "r", "unknown": ["calls"]}, "missing_field"),
        ({"receipt": "r", "amounts": {}}, "out_of_range"),
        ({"receipt": "r", "amounts": {"money": {}}}, "out_of_range"),
        ({"receipt": "r", "amounts": {"calls": -1}}, "bad_value"),
        ({"receipt": "r", "amounts": {"calls": 1.5}}, "float"),
        ({"receipt": "r", "amounts": {"calls": True}}, "bool_for_integer"),
        ({"receipt": "r", "amounts": {"calls": 2**53}}, "integer_out_of_range"),
        ({"receipt": "r", "amounts": {"time_us": 1}}, "unknown_field"),
        ({"receipt": "r", "amounts": {"attempts": 1}}, "unknown_field"),
        ({"receipt": "r", "amounts": {"money": {"USD": "0.0000001"}}}, "bad_money"),
        ({"receipt": "r", "amounts": {"money": {"USD": "-1"}}}, "bad_money"),
        ({"receipt": "r", "amounts": {"money": {"USD": 1}}}, "wrong_type"),
        ({"receipt": "r", "amounts": {"money": {"usd": "1"}}}, "out_of_range"),
        ({"receipt": "", "amounts": {"calls": 1}}, "out_of_range"),
        ({"receipt": "r", "provider": "kernel", "amounts": {"calls": 1}}, "out_of_range"),
        ({"receipt": "r", "provider": "A b", "amounts": {"calls": 1}}, "out_of_range"),
        ({"receipt": "r" * 600, "amounts": {"calls": 1}}, "too_large"),
        ({"receipt": "r\0", "amounts": {"calls": 1}}, "nul_character"),
        ({"receipt": "r"}, "missing_field"),
        ({"amounts": {"calls": 1}}, "missing_field"),
        ({"receipt": "r", "amounts": {"calls": 1}, "more": 1}, "unknown_field"),
    ],
)
def test_w5_a_charge_is_taken_as_it_is_or_not_at_all(
    world: World, speaker: Speaker, fields: dict[str, Any], code: str
) -> None:
    plan, attempt = begin(world, speaker)
    assert code_of(lambda: attempt.request("charge", None, **fields)) == code
    assert "calls" not in world.order(plan, "a").account.charged


# Artifacts


def test_w5_only_plain_files_of_the_workspace_are_kept(
    world: World, speaker: Speaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, attempt = begin(world, speaker)
    space = speaker.workspace
    (world.folder / "outside.txt").write_text("secret")
    (space / "sub").mkdir()
    (space / "sub" / "ok é.txt").write_text("fine")
    (space / "out").symlink_to(world.folder / "outside.txt")
    (space / "inner").symlink_to("sub/ok é.txt")
    (space / "folder").symlink_to(world.folder)
    os.mkfifo(space / "fifo")
    os.mkfifo(space / "sub" / "fifo")
    with socket.socket(socket.AF_UNIX) as bound:
        monkeypatch.chdir(space)  # a socket's path has few bytes
        bound.bind("socket")
    if os.geteuid() == 0:
        os.mknod(space / "zero", 0o600 | stat.S_IFCHR, os.makedev(1, 5))
        assert code_of(lambda: attempt.request("artifact", path="zero")) in ("not_regular", "unreadable")
    (space / "ü.bin").write_bytes(b"\x00\xff")
    (space / "run.sh").write_text("#!/bin/sh\n")
    (space / "run.sh").chmod(0o755)
    for path, code in (
        ("../outside.txt", "path_outside"),
        ("sub/../../outside.txt", "path_outside"),
        (str(world.folder / "outside.txt"), "bad_path_name"),
        ("", "bad_path_name"),
        (".", "bad_path_name"),
        ("sub//ok é.txt", "bad_path_name"),
        ("out", "not_regular"),
        ("inner", "not_regular"),
        ("folder/outside.txt", "not_regular"),
        ("fifo", "not_regular"),
        ("sub/fifo", "not_regular"),
        ("socket", "not_regular"),
        ("sub", "not_regular"),
        ("run.sh/x", "not_regular"),
        ("nowhere", "no_file"),
        ("a\0b", "nul_character"),
        ("x" * 300, "unreadable"),
    ):
        assert code_of(lambda path=path: attempt.request("artifact", path=path)) == code, path
    assert attempt.artifact("sub/ok é.txt")["size"] == 4
    assert attempt.artifact(space / "ü.bin")["path"] == "ü.bin"
    assert attempt.artifact("run.sh")["duplicate"] is False
    assert attempt.artifact("run.sh")["duplicate"] is True
    (space / "run.sh").write_text("#!/bin/sh\necho\n")
    assert attempt.artifact("run.sh")["duplicate"] is False
    assert speaker.state().artifacts == 4


def test_w5_a_file_that_changes_while_it_is_read_is_not_kept(world: World, speaker: Speaker) -> None:
    _, attempt = begin(world, speaker)
    path = speaker.workspace / "big.bin"
    path.write_bytes(b"x" * 30_000_000)
    stop = threading.Event()

    def grow() -> None:
        while not stop.is_set():
            with open(path, "ab") as file:
                file.write(b"y")

    thread = threading.Thread(target=grow)
    thread.start()
    try:
        assert code_of(lambda: attempt.artifact("big.bin")) == "source_changed"
    finally:
        stop.set()
        thread.join()
    assert attempt.artifact("big.bin")["ok"] is True


# Waiting


def test_w6_a_program_that_yields_and_ends_well_waits_and_comes_back(world: World, speaker: Speaker) -> None:
    plan, attempt = begin(world, speaker)
    attempt.checkpoint(b"half")
    assert attempt.request("yield", question="colour", prompt="which?")[0]["yielding"] is True
    speaker.end()
    order = world.until_state(plan, "a", "waiting")
    assert (order.reason, order.account.held) == ("waiting_for_answer", {})
    assert order.account.charged.get("attempts", 0) == 0  # credited: it had saved something
    world.write("human", AnswerOrder(order=order.order, value="blue")).required()
    second = speaker.next()
    assert (second.answer("colour"), second.answer("size"), second.resume()) == ("blue", None, b"half")
    assert second.ask("colour") == "blue"
    assert second.hello()["answers"] == {"colour": "blue"}
    assert code_of(lambda: second.request("answer", question="size")) == "not_found"
    speaker.end()
    world.until_ended(plan)
    assert [each.state for each in world.attempts(plan, "a")] == ["yielded", "accepted"]
    world.check()


def test_w6_waiting_for_a_time_takes_no_slot(world: World, speaker: Speaker) -> None:
    plan, attempt = begin(world, speaker)
    attempt.request("yield", after="1s500ms")
    speaker.end()
    world.until_state(plan, "a", "waiting")
    began = time.monotonic()
    other = world.submit(draft("quick", *world.say("quick")))
    world.until_ended(other, 5)
    speaker.next()
    assert 0.8 < time.monotonic() - began < 8
    speaker.end()
    world.until_ended(plan)
    world.check()


@pytest.mark.parametrize(
    ("wishes", "code", "state"),
    [
        ([{"after": "1d"}], 1, "failed"),
        ([{"after": "1d"}, {"cancel": True}], 0, "applied"),
        ([{"question": "x"}, {"after": "1d"}], 0, "waiting"),
        ([], 0, "applied"),
    ],
)
def test_w6_the_last_wish_counts_and_only_of_a_program_that_ends_well(
    world: World, speaker: Speaker, wishes: list[dict[str, Any]], code: int, state: str
) -> None:
    plan, attempt = begin(world, speaker)
    for wish in wishes:
        attempt.request("yield", None, **wish)
    speaker.end(code)
    order = world.until_state(plan, "a", state)
    assert state != "waiting" or order.reason == "waiting_for_time"


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({}, "out_of_range"),
        ({"prompt": "alone"}, "out_of_range"),
        ({"children": ["nobody"]}, "not_found"),
        ({"after": "soon"}, "bad_duration"),
        ({"after": "366d"}, "bad_duration"),
        ({"after_us": 366 * 86_400_000_000}, "out_of_range"),
        ({"after_us": -1}, "bad_value"),
        ({"question": "Not A Name"}, "bad_name"),
        ({"question": "x" * 64}, "bad_name"),
        ({"question": "x", "prompt": "p" * 4_097}, "bad_value"),
        ({"cancel": True, "question": "x"}, "out_of_range"),
        ({"childs": ["x"]}, "unknown_field"),
    ],
)
def test_w6_a_wish_that_cannot_be_met_is_refused_when_it_is_made(
    world: World, speaker: Speaker, fields: dict[str, Any], code: str
) -> None:
    plan, attempt = begin(world, speaker)
    assert code_of(lambda: attempt.request("yield", None, **fields)) == code
    speaker.end()
    world.until_state(plan, "a", "applied")


def test_w6_a_wait_for_what_holds_already_goes_on(world: World) -> None:
    script = """
import fencepost as fp
attempt = fp.attempt()
attempt.child("kid", ["sh", "-c", "echo hi > out.txt"], outputs=["out.txt"])
if attempt.resume() is None:
    attempt.checkpoint(b"asked")
attempt.wait(children=["kid"])
text = attempt.output("kid", "out.txt").decode().strip()
if attempt.resume() != b"slept":
    attempt.checkpoint(b"slept")
    attempt.wait(after="200ms")
attempt.wait(question="go", after="1d")
print(text, attempt.answer("go"), attempt.ask("go"))
"""
    plan = world.submit(draft("a", sys.executable, "-c", script, ceilings={"attempts": 9}))
    world.worker(jobs=1)
    world.until(lambda: world.order(plan, "a").reason == "waiting_for_answer_or_time", 20)
    world.write("human", AnswerOrder(order=world.order(plan, "a").order, value="yes")).required()
    world.until_ended(plan)
    log = world.facts(plan, "a").stdout
    assert log is not None and world.app.artifacts.read(log.digest, 100) == b"hi yes yes\n"
    assert [each.state for each in world.attempts(plan, "a")] == ["yielded"] * 3 + ["accepted"]
    world.check()


@pytest.mark.parametrize(("wish", "idle"), [({"after": "1h"}, False), ({"question": "go"}, True)])
def test_lifecycle_9_a_time_is_waited_for_and_a_person_is_not(
    world: World, speaker: Speaker, wish: dict[str, Any], idle: bool
) -> None:
    """Whether whoever runs a plan to its end has anything left to do."""
    plan = world.submit(speaker.draft())
    worker = world.worker(jobs=1)
    attempt = speaker.next()
    attempt.request("yield", **wish)
    speaker.end()
    world.until_state(plan, "a", "waiting")
    if idle:
        world.until(worker.is_idle, 5)
    else:
        world.until(lambda: not worker.status().running, 5)
        assert not worker.is_idle()


# Children


def test_w5_a_child_has_its_parents_inputs_and_its_outputs_come_back(world: World, speaker: Speaker) -> None:
    plan, attempt = begin(world, speaker)
    made = attempt.child("kid", ["sh", "-c", "echo hi > out.txt"], outputs=["out.txt"])
    again = attempt.child("kid", ["sh", "-c", "echo hi > out.txt"], outputs=["out.txt"])
    assert (made["fresh"], again["fresh"], made["order"]) == (True, False, again["order"])
    assert made["task"] == "a.kid"
    assert code_of(lambda: attempt.child("kid", ["true"])) == "child_changed"
    assert code_of(lambda: attempt.output("kid", "out.txt")) == "not_found"
    attempt.request("yield", children=["kid"])
    speaker.end()
    second = speaker.next()
    seen = second.children()["kid"]
    assert (seen["state"], seen["ended"], seen["artifacts"][0]["path"]) == ("applied", True, "out.txt")
    assert second.output("kid", "out.txt") == b"hi\n"
    assert code_of(lambda: second.output("kid", "other.txt")) == "not_found"
    assert code_of(lambda: second.output("nobody", "out.txt")) == "not_found"
    speaker.end()
    world.until_ended(plan)
    assert world.order(plan, "a").account.charged["attempts"] >= 2
    world.check()


@pytest.mark.parametrize("attempts", [1, 9])
def test_w5_a_child_is_found_again_after_a_person_has_set_its_parents_budget(
    world: World, speaker: Speaker, attempts: int
) -> None:
    """What is not written in its table follows from its parent's ceiling, as that was when it was first asked for."""
    plan, attempt = begin(world, speaker, ceilings={"attempts": 2})
    made = attempt.child("kid", ["true"])
    written = attempt.child("other", ["true"], budget={"attempts": 2})
    world.write("human", SetBudget(account=world.order(plan, "a").order, ceilings={"attempts": attempts}))
    assert attempt.child("kid", ["true"]) == {**made, "fresh": False}
    assert attempt.child("other", ["true"], budget={"attempts": 2}) == {**written, "fresh": False}
    assert code_of(lambda: attempt.child("other", ["true"], budget={"attempts": 1})) == "child_changed"
    speaker.end()
    world.until_ended(plan)


def test_w5_a_childs_files_come_from_the_workspace_as_it_is(world: World, speaker: Speaker) -> None:
    plan, attempt = begin(world, speaker)
    space = speaker.workspace
    (space / "data").mkdir()
    (space / "data" / "one.txt").write_text("one")
    (space / "check.sh").write_text("test -e two.txt")
    (space / "shape.json").write_text('{"type": "object"}')
    attempt.child(
        "kid",
        ["sh", "-c", "cat data/one.txt > two.txt; echo '{}' > a.json; ls > seen.txt"],
        inputs=["data/**"],
        outputs=["two.txt", "a.json", "seen.txt"],
        accept={"verify": ["sh", "check.sh"], "schema": {"a.json": "shape.json"}},
    )
    assert code_of(lambda: attempt.child("other", ["true"], inputs=["nowhere/**"])) == "no_match"
    (space / "leads-out").symlink_to(world.folder)
    (space / "data" / "link").symlink_to("/etc/hostname")
    assert code_of(lambda: attempt.child("other", ["true"], inputs=["data/**"])) == "path_outside"
    attempt.request("yield", children=["kid"])
    speaker.end()
    second = speaker.next()
    assert second.children()["kid"]["state"] == "applied", second.children()
    assert second.output("kid", "two.txt") == b"one"
    assert second.output("kid", "seen.txt").split() == [b"a.json", b"check.sh", b"data", b"seen.txt", b"two.txt"]
    speaker.end()
    world.until_ended(plan)


@pytest.mark.parametrize(
    ("table", "code", "where"),
    [
        ({"name": "Kid", "run": ["true"]}, "bad_name", "/order/name"),
        ({"run": ["true"]}, "missing_key", "/order/name"),
        ({"name": ["kid"], "run": ["true"]}, "wrong_type", "/order/name"),
        ({"name": {}, "run": ["true"]}, "wrong_type", "/order/name"),
        ({"name": "kid"}, "missing_key", "/order/run"),
        ({"name": "kid", "run": "true"}, "wrong_type", "/order/run"),
        ({"name": "kid", "run": ["true"], "walk": 1}, "unknown_key", "/order/walk"),
        ({"name": "kid", "run": ["true"], "may_fail": True}, "unsupported_feature", "/order/may_fail"),
        ({"name": "kid", "run": ["true"], "executor": "python"}, "unsupported_feature", "/order/executor"),
        ({"name": "kid", "call": "m:f"}, "unsupported_feature", "/order/call"),
        ({"name": "kid", "run": ["true"], "review": {}}, "unsupported_feature", "/order/review"),
        ({"name": "kid", "run": ["true"], "effect": []}, "unsupported_feature", "/order/effect"),
        ({"name": "kid", "run": ["true"], "resources": []}, "unsupported_feature", "/order/resources"),
        ({"name": "kid", "run": ["true"], "inputs": [{"from": "b", "files": ["x"]}]}, "unsupported_feature", None),
        ({"name": "kid", "run": ["true"], "needs": ["nobody"]}, "dependency_missing", "/order/needs/0"),
        ({"name": "kid", "run": ["true"], "needs": ["kid"]}, "dependency_cycle", "/order/needs"),
        ({"name": "kid", "run": ["true"], "budget": {"attempts": 100}}, "impossible_budget", None),
    ],
)
def test_w5_what_a_child_may_not_have_is_refused_by_name(
    world: World, speaker: Speaker, table: dict[str, Any], code: str, where: str | None
) -> None:
    plan, attempt = begin(world, speaker)
    with pytest.raises(Refused) as refused:
        attempt.request("child", order=table)
    assert refused.value.code == code, refused.value.message
    assert where is None or refused.value.where == where
    assert refused.value.next
    assert world.order(plan, "a").children == {}


def test_w18_a_child_beyond_its_parents_ceiling_is_told_whose_it_is(world: World, speaker: Speaker) -> None:
    _, attempt = begin(world, speaker, ceilings={"attempts": 2})

    def told(name: str, **budget: int) -> tuple[str, str]:
        with pytest.raises(Refused) as refused:
            attempt.child(name, ["true"], budget=budget)
        assert refused.value.code == "impossible_budget"
        return refused.value.message, refused.value.next

    message = "/order/budget/attempts: the order's ceiling of attempts is 3, the parent order's is 2"
    assert told("kid", attempts=3) == (message, "lower the order's ceiling or raise the parent order's")
    attempt.child("one", ["true"], budget={"attempts": 1})
    attempt.child("two", ["true"], budget={"attempts": 1})
    message = "/order: the parent order allows 2 attempts, and 3 orders may not fail"
    assert told("three", attempts=1) == (message, "give the parent order at least 3")
    speaker.end()


@pytest.mark.parametrize("replaced", ["nothing", "link", "file"])
def test_w5_a_program_that_moved_its_workspace_is_told_what_it_did(
    world: World, speaker: Speaker, replaced: str
) -> None:
    _, attempt = begin(world, speaker)
    (speaker.workspace / "a.txt").write_text("a")
    aside = speaker.workspace.with_name("aside")
    speaker.workspace.rename(aside)
    if replaced == "link":
        speaker.workspace.symlink_to(aside)
    elif replaced == "file":
        speaker.workspace.write_text("")
    for call in (lambda: attempt.artifact("a.txt"), lambda: attempt.child("kid", ["true"], inputs=["a.txt"])):
        with pytest.raises(Refused, match="the command has moved, removed or replaced it") as refused:
            call()
        assert (refused.value.code, refused.value.exit_code) == ("no_file", 2)
        assert refused.value.next == "leave it where it is: files are taken from there"
    if replaced != "nothing":
        speaker.workspace.unlink()
    aside.rename(speaker.workspace)
    assert attempt.artifact("a.txt")["size"] == 1
    speaker.end()


def test_w5_children_may_need_their_elder_siblings(world: World, speaker: Speaker) -> None:
    plan, attempt = begin(world, speaker, ceilings={"attempts": 9})
    attempt.child("first", list(world.say("first", "sleep 0.3")))
    attempt.child("second", list(world.say("second")), needs=["first"])
    attempt.request("yield", children=["first", "second"])
    speaker.end()
    speaker.next()
    assert world.ran() == ["first", "second"]
    speaker.end()
    world.until_ended(plan)


def test_w5_the_end_of_a_parent_is_the_end_of_its_children(world: World, speaker: Speaker) -> None:
    plan, attempt = begin(world, speaker)
    attempt.child("kid", ["sleep", "60"])
    speaker.end()
    world.until_ended(plan)
    kid = world.orders(plan)["a.kid"]
    assert (kid.state, kid.reason) == ("cancelled", "parent_ended")
    world.until(lambda: not world.processes())
    world.check()


_NESTS = """
import sys, fencepost as fp
attempt = fp.attempt()
depth = int(sys.argv[1])
if depth:
    run = [sys.executable, "nests.py", str(depth - 1)]
    attempt.child("kid", run, inputs=["nests.py"], budget={"attempts": 2 * depth})
    attempt.checkpoint(b"asked")
    attempt.wait(children=["kid"])
print(depth, attempt.children())
"""


def test_case_27_three_children_inside_each_other_finish_with_one_slot(world: World) -> None:
    write = f"import pathlib; pathlib.Path('nests.py').write_text({_NESTS!r}); exec({_NESTS!r})"
    plan = world.submit(draft("a", sys.executable, "-c", write, "3", ceilings={"attempts": 9}))
    world.worker(jobs=1)
    world.until_ended(plan, 40)
    states = {task: order.state for task, order in world.orders(plan).items()}
    assert states == {name: "applied" for name in ("a", "a.kid", "a.kid.kid", "a.kid.kid.kid")}
    world.check()
