"""Charges as a program writes and reads them: one form for what it spends, what is left to it, and what is over.

What it does not know is no zero: it names the dimension, and all that is still held of it is charged.

The form is that of a plan's ceilings: `calls`, `tokens_input`, `tokens_output` as whole numbers, `money` as a table of
currency to decimal text. Only what the attempt's hold has set aside is told: a dimension that nobody limits has nothing
left and is never over. A currency that some level refuses, since it names another one, is over whole.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from fencepost.core.amounts import is_dimension
from fencepost.core.instant import format_money, parse_money
from fencepost.core.records.common import Usage
from fencepost.core.shares import MONEY, OWN_RULE
from fencepost.sdk import wire
from fencepost.services.requests import Amounts, Charge, Declined

_COUNTED: Final = ("calls", "tokens_input", "tokens_output")
_CURRENCY: Final = "money:"


def usage_of(form: Charge) -> Usage:
    """What a charge says was used. Raises Declined."""
    unknown = unknown_of(form.unknown)
    amounts = amounts_of(form.amounts)
    if not amounts and not unknown:
        raise Declined("out_of_range", wire.NOTHING_CHARGED, where="/amounts", next_step=wire.SAY_WHAT)
    return Usage(receipt=form.receipt, provider=form.provider, amounts=amounts, unknown=unknown)


def unknown_of(names: Sequence[str]) -> tuple[str, ...]:
    """The dimensions that these names mean, in one order whatever theirs is. Raises Declined."""
    found: set[str] = set()
    for place, name in enumerate(names):
        where = f"/unknown/{place}"
        currency = f"{MONEY}{name.removeprefix(_CURRENCY)}" if name.startswith(_CURRENCY) else ""
        dimension = name if name in _COUNTED else currency
        if not is_dimension(dimension):
            step = f"name {', '.join(_COUNTED)}, or money with its currency, such as money:USD"
            raise Declined("out_of_range", f"{name!r} is nothing that is charged", where=where, next_step=step)
        if dimension in found:
            raise Declined("out_of_range", f"{name} is named twice", where=where, next_step="name it once")
        found.add(dimension)
    return tuple(sorted(found))


def amounts_of(form: Amounts) -> dict[str, int]:
    """Amounts by dimension. Raises Declined."""
    counted = ((name, getattr(form, name)) for name in _COUNTED)
    found = {name: amount for name, amount in counted if amount is not None}
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
    refused = result.get("refused", ())  # a receipt that an earlier version wrote down says nothing of it
    over = {name: amount for name, amount in result["over"].items() if name in left or name in refused}
    # Of an unknown amount in a currency that is refused nothing is booked; it stops the order all the same.
    over |= {name: 0 for name in refused if name not in over}
    shown = {name: value for name, value in result.items() if name != "refused"}
    return {**shown, "left": _form(left), "over": _form(over)}


def _form(amounts: Mapping[str, int]) -> dict[str, Any]:
    plain: dict[str, Any] = {name: amount for name, amount in amounts.items() if not name.startswith(MONEY)}
    money = {
        name.removeprefix(MONEY): format_money(amount) for name, amount in amounts.items() if name.startswith(MONEY)
    }
    return {**plain, "money": money} if money else plain
