"""Tables of amounts: the plan's budget, an order's ceilings, what one attempt holds.

Rules: every amount stands under its dimension's name in the result. An empty table of tokens or money says
nothing and is refused, so that nobody reads it as "none allowed"; an amount of zero is what says that.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from typing import Final

from fencepost.core.planfile import bounds
from fencepost.core.planfile.document import MONEY_PREFIX
from fencepost.core.planfile.problems import Spot, quote
from fencepost.core.planfile.values import (
    read_duration,
    read_integer,
    read_money,
    read_table,
    refuse_unknown,
)

CEILING_KEYS: Final = ("attempts", "time", "tokens", "calls", "money")
ATTEMPT_KEYS: Final = ("tokens", "calls", "money")
TOKEN_KEYS: Final = ("input", "output")
_KEYS: Final[dict[str, tuple[str, ...]]] = {
    "attempts": ("attempts",),
    "time_us": ("time",),
    "tokens_input": ("tokens", "input"),
    "tokens_output": ("tokens", "output"),
    "calls": ("calls",),
}


def keys_of(dimension: str) -> tuple[str, ...]:
    """The keys under which a dimension stands in a table of amounts."""
    if dimension.startswith(MONEY_PREFIX):
        return ("money", dimension.removeprefix(MONEY_PREFIX))
    return _KEYS[dimension]


def spot_of(spot: Spot, dimension: str) -> Spot:
    """The place of a dimension below the place of its table."""
    for key in keys_of(dimension):
        spot = spot.child(key)
    return spot


def read_amounts(spot: Spot, table: dict[str, object], *, currencies: Set[str]) -> dict[str, int]:
    """The amounts of a table by dimension, without those that were refused; other keys are not looked at."""
    amounts: dict[str, int] = {}

    def put(dimension: str, amount: int | None) -> None:
        if amount is not None:
            amounts[dimension] = amount

    if "attempts" in table:
        put(
            "attempts",
            read_integer(spot.child("attempts"), table["attempts"], least=1, most=bounds.ATTEMPTS_MAX),
        )
    if "time" in table:
        put("time_us", read_duration(spot.child("time"), table["time"]))
    if "tokens" in table:
        _read_tokens(spot.child("tokens"), table["tokens"], put)
    if "calls" in table:
        put("calls", read_integer(spot.child("calls"), table["calls"], least=0, most=bounds.INTEGER_MAX))
    if "money" in table:
        _read_money(spot.child("money"), table["money"], currencies, put)
    return amounts


def _read_tokens(spot: Spot, value: object, put: Callable[[str, int | None], None]) -> None:
    tokens = read_table(spot, value, example="{ input = 200_000, output = 50_000 }")
    if tokens is None:
        return
    refuse_unknown(spot, tokens, TOKEN_KEYS)
    if not tokens:
        spot.refuse("missing_key", "the table names no tokens", "write input, output or both, or leave it out")
    for key in TOKEN_KEYS:
        if key in tokens:
            put(f"tokens_{key}", read_integer(spot.child(key), tokens[key], least=0, most=bounds.INTEGER_MAX))


def _read_money(spot: Spot, value: object, currencies: Set[str], put: Callable[[str, int | None], None]) -> None:
    money = read_table(spot, value, example='{ USD = "2.50" }')
    if money is None:
        return
    if not money:
        spot.refuse("missing_key", "the table names no currency", 'write for example { USD = "2.50" }')
    if len(money) > bounds.CURRENCIES_MAX:
        spot.refuse("out_of_range", f"more than {bounds.CURRENCIES_MAX} currencies", "name fewer currencies")
        return
    for currency, amount in money.items():
        if currency in currencies:
            put(f"{MONEY_PREFIX}{currency}", read_money(spot.child(currency), amount))
            continue
        like = currency.upper() if currency.upper() in currencies else None
        spot.child(currency).refuse(
            "unknown_key",
            f"{quote(currency)} is not a currency code of ISO 4217",
            f'write "{like}"' if like else "write three capital letters, such as USD",
        )


def read_budget(spot: Spot, value: object, *, currencies: Set[str]) -> dict[str, int] | None:
    """The plan's own ceilings: at least one."""
    example = "{ attempts = 12 }"
    table = read_table(spot, value, example=example)
    if table is None:
        return None
    refuse_unknown(spot, table, CEILING_KEYS)
    if not table:
        spot.refuse("missing_key", "the plan's budget names no ceiling", "write at least one, such as attempts = 12")
    return read_amounts(spot, table, currencies=currencies)
