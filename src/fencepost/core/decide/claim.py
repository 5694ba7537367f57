"""The claim stage: one reservation allocates attempt, fence, generation and budget, and grants nothing (W2, W18, C3).

The checks run in one order: worker, order, version, clock, plan, state, executor, dependencies, budget. A budget that
cannot carry the order is written down in the same batch, so that a blocked order is found again when budget comes free
and never stands in the way of others.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from fencepost.core import needs
from fencepost.core.commands import ReleaseReservation, Reserve, ReserveNext
from fencepost.core.decide import ending
from fencepost.core.decide.batch import Batch, Decided
from fencepost.core.decide.clock import blocked
from fencepost.core.index import CLAIM, Row
from fencepost.core.readiness import verdict_of_all
from fencepost.core.reasons import Refusal
from fencepost.core.records.attempt import AttemptReservation
from fencepost.core.state import AttemptState, OrderState, PlanState, WorkerState


def reserve(batch: Batch, command: Reserve) -> Decided | Refusal:
    worker = batch.find(command.worker, WorkerState)
    if worker is None:
        return Refusal(code="not_found", field="/worker", detail={"subject": command.worker})
    order = batch.find(command.order, OrderState)
    if order is None:
        return Refusal(code="not_found", field="/order", detail={"subject": command.order})
    moved = ending.version_refusal(order.order, order, command.expected)
    if moved is not None:
        return moved
    outcome = _reserve_one(batch, order, worker)
    return outcome if isinstance(outcome, Refusal) else batch.decided({"reservations": [outcome]})


def reserve_next(batch: Batch, command: ReserveNext) -> Decided | Refusal:
    worker = batch.find(command.worker, WorkerState)
    if worker is None:
        return Refusal(code="not_found", field="/worker", detail={"subject": command.worker})
    refusal = blocked(batch.clock)
    if refusal is not None:
        return refusal
    count = min(command.count, batch.given.limits.reserve_next_max)
    made: list[dict[str, Any]] = []
    before = len(batch.facts)
    for row in _queue(batch, 2 * count + 8, command.plan):
        order = ending.order_of(batch, row.subject)
        outcome = _reserve_one(batch, order, worker)
        if not isinstance(outcome, Refusal):
            made.append(outcome)
        if len(made) == count:
            break
    # What it passed over may have left the queue. That is written down, and nothing that was written is a refusal that
    # may pass: the next look finds the queue without it.
    return batch.decided({"reservations": made}) if made or len(batch.facts) > before else Refusal(code="nothing_ready")


def _queue(batch: Batch, page: int, plan: str | None) -> Iterator[Row]:
    """The queue in its order, page by page, so that a row that may not run now hides none behind it.

    Bounded by `page_max` rows: orders that turn out to be blocked by budget leave the queue on the way. Those of plans
    that are being cancelled do not count, since they leave it by themselves; two of the largest such plans are passed.
    """
    limits = batch.given.limits
    after: tuple[int, int, str] | None = None
    looked = passed = 0
    while looked < limits.page_max and passed <= 2 * limits.plan_orders_max:
        rows = batch.due(CLAIM, batch.now_us, page, plan, after)
        live = [row for row in rows if not _is_over(batch, row.group)]
        yield from live
        if len(rows) < page:
            return
        after = (rows[-1].due_us, rows[-1].rank, rows[-1].subject)
        looked += len(live)
        passed += len(rows) - len(live)
        if not live:
            page = max(page, limits.page_max)


def _is_over(batch: Batch, plan: str) -> bool:
    known = batch.find(plan, PlanState) if plan else None
    return known is not None and ending.plan_over(batch, known) is not None


def _reserve_one(batch: Batch, order: OrderState, worker: WorkerState) -> dict[str, Any] | Refusal:
    refusal = blocked(batch.clock) or ending.plan_refusal(batch, order)
    if refusal is not None:
        return refusal
    if order.state != "ready":
        detail = {"subject": order.order, "state": order.state, "needed": "ready"}
        return Refusal(code="order_state", field="/order", detail=detail)
    if order.terms.work_kind not in worker.executors:
        detail = {"subject": order.order, "executor": order.terms.work_kind}
        return Refusal(code="executor_unsupported", field="/worker", detail=detail)
    if verdict_of_all(order.groups) != "holds":
        raise LookupError(f"{order.order} is ready and its dependencies do not hold")
    accounts = partial(ending.account_of, batch)
    shares = ending.shares_now(batch, order)
    exhausted = next(needs.exhaustions(order, shares, accounts), None)
    if exhausted is not None:
        ending.end(batch, order.order, "budget_exhausted", "budget_exhausted", exhausted.account)
        return Refusal(code="budget_exhausted", detail=exhausted.detail)
    wanted = needs.wanted(order, shares, accounts)
    found = needs.obstacle(order, wanted, accounts)
    if found is not None:
        ending.move(batch, order.order, "blocked_budget", found.code, found.account)
        return Refusal(code=found.code, detail=found.detail)
    return _write(batch, order, worker, wanted)


def in_the_way(batch: Batch, order: OrderState) -> needs.Obstacle | None:
    """Why the next attempt's hold cannot be had now, None when it can."""
    accounts = partial(ending.account_of, batch)
    return needs.obstacle(order, needs.wanted(order, ending.shares_now(batch, order), accounts), accounts)


def _write(batch: Batch, order: OrderState, worker: WorkerState, amounts: dict[str, int]) -> dict[str, Any]:
    limits = batch.given.limits
    attempt = batch.name("attempt")
    hold = batch.name("hold")
    generation = order.generation + 1
    deadline_us = batch.now_us + limits.reservation_us
    batch.emit(
        attempt,
        AttemptReservation(
            order=order.order,
            plan=order.plan,
            spec=order.spec,
            order_version=order.version,
            ordinal=order.ordinal + 1,
            generation=generation,
            fence=generation,
            worker=worker.worker,
            host=worker.host,
            boot_id=worker.boot_id,
            hold=hold,
            amounts=amounts,
            accounts=order.accounts,
            activation_deadline_us=deadline_us,
        ),
    )
    return {
        "attempt": attempt,
        "order": order.order,
        "plan": order.plan,
        "task": order.task,
        "spec": order.spec,
        "spec_seq": order.spec_seq,
        "fence": generation,
        "version": 1,
        "ordinal": order.ordinal + 1,
        "activation_deadline_us": deadline_us,
        "time_limit_us": amounts["time_us"],
    }


def release(batch: Batch, command: ReleaseReservation) -> Decided | Refusal:
    """A holder gives an unused reservation back: nothing is charged, the order may run again at once."""
    attempt = batch.find(command.attempt, AttemptState)
    if attempt is None:
        return Refusal(code="not_found", field="/attempt", detail={"subject": command.attempt})
    if attempt.fence != command.fence:
        return Refusal(code="stale_fence", field="/fence", detail={"subject": attempt.attempt})
    if attempt.state != "reserved":
        detail = {"subject": attempt.attempt, "state": attempt.state, "needed": "reserved"}
        return Refusal(code="attempt_state", field="/attempt", detail=detail)
    ending.move_attempt(batch, attempt, "cancelled_no_effect", reason="reservation_released")
    ending.release(batch, attempt, "reservation_released")
    ending.move(batch, attempt.order, "ready", "reservation_released", attempt.attempt)
    return batch.decided({"order": attempt.order})
