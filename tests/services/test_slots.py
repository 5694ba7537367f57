"""Who gets a slot that falls free: results that wait for somebody, and orders that are ready, by turns (lifecycle, 8).

A report reserves the next order for the slot that it leaves, so that with a long queue no slot is ever seen free.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence

import pytest

from fencepost.core.commands import RecordVerification, Request
from fencepost.core.records.plan import Acceptance
from fencepost.kernel.receipts import Receipt
from fencepost.ports.errors import StorageUnavailable
from fencepost.services import finish
from fencepost.services.finish import Finisher
from tests.services.world import World, draft

OTHER = "worker_" + "f" * 32
QUEUE = 40


def verified(world: World, name: str = "a") -> str:
    """A plan of one order, with a verifier that waits for the file `go`."""
    script = f"echo v >> '{world.log}'; while [ ! -e '{world.folder / 'go'}' ]; do sleep 0.02; done"
    accept = Acceptance(verify=("sh", "-c", script))
    return world.submit(draft(name, *world.say(name), accept=accept), name=name)


def queue(world: World) -> str:
    """A plan of many orders that are ready at once."""
    return world.submit(*(draft(f"q{number}", "sleep", "0.02") for number in range(QUEUE)), name="queue")


def left_by_a_killed_worker(world: World) -> str:
    plan = verified(world)
    other = world.other_worker(jobs=1)
    world.until_ran("v")
    other.kill()
    other.wait()
    world.until(lambda: not world.processes(), 10)
    (world.folder / "go").touch()
    return plan


def test_a_result_of_a_killed_worker_does_not_wait_for_the_end_of_the_queue(world: World) -> None:
    plan = left_by_a_killed_worker(world)
    waiting = queue(world)
    world.worker(jobs=1)
    world.until_state(plan, "a", "applied")
    assert world.plan(waiting).open > QUEUE // 2
    world.until_ended(waiting, 60)
    world.check()


def test_a_result_that_its_own_worker_could_not_finish_goes_before_the_queue(world: World) -> None:
    """Without a look at the store, and without waiting for one: the slot itself says that its result is left."""
    plan = verified(world)
    worker = world.worker(jobs=1)
    insist = worker._means.insist
    failures = [StorageUnavailable("gone for longer than a lease")]

    def failing(requests: Sequence[Request], until_tick_us: int) -> list[Receipt]:
        if isinstance(requests[0].command, RecordVerification) and failures:
            raise failures.pop()
        return insist(requests, until_tick_us)

    object.__setattr__(worker._means, "insist", failing)
    world.until_ran("v")
    waiting = queue(world)
    (world.folder / "go").touch()
    world.until_state(plan, "a", "applied")
    world.until_ended(waiting, 60)
    assert world.ran() == ["a", "v", "v"]
    kinds = [kind for kind, _ in world.kinds()]
    before = kinds[: kinds.index("result_application")]
    assert before.count("attempt_reservation") == 1, "its own, and none of the queue"


def test_results_that_nobody_can_finish_leave_every_other_slot_to_the_queue(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = left_by_a_killed_worker(world)
    turns: deque[str] = deque()
    known = Finisher.finish
    attempt = world.order(plan, "a").attempt

    def fruitless(self: Finisher, name: str, **kept: object) -> str:
        if name == attempt:
            turns.append("result")
            time.sleep(0.02)
            return ""
        return known(self, name)

    monkeypatch.setattr(Finisher, "finish", fruitless)
    monkeypatch.setattr(Finisher, "orphans", lambda self: [attempt] * 8)  # as many of them, for ever
    waiting = queue(world)
    worker = world.worker(jobs=1)
    world.until_ended(waiting, 60)
    worker.stop()
    assert QUEUE // 10 < len(turns) <= QUEUE + 5, "it had its turns, and left as many to the queue"


def test_results_of_others_do_not_hide_one_that_is_left(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of results that are none of this worker's business stand before it, a page of them."""
    monkeypatch.setattr(finish, "PAGE", 2)
    plans = [verified(world, name) for name in "abc"]
    worker = world.worker(jobs=3)
    world.until(lambda: world.ran().count("v") == 3)
    finisher = Finisher(worker._means, OTHER)
    orders = [order for plan in plans for order in world.orders(plan).values()]
    order = max(orders, key=lambda order: (order.moved_us, order.order))
    monkeypatch.setattr(finisher, "_is_busy", lambda attempt: attempt != order.attempt)
    monkeypatch.setattr(type(worker._means.locks), "is_held", lambda self, name: False)
    assert finisher.orphans() == [] and finisher.unfinished
    assert finisher.orphans() == [order.attempt] and not finisher.unfinished
    assert finisher.orphans() == [], "it begins anew"
    monkeypatch.undo()
    (world.folder / "go").touch()
    for plan in plans:
        world.until_ended(plan)
