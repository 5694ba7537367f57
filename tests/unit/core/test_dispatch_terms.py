"""The terms of an activation and of what its holder says, at their exact bounds (W3, W4, C2, C8)."""

from __future__ import annotations

import hashlib
import json

import pytest
from msgspec.structs import replace

from fencepost.core import commands as c
from fencepost.core.decide.dispatch import input_set
from fencepost.core.limits import Limits
from tests.support.states import TASK, world_in
from tests.support.world import DIGEST, SECOND, World, artifact, draft


def test_w4_what_an_attempt_may_read_is_named_by_its_own_inputs_and_all_that_is_handed_to_it() -> None:
    assert input_set(DIGEST, ()) == DIGEST
    first, second = artifact("a"), replace(artifact("b", b"other"), mode=0o755)
    handed = [["a", first.digest, 0o644], ["b", second.digest, 0o755]]
    whole = json.dumps({"handed": handed, "inputs": DIGEST}, separators=(",", ":"), sort_keys=True)
    assert input_set(DIGEST, (first, second)) == "sha256:" + hashlib.sha256(whole.encode()).hexdigest()


def test_a_worker_has_a_name_of_its_own_that_was_never_used() -> None:
    world = World()
    name = world.worker(1)
    command = c.EnrolWorker(worker=name, host="h", boot_id="b", pid=1, executors=())
    refusal = world.decide(command).refusal
    assert refusal is not None and (refusal.code, refusal.field) == ("out_of_range", "/worker")
    assert refusal.detail == {"subject": name, "needed": "a name that was never used"}


@pytest.mark.parametrize("name", ["scope", "worker_x", "order_" + "1" * 32])
def test_a_workers_name_has_the_form_of_a_workers_id(name: str) -> None:
    command = c.EnrolWorker(worker=name, host="h", boot_id="b", pid=1, executors=())
    refusal = World().decide(command).refusal
    assert refusal is not None and (refusal.code, refusal.field) == ("out_of_range", "/worker")
    assert refusal.detail["subject"] == name and refusal.detail["needed"]


def test_w3_nothing_is_activated_while_the_clock_waits_for_a_person_or_once_the_plan_is_over() -> None:
    world = world_in("reserved")
    attempt = world.attempt_of(world.order(TASK))
    late = world.fork()
    world.tick_us += SECOND
    world.utc_us += 3_600 * SECOND
    world.observe()
    assert world.refused(world.activation(attempt)) == "clock_blocked"
    timed = World()
    timed.submit(draft("a"), deadline_us=SECOND)
    held = timed.reserve("a")
    timed.advance(2 * SECOND)
    assert timed.refused(timed.activation(held)) == "deadline_passed"
    assert late.refused(late.activation(attempt)) == ""


def test_c8_one_renewal_names_as_many_attempts_as_the_bound() -> None:
    world = world_in("active/running")
    attempt = world.attempt_of(world.order(TASK))
    held = c.Held(attempt=attempt.attempt, fence=attempt.fence)
    world.limits = replace(world.limits, renewal_attempts_max=2)
    assert world.decide(c.RenewLeases(worker=attempt.worker, attempts=(held, held))).refusal is None
    refusal = world.decide(c.RenewLeases(worker=attempt.worker, attempts=(held,) * 3)).refusal
    assert refusal is not None
    assert (refusal.code, refusal.field) == ("too_large", "/attempts")
    assert refusal.detail == {"subject": "attempts", "bound": "2"}


@pytest.mark.parametrize(("late_us", "code"), [(-1, ""), (0, "timed_out")])
def test_c2_a_lease_is_renewed_until_its_attempts_time_and_the_time_to_collect_are_over(
    late_us: int, code: str
) -> None:
    """From the very moment at which both are used up there is no further renewal."""
    world = World(replace(Limits(), collect_us=3 * SECOND))
    world.submit(draft("a", attempt_time_us=2 * SECOND))
    attempt = world.activate("a")
    world.advance(5 * SECOND + late_us)
    told = world.ok(world.renewal(attempt))
    assert told["renewed"] == ([] if code else [attempt.attempt])
    assert told["lost"] == ([{"attempt": attempt.attempt, "code": code}] if code else [])


def test_w17_a_late_event_is_told_nothing_but_that_it_is_late() -> None:
    world = world_in("cancelled/live")
    attempt = world.attempt_of(world.order(TASK))
    decided = world.do(world.event(attempt))
    assert decided.refusal is not None and decided.refusal.code == "rejected_stale"
    assert decided.result == {} and len(decided.facts) >= 1
