"""What one attempt holds, decided once when its order is written down (lifecycle, Budget arithmetic).

One attempt, its whole time limit, and in every other dimension that the order or its plan limits `per_attempt`: as
written, else the order's ceiling shared by its attempts, else the plan's shared by the plan's. A share may shrink to
what is left of a ceiling, down to one; what was written may not.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from fencepost.core.amounts import MONEY, share
from fencepost.core.commands import OrderDraft


class Hold(NamedTuple):
    """`amounts` is what an attempt asks for, `least` the smallest that it may start with."""

    amounts: dict[str, int]
    least: dict[str, int]


def hold_for(draft: OrderDraft, plan: Mapping[str, int], plan_attempts: int) -> Hold:
    """Return an order's hold. `plan_attempts` (at least 1) divides the plan's ceilings."""
    amounts = {"attempts": 1, "time_us": draft.attempt_time_us}
    least = dict(amounts)
    for dimension, amount in draft.per_attempt.items():
        amounts[dimension] = least[dimension] = amount
    own_money = any(dimension.startswith(MONEY) for dimension in draft.ceilings)
    shares = [(draft.ceilings, draft.ceilings.get("attempts", 1)), (plan, plan_attempts)]
    for number, (ceilings, parts) in enumerate(shares):
        for dimension, ceiling in ceilings.items():
            if dimension in amounts:
                continue
            if number and own_money and dimension.startswith(MONEY) and dimension not in draft.ceilings:
                continue  # an order that names currencies spends in no other
            amounts[dimension] = share(ceiling, parts)
            least[dimension] = min(1, ceiling)
    return Hold(amounts, least)
