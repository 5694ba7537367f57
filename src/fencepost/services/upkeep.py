"""Small stages that keep a scope moving: backoffs that end, budgets that come free, ends that reach dependents,
cancels that reach a plan's orders, deadlines, and folders that nobody needs any more.

Correctness rests on none of them: whatever a crash leaves is found again by the same questions.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from fencepost.core.amounts import exhausted, plus, shortfall
from fencepost.core.commands import (
    AdvanceCancel,
    AnyCommand,
    EndBackoff,
    EnforceDeadline,
    Reexamine,
    TellDependents,
)
from fencepost.core.index import BUDGET, CLAIM, DEADLINE, RETRY, REVISE, TELL
from fencepost.core.state import Account, AttemptState, OrderState, PlanState
from fencepost.kernel.read import Look
from fencepost.ports.journal import Cursor
from fencepost.services.means import Means, estimated_now_us, remove_if_free

PAGE = 64
BLOCKED_PAGE = 256  # orders blocked on budget that are examined in one look
_ATTEMPT_LOCK = re.compile(r"(attempt_[0-9a-f]{32})(?:\.[a-z]+)?\.lock")
_WORKER_LOCK = re.compile(r"worker_[0-9a-f]{32}\.lock")


class Upkeep:
    """Looks for what is due and issues the command for it."""

    def __init__(self, means: Means) -> None:
        self._means = means
        self._blocked = Blocked()

    @property
    def unfinished(self) -> bool:
        """Whether a look has left something unexamined that the next one should see soon."""
        return self._blocked.unfinished

    def run_once(self) -> int:
        """Return how many commands moved something."""
        reading = self._means.reading()
        with self._means.kernel.reader.look() as look:
            now_us = estimated_now_us(look.clock(), reading)
            backoffs = look.many([row.subject for row in look.due(RETRY, now_us=now_us, limit=PAGE)])
            deadlines = look.many([row.subject for row in look.due(DEADLINE, now_us=now_us, limit=PAGE)])
            tell = [row.subject for row in look.due(TELL, limit=PAGE)]
            revise = [row.subject for row in look.due(REVISE, limit=PAGE)]
            blocked = self._blocked.movable(look)
        commands: list[AnyCommand] = []
        commands += [EndBackoff(order=order.order, expected=order.version) for order in backoffs.values()]
        commands += [EnforceDeadline(plan=plan.plan, expected=plan.version) for plan in deadlines.values()]
        commands += [TellDependents(order=name) for name in tell]
        commands += [AdvanceCancel(plan=name) for name in revise]
        commands += [Reexamine(order=order.order, expected=order.version) for order in blocked]
        kernel = self._means.kernel
        receipts = kernel.write_many([kernel.request("reducer", command) for command in commands])
        return sum(receipt.ok for receipt in receipts)

    def sweep(self) -> int:
        """Remove what ended attempts and workers left: folders, but the last failed one of each order for a while
        (product page), and lock files. Returns how many went.

        An attempt that this scope does not know may be another scope's, and is left alone.
        """
        among = self._means.workspaces.list_attempts()
        locks = sorted(os.listdir(self._means.locks))
        named = {match[1] for name in locks if (match := _ATTEMPT_LOCK.fullmatch(name))}
        keep: list[str] = []
        ended: set[str] = set()
        with self._means.kernel.reader.look() as look:
            now_us = estimated_now_us(look.clock(), self._means.reading())
            keep_us = self._means.kernel.limits.keep_failed_us
            for name in sorted(named.union(among)):
                attempt = look.find(name, AttemptState)
                if attempt is not None and attempt.ended_us:
                    ended.add(name)
                if attempt is None or _is_needed(look, attempt, now_us, keep_us):
                    keep.append(name)
        removed = len(self._means.workspaces.sweep(among=among, keep=keep).removed) if among else 0
        for name in locks:
            match = _ATTEMPT_LOCK.fullmatch(name)
            if (match and match[1] in ended) or _WORKER_LOCK.fullmatch(name):
                removed += remove_if_free(self._means.locks / name)
        return removed


class Blocked:
    """Which orders that wait for budget could go on.

    Woken are at most as many as could fit, so that budget for one does not wake a thousand. A look examines one page;
    the next one goes on behind it, and when a whole round moves nothing the next begins after something was written.
    """

    def __init__(self) -> None:
        self._after: Cursor | None = None
        self._began_at = -1  # head that the round began at
        self._quiet_at = -1  # head that a whole round found nothing at
        self._found = False  # whether this round found anything
        self.unfinished = False

    def movable(self, look: Look) -> list[OrderState]:
        """Orders of the next page that would fit now, all of them together, or that can never fit again."""
        if self._after is None and look.head.seq == self._quiet_at:
            return []
        if self._after is None:
            self._began_at, self._found = look.head.seq, False
        rows = look.due(BUDGET, limit=BLOCKED_PAGE, after=self._after)
        found = self._examine(look, [row.subject for row in rows]) if rows else []
        self._found = self._found or bool(found)
        self.unfinished = len(rows) == BLOCKED_PAGE
        if self.unfinished:
            last = rows[-1]
            self._after = Cursor(last.due_us, last.rank, last.subject)
            return found
        self._after = None
        if not self._found and self._began_at == look.head.seq:
            self._quiet_at = look.head.seq
        else:
            self.unfinished = bool(rows)
        return found

    def _examine(self, look: Look, names: list[str]) -> list[OrderState]:
        waiting = _orders(look, [row.subject for row in look.due(CLAIM, limit=PAGE)])
        orders = _orders(look, names)
        subjects = {subject for order in (*waiting, *orders) for subject in order.accounts}
        accounts = {name: value.account for name, value in look.many(sorted(subjects)).items()}
        promised: dict[str, dict[str, int]] = {}
        for order in waiting:
            _promise(promised, order, _wanted(order, accounts))
        found = []
        for order in orders:
            if any(exhausted(accounts[subject], order.terms.hold_least) for subject in order.accounts):
                found.append(order)
                continue
            wanted = _wanted(order, accounts)
            if not any(
                shortfall(accounts[subject], plus(wanted, promised.get(subject, {}))) for subject in order.accounts
            ):
                _promise(promised, order, wanted)
                found.append(order)
        return found


def _orders(look: Look, names: list[str]) -> list[OrderState]:
    values = look.many(names)
    return [value for name in names if isinstance(value := values.get(name), OrderState)]


def _promise(promised: dict[str, dict[str, int]], order: OrderState, amounts: dict[str, int]) -> None:
    for subject in order.accounts:
        promised[subject] = plus(promised.get(subject, {}), amounts)


def _wanted(order: OrderState, accounts: Mapping[str, Account]) -> dict[str, int]:
    """What the next attempt will ask for: its share, at most what its accounts have not charged yet."""
    amounts = dict(order.terms.hold)
    for dimension, least in order.terms.hold_least.items():
        for subject in order.accounts:
            ceiling = accounts[subject].ceiling.get(dimension)
            if ceiling is not None:
                left = ceiling - accounts[subject].charged.get(dimension, 0)
                amounts[dimension] = min(amounts[dimension], max(left, least))
    return amounts


def _is_needed(look: Look, attempt: AttemptState, now_us: int, keep_us: int) -> bool:
    if not attempt.ended_us:
        return True
    order = look.order(attempt.order)
    if order is None or attempt.state == "accepted" or order.attempt != attempt.attempt:
        return False
    if order.plan is None:
        return now_us < attempt.ended_us + keep_us
    plan = look.find(order.plan, PlanState)
    return plan is not None and (plan.ended_us is None or now_us < plan.ended_us + keep_us)
