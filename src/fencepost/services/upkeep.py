"""Small stages that keep a scope moving: backoffs and waits that end, budgets that come free, ends that reach
dependents, cancels that reach a plan's orders, deadlines, and folders that nobody needs any more.

Correctness rests on none of them: whatever a crash leaves is found again by the same questions.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from msgspec.structs import replace

from fencepost.core import needs
from fencepost.core.amounts import plus
from fencepost.core.commands import (
    AdvanceCancel,
    AnyCommand,
    EndBackoff,
    EndWait,
    EnforceDeadline,
    RecordVerification,
    Reexamine,
    TellDependents,
)
from fencepost.core.decide.ending import verifier_receipt
from fencepost.core.index import BUDGET, CLAIM, DEADLINE, RETRY, REVISE, TELL, WAIT
from fencepost.core.shares import Shares
from fencepost.core.state import Account, AttemptState, HoldState, OrderState, PlanState
from fencepost.kernel.read import Look
from fencepost.ports.journal import Cursor
from fencepost.services.means import Means, attempt_lock, estimated_now_us, finish_lock, verify_lock, worker_lock
from fencepost.services.verifications import Verifications

PAGE = 64
BLOCKED_PAGE = 256  # orders blocked on budget that are examined in one look
_ATTEMPT_LOCK = re.compile(r"(attempt_[0-9a-f]{32})(?:\.[a-z]+){0,2}\.lock")
_WORKER_LOCK = re.compile(r"(?:plan_[0-9a-f]{32}\.)?worker_[0-9a-f]{32}\.lock")


class Upkeep:
    """Looks for what is due and issues the command for it."""

    def __init__(self, means: Means) -> None:
        self._means = means
        self._blocked = Blocked()
        self._verifications = Verifications(means)

    @property
    def unfinished(self) -> bool:
        """Whether a look has left something unexamined that the next one should see soon."""
        return self._blocked.unfinished

    def is_quiet(self, look: Look) -> bool:
        """Whether everything that waits for budget has been examined since the last record, and cannot go on."""
        return self._blocked.is_quiet_at(look.head.seq) or not look.due(BUDGET, limit=1)

    def run_once(self) -> int:
        """Return how many commands moved something."""
        reading = self._means.reading()
        with self._means.kernel.reader.look() as look:
            now_us = estimated_now_us(look.clock(), reading)
            backoffs = look.many([row.subject for row in look.due(RETRY, now_us=now_us, limit=PAGE)])
            waits = look.many([row.subject for row in look.due(WAIT, now_us=now_us, limit=PAGE)])
            deadlines = look.many([row.subject for row in look.due(DEADLINE, now_us=now_us, limit=PAGE)])
            tell = [row.subject for row in look.due(TELL, limit=PAGE)]
            revise = [row.subject for row in look.due(REVISE, limit=PAGE)]
            blocked = self._blocked.movable(look)
        commands: list[AnyCommand] = []
        commands += [EndBackoff(order=order.order, expected=order.version) for order in backoffs.values()]
        commands += [EndWait(order=order.order, expected=order.version) for order in waits.values()]
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
        locks = self._means.locks.names()
        named = {match[1] for name in locks if (match := _ATTEMPT_LOCK.fullmatch(name))}
        keep: list[str] = []
        ended: dict[str, AttemptState] = {}
        with self._means.kernel.reader.look() as look:
            now_us = estimated_now_us(look.clock(), self._means.reading())
            keep_us = self._means.kernel.limits.keep_failed_us
            for name in sorted(named.union(among)):
                attempt = look.find(name, AttemptState)
                if attempt is not None and attempt.ended_us:
                    ended[name] = attempt
                if attempt is None or _is_needed(look, attempt, now_us, keep_us):
                    keep.append(name)
        for name in among:
            if name in ended:
                self._tell_runs(ended[name])
        removed = len(self._means.workspaces.sweep(among=among, keep=keep).removed) if among else 0
        for name in locks:
            match = _ATTEMPT_LOCK.fullmatch(name)
            if match and match[1] in ended and name in _supervised(match[1]):
                self._end_what_is_left(ended[match[1]], name, now_us)
            if (match and match[1] in ended) or _WORKER_LOCK.fullmatch(name):
                removed += self._means.locks.remove_if_free(name)
        return removed

    def _tell_runs(self, attempt: AttemptState) -> None:
        """What a verifier took that came to no verdict before its order ended stands in the note of its folders alone:
        it is told, and charged as what comes late is, before they go. Raises StorageError."""
        if not attempt.result or attempt.verification_seq:
            return
        locks = self._means.locks
        if any(locks.is_held(finish_lock(attempt.attempt, late=late)) for late in (False, True)):
            return  # one runs still, and its worker tells
        runs = self._verifications.read(attempt)
        if not runs.used_us:
            return
        with self._means.kernel.reader.look() as look:
            hold = look.find(attempt.hold, HoldState)
        if hold is not None and verifier_receipt(attempt) in hold.receipts:
            return
        duration_us = min(runs.used_us, self._means.kernel.limits.duration_max_us)
        command = RecordVerification(
            attempt=attempt.attempt, result=attempt.result, outcome="error", duration_us=duration_us
        )
        self._means.issue("verifier", command)

    def _end_what_is_left(self, attempt: AttemptState, lock: str, now_us: int) -> None:
        """An ended attempt whose lock is held still has somebody. A worker that lives ends its tree by itself, and has
        a lease's time for that; where it was killed with its keeper and the lease was ended from elsewhere, nobody has.
        """
        locks = self._means.locks
        late = now_us > attempt.ended_us + self._means.kernel.limits.lease_us
        if locks.is_held(lock) and (late or not locks.is_held(worker_lock(attempt.worker))):
            self._means.executor.end_holder(locks.path(lock), attempt.attempt, attempt.boot_id, same_host=True)


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

    def is_quiet_at(self, sequence: int) -> bool:
        """Whether a whole round at this head has found nothing that could go on."""
        return self._after is None and self._quiet_at == sequence

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
        values = look.many(sorted(subjects))
        promises = _Promises({name: value.account for name, value in values.items()})
        for order in waiting:
            plan = values.get(order.plan or "")
            if plan is None or not plan.cancel:
                promises.promise(order, promises.wanted(order, plan))
        found = []
        for order in orders:
            plan = values.get(order.plan or "")
            if promises.is_exhausted(order, plan):
                found.append(order)
                continue
            wanted = promises.wanted(order, plan)
            obstacle = needs.obstacle(order, wanted, promises.left)
            if obstacle is None:
                promises.promise(order, wanted)
                found.append(order)
            elif "currency_not_budgeted" in (obstacle.code, order.reason) and obstacle.code != order.reason:
                found.append(order)  # it moves no further, but it says what holds it up now
        return found


class _Promises:
    """Accounts as they are, and as those who may go on before would leave them."""

    def __init__(self, accounts: Mapping[str, Account]) -> None:
        self._accounts = accounts
        self._promised: dict[str, dict[str, int]] = {}

    def left(self, subject: str) -> Account:
        account = self._accounts[subject]
        promised = self._promised.get(subject)
        return account if promised is None else replace(account, held=plus(account.held, promised))

    def is_exhausted(self, order: OrderState, plan: PlanState | None) -> bool:
        return needs.exhausted_on_path(order, self._shares(order, plan), self._account) is not None

    def wanted(self, order: OrderState, plan: PlanState | None) -> dict[str, int]:
        return needs.wanted(order, self._shares(order, plan), self._account)

    def promise(self, order: OrderState, amounts: Mapping[str, int]) -> None:
        for subject in order.accounts:
            self._promised[subject] = plus(self._promised.get(subject, {}), amounts)

    def _account(self, subject: str) -> Account:
        return self._accounts[subject]

    def _shares(self, order: OrderState, plan: PlanState | None) -> Shares:
        return needs.shares_now(order, self._account, 1 if plan is None else plan.orders)


def _supervised(attempt: str) -> tuple[str, ...]:
    """Locks that supervisors hold while anything of an attempt or of its verifiers lives."""
    return (attempt_lock(attempt), verify_lock(attempt), verify_lock(attempt, late=True))


def _orders(look: Look, names: list[str]) -> list[OrderState]:
    values = look.many(names)
    return [value for name in names if isinstance(value := values.get(name), OrderState)]


def _is_needed(look: Look, attempt: AttemptState, now_us: int, keep_us: int) -> bool:
    if not attempt.ended_us:
        return True
    order = look.order(attempt.order)
    if order is None or attempt.state == "accepted":
        return False
    others = [other for other in look.attempts(order.order) if other.state != "accepted"]
    if others[-1].attempt != attempt.attempt:
        return False
    if order.plan is None:
        return now_us < attempt.ended_us + keep_us
    plan = look.find(order.plan, PlanState)
    return plan is not None and (plan.ended_us is None or now_us < plan.ended_us + keep_us)
