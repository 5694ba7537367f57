"""A store that cannot be reached: renewals are unknown and not lost, and nothing done is thrown away (C8, case 30)."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from fencepost.ports.errors import StorageUnavailable
from tests.services.world import World, draft

# Hold the database's write lock from another process.
_HOLD = """
import apsw, sys, time
connection = apsw.Connection(sys.argv[1])
connection.set_busy_timeout(5000)
connection.execute("BEGIN IMMEDIATE")
print("held", flush=True)
sys.stdin.read()
"""


@contextmanager
def store_held(world: World) -> Iterator[None]:
    holder = subprocess.Popen(
        [sys.executable, "-c", _HOLD, str(world.home / "store.db")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert holder.stdin is not None and holder.stdout is not None
    try:
        assert holder.stdout.readline()
        yield
    finally:
        holder.communicate()


@contextmanager
def store_failing(world: World) -> Iterator[None]:
    def fail() -> None:
        raise StorageUnavailable("the connection is gone")

    world.trouble.before_begin = fail
    try:
        yield
    finally:
        world.trouble.before_begin = None


def test_case_30_a_short_outage_costs_nothing(world: World) -> None:
    """A lock that is held, and a store that fails at once. The lease is 5 s, so that its stop would begin at 2 s."""
    for number, outage in enumerate((store_held, store_failing)):
        plan = world.submit(draft("a", *world.say(f"a{number}", "sleep 2.5")), name=f"p{number}")
        if number == 0:
            world.worker(jobs=1)
        world.until_ran(f"a{number}")
        world.until_state(plan, "a", "active")
        time.sleep(0.2)
        with outage(world):
            time.sleep(1.2)
        world.until_ended(plan)
        assert world.order(plan, "a").state == "applied"
        assert len(world.attempts(plan, "a")) == 1
    world.check()


def test_a_result_that_meets_an_outage_is_told_afterwards(world: World) -> None:
    plan = world.submit(draft("a", *world.say("a", "sleep 0.4; echo b")))
    world.worker(jobs=1)
    world.until_ran("a")
    world.until(lambda: world.attempts(plan, "a")[0].state == "running")
    with store_failing(world):
        time.sleep(1.5)
    world.until_ended(plan)
    assert world.order(plan, "a").state == "applied"
    assert world.ran() == ["a"]
    world.check()


def test_case_30_lost_renewals_stop_the_tree_before_the_lease_ends(world: World) -> None:
    """The order is repeated and has not failed; the time of the stopped attempt is charged once."""
    plan = world.submit(
        draft("a", *world.say("a$FENCEPOST_FENCE", "test $FENCEPOST_FENCE != 1 || sleep 60")), ceilings={"attempts": 3}
    )
    world.worker(jobs=1)
    world.until_ran("a1")
    world.until(lambda: world.attempts(plan, "a")[0].state == "running")
    with store_held(world):
        gone = world.until(lambda: not world.processes(), 6)
        assert gone < 4.5, "the lease was renewed at most a moment before the outage"
        time.sleep(12 - gone)
    world.until_ended(plan)
    order = world.order(plan, "a")
    assert (order.state, order.failures) == ("applied", 0)
    first, second = world.attempts(plan, "a")
    # By the time the store is back the lease has lapsed, or has its grace after a gap that nobody looked into.
    assert first.state in ("cancelled_no_effect", "yielded")
    assert second.state == "accepted"
    assert world.hold(first).charged["time_us"] < 10_000_000
    assert world.ran() == ["a1", "a2"]
    world.check()


def test_a_lost_answer_of_an_activation_starts_the_command_once(world: World) -> None:
    """The commit stands and its answer does not arrive: the key finds it again."""
    plan = world.submit(draft("a", *world.say("a", "sleep 0.2")), draft("b", *world.say("b")))
    left = [0]

    def lose() -> None:
        left[0] += 1
        if left[0] % 2:
            raise StorageUnavailable("the answer was lost")

    world.worker(jobs=2)
    world.until_ended(plan)
    world.trouble.after_commit = lose
    plan = world.submit(*(draft(f"n{number}", *world.say(f"n{number}")) for number in range(10)), name="second")
    world.until_ended(plan)
    world.trouble.after_commit = None
    assert sorted(world.ran()) == sorted(["a", "b", *(f"n{number}" for number in range(10))])
    assert {len(world.attempts(plan, f"n{number}")) for number in range(10)} == {1}
    world.check()
