"""Ceilings that are set after submission: other currencies and other dimensions (W18)."""

from __future__ import annotations

from fencepost.core import commands as c
from fencepost.core.amounts import over
from fencepost.core.reasons import EXIT_PERSON, WAITS_AND_ENDS
from fencepost.core.views import only_a_person_can_move
from tests.support.world import SECOND, World, draft, used

USD, EUR = "money_micros:USD", "money_micros:EUR"


def paid(**plan: int) -> World:
    world = World()
    world.submit(draft("a", ceilings={"attempts": 2, USD: 10}), **plan)
    world.worker()
    return world


def test_an_order_whose_currency_nobody_budgets_any_more_waits_for_a_person() -> None:
    world = paid()
    world.ok(c.SetBudget(account="scope", ceilings={EUR: 5}))
    world.do(c.ReserveNext(worker=world.worker(), count=1))
    order = world.order("a")
    assert (order.state, order.reason) == ("blocked_budget", "currency_not_budgeted")
    assert WAITS_AND_ENDS[order.reason].exit_code == EXIT_PERSON
    assert only_a_person_can_move([order], world.clock, world.get)
    assert world.refused(c.Reexamine(order=order.order, expected=order.version)) == "currency_not_budgeted"
    assert world.order("a").version == order.version, "the same is not said twice"
    world.ok(c.SetBudget(account="scope", ceilings={EUR: 5, USD: 50}))
    assert not only_a_person_can_move([order], world.clock, world.get), "it is examined again by itself"
    world.ok(c.SetBudget(account="scope", ceilings={EUR: 5, USD: 50, "time_us": 1}))
    assert not only_a_person_can_move([order], world.clock, world.get), "it ends as exhausted when it is"
    world.ok(c.SetBudget(account="scope", ceilings={EUR: 5, USD: 50}))
    world.ok(c.Reexamine(order=order.order, expected=order.version))
    assert world.finish("a").state == "applied"
    world.check()


def test_an_order_that_is_blocked_says_what_blocks_it_now() -> None:
    world = World()
    world.submit(
        draft("a", ceilings={"attempts": 2, USD: 10}), draft("b"), ceilings={"time_us": 40 * SECOND, "attempts": 4}
    )
    world.reserve("b")
    order = world.order("a")
    world.do(c.Reserve(order=order.order, expected=order.version, worker=world.worker()))
    assert world.order("a").reason == "budget_held"
    world.ok(c.SetBudget(account="scope", ceilings={EUR: 5}))
    order = world.order("a")
    assert world.ok(c.Reexamine(order=order.order, expected=order.version))["state"] == "blocked_budget"
    assert world.order("a").reason == "currency_not_budgeted"
    world.ok(c.SetBudget(account="scope", ceilings={}))
    order = world.order("a")
    world.ok(c.Reexamine(order=order.order, expected=order.version))
    assert world.order("a").reason == "budget_held"
    world.check()


def test_a_dimension_that_a_plan_limits_later_is_held_by_what_starts_from_then_on() -> None:
    world = World()
    plan = world.submit(draft("a"), draft("b"), draft("c"))
    running = world.activate("a")
    world.ok(c.SetBudget(account=plan, ceilings={"calls": 5}))
    assert "calls" not in world.live.values[running.hold].held
    assert world.live.values[world.reserve("b").hold].held["calls"] == 2, "a third, rounded up"
    assert world.live.values[plan].account.held["calls"] == 2
    world.ok(c.SetBudget(account=plan, ceilings={"calls": 2}))
    order = world.order("c")
    assert world.refused(c.Reserve(order=order.order, expected=order.version, worker=world.worker())) == "budget_held"
    world.check()


def test_a_dimension_that_a_plan_limits_to_nothing_is_held_as_nothing() -> None:
    world = World()
    plan = world.submit(draft("a"))
    world.ok(c.SetBudget(account=plan, ceilings={"calls": 0}))
    assert world.live.values[world.reserve("a").hold].held["calls"] == 0, "a hold of no call, not no hold"


def test_a_dimension_that_is_used_up_when_it_is_limited_ends_what_comes_next() -> None:
    world = World()
    plan = world.submit(draft("a"), draft("b"))
    attempt = world.activate("a")
    world.ok(world.result(attempt, usage=(used(attempt, receipt="r", provider="x", calls=4),)))
    world.ok(c.ApplyResult(attempt=attempt.attempt))
    world.ok(c.SetBudget(account=plan, ceilings={"calls": 4}))
    world.do(c.ReserveNext(worker=world.worker(), count=1))
    assert world.order("b").state == "budget_exhausted"
    world.check()


def test_an_order_takes_its_own_later_ceiling_by_its_own_attempts() -> None:
    world = World()
    world.submit(draft("a", attempts=3))
    order = world.order("a")
    world.ok(c.SetBudget(account=order.order, ceilings={"attempts": 3, "calls": 7}))
    assert world.live.values[world.reserve("a").hold].held["calls"] == 3


def test_an_order_that_names_its_currency_holds_none_that_its_plan_names_later() -> None:
    world = World()
    plan = world.submit(draft("a", ceilings={"attempts": 1, USD: 10}))
    world.ok(c.SetBudget(account=plan, ceilings={USD: 50, EUR: 50}))
    assert EUR not in world.live.values[world.reserve("a").hold].held


def test_w18_money_that_a_level_refuses_is_booked_and_lets_nothing_more_start_until_a_person_budgets_it() -> None:
    world = World()
    plan = world.submit(
        draft("a", ceilings={"attempts": 3}, retry=True), draft("b"), draft("c"), ceilings={USD: 10, "attempts": 9}
    )
    running, reserved = world.activate("a"), world.reserve("b")
    told = world.ok(world.charge(running, "r1", **{EUR: 40, USD: 1, "calls": 2}))
    assert told["over"] == {EUR: 40, "calls": 2}
    assert told["refused"] == [EUR], "calls are limited by nobody"
    assert world.ok(world.charge(running, "r1", **{EUR: 40, USD: 1, "calls": 2}))["refused"] == [], "it is booked once"
    account = world.live.values[plan].account
    assert (account.charged[EUR], over(account)) == (40, {EUR: 40})
    assert world.refused(world.activation(reserved)) == "currency_not_budgeted", "what is reserved does not start"
    world.ok(c.ReleaseReservation(attempt=reserved.attempt, fence=reserved.fence))
    for task in ("b", "c"):
        order = world.order(task)
        reserve = c.Reserve(order=order.order, expected=order.version, worker=world.worker())
        refusal = world.do(reserve).refusal
        assert refusal is not None
        assert refusal.detail == {
            "account": plan,
            "dimension": EUR,
            "needed": "0",
            "left": "-40",
            "currency": "EUR",
        }
        assert (world.order(task).state, world.order(task).reason) == ("blocked_budget", "currency_not_budgeted")
    world.ok(world.result(running, usage=(used(running),), outcome="failed", failure="executor"))
    world.ok(c.ApplyResult(attempt=running.attempt))
    assert world.order("a").state == "retry_wait", "the order stays, since a person may budget what was charged"
    pending = [world.order(task) for task in ("b", "c")]
    assert only_a_person_can_move(pending, world.clock, world.get)
    world.ok(c.SetBudget(account=plan, ceilings={USD: 10, EUR: 100, "attempts": 9}))
    assert not only_a_person_can_move(pending, world.clock, world.get)
    for order in pending:
        world.ok(c.Reexamine(order=order.order, expected=order.version))
    assert [world.finish(task).state for task in ("b", "c")] == ["applied", "applied"]
    world.check()


def test_w18_a_reservation_in_a_currency_that_a_level_has_come_to_refuse_does_not_start() -> None:
    world = paid()
    reserved = world.reserve("a")
    world.ok(c.SetBudget(account="scope", ceilings={EUR: 5}))
    assert world.refused(world.activation(reserved)) == "currency_not_budgeted"
    world.ok(c.SetBudget(account="scope", ceilings={EUR: 5, USD: 50}))
    world.ok(world.activation(reserved))
    world.check()


def test_w18_money_that_no_level_budgets_is_counted_and_holds_nothing_up() -> None:
    world = World()
    plan = world.submit(draft("a", ceilings={"attempts": 2, "calls": 9}), draft("b"), ceilings={"calls": 9})
    running = world.activate("a")
    assert world.ok(world.charge(running, "r1", **{EUR: 40}))["refused"] == []
    assert over(world.live.values[plan].account) == {}
    assert world.finish("b").state == "applied"
    world.check()


def test_w18_a_charge_of_unknown_amount_in_a_refused_currency_lets_nothing_more_start_either() -> None:
    world = World()
    plan = world.submit(draft("a"), draft("b"), ceilings={USD: 10, "attempts": 9})
    world.ok(world.charge(world.activate("a"), "r1", EUR))
    assert world.live.values[plan].account.charged.get(EUR, 0) == 0
    order = world.order("b")
    reserve = c.Reserve(order=order.order, expected=order.version, worker=world.worker())
    assert world.refused(reserve) == "currency_not_budgeted"
    world.check()
