"""Arithmetic of budgets: nonnegative integers per dimension, added and compared as a whole (W18).

`available = ceiling - held - charged` is the only signed figure: a charge is booked as it is, even past its hold, so
that a dimension may stand below zero, after which it grants no hold. A dimension that a level does not name is
counted but not limited there. A level that names any currency refuses all others: a hold in another is refused, a
charge in another is booked and is over whole, and nothing more starts below it until a person names that currency.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from fencepost.core.shares import MONEY
from fencepost.core.state import Account
from fencepost.core.strictjson import INT_MAX

DIMENSIONS = ("attempts", "time_us", "tokens_input", "tokens_output", "calls")
"""The fixed dimensions; money adds one per ISO 4217 currency, named `money_micros:<code>`."""
_CURRENCY = re.compile(r"[A-Z]{3}")


def is_dimension(name: str) -> bool:
    return name in DIMENSIONS or (name.startswith(MONEY) and _CURRENCY.fullmatch(name.removeprefix(MONEY)) is not None)


def plus(left: Mapping[str, int], right: Mapping[str, int]) -> dict[str, int]:
    """Return left + right, whole: what is added to what is held can be taken away again."""
    result = dict(left)
    for dimension, amount in right.items():
        result[dimension] = result.get(dimension, 0) + amount
    return result


def charged_with(charged: Mapping[str, int], more: Mapping[str, int]) -> dict[str, int]:
    """Return what is charged with more: it only grows, and stays at 2^53 - 1, the greatest number of a document."""
    return {dimension: min(amount, INT_MAX) for dimension, amount in plus(charged, more).items()}


def counted_with(counted: Mapping[str, int], names: Iterable[str]) -> dict[str, int]:
    """Return how often each dimension was named, with one more for each of `names`; a name that repeats counts once."""
    return charged_with(counted, dict.fromkeys(names, 1))


def minus(left: Mapping[str, int], right: Mapping[str, int]) -> dict[str, int]:
    """Return left - right without zero entries. Raises ValueError if a dimension would be negative."""
    result = dict(left)
    for dimension, amount in right.items():
        rest = result.get(dimension, 0) - amount
        if rest < 0:
            raise ValueError(f"{dimension}: {result.get(dimension, 0)} - {amount} is below zero")
        if rest:
            result[dimension] = rest
        else:
            result.pop(dimension, None)
    return result


def available(account: Account, dimension: str) -> int | None:
    """What a hold may still take, possibly negative; None where the account does not limit the dimension. Of a currency
    that it refuses there is nothing to take.
    """
    ceiling = account.ceiling.get(dimension)
    if ceiling is None:
        if not refuses(account.ceiling, dimension):
            return None
        ceiling = 0
    return ceiling - account.held.get(dimension, 0) - account.charged.get(dimension, 0)


def shortfall(account: Account, need: Mapping[str, int]) -> tuple[str, ...]:
    """Dimensions in which `need` does not fit now, in byte order."""
    short = []
    for dimension, amount in need.items():
        left = available(account, dimension)
        if left is not None and amount > left:
            short.append(dimension)
    return tuple(sorted(short))


def exhausted(account: Account, need: Mapping[str, int]) -> tuple[str, ...]:
    """Dimensions in which `need` would not fit even if every other hold were freed, in byte order."""
    short = []
    for dimension, amount in need.items():
        ceiling = account.ceiling.get(dimension)
        if ceiling is not None and amount > ceiling - account.charged.get(dimension, 0):
            short.append(dimension)
    return tuple(sorted(short))


def refuses(ceiling: Mapping[str, int], dimension: str) -> bool:
    """Whether ceilings name money, and not in this currency."""
    if not dimension.startswith(MONEY) or dimension in ceiling:
        return False
    return any(name.startswith(MONEY) for name in ceiling)


def foreign_currency(ceiling: Mapping[str, int], need: Mapping[str, int]) -> str | None:
    """The first currency of `need` that a level with these ceilings refuses."""
    for dimension in sorted(need):
        if need[dimension] and refuses(ceiling, dimension):
            return dimension.removeprefix(MONEY)
    return None


def over(account: Account) -> dict[str, int]:
    """By how much more was charged than each ceiling allows, and all that was charged in a currency that the account
    refuses: usage that a receipt proves is booked as it is. Above zero, in byte order of the dimensions."""
    found = {}
    for dimension, charged in sorted(account.charged.items()):
        most = account.ceiling.get(dimension, 0 if refuses(account.ceiling, dimension) else charged)
        if charged > most:
            found[dimension] = charged - most
    return found
