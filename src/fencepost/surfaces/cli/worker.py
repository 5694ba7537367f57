"""`fencepost worker start`: serve every plan of the scope until a signal comes, or until nothing is left to do."""

from __future__ import annotations

import time
from typing import Annotated

from cyclopts import App as CommandApp
from cyclopts import Parameter

from fencepost.services.worker import Worker
from fencepost.surfaces.cli.context import NO_GLOBALS, Globals, emit_line, opened, say
from fencepost.surfaces.cli.signals import STOPPING, Interrupts
from fencepost.surfaces.cli.stopping import stop_worker

app = CommandApp(name="worker", help="Workers that serve every plan of their scope.")

IDLE_LOOK_S = 0.2
IDLE_LOOKS = 2  # in a row, so that what is just being handed on is not taken for nothing


@app.command
def start(
    *,
    until_idle: Annotated[
        bool, Parameter(help="End when nothing is left that a worker can move.", negative="")
    ] = False,
    jobs: Annotated[int | None, Parameter(help="Attempts at once; first value: the processors.")] = None,
    options: Globals = NO_GLOBALS,
) -> int:
    """Serve the scope. SIGTERM and Ctrl-C drain it; a second signal kills what runs, a third leaves at once."""
    config = options.config(jobs=jobs)
    with Interrupts() as interrupts, opened(options, create=True, jobs=jobs) as app:
        worker = app.worker(jobs=config.jobs)
        tell = _silent if options.json else say
        interrupts.can_kill = True
        worker.start()
        if not options.json:
            say(f"{worker.worker} serves scope {config.scope} with {config.jobs} jobs")
        try:
            _serve(worker, interrupts, until_idle=until_idle)
            if interrupts.code is not None:
                tell(STOPPING)
        finally:
            stop_worker(app.threads, worker, interrupts, say=tell)
            interrupts.can_kill = False
        if worker.fatal is not None:
            raise worker.fatal
        status = worker.status()
        if options.json:
            emit_line({"worker": status.worker, "claimed": status.claimed, "failures": status.failures})
        else:
            say(f"{status.worker} has ended after {status.claimed} attempts")
    return interrupts.code or 0


def _silent(_: str) -> None:
    """Documents have no room for what is said on the way."""


def _serve(worker: Worker, interrupts: Interrupts, *, until_idle: bool) -> None:
    idle_looks = 0
    look_at = 0.0
    while interrupts.code is None and worker.fatal is None:
        if until_idle and time.monotonic() >= look_at:
            idle_looks = idle_looks + 1 if worker.is_idle() else 0
            if idle_looks >= IDLE_LOOKS:
                return
            look_at = time.monotonic() + IDLE_LOOK_S
        interrupts.pause()
