"""A wait that is over returns in the next attempt and says what ended it, whoever waits (lifecycle, 9)."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from msgspec.structs import replace

from fencepost.core.commands import AnswerOrder, RetryOrder
from fencepost.sdk.client import Attempt, Yield
from fencepost.sdk.wire import Refused
from tests.services.speaker import Speaker
from tests.services.test_callables_run import callable_draft
from tests.services.world import World, draft

HEAD = """
import fencepost as fp

@fp.executor("work", version=1)
def work(attempt):
"""
PATIENT = {"attempts": 9}


@pytest.fixture
def speaker(world: World) -> Iterator[Speaker]:
    made = Speaker(world)
    yield made
    made.close()


def printed(world: World, plan: str) -> str:
    log = world.facts(plan, "a").stdout
    assert log is not None
    return world.app.artifacts.read(log.digest, 10_000).decode()


def ended(world: World, plan: str, source: str) -> list[str]:
    """The lines that the last attempt of a callable printed."""
    world.until_ended(plan)
    assert world.order(plan, "a").state == "applied", source
    return printed(world, plan).splitlines()


def yields(world: World, plan: str) -> int:
    return sum(each.state == "yielded" for each in world.attempts(plan, "a"))


def waits(attempt: Attempt, **words: Any) -> str:
    """What `wait` returns, or "yields"."""
    try:
        return attempt.wait(**words)
    except Yield:
        return "yields"


def test_lifecycle_9_whichever_comes_first_ends_a_wait(world: World) -> None:
    """New user's finding 12: the child never ends, and the time that the wait was given does."""
    script = """
import fencepost as fp
attempt = fp.attempt()
attempt.child("kid", ["sleep", "60"])
print(attempt.wait(children=["kid"], after="400ms"), attempt.hello()["waited"])
"""
    plan = world.submit(draft("a", sys.executable, "-c", script, ceilings=PATIENT))
    world.worker(jobs=2)
    world.until(lambda: world.order(plan, "a").state == "applied")
    waited = "{'after_us': 400000, 'by': 'time', 'children': ['kid'], 'question': ''}"
    assert printed(world, plan) == f"time {waited}\n"
    assert [each.state for each in world.attempts(plan, "a")] == ["yielded", "accepted"]
    world.until_ended(plan)
    world.check(settled=False)


def test_lifecycle_9_a_callable_waits_as_often_as_it_says(world: World) -> None:
    body = """
    for number in range(4):
        if attempt.step(f"look {number}", lambda: number == 3):
            break
        print(number, attempt.wait(after="50ms"))
    print(attempt.wait(after="50ms"), attempt.wait(after="50ms"))
"""
    plan = world.submit(callable_draft(world, HEAD + body))
    world.worker(jobs=1)
    assert ended(world, plan, body) == ["0 time", "1 time", "2 time", "time time"]
    assert yields(world, plan) == 5, "each wait is waited for once, and none of them twice"
    assert world.order(plan, "a").account.charged["attempts"] == 2, "the last wait came with no new step"


def test_lifecycle_9_a_callable_that_skips_its_waits_waits_for_the_next_one(world: World) -> None:
    """A wait that stands behind other steps is another one, whatever its words."""
    body = """
    for number in range(3):
        if attempt.step(f"wait {number}", lambda: attempt.attempt) == attempt.attempt:
            attempt.wait(after="50ms")
"""
    plan = world.submit(callable_draft(world, HEAD + body))
    world.worker(jobs=1)
    world.until_ended(plan)
    assert world.order(plan, "a").state == "applied"
    assert yields(world, plan) == 3


def test_lifecycle_9_each_attempt_is_told_the_same(world: World) -> None:
    """What ended a wait is what is told, though the other holds as well by now."""
    go = world.folder / "go"
    body = f"""
    attempt.child("kid", ["sh", "-c", "while [ ! -e {go} ]; do sleep 0.05; done"])
    print(attempt.wait(children=["kid"], after="50ms"))
    print(attempt.wait(children=["kid"], after="1h"))
    print(attempt.wait(children=["kid"]), attempt.wait(children=["kid"], after="50ms"))
"""
    plan = world.submit(replace(callable_draft(world, HEAD + body), ceilings=PATIENT))
    world.worker(jobs=2)
    world.until(lambda: yields(world, plan) == 2)
    go.touch()
    assert ended(world, plan, body) == ["time", "children", "children children"]
    assert yields(world, plan) == 2


def test_lifecycle_9_a_wait_that_is_over_stays_so_when_the_next_attempt_is_killed(
    world: World, speaker: Speaker
) -> None:
    plan = world.submit(speaker.draft(ceilings=PATIENT))
    doomed = world.other_worker(jobs=1)
    one = speaker.next()
    assert waits(one, question="go", prompt="Shall it?", after="300ms") == "yields"
    speaker.end()
    two = speaker.next()
    assert waits(two, question="go", prompt="Shall it now?", after="300ms") == "time"
    doomed.send_signal(signal.SIGKILL)
    doomed.wait()
    world.worker(jobs=1)
    three = speaker.next()
    words: dict[str, Any] = {"question": "go", "after": "300ms"}
    assert [waits(three, **words), waits(three, **words)] == ["time", "yields"], "the second is a new one"
    speaker.end()
    order = world.until_state(plan, "a", "waiting")
    world.write("human", AnswerOrder(order=order.order, value="yes")).required()
    four = speaker.next()
    assert [waits(four, **words), waits(four, **words), waits(four, **words)] == ["time", "answer", "answer"]
    assert waits(four, question="go", after="301ms") == "answer", "it stands"
    assert waits(four, after="300ms") == "yields", "other words are another wait"
    world.check(settled=False)


def test_lifecycle_9_who_has_saved_something_else_waits_anew(world: World, speaker: Speaker) -> None:
    """One item an hour: what is saved in between says that the program has come further."""
    world.submit(speaker.draft(ceilings=PATIENT))
    world.worker(jobs=1)
    for item in range(3):
        attempt = speaker.next()
        if item:
            assert waits(attempt, after="50ms") == "time", "who comes to it again has waited"
        attempt.checkpoint(f"item {item}")
        assert waits(attempt, after="50ms") == "yields"
        speaker.end()
    attempt = speaker.next()
    attempt.checkpoint("item 2")
    assert waits(attempt, after="50ms") == "time", "the same value is no progress"
    assert waits(attempt, after="50ms") == "yields"


def test_lifecycle_9_who_saves_the_same_each_time_waits_as_often_as_it_says(world: World, speaker: Speaker) -> None:
    plan = world.submit(speaker.draft(ceilings=PATIENT))
    world.worker(jobs=1)
    for turn in range(4):
        attempt = speaker.next()
        for _ in range(turn):
            assert waits(attempt, after="50ms") == "time"
            attempt.checkpoint("the same")
        if turn == 3:
            break
        attempt.checkpoint("the same")
        assert waits(attempt, after="50ms") == "yields"
        speaker.end()
    speaker.end()
    world.until_ended(plan)
    assert yields(world, plan) == 3


def test_lifecycle_9_any_program_asks_whether_its_wait_is_over(world: World) -> None:
    script = f"""
me="{sys.executable} -m fencepost attempt"
$me yield --question go --after 100ms --unless-over && exit 0
[ $? -eq 3 ] || exit 1
$me yield --after 100ms --mark late --unless-over && exit 0
[ $? -eq 3 ]
"""
    plan = world.submit(draft("a", "sh", "-c", script, ceilings=PATIENT))
    world.worker(jobs=1)
    world.until_ended(plan)
    assert world.order(plan, "a").state == "applied"
    assert printed(world, plan) == '{"ended": "time", "saved": null, "stopping": "", "yielding": false}\n' * 2
    assert yields(world, plan) == 2


def test_lifecycle_9_the_same_words_without_a_mark_are_the_next_wait_once_they_were_over(
    world: World, speaker: Speaker
) -> None:
    plan = world.submit(speaker.draft(ceilings=PATIENT))
    world.worker(jobs=1)
    words: dict[str, Any] = {"after": "50ms", "unless_over": True}
    attempt = speaker.next()
    assert attempt.request("yield", **words)[0]["yielding"] is True
    assert attempt.hello()["waited"] is None
    speaker.end()
    attempt = speaker.next()
    assert attempt.request("yield", after="50ms")[0]["yielding"] is True, "who does not ask yields as ever"
    assert attempt.request("yield", **words)[0] == {
        **{"ok": True, "yielding": False, "ended": "time", "saved": None},
        "stopping": "",
    }
    speaker.end()  # the wish from before is replaced
    world.until_ended(plan)
    assert world.order(plan, "a").state == "applied"


def test_lifecycle_9_the_same_words_in_one_attempt(world: World, speaker: Speaker) -> None:
    world.submit(speaker.draft(ceilings=PATIENT))
    world.worker(jobs=1)
    words: dict[str, Any] = {"after_us": 50_000, "unless_over": True}
    attempt = speaker.next()
    attempt.request("yield", **words)
    speaker.end()
    attempt = speaker.next()
    seen = [attempt.request("yield", None, **words, mark=mark)[0]["yielding"] for mark in ("", "", "1", "1")]
    assert seen == [False, True, True, True]
    speaker.end()
    speaker.next()


@pytest.mark.parametrize("mark", ["m" * 257, 1])
def test_lifecycle_9_a_mark_has_a_bound(world: World, mark: Any, speaker: Speaker) -> None:
    world.submit(speaker.draft())
    world.worker(jobs=1)
    with pytest.raises(Refused) as refused:
        speaker.next().request("yield", after="1h", mark=mark)
    assert refused.value.where == "/mark"
    speaker.end()


def test_lifecycle_9_a_wait_that_was_over_is_over_for_the_order_that_takes_its_place(
    world: World, speaker: Speaker
) -> None:
    plan = world.submit(speaker.draft(ceilings=PATIENT))
    world.worker(jobs=1)
    one = speaker.next()
    one.checkpoint("half")
    assert waits(one, after="50ms") == "yields"
    speaker.end()
    speaker.next()
    speaker.end(1)
    world.until_ended(plan)
    failed = world.order(plan, "a")
    assert failed.state == "failed"
    world.write("human", RetryOrder(order=failed.order)).required()
    assert waits(speaker.next(), after="50ms") == "time"
    speaker.end()
    world.until_ended(plan)


def test_lifecycle_9_a_question_that_was_answered_is_asked_anew_in_the_order_that_takes_its_place(
    world: World, speaker: Speaker
) -> None:
    """The answer is not taken over, and the wait for it is not over either; one for a time is."""
    plan = world.submit(speaker.draft(ceilings=PATIENT))
    world.worker(jobs=1)
    one = speaker.next()
    one.checkpoint("half")
    assert waits(one, after="50ms") == "yields"
    speaker.end()
    two = speaker.next()
    assert waits(two, after="50ms") == "time"
    assert waits(two, question="go") == "yields"
    speaker.end()
    world.until(lambda: world.order(plan, "a").state == "waiting")
    world.write("human", AnswerOrder(order=world.order(plan, "a").order, value="yes")).required()
    three = speaker.next()
    assert (waits(three, question="go"), three.answer("go")) == ("answer", "yes")
    speaker.end(1)
    world.until_ended(plan)
    world.write("human", RetryOrder(order=world.order(plan, "a").order)).required()
    four = speaker.next()
    assert four.hello()["waited"] is None
    assert waits(four, after="50ms") == "time"
    assert waits(four, question="go") == "yields"
    speaker.end()
    world.until(lambda: world.order(plan, "a").state == "waiting")
    world.write("human", AnswerOrder(order=world.order(plan, "a").order, value="no")).required()
    five = speaker.next()
    assert (waits(five, question="go"), five.answer("go")) == ("answer", "no")
    speaker.end()
    world.until_ended(plan)
    assert world.order(plan, "a").state == "applied"
    world.check()
