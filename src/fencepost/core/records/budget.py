"""Records of accounting: ceilings, holds and their one ending (W18, C21)."""

from __future__ import annotations

from typing import Literal

import msgspec

from fencepost.core.records.common import Amounts, Count, Digest, Text, Usage
from fencepost.core.records.envelope import Body, record_kind


@record_kind("budget_ceiling_set", 1, "W18")
class BudgetCeilingSet(Body, frozen=True):
    """An account's ceilings from now on. A dimension that is not named is counted but not limited."""

    ceilings: Amounts
    note: Text = ""


@record_kind("hold_settled", 1, "W18", "C21")
class HoldSettled(Body, frozen=True):
    """A hold ends: what was used is charged, the rest is free again, in one step.

    `credited` takes back an attempt that an activation charged (a planned pause costs none, lifecycle 8).
    """

    charged: Amounts
    basis: Literal["receipts", "expiry", "holder_gone", "stopped", "yielded", "proved_deadline"]
    receipts: tuple[str, ...] = ()
    credited: Amounts = msgspec.field(default_factory=dict)
    flagged: bool = False  # charged conservatively, not from a receipt
    estimated_us: Count = 0  # of the charged time: what no receipt accounts for


@record_kind("hold_released", 1, "W18", "W2")
class HoldReleased(Body, frozen=True):
    """A reservation that was never activated gives everything back."""

    reason: str


@record_kind("hold_unsettled", 1, "W18")
class HoldUnsettled(Body, frozen=True):
    """Known dimensions are settled, the named ones stay held until their facts come or a deadline is proved."""

    dimensions: tuple[str, ...]
    freed: tuple[str, ...]
    settle_by_us: Count


@record_kind("hold_adjusted", 1, "W18", "W17")
class HoldAdjusted(Body, frozen=True):
    """A receipt came after the hold's end: booked once, against that hold.

    Time that was charged as an estimate is not charged again: `explained_us` of it is accounted for by now.
    """

    charged: Amounts
    receipts: tuple[str, ...]
    explained_us: Count = 0


@record_kind("usage_charged", 1, "W18", "W17")
class UsageCharged(Body, frozen=True):
    """What one receipt says was used, booked as it is, whenever it comes and under whatever fence.

    What the hold still holds is used up first (`freed`); what passes it is overflow.
    """

    attempt: str
    order: str
    spec: Digest
    fence: Count
    usage: Usage
    freed: Amounts
    disposition: Literal["accepted", "rejected_stale"]
