"""`fencepost plan`: the main job in pieces."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, TextIO

import msgspec
from cyclopts import App, Parameter

from fencepost.core.commands import CancelPlan
from fencepost.core.planfile import WorkItem
from fencepost.core.records.plan import PlanRevision, WorkOrderSpec
from fencepost.core.state import OrderState, PlanState
from fencepost.core.views import account_document, order_document, plan_document, plan_outcome
from fencepost.kernel.read import Look
from fencepost.services.submission import Submission, known_plan
from fencepost.surfaces.cli.context import (
    NO_GLOBALS,
    CommandError,
    CommandKey,
    Globals,
    current_plan,
    emit,
    find_plan,
    home_of,
    opened,
    opened_home,
    required,
    table,
)
from fencepost.surfaces.cli.frame import print_documents
from fencepost.surfaces.cli.init import ensure_home
from fencepost.surfaces.cli.plan_files import check, check_report, read_source
from fencepost.surfaces.cli.submit import checked_for, place
from fencepost.surfaces.cli.words import amounts, fields, instant

app = App(name="plan", help="Plans: check, submit, show, list, diff, cancel.")

PAGE = 100

Repo = Annotated[str | None, Parameter(name="--repo", help="The repository; first value: the plan's own.")]
File = Annotated[str, Parameter(help="The plan file; - reads it from stdin.")]
Named = Annotated[
    str | None, Parameter(help="A plan's name or id; first value: the newest open plan, else the newest.")
]


@app.command(name="check")
def check_plan(plan: File, /, *, repo: Repo = None, options: Globals = NO_GLOBALS) -> int:
    """Check a plan file against its source tree: every problem at once. Writes nothing."""
    found = check_report(read_source(plan, repo))
    if options.json or found["ok"]:
        emit(options, found, lambda out: print(f"ok: {' '.join(found['order'])}", file=out))
    else:
        print_documents(found["errors"])
    return 0 if found["ok"] else 2


@app.command
def submit(
    plan: File,
    /,
    *,
    again: Annotated[bool, Parameter(help="Submit a finished plan anew.", negative="")] = False,
    new: Annotated[bool, Parameter(help="Submit beside an open plan of other content.", negative="")] = False,
    repo: Repo = None,
    command_key: CommandKey = None,
    options: Globals = NO_GLOBALS,
) -> None:
    """Pin a plan's inputs and place its orders, without running them. The same content again is the same plan."""
    if again and new:
        raise CommandError("usage", "--again and --new exclude each other", next_step="choose one")
    mode: Submission = "again" if again else "new" if new else "continue"
    config = options.config()
    source = read_source(plan, repo)
    home = home_of(config, source.folder)
    checked = checked_for(source, home, config, mode)
    home = ensure_home(home, source.folder)
    with opened_home(home, config, create=True) as opened_app:
        placed = place(opened_app, checked, mode, command_key)
        with opened_app.kernel.reader.look() as look:
            state = find_plan(look, placed.plan)
            orders = look.orders(placed.plan, replaced=True)
    document = {
        "plan": state.plan,
        "name": state.name,
        "digest": state.content,
        "revision": state.revision,
        "sequence": placed.sequence,
        "fresh": placed.fresh,
        "orders": [{"name": order.task, "id": order.order} for order in orders if order.replaces is None],
    }

    def human(out: TextIO) -> None:
        told = "submitted" if placed.fresh else "is there already"
        out.write(f"plan {state.name}: {told} ({state.orders} orders)\n  id: {state.plan}\n")
        out.write(f"  next: fencepost run {plan}, or fencepost worker start\n")

    emit(options, document, human)


@app.command
def show(name: Named = None, /, *, options: Globals = NO_GLOBALS) -> None:
    """Show a plan with its budget and its orders."""
    with opened(options) as opened_app, opened_app.kernel.reader.look() as look:
        plan = current_plan(look) if name is None else find_plan(look, name)
        orders = look.orders(plan.plan)
        revision = look.body(plan.record_seq, PlanRevision)
        facts = {order.order: look.facts(order.result_seq) for order in orders}
        document = {
            **plan_document(plan, plan_outcome(plan, orders)),
            "objective": revision.objective,
            "provenance": dict(revision.provenance),
            "predecessor": revision.predecessor,
            "budget": account_document(plan.plan, plan.account)["dimensions"],
            "items": [order_document(order, facts[order.order]) for order in orders],
            "sequence": look.head.seq,
        }
    emit(options, document, lambda out: _print_plan(out, document, plan, orders))


def _print_plan(out: TextIO, document: dict[str, Any], plan: PlanState, orders: list[OrderState]) -> None:
    told = document["provenance"]
    rows = [
        ("plan", plan.name),
        ("id", plan.plan),
        ("objective", document["objective"] or "-"),
        ("outcome", document["outcome"]),
        ("submitted", instant(plan.submitted_us)),
        ("ended", instant(plan.ended_us)),
        ("deadline", instant(plan.deadline_us)),
        ("from", f"{told.get('file', '-')} in {told.get('repository', '-')}"),
        ("commit", told.get("commit", "-") + (" (dirty)" if told.get("dirty") == "yes" else "")),
        ("ceilings", amounts(plan.account.ceiling)),
        ("held", amounts(plan.account.held)),
        ("charged", amounts(plan.account.charged)),
    ]
    fields(out, rows)
    out.write("\n")
    table(
        out,
        ("order", "state", "reason", "attempts"),
        [[order.task, order.state, order.reason, str(order.account.charged.get("attempts", 0))] for order in orders],
    )


@app.command(name="list")
def list_plans(
    *,
    limit: Annotated[int, Parameter(help="At most this many.")] = PAGE,
    options: Globals = NO_GLOBALS,
) -> None:
    """List plans, the newest first."""
    if limit < 1:
        raise CommandError("usage", "--limit must be at least 1", next_step="write a positive number")
    with opened(options) as opened_app, opened_app.kernel.reader.look() as look:
        plans = look.newest_plans(limit)
        outcomes = {plan.plan: plan_outcome(plan, look.orders(plan.plan) if plan.open else ()) for plan in plans}
    document = {"items": [plan_document(plan, outcomes[plan.plan]) for plan in plans], "next": None}

    def human(out: TextIO) -> None:
        rows = [
            [
                plan.name,
                outcomes[plan.plan],
                f"{plan.orders - plan.open}/{plan.orders}",
                instant(plan.submitted_us),
                plan.plan,
            ]
            for plan in plans
        ]
        table(out, ("plan", "outcome", "ended", "submitted", "id"), rows)

    emit(options, document, human)


@app.command
def cancel(
    name: Named = None,
    /,
    *,
    note: Annotated[str, Parameter(help="Why, for the record.")] = "",
    command_key: CommandKey = None,
    options: Globals = NO_GLOBALS,
) -> None:
    """Cancel a plan: everything that has not ended is cancelled, what runs is stopped."""
    with opened(options) as opened_app:
        kernel = opened_app.kernel
        with kernel.reader.look() as look:
            plan = current_plan(look) if name is None else find_plan(look, name)
        required(kernel.write(kernel.request("human", CancelPlan(plan=plan.plan, note=note), command_key)))
        with kernel.reader.look() as look:
            after = find_plan(look, plan.plan)
            outcome = plan_outcome(after, look.orders(after.plan))

    def human(out: TextIO) -> None:
        out.write(f"plan {after.name}: cancelled, {after.open} of {after.orders} orders are still ending\n")

    emit(options, plan_document(after, outcome), human)


@app.command
def diff(plan: File, /, *, repo: Repo = None, options: Globals = NO_GLOBALS) -> int:
    """Compare a plan file with the plan of its name: what was added, removed or changed. Exit 0 when equal, else 5."""
    source = read_source(plan, repo)
    checked = check(source)
    with opened(options, start=Path(source.folder)) as opened_app, opened_app.kernel.reader.look() as look:
        known = known_plan(look, checked.document.name)
        if known is None:
            raise CommandError(
                "not_found",
                f"there is no plan {checked.document.name!r} in this scope",
                next_step="fencepost plan list",
            )
        changes = _changes(look, known, checked.document.work)
        if known.content != checked.content and not any(changes.values()):
            changes["changed"].append({"name": "", "fields": ["plan"]})
    same = known.content == checked.content
    document = {
        "plan": known.plan,
        "name": known.name,
        "same": same,
        "digest": known.content,
        "digest_of_file": checked.content,
        **changes,
    }

    def human(out: TextIO) -> None:
        if same:
            out.write(f"plan {known.name}: the file has the same content\n")
        for word, sign in (("added", "+"), ("removed", "-")):
            for name in changes[word]:
                out.write(f"{sign} {name}\n")
        for change in changes["changed"]:
            out.write(f"~ {change['name'] or known.name}: {', '.join(change['fields'])}\n")

    emit(options, document, human)
    return 0 if same else 5


def _changes(look: Look, plan: PlanState, work: tuple[WorkItem, ...]) -> dict[str, list[Any]]:
    orders = {order.task: look.spec(order) for order in look.orders(plan.plan)}
    wanted = {item.name: item for item in work}
    changed = []
    for name, item in wanted.items():
        if name in orders:
            different = _different(orders[name], item, {spec.order: task for task, spec in orders.items()})
            if different:
                changed.append({"name": name, "fields": different})
    return {
        "added": [name for name in wanted if name not in orders],
        "removed": [name for name in orders if name not in wanted],
        "changed": changed,
    }


def _different(spec: WorkOrderSpec, item: WorkItem, names: dict[str, str]) -> list[str]:
    """Keys of the plan file whose value is another one than in the order; files themselves are not compared."""
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
    pairs: list[tuple[str, object, object]] = [
        ("run", spec.run, item.run),
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
    return [key for key, before, after in pairs if before != after]
