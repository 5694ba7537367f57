"""What stands in the way of a hold says where, in which dimension, how much is needed and how much is left (W18)."""

from __future__ import annotations

from fencepost.core import commands as c
from fencepost.core.reasons import Refusal
from tests.support.world import SECOND, World, draft

USD, EUR = "money_micros:USD", "money_micros:EUR"


def refusal_of(world: World, task: str) -> Refusal:
    """Why this order cannot be reserved now."""
    order = world.order(task)
    decided = world.do(c.Reserve(order=order.order, expected=order.version, worker=world.worker()))
    assert decided.refusal is not None
    return decided.refusal


def test_a_currency_that_is_not_budgeted_names_account_currency_and_what_is_needed() -> None:
    world = World()
    world.submit(draft("a", per_attempt={USD: 7}))
    world.ok(c.SetBudget(account="scope", ceilings={EUR: 5}))
    refusal = refusal_of(world, "a")
    assert refusal.code == "currency_not_budgeted"
    assert refusal.detail == {"account": "scope", "currency": "USD", "dimension": USD, "needed": "7", "left": "0"}
    order = world.order("a")
    again = world.do(c.Reexamine(order=order.order, expected=order.version)).refusal
    assert again is not None and again.detail == refusal.detail
    assert refusal.message == "USD is not budgeted in scope."


def test_a_budget_that_others_hold_names_account_dimensions_needed_and_left() -> None:
    world = World()
    hold = {"calls": 4, "tokens_input": 5}
    plan = world.submit(
        draft("holder", per_attempt=hold), draft("a", per_attempt=hold), ceilings={"calls": 6, "tokens_input": 9}
    )
    world.reserve("holder")
    refusal = refusal_of(world, "a")
    assert refusal.code == "budget_held"
    assert refusal.detail == {"account": plan, "dimension": "calls, tokens_input", "needed": "4, 5", "left": "2, 4"}


def test_a_ceiling_below_what_is_charged_leaves_less_than_nothing() -> None:
    world = World()
    plan = world.submit(draft("first"), draft("a", per_attempt={"calls": 2}), ceilings={"time_us": 60 * SECOND})
    world.finish("first", duration_us=6 * SECOND)
    world.ok(c.SetBudget(account=plan, ceilings={"time_us": 5 * SECOND}))
    refusal = refusal_of(world, "a")
    assert refusal.code == "budget_exhausted"
    needed = world.order("a").terms.hold_least["time_us"]
    assert refusal.detail == {
        "account": plan,
        "dimension": "time_us",
        "needed": str(needed),
        "left": str(-1 * SECOND),
    }
