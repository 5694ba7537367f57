"""One computation of shares: what a plan check resolves is what a submitted order holds (W18)."""

from __future__ import annotations

import pytest

from fencepost.core.decide.holds import hold_for
from fencepost.core.planfile.check import check_text
from fencepost.core.shares import share, shares_of
from tests.support.world import draft

PLAN = """
objective = "o"
[budget]
attempts = 4
calls = 10
money = { USD = "1", EUR = "2" }
[[work]]
name = "own"
run = ["true"]
budget = { attempts = 2, tokens = { input = 7 }, money = { USD = "1" }, per_attempt = { calls = 3 } }
[[work]]
name = "plain"
run = ["true"]
"""


def test_shares_round_up_and_least_is_one_unless_declared() -> None:
    assert share(7, 2) == 4 and share(0, 3) == 0 and share(5, 0) == 5
    shares = shares_of(
        {"calls": 3}, {"attempts": 2, "tokens_input": 7, "calls": 9}, {"tokens_output": 5, "calls": 1}, 4
    )
    assert shares.amounts == {"calls": 3, "tokens_input": 4, "tokens_output": 2}
    assert shares.least == {"calls": 3, "tokens_input": 1, "tokens_output": 1}
    none = shares_of({}, {"calls": 0}, {}, 1)
    assert none.amounts == {"calls": 0} == none.least, "a ceiling of zero says none"


def test_an_order_that_names_a_currency_holds_in_no_other() -> None:
    shares = shares_of({}, {"money_micros:USD": 4}, {"money_micros:EUR": 9, "calls": 2}, 2)
    assert shares.amounts == {"money_micros:USD": 4, "calls": 1}


def test_the_check_resolves_what_the_kernel_holds_and_keeps_what_was_declared_apart() -> None:
    checked = check_text(PLAN, stem="plan", syntax="toml")
    document = checked.document
    assert document is not None, checked.problems
    for item in document.work:
        order = draft(
            item.name,
            ceilings=item.budget,
            per_attempt=item.per_attempt_declared,
            attempt_time_us=item.attempt_time_us,
        )
        assert hold_for(order, document.budget, document.budget["attempts"]).amounts == item.hold()
    own, plain = document.work
    assert own.per_attempt_declared == {"calls": 3} and plain.per_attempt_declared == {}
    assert own.per_attempt == {"calls": 3, "tokens_input": 4, "money_micros:USD": 500_000}
    assert plain.per_attempt == {"calls": 3, "money_micros:USD": 250_000, "money_micros:EUR": 500_000}


@pytest.mark.parametrize(
    ("retry", "at"),
    [
        ('{ on = ["executor"], backoff_max = "61m" }', "/work/0/retry/backoff_max"),
        ('{ on = ["executor"], backoff = "2h" }', "/work/0/retry/backoff"),
        ('{ on = ["executor"], backoff = "1h", backoff_max = "1h" }', None),
    ],
)
def test_c27_a_backoff_past_its_bound_is_refused_by_the_check(retry: str, at: str | None) -> None:
    text = f'objective = "o"\n[budget]\nattempts = 1\n[[work]]\nname = "a"\nrun = ["true"]\nretry = {retry}\n'
    checked = check_text(text, stem="plan", syntax="toml")
    assert [(problem.code, problem.at) for problem in checked.problems] == ([("out_of_range", at)] if at else [])
