"""A plan, before it is run: what it says, and whether this host has what its orders call for."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from fencepost.core.planfile.document import FromOrder, WorkItem
from fencepost.ports.errors import FencepostError
from fencepost.surfaces.cli.doctor.findings import Line, fault, well
from fencepost.surfaces.cli.plan_files import Checked, PlanRefused, check, read_source
from fencepost.surfaces.cli.words import count

FAULTS_SHOWN_MAX = 50


def plan_lines(file: str) -> Iterator[Line]:
    """What would keep the plan in `file` from running here."""
    try:
        checked = check(read_source(file, None))
    except PlanRefused as refused:
        unfit = [problem for problem in refused.documents if problem["code"].startswith("python_")]
        for problem in unfit:
            yield fault("python_unusable", where=shlex.quote(file), told=problem["message"])
        if len(unfit) == len(refused.documents):
            return
        told = count(len(refused.documents), "problem")
        yield fault("plan_invalid", where=shlex.quote(file), count=told, first=refused.code, told=refused.message)
        return
    except FencepostError as error:
        place = shlex.quote(file)
        told = error.message
        yield fault(
            "plan_invalid",
            where=place,
            following=error.next_step,
            count=count(1, "problem"),
            first=error.code,
            told=told,
        )
        return
    found = [line for item in checked.document.work for line in _order(checked, item)]
    yield from found[:FAULTS_SHOWN_MAX]
    if not found:
        yield well("plan", f"{file}: {len(checked.document.work)} orders, and what they call is here")


def _order(checked: Checked, item: WorkItem) -> Iterator[Line]:
    for argv in (item.run, item.accept.verify):
        if argv:
            yield from _command(checked, item, argv)
    unset = [name for name in item.environment if not name.endswith("*") and name not in os.environ]
    unset = [name for name in unset if name not in ("LANG", "TZ")]  # first values, which need not be set
    if unset:
        yield fault("variable_not_set", where=item.name, names=", ".join(unset))


def _command(checked: Checked, item: WorkItem, argv: Sequence[str]) -> Iterator[Line]:
    """A command is sought as the attempt will: on its PATH, or as a path from its workspace on."""
    word = argv[0]
    if "/" not in word:
        path = os.environ.get("PATH", "") if "PATH" in item.environment else ""
        if shutil.which(word, path=os.pathsep.join([str(Path(sys.executable).parent), path or os.defpath])) is None:
            yield fault("command_missing", where=item.name, word=shlex.quote(word))
        return
    place = Path(word) if os.path.isabs(word) else checked.source.repository.root / word
    if not place.is_file():
        if not _is_handed(item, word):
            yield fault("command_missing", where=item.name, word=shlex.quote(word))
    elif not os.access(place, os.X_OK):
        yield fault("command_not_executable", where=item.name, word=shlex.quote(word))


def _is_handed(item: WorkItem, word: str) -> bool:
    """Whether the file may come from another order."""
    return (
        not os.path.isabs(word) and item.inputs is not None and any(isinstance(one, FromOrder) for one in item.inputs)
    )
