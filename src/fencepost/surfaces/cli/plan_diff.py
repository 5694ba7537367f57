"""What differs between a plan of the store and a plan file: orders that came or went, and keys with both values."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, TextIO

import msgspec

from fencepost.core.instant import format_duration
from fencepost.core.planfile import PlanDocument, WorkItem
from fencepost.core.records.plan import PlanRevision, WorkOrderSpec
from fencepost.core.state import PlanState
from fencepost.kernel.read import Look
from fencepost.services.submission import INTERPRETER
from fencepost.surfaces.cli.words import one_line, wrapped

VALUE_CHARACTERS_MAX = 200  # of a value as it is shown
Pair = tuple[str, object, object]


def plan_changes(look: Look, plan: PlanState, document: PlanDocument) -> dict[str, list[Any]]:
    """Names of orders that only the file or only the store has, and what changed; files themselves are not compared."""
    orders = {order.task: look.spec(order) for order in look.orders(plan.plan)}
    wanted = {item.name: item for item in document.work}
    revision = look.body(plan.record_seq, PlanRevision)
    changed = []
    whole: list[Pair] = [
        ("objective", revision.objective, document.objective),
        ("budget", revision.ceilings, document.budget),
        ("python", revision.provenance.get(INTERPRETER, ""), document.python),
    ]
    if differing := _differing(whole):
        changed.append({"name": "", **differing})
    names = {spec.order: task for task, spec in orders.items()}
    for name, item in wanted.items():
        if name in orders and (differing := _differing(_pairs(orders[name], item, names))):
            changed.append({"name": name, **differing})
    return {
        "added": [name for name in wanted if name not in orders],
        "removed": [name for name in orders if name not in wanted],
        "changed": changed,
    }


def _differing(pairs: list[Pair]) -> dict[str, Any]:
    """`fields`, and `values` with (before, after) as bounded text; empty where nothing differs."""
    found = [pair for pair in pairs if pair[1] != pair[2]]
    if not found:
        return {}
    return {
        "fields": [key for key, _, _ in found],
        "values": {key: [_shown(key, before), _shown(key, after)] for key, before, after in found},
    }


def _shown(key: str, value: object) -> str:
    if key == "attempt_time" and isinstance(value, int):
        return format_duration(value)
    text = json.dumps(msgspec.to_builtins(value), ensure_ascii=False)
    return text if len(text) <= VALUE_CHARACTERS_MAX else f"{text[: VALUE_CHARACTERS_MAX - 3]}..."


def _pairs(spec: WorkOrderSpec, item: WorkItem, names: Mapping[str, str]) -> list[Pair]:
    """Keys of the plan file, with the order's value and the file's."""
    groups = [
        (group.kind, sorted((names.get(member.order, member.order), member.outcomes) for member in group.members))
        for group in spec.groups
    ]
    needs = [
        (group.kind, sorted((member.name, tuple(sorted(member.outcomes))) for member in group.members))
        for group in item.needs
    ]
    retry = None if spec.retry is None else (spec.retry.on, spec.retry.backoff_us, spec.retry.backoff_max_us)
    wanted_retry = None if item.retry is None else (item.retry.on, item.retry.backoff_us, item.retry.backoff_max_us)
    accept = (spec.accept.exit_code, spec.accept.files, sorted(spec.accept.schemas), spec.accept.verify)
    wanted_accept = (
        item.accept.exit_code,
        item.accept.files,
        sorted(text for text, _ in item.accept.schema),
        item.accept.verify,
    )
    params = msgspec.json.decode(spec.params) if spec.params else {}
    return [
        ("executor", spec.work_kind.partition("/")[0], item.executor),
        ("run", spec.run, item.run),
        ("call", "" if spec.python is None else spec.python.call, item.call),
        ("may_fail", spec.may_fail, item.may_fail),
        ("environment", spec.environment, item.environment),
        ("needs", groups, needs),
        ("outputs", spec.outputs, item.outputs),
        ("attempt_time", spec.attempt_time_us, item.attempt_time_us),
        ("budget", spec.ceilings, item.budget),
        ("retry", retry, wanted_retry),
        ("accept", accept, wanted_accept),
        ("priority", spec.priority, item.priority),
        ("classification", spec.classification, item.classification),
        ("may", spec.may, item.may),
        ("effects", spec.effects, item.effects),
        ("params", params, item.params),
    ]


def changes_text(changes: Mapping[str, list[Any]], plan: str, out: TextIO) -> None:
    for word, sign in (("added", "+"), ("removed", "-")):
        for name in changes[word]:
            out.write(f"{sign} {name}\n")
    for change in changes["changed"]:
        out.write(f"~ {change['name'] or f'plan {plan}'}: {', '.join(change['fields'])}\n")
        for key, (before, after) in change["values"].items():
            for sign, value in (("-", before), ("+", after)):
                lead = f"    {sign} {key} = "
                out.write("\n".join(wrapped(one_line(value), indent=lead, after=" " * len(lead))) + "\n")
