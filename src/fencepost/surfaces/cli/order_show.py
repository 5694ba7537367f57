"""One order in full, and the orders of a plan in pages: documents, and the same for people."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping, Sequence
from typing import Any, TextIO

import msgspec

from fencepost.core.instant import format_duration
from fencepost.core.machines import ENDED
from fencepost.core.readiness import verdict
from fencepost.core.reasons import WAITS_AND_ENDS, fill
from fencepost.core.records.plan import AnswerRecorded, WorkOrderSpec
from fencepost.core.state import OrderState, PlanState
from fencepost.core.views import order_document
from fencepost.kernel.read import Look
from fencepost.surfaces.cli.accounts import account_of, over_lines, over_of, title_of
from fencepost.surfaces.cli.context import CommandError, current_plan, find_plan, table
from fencepost.surfaces.cli.living import GONE
from fencepost.surfaces.cli.order_attempts import made_document, made_rows, steps_rows, tries_text
from fencepost.surfaces.cli.order_failure import (
    CHILDREN_SHOWN_MAX,
    failure_lines,
    left_out_lines,
    note_of,
    open_children,
    question_lines,
)
from fencepost.surfaces.cli.words import (
    amount,
    amounts,
    cost_text,
    count,
    dimension_label,
    fields,
    instant,
    line_by_line,
    one_line,
    state_text,
    unknown_note,
)

_PARAMS_SHOWN_MAX = 1_000
_KINDS = {"required": "needs", "optional": "needs end of", "alternative": "needs any of"}


def listed(look: Look, plan: str | None, *, every: bool) -> list[OrderState]:
    """A plan's orders as they stand; with `every` those of all plans, newest plan first, replaced ones too."""
    if plan is not None:
        return look.orders(find_plan(look, plan).plan, replaced=every)
    if not every:
        return look.orders(current_plan(look).plan)
    found: list[OrderState] = []
    for one in look.newest_plans(look.head.seq):
        found += look.orders(one.plan, replaced=True)
    return found + look.orders("", replaced=True)


def page_of(
    look: Look, orders: Sequence[OrderState], *, after: str | None, limit: int
) -> tuple[list[OrderState], str | None]:
    """Up to `limit` orders behind the cursor, and the next cursor. A cursor is the id of the last order shown."""
    start = 0
    if after is not None:
        cursor = look.order(after)
        # An order that was replaced meanwhile still marks its lineage's place.
        places = [
            place
            for place, order in enumerate(orders)
            if order.order == after or (cursor is not None and order.lineage == cursor.lineage)
        ]
        if not places:
            raise CommandError("not_found", f"the cursor {after!r} is not among these orders", next_step="leave it out")
        exact = [place for place in places if orders[place].order == after]
        start = (exact or places)[0] + 1
    page = list(orders[start : start + limit])
    return page, page[-1].order if start + limit < len(orders) else None


def list_table(
    look: Look, orders: Sequence[OrderState], out: TextIO, *, gone: Collection[str], with_plan: bool
) -> None:
    """One line an order. Reasons that only repeat the state are left out; `gone` are those whose worker is gone."""
    plans: dict[str, str] = {}
    rows = []
    for order in orders:
        name = order.task
        if with_plan and order.plan is not None:
            if order.plan not in plans:
                plan = look.find(order.plan, PlanState)
                plans[order.plan] = plan.name if plan is not None else order.plan
            name = f"{plans[order.plan]}/{order.task}"
        if order.replaced_by is not None:
            name += " (replaced)"
        rows.append(
            (
                one_line(name),
                order.state,
                "worker gone" if order.order in gone else "" if order.reason == order.state else order.reason,
                tries_text(look, order),
                amount("time_us", order.account.charged.get("time_us", 0)),
                cost_text(order.account.charged),
            )
        )
    table(out, ("ORDER", "STATE", "REASON", "TRIES", "TIME", "COST"), rows)


def show_document(look: Look, order: OrderState) -> dict[str, Any]:
    """The order's document, and everything that stands behind it."""
    spec = look.spec(order)
    return {
        **order_document(order, look.facts(order.result_seq)),
        "sequence": look.head.seq,
        "lineage": order.lineage,
        "spec": spec_document(spec),
        "needs": needs_document(look, order, spec),
        "attempts_made": [made_document(look, attempt) for attempt in look.attempts(order.order)],
        "budget": [account_of(look, subject).document() for subject in order.accounts],
        "over": over_of(look, order),
        "note": note_of(look, order) or None,
        "records": {
            "spec": order.spec_seq,
            "result": order.result_seq or None,
            "application": order.application_seq or None,
        },
    }


def spec_document(spec: WorkOrderSpec) -> dict[str, Any]:
    """What the order asks for, in short; the whole spec is the record that `records.spec` names."""
    accept = spec.accept
    retry = spec.retry
    return {
        "digest": spec.spec,
        "contract": spec.contract,
        "work_kind": spec.work_kind,
        "run": list(spec.run),
        "python": None if spec.python is None else msgspec.to_builtins(spec.python),
        "environment": list(spec.environment),
        "outputs": list(spec.outputs),
        "inputs": {
            "digest": spec.inputs.digest,
            "files": spec.inputs.files,
            "bytes": spec.inputs.bytes,
            "from": [{"id": source.order, "files": list(source.files)} for source in spec.inputs.orders],
        },
        "accept": {
            "exit_code": accept.exit_code,
            "files": list(accept.files),
            "schemas": dict(accept.schemas),
            "verify": list(accept.verify),
        },
        "attempt_time_us": spec.attempt_time_us,
        "hold": dict(spec.hold),
        "ceilings": dict(spec.ceilings),
        "retry": None
        if retry is None
        else {"on": list(retry.on), "backoff_us": retry.backoff_us, "backoff_max_us": retry.backoff_max_us},
        "priority": spec.priority,
        "classification": spec.classification,
        "effects": spec.effects,
        "may": list(spec.may),
        "may_fail": spec.may_fail,
        "params": bool(spec.params),
        "params_value": msgspec.json.decode(spec.params) if spec.params else {},
    }


def needs_document(look: Look, order: OrderState, spec: WorkOrderSpec) -> list[dict[str, Any]]:
    """Dependency groups with their verdicts, and each member as it stands."""
    members = look.many([member.order for group in spec.groups for member in group.members])
    return [
        {
            "kind": group.kind,
            "verdict": verdict(state),
            "members": [
                {
                    "name": members[member.order].task,
                    "id": member.order,
                    "state": members[member.order].state,
                    "outcomes": list(member.outcomes),
                }
                for member in group.members
            ],
        }
        for group, state in zip(spec.groups, order.groups, strict=True)
    ]


def show_text(look: Look, order: OrderState, document: Mapping[str, Any], out: TextIO) -> None:
    row = WAITS_AND_ENDS.get(order.reason)
    sentence = f": {fill(row.sentence, {'subject': order.task})}" if row is not None else ""
    sentence = f": {GONE}" if document.get("worker_gone") else sentence
    rows = [
        ("order", f"{title_of(look, order)}  {order.order}" if order.plan else order.order),
        ("state", f"{state_text(order.state, order.reason)}{sentence}"),
    ]
    rows += [("result", line) for line in failure_lines(look, order) + left_out_lines(look, order)]
    rows += [("note", line) for line in line_by_line(document["note"])] if document["note"] else []
    rows += _wait_rows(look, order)
    if order.replaces is not None:
        rows.append(("replaces", order.replaces))
    if order.replaced_by is not None:
        newer = look.order(order.replaced_by)
        named = title_of(look, newer) if newer is not None else order.replaced_by
        rows.append(("replaced", f"by {named}  {order.replaced_by}" if named != order.replaced_by else f"by {named}"))
    sources = look.many([source["id"] for source in document["spec"]["inputs"]["from"]])
    rows += _spec_rows(document["spec"], {name: source.task for name, source in sources.items()})
    rows.append(
        ("budget", f"{amounts(order.account.ceiling)} for this order" if order.account.ceiling else "the plan's")
    )
    for need in document["needs"]:
        for member in need["members"]:
            rows.append((_KINDS[need["kind"]], f"{member['name']} ({member['state']})"))
    rows += [("tries", f"{tries_text(look, order)}, failures {order.failures}")]
    for made in document["attempts_made"]:
        rows += made_rows(made)
    rows += steps_rows(document.get("steps"))
    rows.append(("charged", amounts(order.account.charged)))
    rows += [("unknown", unknown_note(unknown))] if (unknown := document["unknown"]) else []
    rows += [("over", line) for line in over_lines(look, order)]
    for artifact in document["artifacts"]:
        rows.append(("files", f"{one_line(artifact['path'])}, {count(artifact['bytes'], 'byte')}"))
        rows.append(("files", artifact["digest"]))
    records = ", ".join(f"{name} {seq}" for name, seq in document["records"].items() if seq)
    rows.append(("records", records))
    fields(out, rows, width=max(len(label) for label, _ in rows))


def _wait_rows(look: Look, order: OrderState) -> list[tuple[str, str]]:
    """What it asks or waits for, what it was told, and the orders that it submitted itself."""
    rows: list[tuple[str, str]] = []
    wait = order.wait
    if wait is not None:
        rows += [("asks", line) for line in question_lines(wait)]
        children = open_children(look, wait)
        rows += [("waits", f"for {title_of(look, child)}") for child in children[:CHILDREN_SHOWN_MAX]]
        if len(children) > CHILDREN_SHOWN_MAX:
            rows.append(("waits", f"for {len(children) - CHILDREN_SHOWN_MAX} more"))
    if wait is not None and wait.until_us:
        rows.append(("waits", f"until {instant(wait.until_us)}"))
    for question, seq in sorted(order.answers.items()):
        first, *rest = line_by_line(look.body(seq, AnswerRecorded).value[:_PARAMS_SHOWN_MAX])
        rows += [("answer", line) for line in (f"{question}: {first}", *rest)]
    if order.parent is not None:
        above = look.order(order.parent)
        rows.append(("parent", title_of(look, above) if above is not None else order.parent))
    known = look.many(list(order.children.values()))
    for name, child in sorted(order.children.items()):
        rows.append(("child", f"{name} ({state_text(known[child].state, known[child].reason)})"))
    if order.checkpoint_number:
        going_on = "" if order.state in ENDED else ", the next attempt resumes from the last"
        rows.append(("saved", f"{count(order.checkpoint_number, 'checkpoint')}{going_on}"))
    return rows


def _spec_rows(spec: Mapping[str, Any], names: Mapping[str, str]) -> list[tuple[str, str]]:
    python = spec["python"]
    if python is None:
        rows = [("run", one_line(shlex.join(spec["run"])))]
    else:
        named = f"{python['call']}, declared as {python['name']} version {python['version']}"
        rows = [("call", one_line(named)), ("python", one_line(python["interpreter"]))]
    if spec["environment"]:
        rows.append(("environment", one_line(", ".join(spec["environment"]))))
    if spec["params_value"]:
        rows.append(("params", one_line(msgspec.json.encode(spec["params_value"]).decode())[:_PARAMS_SHOWN_MAX]))
    inputs = spec["inputs"]
    if inputs["files"]:
        pinned = f"{count(inputs['files'], 'file')} of the source tree, {count(inputs['bytes'], 'byte')}, pinned"
        rows.append(("inputs", pinned))
    for source in inputs["from"]:
        rows.append(("inputs", f"{one_line(', '.join(source['files']))} from {names.get(source['id'], source['id'])}"))
    rows += [("outputs", one_line(", ".join(spec["outputs"])))] if spec["outputs"] else []
    accept = [f"exit code {spec['accept']['exit_code']}"]
    accept += [f"file {one_line(path)}" for path in spec["accept"]["files"]]
    accept += [f"schema for {one_line(path)}" for path in spec["accept"]["schemas"]]
    if spec["accept"]["verify"]:
        accept.append(f"verifier {one_line(shlex.join(spec['accept']['verify']))}")
    rows.append(("accept", "; ".join(accept)))
    hold = {name: value for name, value in spec["hold"].items() if name not in ("attempts", "time_us")}
    limits = [f"at most {format_duration(spec['attempt_time_us'])} an attempt"]
    limits += [f"holds {dimension_label(name)} {amount(name, value)}" for name, value in sorted(hold.items())]
    rows.append(("limits", "; ".join(limits)))
    retry = spec["retry"]
    backoff = "never on a failure"
    if retry is not None:
        most = format_duration(retry["backoff_max_us"])
        backoff = f"on {', '.join(retry['on'])}, backoff {format_duration(retry['backoff_us'])} up to {most}"
    rows.append(("retry", backoff))
    rows.append(("terms", _terms(spec)))
    return rows


def _terms(spec: Mapping[str, Any]) -> str:
    terms = [f"priority {spec['priority']}", f"{spec['classification']}", f"effects {spec['effects']}"]
    terms += ["may fail"] if spec["may_fail"] else []
    terms += [f"may {one_line(', '.join(spec['may']))}"] if spec["may"] else []
    return "; ".join(terms)
