"""What a plan that is valid would still meet on this host: a program or verifier that is not there, attempts that its
time keeps from running at once. `doctor PLAN`, `plan check` and `run` say the same; nothing of it keeps a plan from
being run, since another host may be the one that runs it.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

from fencepost.core.planfile.document import FromOrder, WorkItem
from fencepost.surfaces.cli.doctor.findings import Line, fault
from fencepost.surfaces.cli.plan_files import Checked, PlanRefused, Source, check
from fencepost.surfaces.cli.typed import here
from fencepost.surfaces.cli.words import count, duration

WARNINGS_SHOWN_MAX = 5  # before the first line of a run


def plan_warnings(checked: Checked, jobs: int) -> Iterator[Line]:
    """Everything that would go wrong on this host with so many jobs. What is missing after the work was done and paid
    for comes first."""
    found = [line for item in checked.document.work for line in _order(checked, item)]
    yield from (line for line in found if line.code == "verifier_missing")
    yield from (line for line in found if line.code != "verifier_missing")
    few = fewest_at_once(checked, jobs)
    if few is not None:
        yield fault(
            "attempts_few_at_once",
            fits=count(few.fits, "attempt"),
            wanted=few.wanted,
            hold=duration(few.hold_us),
            ceiling=duration(few.ceiling_us),
        )


def warning_lines(checked: Checked, jobs: int) -> list[str]:
    """The same for people, as many as a run may begin with."""
    found = list(plan_warnings(checked, jobs))
    told = [f"warning: {line.message}; next: {line.following}" for line in found[:WARNINGS_SHOWN_MAX]]
    more = len(found) - WARNINGS_SHOWN_MAX
    if more > 0:
        told.append(here(f"{count(more, 'more warning')}: fencepost doctor {shlex.quote(checked.source.file)}"))
    return told


def check_report(source: Source, jobs: int) -> tuple[Mapping[str, Any], list[str]]:
    """The document of `plan check`, and its warnings for people."""
    try:
        checked = check(source)
    except PlanRefused as refused:
        return {"ok": False, "errors": refused.documents, "warnings": [], "order": []}, []
    warnings = [
        {"code": line.code, "message": line.message, "where": line.where or None, "next": line.following}
        for line in plan_warnings(checked, jobs)
    ]
    document = {"ok": True, "errors": [], "warnings": warnings, "order": list(checked.order)}
    return document, warning_lines(checked, jobs)


def _order(checked: Checked, item: WorkItem) -> Iterator[Line]:
    if item.run:
        yield from _command(checked, item, item.run, "command_missing")
    if item.accept.verify:
        yield from _command(checked, item, item.accept.verify, "verifier_missing")
    unset = [name for name in item.environment if not name.endswith("*") and name not in os.environ]
    unset = [name for name in unset if name not in ("LANG", "TZ")]  # first values, which need not be set
    if unset:
        yield fault("variable_not_set", where=item.name, names=", ".join(unset))


def _command(checked: Checked, item: WorkItem, argv: Sequence[str], missing: str) -> Iterator[Line]:
    """A command is sought as the attempt will: on its PATH, or as a path from its workspace on."""
    word = argv[0]
    if "/" not in word:
        path = os.environ.get("PATH", "") if "PATH" in item.environment else ""
        if not _is_found(word, os.pathsep.join([str(Path(sys.executable).parent), path or os.defpath])):
            yield fault(missing, where=item.name, word=shlex.quote(word))
        return
    place = Path(word) if os.path.isabs(word) else checked.source.repository.root / word
    if not place.is_file():
        if not _is_handed(item, word):
            yield fault(missing, where=item.name, word=shlex.quote(word))
    elif not os.access(place, os.X_OK):
        yield fault("command_not_executable", where=item.name, word=shlex.quote(word))


@cache  # a plan of a thousand orders calls few programs
def _is_found(word: str, path: str) -> bool:
    return shutil.which(word, path=path) is not None


def _is_handed(item: WorkItem, word: str) -> bool:
    """Whether the file may come from another order."""
    return (
        not os.path.isabs(word) and item.inputs is not None and any(isinstance(one, FromOrder) for one in item.inputs)
    )


class Few(NamedTuple):
    """`fits` attempts of `wanted` that could run at once have room in the plan's time; one of them holds `hold_us`."""

    fits: int
    wanted: int
    hold_us: int
    ceiling_us: int


def fewest_at_once(checked: Checked, jobs: int) -> Few | None:
    """Where the first value of attempt_time leaves fewer attempts at once than there are jobs and orders for; None
    where all have room, or whoever wrote the plan has said how long an attempt takes."""
    ceiling_us = checked.document.budget.get("time_us")
    if ceiling_us is None:
        return None
    worst: Few | None = None
    for step in _steps(checked):
        wanted = min(len(step), jobs)
        holds = sorted(item.attempt_time_us for item in step)
        fits = sum(held <= ceiling_us for held in accumulate(holds))
        undeclared = [item.attempt_time_us for item in step if not item.attempt_time_declared]
        if fits < wanted and undeclared and (worst is None or wanted - fits > worst.wanted - worst.fits):
            worst = Few(fits, wanted, max(undeclared), ceiling_us)
    return worst


def _steps(checked: Checked) -> list[list[WorkItem]]:
    """The orders by how many others come before them, one after another: those of a step could run at once."""
    by_name = {item.name: item for item in checked.document.work}
    depth: dict[str, int] = {}
    steps: list[list[WorkItem]] = []
    for name in checked.order:
        item = by_name[name]
        needed = [depth[member.name] for group in item.needs for member in group.members]
        depth[name] = 1 + max(needed, default=-1)
        if depth[name] == len(steps):
            steps.append([])
        steps[depth[name]].append(item)
    return steps
