"""What several stages share: moving an order, ending an attempt's hold, and telling dependents.

The end of an order reaches its dependents in pages: one batch tells at most `fanout_per_batch` of them, through the
whole closure and without recursion; what is left stays findable by the cursor that every ended order carries, and a
later `TellDependents` goes on from there. A dependent that has not been told stays blocked, so none can be leased
meanwhile (W15).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from fencepost.core import needs
from fencepost.core.amounts import plus
from fencepost.core.charges import receipt_name
from fencepost.core.decide.batch import Batch
from fencepost.core.evolve import CHILD, PARENT, Edge
from fencepost.core.machines import ATTEMPT, ENDED, LIVE
from fencepost.core.readiness import verdict_of_all
from fencepost.core.reasons import Refusal
from fencepost.core.records.attempt import AttemptMoved, AttemptResult, LateRecord, ResultFacts, VerificationReceipt
from fencepost.core.records.budget import HoldAdjusted, HoldReleased, HoldSettled, HoldUnsettled
from fencepost.core.records.common import Usage
from fencepost.core.records.plan import DependencyObserved, DependentsTold, WorkOrderMoved
from fencepost.core.shares import Shares
from fencepost.core.state import (
    Account,
    AttemptState,
    HoldState,
    OrderState,
    PlanState,
    ReceiptState,
    ScopeState,
    Value,
    receipt_subject,
)
from fencepost.core.strictjson import INT_MAX

TIME = "time_us"
KERNEL = "kernel"
"""Provider of the receipts that the supervisor of an attempt writes itself."""


def version_refusal(subject: str, value: Value, expected: int) -> Refusal | None:
    """Refuse a command whose caller saw another version than the one that stands."""
    if value.version == expected:
        return None
    detail = {"subject": subject, "found": str(value.version), "expected": str(expected)}
    return Refusal(code="version_moved", field="/expected", detail=detail)


def order_of(batch: Batch, name: str) -> OrderState:
    """An order that other state names, so that it exists."""
    order = batch.find(name, OrderState)
    if order is None:
        raise LookupError(f"{name} is named by the state and missing")
    return order


def attempt_of(batch: Batch, name: str) -> AttemptState:
    attempt = batch.find(name, AttemptState)
    if attempt is None:
        raise LookupError(f"{name} is named by the state and missing")
    return attempt


_WITH_ACCOUNT = (ScopeState, PlanState, OrderState)


def account_of(batch: Batch, subject: str) -> Account:
    """The account of a scope, plan or order that a path names."""
    value = batch.get(subject)
    if not isinstance(value, _WITH_ACCOUNT):
        raise LookupError(f"{subject} is named by the state and has no account")
    return value.account


def hold_of(batch: Batch, attempt: AttemptState) -> HoldState:
    hold = batch.find(attempt.hold, HoldState)
    if hold is None:
        raise LookupError(f"{attempt.hold} is named by the state and missing")
    return hold


def move(batch: Batch, name: str, target: str, reason: str, cause: str = "", note: str = "") -> None:
    """Move an order; when it becomes ready, its place in the queue counts from now."""
    order = order_of(batch, name)
    ready_us = batch.now_us if target == "ready" else 0
    batch.emit(
        name,
        WorkOrderMoved(origin=order.state, target=target, reason=reason, ready_us=ready_us, cause=cause, note=note),
    )


def end(batch: Batch, name: str, target: str, reason: str, cause: str = "") -> None:
    """Move an order to a terminal state and tell its dependents."""
    move(batch, name, target, reason, cause)
    tell(batch, name)


def move_attempt(batch: Batch, attempt: AttemptState, *path: str, reason: str, evidence: str = "") -> None:
    """Move an attempt through several states in one batch; one that it only passes shows its own first reason."""
    origin = attempt.state
    for target in path:
        shown = ATTEMPT.reasons.get(target, (reason,))
        batch.emit(
            attempt.attempt,
            AttemptMoved(
                order=attempt.order,
                origin=origin,
                target=target,
                reason=reason if reason in shown else shown[0],
                evidence=evidence,
            ),
        )
        origin = target


def release(batch: Batch, attempt: AttemptState, reason: str) -> None:
    """A reservation that was never activated gives its hold back whole."""
    batch.emit(attempt.hold, HoldReleased(reason=reason))


def lose(batch: Batch, name: str, reason: str, cause: str) -> None:
    """An active order lost its attempt without a report: another one follows if attempts and budget allow."""
    order = order_of(batch, name)
    if exhausted_on_path(batch, order):
        end(batch, name, "budget_exhausted", "budget_exhausted", cause)
    else:
        move(batch, name, "ready", reason, cause)


def shares_now(batch: Batch, order: OrderState) -> Shares:
    plan = batch.find(order.plan, PlanState) if order.plan is not None else None
    return needs.shares_now(order, partial(account_of, batch), 1 if plan is None else plan.orders)


def exhausted_on_path(batch: Batch, order: OrderState) -> tuple[str, tuple[str, ...]] | None:
    """The first account of the path that cannot carry the smallest next hold, with the dimensions."""
    return needs.exhausted_on_path(order, shares_now(batch, order), partial(account_of, batch))


def tell(batch: Batch, first: str) -> None:
    """Carry ends on to dependents, up to the bound of one batch, however many orders end in it."""
    queue = deque([first])
    while queue and batch.fanout_left > 0:
        name = queue.popleft()
        order = order_of(batch, name)
        if order.told_done or order.state not in ENDED:
            continue
        page = batch.dependents(name, order.told, batch.fanout_left)
        for edge in page:
            if _hear(batch, edge, order.state):
                queue.append(edge.dependent)
        batch.fanout_left -= max(len(page), 1)
        last = page[-1].position if page else order.dependents - 1
        batch.emit(name, DependentsTold(position=last, done=last + 1 >= order.dependents))


def _hear(batch: Batch, edge: Edge, outcome: str) -> bool:
    """Tell one of those who are told of an end; return whether that ended it."""
    if edge.group == CHILD:
        child = order_of(batch, edge.dependent)
        if child.state in ENDED or waits_for_effect(child):
            return False
        carry_out(batch, child, "parent_ended", edge.member)
        return True
    if edge.group == PARENT:
        parent = order_of(batch, edge.dependent)
        if parent.state == "waiting" and children_ended(batch, parent):
            move(batch, parent.order, "ready", "children_ended", edge.member)
        return False
    return _observe(batch, edge, outcome)


def children_ended(batch: Batch, parent: OrderState) -> bool:
    """Whether a waiting order waits for children and all of them have ended."""
    wait = parent.wait
    return wait is not None and bool(wait.orders) and all(order_of(batch, n).state in ENDED for n in wait.orders)


def waits_for_effect(order: OrderState) -> bool:
    """While an effect may have happened, reconciliation or a person's word comes before any cancel (G1, W19)."""
    return order.effect_open or order.state in ("reconciling", "unknown_terminal")


def cancel(batch: Batch, order: OrderState, reason: str, note: str = "") -> None:
    """Carry a cancel out on one order that has not ended, and tell of it."""
    carry_out(batch, order, reason, reason, note)
    tell(batch, order.order)


def carry_out(batch: Batch, order: OrderState, reason: str, cause: str, note: str = "") -> None:
    """End one order by a cancel. Commit order decides: what it was doing ends in the same batch. The note stands with
    the end."""
    attempt = attempt_of(batch, order.attempt) if order.attempt is not None else None
    if order.state == "reserved" and attempt is not None:
        move_attempt(batch, attempt, "cancelled_no_effect", reason=reason)
        release(batch, attempt, reason)
    elif order.state == "active" and attempt is not None and attempt.state in LIVE:
        move(batch, order.order, "cancellation_requested", "cancel_requested", cause)
        move_attempt(batch, attempt, "cancellation_requested", "cancelled_no_effect", reason=reason)
        unsettle(batch, attempt)
    elif order.state in ("result_pending", "conflict") and attempt is not None:
        target = "rejected_stale" if order.state == "result_pending" else "rejected_conflict"
        facts = batch.body(attempt.result_seq, AttemptResult).facts
        move_attempt(batch, attempt, target, reason=reason)
        settle_from_result(batch, attempt, facts)
    if order.effect_applied:  # G2: what has happened cannot be cancelled
        move(batch, order.order, "failed", "cancelled_after_effect", cause, note)
    else:
        move(batch, order.order, "cancelled", reason, cause if cause != reason else "", note)


def _observe(batch: Batch, edge: Edge, outcome: str) -> bool:
    """Tell one dependent; return whether that ended it. One that no longer waits has nothing to learn."""
    dependent = order_of(batch, edge.dependent)
    if dependent.state != "blocked_dependency":
        return False
    batch.emit(
        edge.dependent,
        DependencyObserved(
            member=edge.member,
            outcome=outcome,  # type: ignore[arg-type]  # the state is terminal, and those are the outcomes
            satisfies=outcome in edge.outcomes.split(","),
            group=edge.group,
        ),
    )
    return settle_readiness(batch, edge.dependent, edge.member)


def settle_readiness(batch: Batch, name: str, cause: str) -> bool:
    """Move a waiting order by the verdict of its groups; return whether that ended it."""
    order = order_of(batch, name)
    verdict = verdict_of_all(order.groups)
    if verdict == "holds":
        move(batch, name, "ready", "waiting_for_worker", cause)
    elif verdict == "fails":
        cancelled = plan_end(batch, order)
        if cancelled is not None:
            move(batch, name, "cancelled", cancelled, cause)  # the plan's cancel would reach it next
        else:
            move(batch, name, "dependency_failed", "dependency_failed", cause)
        return True
    elif order.state == "submitted":
        move(batch, name, "blocked_dependency", "waiting_for_dependencies", cause)
    return False


class Used(NamedTuple):
    """What receipts say was used. `conservative` says that something was charged as it was held."""

    amounts: dict[str, int]
    receipts: tuple[str, ...]
    conservative: bool


def time_receipt(attempt: AttemptState) -> str:
    """Name of the supervisor's own receipt for the duration of an attempt."""
    return f"{KERNEL}:{attempt.attempt}:time"


def verifier_receipt(attempt: AttemptState) -> str:
    """Name of that for what its verifier took where nobody waited for the verdict any more."""
    return f"{KERNEL}:{attempt.attempt}:verifier"


def time_used(attempt: AttemptState, duration_us: int) -> Usage:
    """That receipt, where the supervisor tells of an end without a result."""
    return Usage(receipt=f"{attempt.attempt}:time", provider=KERNEL, amounts={TIME: duration_us})


def used(batch: Batch, usages: Sequence[Usage], hold: HoldState) -> Used:
    """Add up the receipts that this hold has not booked yet; one that is named twice counts once.

    An unknown dimension is never zero: it is charged as it is held.
    """
    amounts: dict[str, int] = {}
    receipts: list[str] = []
    unknown: set[str] = set()
    for usage in usages:
        name = receipt_name(usage)
        if name in hold.receipts or name in receipts or _is_booked(batch, usage.provider, name):
            continue
        receipts.append(name)
        amounts = plus(amounts, usage.amounts)
        unknown |= {dimension for dimension in usage.unknown if hold.held.get(dimension)}
    for dimension in sorted(unknown):
        amounts[dimension] = max(amounts.get(dimension, 0), hold.held[dimension])
    known = {dimension: min(amount, INT_MAX) for dimension, amount in amounts.items() if amount}
    return Used(known, tuple(receipts), bool(unknown))


def _is_booked(batch: Batch, provider: str, name: str) -> bool:
    """Whether this receipt of a provider was booked before, on whatever hold."""
    return provider != KERNEL and batch.find(receipt_subject(name), ReceiptState) is not None


def _names_time(usages: Sequence[Usage]) -> bool:
    return any(TIME in usage.amounts or TIME in usage.unknown for usage in usages)


def settle_from_result(batch: Batch, attempt: AttemptState, facts: ResultFacts) -> None:
    """End the hold of a reported attempt: charge its receipts and its verifier, free the rest, in one record.

    Time is never unknown, since its supervisor measured it; no receipt in another dimension is known zero, since
    whatever a command spends passes the kernel.
    """
    hold = hold_of(batch, attempt)
    if hold.state != "held":
        return
    amounts, receipts, conservative = used(batch, facts.usage, hold)
    if not _names_time(facts.usage) and facts.duration_us:
        amounts = {**amounts, TIME: facts.duration_us}
    if attempt.verification_seq:
        duration_us = batch.body(attempt.verification_seq, VerificationReceipt).duration_us
        amounts = plus(amounts, {TIME: duration_us} if duration_us else {})
    amounts = {dimension: min(amount, INT_MAX) for dimension, amount in amounts.items()}
    batch.emit(attempt.hold, HoldSettled(charged=amounts, basis="receipts", receipts=receipts, flagged=conservative))


def settle_late(batch: Batch, attempt: AttemptState, usages: Sequence[Usage]) -> None:
    """Book receipts that came late: they end an unsettled hold, or adjust one that has ended, each once.

    A hold that is still held waits for its ordinary settlement. No more receipts than the bound are ever booked.
    """
    hold = hold_of(batch, attempt)
    amounts, receipts, conservative = used(batch, usages, hold)
    if not receipts or hold.state in ("held", "released"):
        return
    if len(hold.receipts) + len(receipts) > batch.given.limits.receipts_per_hold_max:
        return
    if hold.state == "unsettled":
        estimated_us = 0
        if not _names_time(usages):
            amounts, conservative, estimated_us = plus(amounts, hold.held), True, hold.held.get(TIME, 0)
        settled = HoldSettled(
            charged=amounts, basis="receipts", receipts=receipts, flagged=conservative, estimated_us=estimated_us
        )
        batch.emit(attempt.hold, settled)
        return
    # What was charged as an estimate accounts for the first receipts of time; only what passes it is new.
    time_us = amounts.pop(TIME, 0)
    explained_us = min(time_us, hold.estimated_us)
    if time_us > explained_us:
        amounts[TIME] = time_us - explained_us
    batch.emit(attempt.hold, HoldAdjusted(charged=amounts, receipts=receipts, explained_us=explained_us))


def late_usages(batch: Batch, attempt: AttemptState) -> list[Usage]:
    """Receipts of ends that were told after the lease had lapsed and before anybody ended it: not booked yet."""
    usages: list[Usage] = []
    for what, _, seq in attempt.late:
        if what in ("result", "stop", "yield"):
            late = batch.body(seq, LateRecord)
            usages.extend((time_used(attempt, late.duration_us),) if late.facts is None else late.facts.usage)
    return usages


def unsettle(batch: Batch, attempt: AttemptState) -> None:
    """A cancelled attempt's end is not proved yet: its time stays held until its holder says, or a deadline.

    All other dimensions are known zero, since spending of a command passes the kernel.
    """
    hold = hold_of(batch, attempt)
    freed = tuple(sorted(dimension for dimension in hold.held if dimension != TIME))
    settle_by_us = attempt.lease_us + batch.given.limits.lease_us
    batch.emit(attempt.hold, HoldUnsettled(dimensions=(TIME,), freed=freed, settle_by_us=settle_by_us))
    settle_late(batch, attempt, late_usages(batch, attempt))


def plan_end(batch: Batch, order: OrderState) -> str | None:
    """The reason that an accepted cancel of the plan gives to its orders; None while there is none."""
    plan = batch.find(order.plan, PlanState) if order.plan is not None else None
    if plan is None or not plan.cancel:
        return None
    return "deadline_passed" if plan.cancel == "deadline_passed" else "plan_cancelled"


def plan_refusal(batch: Batch, order: OrderState) -> Refusal | None:
    """A cancelled plan and one past its deadline get no new reservation, activation or renewal."""
    if order.plan is None:
        return None
    plan = batch.find(order.plan, PlanState)
    if plan is None:
        raise LookupError(f"{order.plan} is named by the state and missing")
    return plan_over(batch, plan)


def plan_over(batch: Batch, plan: PlanState) -> Refusal | None:
    if plan.cancel == "deadline_passed" or (plan.deadline_us is not None and batch.now_us >= plan.deadline_us):
        return Refusal(code="deadline_passed", detail={"name": plan.name})
    if plan.cancel:
        return Refusal(code="plan_cancelled", detail={"name": plan.name})
    return None
