"""The admit stage: a plan or an order is checked, named by digest and placed; readiness follows from its groups.

A plan is one batch: its revision, then its orders so that each stands after those it needs, each with the move that
its groups lead to. Missing members, rings, impossible budgets and foreign outputs are refused here too, whoever
checked before (W1, W15, C1).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fencepost.core.commands import OrderDraft, Request, SubmitOrder, SubmitPlan
from fencepost.core.decide import ending
from fencepost.core.decide.batch import Batch, Decided
from fencepost.core.decide.drafts import (
    ceilings_refusal,
    draft_refusal,
    impossible,
    out_of_range,
    outputs_refusal,
)
from fencepost.core.decide.holds import hold_for
from fencepost.core.decide.specs import Specs
from fencepost.core.identity import meaning
from fencepost.core.machines import ENDED
from fencepost.core.planfile.graph import ring_text, sort_graph
from fencepost.core.reasons import Refusal
from fencepost.core.records.plan import DependencyObserved, PlanRevision, PlanTask, WorkOrderSpec
from fencepost.core.shares import Shares
from fencepost.core.state import SCOPE, NameState, OrderState, PlanState, name_subject


def submit_plan(batch: Batch, request: Request, command: SubmitPlan) -> Decided | Refusal:
    known = batch.find(name_subject(command.name), NameState)
    if known is not None:
        found = _known_plan(batch, known, command)
        if found is not None:
            return found
    refusal = _bounds(batch, command)
    if refusal is not None:
        return refusal
    order = _sorted(command.orders)
    if isinstance(order, Refusal):
        return order
    names = {draft.task: batch.name("order") for draft in command.orders}
    holds = _holds(batch, command)
    if isinstance(holds, Refusal):
        return holds
    return _write_plan(batch, request, command, order, names, holds)


def _known_plan(batch: Batch, known: NameState, command: SubmitPlan) -> Decided | Refusal | None:
    """The plan that this submission means, if it is there already; None when a new one is to be written."""
    name = known.meant_by(command.content)
    meant = batch.find(name, PlanState)
    if meant is None:
        raise LookupError(f"{name} is named by the state and missing")
    found = meaning(meant, command.content, command.mode)
    if found == "changed":
        return Refusal(code="plan_changed", field="/content", detail={"name": command.name})
    if found == "found":
        return batch.decided(_plan_result(meant, fresh=False))
    return open_plans_refusal(batch, known)


def open_plans_refusal(batch: Batch, name: NameState) -> Refusal | None:
    """Refuse one open plan more of a name than it may have."""
    most = batch.given.limits.name_open_plans_max
    if len(name.open_plans) < most:
        return None
    detail = {"subject": f"the number of open plans named {name.name}", "bound": str(most)}
    return Refusal(code="too_large", field="/name", detail=detail)


def _plan_result(plan: PlanState, *, fresh: bool) -> dict[str, object]:
    return {
        "plan": plan.plan,
        "name": plan.name,
        "content": plan.content,
        "revision": plan.revision,
        "fresh": fresh,
    }


def _bounds(batch: Batch, command: SubmitPlan) -> Refusal | None:
    if not command.orders:
        return out_of_range("/orders", "orders", "at least one")
    limits = batch.given.limits
    edges = sum(len(group.members) for draft in command.orders for group in draft.groups)
    for subject, count, most in (
        ("orders", len(command.orders), limits.plan_orders_max),
        ("dependencies", edges, limits.plan_edges_max),
    ):
        if count > most:
            return Refusal(code="too_large", field="/orders", detail={"subject": subject, "bound": str(most)})
    if len({draft.task for draft in command.orders}) != len(command.orders):
        return out_of_range("/orders", "each task", "named once")
    if any("." in draft.task for draft in command.orders):
        return out_of_range("/orders", "the name of a task", "without a dot, which stands before the name of a child")
    if command.deadline_us is not None and command.deadline_us > limits.duration_max_us:
        return out_of_range("/deadline_us", "the deadline", f"at most {limits.duration_max_us} us from now")
    return ceilings_refusal(command.ceilings, "/ceilings")


def _sorted(orders: Sequence[OrderDraft]) -> Sequence[int] | Refusal:
    places = {draft.task: place for place, draft in enumerate(orders)}
    needs: list[list[int]] = []
    for draft in orders:
        needed = []
        for member in (member for group in draft.groups for member in group.members):
            if member.task not in places:
                detail = {"subject": draft.task, "member": member.task or member.order}
                return Refusal(code="dependency_missing", field=f"/orders/{places[draft.task]}", detail=detail)
            needed.append(places[member.task])
        for source in draft.handed:
            if source.task not in places or places[source.task] not in needed:
                detail = {"subject": draft.task, "member": source.task}
                return Refusal(code="dependency_missing", field=f"/orders/{places[draft.task]}", detail=detail)
        needs.append(needed)
    found = sort_graph(needs)
    if found.rings:
        ring = ring_text([orders[place].task for place in found.rings[0]])
        return Refusal(code="dependency_cycle", field="/orders", detail={"ring": ring})
    return found.order


def _holds(batch: Batch, command: SubmitPlan) -> list[Shares] | Refusal:
    attempts = command.ceilings.get("attempts") or sum(draft.ceilings.get("attempts", 1) for draft in command.orders)
    above = ((command.name, command.ceilings), (SCOPE, ending.account_of(batch, SCOPE).ceiling))
    outputs = {draft.task: draft.outputs for draft in command.orders}
    holds = []
    for place, draft in enumerate(command.orders):
        field = f"/orders/{place}"
        refusal = draft_refusal(draft, batch.given.limits, field)
        for source in draft.handed:
            refusal = refusal or outputs_refusal(draft.task, source.files, outputs[source.task], field)
        hold = hold_for(draft, command.ceilings, attempts)
        refusal = refusal or impossible(draft, hold, above, field)
        if refusal is not None:
            return refusal
        holds.append(hold)
    must = sum(not draft.may_fail for draft in command.orders)
    if command.ceilings.get("attempts", must) < must:
        detail = {"subject": command.name, "dimension": "attempts"}
        return Refusal(code="impossible_budget", field="/ceilings/attempts", detail=detail)
    return holds


def _write_plan(
    batch: Batch,
    request: Request,
    command: SubmitPlan,
    order: Sequence[int],
    names: Mapping[str, str],
    holds: Sequence[Shares],
) -> Decided:
    plan = batch.name("plan")
    writer = Specs(batch, request, plan)
    bodies: list[WorkOrderSpec | None] = [None] * len(command.orders)
    for place in order:
        draft = command.orders[place]
        bodies[place] = writer.spec(draft, place, names[draft.task], holds[place], names)
    specs = [body for body in bodies if body is not None]
    deadline_us = None if command.deadline_us is None else batch.now_us + command.deadline_us
    batch.emit(
        plan,
        PlanRevision(
            plan=plan,
            name=command.name,
            revision=1,
            content=command.content,
            objective=command.objective,
            recovery=command.recovery,
            ceilings=command.ceilings,
            tasks=tuple(PlanTask(name=body.task, order=body.order, contract=body.contract) for body in specs),
            deadline_us=deadline_us,
            predecessor=command.predecessor or None,
            provenance=command.provenance,
        ),
    )
    for place in order:
        body = specs[place]
        batch.emit(body.order, body)
        ending.settle_readiness(batch, body.order, plan)
    state = batch.find(plan, PlanState)
    if state is None:
        raise LookupError(f"{plan} was just written and is missing")
    return batch.decided(_plan_result(state, fresh=True))


def submit_order(batch: Batch, request: Request, command: SubmitOrder) -> Decided | Refusal:
    draft = command.order
    for group in draft.groups:
        for member in group.members:
            if batch.find(member.order, OrderState) is None:
                detail = {"subject": draft.task, "member": member.order or member.task}
                return Refusal(code="dependency_missing", field="/order/groups", detail=detail)
    if draft.handed:
        return out_of_range("/order/handed", "handed files", "part of a plan")
    hold = hold_for(draft, {}, draft.ceilings.get("attempts", 1))
    above = ((SCOPE, ending.account_of(batch, SCOPE).ceiling),)
    refusal = draft_refusal(draft, batch.given.limits, "/order") or impossible(draft, hold, above, "/order")
    if refusal is not None:
        return refusal
    order = batch.name("order")
    batch.emit(order, Specs(batch, request, None).spec(draft, 0, order, hold, {}))
    place(batch, order)
    return batch.decided({"order": order, "version": ending.order_of(batch, order).version})


def place(batch: Batch, order: str) -> None:
    """Give a new order its first state, members that have ended before it included."""
    spec = batch.facts[-1].body
    if not isinstance(spec, WorkOrderSpec):
        raise LookupError("an order is placed right after its spec")
    for number, group in enumerate(spec.groups):
        for member in group.members:
            known = ending.order_of(batch, member.order)
            # While its own cursor is open it will tell this order as well, and nobody may hear it twice.
            if known.state in ENDED and known.told_done:
                batch.emit(
                    order,
                    DependencyObserved(
                        member=member.order,
                        outcome=known.state,  # type: ignore[arg-type]  # terminal states are the outcomes
                        satisfies=known.state in member.outcomes,
                        group=number,
                    ),
                )
    if ending.settle_readiness(batch, order, ""):
        ending.tell(batch, order)
