"""Wide and deep plans, and a worker that has nothing to do."""

from __future__ import annotations

import time
from itertools import pairwise
from pathlib import Path

from fencepost.core.records.plan import Retry
from tests.services.world import World, draft, needs


def test_a_thousand_dependents_of_one_failure(world: World) -> None:
    plan = world.submit(draft("a", "false"), *(draft(f"n{n}", groups=needs("a")) for n in range(1_000)))
    world.worker(jobs=2)
    world.until_ended(plan, 20)
    states = [order.state for order in world.orders(plan).values()]
    assert states.count("dependency_failed") == 1_000
    world.check()


def test_a_thousand_dependents_become_ready_and_a_fan_in_waits_for_all(world: World) -> None:
    """Released in pages, cancelled at the end: running a thousand commands is the bench's business."""
    gate = world.folder / "go"
    wide = [draft(f"n{n}", groups=needs("a")) for n in range(1_000)]
    last = draft("last", groups=needs(*(f"n{n}" for n in range(1_000))))
    plan = world.submit(draft("a", "sh", "-c", f"while [ ! -e '{gate}' ]; do sleep 0.02; done"), *wide, last)
    world.worker(jobs=2)
    world.until_state(plan, "a", "active")
    gate.touch()
    world.until(
        lambda: (
            not any(order.state == "blocked_dependency" for task, order in world.orders(plan).items() if task != "last")
        ),
        20,
    )
    assert world.order(plan, "last").state == "blocked_dependency"


def test_a_chain_runs_in_its_order(world: World) -> None:
    depth = 60
    orders = [draft("n0", *world.say("n0"))]
    orders += [draft(f"n{n}", *world.say(f"n{n}"), groups=needs(f"n{n - 1}")) for n in range(1, depth)]
    plan = world.submit(*orders)
    world.worker(jobs=2)
    world.until_ended(plan, 30)
    assert world.ran() == [f"n{n}" for n in range(depth)]
    world.check()


def test_a_chain_of_300_fails_to_its_end(world: World) -> None:
    orders = [draft("n0", "false"), *(draft(f"n{n}", groups=needs(f"n{n - 1}")) for n in range(1, 300))]
    plan = world.submit(*orders)
    world.worker(jobs=1)
    world.until_ended(plan, 10)
    assert world.plan(plan).applied == 0
    world.check()


def test_a_backoff_is_recorded_and_kept(world: World) -> None:
    retry = Retry(on=("executor",), backoff_us=400_000, backoff_max_us=600_000)
    plan = world.submit(draft("a", "false", retry=retry))
    world.worker(jobs=1)
    world.until_ended(plan)
    attempts = world.attempts(plan, "a")
    assert len(attempts) == 3
    gaps = [later.reserved_us - earlier.ended_us for earlier, later in pairwise(attempts)]
    assert 400_000 <= gaps[0] < 1_500_000 and 600_000 <= gaps[1] < 1_700_000
    world.check()


def test_an_idle_worker_hardly_looks(world: World) -> None:
    """Counted, not timed: a machine may be slow."""
    looks = [0]
    worker = world.worker(jobs=2)
    world.until(worker.is_idle, 5)
    time.sleep(0.5)
    reader = world.app.kernel.reader
    look = reader.look

    def counted() -> object:
        looks[0] += 1
        return look()

    reader.look = counted  # type: ignore[method-assign,assignment]  # it only counts
    begun = world.trouble.begun
    time.sleep(3)
    del reader.look
    assert looks[0] <= 2
    assert world.trouble.begun == begun


def test_a_submission_by_another_process_is_taken_at_once(world: World, tmp_path: Path) -> None:
    """The hint crosses processes, so that nobody waits for the safety look."""
    world.other_worker(jobs=1)
    slow = []
    for number in range(10):
        began = time.monotonic()
        plan = world.submit(draft("a"), name=f"p{number}")
        world.until_ended(plan, 5)
        slow.append(time.monotonic() - began)
    assert sorted(slow)[5] < 0.5
