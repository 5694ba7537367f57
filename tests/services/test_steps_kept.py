"""W6: steps are kept by a real worker, and a program gets the chain of its own order and nothing else of the store."""

from __future__ import annotations

import json
import signal
from typing import Any

import pytest

from fencepost.sdk import steps, values
from fencepost.sdk.client import Attempt
from fencepost.sdk.wire import Refused
from tests.services.speaker import Speaker
from tests.services.world import World

COUNT = 2 * steps.GROUP_STEPS_MAX + 2


def payload(base: str | None, **more: Any) -> bytes:
    return json.dumps({"base": base, **more}, separators=(",", ":"), sort_keys=True).encode()


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
    first, second = payload(None, steps=[1]), payload(values.digest_of(payload(None, steps=[1])), steps=[2])
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
    assert refused(attempt, "checkpoint", payload(foreign), kind="steps/1") == "checkpoint_moved"
    first = attempt.checkpoint(payload(None), kind="steps/1")["digest"]
    second = attempt.checkpoint(payload(first, steps=[2]), kind="steps/1")["digest"]
    third = attempt.checkpoint(payload(first, steps=[2, 3]), kind="steps/1")["digest"]
    for base in (None, foreign, second):
        assert refused(attempt, "checkpoint", payload(base, steps=[4]), kind="steps/1") == "checkpoint_moved"
    assert attempt.checkpoint(payload(third, steps=[4]), kind="steps/1")["number"] == 5
    assert world.order(plan, "a").checkpoint_number == 5
    speaker.end(0)
    world.until_ended(plan)
    attempt.close()
