"""`fencepost config`: what holds, and where each value comes from."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, TextIO

from cyclopts import App, Parameter

from fencepost.config import read_file, unknown_variables
from fencepost.surfaces.cli.context import NO_GLOBALS, CommandError, Globals, emit, home_of, table
from fencepost.surfaces.cli.words import columns, one_line

app = App(name="config", help="What is configured, and where each value comes from.")


@app.command
def view(
    *,
    jobs: Annotated[int | None, Parameter(help="As `run` would be given it.")] = None,
    timeout: Annotated[str | None, Parameter(help="As `run` would be given it.")] = None,
    options: Globals = NO_GLOBALS,
) -> None:
    """Show every value with its source: the option, the variable, the file and line, or that it is the first value.

    What a value overrides stands below it.
    """
    config = options.config(jobs=jobs, timeout=timeout)
    items = config.view()
    home = home_of(config, Path.cwd())
    found = {"home": home, "store": None if home is None else home / "store.db"}
    for item in items:
        if item["value"] is None:
            where = found.get(item["key"])
            item["found"] = None if where is None else str(where)
    strangers = [{"variable": name, "like": like or None} for name, like in unknown_variables(os.environ).items()]

    def human(out: TextIO) -> None:
        rows = []
        for item in items:
            rows.append([item["key"], *_shown(item)])
            rows += [
                ["", _text(other["value"]), f"not used: {one_line(other['place'])}"] for other in item["overrides"]
            ]
        _print_rows(out, rows)
        for stranger in strangers:
            more = f"; did you mean {stranger['like']}?" if stranger["like"] else ""
            out.write(f"ignored: {one_line(str(stranger['variable']))} is no setting{more}\n")

    emit(options, {"items": items, "ignored": strangers, "next": None}, human)


def _print_rows(out: TextIO, rows: list[list[str]]) -> None:
    """Three columns; where they are too wide for the output, each source stands below its value."""
    headings = ("KEY", "VALUE", "SOURCE")
    widths = [max(len(row[place]) for row in [headings, *rows]) for place in range(len(headings))]
    if sum(widths) + 4 < columns():
        table(out, headings, rows)
        return
    for key, value, source in rows:
        out.write(f"{key.ljust(widths[0])}  {value}\n{' ' * widths[0]}    {source}\n")


def _shown(item: dict[str, Any]) -> tuple[str, str]:
    """Value and source of an item, as people read them."""
    if item["value"] is None and item.get("found") is not None:
        return one_line(item["found"]), "nearest upwards"
    return _text(item["value"]), one_line(item["place"] or item["source"])


def _text(value: object) -> str:
    return "-" if value is None else one_line(str(value))


@app.command
def validate(
    file: Annotated[
        str | None, Parameter(help="Only this file; a pyproject.toml is read for its table [tool.fencepost].")
    ] = None,
    /,
    *,
    options: Globals = NO_GLOBALS,
) -> None:
    """Read every source, or one file, and say whether all of it can be used; what cannot is told, with exit code 2."""
    if file is not None:
        if not os.path.lexists(file):
            raise CommandError("not_found", f"there is no file {file}", next_step="name an existing file")
        keys = sorted(read_file(Path(os.path.abspath(file)), os.environ.get("HOME")))
        document = {"ok": True, "sources": [file], "keys": keys}
        emit(options, document, lambda out: print(f"ok: {one_line(file)}: {', '.join(keys) or 'no keys'}", file=out))
        return
    items = options.config().view()
    sources = sorted({item["source"] for item in items})
    emit(options, {"ok": True, "sources": sources}, lambda out: print(_valid(sources), file=out))


def _valid(sources: Sequence[str]) -> str:
    if list(sources) == ["first value"]:
        return "ok: no file, variable or option sets anything; the first values hold"
    return f"ok: {', '.join(one_line(source) for source in sources)}"
