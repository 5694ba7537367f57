"""What the proof of an end is worth: holders that are gone, holds whose facts never came, budget that is gone (W10)."""

from __future__ import annotations

from fencepost.core import commands as c
from fencepost.core.records.budget import HoldSettled
from fencepost.core.records.common import Usage
from fencepost.core.records.plan import WorkOrderMoved
from tests.support.states import TASK, world_in
from tests.support.world import SECOND, World, draft


def settled(world: World) -> HoldSettled:
    return next(fact.body for fact in reversed(world.facts) if isinstance(fact.body, HoldSettled))


def test_w10_a_hold_whose_facts_never_came_is_charged_as_it_is_held() -> None:
    world = world_in("cancelled/live")
    world.advance(25 * SECOND)
    hold = world.hold_of(world.order(TASK))
    assert world.ok(c.SettleHold(hold=hold.hold, expected=hold.version)) == {"hold": hold.hold}
    assert settled(world) == HoldSettled(
        charged={"time_us": 30 * SECOND}, basis="proved_deadline", flagged=True, estimated_us=30 * SECOND
    )


def test_w10_a_cancelled_attempt_whose_holder_is_gone_is_charged_until_then() -> None:
    world = world_in("cancelled/live")
    attempt = world.attempt_of(world.order(TASK))
    world.advance(4 * SECOND)
    told = world.ok(
        c.ProveHolderGone(
            attempt=attempt.attempt,
            fence=attempt.fence,
            host=attempt.host,
            boot_id=attempt.boot_id,
            basis="locks_free",
            evidence="",
        )
    )
    assert told == {"order": attempt.order, "state": "cancelled"}
    assert settled(world) == HoldSettled(
        charged={"time_us": 4 * SECOND}, basis="holder_gone", receipts=(), estimated_us=4 * SECOND
    )


def test_w18_an_expiry_with_a_receipt_that_does_not_know_is_flagged() -> None:
    world = World()
    world.submit(draft("a", per_attempt={"calls": 3}))
    attempt = world.activate("a")
    world.advance(12 * SECOND)
    unsure = (Usage(receipt="1", provider="shop", amounts={"time_us": 2 * SECOND}, unknown=("calls",)),)
    world.do(world.result(attempt, usage=unsure))
    world.ok(world.expiry(attempt))
    assert settled(world) == HoldSettled(
        charged={"calls": 3, "time_us": 10 * SECOND},
        basis="expiry",
        receipts=("shop:1",),
        flagged=True,
        estimated_us=8 * SECOND,
    )


def test_w10_whoever_saw_another_version_is_told_of_which_subject() -> None:
    world = world_in("active/running")
    attempt = world.attempt_of(world.order(TASK))
    refusal = world.decide(c.ExpireAttempt(attempt=attempt.attempt, expected=99)).refusal
    assert refusal is not None and (refusal.code, refusal.field) == ("version_moved", "/expected")
    assert refusal.detail == {"subject": attempt.attempt, "found": str(attempt.version), "expected": "99"}


def test_w18_a_blocked_order_that_something_else_holds_up_now_says_so() -> None:
    world = world_in("blocked_budget")
    order = world.order(TASK)
    plan = order.plan or ""
    usd = "money_micros:USD"
    # A currency that the order has asked for since, and that its plan does not name beside its own.
    world.ok(c.SetBudget(account=order.order, ceilings={"attempts": 3, "time_us": 60 * SECOND, usd: 5}))
    world.ok(c.SetBudget(account=plan, ceilings={"time_us": 600 * SECOND, "money_micros:EUR": 5}))
    order = world.order(TASK)
    told = world.ok(c.Reexamine(order=order.order, expected=order.version))
    assert told == {"order": order.order, "state": "blocked_budget"}
    assert world.order(TASK).reason == "currency_not_budgeted"
    moved = [fact.body for fact in world.facts if fact.subject == order.order and isinstance(fact.body, WorkOrderMoved)]
    assert [(one.target, one.reason, one.cause) for one in moved[-2:]] == [
        ("ready", "budget_freed", ""),
        ("blocked_budget", "currency_not_budgeted", plan),
    ]
