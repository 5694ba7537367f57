"""`fencepost run`: the main job. Check, submit, work, wait until everything has ended or waits for a person.

Killed at any moment and run again, it continues: the plan is found by name and content, its inputs are those pinned
at its submission, and what a killed worker left is recovered by the next one.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, TextIO

from cyclopts import App as CommandApp
from cyclopts import Parameter

from fencepost.app import App
from fencepost.core.machines import ENDED
from fencepost.core.reasons import EXIT_NOT_APPLIED, EXIT_PERSON, EXIT_TIMEOUT
from fencepost.core.state import PlanState
from fencepost.core.views import is_blocked, only_a_person_can_move, plan_outcome
from fencepost.kernel.read import Look
from fencepost.kernel.rows import REBUILD
from fencepost.ports.errors import IntegrityError
from fencepost.services.means import estimated_now_us
from fencepost.services.submission import Submission
from fencepost.services.worker import Worker
from fencepost.surfaces.cli.anchors import anchor_line
from fencepost.surfaces.cli.context import (
    NO_GLOBALS,
    CommandError,
    CommandKey,
    Globals,
    emit_line,
    home_of,
    opened_home,
    recorded_is,
)
from fencepost.surfaces.cli.init import ensure_home
from fencepost.surfaces.cli.living import orphans
from fencepost.surfaces.cli.pinned import pinned_hint
from fencepost.surfaces.cli.plan_files import read_source
from fencepost.surfaces.cli.plan_warnings import warning_lines
from fencepost.surfaces.cli.progress import Lines, Progress, View, is_gone, silence
from fencepost.surfaces.cli.signals import STOPPING, TICK_S, Interrupts
from fencepost.surfaces.cli.stopping import stop_worker
from fencepost.surfaces.cli.submit import STILL_OPEN, Placed, checked_for, done_anew, place
from fencepost.surfaces.cli.summary import Report, print_report, report
from fencepost.surfaces.cli.typed import here
from fencepost.surfaces.cli.view.wanted import has_colour, is_terminal, is_wanted, marks_for
from fencepost.surfaces.cli.words import count, duration

app = CommandApp(name="run", help="Check a plan, submit it, and work until everything has ended or waits for a person.")

HINT = "Ctrl-C stops cleanly; rerun to continue"
JUDGING_SHARE = 20  # times what one look at all orders takes pass between two of them


@dataclass(frozen=True, kw_only=True)
class _Wait:
    """How a run waits: `timeout_us` None is without limit, `jobs` 0 is without a worker of its own."""

    jobs: int
    timeout_us: int | None


@app.default
def run(
    plan: Annotated[str, Parameter(help="The plan file; - reads it from stdin.")],
    /,
    *,
    jobs: Annotated[int | None, Parameter(help="Attempts at once; first value: the processors.")] = None,
    no_work: Annotated[bool, Parameter(help="Start no worker: wait for others.", negative="")] = False,
    timeout: Annotated[str | None, Parameter(help="Wait at most this long, such as 90s or 1h30m.")] = None,
    again: Annotated[bool, Parameter(help="Submit a finished plan anew.", negative="")] = False,
    new: Annotated[bool, Parameter(help="Submit beside an open plan of other content.", negative="")] = False,
    no_input: Annotated[bool, Parameter(help="Never ask anything.", negative="")] = False,
    repo: Annotated[str | None, Parameter(help="The repository to work on; first value: the plan's own.")] = None,
    command_key: CommandKey = None,
    options: Globals = NO_GLOBALS,
) -> int:
    """Nothing here asks anything yet, so that `no_input` holds by itself."""
    with Interrupts() as interrupts:
        mode = _mode(again=again, new=new)
        source = read_source(plan, repo)
        config = options.config(source.folder, jobs=jobs, timeout=timeout)
        wait = _Wait(jobs=0 if no_work else config.jobs, timeout_us=config.timeout_us)
        home = home_of(config, source.folder)
        checked = checked_for(source, home, config, mode)
        if interrupts.code is not None:
            return interrupts.code
        home = ensure_home(home, source.folder)
        with opened_home(home, config, create=True) as opened:
            placed = place(opened, checked, mode, command_key)
            recorded_is("the plan is recorded all the same", "run again, with another output: it goes on")
            warnings = warning_lines(checked, config.jobs) if wait.jobs else []
            out = sys.stderr if options.json else sys.stdout
            found, code = _run(opened, placed, mode, warnings, wait, interrupts, out)
        _finish(found, as_json=options.json)
        return code


def _mode(*, again: bool, new: bool) -> Submission:
    if again and new:
        raise CommandError("usage", "--again and --new exclude each other", next_step="choose one")
    return "again" if again else "new" if new else "continue"


def _run(
    app: App,
    placed: Placed,
    mode: Submission,
    warnings: Sequence[str],
    wait: _Wait,
    interrupts: Interrupts,
    out: TextIO,
) -> tuple[Report, int]:
    lines = Lines(out)
    with app.kernel.reader.look() as look:
        plan = _plan(look, placed.plan)
        _announce(app, look, plan, placed, mode, lines)
        if plan.open:
            _say_clock(app, look, lines)
            for warning in warnings:
                lines.say(warning)
            if (unvouched := anchor_line(app)) is not None:
                lines.say(unvouched)
    if not plan.open:
        return _judged(app, placed.plan, None, timed_out=False)
    worker = app.worker(jobs=wait.jobs, plan=placed.plan) if wait.jobs else None
    if worker is None:
        lines.say("no worker of its own: waiting for others, such as fencepost worker start")
    view = _view(app, placed.plan, out, lines, interrupts)
    try:
        try:
            if worker is not None:
                interrupts.can_kill = True
                worker.start()
            timed_out = _until_ended(app, placed.plan, worker, wait, interrupts, view)
            if interrupts.code is not None and worker is not None:
                view.say(STOPPING)
        finally:
            if worker is not None:
                _stop(app, worker, view, interrupts)
        with app.kernel.reader.look() as look:
            view.tell(look)
    finally:
        view.close()
        interrupts.before_exit, interrupts.can_kill = None, False
    if worker is not None and worker.fatal is not None:
        raise worker.fatal
    return _judged(app, placed.plan, interrupts.code, timed_out=timed_out)


def _view(app: App, plan: str, out: TextIO, lines: Lines, interrupts: Interrupts) -> View:
    """The live view where a person looks at a terminal, else plain lines, from where the plan stands."""
    with app.kernel.reader.look() as look:
        if is_wanted(out, app.environment):
            from fencepost.surfaces.cli.view.live import live_view

            view = live_view(app, out, look, plan=plan, hint=HINT)
            interrupts.before_exit = view.restore
            return view
        progress = Progress(plan, look.head.seq, lines)
        progress.begin(look)
        return progress


def _stop(app: App, worker: Worker, view: View, interrupts: Interrupts) -> None:
    """Drain the worker, and go on showing what happens meanwhile."""

    def tick() -> None:
        with app.kernel.reader.look() as look:
            view.tell(look)
        view.tick()

    stop_worker(app.threads, worker, interrupts, say=view.say, tick=tick)


def _announce(app: App, look: Look, plan: PlanState, placed: Placed, mode: Submission, lines: Lines) -> None:
    if placed.fresh:
        lines.say(f"plan {plan.name}: submitted ({count(plan.orders, 'order')})")
        if (anew := done_anew(look, plan)) is not None:
            lines.say(anew)
    elif plan.open:
        orders = look.orders(plan.plan)
        ended = sum(order.state in ENDED for order in orders)
        lines.say(f"plan {plan.name}: continues ({ended} of {len(orders)} orders have ended)")
        if mode == "again":
            lines.say(STILL_OPEN)
        left = [order for order in orders if order.state not in ENDED]
        if (pinned := pinned_hint(app, look, plan.plan, left)) is not None:
            lines.say(here(pinned))
    else:
        lines.say(f"plan {plan.name}: has ended before; --again submits it anew")
        if (pinned := pinned_hint(app, look, plan.plan, look.orders(plan.plan))) is not None:
            lines.say(here(pinned))


def _say_clock(app: App, look: Look, lines: Lines) -> None:
    clock = look.clock()
    reading = app.kernel.clock.read()
    behind_us = max(reading.utc_us - estimated_now_us(clock, reading), 0)
    if is_blocked(clock):
        lines.say("clock: a reading contradicted the accepted time, so nothing new starts: fencepost clock show")
    elif behind_us > app.kernel.limits.clock_skew_max_us:
        lines.say(f"clock: {duration(behind_us)} behind UTC since a restart; deadlines come that much later")


def _until_ended(app: App, plan: str, worker: Worker | None, wait: _Wait, interrupts: Interrupts, view: View) -> bool:
    """Wait until the plan has ended, only a person can move it, or somebody stops this. True when time ran out."""
    reader, wakeups = app.kernel.reader, app.kernel.wakeups
    until = None if wait.timeout_us is None else time.monotonic() + wait.timeout_us / 1_000_000
    token = -1
    unjudged = True  # whether anything has changed since it was last asked if only a person can move it
    judge_at = 0.0
    while interrupts.code is None and (worker is None or worker.fatal is None):
        ticket = wakeups.ticket()
        now_token = reader.change_token()
        if now_token != token:
            token, unjudged = now_token, True
            with reader.look() as look:
                view.tell(look)
                if not _plan(look, plan).open:
                    return False
        if unjudged and time.monotonic() >= judge_at:
            unjudged, began = False, time.monotonic()
            with reader.look() as look:
                if _waits_for_person(look, plan):
                    return False
            # Looking at every order of a large plan takes its time: a small part of all time is spent on it.
            judge_at = time.monotonic() + (time.monotonic() - began) * JUDGING_SHARE
        view.tick()
        if until is not None and time.monotonic() >= until:
            return True
        wakeups.wait(ticket, TICK_S)
    return False


def _plan(look: Look, plan: str) -> PlanState:
    found = look.find(plan, PlanState)
    if found is None:
        raise IntegrityError(f"the cached row of {plan} is missing", next_step=REBUILD)
    return found


def _waits_for_person(look: Look, plan: str) -> bool:
    """Whether something has not ended that only a person can move, and nothing else can move."""
    return only_a_person_can_move(look.orders(plan), look.clock(), look.get)


def _judged(app: App, plan: str, signalled: int | None, *, timed_out: bool) -> tuple[Report, int]:
    """The report, and the exit code that holds first: signal, timeout, waiting, not applied, well."""
    with app.kernel.reader.look() as look:
        state = _plan(look, plan)
        orders = look.orders(plan)
        outcome = plan_outcome(state, orders, look.clock(), look.get) if not state.open else "waiting"
        code = 0 if outcome == "done" else EXIT_NOT_APPLIED
        if state.open:
            if signalled is not None:
                outcome, code = "interrupted", signalled
            elif timed_out:
                outcome, code = "timeout", EXIT_TIMEOUT
            else:
                code = EXIT_PERSON
        gone = orphans(look, orders, app.locks, app.kernel.clock.read()) if state.open else set()
        return report(look, state, outcome, gone=gone), code


def _finish(found: Report, *, as_json: bool) -> None:
    try:
        if as_json:
            emit_line(found.document())
        else:
            looked_at = is_terminal(sys.stdout)
            print_report(
                found,
                sys.stdout,
                colour=has_colour(os.environ, terminal=looked_at),
                marks=marks_for(sys.stdout) if looked_at else None,
            )
        sys.stdout.flush()
    except OSError as error:
        if not is_gone(error, sys.stdout):
            raise
        silence(sys.stdout)
