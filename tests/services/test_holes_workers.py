"""What workers leave to each other, and what they never do: take, verify, wake or believe too much."""

from __future__ import annotations

import time
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from fencepost.core.commands import EnrolWorker, Reserve, ReserveNext, SetBudget
from fencepost.core.limits import Limits
from fencepost.core.records.plan import Acceptance
from fencepost.ports.executor import Ended, HolderProof, LogFacts
from fencepost.ports.workspace import Output
from fencepost.services import finish, results
from fencepost.services.attempt import Attempts
from fencepost.services.finish import Finisher
from fencepost.services.means import estimated_now_us
from fencepost.services.recover import Recoverer
from fencepost.services.upkeep import Blocked
from tests.services.world import World, draft

SECOND = 1_000_000
OTHER = "worker_" + "f" * 32
NOTHING = LogFacts(bytes_total=0, head_bytes=0, tail_bytes=0, gap_bytes=0)


def verified(world: World) -> tuple[str, Acceptance]:
    """A plan whose one order has a verifier that waits for the file `go`."""
    script = f"echo v >> '{world.log}'; while [ ! -e '{world.folder / 'go'}' ]; do sleep 0.02; done"
    return script, Acceptance(verify=("sh", "-c", script))


def test_a_result_that_its_living_worker_verifies_is_nobody_elses(world: World) -> None:
    _, accept = verified(world)
    plan = world.submit(draft("a", *world.say("a"), accept=accept))
    worker = world.worker(jobs=1)
    world.until_ran("v")
    assert Finisher(worker._means, OTHER).orphans() == []
    (world.folder / "go").touch()
    world.until_ended(plan)


def test_a_result_whose_worker_is_silent_for_too_long_is_taken_although_it_lives(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, accept = verified(world)
    plan = world.submit(draft("a", *world.say("a"), accept=accept))
    worker = world.worker(jobs=1)
    world.until_ran("v")
    later_us = world.order(plan, "a").terms.attempt_time_us + worker._means.kernel.limits.lease_us + SECOND
    monkeypatch.setattr(finish, "estimated_now_us", lambda clock, reading: estimated_now_us(clock, reading) + later_us)
    assert Finisher(worker._means, OTHER).orphans() == [world.order(plan, "a").attempt]
    monkeypatch.undo()
    (world.folder / "go").touch()
    world.until_ended(plan)


def test_of_two_that_adopt_one_result_one_alone_does(world: World) -> None:
    _, accept = verified(world)
    plan = world.submit(draft("a", *world.say("a"), accept=accept))
    worker = world.worker(jobs=1)
    world.until_ran("v")
    worker.stop()
    attempt = world.order(plan, "a").attempt
    assert attempt is not None
    (world.folder / "go").touch()
    means = world.app.means()
    finisher = Finisher(means, OTHER)
    assert finisher.orphans() == [attempt]
    held = means.locks.take(f"{attempt}.finish.lock", wait=False)
    assert held is not None
    finisher.adopt(attempt)
    assert world.order(plan, "a").state == "result_pending" and world.ran() == ["a", "v"]
    held.release()
    finisher.adopt(attempt)
    assert world.order(plan, "a").state == "applied" and world.ran() == ["a", "v", "v"]
    world.check()


def test_w17_of_a_holder_on_another_host_nothing_is_looked_for_here(world: World) -> None:
    world.write(
        "dispatcher", EnrolWorker(worker=OTHER, host="elsewhere", boot_id="b", pid=1, executors=("command/1",))
    ).required()
    plan = world.submit(draft("a"))
    order = world.order(plan, "a")
    world.write("dispatcher", Reserve(order=order.order, expected=order.version, worker=OTHER)).required()
    means = world.app.means()
    issued: list[Any] = []
    object.__setattr__(means, "issue", lambda name, command: issued.append(command))
    Recoverer(means, "worker_" + "e" * 32).run_once()
    assert issued == []


@pytest.mark.parametrize("is_over", [False, True])
def test_w17_processes_without_a_supervisor_are_ended_with_their_lease_and_no_earlier(is_over: bool) -> None:
    ended_by: list[str] = []
    alive = HolderProof(gone=False, lock="free", pids=(7,), evidence=("one is left",))

    def end_holder(lock: str, *asked: str, same_host: bool) -> HolderProof:
        ended_by.append(lock)
        return alive

    executor = SimpleNamespace(
        holder_proof=lambda *asked, same_host: alive,
        end_holder=end_holder,
    )
    locks = SimpleNamespace(is_held=lambda name: False, path=lambda name: name)
    these: Any = SimpleNamespace(executor=executor, locks=locks)
    attempt: Any = SimpleNamespace(attempt="attempt_1", worker="worker_1", host="here", boot_id="b")
    reading: Any = SimpleNamespace(source="here", boot_id="b")
    recoverer = Recoverer(these, OTHER)
    assert not recoverer._prove_gone(attempt, reading, is_over=is_over)
    assert (ended_by, recoverer.suspects) == (["attempt_1.lock"] if is_over else [], 1)


def test_w7_a_schema_that_no_output_falls_under_has_not_passed() -> None:
    means: Any = SimpleNamespace(
        artifacts=SimpleNamespace(read=lambda digest, bytes_max: b"{}"),
        schema_checks=lambda must_stop: nullcontext(lambda document, schema: ()),
        kernel=SimpleNamespace(limits=Limits()),
    )
    accept = Acceptance(schemas={"out.json": "sha256:" + "0" * 64})
    written = Output(path="out.json", mode="0644", digest="sha256:" + "1" * 64, bytes=2)
    assert [receipt.passed for receipt in results.schema_receipts(means, accept, [written], bool) or ()] == [True]
    assert [receipt.passed for receipt in results.schema_receipts(means, accept, [], bool) or ()] == [False]


def test_w18_budget_for_one_wakes_one_alone(world: World) -> None:
    tasks = [draft(name, attempt_time_us=SECOND) for name in "abcd"]
    plan = world.submit(*tasks, ceilings={"time_us": SECOND})
    reading = world.app.kernel.clock.read()
    world.write(
        "dispatcher",
        EnrolWorker(worker=OTHER, host=reading.source, boot_id=reading.boot_id, pid=1, executors=("command/1",)),
    ).required()
    world.write("dispatcher", ReserveNext(worker=OTHER, count=4)).required()
    states = sorted(order.state for order in world.orders(plan).values())
    assert states == ["blocked_budget", "blocked_budget", "blocked_budget", "reserved"]
    world.write("human", SetBudget(account=plan, ceilings={"time_us": 2 * SECOND})).required()
    with world.app.kernel.reader.look() as look:
        assert len(Blocked().movable(look)) == 1


def test_a_worker_of_one_job_runs_one_command_at_a_time(world: World) -> None:
    gate = world.folder / "go"
    wait = f"while [ ! -e '{gate}' ]; do sleep 0.02; done"
    plan = world.submit(draft("a", *world.say("ran", wait)), draft("b", *world.say("ran", wait)))
    worker = world.worker(jobs=1)
    world.until_ran("ran")
    time.sleep(0.3)
    assert world.ran() == ["ran"] and worker.status().running == 1
    gate.touch()
    world.until_ended(plan)


def test_nobody_is_idle_while_another_holds_something(world: World) -> None:
    reading = world.app.kernel.clock.read()
    world.write(
        "dispatcher",
        EnrolWorker(worker=OTHER, host=reading.source, boot_id=reading.boot_id, pid=1, executors=("command/1",)),
    ).required()
    idle = world.app.worker(jobs=1)
    assert idle.is_idle()
    world.submit(draft("a"))
    assert not idle.is_idle(), "there is something to claim"
    world.write("dispatcher", ReserveNext(worker=OTHER, count=1)).required()
    assert not idle.is_idle(), "a reservation may lapse"


def ended(**changes: Any) -> Ended:
    values: dict[str, Any] = {
        "reason": "exited",
        "exit_code": 0,
        "signal": None,
        "duration_us": 5,
        "tree_empty": True,
        "stdout": NOTHING,
        "stderr": NOTHING,
        "message": "",
    }
    return Ended(**{**values, **changes})


def _ran(end: Ended) -> Any:
    return SimpleNamespace(ended=end, events=())


def test_case_23_an_end_without_proof_is_no_success_and_gives_nothing_back() -> None:
    spec: Any = SimpleNamespace(accept=SimpleNamespace(exit_code=0), python=None)
    assert results._failure(spec, ended(), (), None) == (None, "", "")
    assert results._failure(spec, ended(tree_empty=False), (), None)[:2] == ("terminal", "containment_lost")
    leases: Any = SimpleNamespace(failures=0)
    means: Any = SimpleNamespace(base_environment={}, kernel=None)  # whoever asks it for anything fails
    attempts = Attempts(means, OTHER, leases, None, None, None)  # type: ignore[arg-type]  # not asked here
    attempts._stopped(SimpleNamespace(lost=""), SimpleNamespace(), _ran(ended(reason="stopped", tree_empty=False)))  # type: ignore[arg-type]  # neither is asked
    assert leases.failures == 1
    with pytest.raises(AttributeError):
        attempts._stopped(
            SimpleNamespace(lost="", attempt="a", fence=1), SimpleNamespace(), _ran(ended(reason="stopped"))
        )  # type: ignore[arg-type]  # a proved end is told


def test_w17_what_told_of_its_own_end_is_not_looked_for_by_the_next_attempt() -> None:
    """A look goes through all processes of the host: an order that waits often is started as fast as ever."""
    asked: list[str] = []

    def end_holder(path: str, attempt: str, *given: Any, same_host: bool) -> HolderProof:
        asked.append(attempt)
        return HolderProof(gone=True, lock="free", pids=(), evidence=())

    means: Any = SimpleNamespace(
        base_environment={},
        reading=lambda: SimpleNamespace(source="here", boot_id="now"),
        locks=SimpleNamespace(path=str),
        executor=SimpleNamespace(end_holder=end_holder),
    )
    attempts = Attempts(means, OTHER, None, None, None, None)  # type: ignore[arg-type]  # not asked here

    def left(name: str, **known: Any) -> Any:
        values: dict[str, Any] = {"host": "here", "boot_id": "now", "result_seq": 0, "yielded_seq": 0, "stopped_seq": 0}
        return SimpleNamespace(attempt=name, **{**values, **known})

    told = [left(f"told-{which}", **{which: 7}) for which in ("result_seq", "yielded_seq", "stopped_seq")]
    gone = [left("another boot", boot_id="before"), left("another host", host="there")]
    assert attempts._left_of([*told, *gone, left("silent")]) == ""
    assert asked == ["silent"]
