"""`fencepost clock`: the scope's time, what it rests on, and how far it is behind UTC."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TextIO

from cyclopts import App

from fencepost.core.reasons import WAITS_AND_ENDS
from fencepost.core.records.clock import LogicalClockObservation
from fencepost.core.state import ClockState
from fencepost.core.views import clock_document
from fencepost.kernel.read import Look
from fencepost.ports.clock import Reading
from fencepost.services.means import estimated_now_us
from fencepost.surfaces.cli.context import NO_GLOBALS, CommandError, Globals, emit, opened
from fencepost.surfaces.cli.typed import here
from fencepost.surfaces.cli.words import amount, fields, instant, one_line

app = App(name="clock", help="The scope's time.")


@app.command(name="show")
def show(*, options: Globals = NO_GLOBALS) -> None:
    """Show the clock domain: its time, its sources, and a reading that was quarantined."""
    with opened(options) as home, home.kernel.reader.look() as look:
        clock = look.clock()
        if clock is None:
            raise CommandError("clock_missing", "this scope has no clock domain yet", next_step="fencepost doctor")
        document = domain_document(look, clock, home.kernel.clock.read())
    emit(options, document, lambda out: domain_text(document, out))


def domain_document(look: Look, clock: ClockState, reading: Reading) -> dict[str, Any]:
    """The domain's document. `now_us` is what the next observation of this host would most likely say.

    `behind_us` compares that with UTC, so that the time in which nobody looked does not count as behind.
    """
    document = clock_document(clock, reading.utc_us)
    now_us = estimated_now_us(clock, reading)
    row = WAITS_AND_ENDS[document_reason(clock)]
    document.update(
        now_us=now_us,
        behind_us=max(reading.utc_us - now_us, 0),
        reason=document_reason(clock),
        message=row.sentence,
        next=here(row.next_step),
        this_source=reading.source,
        quarantine=_quarantine(look, clock),
        grace_until_us=clock.grace_until_us if clock.grace_until_us > now_us else None,
        sequence=look.head.seq,
    )
    return document


def document_reason(clock: ClockState) -> str:
    return "clock_running" if clock.state == "running" else clock.state


def _quarantine(look: Look, clock: ClockState) -> dict[str, Any] | None:
    """Both readings of a contradiction: what the host said, and what its own ticks predicted."""
    if not clock.quarantined_seq:
        return None
    seen = look.body(clock.quarantined_seq, LogicalClockObservation)
    boot = clock.boot(seen.source, seen.boot_id)
    predicted = None if boot is None else boot.anchor_utc_us + seen.tick - boot.anchor_tick
    return {
        "record": clock.quarantined_seq,
        "source": seen.source,
        "utc_us": seen.utc_us,
        "predicted_utc_us": predicted,
        "difference_us": None if predicted is None else seen.utc_us - predicted,
        "logical_us": seen.logical_us,
    }


def domain_text(document: Mapping[str, Any], out: TextIO) -> None:
    rows = [
        ("domain", f"{document['domain']}: {document['state']}"),
        ("time", f"{instant(document['now_us'])}, {amount('time_us', document['behind_us'])} behind UTC"),
        ("accepted", f"{instant(document['logical_us'])}, record {document['observation']}"),
        ("certainty", f"within {amount('time_us', document['uncertainty_us'])}"),
    ]
    if document["grace_until_us"]:
        rows.append(
            ("grace", f"nobody looked for a while; nothing expires until {instant(document['grace_until_us'])}")
        )
    for name, source in document["sources"].items():
        here = ", this host" if name == document["this_source"] else ""
        rows.append(("source", f"{one_line(name)}{here}: boot {one_line(source['boot_id'])}"))
        rows.append(("source", f"anchored at {instant(source['anchor_logical_us'])}, record {source['observation']}"))
    quarantine = document["quarantine"]
    if quarantine is not None:
        rows.append(("blocked", document["message"]))
        rows.append(("reading", f"{instant(quarantine['utc_us'])} UTC, record {quarantine['record']}"))
        if quarantine["predicted_utc_us"] is not None:
            off = amount("time_us", quarantine["difference_us"])
            rows.append(("predicted", f"{instant(quarantine['predicted_utc_us'])} by its own ticks; {off} apart"))
        rows.append(("next", document["next"]))
    fields(out, rows)
