"""What is said to be typed next, so that it works where it is printed.

A next step names the home and the scope where the folder of whoever reads it means others, the plan's own file where
the registry says PLAN, and an order by its name where a refusal has its id.
"""

from __future__ import annotations

import os
import re
import shlex
from contextvars import ContextVar
from pathlib import Path

from fencepost.app import find_home
from fencepost.config import ConfigError, load
from fencepost.core.records.plan import PlanRevision
from fencepost.core.state import NameState, OrderState, PlanState, name_subject
from fencepost.kernel.read import Look
from fencepost.ports.errors import FencepostError
from fencepost.surfaces.cli.words import planned_step

STDIN = "-"
UNKNOWN_FILE = "PLAN"
_COMMAND = re.compile(
    r"\bfencepost (?=(?:attempt (?:list|show)|budget|clock|doctor|init|journal|order|plan|run|worker)\b)"
)
"""What a program says inside its attempt needs no home: it speaks to its worker."""
_ID = re.compile(r"\b(?:order|plan)_[0-9a-f]{32}\b")
_OPENED: ContextVar[tuple[Path, str] | None] = ContextVar("opened", default=None)


def opened_is(home: Path | None, scope: str = "") -> None:
    """Which home and scope the steps that follow are about; None for those that plain words mean."""
    _OPENED.set(None if home is None else (home, scope))


def here(text: str) -> str:
    """A next step with the global options that it needs in this folder."""
    opened = _OPENED.get()
    if opened is None or "--home" in text or _COMMAND.search(text) is None:
        return text
    options = _options(*opened)
    return _COMMAND.sub(lambda _: f"fencepost {options}", text) if options else text


def _options(home: Path, scope: str) -> str:
    """Global options without which a command typed here would mean another home or scope, each with a space behind."""
    try:
        plain = load({}, os.environ, Path.cwd(), 1)
    except (ConfigError, OSError):
        return f"--home {shlex.quote(str(home))} --scope {shlex.quote(scope)} "
    meant = Path(plain.home) if plain.home is not None else find_home(Path.cwd())
    same = meant is not None and os.path.realpath(meant) == os.path.realpath(home)
    words = "" if same else f"--home {shlex.quote(str(home))} "
    return words + ("" if plain.scope == scope else f"--scope {shlex.quote(scope)} ")


def plan_file(look: Look, plan: str | None) -> str:
    """What `fencepost run` takes for a plan in this folder; PLAN where nobody knows its file."""
    found = look.find(plan, PlanState) if plan is not None else None
    if found is None:
        return UNKNOWN_FILE
    told = look.body(found.record_seq, PlanRevision).provenance
    file = told.get("file", "")
    if not file or file == STDIN:
        return file or UNKNOWN_FILE
    path = os.path.join(told.get("repository", ""), file)
    relative = os.path.relpath(path) if os.path.isabs(path) else path
    return shlex.quote(path if relative.startswith(os.pardir) else relative)


def plan_step(look: Look, plan: str | None, step: str) -> str:
    """A next step about a plan: its file for PLAN, and the option that submits it anew as it stands."""
    if UNKNOWN_FILE not in step:
        return step
    found = look.find(plan, PlanState) if plan is not None else None
    return filled_step(step, file=plan_file(look, plan), is_open=found is not None and found.open > 0)


def filled_step(step: str, *, file: str, is_open: bool) -> str:
    """The same for whoever knows the plan's file: it stands in a record that is as large as the plan."""
    return planned_step(step.replace("PLAN --again", "PLAN --new") if is_open else step, file)


def by_name(look: Look, error: FencepostError) -> None:
    """Put names for ids into what a refusal says, and the plan's file into its next step."""
    from fencepost.surfaces.cli.accounts import title_of
    from fencepost.surfaces.cli.context import is_one_of_several

    def name(found: re.Match[str]) -> str:
        value = look.get(found[0])
        if isinstance(value, OrderState):
            return title_of(look, value)
        return value.name if isinstance(value, PlanState) and not is_one_of_several(look, value) else found[0]

    detail = getattr(error, "detail", {})
    error.message = _ID.sub(name, error.message)
    if error.next_step is not None:
        known = look.find(name_subject(detail["name"]), NameState) if "name" in detail else None
        plan = known.meant_by() if known is not None else None
        error.next_step = plan_step(look, plan, _ID.sub(name, error.next_step))
