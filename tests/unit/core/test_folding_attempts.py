"""Folding of attempts and holds: what only certain records may say, and what each leaves behind (W3, W17, W18)."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from fencepost.core import commands as c
from fencepost.core.evolve import Fact, evolve
from fencepost.core.machines import CorruptHistory
from fencepost.core.records.attempt import AttemptMoved, AttemptReservation, VerificationReceipt
from fencepost.core.records.budget import HoldSettled
from fencepost.core.state import GroupState
from tests.support.states import TASK, world_in
from tests.support.world import SECOND, World, draft


def fold(world: World, subject: str, body: Any) -> Any:
    known = world.live.values[subject]
    evolve(world.live, Fact(len(world.facts) + 1, subject, known.version + 1, body))
    return world.live.values[subject]


def problem(world: World, subject: str, body: Any) -> str:
    with pytest.raises(CorruptHistory) as caught:
        fold(world, subject, body)
    return str(caught.value)


def test_w18_a_cancelled_attempt_frees_all_but_its_time() -> None:
    world = World()
    plan = world.submit(draft("a", per_attempt={"calls": 3}))
    world.activate("a")
    world.ok(c.CancelOrder(order=world.order("a").order))
    hold = world.hold_of(world.order("a"))
    assert (hold.state, hold.held) == ("unsettled", {"time_us": 30 * SECOND})
    for subject in ("scope", plan, world.order("a").order):
        assert world.live.values[subject].account.held == {"time_us": 30 * SECOND}
    world.check()


@pytest.mark.parametrize(
    ("state", "target", "words"),
    [
        ("reserved", "leased", "becomes leased by another record"),
        ("result_pending", "accepted", "becomes accepted by another record"),
        ("active/leased", "result_reported", "becomes result_reported by another record"),
        ("active/running", "result_reported", "becomes result_reported by another record"),
        ("active/running", "lease_expired", "is not proved"),
        ("reserved", "expired_no_effect", "is not proved"),
    ],
)
def test_w3_what_has_a_record_or_a_proof_of_its_own_is_moved_by_no_other(state: str, target: str, words: str) -> None:
    world = world_in(state)
    attempt = world.attempt_of(world.order(TASK))
    body = AttemptMoved(order=attempt.order, origin=attempt.state, target=target, reason="lease_expired")
    assert words in problem(world, attempt.attempt, body)
    gone = replace(body, reason="holder_gone")
    if target == "lease_expired":
        assert "is not proved gone" in problem(world, attempt.attempt, gone)


def test_w3_a_lapsed_attempt_may_still_report_by_a_move() -> None:
    """Only a live one reports by a result alone."""
    world = world_in("active/running")
    attempt = replace(world.attempt_of(world.order(TASK)), state="lease_expired")
    world.live.values[attempt.attempt] = attempt
    body = AttemptMoved(
        order=attempt.order, origin="lease_expired", target="result_reported", reason="waiting_for_reduction"
    )
    assert fold(world, attempt.attempt, body).state == "result_reported"


@pytest.mark.parametrize(
    ("of_attempt", "of_order", "wrong"),
    [
        ({}, {}, False),
        ({"state": "accepted"}, {}, True),
        ({"verification_seq": 9}, {}, True),
        ({"result": "sha256:" + "9" * 64}, {}, True),
        ({}, {"state": "conflict"}, True),
        ({}, {"attempt": "attempt_x"}, True),
    ],
)
def test_w7_a_verification_is_of_the_result_that_waits_for_it(
    of_attempt: dict[str, Any], of_order: dict[str, Any], wrong: bool
) -> None:
    world = world_in("result_pending/unverified")
    order = world.order(TASK)
    attempt = world.attempt_of(order)
    body = VerificationReceipt(
        order=order.order, attempt=attempt.attempt, result=attempt.result or "", outcome="passed", duration_us=1
    )
    world.live.values[attempt.attempt] = replace(attempt, **of_attempt)
    world.live.values[order.order] = replace(order, **of_order)
    if wrong:
        assert "is for another result" in problem(world, attempt.attempt, body)
    else:
        assert fold(world, attempt.attempt, body).verification == "passed"


def test_w18_a_hold_estimates_no_more_than_it_charges_and_credits_no_more_than_was_charged() -> None:
    world = world_in("active/running")
    hold = world.hold_of(world.order(TASK))
    body = HoldSettled(charged={}, basis="stopped", estimated_us=1)
    assert "estimates more than it charges" in problem(world, hold.hold, body)
    credited = replace(body, estimated_us=0, credited={"attempts": 2})
    assert f"{hold.hold} credits what nobody gives" in problem(world, hold.hold, credited)
    assert fold(world, hold.hold, replace(body, estimated_us=1, charged={"time_us": 1})).state == "settled"


def test_w15_nothing_is_reserved_whose_needs_are_open() -> None:
    world = World()
    world.submit(draft("a"))
    attempt = world.reserve("a")
    body = world.body(attempt.reservation_seq)
    assert isinstance(body, AttemptReservation)
    before = World()
    before.submit(draft("a"))
    before.worker()
    order = before.order("a")
    before.live.values[order.order] = replace(order, groups=(GroupState("required", 1),))
    with pytest.raises(CorruptHistory, match="say otherwise"):
        evolve(before.live, Fact(attempt.reservation_seq, attempt.attempt, 1, body))
