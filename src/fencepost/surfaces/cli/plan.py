"""`fencepost plan`: the main job in pieces."""

from __future__ import annotations

import io
import shlex
from pathlib import Path
from typing import Annotated, Any, TextIO

from cyclopts import App, Parameter

from fencepost.core.commands import CancelPlan
from fencepost.core.records.plan import PlanRevision
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
    say,
    table,
    write_by_person,
)
from fencepost.surfaces.cli.frame import STDIN, print_documents
from fencepost.surfaces.cli.init import ensure_home
from fencepost.surfaces.cli.names import bound_plan
from fencepost.surfaces.cli.order_attempts import tries_text
from fencepost.surfaces.cli.plan_diff import changes_text, plan_changes
from fencepost.surfaces.cli.plan_files import check, read_source
from fencepost.surfaces.cli.plan_warnings import check_report
from fencepost.surfaces.cli.submit import STILL_OPEN, checked_for, done_anew, place
from fencepost.surfaces.cli.typed import here
from fencepost.surfaces.cli.words import amounts, columns, count, fields, instant, wrapped

app = App(name="plan", help="Plans: check, submit, show, list, diff, cancel.")

PAGE = 100

Repo = Annotated[str | None, Parameter(name="--repo", help="The repository; first value: the plan's own.")]
File = Annotated[str, Parameter(help="The plan file; - reads it from stdin.")]
Named = Annotated[
    str | None, Parameter(help="A plan's name or id; first value: the newest open plan, else the newest.")
]


@app.command(name="check")
def check_plan(plan: File, /, *, repo: Repo = None, options: Globals = NO_GLOBALS) -> int:
    """Check a plan file against its source tree: every problem at once. Writes nothing.

    What is valid and would still go wrong on this host, such as a program or verifier that is not there, is a warning.
    """
    source = read_source(plan, repo)
    found, warnings = check_report(source, options.config(source.folder).jobs)
    if options.json or found["ok"]:
        emit(options, found, lambda out: print(f"ok: {' '.join(found['order'])}", file=out))
        if not options.json:
            for warning in warnings:
                say(warning)
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
    source = read_source(plan, repo)
    config = options.config(source.folder)
    home = home_of(config, source.folder)
    checked = checked_for(source, home, config, mode)
    home = ensure_home(home, source.folder)
    with opened_home(home, config, create=True) as opened_app:
        placed = place(opened_app, checked, mode, command_key)
        with opened_app.kernel.reader.look() as look:
            state = find_plan(look, placed.plan)
            orders = look.orders(placed.plan, replaced=True)
            current = _current(look, state)
            anew = done_anew(look, state) if placed.fresh else STILL_OPEN if mode == "again" and state.open else None
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
        out.write(f"plan {state.name}: {told} ({count(current, 'order')})\n  id: {state.plan}\n")
        if anew is not None:
            out.write("\n".join(wrapped(anew, indent="  ", after="    ")) + "\n")
        file = "-" if plan == STDIN else shlex.quote(plan)
        out.write(here(f"  next: fencepost run {file}, or fencepost worker start\n"))

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
            **_document(look, plan),
            "objective": revision.objective,
            "provenance": dict(revision.provenance),
            "predecessor": revision.predecessor,
            "budget": account_document(plan.plan, plan.account)["dimensions"],
            "items": [order_document(order, facts[order.order]) for order in orders],
            "sequence": look.head.seq,
        }
        tries = [tries_text(look, order) for order in orders]
    emit(options, document, lambda out: _print_plan(out, document, plan, orders, tries))


def _print_plan(
    out: TextIO, document: dict[str, Any], plan: PlanState, orders: list[OrderState], tries: list[str]
) -> None:
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
    lines = []
    for order, own in zip(orders, tries, strict=True):
        reason = "" if order.reason == order.state else order.reason
        lines.append([order.task, order.state, reason, own])
    table(out, ("ORDER", "STATE", "REASON", "TRIES"), lines)


def _current(look: Look, plan: PlanState) -> int:
    """How many orders a plan has, each with its replacements counted once."""
    return len(look.body(plan.record_seq, PlanRevision).tasks)


def _document(look: Look, plan: PlanState) -> dict[str, Any]:
    """A plan as lists show it: one that a person cancelled is `cancelled`, and replaced orders are not counted."""
    outcome = plan_outcome(plan, look.orders(plan.plan) if plan.open else (), look.clock(), look.get)
    if outcome == "failed" and plan.cancel == "cancel_requested":
        outcome = "cancelled"
    return {**plan_document(plan, outcome), "orders": _current(look, plan)}


@app.command(name="list")
def list_plans(
    *,
    limit: Annotated[int, Parameter(help="At most this many.")] = PAGE,
    after: Annotated[str | None, Parameter(help="Cursor: `next` of the page before.")] = None,
    options: Globals = NO_GLOBALS,
) -> None:
    """List plans, the newest first."""
    if limit < 1:
        raise CommandError("usage", "--limit must be at least 1", next_step="write a positive number")
    with opened(options) as opened_app, opened_app.kernel.reader.look() as look:
        plans, following = _page(look.newest_plans(look.head.seq), after=after, limit=limit)
        items = [_document(look, plan) for plan in plans]
    emit(options, {"items": items, "next": following}, lambda out: _list_table(items, out))
    if following is not None and not options.json:
        say(f"more: --after {following}")


def _list_table(items: list[dict[str, Any]], out: TextIO) -> None:
    """One line a plan; on a narrow terminal the ids, which nobody types where names do, stand on lines of their own."""
    rows = [
        [
            item["name"],
            item["outcome"],
            f"{item['orders'] - item['open']}/{item['orders']}",
            instant(item["submitted_us"]),
            item["plan"],
        ]
        for item in items
    ]
    headings = ["PLAN", "OUTCOME", "ENDED", "SUBMITTED", "ID"]
    widths = [max(len(row[place]) for row in [headings, *rows]) for place in range(len(headings))]
    if sum(widths) + 2 * (len(widths) - 1) < columns():
        table(out, headings, rows)
        return
    text = io.StringIO()
    table(text, headings[:-1], [row[:-1] for row in rows])
    lines = text.getvalue().splitlines()
    out.write(f"{lines[0]}\n")
    for line, row in zip(lines[1:], rows, strict=True):
        out.write(f"{line}\n  {row[-1]}\n")


def _page(plans: list[PlanState], *, after: str | None, limit: int) -> tuple[list[PlanState], str | None]:
    """Up to `limit` plans behind the cursor, and the next cursor: the id of the last plan shown, None at the end."""
    start = 0
    if after is not None:
        places = [place for place, plan in enumerate(plans) if plan.plan == after]
        if not places:
            raise CommandError("not_found", f"the cursor {after!r} is no plan here", next_step="leave it out")
        start = places[0] + 1
    page = plans[start : start + limit]
    return page, page[-1].plan if start + limit < len(plans) else None


@app.command
def cancel(
    name: Annotated[str | None, Parameter(help="A plan's name or id; needed where more than one may be meant.")] = None,
    /,
    *,
    note: Annotated[str, Parameter(help="Why; kept with the record, and shown by order why and show.")] = "",
    command_key: CommandKey = None,
    options: Globals = NO_GLOBALS,
) -> None:
    """Cancel a plan: everything that has not ended is cancelled, what runs is stopped."""
    with opened(options) as opened_app:
        kernel = opened_app.kernel
        with kernel.reader.look() as look:
            plan = bound_plan(look, name)
        required(write_by_person(opened_app, CancelPlan(plan=plan.plan, note=note), command_key))
        with kernel.reader.look() as look:
            document = _document(look, find_plan(look, plan.plan))

    def human(out: TextIO) -> None:
        ending = f"{document['open']} of {count(document['orders'], 'order')} still ending"
        out.write(f"plan {document['name']}: cancelled, {ending}\n")

    emit(options, document, human)


@app.command
def diff(plan: File, /, *, repo: Repo = None, options: Globals = NO_GLOBALS) -> int:
    """Compare a plan file with the plan of its name: what was added, removed or changed. Exit 0 when equal, else 5."""
    source = read_source(plan, repo)
    checked = check(source)
    with opened(options, start=Path(source.folder)) as opened_app, opened_app.kernel.reader.look() as look:
        known = known_plan(look, checked.document.name, checked.content)
        if known is None:
            raise CommandError(
                "not_found",
                f"there is no plan {checked.document.name!r} in this scope",
                next_step="fencepost plan list",
            )
        changes = plan_changes(look, known, checked.document)
        if known.content != checked.content and not any(changes.values()):
            changes["changed"].append({"name": "", "fields": ["plan"], "values": {}})
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
        changes_text(changes, known.name, out)

    emit(options, document, human)
    return 0 if same else 5
