"""Arithmetic of budgets, dimension by dimension (W18)."""

from __future__ import annotations

import pytest

from fencepost.core.amounts import (
    available,
    exhausted,
    foreign_currency,
    is_dimension,
    minus,
    over,
    plus,
    refuses,
    shortfall,
)
from fencepost.core.state import Account

USD, EUR, GBP = "money_micros:USD", "money_micros:EUR", "money_micros:GBP"


def test_w18_sums_keep_what_only_one_side_names() -> None:
    assert plus({"calls": 1, "time_us": 2}, {"time_us": 3, "attempts": 4}) == {"calls": 1, "time_us": 5, "attempts": 4}
    left = {"calls": 1}
    plus(left, {"calls": 1})
    assert left == {"calls": 1}, "neither side is changed"


def test_w18_differences_have_no_zero_entries_and_none_below_zero() -> None:
    assert minus({"calls": 3, "time_us": 2}, {"calls": 1, "time_us": 2}) == {"calls": 2}
    assert minus({"calls": 3}, {"time_us": 0}) == {"calls": 3}, "nothing of a dimension that is not there"
    with pytest.raises(ValueError, match=r"^time_us: 0 - 1 is below zero$"):
        minus({"calls": 3}, {"time_us": 1})
    with pytest.raises(ValueError, match=r"^calls: 3 - 4 is below zero$"):
        minus({"calls": 3}, {"calls": 4})


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("attempts", True),
        ("time_us", True),
        ("tokens_input", True),
        ("tokens_output", True),
        ("calls", True),
        (USD, True),
        ("USD", False),
        ("money_micros:", False),
        ("money_micros:usd", False),
        ("money_micros:USDX", False),
        ("money_micros:US", False),
        ("kisses", False),
        ("", False),
    ],
)
def test_w18_registered_dimensions(name: str, known: bool) -> None:
    assert is_dimension(name) is known


def test_w18_what_fits_now_and_what_would_fit_if_all_holds_were_freed() -> None:
    account = Account(
        ceiling={"calls": 10, "time_us": 5, USD: 0}, held={"calls": 4}, charged={"calls": 5, "time_us": 9}
    )
    assert [available(account, name) for name in ("calls", "time_us", USD, "attempts")] == [1, -4, 0, None]
    assert shortfall(account, {"time_us": 1, "calls": 1, "attempts": 99}) == ("time_us",)
    assert shortfall(account, {"time_us": 1, "calls": 2}) == ("calls", "time_us"), "in byte order"
    assert shortfall(account, {"calls": 1, USD: 0}) == ()
    assert exhausted(account, {"time_us": 1, "calls": 6}) == ("calls", "time_us")
    assert exhausted(account, {"calls": 5, USD: 0, "attempts": 99}) == ()
    assert exhausted(account, {USD: 1}) == (USD,)


def test_w18_a_level_that_names_a_currency_carries_no_other() -> None:
    dollars = {USD: 5, "calls": 1}
    assert foreign_currency(dollars, {USD: 1, "calls": 9, "time_us": 1}) is None
    assert foreign_currency(dollars, {GBP: 1, EUR: 1}) == "EUR", "the first by its code"
    assert foreign_currency(dollars, {EUR: 0, GBP: 1}) == "GBP", "nothing of a currency is no currency"
    assert foreign_currency({"calls": 1}, {EUR: 1}) is None


def test_w18_of_a_refused_currency_all_is_over_and_nothing_is_left() -> None:
    ceiling = {USD: 5, "calls": 1}
    account = Account(ceiling=ceiling, held={EUR: 2}, charged={USD: 6, EUR: 7, "tokens_input": 9, "calls": 1})
    assert over(account) == {EUR: 7, USD: 1}, "in byte order, and nothing that nobody limits"
    assert list(over(account)) == [EUR, USD]
    assert [available(account, name) for name in (EUR, GBP, "tokens_input")] == [-9, 0, None]
    assert [refuses(ceiling, name) for name in (EUR, USD, "calls", "tokens_input")] == [True, False, False, False]
    assert over(Account(charged={EUR: 7})) == {}
