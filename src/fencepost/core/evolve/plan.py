"""Folding of intent: plans, orders, dependencies, cancels."""

from __future__ import annotations

from msgspec.structs import replace

from fencepost.core.evolve.edit import CHILD, PARENT, Edge, Edit, move_order, require_verdict
from fencepost.core.machines import ENDED, CorruptHistory
from fencepost.core.records import budget, plan
from fencepost.core.state import (
    WAITS_KEPT,
    Account,
    GroupState,
    NameState,
    OpenPlan,
    OrderState,
    PlanState,
    Terms,
    Waited,
    name_subject,
)


def plan_revision(edit: Edit, body: plan.PlanRevision) -> None:
    edit.create(
        body.plan,
        PlanState(
            version=1,
            plan=body.plan,
            name=body.name,
            revision=body.revision,
            content=body.content,
            record_seq=edit.fact.seq,
            recovery=body.recovery,
            submitted_us=edit.now_us,
            orders=0,
            open=0,
            account=Account(ceiling=body.ceilings),
            deadline_us=body.deadline_us,
        ),
    )
    subject = name_subject(body.name)
    known = edit.find(subject)
    opened = OpenPlan(body.plan, body.content, edit.fact.seq)
    if known is None:
        edit.create(subject, NameState(version=1, name=body.name, newest=body.plan, open_plans=(opened,)))
    else:
        edit.change(subject, known, newest=body.plan, open_plans=(*known.open_plans, opened))


def work_order_spec(edit: Edit, body: plan.WorkOrderSpec) -> None:
    groups = tuple(GroupState(group.kind, len(group.members)) for group in body.groups)
    terms = Terms(
        work_kind=body.work_kind,
        classification=body.classification,
        attempt_time_us=body.attempt_time_us,
        hold=body.hold,
        hold_least=body.hold_least,
        accept=body.accept,
        effects=body.effects,
        recovery=body.recovery,
        outputs=body.outputs,
        may=body.may,
        submitter=body.submitter,
        constitution_version=body.constitution_version,
        organization_epoch=body.organization_epoch,
        repository=body.repository,
        input_set=body.inputs.digest,
        priority=body.priority,
        retry=body.retry,
        handed=bool(body.inputs.orders),
    )
    now_us = edit.now_us
    edit.create(
        body.order,
        OrderState(
            version=1,
            order=body.order,
            plan=body.plan,
            task=body.task,
            position=body.position,
            lineage=body.lineage,
            spec=body.spec,
            contract=body.contract,
            spec_seq=edit.fact.seq,
            state="submitted",
            reason="just_submitted",
            terms=terms,
            accounts=body.accounts,
            account=Account(ceiling=body.ceilings),
            submitted_us=now_us,
            moved_us=now_us,
            may_fail=body.may_fail,
            parent=body.parent,
            replaces=body.replaces,
            groups=groups,
        ),
    )
    _add_edges(edit, body)
    if body.parent is not None:
        _add_child(edit, body, body.parent)
    if body.plan is not None:
        _count_order(edit, body.plan)
    if body.replaces is not None:
        _mark_replaced(edit, body)
    if body.resumes is not None:
        _take_over(edit, body, body.resumes)


def _add_edges(edit: Edit, body: plan.WorkOrderSpec) -> None:
    for number, group in enumerate(body.groups):
        for member in group.members:
            order = edit.need(member.order, OrderState)
            edge = Edge(member.order, order.dependents, body.order, number, ",".join(member.outcomes))
            edit.change(member.order, order, dependents=order.dependents + 1)
            edit.add_edge(edge)


def _add_child(edit: Edit, body: plan.WorkOrderSpec, parent_id: str) -> None:
    """Parent and child hear of each other's end, along the edges that dependents hear by."""
    parent = edit.need(parent_id, OrderState)
    child = edit.need(body.order, OrderState)
    name = body.task.removeprefix(f"{parent.task}.")
    edit.require(
        parent.state == "active" and name not in parent.children and body.task != name,
        f"{body.order} cannot be a child of {parent_id}",
    )
    edit.require(
        body.plan == parent.plan and body.accounts == (*parent.accounts, body.order),
        f"{body.order} is in another plan, or under other accounts, than {parent_id}",
    )
    edit.add_edge(Edge(parent_id, parent.dependents, body.order, CHILD, ""))
    edit.add_edge(Edge(body.order, child.dependents, parent_id, PARENT, ""))
    edit.change(parent_id, parent, dependents=parent.dependents + 1, children={**parent.children, name: body.order})
    edit.change(body.order, child, dependents=child.dependents + 1)


def _count_order(edit: Edit, plan_id: str) -> None:
    known = edit.need(plan_id, PlanState)
    edit.change(plan_id, known, orders=known.orders + 1, open=known.open + 1, ended_us=None)
    subject = name_subject(known.name)
    name = edit.need(subject, NameState)
    if known.open == 0 and known.ended_us is not None:
        opened = OpenPlan(plan_id, known.content, known.record_seq)
        edit.change(subject, name, open_plans=tuple(sorted((*name.open_plans, opened), key=lambda each: each.seq)))


def _mark_replaced(edit: Edit, body: plan.WorkOrderSpec) -> None:
    replaced = edit.need(body.replaces or "", OrderState)
    if replaced.state not in ENDED or replaced.state == "applied" or replaced.replaced_by is not None:
        raise CorruptHistory(f"record {edit.fact.seq}: {replaced.order} cannot be replaced")
    edit.change(replaced.order, replaced, replaced_by=body.order)
    if replaced.plan is not None and not replaced.may_fail:
        known = edit.need(replaced.plan, PlanState)
        edit.change(known.plan, known, lost=known.lost - 1)


def _take_over(edit: Edit, body: plan.WorkOrderSpec, envelope: str) -> None:
    """What an order has saved is what its replacement goes on from, and numbers its own checkpoints behind (W6).

    Its answers are not taken over, so that a wait which one ended is asked anew.
    """
    before = edit.need(body.replaces or "", OrderState)
    edit.require(envelope == before.checkpoint, f"{body.order} goes on from no checkpoint of {before.order}")
    edit.change(
        body.order,
        edit.need(body.order, OrderState),
        checkpoint_number=before.checkpoint_number,
        checkpoint=before.checkpoint,
        checkpoints=before.checkpoints,
        waited=_lasting(before.waited),
    )


def _lasting(waited: Waited | None) -> Waited | None:
    """What still holds of waits in an order that has none of the answers."""
    if waited is None:
        return None
    ended = tuple(each for each in waited.ended if each[1] != "answer")
    if waited.by == "answer":
        return Waited(by="", ended=ended) if ended else None
    return replace(waited, ended=ended)


_NOTED = frozenset({"cancelled_by_request", "cancelled_after_effect"})
"""Reasons of a move that may have a person's note."""
_BY_OWN_RECORD = frozenset({"reserved", "active", "applied", "waiting"})
"""States that only a reservation, a descriptor, an application or a wait leads to."""


def work_order_moved(edit: Edit, body: plan.WorkOrderMoved) -> None:
    order = edit.need(edit.fact.subject, OrderState)
    if order.state != body.origin:
        raise CorruptHistory(f"record {edit.fact.seq}: {order.order} is {order.state}, not {body.origin}")
    if body.target in _BY_OWN_RECORD:
        raise edit.corrupt(f"{order.order} becomes {body.target} by another record")
    if body.target == "ready":
        require_verdict(edit, order, "holds")
        if body.ready_us != edit.now_us:
            raise edit.corrupt(f"{order.order} is ready at another time than now")
    elif body.target == "dependency_failed":
        require_verdict(edit, order, "fails")
    if body.reason == "backoff_over":
        edit.require_proof("backoff", order.order, order.version)
    changes: dict[str, object] = {"ready_us": body.ready_us} if body.target == "ready" else {}
    if order.state == "waiting":
        _require_end_of_wait(edit, order, body)
        changes["wait"] = None
        if body.target == "ready" and order.wait is not None:
            changes["waited"] = _waited(order, order.wait, _ENDS_OF_WAITS[body.reason])
    if body.note:
        edit.require(body.reason in _NOTED, f"{order.order} is {body.target} by no word of a person")
        changes["note_seq"] = edit.fact.seq
    move_order(edit, order, body.target, body.reason, **changes)


def _require_end_of_wait(edit: Edit, order: OrderState, body: plan.WorkOrderMoved) -> None:
    """A wait ends by what it waits for, or by a cancel."""
    wait = order.wait
    if body.target != "ready" or wait is None:
        return
    if body.reason == "time_passed":
        edit.require(wait.until_us > 0, f"{order.order} waits for no time")
        edit.require_proof("wait", order.order, order.version)
        return
    answered = bool(wait.question) and wait.question in order.answers
    ended = bool(wait.orders) and all(edit.need(name, OrderState).state in ENDED for name in wait.orders)
    holds = {"answered": answered, "children_ended": ended}.get(body.reason, False)
    edit.require(holds, f"what {order.order} waits for is not there")


_ENDS_OF_WAITS = {"answered": "answer", "children_ended": "children", "time_passed": "time"}
"""Why an order goes on -> what its wait ended by."""


def _waited(order: OrderState, wait: plan.Wait, by: str) -> Waited:
    """The wait that ends now, behind those that an attempt may still come to again; the oldest are forgotten."""
    known = () if order.waited is None else order.waited.ended
    if wait.asked is not None:
        known = (*(each for each in known if each[0] != wait.asked), (wait.asked, by))[-WAITS_KEPT:]
    return Waited(
        by=by,
        question=wait.question,
        orders=wait.orders,
        after_us=wait.until_us - order.moved_us if wait.until_us else 0,
        ended=known,
    )


def dependency_observed(edit: Edit, body: plan.DependencyObserved) -> None:
    order = edit.need(edit.fact.subject, OrderState)
    if body.group >= len(order.groups):
        raise CorruptHistory(f"record {edit.fact.seq}: {order.order} has no dependency group {body.group}")
    member = edit.need(body.member, OrderState)
    if member.state != body.outcome:
        raise edit.corrupt(f"{member.order} is {member.state}, not {body.outcome}")
    group = order.groups[body.group]
    if group.satisfied + group.unsatisfied >= group.total:
        raise CorruptHistory(f"record {edit.fact.seq}: every member of group {body.group} has ended already")
    if body.satisfies:
        group = replace(group, satisfied=group.satisfied + 1)
    else:
        group = replace(group, unsatisfied=group.unsatisfied + 1)
    groups = (*order.groups[: body.group], group, *order.groups[body.group + 1 :])
    edit.change(order.order, order, groups=groups)


def dependents_told(edit: Edit, body: plan.DependentsTold) -> None:
    order = edit.need(edit.fact.subject, OrderState)
    told_all = body.position + 1 >= order.dependents
    if order.told_done or not order.told <= body.position < order.dependents or body.done != told_all:
        raise CorruptHistory(f"record {edit.fact.seq}: dependents of {order.order} have been told already")
    edit.change(order.order, order, told=body.position, told_done=body.done)


def plan_cancel_requested(edit: Edit, body: plan.PlanCancelRequested) -> None:
    known = edit.need(body.plan, PlanState)
    if known.cancel:
        raise CorruptHistory(f"record {edit.fact.seq}: {body.plan} has a cancel already")
    if body.reason == "deadline_passed":
        edit.require_proof("plan_deadline", body.plan, known.version)
    edit.change(body.plan, known, cancel=body.reason, cancel_seq=edit.fact.seq, cancel_position=-1, cancel_done=False)


def plan_cancel_advanced(edit: Edit, body: plan.PlanCancelAdvanced) -> None:
    known = edit.need(edit.fact.subject, PlanState)
    if known.cancel_done or body.position < known.cancel_position:
        raise CorruptHistory(f"record {edit.fact.seq}: the cancel of {known.plan} has been carried out already")
    edit.change(known.plan, known, cancel_position=body.position, cancel_done=body.done)


def budget_ceiling_set(edit: Edit, body: budget.BudgetCeilingSet) -> None:
    value = edit.find(edit.fact.subject)
    if value is None or not hasattr(value, "account"):
        raise CorruptHistory(f"record {edit.fact.seq}: {edit.fact.subject} has no account")
    account = value.account
    edit.change(edit.fact.subject, value, account=replace(account, ceiling=body.ceilings))
