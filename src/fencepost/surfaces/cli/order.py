"""`fencepost order`: look at work orders, wait for them, cancel and retry them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

import msgspec
from cyclopts import App as CommandApp
from cyclopts import Parameter

from fencepost.app import App
from fencepost.core.commands import AnswerOrder, CancelOrder, RetryOrder
from fencepost.core.limits import FIRST_VALUES
from fencepost.core.machines import ENDED, WORK_ORDER
from fencepost.core.reasons import Refusal
from fencepost.core.state import OrderState
from fencepost.core.views import order_document
from fencepost.kernel.read import Look
from fencepost.surfaces.cli.accounts import title_of
from fencepost.surfaces.cli.context import (
    NO_GLOBALS,
    CommandError,
    CommandKey,
    Force,
    Globals,
    by_person,
    current_plan,
    emit,
    emit_line,
    find_order,
    find_plan,
    opened,
    required,
    say,
    write_by_person,
)
from fencepost.surfaces.cli.funded import require_funds_behind, require_funds_for_retry
from fencepost.surfaces.cli.living import orphans
from fencepost.surfaces.cli.names import bound_order, said_of
from fencepost.surfaces.cli.order_answer import answer_of, answered_text, not_answered
from fencepost.surfaces.cli.order_attempts import steps_document
from fencepost.surfaces.cli.order_show import list_table, listed, page_of, show_document, show_text
from fencepost.surfaces.cli.pinned import pinned_hint
from fencepost.surfaces.cli.typed import here
from fencepost.surfaces.cli.view.wanted import is_wanted
from fencepost.surfaces.cli.words import nearest, state_text

if TYPE_CHECKING:
    from fencepost.surfaces.cli.graph_model import Graph

NOTE_BYTES_MAX = FIRST_VALUES.text_bytes_max
PAGE_MAX = 10_000

app = CommandApp(name="order", help="Look at and steer work orders. NAME is [PLAN/]TASK or an id.")

Name = Annotated[str, Parameter(help="[PLAN/]TASK or an id; without PLAN the newest open plan, else the newest.")]
BoundName = Annotated[str, Parameter(help="[PLAN/]TASK or an id; PLAN is needed where another plan may be meant.")]
Plan = Annotated[str | None, Parameter(help="Plan by name or id; first value: the newest open one, else the newest.")]
Flag = Parameter(negative="")


@app.command(name="list")
def list_orders(
    *,
    plan: Plan = None,
    state: Annotated[str | None, Parameter(help="Only orders in this state.")] = None,
    every: Annotated[
        bool, Parameter(name="--all", negative="", help="Replaced orders too; without --plan those of all plans.")
    ] = False,
    limit: Annotated[int, Parameter(help="At most so many, 1 to 10000.")] = 1_000,
    after: Annotated[str | None, Parameter(help="Cursor: `next` of the page before.")] = None,
    options: Globals = NO_GLOBALS,
) -> None:
    """List orders in the order of their definition."""
    if not 1 <= limit <= PAGE_MAX:
        raise CommandError("usage", f"--limit is a number from 1 to {PAGE_MAX}", next_step="fencepost order list")
    if state is not None and state not in WORK_ORDER.rows:
        raise _no_state(state)
    with opened(options) as home, home.kernel.reader.look() as look:
        orders = listed(look, plan, every=every)
        if state is not None:
            orders = [order for order in orders if order.state == state or order.order == after]
        page, following = page_of(look, orders, after=after, limit=limit)
        document = {
            "items": [order_document(order, look.facts(order.result_seq)) for order in page] if options.json else [],
            "next": following,
        }
        gone = set() if options.json else orphans(look, page, home.locks, home.kernel.clock.read())
        emit(options, document, lambda out: list_table(look, page, out, gone=gone, with_plan=every and plan is None))
        if following is not None and not options.json:
            say(f"more: --after {following}")


def _no_state(word: str) -> CommandError:
    """The live view has short words for states, which may be what was meant."""
    from fencepost.surfaces.cli.view.signs import SIGNS

    states = sorted(WORK_ORDER.rows)
    by_word = {sign.word: name for name, sign in SIGNS.items() if name in states} | {name: name for name in states}
    near = by_word.get(nearest(word, by_word) or "")
    told = f"{word!r} is no state of an order" + (f"; did you mean {near}?" if near else "")
    return CommandError("usage", told, next_step=f"one of {', '.join(states)}")


@app.command(name="show")
def show(name: Name, /, *, options: Globals = NO_GLOBALS) -> None:
    """Show one order: spec, needs, attempts, budget, files, and the records that prove it."""
    with opened(options) as home, home.kernel.reader.look() as look:
        order = find_order(look, name)
        document = show_document(look, order)
        document["steps"] = steps_document(home.artifacts, order)
        document["worker_gone"] = bool(orphans(look, [order], home.locks, home.kernel.clock.read()))
        emit(options, document, lambda out: show_text(look, order, document, out))


@app.command(name="why")
def why(name: Name, /, *, options: Globals = NO_GLOBALS) -> None:
    """Say why an order is where it is, and which command would help."""
    from fencepost.surfaces.cli.order_why import why_document, why_text

    with opened(options) as home, home.kernel.reader.look() as look:
        document = why_document(home, look, find_order(look, name))
    emit(options, document, lambda out: why_text(document, out))


@app.command(name="watch")
def watch(
    name: Annotated[str | None, Parameter(help="An order as everywhere; first value: the whole plan.")] = None,
    /,
    *,
    plan: Plan = None,
    options: Globals = NO_GLOBALS,
) -> int:
    """Show an order with what it waits for, or a whole plan, until it has ended; in a pipe a line at each change.

    Exit code 7 when an order that may not fail ended without being applied.
    """
    from fencepost.surfaces.cli import watch as changes

    if name is not None and plan is not None:
        raise CommandError("usage", "name an order or a plan", next_step="fencepost order watch NAME")
    with opened(options) as home:
        with home.kernel.reader.look() as look:
            if name is not None:
                orders = [find_order(look, name)]
                subject = orders[0].order
            else:
                plan = (find_plan(look, plan) if plan is not None else current_plan(look)).plan
                subject = plan
                orders = look.orders(subject)
        if not options.json and is_wanted(sys.stdout, home.environment):
            return changes.watch_live(
                home,
                sys.stdout,
                plan=subject if plan is not None else None,
                order=None if plan is not None else orders[0],
            )
        with home.kernel.reader.look() as look:
            orders = look.orders(subject) if plan is not None else _one(look, subject)
            state = changes.OrderChanges({order.order: order for order in orders}, look.head.seq)
            width = max((len(order.task) for order in orders), default=0)
            for order in orders:
                _tell(look, order, options, width)

        def done(look: Look) -> bool:
            for order in state.since(look, whole_plan=plan is not None):
                _tell(look, order, options, width)
            if plan is not None:
                return changes.plan_ended(look, subject)
            one = look.order(subject)
            return one is None or one.state in ENDED

        changes.until(home, done)
        with home.kernel.reader.look() as look:
            return changes.outcome_code(look.orders(subject) if plan is not None else _one(look, subject))


def _one(look: Look, order: str) -> list[OrderState]:
    return [found] if (found := look.order(order)) is not None else []


def _tell(look: Look, order: OrderState, options: Globals, width: int) -> None:
    from fencepost.surfaces.cli import watch as changes

    if options.json:
        emit_line(changes.change_document(look, order))
    else:
        print(changes.change_line(order, width=width))
    sys.stdout.flush()


@app.command(name="log")
def log(
    name: Name,
    /,
    *,
    attempt: Annotated[int | None, Parameter(help="Number of the attempt; first value: the last one.")] = None,
    follow: Annotated[bool, Parameter(negative="", help="Go on while it runs.")] = False,
    stdout: Annotated[bool, Parameter(negative="", help="Only its stdout.")] = False,
    stderr: Annotated[bool, Parameter(negative="", help="Only its stderr.")] = False,
    verifier: Annotated[bool, Parameter(negative="", help="What its verifier printed.")] = False,
    options: Globals = NO_GLOBALS,
) -> None:
    """Print what an attempt printed: the first and the last MiB of each stream, and how much lies between."""
    from fencepost.surfaces.cli.order_log import print_log

    streams = tuple(stream for stream, chosen in (("stdout", stdout), ("stderr", stderr)) if chosen)
    with opened(options) as home:
        print_log(
            home,
            name,
            ordinal=attempt,
            streams=streams or ("stdout", "stderr"),
            verifier=verifier,
            follow=follow,
            as_json=options.json,
        )


@app.command(name="files")
def files(
    name: Name,
    /,
    *,
    to: Annotated[str | None, Parameter(help="Folder to write verified copies into.")] = None,
    attempt: Annotated[int | None, Parameter(help="What this attempt left, applied or not.")] = None,
    kept: Annotated[bool, Parameter(help="What its program kept as evidence while it ran.")] = False,
    options: Globals = NO_GLOBALS,
) -> None:
    """List the files of the applied result, or write verified copies of them. Files that differ are never replaced."""
    from fencepost.surfaces.cli.order_files import copy_files, files_of, files_text, kept_of

    with opened(options) as home:
        with home.kernel.reader.look() as look:
            document, references = (kept_of if kept else files_of)(look, find_order(look, name), attempt)
        if to is not None:
            document["written"] = copy_files(home.artifacts, references, Path(to))
        emit(options, document, lambda out: files_text(document, out))


@app.command(name="graph")
def graph(
    *,
    plan: Plan = None,
    svg: Annotated[str | None, Parameter(help="Write an SVG file; - for stdout.")] = None,
    force: Force = False,
    options: Globals = NO_GLOBALS,
) -> None:
    """Draw a plan: steps, states and needs, as text or as SVG."""
    from fencepost.surfaces.cli.graph_model import read_graph
    from fencepost.surfaces.cli.graph_text import graph_lines

    with opened(options) as home, home.kernel.reader.look() as look:
        drawn = read_graph(look, find_plan(look, plan) if plan is not None else current_plan(look))
    if svg is not None and _write_svg(svg, drawn, force=force):
        return
    document = {
        "plan": drawn.plan,
        "name": drawn.name,
        "sequence": drawn.sequence,
        "steps": [[node.name for node in layer] for layer in drawn.layers],
        "orders": [
            {
                "name": node.name,
                "id": node.order,
                "state": node.state,
                "reason": node.reason,
                "may_fail": node.may_fail,
                "needs": [{"kind": need.kind, "orders": list(need.members)} for need in node.needs],
                "parent": node.parent or None,
            }
            for node in drawn.nodes
        ],
        "svg": svg,
    }

    def human(out: TextIO) -> None:
        out.write(f"wrote {svg}\n" if svg is not None else "\n".join(graph_lines(drawn)) + "\n")

    emit(options, document, human)


def _write_svg(path: str, drawn: Graph, *, force: bool) -> bool:
    """Write the drawing; True when it went to stdout, so that nothing else may."""
    from fencepost.surfaces.cli.graph_svg import graph_svg
    from fencepost.surfaces.cli.whole_file import STDOUT, whole_file

    data = graph_svg(drawn).encode()
    if path in STDOUT:
        sys.stdout.buffer.write(data)
        sys.stdout.flush()
        return True
    with whole_file(Path(path), force=force) as file:
        file.write(data)
    return False


@app.command(name="cancel")
def cancel(
    name: BoundName,
    /,
    *,
    note: Annotated[str, Parameter(help="Why; kept with the record, and shown by order why and show.")] = "",
    command_key: CommandKey = None,
    options: Globals = NO_GLOBALS,
) -> None:
    """Cancel an order in any state that is not an end. Orders that need it end as their groups say."""
    if len(note.encode("utf-8", "replace")) > NOTE_BYTES_MAX:
        raise CommandError("too_large", f"the note passes {NOTE_BYTES_MAX} bytes", next_step="shorten it")
    with opened(options) as home:
        with home.kernel.reader.look() as look:
            order = bound_order(look, name)
            said = said_of(look, order)
        command = CancelOrder(order=order.order, note=note)
        receipt = write_by_person(home, command, command_key)
        result = required(receipt)
    document = {
        "name": order.task,
        "order_name": said,
        **result,
        "sequence": receipt.sequence,
        "fresh": receipt.fresh,
    }
    emit(options, document, lambda out: print(f"{said}: {state_text(result['state'], result['reason'])}", file=out))


@app.command(name="answer")
def answer(
    name: BoundName,
    value: Annotated[str, Parameter(help="The answer, text of at most 65536 bytes; - reads standard input.")],
    /,
    *,
    question: Annotated[str, Parameter(help="Which question; first value: the one that it asks now.")] = "",
    anyway: Annotated[
        bool, Parameter(negative="", help="Also where no attempt can be funded any more, so that the order ends.")
    ] = False,
    command_key: CommandKey = None,
    options: Globals = NO_GLOBALS,
) -> None:
    """Answer the question that an order asks. It goes on with the answer, which stays as it is."""
    value = answer_of(value)
    with opened(options) as home:
        with home.kernel.reader.look() as look:
            order = bound_order(look, name)
        command = AnswerOrder(order=order.order, value=value, question=question)
        if not anyway and home.kernel.recall(by_person(home, command, command_key)) is None:
            with home.kernel.reader.look() as look:
                require_funds_behind(look, order, question)
        receipt = write_by_person(home, command, command_key)
        with home.kernel.reader.look() as look:
            if receipt.refusal is not None:
                raise not_answered(look, order, question, receipt.refusal)
            said = said_of(look, order)
        result = receipt.result
    prompt = order.wait.prompt if order.wait is not None else ""
    document = {
        "name": order.task,
        "order_name": said,
        **result,
        "prompt": prompt,
        "sequence": receipt.sequence,
        "fresh": receipt.fresh,
    }
    emit(options, document, lambda out: answered_text(said, result["question"], prompt, out))


def _asked_before(home: App, command: RetryOrder, order: OrderState, key: str) -> RetryOrder:
    """The command that this key had, where it was about the same order: its name means the replacement by now."""
    receipt = home.kernel.recall(by_person(home, command, key))
    made = [] if receipt is None or receipt.refusal is not None else receipt.result.get("replacements", [])
    with home.kernel.reader.look() as look:
        for one in made:
            replaced = look.order(one["replaces"])
            asked = receipt is not None and one["order"] == receipt.result["order"]
            if asked and replaced is not None and replaced.lineage == order.lineage:
                return msgspec.structs.replace(command, order=replaced.order)
    return command


def _not_retried(home: App, order: OrderState, refusal: Refusal) -> CommandError:
    """The refusal; where the order ended because of others, with the command that retries them first."""
    from fencepost.surfaces.cli.order_why import why_document

    error = CommandError.of(refusal)
    if refusal.code == "retry_refused" and order.state == "dependency_failed":
        with home.kernel.reader.look() as look:
            error.next_step = why_document(home, look, order)["next"]
    return error


@app.command(name="retry")
def retry(
    name: BoundName,
    /,
    *,
    with_dependents: Annotated[
        bool, Parameter(negative="", help="Also the orders that ended because of this one.")
    ] = False,
    from_start: Annotated[
        bool, Parameter(negative="", help="Leave checkpoints and steps behind: all is done, and paid for, anew.")
    ] = False,
    command_key: CommandKey = None,
    options: Globals = NO_GLOBALS,
) -> None:
    """Make a backoff due, or submit a replacement, which goes on from the last checkpoint, for an order that ended
    without being applied."""
    with opened(options) as home:
        with home.kernel.reader.look() as look:
            order = bound_order(look, name)
        command = RetryOrder(order=order.order, with_dependents=with_dependents, from_start=from_start)
        if command_key is not None:
            command = _asked_before(home, command, order, command_key)
        if home.kernel.recall(by_person(home, command, command_key)) is None:
            with home.kernel.reader.look() as look:
                require_funds_for_retry(look, order)
        receipt = write_by_person(home, command, command_key)
        if receipt.refusal is not None:
            raise _not_retried(home, order, receipt.refusal)
        result = receipt.result
        with home.kernel.reader.look() as look:
            made = look.many([made["order"] for made in result["replacements"]])
            titles = {name: title_of(look, value) for name, value in made.items()}
            states = {name: value.state for name, value in made.items()}
            after = look.order(result["order"])
            said = said_of(look, order)
            replaced = [look.order(one["replaces"]) for one in result["replacements"]]
            pinned = pinned_hint(home, look, order.plan, [one for one in replaced if one is not None])
    replacements = [{**one, "name": made[one["order"]].task} for one in result["replacements"]]
    document = {
        "name": order.task,
        "order_name": said,
        "order": result["order"],
        "state": after.state if after is not None else None,
        "replacements": replacements,
        "sequence": receipt.sequence,
        "fresh": receipt.fresh,
        "pinned": pinned,
    }

    def human(out: TextIO) -> None:
        for one in replacements:
            kept = f", from checkpoint {one['checkpoints']} on" if one["checkpoints"] else ""
            print(f"{titles[one['order']]}: {states[one['order']]}, in the place of {one['replaces']}{kept}", file=out)
        if not replacements and after is not None:
            print(f"{said}: {state_text(after.state, after.reason)}", file=out)
        if pinned is not None:
            print(here(pinned), file=out)

    emit(options, document, human)
