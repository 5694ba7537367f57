"""A plan, before it is run: what it says, and whether this host has what its orders call for."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from fencepost.ports.errors import FencepostError
from fencepost.surfaces.cli.doctor.findings import Line, fault, well
from fencepost.surfaces.cli.plan_files import PlanRefused, check, read_source
from fencepost.surfaces.cli.plan_warnings import plan_warnings
from fencepost.surfaces.cli.words import count

FAULTS_SHOWN_MAX = 50


def plan_lines(file: str, jobs: int) -> Iterator[Line]:
    """What would keep the plan in `file` from running here, with so many jobs."""
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
    found = list(plan_warnings(checked, jobs))
    yield from found[:FAULTS_SHOWN_MAX]
    if not found:
        yield well("plan", f"{file}: {len(checked.document.work)} orders, and what they call is here")
