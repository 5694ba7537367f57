"""Charges as a program writes and reads them: one form for what it spends, what is left to it, and what is over.

The form is that of a plan's ceilings: `calls`, `tokens_input`, `tokens_output` as whole numbers, `money` as a table of
currency to decimal text. Only what the attempt's hold has set aside is told: a dimension that nobody limits has nothing
left and is never over.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fencepost.core.amounts import is_dimension
from fencepost.core.instant import format_money, parse_money
from fencepost.core.shares import MONEY, OWN_RULE
from fencepost.services.requests import Amounts, Declined


def amounts_of(form: Amounts) -> dict[str, int]:
    """Amounts by dimension. Raises Declined."""
    found = {
        name: amount
        for name, amount in (
            ("calls", form.calls),
            ("tokens_input", form.tokens_input),
            ("tokens_output", form.tokens_output),
        )
        if amount is not None
    }
    for currency, text in (form.money or {}).items():
        where = f"/amounts/money/{currency}"
        if not is_dimension(f"{MONEY}{currency}"):
            message = f"{currency!r} is no currency"
            step = "write the three capital letters of ISO 4217, such as USD"
            raise Declined("out_of_range", message, where=where, next_step=step)
        try:
            found[f"{MONEY}{currency}"] = parse_money(text)
        except ValueError:
            message = f"{text!r} is not an amount of money, such as 0.004"
            raise Declined("bad_money", message, where=where) from None
    return found


def told(result: Mapping[str, Any], set_aside: Mapping[str, int]) -> dict[str, Any]:
    """What the kernel says of a charge, in the form of the request. `set_aside` is all that the attempt's hold began
    with, by dimension."""
    left = {name: result["left"].get(name, 0) for name in set_aside if name not in OWN_RULE}
    over = {name: amount for name, amount in result["over"].items() if name in left}
    return {**result, "left": _form(left), "over": _form(over)}


def _form(amounts: Mapping[str, int]) -> dict[str, Any]:
    plain: dict[str, Any] = {name: amount for name, amount in amounts.items() if not name.startswith(MONEY)}
    money = {
        name.removeprefix(MONEY): format_money(amount) for name, amount in amounts.items() if name.startswith(MONEY)
    }
    return {**plain, "money": money} if money else plain
