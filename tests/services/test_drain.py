"""A worker that is told to stop: whatever it is doing, nothing counts as an attempt and the next one goes on (8)."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from fencepost.core.commands import ReserveNext
from fencepost.core.records.plan import Acceptance, Retry
from fencepost.ports.errors import FencepostError, StorageFull
from fencepost.services.attempt import Attempts
from tests.services.world import World, draft

TRAP = "trap 'exit 3' TERM; sleep 60 & wait"


def attempts_charged(world: World, plan: str) -> int:
    return world.plan(plan).account.charged.get("attempts", 0)


def finish_with_the_next(world: World, plan: str, *, attempts: int = 1) -> None:
    world.worker(jobs=2)
    world.until_ended(plan)
    assert world.plan(plan).applied == world.plan(plan).orders
    assert attempts_charged(world, plan) == attempts
    world.workers[-1].stop()
    world.check()


@pytest.mark.parametrize("moment", ["before activation", "layout", "window", "running"])
def test_case_09_a_drain_costs_no_attempt(world: World, moment: str, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = world.folder / "go"
    loop = f"while [ ! -e '{gate}' ]; do sleep 0.02; done"
    plan = world.submit(draft("a", *world.say("a", loop)), ceilings={"attempts": 3})
    reached, go = threading.Event(), threading.Event()

    def pause() -> None:
        reached.set()
        go.wait(5)

    if moment == "before activation":
        activate = Attempts._activate

        def slow_activate(self: Attempts, reservation: Any, task: Any) -> Any:
            pause()
            return activate(self, reservation, task)

        monkeypatch.setattr(Attempts, "_activate", slow_activate)
    elif moment == "layout":
        prepare = world.app.workspaces.prepare

        def slow_prepare(**arguments: Any) -> Any:
            space = prepare(**arguments)
            pause()
            return space

        monkeypatch.setattr(world.app.workspaces, "prepare", slow_prepare)
    worker = world.worker(jobs=1)
    if moment in ("before activation", "layout"):
        assert reached.wait(5)
    else:
        world.until_ran("a")
        if moment == "running":
            world.until(lambda: world.attempts(plan, "a")[0].state == "running", 5)
    began = time.monotonic()
    worker.request_stop()
    go.set()
    worker.stop()
    assert time.monotonic() - began < 3
    monkeypatch.undo()
    world.app.workspaces.__dict__.pop("prepare", None)
    order = world.order(plan, "a")
    assert (order.state, order.reason) == ("ready", "drained")
    assert attempts_charged(world, plan) == 0
    assert world.ran() == (["a"] if moment in ("window", "running") else [])
    assert len(list((world.home / "work").glob("attempt_*"))) == 1, "it can be looked at"
    world.check()
    gate.touch()
    finish_with_the_next(world, plan)


def test_a_drain_gives_a_command_five_seconds_to_end(world: World) -> None:
    plan = world.submit(draft("a", *world.say("a", "trap 'sleep 1; exit 0' TERM; sleep 60 & wait")))
    worker = world.worker(jobs=1)
    world.until_ran("a")
    worker.stop()
    assert worker.status().running == 0 and world.processes() == []
    assert world.order(plan, "a").reason == "drained"
    [attempt] = world.attempts(plan, "a")
    assert world.hold(attempt).charged.get("time_us", 0) >= 900_000
    world.check()


def test_a_drain_stops_a_verifier_and_the_next_worker_verifies_again(world: World) -> None:
    gate = world.folder / "go"
    verify = ("sh", "-c", f"echo v >> '{world.log}'; while [ ! -e '{gate}' ]; do sleep 0.02; done")
    plan = world.submit(draft("a", *world.say("a"), accept=Acceptance(verify=verify)))
    worker = world.worker(jobs=1)
    world.until_ran("v")
    worker.stop()
    assert world.processes() == []
    assert world.order(plan, "a").state == "result_pending"
    gate.touch()
    finish_with_the_next(world, plan)
    assert world.ran() == ["a", "v", "v"]


def test_a_reservation_that_meets_a_drain_is_given_back(world: World) -> None:
    plan = world.submit(draft("a", *world.say("a")))
    worker = world.worker(jobs=1)
    world.until(lambda: world.plan(plan).open == 0 and worker.status().running == 0)
    issue = worker._means.issue

    def issue_then_stop(name: str, command: Any) -> Any:
        receipt = issue(name, command)
        if isinstance(command, ReserveNext):
            worker._stop.set()
        return receipt

    object.__setattr__(worker._means, "issue", issue_then_stop)
    plan = world.submit(draft("a", *world.say("b")), name="second")
    world.until(lambda: not worker._thread.is_alive(), 5)
    worker.stop()
    assert world.order(plan, "a").reason == "reservation_released"
    assert attempts_charged(world, plan) == 0
    assert world.ran() == ["a"]
    world.check()


def test_a_drain_leaves_a_backoff_to_the_next_worker(world: World) -> None:
    retry = Retry(on=("executor",), backoff_us=1_500_000, backoff_max_us=1_500_000)
    command = f"test -e '{world.folder}/failed' || {{ touch '{world.folder}/failed'; false; }}"
    plan = world.submit(draft("a", "sh", "-c", command, retry=retry))
    world.worker(jobs=1)
    order = world.until_state(plan, "a", "retry_wait")
    world.workers[0].stop()
    again = world.order(plan, "a")
    assert (again.state, again.retry_due_us) == ("retry_wait", order.retry_due_us)
    finish_with_the_next(world, plan, attempts=2)
    assert world.attempts(plan, "a")[1].reserved_us >= order.retry_due_us


def test_stop_is_safe_at_any_moment(world: World) -> None:
    never = world.app.worker(jobs=1)
    never.stop()
    never.stop()
    worker = world.worker(jobs=1)
    worker.stop()
    worker.stop()
    assert not list((world.home / "locks").glob("worker_*"))
    early = world.app.worker(jobs=1)
    early.request_stop()
    early.start()
    early.stop()
    assert early.fatal is None


def test_a_fault_of_the_program_in_a_slot_ends_the_worker_and_says_so(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = world.submit(draft("bad"), draft("good", *world.say("good", "sleep 60")))

    def broken(self: Attempts, lease: Any, task: Any, run: Any) -> None:
        raise ZeroDivisionError("a fault")

    work = Attempts._work
    monkeypatch.setattr(
        Attempts,
        "_work",
        lambda self, lease, task, run: (broken if task.spec.task == "bad" else work)(self, lease, task, run),
    )
    worker = world.app.worker(jobs=2)
    worker.start()
    until = time.monotonic() + 5
    while worker.fatal is None:
        assert time.monotonic() < until
        time.sleep(0.01)
    assert "ZeroDivisionError: a fault" in worker.fatal.message
    assert worker.fatal.code == FencepostError.code
    world.until(lambda: worker.status().running == 0, 10, "it drains by itself")
    worker.stop()
    assert world.processes() == []
    monkeypatch.undo()
    world.worker()
    world.until(lambda: world.order(plan, "bad").state == "applied", 10)


def test_a_fault_of_the_program_in_the_renewals_is_not_silent(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.submit(draft("a", "sleep", "60"))
    worker = world.app.worker(jobs=1)

    def broken() -> int:
        raise ZeroDivisionError("a fault")

    monkeypatch.setattr(worker._leases, "run_once", broken)
    worker.start()
    until = time.monotonic() + 5
    while worker.fatal is None:
        assert time.monotonic() < until
        time.sleep(0.01)
    worker.stop()
    assert world.processes() == []


def test_a_full_disk_costs_no_attempt_and_the_next_worker_goes_on(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = world.submit(draft("a", *world.say("a", "echo out > out.txt"), outputs=("out.txt",)))

    def full(*_: Any, **__: Any) -> None:
        raise StorageFull("no space left", next_step="free some")

    monkeypatch.setattr(world.app.workspaces, "collect", full)
    worker = world.app.worker(jobs=1)
    worker.start()
    until = time.monotonic() + 5
    while worker.fatal is None:
        assert time.monotonic() < until
        time.sleep(0.01)
    worker.stop()
    assert isinstance(worker.fatal, StorageFull)
    assert world.order(plan, "a").state == "ready"
    assert attempts_charged(world, plan) == 0
    monkeypatch.undo()
    finish_with_the_next(world, plan)
