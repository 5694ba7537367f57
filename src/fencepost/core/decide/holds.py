"""What one attempt holds, decided once when its order is written down (lifecycle, Budget arithmetic)."""

from __future__ import annotations

from collections.abc import Mapping

from fencepost.core.commands import OrderDraft
from fencepost.core.shares import Shares, shares_of


def hold_for(draft: OrderDraft, plan: Mapping[str, int], plan_attempts: int) -> Shares:
    """Return an order's hold: one attempt, its whole time limit, and its shares of everything else that is limited.

    A time limit that nobody wrote down may shrink to what is left of a ceiling, like a share.
    """
    shares = shares_of(draft.per_attempt, draft.ceilings, plan, plan_attempts)
    limit_us = draft.attempt_time_us
    least_us = min(draft.attempt_time_least_us, limit_us) or limit_us
    amounts = {"attempts": 1, "time_us": limit_us, **shares.amounts}
    return Shares(amounts, {"attempts": 1, "time_us": least_us, **shares.least})
