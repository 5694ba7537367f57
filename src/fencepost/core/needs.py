"""What the next attempt of an order asks of the accounts above it, and what stands in its way (W18).

One set of rules for those who reserve and for those who look which blocked orders could go on. Whoever asks hands in
how an account is found, so that one may ask about accounts as they are or as promises would leave them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from fencepost.core.amounts import exhausted, foreign_currency, shortfall
from fencepost.core.shares import MONEY, OWN_RULE, Shares, share
from fencepost.core.state import Account, OrderState

AccountOf = Callable[[str], Account]


class Obstacle(NamedTuple):
    """Why a hold cannot be had now: `budget_held` passes by itself, `currency_not_budgeted` needs a person."""

    code: str
    account: str
    what: str  # dimensions, or the currency

    @property
    def detail(self) -> dict[str, str]:
        return {"account": self.account, "currency" if self.code == "currency_not_budgeted" else "dimension": self.what}


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


def exhausted_on_path(order: OrderState, shares: Shares, account_of: AccountOf) -> tuple[str, tuple[str, ...]] | None:
    """The first account of the path that cannot carry the smallest next hold any more, with the dimensions."""
    for subject in order.accounts:
        short = exhausted(account_of(subject), shares.least)
        if short:
            return subject, short
    return None


def obstacle(order: OrderState, amounts: dict[str, int], account_of: AccountOf) -> Obstacle | None:
    """The first account of the path into which a hold does not fit now: all of them together, or none."""
    for subject in order.accounts:
        account = account_of(subject)
        currency = foreign_currency(account, amounts)
        if currency is not None:
            return Obstacle("currency_not_budgeted", subject, currency)
        short = shortfall(account, amounts)
        if short:
            return Obstacle("budget_held", subject, ", ".join(short))
    return None
