"""Budgets that nothing could run under are refused, and holds are what the arithmetic says."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.planfile.plans import accepted, check, order, places, plan

IMPOSSIBLE: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("/work/0/budget/attempts", {"attempts": 2}, {"budget": {"attempts": 3}}),
    ("/work/0/budget/time", {"time": "1m"}, {"budget": {"time": "2m"}}),
    ("/work/0/budget/tokens/input", {"tokens": {"input": 9}}, {"budget": {"tokens": {"input": 10}}}),
    ("/work/0/budget/tokens/output", {"tokens": {"output": 9}}, {"budget": {"tokens": {"output": 10}}}),
    ("/work/0/budget/calls", {"calls": 4}, {"budget": {"calls": 5}}),
    ("/work/0/budget/money/USD", {"money": {"USD": "1"}}, {"budget": {"money": {"USD": "1.000001"}}}),
    ("/work/0/budget/money/EUR", {"money": {"USD": "1"}}, {"budget": {"money": {"EUR": "1"}}}),
    ("/work/0/attempt_time", {"time": "1m"}, {"attempt_time": "2m"}),
    ("/work/0/attempt_time", {"calls": 1}, {"attempt_time": "2m", "budget": {"time": "1m"}}),
    ("/work/0/budget/per_attempt/calls", {"calls": 4}, {"budget": {"per_attempt": {"calls": 5}}}),
    (
        "/work/0/budget/per_attempt/calls",
        {"time": "1h"},
        {"budget": {"calls": 4, "per_attempt": {"calls": 5}}},
    ),
    (
        "/work/0/budget/per_attempt/money/EUR",
        {"money": {"USD": "1"}},
        {"budget": {"per_attempt": {"money": {"EUR": "1"}}}},
    ),
    (
        "/work/0/budget/per_attempt/money/EUR",
        {"money": {"USD": "1", "EUR": "1"}},
        {"budget": {"money": {"USD": "1"}, "per_attempt": {"money": {"EUR": "1"}}}},
    ),
]


@pytest.mark.parametrize(("at", "plan_budget", "keys"), IMPOSSIBLE)
def test_w15_an_impossible_budget_is_refused(at: str, plan_budget: dict[str, Any], keys: dict[str, Any]) -> None:
    assert places(check(plan(order(**keys), budget=plan_budget))) == [("impossible_budget", at)]


def test_ceilings_that_just_fit_are_accepted() -> None:
    keys = {
        "attempt_time": "1m",
        "budget": {"attempts": 2, "time": "1m", "calls": 5, "per_attempt": {"calls": 5}},
    }
    assert accepted(plan(order(**keys), budget={"attempts": 2, "time": "1m", "calls": 5}))


def test_orders_that_may_fail_do_not_count_for_the_plans_attempts() -> None:
    accepted(plan(order("a"), order("b", may_fail=True), budget={"attempts": 1}))
    (problem,) = check(plan(order("a"), order("b"), order("c"), budget={"attempts": 2})).problems
    assert problem.next == "write at least 3"


def test_case_09_a_cap_of_one_is_one_and_less_is_refused() -> None:
    assert accepted(plan(order(budget={"attempts": 1}))).work[0].budget["attempts"] == 1
    for cap in (0, -1, 2**31):
        assert places(check(plan(order(budget={"attempts": cap})))) == [("out_of_range", "/work/0/budget/attempts")]


def hold(plan_budget: dict[str, Any], *orders: dict[str, Any]) -> dict[str, int]:
    return accepted(plan(*orders, budget=plan_budget)).work[0].hold()


def test_an_attempt_holds_its_share_of_the_orders_ceiling_rounded_up() -> None:
    held = hold({"calls": 100}, order(budget={"attempts": 3, "calls": 10}))
    assert held == {"attempts": 1, "time_us": 600_000_000, "calls": 4}


def test_without_an_own_ceiling_it_holds_the_plans_over_the_plans_attempts() -> None:
    assert hold({"attempts": 7, "calls": 50}, order())["calls"] == 8


def test_without_attempts_of_the_plan_those_of_all_orders_divide_its_ceiling() -> None:
    assert hold({"calls": 50}, order("a"), order("b", budget={"attempts": 4}))["calls"] == 8


def test_a_dimension_that_nobody_limits_is_not_held() -> None:
    assert hold({"attempts": 7}, order()) == {"attempts": 1, "time_us": 600_000_000}


def test_what_is_written_wins_over_every_share() -> None:
    own = {"calls": 10, "per_attempt": {"calls": 9, "tokens": {"input": 5}}}
    assert hold({"calls": 50}, order(budget=own)) == {
        "attempts": 1,
        "time_us": 600_000_000,
        "calls": 9,
        "tokens_input": 5,
    }


def test_an_order_that_names_its_currencies_holds_in_no_other_one() -> None:
    both = {"attempts": 3, "money": {"USD": "1", "EUR": "1"}}
    assert hold(both, order(budget={"money": {"EUR": "0.50"}})) == {
        "attempts": 1,
        "time_us": 600_000_000,
        "money_micros:EUR": 166_667,
    }
    assert set(hold(both, order())) == {"attempts", "time_us", "money_micros:USD", "money_micros:EUR"}


def test_a_ceiling_of_zero_is_a_ceiling() -> None:
    assert hold({"attempts": 1, "calls": 0, "money": {"USD": "0"}}, order()) == {
        "attempts": 1,
        "time_us": 600_000_000,
        "calls": 0,
        "money_micros:USD": 0,
    }
