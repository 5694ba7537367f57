"""The check of a whole plan file.

Rules: it looks at everything before it answers, so that a person corrects a plan once (a syntax error alone
comes by itself). The order of problems, the topological order and the content digest are functions of the
document. A plan with any problem has no document and no digest; nothing half-checked leaves this module.
Pure: the files of the repository, if they are known, and the currencies are handed in.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence, Set

import msgspec

from fencepost.core import canonical
from fencepost.core.planfile import bounds
from fencepost.core.planfile.amounts import read_budget
from fencepost.core.planfile.budgets import PLAN, allow, attempts_of, check_budgets
from fencepost.core.planfile.content import content_digest
from fencepost.core.planfile.currencies import ISO_4217
from fencepost.core.planfile.document import PlanDocument, Priority, WorkItem
from fencepost.core.planfile.files import check_files, refuse_missing
from fencepost.core.planfile.graph import Sorted, raise_priorities, ring_text, sort_graph
from fencepost.core.planfile.groups import KINDS
from fencepost.core.planfile.lines import with_lines
from fencepost.core.planfile.patterns import FileTree
from fencepost.core.planfile.problems import Findings, PlanProblem, Spot, quote
from fencepost.core.planfile.read import RawDocument, Syntax, read_document
from fencepost.core.planfile.values import (
    NAME_RULE,
    read_choice,
    read_duration,
    read_list,
    read_name,
    read_table,
    read_text,
    refuse_unknown,
    suggested_name,
    walk_document,
)
from fencepost.core.planfile.work import Draft, read_order

_ORDER_PLACE = re.compile(r"/work/([0-9]{1,9})(?:/|$)")

PLAN_KEYS = ("objective", "name", "deadline", "recovery", "budget", "python", "work")
UNSUPPORTED_PLAN_KEYS = {
    "reviewers": "leave it out; accept.verify names a verifier",
}


class CheckedPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The answer: a document and its digest, or problems.

    `order` names the orders topologically, ties in definition order; it is empty if there is a ring or a
    name is missing or doubled. `problems_left_off` counts problems past `bounds.PROBLEMS_MAX`.
    """

    document: PlanDocument | None
    problems: tuple[PlanProblem, ...]
    problems_left_off: int
    order: tuple[str, ...]
    content_digest: str | None


class _Head(msgspec.Struct, frozen=True, kw_only=True):
    """The plan's own keys; `budget` of None was missing or refused."""

    name: str
    objective: str
    deadline_us: int | None
    budget: dict[str, int] | None
    python: str


def check_text(
    text: str | bytes,
    *,
    syntax: Syntax,
    stem: str,
    tree: Sequence[str] | None = None,
    currencies: Set[str] = ISO_4217,
) -> CheckedPlan:
    """Read and check a plan file; see `read_document` and `check_document`."""
    raw = read_document(text, syntax=syntax)
    if isinstance(raw, PlanProblem):
        return CheckedPlan(document=None, problems=(raw,), problems_left_off=0, order=(), content_digest=None)
    return check_document(raw, stem=stem, tree=tree, currencies=currencies)


def check_document(
    raw: RawDocument,
    *,
    stem: str,
    tree: Sequence[str] | None = None,
    currencies: Set[str] = ISO_4217,
    above: str = PLAN,
) -> CheckedPlan:
    """Check a parsed plan and write its first values.

    `stem` is the file's name without its suffix, the first value of the plan's name. `tree` holds the
    relative POSIX paths of the files that may be pinned; with None no pattern can fail to match. `above`
    is what messages call the level that the orders lie in. Never
    raises for any document.
    """
    findings = Findings()
    root = Spot(findings)
    order: tuple[str, ...] = ()
    document: PlanDocument | None = None
    digest: str | None = None
    names: dict[int, str] = {}
    fits = walk_document(root, raw.value)
    table = read_table(root, raw.value, example="a table with budget and work") if fits else None
    if table is not None:
        head = _read_head(root, table, stem, currencies)
        drafts = _read_work(root, table, currencies)
        names = {draft.position: draft.name for draft in drafts if draft.name is not None}
        by_name, graph, needs = _check_graph(root, drafts)
        check_files(drafts, by_name, None if tree is None else FileTree(tree))
        if head.budget is not None:
            check_budgets(root.child("budget"), head.budget, drafts, above)
        if not graph.rings and len(by_name) == len(drafts):
            order = tuple(drafts[node].name or "" for node in graph.order)
        if findings.refusals == 0 and head.budget is not None:
            document = _resolve(head, head.budget, drafts, graph, needs)
            digest = _digest(root, document)
            document = document if digest is not None else None
    return CheckedPlan(
        document=document,
        problems=with_lines(raw, [_with_name(problem, names) for problem in findings.problems()]),
        problems_left_off=findings.left_off,
        order=order,
        content_digest=digest,
    )


def _with_name(problem: PlanProblem, names: Mapping[int, str]) -> PlanProblem:
    """The walk over the document knows places only; the name of the order is put in afterwards."""
    place = _ORDER_PLACE.match(problem.at)
    if problem.name is not None or place is None:
        return problem
    return msgspec.structs.replace(problem, name=names.get(int(place.group(1))))


def _read_head(root: Spot, table: dict[str, object], stem: str, currencies: Set[str]) -> _Head:
    refuse_unknown(root, table, PLAN_KEYS, refused_elsewhere=UNSUPPORTED_PLAN_KEYS)
    for key, next_step in UNSUPPORTED_PLAN_KEYS.items():
        if key in table:
            root.child(key).refuse("unsupported_feature", f"{quote(key)} is not built yet", next_step)
    spot = root.child("name")
    name: str | None = stem
    if "name" in table:
        name = read_name(spot, table["name"])
    elif NAME_RULE.fullmatch(stem) is None:
        if stem == "-":
            spot.refuse("bad_name", "a plan on stdin has no file that names it", 'add a name, such as name = "work"')
        else:
            spot.refuse(
                "bad_name",
                f"the plan names itself after its file, and {quote(stem)} is not a name",
                f'write name = "{suggested_name(stem)}", or rename the file',
            )
    objective: str | None = ""
    if "objective" in table:
        objective = read_text(
            root.child("objective"),
            table["objective"],
            bytes_max=bounds.OBJECTIVE_BYTES_MAX,
            example="a sentence",
        )
    deadline_us = None
    if "deadline" in table:
        deadline_us = read_duration(root.child("deadline"), table["deadline"])
    if "recovery" in table:
        read_choice(root.child("recovery"), table["recovery"], ("replace",), unsupported=("adopt",))
    budget = None
    if "budget" in table:
        budget = read_budget(root.child("budget"), table["budget"], currencies=currencies)
    else:
        root.child("budget").refuse(
            "missing_key",
            "the plan has no budget",
            "write [budget] with at least one ceiling, such as attempts = 12",
        )
    python = _read_python(root.child("python"), table["python"]) if "python" in table else ""
    return _Head(
        name=name or stem, objective=objective or "", deadline_us=deadline_us, budget=budget, python=python or ""
    )


def _read_python(spot: Spot, value: object) -> str | None:
    text = read_text(spot, value, bytes_max=bounds.INTERPRETER_BYTES_MAX, example='a path or a name such as "python3"')
    if text == "":
        spot.refuse("out_of_range", "no interpreter is named", "leave the key out for the one that runs fencepost")
    return text


def _read_work(root: Spot, table: dict[str, object], currencies: Set[str]) -> list[Draft]:
    spot = root.child("work")
    if "work" not in table:
        spot.refuse("missing_key", "the plan has no work", "write at least one [[work]] with name and run")
        return []
    items = read_list(spot, table["work"], items_max=bounds.ORDERS_MAX, example="tables that begin with [[work]]")
    if items is None:
        return []
    if not items:
        spot.refuse("out_of_range", "the plan has no work", "write at least one [[work]] with name and run")
    drafts = (
        read_order(spot.child(position), position, item, currencies=currencies) for position, item in enumerate(items)
    )
    return [draft for draft in drafts if draft is not None]


def _check_graph(root: Spot, drafts: Sequence[Draft]) -> tuple[dict[str, Draft], Sorted, list[list[int]]]:
    """Names, dependencies and rings; nodes are indexes into `drafts`."""
    nodes: dict[str, int] = {}
    for node, draft in enumerate(drafts):
        if draft.name is None:
            continue
        if draft.name in nodes:
            draft.spot.child("name").refuse(
                "duplicate_name",
                f"work {drafts[nodes[draft.name]].position + 1} of the plan is named {quote(draft.name)} too",
                "give each order a name of its own",
            )
        else:
            nodes[draft.name] = node
    by_name = {name: drafts[node] for name, node in nodes.items()}
    needs: list[list[int]] = []
    edges = 0
    for draft in drafts:
        members = [member.name for group in draft.needs for member in group.members]
        edges += len(members)
        needs.append([nodes[name] for name in members if name in nodes])
        if len(needs[-1]) < len(members) or "needs" in draft.refused:
            _refuse_missing_members(draft, by_name)
    if edges > bounds.EDGES_MAX:
        root.child("work").refuse(
            "out_of_range",
            f"the plan has {edges} dependencies, at most {bounds.EDGES_MAX} are taken",
            "put orders in between that gather some of them",
        )
    graph = sort_graph(needs)
    for ring in graph.rings:
        names = [drafts[node].name or f"work {drafts[node].position + 1}" for node in ring]
        drafts[ring[0]].spot.child("needs").refuse(
            "dependency_cycle",
            f"each of these waits for the next: {ring_text(names)}",
            "leave out one of these dependencies",
        )
    return by_name, graph, needs


def _refuse_missing_members(draft: Draft, by_name: dict[str, Draft]) -> None:
    items = draft.table.get("needs")
    for index, item in enumerate(items if isinstance(items, list) else []):
        spot = draft.spot.child("needs").child(index)
        if isinstance(item, str):
            _refuse_if_missing(spot, item, by_name)
        elif isinstance(item, dict):
            for key in (key for key in KINDS if key in item):
                names = item[key]
                for place, name in enumerate(names if isinstance(names, list) else []):
                    _refuse_if_missing(spot.child(key).child(place), name, by_name)


def _refuse_if_missing(spot: Spot, name: object, by_name: dict[str, Draft]) -> None:
    if isinstance(name, str) and NAME_RULE.fullmatch(name) is not None and name not in by_name:
        refuse_missing(spot, name, by_name)


def _resolve(
    head: _Head,
    budget: dict[str, int],
    drafts: Sequence[Draft],
    graph: Sorted,
    needs: Sequence[Sequence[int]],
) -> PlanDocument:
    declared: list[Priority] = [draft.priority for draft in drafts]
    raised = raise_priorities(graph.order, needs, declared)
    attempts = budget.get("attempts") or sum(attempts_of(draft, budget) for draft in drafts)
    work = tuple(
        _resolve_order(draft, budget, attempts, priority) for draft, priority in zip(drafts, raised, strict=True)
    )
    return PlanDocument(
        name=head.name,
        objective=head.objective,
        deadline_us=head.deadline_us,
        recovery="replace",
        budget=budget,
        work=work,
        python=head.python,
    )


def _resolve_order(draft: Draft, plan: dict[str, int], plan_attempts: int, raised: Priority) -> WorkItem:
    allowance = allow(draft, plan, plan_attempts=plan_attempts)
    return WorkItem(
        name=draft.name or "",
        position=draft.position,
        executor=draft.executor,
        run=draft.run,
        call=draft.call,
        may_fail=draft.may_fail,
        environment=draft.environment,
        needs=draft.needs,
        inputs=draft.inputs,
        outputs=draft.outputs,
        attempt_time_us=allowance.attempt_time_us,
        attempt_time_declared=draft.attempt_time_us is not None,
        budget=allowance.budget,
        per_attempt=allowance.per_attempt,
        per_attempt_declared=allowance.per_attempt_declared,
        retry=draft.retry,
        accept=draft.accept,
        priority=raised,
        priority_declared=draft.priority,
        classification=draft.classification,
        may=draft.may,
        effects=draft.effects,
        params=draft.params,
    )


def _digest(root: Spot, document: PlanDocument) -> str | None:
    try:
        return content_digest(document)
    except canonical.Undecodable as error:
        root.refuse(
            "out_of_range",
            f"the plan has no canonical form: {error}",
            "make the plan smaller, or split it",
        )
        return None
