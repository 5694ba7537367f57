"""Child orders: a [[work]] table that a running program submits, with its files pinned from the attempt's workspace.

The table is read by the code that reads plan files, so that both say the same. A child without `inputs` of its own
starts from its parent's pinned ones; with patterns, from what they select in the workspace as it is now. What a child
may not have is refused by name: it lives inside its parent, not inside the plan.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from msgspec.structs import replace

from fencepost.core.commands import OrderDraft
from fencepost.core.machines import WORK_ORDER
from fencepost.core.planfile import PlanDocument, PlanProblem, RawDocument, WorkItem, check_document
from fencepost.core.records.common import ArtifactRef
from fencepost.core.records.plan import WorkOrderSpec
from fencepost.core.state import OrderState
from fencepost.kernel.read import Look
from fencepost.services.desk import Desk
from fencepost.services.means import Means
from fencepost.services.requests import Declined
from fencepost.services.submission import Pins, draft_of, pin, selections

_STAND_IN: Final = {"run": ["true"]}
"""What a sibling looks like to the check of a child: only its name is known to it."""
_NOT_FOR_CHILDREN: Final = {
    "may_fail": "leave it out: whether a child's failure counts is for its parent to say",
    "call": 'write run = ["python3", "FILE"]; a child runs a program, and docs/PYTHON.md says why',
}
_INHERITED: Final = ("classification", "environment", "may", "effects", "priority")
PARENT: Final = "parent order"
"""What messages call the level that a child's budget lies in."""
PROBLEMS_SHOWN_MAX: Final = 20
ARTIFACTS_SHOWN_MAX: Final = 64
ARTIFACTS_BYTES_MAX: Final = 2**19
"""Of all their paths in one reply."""
ATTEMPTS_FIRST_MAX: Final = 1_000_000
NAMED_MAX: Final = 8
"""Names that a refusal offers."""
_REF_BYTES: Final = 128


def draft_child(means: Means, desk: Desk, table: dict[str, Any], parent: OrderState) -> OrderDraft:
    """The order that a table means, its files pinned and durable. Raises Declined, StorageError."""
    known = parent.children.get(str(table.get("name")))
    draft = _as_its_parent(_drafted(means, desk, table, parent), table, desk.spec)
    budget = table.get("budget")
    if known is None or (isinstance(budget, dict) and "attempts" in budget):
        return draft
    # Attempts that the table does not name follow from its parent's ceiling, as that was when it was first asked for.
    with means.kernel.reader.look() as look:
        order = look.order(known)
        ceilings = {} if order is None else look.body(order.spec_seq, WorkOrderSpec).ceilings
    return replace(draft, ceilings={**draft.ceilings, "attempts": ceilings.get("attempts", ATTEMPTS_FIRST_MAX)})


def _as_its_parent(draft: OrderDraft, table: Mapping[str, Any], parent: WorkOrderSpec) -> OrderDraft:
    """What a table does not say is as its parent has it: class, variables, operations, effects and priority."""
    inherited = {key: getattr(parent, key) for key in _INHERITED if key not in table}
    return replace(draft, **inherited)


def _drafted(means: Means, desk: Desk, table: dict[str, Any], parent: OrderState) -> OrderDraft:
    item = checked_child(table, parent)
    if not item.pins_every_file() or item.accept.schema:
        return _pinned(means, desk, table, parent)
    inputs = desk.spec.inputs
    draft = draft_of(item, Pins(manifests=(), schemas={}), None)
    return replace(draft, manifest=inputs.manifest, manifest_files=inputs.files, manifest_bytes=inputs.bytes)


def _refuse_foreign(table: Mapping[str, Any]) -> None:
    for key, step in _NOT_FOR_CHILDREN.items():
        if key in table:
            raise Declined("unsupported_feature", f"a child has no {key!r}", where=f"/order/{key}", next_step=step)
    if table.get("executor", "command") != "command":
        step = 'leave executor and call out, and write run = ["python3", "FILE"]; docs/PYTHON.md says why'
        raise Declined("unsupported_feature", "a child runs a program", where="/order/executor", next_step=step)
    inputs = table.get("inputs")
    for place, source in enumerate(inputs if isinstance(inputs, list) else ()):
        if isinstance(source, dict):
            raise Declined(
                "unsupported_feature",
                "a child gets no files from another order",
                where=f"/order/inputs/{place}",
                next_step="write the file into the workspace, and name it by its path",
            )


def checked_child(table: dict[str, Any], parent: OrderState, tree: Sequence[str] | None = None) -> WorkItem:
    """The table as plan files read it, beside its siblings. Raises Declined."""
    _refuse_foreign(table)
    siblings = [{"name": name, **_STAND_IN} for name in parent.children if name != table.get("name")]
    most = min(parent.account.ceiling.get("attempts", ATTEMPTS_FIRST_MAX), ATTEMPTS_FIRST_MAX)
    if str(table.get("name")) in parent.children:
        most = ATTEMPTS_FIRST_MAX  # it is there already, whatever has become of its parent's ceiling
    plan = {"budget": {"attempts": most}, "work": [table, *siblings]}
    checked = check_document(RawDocument(value=plan), stem="children", tree=tree, above=PARENT)
    problems = [problem for problem in checked.problems if problem.at.startswith("/work/0")]
    if problems or checked.document is None:
        raise declined_for(problems or checked.problems)
    return checked.document.work[0]


def declined_for(problems: Sequence[PlanProblem]) -> Declined:
    """The refusal for the problems of a table: the first one's code and place, and all of them in words."""
    first = problems[0]
    told = "; ".join(f"{_place(problem.at)}: {problem.message}" for problem in problems[:PROBLEMS_SHOWN_MAX])
    return Declined(first.code, told, where=_place(first.at), next_step=first.next)


def _place(at: str) -> str:
    """A place of the table as a place of the request. What lies beside the table is nothing that a program has said."""
    return "/order" + at.removeprefix("/work/0") if at.startswith("/work/0") else "/order"


def _pinned(means: Means, desk: Desk, table: dict[str, Any], parent: OrderState) -> OrderDraft:
    """A draft whose files come from the workspace."""
    tree = means.workspaces.list_files(desk.space)
    item = checked_child(table, parent, tree)
    document = PlanDocument(
        name="child", objective="", deadline_us=None, recovery="replace", budget={}, work=(replace(item, position=0),)
    )
    chosen = selections(document, tree)
    if item.pins_every_file():
        # Only its schemas are read here: its files are its parent's.
        chosen = tuple(replace(each, paths=()) for each in chosen)
    pins = pin(document, chosen, root=desk.space.path, packs=means.packs, artifacts=means.artifacts, between=desk.go_on)
    if not isinstance(pins, Pins):
        raise declined_for(pins)
    draft = draft_of(item, pins, pins.manifests[0])
    if not item.pins_every_file():
        return draft
    inputs = desk.spec.inputs
    return replace(
        draft,
        manifest=inputs.manifest,
        manifest_content=None,
        manifest_files=inputs.files,
        manifest_bytes=inputs.bytes,
    )


def child_documents(look: Look, parent: OrderState) -> dict[str, dict[str, Any]]:
    """Name -> order, state and what it handed in, the first `ARTIFACTS_SHOWN_MAX` files of each."""
    found = look.many(list(parent.children.values()))
    documents = {}
    room = ARTIFACTS_BYTES_MAX
    for name, subject in sorted(parent.children.items()):
        order = found.get(subject)
        if not isinstance(order, OrderState):
            continue
        refs = outputs_of(look, order)
        shown = []
        for ref in refs[:ARTIFACTS_SHOWN_MAX]:
            room -= len(ref.path.encode()) + _REF_BYTES
            if room >= 0:
                shown.append({"path": ref.path, "digest": ref.digest, "bytes": ref.bytes})
        documents[name] = {
            "order": order.order,
            "state": order.state,
            "reason": order.reason,
            "ended": order.state in WORK_ORDER.terminal,
            "artifacts": shown,
            "artifacts_total": len(refs),
        }
    return documents


def outputs_of(look: Look, order: OrderState) -> tuple[ArtifactRef, ...]:
    """What an applied order handed in; nothing of any other counts."""
    facts = look.facts(order.result_seq) if order.state == "applied" else None
    return () if facts is None else facts.artifacts


def no_child(parent: OrderState, name: str, where: str) -> Declined:
    """What is said of a child that the parent does not have."""
    known = ", ".join(sorted(parent.children)[:NAMED_MAX])
    step = f"name one of the children, such as {known}" if known else "submit it first: fencepost attempt child FILE"
    return Declined("not_found", f"there is no child {name!r}", where=where, next_step=step)


def no_file(child: OrderState, name: str, path: str, handed_in: Sequence[str]) -> Declined:
    """What is said of a file that a child has not handed in."""
    known = ", ".join(handed_in[:NAMED_MAX])
    step = (
        f"name a file that it has handed in, such as {known}" if known else "a child hands its outputs in once applied"
    )
    if not known and child.state not in WORK_ORDER.terminal:
        step = f"wait for it: fencepost attempt yield --child {name}"
    message = f"{name} is {child.state} and has handed in no file {path!r}"
    return Declined("not_found", message, where="/path", next_step=step)
