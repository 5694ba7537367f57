"""Writing orders down: drafts become sealed specs, each named by two digests (W1, C1; lifecycle, 13).

The *contract* digest covers the work itself and names dependencies by their contract digests; the *spec* digest
covers everything. What is written here has been checked before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from fencepost.core.canonical import encode_trusted
from fencepost.core.commands import GroupDraft, OrderDraft, Request
from fencepost.core.decide import ending
from fencepost.core.decide.batch import Batch
from fencepost.core.ids import sha256_of
from fencepost.core.records.common import Amounts
from fencepost.core.records.envelope import Wire
from fencepost.core.records.plan import (
    Acceptance,
    FromOrder,
    Group,
    Inputs,
    Member,
    Policies,
    PythonCall,
    Retry,
    WorkOrderSpec,
)
from fencepost.core.shares import Shares
from fencepost.core.state import AUTHORITY, SCOPE, AuthorityState, OrderState

POLICIES = Policies(
    cancellation="fence_at_once",
    checkpoint="resume_last",
    reconciliation="human",
    retention="plan",
    projection="local",
)
EXECUTOR_CEILINGS: dict[tuple[str, int], tuple[str, ...]] = {
    ("command", 1): ("workspace.write",),
    ("python", 1): ("workspace.write",),
}
"""Operations that each executor and version permits at most; what is not here is no executor of this kernel."""
WORK_KINDS = frozenset(f"{name}/{version}" for name, version in EXECUTOR_CEILINGS)
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
    python: PythonCall | None = None


def policy_of(batch: Batch) -> tuple[int, str]:
    """(version, digest) of the constitution in force, together with its vocabulary."""
    authority = batch.find(AUTHORITY, AuthorityState)
    if authority is None:
        raise LookupError("an authorized command without a constitution")
    return authority.constitution_version, sha256_of(f"{authority.constitution}|{authority.vocabulary}".encode())


class Specs:
    """Turns drafts into sealed specs, in an order in which every member comes before its dependents."""

    def __init__(self, batch: Batch, request: Request, plan: str | None) -> None:
        self._batch = batch
        self._request = request
        self._plan = plan
        self._constitution, self._policy = policy_of(batch)
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

    def child(self, draft: OrderDraft, position: int, order: str, hold: Shares, parent: OrderState) -> WorkOrderSpec:
        """A spec inside another one: in its plan, under its accounts, known by both names. It fails nobody's plan."""
        body = self.spec(msgspec.structs.replace(draft, may_fail=True), position, order, hold, parent.children)
        return sealed_spec(
            msgspec.structs.replace(
                body,
                task=f"{parent.task}.{draft.task}",
                parent=parent.order,
                accounts=(*parent.accounts, order),
            )
        )

    def spec(
        self, draft: OrderDraft, position: int, order: str, hold: Shares, names: Mapping[str, str]
    ) -> WorkOrderSpec:
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
            python=draft.python,
            plan=self._plan,
            plan_revision=0 if self._plan is None else 1,
            accounts=accounts,
        )
        return sealed_spec(body)

    def _contract(
        self, draft: OrderDraft, groups: tuple[Group, ...], handed: tuple[FromOrder, ...], hold: Shares
    ) -> str:
        contract = _Contract(
            work_kind=draft.work_kind,
            run=draft.run,
            environment=draft.environment,
            manifest=draft.manifest_content or draft.manifest,
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
            python=draft.python,
        )
        return sha256_of(encode_trusted(contract))


def sealed_spec(body: WorkOrderSpec) -> WorkOrderSpec:
    """Name the spec by the digest of all of it: the body with its contract digest in the place of its own."""
    drafted = body if body.spec == body.contract else msgspec.structs.replace(body, spec=body.contract)
    return msgspec.structs.replace(drafted, spec=sha256_of(encode_trusted(drafted)))
