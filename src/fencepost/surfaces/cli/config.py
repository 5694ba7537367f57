"""`fencepost config`: what holds, and where each value comes from."""

from __future__ import annotations

from typing import TextIO

from cyclopts import App

from fencepost.surfaces.cli.context import NO_GLOBALS, Globals, emit, table

app = App(name="config", help="What is configured, and where each value comes from.")


@app.command
def view(*, options: Globals = NO_GLOBALS) -> None:
    """Show every value with its source."""
    items = options.config().view()

    def human(out: TextIO) -> None:
        rows = [[item["key"], "-" if item["value"] is None else str(item["value"]), item["source"]] for item in items]
        table(out, ("key", "value", "source"), rows)

    emit(options, {"items": items, "next": None}, human)


@app.command
def validate(*, options: Globals = NO_GLOBALS) -> None:
    """Read every source and say whether all of it can be used; what cannot is an error with exit code 2."""
    items = options.config().view()
    sources = sorted({item["source"] for item in items})
    emit(options, {"ok": True, "sources": sources}, lambda out: print(f"ok: {', '.join(sources)}", file=out))
