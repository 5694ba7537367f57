"""What one attempt holds, decided once when its order is written down (lifecycle, Budget arithmetic)."""

from __future__ import annotations

from collections.abc import Mapping

from fencepost.core.commands import OrderDraft
from fencepost.core.shares import Shares, shares_of


def hold_for(draft: OrderDraft, plan: Mapping[str, int], plan_attempts: int) -> Shares:
    """Return an order's hold: one attempt, its whole time limit, and its shares of everything else that is limited."""
    shares = shares_of(draft.per_attempt, draft.ceilings, plan, plan_attempts)
    fixed = {"attempts": 1, "time_us": draft.attempt_time_us}
    return Shares({**fixed, **shares.amounts}, {**fixed, **shares.least})
