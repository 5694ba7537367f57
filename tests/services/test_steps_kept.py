"""W6: steps are kept by a real worker, and a program gets the chain of its own order and nothing else of the store."""

from __future__ import annotations

import json
import signal
from typing import Any

import pytest

from fencepost.core import canonical
from fencepost.sdk import steps, values
from fencepost.sdk.client import Attempt
from fencepost.sdk.wire import Refused
from fencepost.services.payloads import checked_base
from fencepost.services.requests import Declined
from tests.services.speaker import Speaker
from tests.services.world import World

COUNT = 2 * steps.GROUP_STEPS_MAX + 2


def step(name: str, /, **changes: Any) -> dict[str, Any]:
    return {"arguments": values.digest_of(b"[]"), "name": name, "value": "1", **changes}


def payload(base: Any, *steps: Any, **more: Any) -> bytes:
    """The payload of these steps; a name alone is a step of that name."""
    whole = [step(each) if isinstance(each, str) else each for each in steps]
    return json.dumps({"base": base, "steps": whole, **more}, separators=(",", ":"), sort_keys=True).encode()


def refused(attempt: Attempt, op: str, data: bytes | None = None, **fields: Any) -> str:
    with pytest.raises(Refused) as caught:
        attempt.request(op, data, **fields)
    return caught.value.code


def test_w6_steps_go_on_in_the_next_attempt(world: World) -> None:
    speaker = Speaker(world)
    plan = world.submit(speaker.draft())
    doomed = world.other_worker(jobs=1)
    one = speaker.next()
    for index in range(COUNT):
        assert one.step(f"{index}", lambda n: n + 1, index) == index + 1
    one.close()
    doomed.send_signal(signal.SIGKILL)
    doomed.wait()
    world.worker(jobs=1)
    two = speaker.next()
    seen: list[int] = []
    for index in range(COUNT):
        assert two.step(f"{index}", seen.append, index) == index + 1  # type: ignore[func-returns-value]  # as recorded
    assert seen == []
    two.step("more", seen.append, 0)
    assert seen == [0]
    order = world.order(plan, "a")
    assert (order.checkpoint_number, list(order.checkpoints)) == (COUNT + 1, ["steps/1"])
    speaker.end(0)
    world.until_ended(plan)
    two.close()
    world.check()


def test_w6_a_chain_is_served_link_by_link_and_nothing_beside_it(world: World) -> None:
    speaker = Speaker(world)
    plan = world.submit(speaker.draft())
    world.worker(jobs=1)
    attempt = speaker.next()
    blob = attempt.checkpoint(b"of another kind")["digest"]
    first = payload(None, "1")
    second = payload(values.digest_of(first), "2")
    for data in (first, second):
        attempt.checkpoint(data, kind="steps/1")
    assert refused(attempt, "resume", kind="steps/1", digest=blob) == "no_checkpoint"
    assert refused(attempt, "resume", kind="steps/1", digest=values.digest_of(first)) == "no_checkpoint"
    assert attempt.request("resume", kind="steps/1")[1] == second
    reply, data = attempt.request("resume", kind="steps/1", digest=values.digest_of(first))
    assert (data, reply["digest"]) == (first, values.digest_of(first))
    assert refused(attempt, "resume", kind="steps/1", digest=blob) == "no_checkpoint"
    assert refused(attempt, "resume", kind="blob/1", digest=values.digest_of(first)) == "no_checkpoint"
    speaker.end(0)
    world.until_ended(plan)
    attempt.close()


def test_w6_a_chain_takes_in_nothing_that_its_order_did_not_keep(world: World) -> None:
    """Whoever may name any base could read whatever lies in the store by its digest."""
    speaker = Speaker(world)
    plan = world.submit(speaker.draft())
    world.worker(jobs=1)
    attempt = speaker.next()
    foreign = attempt.checkpoint(b"of another kind")["digest"]
    assert refused(attempt, "checkpoint", payload(foreign, "1"), kind="steps/1") == "checkpoint_moved"
    first = attempt.checkpoint(payload(None, "1"), kind="steps/1")["digest"]
    second = attempt.checkpoint(payload(first, "2"), kind="steps/1")["digest"]
    third = attempt.checkpoint(payload(first, "2", "3"), kind="steps/1")["digest"]
    for base in (None, foreign, second):
        assert refused(attempt, "checkpoint", payload(base, "2", "3", "4"), kind="steps/1") == "checkpoint_moved"
    assert attempt.checkpoint(payload(third, "4"), kind="steps/1")["number"] == 5
    assert world.order(plan, "a").checkpoint_number == 5
    speaker.end(0)
    world.until_ended(plan)
    attempt.close()


@pytest.mark.parametrize("base", [None, "first"])
def test_w6_a_payload_that_would_lose_a_step_is_refused(world: World, base: str | None) -> None:
    speaker = Speaker(world)
    plan = world.submit(speaker.draft())
    world.worker(jobs=1)
    attempt = speaker.next()
    if base is not None:
        base = attempt.checkpoint(payload(None, "0"), kind="steps/1")["digest"]
    attempt.checkpoint(payload(base, "1", "2"), kind="steps/1")
    for lost in (
        ("1",),
        ("2",),
        ("3",),
        ("1", "3"),
        ("2", "1", "3"),
        ("3", "1", "2"),
        (step("1", value="2"), "2", "3"),
        ("1", step("2", arguments=values.digest_of(b"[1]")), "3"),
        ("1", step("2", value="10"), "3"),
    ):
        for builds_on in ({}, {"builds_on": world.order(plan, "a").checkpoint_number}):
            code = refused(attempt, "checkpoint", payload(base, *lost), kind="steps/1", **builds_on)
            assert code == "checkpoint_moved", lost
    again = attempt.checkpoint(payload(base, "1", "2"), kind="steps/1")
    assert again["duplicate"] is True
    attempt.checkpoint(b"of another kind")
    assert attempt.checkpoint(payload(base, "1", "2"), kind="steps/1")["duplicate"] is False, "nothing is lost by it"
    attempt.checkpoint(payload(base, "1", "2", "3"), kind="steps/1")
    speaker.end(0)
    world.until_ended(plan)
    attempt.close()


MALFORMED: dict[str, bytes] = {
    "nothing": b"{}",
    "no base": b'{"steps":[]}',
    "no steps": b'{"base":null}',
    "empty": payload(None),
    "more": payload(None, "1", more=1),
    "base": payload("sha256:0", "1"),
    "base that is a number": payload(1, "1"),
    "steps that are none": payload(None, 1),
    "steps by name": payload(None).replace(b"[]", b'{"1":1}'),
    "step without a value": payload(None, {"arguments": values.digest_of(b""), "name": "1"}),
    "step with more": payload(None, step("1", more=1)),
    "arguments": payload(None, step("1", arguments="sha256:1")),
    "arguments that are null": payload(None, step("1", arguments=None)),
    "no name": payload(None, step("")),
    "name that is a number": payload(None, step("1", name=1)),
    "long name": payload(None, step("x" * 201)),
    "two of one name": payload(None, "1", step("1", value="2")),
    "value that is no text": payload(None, step("1", value=1)),
    "value that is no JSON": payload(None, step("1", value="one")),
    "value with more": payload(None, step("1", value="1 2")),
    "value without end": payload(None, step("1", value="[" * 100_000)),
    "value that is no number": payload(None, step("1", value="NaN")),
}


def test_w6_what_holds_no_steps_is_refused_before_it_is_kept(world: World) -> None:
    speaker = Speaker(world)
    plan = world.submit(speaker.draft())
    world.worker(jobs=1)
    attempt = speaker.next()
    for what, data in MALFORMED.items():
        assert refused(attempt, "checkpoint", data, kind="steps/1") == "bad_value", what
    assert world.order(plan, "a").checkpoint_number == 0
    wide = step("x" * 200, value=f'[1.5e400,"\\u00e9",{"9" * 5_000},null]')
    assert attempt.checkpoint(payload(None, wide, "2"), kind="steps/1")["number"] == 1
    speaker.end(0)
    world.until_ended(plan)
    attempt.close()


def test_w6_what_holds_no_steps_is_refused_before_it_is_encoded_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for many seconds of the worker's time until a list of millions of numbers is refused."""
    encoded: list[object] = []
    monkeypatch.setattr(canonical, "encode", lambda value: encoded.append(value) or b"")
    for data in (payload(None, 1, 2, 3), b"[1]", b'{"a":1}'):
        with pytest.raises(Declined):
            checked_base("steps/1", data)
    assert encoded == []
    with pytest.raises(Declined, match="canonical JSON"):
        checked_base("steps/1", payload(None, "1"))
    assert len(encoded) == 1


def test_w6_processes_of_one_attempt_may_read_their_steps_beside_each_other(world: World) -> None:
    """Each asks for the payloads along the chain, and what another is served meanwhile takes nothing away."""
    speaker = Speaker(world)
    plan = world.submit(speaker.draft())
    world.worker(jobs=1)
    attempt = speaker.next()
    digests: list[str] = []
    for number in range(4):
        base = digests[-1] if digests else None
        digests.append(attempt.checkpoint(payload(base, f"{number}"), kind="steps/1")["digest"])
    others = [Attempt(speaker.environment) for _ in range(2)]
    for one in others:
        one.resume("steps/1")
    for digest in reversed(digests[:-1]):
        for one in others:
            assert one.request("resume", kind="steps/1", digest=digest)[0]["count"] == 4
    for one in (*others, attempt):
        one.close()
    speaker.end(0)
    world.until_ended(plan)
