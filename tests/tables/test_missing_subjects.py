"""Every command about something that is not there, and under a fence that is not its own: which field is told (W17)."""

from __future__ import annotations

from typing import Any

import pytest

from fencepost.core import commands as c
from tests.support.states import TASK, world_in
from tests.support.world import DIGEST, World

ABSENT = "nobody"

MISSING: list[tuple[str, Any]] = [
    ("/worker", c.ReserveNext(worker=ABSENT, count=1)),
    ("/worker", c.Reserve(order=ABSENT, expected=1, worker=ABSENT)),
    ("/attempt", c.ReleaseReservation(attempt=ABSENT, fence=1)),
    (
        "/attempt",
        c.Activate(
            attempt=ABSENT,
            expected=1,
            fence=1,
            worker=ABSENT,
            executor="command",
            executor_version=1,
            environment=DIGEST,
            input_set=DIGEST,
            mode="local",
        ),
    ),
    ("/worker", c.RenewLeases(worker=ABSENT, attempts=())),
    (
        "/attempt",
        c.AppendEvent(attempt=ABSENT, fence=1, spec=DIGEST, input_set=DIGEST, family="heartbeat_observed"),
    ),
    ("/attempt", c.ReportStopped(reason="drained", attempt=ABSENT, fence=1, duration_us=1)),
    ("/attempt", c.RecordVerification(attempt=ABSENT, result=DIGEST, outcome="passed", duration_us=1)),
    ("/attempt", c.ApplyResult(attempt=ABSENT)),
    ("/attempt", c.ExpireAttempt(attempt=ABSENT, expected=1)),
    (
        "/attempt",
        c.ProveHolderGone(attempt=ABSENT, fence=1, host="h", boot_id="b", basis="locks_free", evidence=""),
    ),
    ("/hold", c.SettleHold(hold=ABSENT, expected=1)),
    ("/order", c.EndBackoff(order=ABSENT, expected=1)),
    ("/order", c.Reexamine(order=ABSENT, expected=1)),
    ("/order", c.TellDependents(order=ABSENT)),
    ("/plan", c.AdvanceCancel(plan=ABSENT)),
    ("/plan", c.EnforceDeadline(plan=ABSENT, expected=1)),
    ("/plan", c.CancelPlan(plan=ABSENT)),
    ("/order", c.CancelOrder(order=ABSENT)),
    ("/order", c.RetryOrder(order=ABSENT)),
    ("/account", c.SetBudget(account=ABSENT, ceilings={"attempts": 1})),
]


@pytest.mark.parametrize(("field", "command"), MISSING, ids=[type(command).__name__ for _, command in MISSING])
def test_a_subject_that_is_not_there_is_named_with_its_field(field: str, command: Any) -> None:
    refusal = World().decide(command).refusal
    assert refusal is not None
    assert (refusal.code, refusal.field, refusal.detail) == ("not_found", field, {"subject": ABSENT})


def test_so_are_the_order_of_a_reservation_and_the_attempt_of_a_result() -> None:
    world = world_in("result_pending")
    attempt = world.attempt_of(world.order(TASK))
    reserve = world.decide(c.Reserve(order=ABSENT, expected=1, worker=world.worker())).refusal
    assert reserve is not None
    assert (reserve.code, reserve.field, reserve.detail) == ("not_found", "/order", {"subject": ABSENT})
    report = c.ReportResult(attempt=ABSENT, fence=1, spec=DIGEST, facts=world.facts_of(attempt))
    refusal = world.decide(report).refusal
    assert refusal is not None
    assert (refusal.code, refusal.field, refusal.detail) == ("not_found", "/attempt", {"subject": ABSENT})


@pytest.mark.parametrize("kind", ["release", "activate", "event", "report", "stopped", "gone"])
@pytest.mark.parametrize("fence", [0, 2])
def test_w17_a_fence_that_is_not_its_own_is_stale_wherever_it_is_shown(kind: str, fence: int) -> None:
    """A fence before the attempt's own and one behind it: neither changes anything."""
    world = world_in("reserved" if kind in ("release", "activate") else "active/running")
    attempt = world.attempt_of(world.order(TASK))
    assert attempt.fence == 1
    made: dict[str, Any] = {
        "release": c.ReleaseReservation(attempt=attempt.attempt, fence=fence),
        "activate": world.activation(attempt, fence=fence) if kind == "activate" else None,
        "event": world.event(attempt, fence=fence),
        "stopped": c.ReportStopped(reason="drained", attempt=attempt.attempt, fence=fence, duration_us=1),
        "report": c.ReportResult(
            attempt=attempt.attempt, fence=fence, spec=world.order(TASK).spec, facts=world.facts_of(attempt)
        ),
        "gone": c.ProveHolderGone(
            attempt=attempt.attempt,
            fence=fence,
            host=attempt.host,
            boot_id=attempt.boot_id,
            basis="locks_free",
            evidence="",
        ),
    }
    decided = world.decide(made[kind])
    refusal = decided.refusal
    assert refusal is not None
    assert (refusal.code, refusal.field, refusal.detail) == ("stale_fence", "/fence", {"subject": attempt.attempt})
    assert attempt.attempt not in decided.values
