"""`fencepost doctor`: look at everything that could be wrong, and say for each what to do. Changes nothing.

Each check makes a line: `ok`, `warn` (works, but less well or less safely) or `bad` (something does not work). A fault
has a code of the registry in `findings`. Checks go from the outside in, and stop where the next would fail only
because of what was found before.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, TextIO

from cyclopts import App as CommandApp
from cyclopts import Parameter

from fencepost.app import NoHome
from fencepost.config import Config, ConfigError, project_files, unknown_variables, user_file
from fencepost.core.machines import CorruptHistory
from fencepost.ports.errors import FencepostError
from fencepost.surfaces.cli.context import NO_GLOBALS, CommandError, Globals, emit, home_of, opened_home
from fencepost.surfaces.cli.doctor.findings import SEVERITY, WELL, Line, fault, well
from fencepost.surfaces.cli.doctor.home import home_lines
from fencepost.surfaces.cli.doctor.host import host_lines, limits_line
from fencepost.surfaces.cli.doctor.inside import inside_lines
from fencepost.surfaces.cli.doctor.repository import repository_lines
from fencepost.surfaces.cli.typed import here
from fencepost.surfaces.cli.words import count, one_line

app = CommandApp(name="doctor", help="Look at everything that could be wrong, and say what to do.")


@app.default
def doctor(
    plan: Annotated[
        str | None, Parameter(help="A plan file: also whether it is right, and what its orders call is here.")
    ] = None,
    /,
    *,
    options: Globals = NO_GLOBALS,
) -> int:
    lines = [line._replace(following=here(line.following)) for line in _lines(options, plan)]
    good = all(line.level != "bad" for line in lines)
    items = [
        {
            "check": line.check,
            "code": line.code,
            "level": line.level,
            "severity": SEVERITY[line.level],
            "message": line.message,
            "where": line.where or None,
            "next": line.following or None,
        }
        for line in lines
    ]

    def human(out: TextIO) -> None:
        for line in lines:
            code = "" if line.code == WELL else f" [{line.code}]"
            out.write(f"{line.level.ljust(4)}  {line.check}: {one_line(line.message)}{code}\n")
            if line.following:
                out.write(f"      next: {one_line(line.following)}\n")
        errors, warnings = (sum(line.level == level for line in lines) for level in ("bad", "warn"))
        if errors or warnings:
            out.write(f"{count(errors, 'error')}, {count(warnings, 'warning')}; fencepost help CODE says more\n")

    emit(options, {"ok": good, "items": items, "next": None}, human)
    return 0 if good else 1


def _lines(options: Globals, plan: str | None) -> Iterator[Line]:
    yield from host_lines()
    try:
        config = options.config()
    except ConfigError as error:
        for problem in error.problems:
            place = problem.file if problem.line is None else f"{problem.file}:{problem.line}"
            yield fault("config_refused", where=place, told=problem.message, following=problem.next)
        return
    yield well("config", f"scope {config.scope}, {config.jobs} jobs")
    yield from _config_files()
    for name, like in unknown_variables(os.environ).items():
        yield fault("variable_unknown", where=name, like=f"; did you mean {like}?" if like else "")
    yield limits_line(config.jobs)
    try:
        home = home_of(config, Path.cwd())
    except NoHome as error:
        yield fault("home_is_inside", where=str(config.home), following=error.next_step, inner="")
        return
    yield from repository_lines(Path.cwd(), home)
    if home is None or not home.is_dir():
        yield fault("home_missing")
    else:
        yield from _home(home, config)
    if plan is not None:
        # `plan check` and `run` say the same without being a diagnosis: they come in from the other side.
        from fencepost.surfaces.cli.doctor.plan import plan_lines

        yield from plan_lines(plan, config.jobs)


def _config_files() -> Iterator[Line]:
    """Files that somebody else could write name a store that this user then works in."""
    user = user_file(os.environ)
    for path in (*project_files(Path.cwd()), *((user,) if user is not None else ())):
        try:
            found = path.stat()
        except OSError:
            continue  # there is none
        if found.st_mode & 0o002 or found.st_uid not in (0, os.geteuid()):
            yield fault("config_of_others", where=shlex.quote(str(path)))


def _home(home: Path, config: Config) -> Iterator[Line]:
    found = list(home_lines(home))
    yield from found
    if any(line.level == "bad" and line.check in ("home", "store") for line in found):
        return
    try:
        # Keys that others may read, or that are lost, are told already, by whoever needs no store for it.
        told = any(line.code in ("keys_open", "keys_missing") for line in found)
        with opened_home(home, config) as opened:
            yield from inside_lines(opened, keys_told=told)
    except CommandError as error:
        if error.code == "scope_not_open":
            yield fault("scope_not_open", where=config.scope, told=error.message)
        else:
            yield fault("store_unsupported", where=str(config.store), told=error.message, following=error.next_step)
    except (FencepostError, CorruptHistory, OSError) as error:
        yield fault("store_unusable", told=str(error), following=getattr(error, "next_step", None))
