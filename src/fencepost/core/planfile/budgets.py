"""First values that follow from the ceilings, and budgets that nothing could ever run under.

Rules (budget arithmetic): an attempt holds one attempt, its time limit, and in every other dimension that
the order or the plan limits a share (`core.shares`). The plan's ceilings are shared by the plan's attempts, or,
if the plan does not limit attempts, by those of all its orders together.

Impossible is what could not start even if nothing else ran: a hold beyond a ceiling above it, an order's
ceiling beyond the plan's, fewer attempts than orders that may not fail.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from fencepost.core.planfile import bounds
from fencepost.core.planfile.amounts import spot_of
from fencepost.core.planfile.document import MONEY_PREFIX
from fencepost.core.planfile.problems import Spot
from fencepost.core.planfile.work import Draft
from fencepost.core.shares import shares_of

PLAN: Final = "plan"
"""What messages call the level that orders lie in, where that is no other order."""


class Allowance(msgspec.Struct, frozen=True, kw_only=True):
    """An order's ceilings with first values, one attempt's time limit, and its hold in other dimensions."""

    budget: dict[str, int]
    attempt_time_us: int
    per_attempt: dict[str, int]
    per_attempt_declared: dict[str, int]


def attempts_of(draft: Draft, plan: Mapping[str, int]) -> int:
    """The order's ceiling of attempts: as written, else the smaller of 3 and the plan's."""
    first = min(bounds.ATTEMPTS_FIRST, plan.get("attempts", bounds.ATTEMPTS_FIRST))
    return draft.budget.ceilings.get("attempts", first)


def allow(draft: Draft, plan: Mapping[str, int], *, plan_attempts: int) -> Allowance:
    """Resolve one order's amounts. `plan_attempts` (at least 1) divides the plan's ceilings."""
    ceilings = {"attempts": attempts_of(draft, plan), **draft.budget.ceilings}
    attempt_time_us = draft.attempt_time_us
    if attempt_time_us is None:
        limits = [level["time_us"] for level in (ceilings, plan) if "time_us" in level]
        attempt_time_us = min([bounds.ATTEMPT_TIME_FIRST_US, *limits])
    declared = draft.budget.per_attempt
    return Allowance(
        budget=ceilings,
        attempt_time_us=attempt_time_us,
        per_attempt=shares_of(declared, ceilings, plan, plan_attempts).amounts,
        per_attempt_declared=declared,
    )


def _currencies(level: Mapping[str, int]) -> frozenset[str]:
    return frozenset(dimension for dimension in level if dimension.startswith(MONEY_PREFIX))


def check_budgets(spot: Spot, plan: Mapping[str, int], drafts: Sequence[Draft], above: str) -> None:
    """Refuse `impossible_budget`. `spot` is the place of the plan's budget, `above` what the orders lie in."""
    must_apply = sum(not draft.may_fail for draft in drafts)
    if plan.get("attempts", must_apply) < must_apply:
        spot.child("attempts").refuse(
            "impossible_budget",
            f"the {above} allows {plan['attempts']} attempts, and {must_apply} orders may not fail",
            f"write at least {must_apply}" if above == PLAN else f"give the {above} at least {must_apply}",
        )
    for draft in drafts:
        if "budget" in draft.refused:
            continue
        _check_ceilings(draft, plan, above)
        _check_hold(draft, plan, above)


def _check_ceilings(draft: Draft, plan: Mapping[str, int], above: str) -> None:
    spot = draft.spot.child("budget")
    for dimension, ceiling in draft.budget.ceilings.items():
        if dimension in plan and ceiling > plan[dimension]:
            spot_of(spot, dimension).refuse(
                "impossible_budget",
                f"the order's ceiling of {dimension} is {ceiling}, the {above}'s is {plan[dimension]}",
                f"lower the order's ceiling or raise the {above}'s",
            )
        _check_currency(spot_of(spot, dimension), dimension, plan, above)


def _check_hold(draft: Draft, plan: Mapping[str, int], above: str) -> None:
    own = draft.budget.ceilings
    if draft.attempt_time_us is not None and "attempt_time" not in draft.refused:
        _check_fits(draft.spot.child("attempt_time"), "time_us", draft.attempt_time_us, own, plan, above)
    spot = draft.spot.child("budget").child("per_attempt")
    for dimension, amount in draft.budget.per_attempt.items():
        place = spot_of(spot, dimension)
        _check_fits(place, dimension, amount, own, plan, above)
        _check_currency(place, dimension, own, "order")
        _check_currency(place, dimension, plan, above)


def _check_fits(
    spot: Spot, dimension: str, amount: int, own: Mapping[str, int], plan: Mapping[str, int], above: str
) -> None:
    for level, whose in ((own, "order's"), (plan, f"{above}'s")):
        if dimension in level and amount > level[dimension]:
            spot.refuse(
                "impossible_budget",
                f"one attempt holds {amount} of {dimension}, the {whose} ceiling is {level[dimension]}",
                f"let one attempt hold less, or raise the {whose} ceiling",
            )


def _check_currency(spot: Spot, dimension: str, level: Mapping[str, int], whose: str) -> None:
    named = _currencies(level)
    if dimension.startswith(MONEY_PREFIX) and named and dimension not in named:
        words = ", ".join(sorted(name.removeprefix(MONEY_PREFIX) for name in named))
        spot.refuse(
            "impossible_budget",
            f"the {whose}'s budget names {words} only, so nothing can be held in "
            f"{dimension.removeprefix(MONEY_PREFIX)}",
            f"add the currency to the {whose}'s budget",
        )
