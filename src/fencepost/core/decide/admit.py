"""The admit stage: a plan or an order is checked, named by digest and placed; readiness follows from its groups.

A plan is one batch: its revision, then its orders so that each stands after those it needs, each with the move that
its groups lead to. Missing members, rings, impossible budgets and foreign outputs are refused here too, whoever
checked before (W1, W15, C1).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from fencepost.core.amounts import foreign_currency
from fencepost.core.canonical import encode_trusted
from fencepost.core.commands import GroupDraft, OrderDraft, Request, SubmitOrder, SubmitPlan
from fencepost.core.decide import ending
from fencepost.core.decide.batch import Batch, Decided
from fencepost.core.decide.holds import Hold, hold_for
from fencepost.core.ids import sha256_of
from fencepost.core.machines import ENDED
from fencepost.core.planfile.graph import ring_text, sort_graph
from fencepost.core.planfile.patterns import Pattern, compile_pattern
from fencepost.core.reasons import Refusal
from fencepost.core.records.common import Amounts
from fencepost.core.records.envelope import Wire
from fencepost.core.records.plan import (
    Acceptance,
    DependencyObserved,
    FromOrder,
    Group,
    Inputs,
    Member,
    PlanRevision,
    PlanTask,
    Policies,
    Retry,
    WorkOrderSpec,
)
from fencepost.core.state import (
    AUTHORITY,
    SCOPE,
    Account,
    AuthorityState,
    NameState,
    OrderState,
    PlanState,
    name_subject,
)

POLICIES = Policies(
    cancellation="fence_at_once",
    checkpoint="none",
    reconciliation="human",
    retention="plan",
    projection="local",
)
NO_REPOSITORY = "none"  # accepted pointer of a scope without repository acceptance


class _Contract(Wire, frozen=True):
    """What the contract digest covers: the work itself, dependencies by *their* contract digests (lifecycle, 13)."""

    work_kind: str
    run: tuple[str, ...]
    environment: tuple[str, ...]
    manifest: str | None
    handed: tuple[FromOrder, ...]  # by contract digest
    outputs: tuple[str, ...]
    groups: tuple[Group, ...]  # members without order ids
    attempt_time_us: int
    ceilings: Amounts
    hold: Amounts
    accept: Acceptance
    effects: str
    policies: Policies
    may: tuple[str, ...]
    retry: Retry | None
    may_fail: bool
    priority: str
    classification: str
    params: str


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
    names = {draft.task: batch.given.ids.next("order") for draft in command.orders}
    holds = _holds(command)
    if isinstance(holds, Refusal):
        return holds
    return _write_plan(batch, request, command, order, names, holds)


def _known_plan(batch: Batch, known: NameState, command: SubmitPlan) -> Decided | Refusal | None:
    """The plan that this submission means, if it is there already; None when a new one is to be written."""
    if command.mode == "new":
        return None
    newest = batch.find(known.open or known.newest, PlanState)
    if newest is None:
        raise LookupError(f"{known.newest} is named by the state and missing")
    if known.open is not None and newest.content != command.content:
        return Refusal(code="plan_changed", field="/content", detail={"name": command.name})
    if newest.content == command.content and (known.open is not None or command.mode == "continue"):
        return batch.decided(_plan_result(newest, fresh=False))
    return None


def _plan_result(plan: PlanState, *, fresh: bool) -> dict[str, object]:
    return {
        "plan": plan.plan,
        "name": plan.name,
        "content": plan.content,
        "revision": plan.revision,
        "fresh": fresh,
    }


def _content_refusal(draft: OrderDraft, field: str) -> Refusal | None:
    """Refuse what could be kept but never evaluated: file patterns that cannot be read."""
    handed = [text for source in draft.handed for text in source.files]
    for text in (*draft.outputs, *draft.accept.files, *handed):
        if not isinstance(compile_pattern(text), Pattern):
            detail = {"subject": f"the pattern {text!r} of {draft.task}", "needed": "a readable pattern"}
            return Refusal(code="out_of_range", field=field, detail=detail)
    return None


def _bounds(batch: Batch, command: SubmitPlan) -> Refusal | None:
    if not command.orders:
        return Refusal(code="out_of_range", field="/orders", detail={"subject": "orders", "needed": "at least one"})
    most = batch.given.limits.plan_orders_max
    if len(command.orders) > most:
        return Refusal(code="too_large", field="/orders", detail={"subject": "orders", "bound": str(most)})
    if len({draft.task for draft in command.orders}) != len(command.orders):
        detail = {"subject": "each task", "needed": "named once"}
        return Refusal(code="out_of_range", field="/orders", detail=detail)
    return None


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


def _holds(command: SubmitPlan) -> list[Hold] | Refusal:
    attempts = command.ceilings.get("attempts") or sum(draft.ceilings.get("attempts", 1) for draft in command.orders)
    holds = []
    for place, draft in enumerate(command.orders):
        hold = hold_for(draft, command.ceilings, attempts)
        levels = (draft.ceilings, command.ceilings)
        field = f"/orders/{place}"
        refusal = _content_refusal(draft, field) or _impossible(draft, hold, levels, field)
        if refusal is not None:
            return refusal
        holds.append(hold)
    must = sum(not draft.may_fail for draft in command.orders)
    if command.ceilings.get("attempts", must) < must:
        detail = {"subject": command.name, "dimension": "attempts"}
        return Refusal(code="impossible_budget", field="/ceilings/attempts", detail=detail)
    return holds


def _impossible(draft: OrderDraft, hold: Hold, levels: Sequence[Mapping[str, int]], field: str) -> Refusal | None:
    if draft.ceilings.get("attempts", 1) < 1:
        detail = {"subject": f"attempts of {draft.task}", "needed": "at least 1"}
        return Refusal(code="out_of_range", field=field, detail=detail)
    for level in levels:
        for dimension, amount in sorted(hold.least.items()):
            if dimension in level and amount > level[dimension]:
                detail = {"subject": draft.task, "dimension": dimension}
                return Refusal(code="impossible_budget", field=field, detail=detail)
        currency = foreign_currency(Account(ceiling=dict(level)), hold.amounts)
        if currency is not None:
            detail = {"account": draft.task, "currency": currency}
            return Refusal(code="currency_not_budgeted", field=field, detail=detail)
    return None


def _write_plan(
    batch: Batch,
    request: Request,
    command: SubmitPlan,
    order: Sequence[int],
    names: Mapping[str, str],
    holds: Sequence[Hold],
) -> Decided:
    plan = batch.given.ids.next("plan")
    writer = _Specs(batch, request, plan)
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


class _Specs:
    """Turns drafts into sealed specs, in an order in which every member comes before its dependents."""

    def __init__(self, batch: Batch, request: Request, plan: str | None) -> None:
        authority = batch.find(AUTHORITY, AuthorityState)
        if authority is None:
            raise LookupError("an authorized command without a constitution")
        self._batch = batch
        self._request = request
        self._plan = plan
        self._constitution = authority.constitution_version
        self._policy = sha256_of(f"{authority.constitution}|{authority.vocabulary}".encode())
        self._contracts: dict[str, str] = {}

    def contract_of(self, order: str) -> str:
        known = self._contracts.get(order)
        return known if known is not None else ending.order_of(self._batch, order).contract

    def groups(self, drafts: Sequence[GroupDraft], names: Mapping[str, str]) -> tuple[Group, ...]:
        return tuple(
            Group(
                kind=group.kind,
                members=tuple(
                    Member(
                        order=name,
                        contract=self.contract_of(name),
                        outcomes=tuple(sorted(set(member.outcomes))),
                    )
                    for member in group.members
                    for name in (names.get(member.task) or member.order,)
                ),
            )
            for group in drafts
        )

    def spec(self, draft: OrderDraft, position: int, order: str, hold: Hold, names: Mapping[str, str]) -> WorkOrderSpec:
        groups = self.groups(draft.groups, names)
        handed = tuple(FromOrder(order=names[source.task], files=source.files) for source in draft.handed)
        contract = self._contract(draft, groups, handed, hold)
        self._contracts[order] = contract
        accounts = (SCOPE, self._plan, order) if self._plan is not None else (SCOPE, order)
        inputs = Inputs(
            digest=sha256_of(f"{draft.manifest}".encode()) if draft.manifest is None else draft.manifest,
            manifest=draft.manifest,
            files=draft.manifest_files,
            bytes=draft.manifest_bytes,
            orders=handed,
        )
        body = WorkOrderSpec(
            order=order,
            work_kind=draft.work_kind,
            schema_version=1,
            task=draft.task,
            position=position,
            lineage=order,
            priority=draft.priority,
            submitter=self._request.principal,
            classification=draft.classification,
            contract=contract,
            spec=contract,
            organization_epoch=0,
            repository=NO_REPOSITORY,
            constitution_version=self._constitution,
            policy_context=self._policy,
            run=draft.run,
            environment=draft.environment,
            inputs=inputs,
            outputs=draft.outputs,
            attempt_time_us=draft.attempt_time_us,
            ceilings=draft.ceilings,
            hold=hold.amounts,
            hold_least=hold.least,
            accept=draft.accept,
            effects=draft.effects,
            recovery="replace",
            policies=POLICIES,
            output_kind="files/1",
            may=draft.may,
            groups=groups,
            retry=draft.retry,
            may_fail=draft.may_fail,
            params=draft.params,
            plan=self._plan,
            plan_revision=0 if self._plan is None else 1,
            accounts=accounts,
        )
        return sealed_spec(body)

    def _contract(self, draft: OrderDraft, groups: tuple[Group, ...], handed: tuple[FromOrder, ...], hold: Hold) -> str:
        contract = _Contract(
            work_kind=draft.work_kind,
            run=draft.run,
            environment=draft.environment,
            manifest=draft.manifest,
            handed=tuple(FromOrder(order=self.contract_of(source.order), files=source.files) for source in handed),
            outputs=draft.outputs,
            groups=tuple(
                Group(
                    kind=group.kind,
                    members=tuple(
                        Member(order="", contract=member.contract, outcomes=member.outcomes) for member in group.members
                    ),
                )
                for group in groups
            ),
            attempt_time_us=draft.attempt_time_us,
            ceilings=draft.ceilings,
            hold=hold.amounts,
            accept=draft.accept,
            effects=draft.effects,
            policies=POLICIES,
            may=draft.may,
            retry=draft.retry,
            may_fail=draft.may_fail,
            priority=draft.priority,
            classification=draft.classification,
            params=draft.params,
        )
        return sha256_of(encode_trusted(contract))


def sealed_spec(body: WorkOrderSpec) -> WorkOrderSpec:
    """Name the spec by the digest of all of it: the body with its contract digest in the place of its own."""
    drafted = msgspec.structs.replace(body, spec=body.contract)
    return msgspec.structs.replace(drafted, spec=sha256_of(encode_trusted(drafted)))


def submit_order(batch: Batch, request: Request, command: SubmitOrder) -> Decided | Refusal:
    draft = command.order
    for group in draft.groups:
        for member in group.members:
            if batch.find(member.order, OrderState) is None:
                detail = {"subject": draft.task, "member": member.order or member.task}
                return Refusal(code="dependency_missing", field="/order/groups", detail=detail)
    if draft.handed:
        detail = {"subject": "handed files", "needed": "part of a plan"}
        return Refusal(code="out_of_range", field="/order/handed", detail=detail)
    hold = hold_for(draft, {}, draft.ceilings.get("attempts", 1))
    refusal = _content_refusal(draft, "/order") or _impossible(draft, hold, (draft.ceilings,), "/order")
    if refusal is not None:
        return refusal
    order = batch.given.ids.next("order")
    batch.emit(order, _Specs(batch, request, None).spec(draft, 0, order, hold, {}))
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
