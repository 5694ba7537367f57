"""What the next attempt asks of its accounts, level by level (W18)."""

from __future__ import annotations

from fencepost.core.needs import (
    Obstacle,
    Short,
    exhausted_on_path,
    exhaustions,
    obstacle,
    obstacles,
    shares_now,
    wanted,
)
from fencepost.core.shares import Shares
from fencepost.core.state import Account
from tests.support.world import World, draft

USD, EUR = "money_micros:USD", "money_micros:EUR"


class Path:
    """An order of a plan whose accounts a test sets as it likes."""

    def __init__(self, *, attempts: int = 3, **accounts: Account) -> None:
        world = World()
        world.submit(draft("a", attempts=attempts))
        self.order = world.order("a")
        names = ("scope", self.order.plan or "", self.order.order)
        self.names = dict(zip(("scope", "plan", "order"), names, strict=True))
        empty = Account()
        self.accounts = {self.names[level]: accounts.get(level, empty) for level in self.names}
        self.accounts[self.order.order] = accounts.get("order", self.order.account)

    def account_of(self, subject: str) -> Account:
        return self.accounts[subject]

    def shares(self, plan_attempts: int = 5) -> Shares:
        return shares_now(self.order, self.account_of, plan_attempts)


def test_w18_a_later_ceiling_is_shared_by_the_attempts_of_its_own_level() -> None:
    plan = Path(plan=Account(ceiling={"calls": 10})).shares()
    assert (plan.amounts["calls"], plan.least["calls"]) == (2, 1), "by the plan's orders where it limits no attempts"
    limited = Path(plan=Account(ceiling={"calls": 10, "attempts": 2})).shares()
    assert limited.amounts["calls"] == 5
    own = Path(order=Account(ceiling={"calls": 10})).shares()
    assert own.amounts["calls"] == 10, "an order that may try without bound has its ceiling for one attempt"
    assert Path(order=Account(ceiling={"calls": 10, "attempts": 4})).shares().amounts["calls"] == 3, "rounded up"


def test_w18_a_later_ceiling_of_zero_asks_for_nothing() -> None:
    shares = Path(plan=Account(ceiling={"calls": 0, "tokens_input": 1})).shares()
    assert (shares.amounts["calls"], shares.least["calls"]) == (0, 0)
    assert shares.least["tokens_input"] == 1


def test_w18_the_scope_shares_nothing_and_attempts_and_time_keep_their_own_rule() -> None:
    path = Path(scope=Account(ceiling={"calls": 10}), plan=Account(ceiling={"attempts": 9, "time_us": 9}))
    assert path.shares().amounts == path.order.terms.hold and path.shares().least == path.order.terms.hold_least


def test_w18_an_order_with_a_currency_of_its_own_takes_none_of_its_plans() -> None:
    world = World()
    world.submit(draft("a", ceilings={"attempts": 1, EUR: 4}))
    order = world.order("a")
    accounts = {order.plan: Account(ceiling={USD: 10, "calls": 10}), order.order: order.account}
    shares = shares_now(order, lambda subject: accounts[subject], 5)
    assert USD not in shares.amounts and shares.amounts["calls"] == 2
    without = Path(plan=Account(ceiling={USD: 10})).shares()
    assert without.amounts[USD] == 2, "an order without one takes part in its plan's"
    both = Path(order=Account(ceiling={USD: 10})).shares()
    assert both.amounts[USD] == 10, "a currency that an order was given later is its own"


def test_w18_the_next_attempt_wants_its_share_and_at_most_what_is_not_charged_yet() -> None:
    path = Path(
        scope=Account(ceiling={"calls": 9}, charged={"calls": 4}),
        plan=Account(ceiling={"calls": 9}, held={"calls": 9}, charged={"calls": 6}),
    )
    asked = Shares({"calls": 8, "time_us": 7}, {"calls": 1, "time_us": 7})
    assert wanted(path.order, asked, path.account_of) == {"calls": 3, "time_us": 7}, "what is held may come free"
    gone = Path(plan=Account(ceiling={"calls": 9}, charged={"calls": 9}))
    assert wanted(gone.order, asked, gone.account_of)["calls"] == 1, "never less than the least"


def test_w18_every_account_that_cannot_carry_the_least_is_told_with_what_is_left() -> None:
    path = Path(
        plan=Account(ceiling={"calls": 9, "time_us": 5}, held={"calls": 9}, charged={"calls": 10, "time_us": 1}),
        order=Account(ceiling={"calls": 1}),
    )
    least = Shares({"calls": 8, "time_us": 9}, {"calls": 2, "time_us": 5})
    plan, order = path.names["plan"], path.names["order"]
    assert list(exhaustions(path.order, least, path.account_of)) == [
        Obstacle("budget_exhausted", plan, (Short("calls", 2, -1), Short("time_us", 5, 4))),
        Obstacle("budget_exhausted", order, (Short("calls", 2, 1),)),
    ]
    assert exhausted_on_path(path.order, least, path.account_of) == (plan, ("calls", "time_us"))
    assert exhausted_on_path(path.order, Shares({}, {"calls": 0}), Path().account_of) is None


def test_w18_what_stands_in_the_way_names_account_need_and_rest() -> None:
    path = Path(
        scope=Account(ceiling={EUR: 4}),
        plan=Account(ceiling={"calls": 9, "tokens_input": 3}, held={"calls": 7}, charged={"tokens_input": 4}),
        order=Account(ceiling={"calls": 1}),
    )
    amounts = {USD: 6, "calls": 3, "tokens_input": 2}
    scope, plan, order = (path.names[level] for level in ("scope", "plan", "order"))
    found = list(obstacles(path.order, amounts, path.account_of))
    assert found == [
        Obstacle("currency_not_budgeted", scope, (Short(USD, 6, 0),)),
        Obstacle("budget_held", plan, (Short("calls", 3, 2), Short("tokens_input", 2, -1))),
        Obstacle("budget_held", order, (Short("calls", 3, 1),)),
    ]
    assert found[0].detail == {"account": scope, "dimension": USD, "needed": "6", "left": "0", "currency": "USD"}
    assert found[1].detail == {
        "account": plan,
        "dimension": "calls, tokens_input",
        "needed": "3, 2",
        "left": "2, -1",
    }
    assert obstacle(path.order, amounts, path.account_of) == found[0]
    assert obstacle(path.order, {"calls": 0}, path.account_of) is None
