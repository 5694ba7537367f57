"""What the next attempt of an order asks of the accounts above it, and what stands in its way (W18).

One set of rules for those who reserve and for those who look which blocked orders could go on. Whoever asks hands in
how an account is found, so that one may ask about accounts as they are or as promises would leave them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from fencepost.core.amounts import available, exhausted, foreign_currency, plus, shortfall
from fencepost.core.shares import MONEY, OWN_RULE, Shares, share
from fencepost.core.state import Account, OrderState

AccountOf = Callable[[str], Account]


class Short(NamedTuple):
    """One dimension of a hold that an account cannot carry. `left` may be negative: a charge is booked as it is."""

    dimension: str
    needed: int
    left: int


class Obstacle(NamedTuple):
    """Why an account cannot carry a hold: `budget_held` passes by itself, `currency_not_budgeted` needs a person, and
    `budget_exhausted` is for good, unless the ceiling is raised.
    """

    code: str
    account: str
    short: tuple[Short, ...]  # at least one, in byte order of the dimensions

    @property
    def detail(self) -> dict[str, str]:
        """Account, dimensions, what is needed and what is left of each, in one order; a currency also by its code."""
        detail = {
            "account": self.account,
            "dimension": ", ".join(short.dimension for short in self.short),
            "needed": ", ".join(str(short.needed) for short in self.short),
            "left": ", ".join(str(short.left) for short in self.short),
        }
        if self.code == "currency_not_budgeted":
            detail["currency"] = self.short[0].dimension.removeprefix(MONEY)
        return detail


def shares_now(order: OrderState, account_of: AccountOf, plan_attempts: int) -> Shares:
    """An order's shares: those of its spec, and one in each dimension that its own or its plan's ceilings name since.

    `plan_attempts` divides the plan's ceilings where the plan does not limit its attempts.
    """
    amounts, least = order.terms.hold, order.terms.hold_least
    for subject in order.accounts[1:]:
        ceiling = account_of(subject).ceiling
        later = [name for name in ceiling if name not in amounts and name not in OWN_RULE]
        if not later:
            continue
        own_only = subject != order.order and any(name.startswith(MONEY) for name in order.account.ceiling)
        parts = ceiling.get("attempts", 1 if subject == order.order else plan_attempts)
        for name in later:
            if not (own_only and name.startswith(MONEY)):
                amounts = {**amounts, name: share(ceiling[name], parts)}
                least = {**least, name: min(1, ceiling[name])}
    return Shares(amounts, least)


def wanted(order: OrderState, shares: Shares, account_of: AccountOf) -> dict[str, int]:
    """What the next attempt holds: its share, at most what its accounts have not charged yet."""
    amounts = dict(shares.amounts)
    for dimension, least in shares.least.items():
        for subject in order.accounts:
            account = account_of(subject)
            ceiling = account.ceiling.get(dimension)
            if ceiling is not None:
                left = ceiling - account.charged.get(dimension, 0)
                amounts[dimension] = min(amounts[dimension], max(left, least))
    return amounts


def exhaustions(order: OrderState, shares: Shares, account_of: AccountOf) -> Iterator[Obstacle]:
    """Accounts of the path that cannot carry the smallest next hold any more, even if every other one were freed."""
    for subject in order.accounts:
        account = account_of(subject)
        names = exhausted(account, shares.least)
        if names:
            left = {name: account.ceiling[name] - account.charged.get(name, 0) for name in names}
            yield Obstacle("budget_exhausted", subject, _short(names, shares.least, left))


def exhausted_on_path(order: OrderState, shares: Shares, account_of: AccountOf) -> tuple[str, tuple[str, ...]] | None:
    """The first account of the path that cannot carry the smallest next hold any more, with the dimensions."""
    for found in exhaustions(order, shares, account_of):
        return found.account, tuple(short.dimension for short in found.short)
    return None


def foreign(subject: str, account: Account, amounts: Mapping[str, int]) -> Obstacle | None:
    """The first currency of a hold, or of what is charged already, that an account does not budget while it budgets
    another one: where such money has been spent, be it known how much or not, a person says whether more may be.
    """
    currency = foreign_currency(account.ceiling, plus(plus(account.charged, account.unknown), amounts))
    if currency is None:
        return None
    dimension = f"{MONEY}{currency}"
    short = Short(dimension, amounts.get(dimension, 0), -account.charged.get(dimension, 0))
    return Obstacle("currency_not_budgeted", subject, (short,))


def obstacles(order: OrderState, amounts: Mapping[str, int], account_of: AccountOf) -> Iterator[Obstacle]:
    """Accounts of the path into which a hold does not fit now, from the scope down.

    Of a currency that an account does not budget while it budgets another one, nothing is left.
    """
    for subject in order.accounts:
        account = account_of(subject)
        found = foreign(subject, account, amounts)
        if found is not None:
            yield found
            continue
        names = shortfall(account, amounts)
        if names:
            left = {name: rest for name in names if (rest := available(account, name)) is not None}
            yield Obstacle("budget_held", subject, _short(names, amounts, left))


def obstacle(order: OrderState, amounts: Mapping[str, int], account_of: AccountOf) -> Obstacle | None:
    """The first account of the path into which a hold does not fit now: all of them together, or none."""
    return next(obstacles(order, amounts, account_of), None)


def _short(names: tuple[str, ...], needed: Mapping[str, int], left: Mapping[str, int]) -> tuple[Short, ...]:
    return tuple(Short(name, needed[name], left[name]) for name in names)
