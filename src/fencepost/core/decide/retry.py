"""Retry on request: a backoff made due, or a replacement for an order that ended without being applied.

A replacement has the same contract and lineage and a new identity, under the constitution in force; the order that
it replaces stays as it is. What is paid for is kept: the replacement goes on from the last checkpoint, and has the
ceilings that a person has set since. With its dependents, also those that ended because of it are replaced, so that the
graph is whole again.
"""

from __future__ import annotations

from collections import deque

from msgspec.structs import replace

from fencepost.core.commands import RetryOrder
from fencepost.core.decide import ending
from fencepost.core.decide.admit import open_plans_refusal, place
from fencepost.core.decide.batch import Batch, Decided
from fencepost.core.decide.specs import policy_of, sealed_spec
from fencepost.core.machines import ENDED
from fencepost.core.reasons import Refusal
from fencepost.core.records.budget import BudgetCeilingSet
from fencepost.core.records.plan import FromOrder, Group, Member, WorkOrderSpec
from fencepost.core.state import SCOPE, NameState, OrderState, PlanState, name_subject


def retry(batch: Batch, command: RetryOrder) -> Decided | Refusal:
    order = batch.find(command.order, OrderState)
    if order is None:
        return Refusal(code="not_found", field="/order", detail={"subject": command.order})
    if order.state == "retry_wait":
        if command.from_start:
            detail = {"subject": order.order, "state": "retry_wait, and its next attempt goes on from what it saved"}
            return Refusal(code="retry_refused", field="/from_start", detail=detail)
        refusal = ending.plan_refusal(batch, order)
        if refusal is not None:
            return refusal
        ending.move(batch, order.order, "ready", "retry_requested")
        return batch.decided({"order": order.order, "replacements": []})
    if order.replaced_by is not None:
        detail = {"subject": order.order, "other": order.replaced_by}
        return Refusal(code="already_replaced", field="/order", detail=detail)
    if order.state not in ENDED or order.state in ("applied", "unknown_terminal"):
        detail = {"subject": order.order, "state": order.state}
        return Refusal(code="retry_refused", field="/order", detail=detail)
    if order.parent is not None:
        # Only its parent knows what it is for: it finds the one that ended, and asks for another under another name.
        state = f"a child of {order.parent}, which may ask for another one, or be retried itself"
        detail = {"subject": order.order, "state": state}
        return Refusal(code="retry_refused", field="/order", detail=detail)
    refusal = ending.plan_refusal(batch, order) or _reopens_too_many(batch, order) or _still_fails(batch, order)
    if refusal is not None:
        return refusal
    chosen = _closure(batch, order) if command.with_dependents else [order.order]
    if isinstance(chosen, Refusal):
        return chosen
    new = {old: batch.name("order") for old in chosen}
    for old in chosen:
        _replace(batch, ending.order_of(batch, old), new, from_start=command.from_start)
    made = [
        {"order": new[old], "replaces": old, "checkpoints": ending.order_of(batch, new[old]).checkpoint_number}
        for old in chosen
    ]
    return batch.decided({"order": new[order.order], "replacements": made})


def _reopens_too_many(batch: Batch, order: OrderState) -> Refusal | None:
    plan = batch.find(order.plan, PlanState) if order.plan is not None else None
    name = batch.find(name_subject(plan.name), NameState) if plan is not None and not plan.open else None
    return None if name is None else open_plans_refusal(batch, name)


def _newest(batch: Batch, name: str) -> OrderState:
    order = ending.order_of(batch, name)
    while order.replaced_by is not None:
        order = ending.order_of(batch, order.replaced_by)
    return order


def _still_fails(batch: Batch, order: OrderState) -> Refusal | None:
    """An order whose needs still cannot be met would end again at once: its need has to be retried first."""
    spec = batch.body(order.spec_seq, WorkOrderSpec)
    for group in spec.groups:
        outcomes = [(_newest(batch, member.order).state, member.outcomes) for member in group.members]
        ended = [state in ENDED for state, _ in outcomes]
        met = [state in allowed for state, allowed in outcomes]
        lost = [over and not good for over, good in zip(ended, met, strict=True)]
        if (group.kind == "required" and any(lost)) or (group.kind == "alternative" and all(lost)):
            other = next(member.order for member, bad in zip(group.members, lost, strict=True) if bad)
            detail = {"subject": order.order, "state": f"dependency_failed because of {other}"}
            return Refusal(code="retry_refused", field="/order", detail=detail)
    return None


def _closure(batch: Batch, first: OrderState) -> list[str] | Refusal:
    """The order and those that ended because of it, each after the ones that it needs."""
    most = batch.given.limits.plan_orders_max
    chosen = [first.order]
    known = {first.order}
    queue = deque(chosen)
    while queue:
        for name in _lineage(batch, queue.popleft()):
            after = -1
            while page := batch.dependents(name, after, batch.given.limits.page_max):
                after = page[-1].position
                for edge in (edge for edge in page if edge.group >= 0):
                    dependent = _newest(batch, edge.dependent)
                    if dependent.state == "dependency_failed" and dependent.order not in known:
                        known.add(dependent.order)
                        chosen.append(dependent.order)
                        queue.append(dependent.order)
                if len(chosen) > most:
                    return Refusal(code="too_large", detail={"subject": "the retry", "bound": str(most)})

    def written(name: str) -> int:
        # A need never stands behind its dependent in the order in which a plan's first specs were written.
        return ending.order_of(batch, ending.order_of(batch, name).lineage).spec_seq

    return sorted(chosen, key=written)


def _lineage(batch: Batch, name: str) -> list[str]:
    """An order and those that it replaces: dependents name whichever was there when they were written."""
    names = [name]
    while (before := ending.order_of(batch, names[-1]).replaces) is not None:
        names.append(before)
    return names


def _replace(batch: Batch, old: OrderState, new: dict[str, str], *, from_start: bool) -> None:
    spec = batch.body(old.spec_seq, WorkOrderSpec)
    order = new[old.order]

    def current(name: str) -> str:
        newest = _newest(batch, name).order
        return new.get(newest, newest)

    groups = tuple(
        Group(
            kind=group.kind,
            members=tuple(
                Member(order=current(member.order), contract=member.contract, outcomes=member.outcomes)
                for member in group.members
            ),
        )
        for group in spec.groups
    )
    handed = tuple(FromOrder(order=current(source.order), files=source.files) for source in spec.inputs.orders)
    # What a replacement hands over was not there when the checkpoint was made: who was applied is never replaced.
    goes_on = not from_start and handed == spec.inputs.orders
    position = old.position
    if old.plan is not None:
        plan = batch.find(old.plan, PlanState)
        position = plan.orders if plan is not None else position
    accounts = (SCOPE, old.plan, order) if old.plan is not None else (SCOPE, order)
    constitution_version, policy_context = policy_of(batch)
    body = replace(
        spec,
        order=order,
        position=position,
        groups=groups,
        inputs=replace(spec.inputs, orders=handed),
        replaces=old.order,
        resumes=old.checkpoint if goes_on and old.checkpoint else None,
        constitution_version=constitution_version,
        policy_context=policy_context,
        accounts=accounts,
    )
    batch.emit(order, sealed_spec(body))
    place(batch, order)
    if old.account.ceiling != spec.ceilings:
        note = "as they were set for the order that it replaces"
        batch.emit(order, BudgetCeilingSet(ceilings=old.account.ceiling, note=note))
