"""Cancels and deadlines reach whatever state an order is in, and what it used is paid once (decisions 4, 10, 16)."""

from __future__ import annotations

import time
from pathlib import Path

from fencepost.adapters.clock import SystemClock
from fencepost.core.commands import CancelOrder, CancelPlan
from fencepost.core.records.plan import Acceptance, Retry
from tests.services.world import World, draft, needs

SLEEP = "sleep 60"


def test_case_08_cancel_of_a_running_order_stops_its_tree_within_a_second(world: World) -> None:
    plan = world.submit(draft("a", *world.say("a", SLEEP)))
    world.worker()
    world.until_ran("a")
    world.until_state(plan, "a", "active")
    other = world.open()
    order = world.order(plan, "a").order
    began = time.monotonic()
    receipt = other.kernel.write(other.kernel.request("human", CancelOrder(order=order)))
    assert receipt.required()["state"] == "cancelled"
    world.until(lambda: not world.processes(), 5)
    assert time.monotonic() - began < 1.5
    [attempt] = world.attempts(plan, "a")
    world.until(lambda: world.hold(attempt).state == "settled", 5)
    charged = world.hold(attempt).charged
    assert charged["attempts"] == 1
    assert 0 < charged["time_us"] < 10_000_000
    assert [path.name for path in (world.home / "work").glob("attempt_*")] == [attempt.attempt], "its log can be read"
    again = other.kernel.write(other.kernel.request("human", CancelOrder(order=order)))
    assert again.refusal is not None and again.refusal.code == "order_ended"
    other.close()
    world.check()


def test_a_cancel_of_each_state_that_has_not_ended(world: World) -> None:
    retry = Retry(on=("executor",), backoff_us=60_000_000, backoff_max_us=60_000_000)
    plan = world.submit(
        draft("backoff", "false", retry=retry),
        draft("verified", "true", accept=Acceptance(verify=("sleep", "60"))),
        draft("active", *world.say("active", SLEEP)),
        draft("waits", groups=needs("active")),
        draft("poor", ceilings={"attempts": 3, "calls": 5}, per_attempt={"calls": 5}),
        draft("ready"),
        ceilings={"attempts": 20, "calls": 5},
    )
    world.worker(jobs=2)
    world.until_ran("active")
    world.until_state(plan, "backoff", "retry_wait")
    world.until_state(plan, "verified", "result_pending")
    seen = {task: order.state for task, order in world.orders(plan).items()}
    assert seen["waits"] == "blocked_dependency"
    assert seen["ready"] == "ready"
    for order in world.orders(plan).values():
        assert world.write("human", CancelOrder(order=order.order)).ok or order.task == "waits", order.task
    states = {task: order.state for task, order in world.orders(plan).items()}
    assert states.pop("waits") in ("cancelled", "dependency_failed")
    assert set(states.values()) == {"cancelled"}
    world.until(lambda: not world.processes(), 5, "a verifier of a cancelled order went on")
    world.until(lambda: world.workers[0].status().running == 0, 5)
    world.check()


def test_a_plan_is_cancelled_page_by_page(world: World) -> None:
    plan = world.submit(*(draft(f"n{number}", "sleep", "60") for number in range(600)))
    world.worker(jobs=2)
    world.until(lambda: sum(order.state == "active" for order in world.orders(plan).values()) == 2)
    assert world.write("human", CancelPlan(plan=plan)).ok
    assert world.until_ended(plan, 10) < 8
    assert {order.state for order in world.orders(plan).values()} == {"cancelled"}
    world.until(lambda: world.workers[0].status().running == 0, 5)
    world.check()


def test_a_plan_past_its_deadline_ends_whatever_it_does(world: World) -> None:
    retry = Retry(on=("executor",), backoff_us=60_000_000, backoff_max_us=60_000_000)
    plan = world.submit(
        draft("backoff", "false", retry=retry),
        draft("active", *world.say("active", SLEEP)),
        draft("waits", groups=needs("active")),
        deadline_us=2_000_000,
    )
    world.worker(jobs=2)
    took = world.until_ended(plan, 15)
    assert 1.0 < took < 6.0
    assert world.plan(plan).cancel == "deadline_passed"
    assert {order.state for order in world.orders(plan).values()} <= {"cancelled", "dependency_failed"}
    world.until(lambda: world.workers[0].status().running == 0, 5)
    world.check()


def test_case_08_a_command_that_ends_as_it_is_cancelled_is_counted_once(world: World) -> None:
    """Whoever comes first decides; the facts of the other are kept, and time is charged once."""
    plans = []
    world.worker(jobs=2)
    for number in range(12):
        plan = world.submit(draft("a", *world.say(f"a{number}", f"sleep 0.0{number % 6}")), name=f"p{number}")
        plans.append(plan)
        world.until_ran(f"a{number}")
        world.write("human", CancelOrder(order=world.order(plan, "a").order))
    world.until(lambda: world.workers[0].status().running == 0, 10)
    for plan in plans:
        order = world.order(plan, "a")
        [attempt] = world.attempts(plan, "a")
        hold = world.hold(attempt)
        assert order.state in ("applied", "cancelled")
        assert hold.state == "settled"
        assert hold.charged["attempts"] == 1
        assert hold.charged.get("time_us", 0) < 5_000_000, "the whole hold was charged"
    assert len(world.ran()) == 12
    world.check()


def test_a_cancel_during_the_layout_starts_nothing(world: World, tmp_path: Path) -> None:
    workspaces = world.app.workspaces
    prepare = workspaces.prepare
    plan = world.submit(draft("a", *world.say("a")))

    def slow(**arguments: object) -> object:
        space = prepare(**arguments)  # type: ignore[arg-type]  # passed on as they came
        world.write("human", CancelOrder(order=world.order(plan, "a").order))
        time.sleep(0.5)
        return space

    workspaces.prepare = slow  # type: ignore[method-assign,assignment]  # a slow disk
    world.worker(jobs=1)
    world.until_state(plan, "a", "cancelled")
    world.until(lambda: world.workers[0].status().running == 0, 5)
    assert world.ran() == []
    [attempt] = world.attempts(plan, "a")
    assert world.hold(attempt).charged.get("time_us", 0) == 0
    world.check()


def test_case_23_a_cancel_and_a_drain_stop_detached_members_too(world: World) -> None:
    beats = world.folder / "beats"
    loop = f"setsid sh -c \"while :; do echo x >> '{beats}'; sleep 0.02; done\" & sleep 60"
    plan = world.submit(draft("a", *world.say("a", loop)), draft("b", *world.say("b", loop)))
    worker = world.worker(jobs=1)
    for task in ("a", "b"):
        world.until_ran(task)
        size = beats.stat().st_size if beats.exists() else 0
        world.until(lambda size=size: beats.exists() and beats.stat().st_size > size, 5)
        if task == "a":
            world.write("human", CancelOrder(order=world.order(plan, "a").order))
            world.until(lambda: world.attempts(plan, "b"), 5, "the slot came free")
        else:
            worker.stop()
            size = beats.stat().st_size
            time.sleep(0.2)
            assert beats.stat().st_size == size
    assert world.processes() == []
    assert world.order(plan, "b").reason == "drained"
    world.check()


def test_case_08_what_a_cancelled_attempt_holds_on_a_host_that_never_comes_back_is_settled_by_its_time(
    world: World,
) -> None:
    """Nobody here can prove that its holder is gone, or be told by it."""
    plan = world.submit(draft("a", *world.say("a", SLEEP)))
    host = world.other_worker()
    world.until_ran("a")
    world.until_state(plan, "a", "active")
    host.kill()
    host.wait()
    world.until(lambda: not world.processes(), 10)
    elsewhere = world.open()
    kernel = elsewhere.kernel
    kernel.clock = SystemClock(kernel.entropy, boot_id="another-boot", source=f"source_{'9' * 32}")
    kernel.write(kernel.request("human", CancelOrder(order=world.order(plan, "a").order))).required()
    [attempt] = world.attempts(plan, "a")
    hold = world.hold(attempt)
    assert (hold.state, sorted(hold.held)) == ("unsettled", ["time_us"])
    world.worker(app=elsewhere)
    world.until(lambda: world.hold(attempt).state == "settled", 30, "its time is held for ever")
    settled = world.hold(attempt)
    assert settled.charged["time_us"] == hold.held["time_us"] and not any(settled.held.values())
    assert not any(world.plan(plan).account.held.values())
    world.workers[0].stop()
    elsewhere.close()
