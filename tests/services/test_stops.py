"""Attempts that their own side ended: a lost keeper is no failure, what a stopped program printed is evidence."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from fencepost.core.commands import CancelOrder
from fencepost.core.records.attempt import AttemptStopped, AttemptYielded
from fencepost.core.state import AttemptState
from fencepost.ports.errors import StorageFull
from fencepost.services.results import HIDDEN
from tests.services.test_inside_logs import command, log_of
from tests.services.world import World, draft


def speaking(world: World, then: str) -> tuple[str, ...]:
    """A shell command that prints, notes its fence outside of every workspace, and goes on."""
    prints = "echo said by $FENCEPOST_FENCE; echo told with $FENCEPOST_TOKEN >&2"
    return ("sh", "-c", f"{prints}; echo $FENCEPOST_FENCE >> '{world.log}'; {then}")


def keeper_of(world: World) -> int:
    """The parent of the one program that runs."""
    program = next(pid for pid in world.processes() if b"sleep" in Path(f"/proc/{pid}/cmdline").read_bytes())
    parent = int(Path(f"/proc/{program}/stat").read_text().rpartition(")")[2].split()[1])
    while parent in world.processes():
        parent = int(Path(f"/proc/{parent}/stat").read_text().rpartition(")")[2].split()[1])
    return parent


def stop_of(world: World, attempt: AttemptState) -> AttemptStopped:
    with world.app.kernel.reader.look() as look:
        return look.body(attempt.stopped_seq, AttemptStopped)


def logs_without_its_folder(world: World, attempt: AttemptState) -> tuple[str, str]:
    shutil.rmtree(world.home / "work" / attempt.attempt)
    number = attempt.ordinal
    return log_of(world, number, "stdout"), log_of(world, number, "stderr")


def test_lifecycle_8_a_keeper_that_is_killed_costs_its_attempt_and_its_order_runs_again(world: World) -> None:
    plan = world.submit(draft("a", *speaking(world, "test $FENCEPOST_FENCE != 1 || sleep 60")))
    world.worker(jobs=1)
    world.until_ran("1")
    world.until(lambda: any(b"sleep" in Path(f"/proc/{pid}/cmdline").read_bytes() for pid in world.processes()), 5)
    os.kill(keeper_of(world), signal.SIGKILL)
    world.until_ended(plan)
    order = world.order(plan, "a")
    first, second = world.attempts(plan, "a")
    assert (order.state, order.failures, order.attempt) == ("applied", 0, second.attempt)
    assert (first.state, first.reason) == ("cancelled_no_effect", "keeper_lost")
    stop = stop_of(world, first)
    assert stop.reason == "keeper_lost" and "the keeper was lost" in stop.note and "carry" in stop.note
    charged = world.hold(first).charged
    assert charged["attempts"] == 1 and charged["time_us"] == stop.duration_us > 0
    spent = world.plan(plan).account.charged
    assert spent["attempts"] == 2
    assert spent["time_us"] == charged["time_us"] + world.hold(second).charged["time_us"]
    assert logs_without_its_folder(world, first) == ("said by 1\n", f"told with {HIDDEN}\n")
    world.check()


def test_lifecycle_8_a_program_that_kills_its_keeper_does_so_as_often_as_it_has_attempts(world: World) -> None:
    plan = world.submit(draft("a", *world.say("a", "kill -9 $PPID; sleep 60"), ceilings={"attempts": 2}))
    world.worker(jobs=1)
    world.until_ended(plan)
    order = world.order(plan, "a")
    assert (order.state, order.failures, world.ran()) == ("budget_exhausted", 0, ["a", "a"])
    assert [attempt.reason for attempt in world.attempts(plan, "a")] == ["keeper_lost", "keeper_lost"]
    assert world.plan(plan).account.charged["attempts"] == 2
    world.check()


def test_decision_10_a_lost_keeper_whose_tree_may_still_run_ends_its_order(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = world.submit(draft("a", *world.say("a", "kill -9 $PPID; sleep 60")))
    worker = world.worker(jobs=1)
    monkeypatch.setattr(worker._attempts, "_contained", lambda _, ended: replace(ended, tree_empty=False))
    world.until_ended(plan)
    order = world.order(plan, "a")
    assert (order.state, order.reason, world.ran()) == ("failed", "containment_lost", ["a"])
    world.check()


def test_w5_what_a_drained_program_printed_is_evidence(world: World) -> None:
    plan = world.submit(draft("a", *speaking(world, "sleep 60")))
    worker = world.worker(jobs=1)
    world.until(lambda: world.order(plan, "a").state == "active" and "1" in world.ran())
    worker.stop()
    (attempt,) = world.attempts(plan, "a")
    assert stop_of(world, attempt).reason == "drained"
    assert logs_without_its_folder(world, attempt) == ("said by 1\n", f"told with {HIDDEN}\n")
    world.check()


def test_w17_what_a_cancelled_program_printed_is_kept_with_the_late_word_of_its_end(world: World) -> None:
    plan = world.submit(draft("a", *speaking(world, "sleep 60")))
    world.worker(jobs=1)
    world.until(lambda: world.attempts(plan, "a") and world.attempts(plan, "a")[0].state == "running")
    world.until_ran("1")
    world.write("human", CancelOrder(order=world.order(plan, "a").order))
    world.until(lambda: world.attempts(plan, "a")[0].late, 10, "its end was never told")
    (attempt,) = world.attempts(plan, "a")
    assert [what for what, _, _ in attempt.late] == ["stop"]
    assert world.hold(attempt).state == "settled" and world.hold(attempt).charged["time_us"] > 0
    assert logs_without_its_folder(world, attempt) == ("said by 1\n", f"told with {HIDDEN}\n")
    world.check()


def test_a_stop_waits_for_no_disk(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was printed is a help; that the attempt costs nothing is a promise."""
    plan = world.submit(draft("a", *speaking(world, "sleep 60")))
    worker = world.worker(jobs=1)
    world.until(lambda: world.order(plan, "a").state == "active" and "1" in world.ran())

    def full(data: bytes, *, classification: str) -> None:
        raise StorageFull("there is no space left")

    monkeypatch.setattr(world.app.artifacts, "put_bytes", full)
    worker.stop()
    (attempt,) = world.attempts(plan, "a")
    stop = stop_of(world, attempt)
    assert (stop.reason, stop.stdout, stop.stderr) == ("drained", None, None)
    assert stop.note.splitlines() == [f"{name} was not kept: there is no space left" for name in ("stdout", "stderr")]
    assert world.plan(plan).account.charged.get("attempts", 0) == 0
    world.check()


def test_attempt_show_tells_of_a_stop_line_by_line(world: World) -> None:
    plan = world.submit(draft("a", *world.say("a", "kill -9 $PPID; sleep 60"), ceilings={"attempts": 1}))
    world.worker(jobs=1)
    world.until_ended(plan)
    lines = command(world, "attempt", "show", "a").splitlines()
    number = next(number for number, line in enumerate(lines) if line.startswith("stopped"))
    assert lines[number].split()[:3] == ["stopped", "keeper_lost,", "time"]
    assert lines[number + 1].strip() == "the keeper was lost"
    document = json.loads(command(world, "attempt", "show", "a", "--json"))
    assert document["evidence"]["stop"]["reason"] == "keeper_lost"
    assert document["records"]["stop"] is not None and document["records"]["yield"] is None


@pytest.mark.parametrize("how", ["yields", "drained"])
def test_what_a_full_disk_did_not_take_is_told_of_one_that_yields_or_is_stopped_too(world: World, how: str) -> None:
    """As of a result: how much was printed, though nothing of it is kept."""
    script = "import fencepost as fp, time; print('said', flush=True); attempt = fp.attempt(); attempt.checkpoint(1)"
    then = "attempt.wait(after='1h')" if how == "yields" else f"open('{world.log}', 'a').write('on'); time.sleep(60)"
    plan = world.submit(draft("a", sys.executable, "-c", f"{script}; {then}"))
    worker = world.app.worker(jobs=1)
    world.workers.append(worker)
    object.__setattr__(worker._means, "read_log", lambda path: (0, b""))
    worker.start()
    if how == "yields":
        world.until_state(plan, "a", "waiting")
    else:
        world.until(world.log.exists)
    worker.stop()
    [attempt] = world.attempts(plan, "a")
    with world.app.kernel.reader.look() as look:
        kind = AttemptYielded if how == "yields" else AttemptStopped
        body = look.body(attempt.yielded_seq or attempt.stopped_seq, kind)
    assert body.stdout is not None
    assert (body.stdout.bytes_total, body.stdout.bytes_kept) == (5, 0)
    world.check(settled=False)
