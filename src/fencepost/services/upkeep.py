"""Small stages that keep a scope moving: backoffs that end, budgets that come free, ends that reach dependents,
cancels that reach a plan's orders, deadlines, and folders that nobody needs any more.

Correctness rests on none of them: whatever a crash leaves is found again by the same questions.
"""

from __future__ import annotations

from fencepost.core.amounts import exhausted, shortfall
from fencepost.core.commands import AdvanceCancel, EndBackoff, EnforceDeadline, Reexamine, TellDependents
from fencepost.core.index import BUDGET, DEADLINE, RETRY, REVISE, TELL
from fencepost.core.state import AttemptState, OrderState, PlanState
from fencepost.kernel.read import Look
from fencepost.services.means import Means, estimated_now_us

PAGE = 64


class Upkeep:
    """Looks for what is due and issues the command for it."""

    def __init__(self, means: Means) -> None:
        self._means = means

    def run_once(self) -> int:
        """Return how many commands moved something."""
        reading = self._means.reading()
        with self._means.kernel.reader.look() as look:
            now_us = estimated_now_us(look.clock(), reading)
            backoffs = look.many([row.subject for row in look.due(RETRY, now_us=now_us, limit=PAGE)])
            deadlines = look.many([row.subject for row in look.due(DEADLINE, now_us=now_us, limit=PAGE)])
            tell = [row.subject for row in look.due(TELL, limit=PAGE)]
            revise = [row.subject for row in look.due(REVISE, limit=PAGE)]
            blocked = _movable(look)
        done = 0
        issue = self._means.issue
        for order in backoffs.values():
            done += issue("reducer", EndBackoff(order=order.order, expected=order.version)).ok
        for plan in deadlines.values():
            done += issue("reducer", EnforceDeadline(plan=plan.plan, expected=plan.version)).ok
        for name in tell:
            done += issue("reducer", TellDependents(order=name)).ok
        for name in revise:
            done += issue("reducer", AdvanceCancel(plan=name)).ok
        for order in blocked:
            done += issue("reducer", Reexamine(order=order.order, expected=order.version)).ok
        return done

    def sweep_workspaces(self) -> int:
        """Remove folders of attempts that ended, but the last failed one of each order for a while (product page)."""
        among = self._means.workspaces.list_attempts()
        if not among:
            return 0
        with self._means.kernel.reader.look() as look:
            now_us = estimated_now_us(look.clock(), self._means.reading())
            keep = [name for name in among if _is_needed(look, name, now_us, self._means.kernel.limits.keep_failed_us)]
        return len(self._means.workspaces.sweep(among=among, keep=keep).removed)


def _movable(look: Look) -> list[OrderState]:
    """Orders blocked on budget that would fit now, or never again."""
    orders = look.many([row.subject for row in look.due(BUDGET, limit=PAGE)])
    found = []
    for order in orders.values():
        if not isinstance(order, OrderState):
            continue
        least = order.terms.hold_least
        accounts = [value.account for value in look.many(order.accounts).values()]
        if any(exhausted(account, least) for account in accounts) or not any(
            shortfall(account, least) for account in accounts
        ):
            found.append(order)
    return found


def _is_needed(look: Look, name: str, now_us: int, keep_us: int) -> bool:
    attempt = look.find(name, AttemptState)
    if attempt is None:
        return False
    if not attempt.ended_us:
        return True
    order = look.order(attempt.order)
    if order is None or attempt.state == "accepted" or order.attempt != name:
        return False
    if order.plan is None:
        return now_us < attempt.ended_us + keep_us
    plan = look.find(order.plan, PlanState)
    return plan is not None and (plan.ended_us is None or now_us < plan.ended_us + keep_us)
