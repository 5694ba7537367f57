"""What a worker that is gone leaves: found by whoever comes next, proved and not guessed, and done once (8, 16, 45)."""

from __future__ import annotations

import fcntl
import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from fencepost.adapters.locks import FolderLocks
from fencepost.core.commands import (
    CancelPlan,
    EnrolWorker,
    ExpireAttempt,
    ObserveClock,
    RecordVerification,
    Request,
    ReserveNext,
)
from fencepost.core.ids import IdSource
from fencepost.core.records.plan import Acceptance
from fencepost.kernel.group import clock_reading
from fencepost.kernel.receipts import Receipt
from fencepost.ports.errors import StorageUnavailable
from tests.services.world import SHORT, World, draft


def reserve_only(world: World) -> None:
    """What a worker leaves that is killed between its reservation and its activation: no lock, no process."""
    kernel = world.app.kernel
    reading = kernel.clock.read()
    name = IdSource(kernel.entropy.seed(), reading.utc_us).next("worker")
    enrol = EnrolWorker(
        worker=name, host=reading.source, boot_id=reading.boot_id, pid=os.getpid(), executors=("command/1",)
    )
    world.write("dispatcher", enrol).required()
    world.write("dispatcher", ReserveNext(worker=name, count=1)).required()


def test_case_16_a_reservation_of_a_dead_worker_is_freed_at_once(world: World) -> None:
    plan = world.submit(draft("a", *world.say("a")))
    reserve_only(world)
    assert world.order(plan, "a").state == "reserved"
    world.worker(jobs=1)
    assert world.until_ended(plan, 5) < 1.5
    first, second = world.attempts(plan, "a")
    assert (first.state, second.state) == ("cancelled_no_effect", "accepted")
    assert world.plan(plan).account.charged["attempts"] == 1
    world.check()


def test_case_16_a_reservation_of_a_living_worker_lapses_by_the_clock(world: World) -> None:
    """Its lock is held, so that nothing is proved but its deadline."""
    plan = world.submit(draft("a", *world.say("a")))
    reserve_only(world)
    [attempt] = world.attempts(plan, "a")
    lock = world.app.locks.take(f"{attempt.worker}.lock", wait=False)
    assert lock is not None
    world.worker(jobs=1)
    took = world.until_ended(plan, 10)
    lock.release()
    assert 1.0 < took < 6
    assert [each.state for each in world.attempts(plan, "a")] == ["expired_no_effect", "accepted"]
    assert world.plan(plan).account.charged["attempts"] == 1
    world.check()


def test_a_killed_worker_is_noticed_by_one_that_runs(world: World) -> None:
    """Nobody writes down a death: the other worker looks, and the order is free long before the lease ends."""
    plan = world.submit(draft("a", *world.say("a", "test $FENCEPOST_FENCE != 1 || sleep 60")))
    other = world.other_worker(jobs=1)
    world.until_ran("a")
    world.until(lambda: world.attempts(plan, "a")[0].state == "running")
    worker = world.worker(jobs=1)
    time.sleep(0.5)
    other.kill()
    assert world.until_ended(plan, 10) < 4
    first, second = world.attempts(plan, "a")
    assert (first.state, second.state) == ("cancelled_no_effect", "accepted")
    assert world.order(plan, "a").failures == 0
    world.until(lambda: worker.status().running == 0)
    assert ("holder_gone_proof", first.attempt) in world.kinds()
    worker.stop()
    assert [path.name for path in (world.home / "locks").iterdir() if path.name.startswith("attempt_")] == []
    world.check()


def test_a_tree_whose_whole_supervision_was_killed_is_ended_with_its_lease(world: World) -> None:
    plan = world.submit(draft("a", *world.say("a", "test $FENCEPOST_FENCE != 1 || sleep 60")))
    other = world.other_worker(jobs=1)
    world.until_ran("a")
    world.until(lambda: world.attempts(plan, "a")[0].state == "running")
    [host] = [int(name) for name in Path(f"/proc/{other.pid}/task/{other.pid}/children").read_text().split()]
    keepers = [int(name) for name in Path(f"/proc/{host}/task/{host}/children").read_text().split()]
    for number in (signal.SIGSTOP, signal.SIGKILL):  # stopped first, so that none sees another die
        for pid in (other.pid, host, *keepers):
            os.kill(pid, number)
    time.sleep(0.2)
    assert world.processes(), "the command outlives its supervision"
    world.worker(jobs=1)
    world.until_ended(plan, 15)
    assert len(world.ran()) == 2
    world.check()


def orphaned(world: World) -> tuple[str, str]:
    """An order whose command runs on while its worker and keeper are killed, and its lease was ended from elsewhere."""
    pid = world.folder / "pid"
    first = f"echo $$ > '{pid}'; sleep 60"
    # A dead process that nobody has reaped has no environment any more.
    lives = f"grep -q FENCEPOST /proc/$(cat '{pid}')/environ"
    later = f"if {lives}; then echo beside; else echo alone; fi >> '{world.log}'"
    plan = world.submit(draft("a", *world.say("a", f"if test $FENCEPOST_FENCE = 1; then {first}; else {later}; fi")))
    other = world.other_worker(jobs=1)
    world.until(lambda: pid.exists() and world.attempts(plan, "a")[0].state == "running")
    [host] = [int(name) for name in Path(f"/proc/{other.pid}/task/{other.pid}/children").read_text().split()]
    keepers = [int(name) for name in Path(f"/proc/{host}/task/{host}/children").read_text().split()]
    for number in (signal.SIGSTOP, signal.SIGKILL):  # stopped first, so that none sees another die
        for each in (other.pid, host, *keepers):
            os.kill(each, number)
    other.wait(10)

    def expired() -> bool:
        [attempt] = world.attempts(plan, "a")
        world.write("sampler", ObserveClock(reading=clock_reading(world.app.kernel.clock.read())))
        return world.write("dispatcher", ExpireAttempt(attempt=attempt.attempt, expected=attempt.version)).ok

    world.until(expired, 20)
    assert world.processes(), "the command outlives its supervision and its lease"
    return plan, world.attempts(plan, "a")[0].attempt


def test_what_an_earlier_attempt_left_on_this_host_is_ended_before_the_next_one_starts(world: World) -> None:
    """Found by the simulator: a worker of another host had ended the lease, so that nobody looked for the tree."""
    plan, _ = orphaned(world)
    world.worker(jobs=1)
    world.until_ended(plan, 15)
    assert world.ran() == ["a", "a", "alone"]
    assert world.processes() == []
    world.check()


def test_what_an_ended_attempt_left_on_this_host_is_ended_by_the_sweep(world: World) -> None:
    plan, _ = orphaned(world)
    world.write("human", CancelPlan(plan=plan)).required()
    world.worker(jobs=1)
    world.until(lambda: not world.processes(), 10)
    assert "alone" not in world.ran()


def test_case_20_a_worker_stopped_with_its_keeper_has_nothing_beside_the_next_attempt(world: World) -> None:
    """Neither can end the tree any more, and the worker's lock is held: whoever ends the lease ends the tree."""
    plan = world.submit(draft("a", *world.say("a$FENCEPOST_FENCE", "test $FENCEPOST_FENCE != 1 || sleep 60")))
    other = world.other_worker(jobs=1)
    world.until_ran("a1")
    [host] = [int(name) for name in Path(f"/proc/{other.pid}/task/{other.pid}/children").read_text().split()]
    keepers = [int(name) for name in Path(f"/proc/{host}/task/{host}/children").read_text().split()]
    left = world.processes()
    for pid in (other.pid, host, *keepers):
        os.kill(pid, signal.SIGSTOP)
    assert left
    world.worker(jobs=1)
    world.until_ended(plan, 20)
    assert world.ran() == ["a1", "a2"]
    assert world.processes() == []
    os.kill(host, signal.SIGCONT)
    world.check()


def test_case_20_what_was_stopped_with_its_keeper_is_ended_where_no_next_attempt_looks_for_it(world: World) -> None:
    plan = world.submit(draft("a", *world.say("a", "sleep 60"), ceilings={"attempts": 1}))
    other = world.other_worker(jobs=1)
    world.until_ran("a")
    [host] = [int(name) for name in Path(f"/proc/{other.pid}/task/{other.pid}/children").read_text().split()]
    keepers = [int(name) for name in Path(f"/proc/{host}/task/{host}/children").read_text().split()]
    for pid in (other.pid, host, *keepers):
        os.kill(pid, signal.SIGSTOP)
    assert world.processes()
    world.worker(jobs=1)
    world.until_ended(plan, 20)
    assert world.order(plan, "a").state == "budget_exhausted"
    world.until(lambda: not world.processes(), 5)
    os.kill(host, signal.SIGCONT)
    world.check()


def test_a_verifier_does_not_outlive_a_worker_that_is_stopped_by_more_than_a_lease(world: World) -> None:
    plan = verified(world, f"echo v >> '{world.log}'; test -e '{world.folder}/go' || sleep 60")
    other = world.other_worker(jobs=1)
    world.until_ran("v")
    time.sleep(SHORT.lease_us / 1_000_000 + 0.5)
    assert world.processes(), "a worker that lives keeps its verifier for longer than a lease"
    other.send_signal(signal.SIGSTOP)
    world.until(lambda: not world.processes(), SHORT.lease_us / 1_000_000 + 1)
    (world.folder / "go").touch()
    other.send_signal(signal.SIGCONT)
    world.until_ended(plan, 10)
    assert world.order(plan, "a").state == "applied", "a verifier that was stopped has not spoken"


def verified(world: World, verify: str) -> str:
    return world.submit(
        draft(
            "a",
            *world.say("a", "echo x > out.txt"),
            outputs=("out.txt",),
            accept=Acceptance(verify=("sh", "-c", verify)),
        )
    )


def test_a_result_of_a_worker_killed_while_verifying_is_adopted_once(world: World) -> None:
    gate = world.folder / "go"
    plan = verified(world, f"echo v >> '{world.log}'; while [ ! -e '{gate}' ]; do sleep 0.02; done; cat out.txt")
    other = world.other_worker(jobs=1)
    world.until_ran("v")
    assert world.order(plan, "a").state == "result_pending"
    other.kill()
    other.wait()
    world.until(lambda: not world.processes(), 10)
    gate.touch()
    app = world.open()
    workers = [world.worker(jobs=2), world.worker(jobs=2, app=app)]
    assert world.until_ended(plan, 10) < 5
    assert world.order(plan, "a").state == "applied"
    assert world.ran() == ["a", "v", "v"], "the command ran once, and the second verifier once"
    for worker in workers:
        worker.stop()
    app.close()
    assert [path.name for path in (world.home / "locks").iterdir() if path.name.startswith("attempt_")] == []
    world.check()


def test_a_result_is_adopted_while_the_survivor_is_idle(world: World) -> None:
    gate = world.folder / "go"
    plan = verified(world, f"echo v >> '{world.log}'; while [ ! -e '{gate}' ]; do sleep 0.02; done")
    other = world.other_worker(jobs=1)
    world.until_ran("v")
    world.worker(jobs=1)
    time.sleep(0.3)
    gate.touch()
    other.kill()
    assert world.until_ended(plan, 10) < 5
    assert world.order(plan, "a").state == "applied"


def test_a_verdict_that_an_outage_broke_off_is_made_again(world: World) -> None:
    """Nobody but this worker may adopt what is its own."""
    plan = verified(world, f"echo v >> '{world.log}'")
    worker = world.worker(jobs=1)
    insist = worker._means.insist
    left = [True]

    def failing(requests: Sequence[Request], until_tick_us: int) -> list[Receipt]:
        if isinstance(requests[0].command, RecordVerification) and left:
            left.clear()
            raise StorageUnavailable("gone for longer than a lease")
        return insist(requests, until_tick_us)

    object.__setattr__(worker._means, "insist", failing)
    world.until_ended(plan, 10)
    assert world.order(plan, "a").state == "applied"
    assert world.ran() == ["a", "v", "v"]
    assert worker.fatal is None
    world.check()


def test_a_result_whose_worker_stands_still_as_it_verifies_is_verified_beside_it(world: World) -> None:
    """It keeps the lock of its try for as long as it stands still, and what it does once it wakes changes nothing."""
    script = f"echo v >> '{world.log}'; test -e '{world.folder}/go' || sleep 60"
    accept = Acceptance(verify=("sh", "-c", script))
    plan = world.submit(draft("a", *world.say("a"), accept=accept, attempt_time_us=2_000_000))
    other = world.other_worker(jobs=1)
    world.until_ran("v")
    other.send_signal(signal.SIGSTOP)
    (world.folder / "go").touch()
    worker = world.worker(jobs=1)
    world.until_ended(plan, 30)
    assert world.order(plan, "a").state == "applied"
    assert world.ran() == ["a", "v", "v"]
    other.send_signal(signal.SIGCONT)
    assert other.stdin is not None
    other.stdin.close()
    assert other.wait(10) == 0
    worker.stop()
    assert world.order(plan, "a").state == "applied" and world.ran() == ["a", "v", "v"]
    assert [path.name for path in (world.home / "locks").iterdir() if path.name.startswith("attempt_")] == []
    world.check()


def test_case_20_a_worker_that_is_stopped_and_wakes_changes_nothing(world: World) -> None:
    plan = world.submit(draft("a", *world.say("a$FENCEPOST_FENCE", "test $FENCEPOST_FENCE != 1 || sleep 60")))
    other = world.other_worker(jobs=1)
    world.until_ran("a1")
    world.until(lambda: world.attempts(plan, "a")[0].state == "running")
    other.send_signal(signal.SIGSTOP)
    world.until(lambda: not world.processes(), 6, "the keeper stops the tree before the lease ends")
    world.worker(jobs=1)
    world.until_ended(plan, 20)
    first, second = world.attempts(plan, "a")
    other.send_signal(signal.SIGCONT)
    world.until(lambda: ("late_record", first.attempt) in world.kinds(), 10, "its late word was not kept")
    assert world.order(plan, "a").state == "applied" and world.order(plan, "a").attempt == second.attempt
    assert 0 < world.hold(first).charged["time_us"] < 20_000_000
    assert world.plan(plan).account.charged["attempts"] == 2
    assert other.stdin is not None
    other.stdin.close()
    assert other.wait(10) == 0
    world.check()


def test_lock_files_and_folders_that_nobody_needs_are_swept(world: World) -> None:
    locks = world.home / "locks"
    plan = world.submit(draft("good", *world.say("good")), draft("bad", "false"))
    world.worker(jobs=1)
    world.until_ended(plan)
    world.workers[0].stop()
    good, bad = world.attempts(plan, "good")[0].attempt, world.attempts(plan, "bad")[0].attempt
    assert [path.name for path in (world.home / "work").glob("attempt_*")] == [bad]
    stale = [f"worker_{'1' * 32}.lock", f"{good}.lock", f"{bad}.verify.lock", f"{good}.finish.lock"]
    strange = [f"attempt_{'2' * 32}.lock", "turnstile"]
    for name in (*stale, *strange):
        (locks / name).touch()
    held = f"worker_{'3' * 32}.lock"
    lock = world.app.locks.take(held, wait=True)
    for name in (good, f"attempt_{'2' * 32}"):
        (world.home / "work" / name / "workspace").mkdir(parents=True)
    world.worker(jobs=1)
    world.until(lambda: not (locks / stale[0]).exists(), 5)
    world.until(lambda: not (world.home / "work" / good).exists(), 5)
    world.workers[1].stop()
    left = {path.name for path in locks.iterdir()}
    assert not left & set(stale)
    assert left >= {*strange, held}, "what is held, or is not this scope's, stays"
    assert (world.home / "work" / bad).exists()
    assert (world.home / "work" / f"attempt_{'2' * 32}").exists()
    assert lock is not None
    lock.release()


def test_locks_are_taken_on_the_file_that_stands_there(tmp_path: Path) -> None:
    locks, name = FolderLocks(tmp_path), "a.lock"
    assert not locks.is_held(name)
    first = locks.take(name, wait=False)
    assert first is not None and locks.is_held(name)
    assert locks.take(name, wait=False) is None
    assert not locks.remove_if_free(name)
    first.release()
    first.release()
    assert locks.names() == []
    (tmp_path / name).touch()
    assert locks.remove_if_free(name) and not locks.remove_if_free(name)


def test_a_lock_that_was_taken_anew_is_not_removed_with_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the look and the removal its holder left, and another took the name: that file is not ours to remove."""
    locks, name = FolderLocks(tmp_path), "a.lock"
    (tmp_path / name).touch()
    flock, anew = fcntl.flock, []

    def overtaken(descriptor: int, operation: int) -> None:
        flock(descriptor, operation)
        if not anew:
            anew.append(True)
            (tmp_path / name).unlink()
            anew.append(FolderLocks(tmp_path).take(name, wait=False))

    monkeypatch.setattr("fencepost.adapters.locks.fcntl.flock", overtaken)
    assert not locks.remove_if_free(name)
    assert locks.is_held(name)


def test_case_45_a_renewed_lease_outlives_its_first_end_and_nobody_takes_it_over(world: World) -> None:
    """Work of more than one lease, and a worker that starts in the middle: one execution, one attempt."""
    plan = world.submit(draft("a", *world.say("a", "sleep 6")))
    other = world.other_worker(jobs=1)
    world.until_ran("a")
    time.sleep(1)
    worker = world.worker(jobs=1)
    world.until_ended(plan, 15)
    assert world.order(plan, "a").state == "applied"
    assert world.ran() == ["a"] and len(world.attempts(plan, "a")) == 1
    assert worker.status().claimed == 0
    assert other.stdin is not None
    other.stdin.close()
    assert other.wait(10) == 0
    world.check()


def test_a_verifier_that_outlived_its_worker_is_ended_before_the_result_is_verified_again(world: World) -> None:
    """A lock that somebody holds says nothing about the result: it is no verdict."""
    plan = verified(world, f"echo v >> '{world.log}'; test -e '{world.folder}/go' || sleep 60")
    other = world.other_worker(jobs=1)
    world.until_ran("v")
    [host] = [int(name) for name in Path(f"/proc/{other.pid}/task/{other.pid}/children").read_text().split()]
    keepers = [int(name) for name in Path(f"/proc/{host}/task/{host}/children").read_text().split()]
    for number in (signal.SIGSTOP, signal.SIGKILL):  # stopped first, so that none sees another die
        for each in (other.pid, host, *keepers):
            os.kill(each, number)
    other.wait(10)
    assert world.processes(), "the verifier outlives its supervision"
    (world.folder / "go").touch()
    world.worker(jobs=1)
    world.until_ended(plan, 20)
    assert world.order(plan, "a").state == "applied"
    assert world.ran().count("v") == 2
    assert world.processes() == []
    world.check()


def test_a_thread_that_cannot_be_started_ends_the_worker_and_not_in_silence(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = world.worker(jobs=1)
    world.until(worker.is_idle, 5)

    def refuse(target: object, *, name: str) -> None:
        raise RuntimeError(f"can't start new thread {name}")

    monkeypatch.setattr(world.app.threads, "start", refuse)
    plan = world.submit(draft("a", *world.say("a")))
    world.until(lambda: worker.fatal is not None, 10)
    worker.stop()
    assert worker.fatal is not None and "can't start new thread" in worker.fatal.message
    monkeypatch.undo()
    world.worker(jobs=1)
    world.until_ended(plan, 20)
    assert world.ran() == ["a"]


def test_w8_nothing_is_left_for_a_worker_while_the_clock_waits_for_a_person(world: World) -> None:
    worker = world.worker(jobs=1)
    world.until(worker.is_idle, 5)
    now = clock_reading(world.app.kernel.clock.read())
    wrong = replace(now, utc_us=now.utc_us + 3_600_000_000, tick_us=now.tick_us + 1)
    world.write("sampler", ObserveClock(reading=wrong)).required()
    plan = world.submit(draft("a", *world.say("a")))
    time.sleep(0.3)
    assert world.order(plan, "a").state == "ready"
    assert worker.is_idle(), "`worker start --until-idle` ends"
