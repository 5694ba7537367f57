"""`fencepost config`: what holds, and where each value comes from."""

from __future__ import annotations

from pathlib import Path
from typing import TextIO

from cyclopts import App

from fencepost.surfaces.cli.context import NO_GLOBALS, Globals, emit, home_of, table
from fencepost.surfaces.cli.words import one_line

app = App(name="config", help="What is configured, and where each value comes from.")


@app.command
def view(*, options: Globals = NO_GLOBALS) -> None:
    """Show every value with its source, and which home is found where none is named."""
    config = options.config()
    items = config.view()
    home = home_of(config, Path.cwd())
    found = {"home": home, "store": None if home is None else home / "store.db"}
    for item in items:
        if item["value"] is None:
            where = found.get(item["key"])
            item["found"] = None if where is None else str(where)

    def human(out: TextIO) -> None:
        rows = []
        for item in items:
            value, source = item["value"], item["source"]
            if value is None and item["found"] is not None:
                value, source = item["found"], "nearest upwards"
            rows.append([item["key"], "-" if value is None else one_line(str(value)), source])
        table(out, ("KEY", "VALUE", "SOURCE"), rows)

    emit(options, {"items": items, "next": None}, human)


@app.command
def validate(*, options: Globals = NO_GLOBALS) -> None:
    """Read every source and say whether all of it can be used; what cannot is an error with exit code 2."""
    items = options.config().view()
    sources = sorted({item["source"] for item in items})
    emit(options, {"ok": True, "sources": sources}, lambda out: print(f"ok: {', '.join(sources)}", file=out))
