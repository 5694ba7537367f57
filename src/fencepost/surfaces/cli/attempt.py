"""`fencepost attempt`: the evidence of attempts, one by one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, TextIO

import msgspec
from cyclopts import App, Parameter

from fencepost.core.index import LEASE
from fencepost.core.records.attempt import (
    AttemptDescriptor,
    AttemptReservation,
    AttemptResult,
    AttemptStopped,
    AttemptYielded,
    ResultApplication,
    VerificationReceipt,
)
from fencepost.core.records.envelope import Body
from fencepost.core.state import AttemptState, OrderState
from fencepost.core.views import attempt_document, hold_document
from fencepost.kernel.read import Look
from fencepost.surfaces.cli.accounts import title_of
from fencepost.surfaces.cli.attempt_inside import add_commands
from fencepost.surfaces.cli.attempt_said import said_by
from fencepost.surfaces.cli.context import NO_GLOBALS, CommandError, Globals, emit, find_order, opened, table
from fencepost.surfaces.cli.words import (
    amount,
    amounts,
    cost_text,
    count,
    fields,
    instant,
    line_by_line,
    one_line,
    state_text,
    unknown_note,
)

app = App(name="attempt", help="The evidence of attempts; and inside one, what its program says.")

_HEADINGS = ("NO", "STATE", "REASON", "BEGAN", "ENDED", "TIME", "COST")
_RECORDS: dict[str, type[Body]] = {
    "reservation": AttemptReservation,
    "descriptor": AttemptDescriptor,
    "yield": AttemptYielded,
    "stop": AttemptStopped,
    "result": AttemptResult,
    "verification": VerificationReceipt,
    "application": ResultApplication,
}


@app.command(name="list")
def list_attempts(
    name: Annotated[str, Parameter(help="[PLAN/]TASK or an id.")], /, *, options: Globals = NO_GLOBALS
) -> None:
    """List every attempt of an order, the first one first."""
    with opened(options) as home, home.kernel.reader.look() as look:
        attempts = look.attempts(find_order(look, name).order)
        holds = [look.hold(attempt.hold) for attempt in attempts]
        charges = [{} if hold is None else hold.charged for hold in holds]
        items = [
            {**attempt_document(attempt), "charged": charged}
            for attempt, charged in zip(attempts, charges, strict=True)
        ]
        document = {"items": items, "next": None}
        rows = [
            (
                str(attempt.ordinal),
                attempt.state,
                "" if attempt.reason == attempt.state else attempt.reason,
                instant(attempt.activated_us or attempt.reserved_us),
                instant(attempt.ended_us),
                amount("time_us", charged.get("time_us", 0)),
                cost_text(charged),
            )
            for attempt, charged in zip(attempts, charges, strict=True)
        ]
    emit(options, document, lambda out: table(out, _HEADINGS, rows))


@app.command(name="show")
def show(
    name: Annotated[str, Parameter(help="Id of an attempt, or an order: [PLAN/]TASK or an id.")],
    /,
    *,
    attempt: Annotated[int | None, Parameter(help="Number of the attempt; first value: the last one.")] = None,
    options: Globals = NO_GLOBALS,
) -> None:
    """Show the whole evidence of an attempt: what was reserved, started, reported, verified and applied."""
    with opened(options) as home, home.kernel.reader.look() as look:
        found = find_attempt(look, name, attempt)
        order = look.order(found.order)
        if order is None:
            raise CommandError("not_found", f"{found.order} is not known in this scope")
        document = evidence(look, found, order)
    emit(options, document, lambda out: evidence_text(document, out))


def find_attempt(look: Look, name: str, ordinal: int | None) -> AttemptState:
    """An attempt by its id, or one of an order's, first value the last. Raises CommandError not_found."""
    if name.startswith("attempt_"):
        found = look.find(name, AttemptState)
        if found is None:
            raise CommandError("not_found", f"there is no attempt {name}", next_step="fencepost attempt list NAME")
        return found
    order = find_order(look, name)
    attempts = look.attempts(order.order)
    for one in reversed(attempts):
        if ordinal is None or one.ordinal == ordinal:
            return one
    which = "attempt yet" if ordinal is None else f"attempt {ordinal}"
    raise CommandError("not_found", f"{order.task} has no {which}", next_step=f"fencepost attempt list {name}")


def evidence(look: Look, attempt: AttemptState, order: OrderState) -> dict[str, Any]:
    """The attempt's document, and the bodies of the records that it rests on, each null where there is none."""
    document = attempt_document(attempt)
    seqs = document["records"]
    live_until = {row.subject: row.due_us for row in look.due(LEASE, group=attempt.worker)}
    document["lease"] = {
        "generation": attempt.generation,
        "fence": attempt.fence,
        "live": attempt.attempt in live_until,
        "until_us": attempt.lease_us or None,
    }
    hold = look.hold(attempt.hold)
    document["hold"] = None if hold is None else hold_document(hold)
    document["order_name"] = title_of(look, order)
    document["sequence"] = look.head.seq
    document["said"], _ = said_by(look, attempt)
    document["evidence"] = {
        name: msgspec.to_builtins(look.body(seq, _RECORDS[name])) if seq else None for name, seq in seqs.items()
    }
    document["over"] = _over(document)
    return document


def _over(document: Mapping[str, Any]) -> dict[str, int]:
    """By how much more was charged than was set aside for it, in the dimensions that were."""
    reserved = (document["evidence"]["reservation"] or {}).get("amounts", {})
    charged = (document["hold"] or {}).get("charged", {})
    over = {name: charged.get(name, 0) - value for name, value in reserved.items()}
    return {name: value for name, value in sorted(over.items()) if value > 0}


def evidence_text(document: Mapping[str, Any], out: TextIO) -> None:
    rows = [
        ("attempt", document["attempt"]),
        ("order", f"{document['order_name']}, attempt {document['ordinal']}"),
        ("state", state_text(document["state"], document["reason"])),
        ("worker", f"{document['worker']} on {one_line(document['host'])}"),
        ("fence", f"{document['fence']}, lease generation {document['generation']}"),
        ("reserved", instant(document["reserved_us"])),
        ("activated", instant(document["activated_us"])),
    ]
    if document["lease"]["live"]:
        rows.append(("lease", f"live until {instant(document['lease']['until_us'])}"))
    rows.append(("ended", instant(document["ended_us"])))
    rows += _said_rows(document)
    rows += _record_rows(document["evidence"])
    for late in document["late"]:
        rows.append(("late", f"{late['what']} kept and refused, {late['digest']}"))
    hold = document["hold"]
    if hold is not None:
        held = f", still holds {amounts(hold['held'])}" if hold["held"] else ""
        rows.append(("hold", f"{hold['state']}, charged {amounts(hold['charged'])}{held}"))
    if hold is not None and hold["unknown"]:
        rows.append(("unknown", unknown_note(hold["unknown"])))
    if document["over"]:
        rows.append(("over", f"{amounts(document['over'])} more than was set aside for it"))
    records = ", ".join(f"{name} {seq}" for name, seq in document["records"].items() if seq)
    rows.append(("records", records))
    fields(out, rows, width=max(len(label) for label, _ in rows))


def _said_rows(document: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What its program said while it ran."""
    said = document["said"]
    rows = [("said", line) for line in line_by_line(document["note"])] if document["note"] else []
    if saved := said["checkpoints"]:
        last = saved[-1]
        rows.append(
            ("saved", f"checkpoint {last['number']} of the order, {last['kind']}, {count(last['bytes'], 'byte')}")
        )
    rows += [("kept", f"{one_line(item['path'])}, {count(item['bytes'], 'byte')}") for item in said["files"]]
    if not said["whole"]:
        rows.append(("kept", "more than was looked for"))
    return rows


def _record_rows(evidence: Mapping[str, Any]) -> list[tuple[str, str]]:
    rows = []
    if descriptor := evidence["descriptor"]:
        rows.append(("granted", one_line(", ".join(descriptor["granted"])) or "nothing beyond running"))
        rows.append(("inputs", descriptor["input_set"]))
    if yielded := evidence["yield"]:
        rows.append(("yielded", amounts({"time_us": yielded["duration_us"]})))
    if stop := evidence["stop"]:
        rows.append(("stopped", f"{stop['reason']}, {amounts({'time_us': stop['duration_us']})}"))
        rows += [("stopped", line) for line in line_by_line(stop.get("note", ""))]
    if result := evidence["result"]:
        facts = result["facts"]
        code = f"exit code {facts['exit_code']}" if facts.get("exit_code") is not None else ""
        killed = f"signal {facts['signal']}" if facts.get("signal") is not None else ""
        took = amounts({"time_us": facts["duration_us"]})
        rows.append(("result", ", ".join(part for part in (facts["outcome"], code, killed, took) if part)))
        if facts.get("message"):
            rows += [("result", line) for line in line_by_line(facts["message"])]
        rows.append(("result", result["facts_digest"]))
        for artifact in facts.get("artifacts", ()):
            rows.append(("files", f"{one_line(artifact['path'])}, {count(artifact['bytes'], 'byte')}"))
        for receipt in facts.get("validation", ()):
            verdict = "passed" if receipt["passed"] else f"failed: {one_line(receipt.get('message', ''))}"
            rows.append(("checked", f"{receipt['check']} {one_line(receipt['subject'])} {verdict}"))
    if verification := evidence["verification"]:
        message = f": {one_line(verification['message'])}" if verification.get("message") else ""
        code = f", exit code {verification['exit_code']}" if verification.get("exit_code") is not None else ""
        rows.append(("verifier", f"{verification['outcome']}{code}{message}"))
    if application := evidence["application"]:
        rows.append(("applied", f"{application['decision']} ({application['reason']})"))
    return rows


add_commands(app)
