"""The one place that says what a command of an attempt, or of its verifier, is started with."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import fencepost
from fencepost.core.records.plan import WorkOrderSpec
from fencepost.ports.executor import Job
from fencepost.ports.workspace import Workspace
from fencepost.services.means import Means

LOG_BYTES = 2**20  # of the first and of the last part of each stream
OUTCOME = "outcome"  # file beside the logs in which a callable's process says what came of it
_BOOTSTRAP = Path(fencepost.__file__).with_name("sdk") / "bootstrap.py"
_ISOLATION = ("-P", "-s", "-u", "-X", "utf8")
"""A callable's interpreter: no folder of a script and no packages of the user on its path, output at once, UTF-8."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """Whose command it is, the folders that it runs in, and the name of the lock that its supervisor holds."""

    attempt: str
    order: str
    fence: int
    space: Workspace
    lock: str
    socket: str = ""  # of the door that its programs speak through, "" for none
    token: str = ""


def program_of(spec: WorkOrderSpec, space: Workspace) -> tuple[str, ...]:
    """The arguments of an order's command: its own, or the interpreter of its callable with what it is to load."""
    python = spec.python
    if python is None:
        return spec.run
    told = (python.call, python.name, str(python.version), str(space.logs / OUTCOME))
    return (python.interpreter, *_ISOLATION, str(_BOOTSTRAP), *told)


def job_for(
    means: Means,
    spec: WorkOrderSpec,
    place: Place,
    *,
    argv: tuple[str, ...],
    logs: str,
    time_limit_us: int,
    repository: str = "",
) -> Job:
    """A command in the order's environment. The files of its output and of its status begin with `logs`."""
    space = place.space
    environment = means.environment(
        spec.environment,
        home=str(space.home),
        temporary=str(space.tmp),
        order=place.order,
        attempt=place.attempt,
        fence=place.fence,
        workspace=str(space.path),
        repository=repository,
        params_path="" if space.params_path is None else str(space.params_path),
        checkpoint_path="" if space.checkpoint_path is None else str(space.checkpoint_path),
        socket=place.socket,
        token=place.token,
    )
    return Job(
        attempt=place.attempt,
        order=place.order,
        fence=place.fence,
        argv=argv,
        environment=environment,
        cwd=str(space.path),
        stdout_path=str(space.logs / f"{logs}stdout"),
        stderr_path=str(space.logs / f"{logs}stderr"),
        lock_path=means.locks.path(place.lock),
        status_path=str(space.logs / f"{logs}status"),
        time_limit_us=time_limit_us,
        log_head_bytes=LOG_BYTES,
        log_tail_bytes=LOG_BYTES,
    )
