"""A verifier that comes to no verdict is not begun without end, and what its runs took is paid for (8, W18)."""

from __future__ import annotations

import signal
import time

import pytest

from fencepost.core.commands import CancelOrder
from fencepost.core.records.attempt import VerificationReceipt
from fencepost.core.records.plan import Acceptance
from fencepost.ports.executor import Ended, LogFacts
from fencepost.services import finish, verifications
from fencepost.services.finish import Finisher
from fencepost.services.means import estimated_now_us
from fencepost.services.upkeep import Upkeep
from fencepost.services.verifications import LOST_MAX, Begun, Runs, Verifications
from tests.services.world import World, draft

SECOND = 1_000_000


def verified(world: World, verify: str) -> str:
    accept = Acceptance(verify=("sh", "-c", f"echo v >> '{world.log}'; {verify}"))
    return world.submit(draft("a", *world.say("a"), accept=accept, ceilings={"attempts": 1}))


def cut_off(duration_us: int) -> Ended:
    none = LogFacts(bytes_total=0, head_bytes=0, tail_bytes=0, gap_bytes=0)
    return Ended(
        reason="lease_lost",
        exit_code=None,
        signal=9,
        duration_us=duration_us,
        tree_empty=True,
        stdout=none,
        stderr=none,
        message="",
    )


def verdict(world: World, plan: str) -> VerificationReceipt:
    [attempt] = world.attempts(plan, "a")
    with world.app.kernel.reader.look() as look:
        return look.body(attempt.verification_seq, VerificationReceipt)


def test_case_08_a_verifier_that_takes_its_worker_with_it_is_begun_a_few_times_and_fails_its_order(
    world: World,
) -> None:
    pid = world.folder / "pid"
    plan = verified(world, f"while [ ! -s '{pid}' ]; do sleep 0.05; done; kill -9 $(cat '{pid}'); sleep 60")
    for _ in range(LOST_MAX):
        other = world.other_worker(jobs=1)
        pid.write_text(str(other.pid))
        assert other.wait(60) == -signal.SIGKILL
        pid.write_text("")
        world.until(lambda: not world.processes(), 10)
    assert world.order(plan, "a").state == "result_pending"
    world.worker(jobs=1)
    world.until_ended(plan, 20)
    assert world.ran() == ["a", *["v"] * LOST_MAX], "nothing is begun once the runs are spent"
    order = world.order(plan, "a")
    assert (order.state, order.reason) == ("failed", "verifier_error")
    receipt = verdict(world, plan)
    assert receipt.outcome == "error"
    assert receipt.message == f"it was begun {LOST_MAX} times, and each time its worker was gone before it had spoken"
    assert receipt.duration_us > 0, "the keepers outlive their worker, and tell what its verifiers took"
    charged = world.plan(plan).account.charged
    assert charged["time_us"] == world.facts(plan, "a").duration_us + receipt.duration_us
    assert charged["attempts"] == 1
    world.check()


def test_w18_what_a_run_took_that_its_worker_did_not_outlive_is_charged_with_the_verdict(world: World) -> None:
    plan = verified(world, f"test -e '{world.folder}/go' || sleep 60")
    other = world.other_worker(jobs=1)
    world.until_ran("v")
    time.sleep(1)
    other.kill()
    other.wait()
    world.until(lambda: not world.processes(), 10)
    (world.folder / "go").touch()
    world.worker(jobs=1)
    world.until_ended(plan, 20)
    receipt = verdict(world, plan)
    assert receipt.outcome == "passed" and receipt.duration_us >= 1_000_000
    world.check()


def test_w18_a_verifier_that_a_drain_stops_is_paid_for_and_counts_as_no_loss(world: World) -> None:
    plan = verified(world, f"test -e '{world.folder}/go' || sleep 60")
    for _ in range(2):
        before = world.ran().count("v")
        worker = world.worker(jobs=1)
        world.until(lambda before=before: world.ran().count("v") > before)  # type: ignore[misc]  # bound at once
        time.sleep(0.5)
        worker.stop()
    [attempt] = world.attempts(plan, "a")
    runs = Verifications(world.app.means()).read(attempt)
    assert (runs.lost, runs.stopped) == (0, 2) and runs.used_us >= 1_000_000
    (world.folder / "go").touch()
    world.worker(jobs=1)
    world.until_ended(plan, 20)
    assert verdict(world, plan).duration_us >= runs.used_us
    world.check()


def test_w18_a_verifier_whose_order_is_cancelled_is_paid_for(world: World) -> None:
    plan = verified(world, "sleep 60")
    world.worker(jobs=1)
    world.until_ran("v")
    time.sleep(1)
    world.write("human", CancelOrder(order=world.order(plan, "a").order)).required()
    world.until_ended(plan, 20)
    world.until(lambda: world.plan(plan).account.charged.get("time_us", 0) >= 1_000_000, 20)
    world.check()


def test_w18_what_a_drain_stopped_is_paid_for_where_the_order_is_cancelled_before_the_next_run(world: World) -> None:
    plan = verified(world, "sleep 60")
    worker = world.worker(jobs=1)
    world.until_ran("v")
    time.sleep(1)
    worker.stop()
    [attempt] = world.attempts(plan, "a")
    world.write("human", CancelOrder(order=world.order(plan, "a").order)).required()
    upkeep = Upkeep(world.app.means())
    upkeep.sweep()
    charged = world.plan(plan).account.charged["time_us"]
    assert charged == world.facts(plan, "a").duration_us + Verifications(world.app.means()).read(attempt).used_us
    assert charged >= SECOND
    upkeep.sweep()
    assert world.plan(plan).account.charged["time_us"] == charged, "once"
    world.check()


def test_a_verifier_that_has_just_begun_is_left_alone_however_old_its_result_is(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """How long a worker stands still is counted from when the verifier was begun, not from the report."""
    plan = verified(world, f"for _ in 1 2 3 4 5 6 7 8 9 10 11 12; do [ -e '{world.folder}/go' ] || sleep 0.25; done")
    first = world.worker(jobs=1)
    world.until_ran("v")
    first.stop()
    world.worker(jobs=1)
    world.until(lambda: world.ran() == ["a", "v", "v"])
    order = world.order(plan, "a")
    assert order.attempt is not None
    means = world.app.means()
    later_us = order.terms.attempt_time_us + means.kernel.limits.lease_us + SECOND
    monkeypatch.setattr(finish, "estimated_now_us", lambda clock, reading: estimated_now_us(clock, reading) + later_us)
    other = Finisher(means, "worker_" + "e" * 32)
    assert other.orphans() == [order.attempt]
    other.adopt(order.attempt)
    (world.folder / "go").touch()
    world.until_ended(plan, 20)
    assert (world.order(plan, "a").state, world.ran()) == ("applied", ["a", "v", "v"])
    world.check()


def test_a_run_that_another_has_counted_is_not_counted_again_by_its_own_worker(world: World) -> None:
    """A worker that stood still and wakes leaves the late run alone, whose time its own folder tells."""
    plan = verified(world, f"test -e '{world.folder}/go' || sleep 60")
    worker = world.worker(jobs=1)
    world.until_ran("v")
    worker.stop()
    [attempt] = world.attempts(plan, "a")
    kept = Verifications(world.app.means())
    slept = kept.begin(attempt, Runs(), 50, late=False)
    taken = kept.take(attempt)
    assert taken.lost == 1 and kept.begun(attempt.attempt) is None
    late = kept.begin(attempt, taken, 70, late=True)
    kept.end(attempt, slept, cut_off(9), drained=False)
    assert kept.begun(attempt.attempt) == late
    time.sleep(0.01)
    assert kept.read(attempt) == Runs(lost=2, used_us=taken.used_us + 70), "not what the first one's folder says"
    kept.end(attempt, late, cut_off(9), drained=False)
    assert kept.read(attempt) == Runs(lost=2, used_us=taken.used_us + 9)


def test_what_is_kept_of_runs_is_read_whoever_wrote_it(world: World) -> None:
    """Damaged words, another boot, and a run that nobody saw end."""
    plan = verified(world, "true")
    worker = world.worker(jobs=1)
    world.until_ended(plan, 20)
    worker.stop()
    [attempt] = world.attempts(plan, "a")
    world.app.workspaces.discard(attempt.attempt)  # what the supervisor of the last run said goes with it
    kept = Verifications(world.app.means())
    spaces = world.app.workspaces
    spaces.keep_note(attempt.attempt, b"{")
    assert kept.read(attempt) == Runs()
    reading = world.app.kernel.clock.read()
    kept._keep(attempt, Runs(lost=1, used_us=5, begun=Begun(boot_id="another", tick_us=0, limit_us=70)))
    assert kept.read(attempt) == Runs(lost=2, used_us=75)
    begun = Begun(boot_id=reading.boot_id, tick_us=reading.tick_us - 50, limit_us=40)
    kept._keep(attempt, Runs(begun=begun))
    assert kept.read(attempt) == Runs(lost=1, used_us=40)
    assert not Runs(stopped=verifications.STOPPED_MAX - 1).spent
    assert "was stopped" in Runs(stopped=verifications.STOPPED_MAX).spent
