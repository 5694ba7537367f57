"""The revise stage: cancels, deadlines, ceilings (W19, W18, C25; decisions 4, 10, 16).

A cancel is a request, and commit order decides. Before anything outside can have happened it ends the attempt in the
same batch, because the revoked fence makes any later effect impossible; what the attempt used is settled when its
holder says so. A plan's cancel reaches its orders in pages, and stops reservations and renewals at once.
"""

from __future__ import annotations

from typing import Literal

from fencepost.core.commands import (
    AdvanceCancel,
    CancelOrder,
    CancelPlan,
    EnforceDeadline,
    SetBudget,
    TellDependents,
)
from fencepost.core.decide import ending
from fencepost.core.decide.batch import Batch, Decided
from fencepost.core.decide.clock import prove_deadline
from fencepost.core.decide.drafts import ceilings_refusal
from fencepost.core.index import TASK
from fencepost.core.machines import ENDED
from fencepost.core.reasons import Refusal
from fencepost.core.records.budget import BudgetCeilingSet
from fencepost.core.records.plan import PlanCancelAdvanced, PlanCancelRequested
from fencepost.core.state import OrderState, PlanState, ScopeState

_PAST_ALL = 2**62  # greater than every rank


def cancel_order(batch: Batch, command: CancelOrder) -> Decided | Refusal:
    order = batch.find(command.order, OrderState)
    if order is None:
        return Refusal(code="not_found", field="/order", detail={"subject": command.order})
    if order.state in ENDED:
        return Refusal(code="order_ended", field="/order", detail={"subject": order.order, "state": order.state})
    if ending.waits_for_effect(order):
        detail = {"subject": order.order, "state": order.state, "needed": "an effect that is resolved"}
        return Refusal(code="order_state", field="/order", detail=detail)
    ending.cancel(batch, order, "cancelled_by_request", command.note)
    after = ending.order_of(batch, order.order)
    return batch.decided({"order": order.order, "state": after.state, "reason": after.reason})


def cancel_plan(batch: Batch, command: CancelPlan) -> Decided | Refusal:
    plan = batch.find(command.plan, PlanState)
    if plan is None:
        return Refusal(code="not_found", field="/plan", detail={"subject": command.plan})
    if plan.open == 0:
        return Refusal(code="plan_ended", field="/plan", detail={"name": plan.name})
    if plan.cancel:
        return batch.decided({"plan": plan.plan, "open": plan.open, "done": plan.cancel_done})
    return _start(batch, plan, "cancel_requested", command.note)


def enforce_deadline(batch: Batch, command: EnforceDeadline) -> Decided | Refusal:
    plan = batch.find(command.plan, PlanState)
    if plan is None:
        return Refusal(code="not_found", field="/plan", detail={"subject": command.plan})
    refusal = ending.version_refusal(plan.plan, plan, command.expected)
    if refusal is not None:
        return refusal
    if plan.open == 0:
        return Refusal(code="plan_ended", field="/plan", detail={"name": plan.name})
    if plan.cancel:
        return Refusal(code="plan_cancelled", field="/plan", detail={"name": plan.name})
    if plan.deadline_us is None:
        return Refusal(code="not_due", field="/plan", detail={"subject": plan.plan})
    refusal = prove_deadline(batch, "plan_deadline", "plan", plan.plan, plan.version, plan.deadline_us)
    if refusal is not None:
        return refusal
    return _start(batch, plan, "deadline_passed", "")


def _start(batch: Batch, plan: PlanState, reason: Literal["cancel_requested", "deadline_passed"], note: str) -> Decided:
    batch.emit(plan.plan, PlanCancelRequested(plan=plan.plan, reason=reason, note=note))
    return _advance(batch, plan.plan)


def advance_cancel(batch: Batch, command: AdvanceCancel) -> Decided | Refusal:
    plan = batch.find(command.plan, PlanState)
    if plan is None:
        return Refusal(code="not_found", field="/plan", detail={"subject": command.plan})
    if plan.cancel_done:
        return batch.decided({"plan": plan.plan, "open": plan.open, "done": True})
    return _advance(batch, plan.plan)


def _advance(batch: Batch, name: str) -> Decided:
    plan = _plan(batch, name)
    limit = batch.given.limits.cancel_per_batch
    after = (plan.cancel_position, _PAST_ALL, "~")
    page = batch.due(TASK, _PAST_ALL, limit, name, after)
    for row in page:
        order = ending.order_of(batch, row.subject)
        reason = ending.plan_end(batch, order) or "plan_cancelled"
        if order.state not in ENDED and not ending.waits_for_effect(order):
            ending.cancel(batch, order, reason)
    position = page[-1].due_us if page else plan.cancel_position
    done = len(page) < limit
    batch.emit(name, PlanCancelAdvanced(position=position, done=done))
    return batch.decided({"plan": name, "open": _plan(batch, name).open, "done": done})


def _plan(batch: Batch, name: str) -> PlanState:
    plan = batch.find(name, PlanState)
    if plan is None:
        raise LookupError(f"{name} is named by the state and missing")
    return plan


def tell_dependents(batch: Batch, command: TellDependents) -> Decided | Refusal:
    order = batch.find(command.order, OrderState)
    if order is None:
        return Refusal(code="not_found", field="/order", detail={"subject": command.order})
    if order.state in ENDED and not order.told_done:
        ending.tell(batch, order.order)
    return batch.decided({"order": order.order, "done": ending.order_of(batch, order.order).told_done})


def set_budget(batch: Batch, command: SetBudget) -> Decided | Refusal:
    value = batch.get(command.account)
    if not isinstance(value, ScopeState | PlanState | OrderState):
        return Refusal(code="not_found", field="/account", detail={"subject": command.account})
    expected = command.expected or value.version
    refusal = ending.version_refusal(command.account, value, expected)
    refusal = refusal or ceilings_refusal(command.ceilings, "/ceilings")
    if refusal is not None:
        return refusal
    batch.emit(command.account, BudgetCeilingSet(ceilings=command.ceilings, note=command.note))
    return batch.decided({"account": command.account})
