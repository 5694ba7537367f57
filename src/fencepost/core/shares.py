"""What one attempt holds beside its one attempt and its time limit (lifecycle, Budget arithmetic).

Rules: in every other dimension that the order or its plan limits, an attempt holds `per_attempt`: as declared; else
the order's ceiling shared by its attempts; else the plan's shared by the plan's. Shares round up. A level that names
any currency refuses the others, so an order that names its currencies holds in no other one.

A declared amount may not shrink. A share may, to what is left of a ceiling, down to one, so that an attempt that was
lost does not leave the next one without a hold.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

MONEY: Final = "money_micros:"
"""Prefix of the dimensions of money: `money_micros:<ISO 4217 code>`."""
OWN_RULE: Final = frozenset({"attempts", "time_us"})
"""Dimensions that are never shared: an attempt is one attempt and lasts as long as its time limit."""


class Shares(NamedTuple):
    """`amounts` is what an attempt asks for, `least` the smallest that it may start with."""

    amounts: dict[str, int]
    least: dict[str, int]


def share(ceiling: int, parts: int) -> int:
    """A part of a ceiling, rounded up; `parts` below 1 count as 1."""
    return -(-ceiling // max(parts, 1))


def shares_of(
    declared: Mapping[str, int], own: Mapping[str, int], plan: Mapping[str, int], plan_attempts: int
) -> Shares:
    """Resolve one order's shares. `own` and `plan` are ceilings; `plan_attempts` divides the plan's."""
    amounts = dict(declared)
    least = dict(declared)
    names_currency = any(dimension.startswith(MONEY) for dimension in own)
    for dimension, ceiling in own.items():
        if dimension not in OWN_RULE and dimension not in amounts:
            amounts[dimension] = share(ceiling, own.get("attempts", 1))
            least[dimension] = min(1, ceiling)
    for dimension, ceiling in plan.items():
        foreign = names_currency and dimension.startswith(MONEY) and dimension not in own
        if dimension not in OWN_RULE and dimension not in amounts and not foreign:
            amounts[dimension] = share(ceiling, plan_attempts)
            least[dimension] = min(1, ceiling)
    return Shares(amounts, least)
