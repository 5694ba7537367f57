"""`fencepost doctor`: look at everything that could be wrong, and say for each what to do. Changes nothing.

Each check makes a line: `ok`, `warn` (works, but less well or less safely) or `bad` (something does not work).
"""

from __future__ import annotations

import os
import platform
import stat
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple, TextIO

from cyclopts import App as CommandApp

from fencepost.app import FOLDERS, LAYOUT, App, diagnosis, layout_of
from fencepost.config import Config
from fencepost.core.ids import IdSource, sha256_of
from fencepost.core.machines import ENDED, CorruptHistory
from fencepost.core.reasons import WAITS_AND_ENDS
from fencepost.core.state import AttemptState
from fencepost.core.views import is_blocked
from fencepost.ports.artifacts import ArtifactMissing
from fencepost.ports.errors import FencepostError, IntegrityError
from fencepost.ports.executor import Job
from fencepost.services.means import estimated_now_us
from fencepost.surfaces.cli.anchors import anchor_finding
from fencepost.surfaces.cli.context import NO_GLOBALS, CommandError, Globals, emit, home_of, opened_home
from fencepost.surfaces.cli.typed import here

app = CommandApp(name="doctor", help="Look at everything that could be wrong, and say what to do.")

PYTHON_MIN = (3, 11)
FREE_WARN_BYTES = 2**30
FREE_BAD_BYTES = 64 * 2**20
BEHIND_WARN_US = 2_000_000
TRY_TIME_US = 30_000_000
PIDS_SHOWN_MAX = 8
PLANS_MAX = 1_000  # looked through for kept files, the newest first
FILES_MAX = 10_000
READ_S_MAX = 3.0  # for reading kept files; a large one may take longer by itself


class Line(NamedTuple):
    check: str
    level: Literal["ok", "warn", "bad"]
    message: str
    following: str = ""


@app.default
def doctor(*, options: Globals = NO_GLOBALS) -> int:
    lines = [*_host()]
    try:
        config = options.config()
    except FencepostError as error:
        lines.append(Line("config", "bad", error.message, error.next_step or "fencepost config validate"))
    else:
        lines.append(Line("config", "ok", f"scope {config.scope}, {config.jobs} jobs"))
        lines += _home(config)
    lines = [line._replace(following=here(line.following)) for line in lines]
    good = all(line.level != "bad" for line in lines)
    items = [
        {"check": line.check, "level": line.level, "message": line.message, "next": line.following or None}
        for line in lines
    ]

    def human(out: TextIO) -> None:
        for line in lines:
            out.write(f"{line.level.ljust(4)}  {line.check}: {line.message}\n")
            if line.following:
                out.write(f"      next: {line.following}\n")

    emit(options, {"ok": good, "items": items, "next": None}, human)
    return 0 if good else 1


def _host() -> Iterator[Line]:
    version = platform.python_version()
    if sys.version_info >= PYTHON_MIN:
        yield Line("python", "ok", f"{version} at {sys.executable}")
    else:
        yield Line("python", "bad", f"{version} is too old", "use Python 3.11 or later")
    if sys.platform == "linux":
        yield Line("platform", "ok", f"linux {platform.release()}: whole process trees are contained by their keeper")
    elif sys.platform == "darwin":
        yield Line(
            "platform",
            "warn",
            "macOS: process trees are contained by lock and marker only",
            "use Linux where orders start daemons",
        )
    else:
        yield Line("platform", "bad", f"{sys.platform} is not supported", "use Linux or macOS")
    git = diagnosis().git_version()
    if git is None:
        yield Line("git", "warn", "no git on PATH: repositories cannot be pinned, plain folders can", "install git")
    else:
        yield Line("git", "ok", git)


def _home(config: Config) -> Iterator[Line]:
    home = home_of(config, Path.cwd())
    if home is None or not home.is_dir():
        yield Line("home", "warn", "there is no home here or above", "fencepost init, or fencepost run PLAN")
        return
    layout = layout_of(home)
    if layout != str(LAYOUT):
        found = layout or "missing"
        # Only an unfinished home is completed by `init`; one of another layout belongs to another program.
        next_step = "use the fencepost that made it" if layout else "fencepost init"
        yield Line("home", "bad", f"{home}: its layout is {found}, this program has {LAYOUT}", next_step)
        return
    missing = [name for name in FOLDERS if not (home / name).is_dir()]
    closed = [name for name in FOLDERS if name not in missing and not diagnosis().takes_files(home / name)]
    if missing:
        yield Line("home", "bad", f"{home}: {', '.join(missing)} missing", "fencepost init completes it")
        return
    if closed:
        yield Line("home", "bad", f"{home}: {', '.join(closed)} cannot be written", "give this user the right to write")
    else:
        yield Line("home", "ok", f"{home}, layout {layout}")
    yield _keys(home / "keys")
    yield _space(home)
    try:
        with opened_home(home, config) as opened:
            for check in CHECKS:
                yield _safely(check, opened)
    except CommandError as error:
        if error.code != "scope_not_open":
            raise
        following = "fencepost init; run and plan submit do so by themselves"
        yield Line("scope", "warn", error.message, following)
    except (FencepostError, CorruptHistory, OSError) as error:
        following = getattr(error, "next_step", None) or "fencepost journal verify"
        yield Line("store", "bad", str(error), following)


def _safely(check: Callable[[App], Line], opened: App) -> Line:
    """A check that fails is a finding like any other."""
    try:
        return check(opened)
    except (FencepostError, CorruptHistory, OSError) as error:
        name = check.__name__.strip("_")
        return Line(name, "bad", str(error), getattr(error, "next_step", None) or "fencepost journal verify")


def _keys(folder: Path) -> Line:
    loose = [
        str(path.relative_to(folder.parent))
        for path in (folder, *sorted(folder.iterdir()))
        if stat.S_IMODE(path.stat().st_mode) & 0o077 or path.stat().st_uid != os.getuid()
    ]
    if loose:
        shown = ", ".join(loose[:PIDS_SHOWN_MAX])
        return Line("keys", "bad", f"others may read or own {shown}", f"chmod -R go= {folder}")
    return Line("keys", "ok", "only this user may read them")


def _space(home: Path) -> Line:
    free = diagnosis().free_bytes(home)
    told = f"{free // 2**20} MiB free where the home lies"
    if free < FREE_BAD_BYTES:
        return Line("disk", "bad", told, "free space, then run again: nothing is lost")
    return Line("disk", "warn", told, "free space") if free < FREE_WARN_BYTES else Line("disk", "ok", told)


def _store(opened: App) -> Line:
    kernel = opened.kernel
    with kernel.reader.look() as look:
        head = look.head
        rows = look.records(head.seq - 1, 1)
    if not rows or sha256_of(rows[0][1]) != head.digest:
        return Line("store", "bad", f"the last record is not the one that the head names ({head.seq})")
    told = f"{kernel.journal.engine}, {head.seq} records"
    found = anchor_finding(opened)
    if found is not None:
        return Line("store", "bad" if found.bad else "warn", f"{told}; {found.message}", found.following)
    return Line("store", "ok", f"{told}; the newest anchor agrees, journal verify checks them all")


def _ledger(opened: App) -> Line:
    where = opened.ledger.where()
    copies = opened.ledger.other_homes()
    if copies:
        told = f"{copies[0]} is another home of the same store: both sign into {where}, so that each spoils the other's"
        return Line("ledger", "warn", told, "keep one of them; begin the other anew, in a folder without .fencepost")
    if where.is_relative_to(opened.home.parent):
        return Line(
            "ledger",
            "warn",
            f"{where} lies beside the home: who can write the store can write it too",
            "make ~/.local/state writable, or set XDG_STATE_HOME",
        )
    return Line("ledger", "ok", str(where))


def _authority(opened: App) -> Line:
    opened.keys.check()
    problems = opened.kernel.authority_problems()
    if problems:
        return Line("authority", "bad", "; ".join(problems), "restore .fencepost/keys from a backup, or use a new home")
    return Line("authority", "ok", "everyone is enrolled with key and grant, and the constitution can be evaluated")


def _artifacts(opened: App) -> Line:
    """Whether what open orders read and what applied orders left is there, as far as the bound reaches."""
    wanted: dict[str, str] = {}
    manifests: dict[str, str] = {}
    with opened.kernel.reader.look() as look:
        for plan in look.newest_plans(PLANS_MAX):
            for order in look.orders(plan.plan):
                if len(wanted) + len(manifests) >= FILES_MAX:
                    break
                name = f"{plan.name}/{order.task}"
                if order.state == "applied" and (facts := look.facts(order.result_seq)) is not None:
                    wanted.update((ref.digest, name) for ref in facts.artifacts)
                elif order.state not in ENDED:
                    spec = look.spec(order)
                    wanted.update((digest, name) for digest in spec.accept.schemas.values())
                    if spec.inputs.manifest is not None:
                        manifests[spec.inputs.manifest] = name
    damaged, checked = _damaged(opened, {**wanted, **manifests})
    if damaged:
        digest, name = damaged[0]
        told = f"{len(damaged)} of {checked} kept files that were read are damaged, among them {digest} of {name}"
        return Line("artifacts", "bad", told, "restore .fencepost/artifacts, or fencepost run PLAN --again")
    missing = [(digest, name) for digest, name in {**wanted, **manifests}.items() if not opened.artifacts.has(digest)]
    missing += [
        (pack, name)
        for digest, name in manifests.items()
        if opened.artifacts.has(digest)
        and not opened.packs.path_of(pack := opened.packs.read_manifest(digest).pack).is_file()
    ]
    if missing:
        digest, name = missing[0]
        told = f"{len(missing)} kept files are missing, among them {digest} of {name}"
        return Line("artifacts", "bad", told, "restore .fencepost/artifacts and packs, or fencepost run PLAN --again")
    kept = len(wanted) + len(manifests)
    return Line("artifacts", "ok", f"{kept} kept files that matter are there, {checked} of them read and whole")


def _damaged(opened: App, files: dict[str, str]) -> tuple[list[tuple[str, str]], int]:
    """Kept files whose bytes have another digest, and how many were read in the time that there is."""
    until = time.monotonic() + READ_S_MAX
    damaged = []
    checked = 0
    for digest, name in files.items():
        if time.monotonic() >= until:
            break
        try:
            opened.artifacts.verify(digest)
        except ArtifactMissing:
            continue
        except IntegrityError:
            damaged.append((digest, name))
        checked += 1
    return damaged, checked


def _clock(opened: App) -> Line:
    reading = opened.kernel.clock.read()
    with opened.kernel.reader.look() as look:
        clock = look.clock()
    if clock is None:
        return Line("clock", "bad", "the scope has no clock", "fencepost init")
    if is_blocked(clock):
        row = WAITS_AND_ENDS[clock.state]
        return Line("clock", "bad", row.sentence, row.next_step)
    behind_us = max(reading.utc_us - estimated_now_us(clock, reading), 0)
    if behind_us > BEHIND_WARN_US:
        told = f"{clock.state}; logical time is {behind_us // 1_000_000} s behind UTC, since this host was restarted"
        return Line("clock", "warn", told, "nothing: deadlines only come later")
    return Line("clock", "ok", f"{clock.state}, logical time agrees with UTC")


def _workers(opened: App) -> Line:
    names = [name for name in opened.locks.names() if name.startswith(("worker_", "attempt_"))]
    held = [name for name in names if opened.locks.is_held(name)]
    alive = sum(name.startswith("worker_") for name in held)
    stale = len(names) - len(held)
    more = f"; {stale} lock files of workers that were killed" if stale else ""
    return Line("workers", "ok", f"{alive} running on this host{more}")


def _leftovers(opened: App) -> Line:
    """Processes of attempts that have ended: nothing should be left of them."""
    carriers = diagnosis().marked_processes()
    with opened.kernel.reader.look() as look:
        states = look.many(list(carriers))
    left = {
        name: carriers[name] for name, state in states.items() if isinstance(state, AttemptState) and state.ended_us
    }
    if not left:
        return Line("processes", "ok", "none is left of an attempt that has ended")
    pids = [pid for group in left.values() for pid in group]
    shown = " ".join(map(str, pids[:PIDS_SHOWN_MAX]))
    return Line("processes", "bad", f"{len(pids)} are left of attempts that have ended: {shown}", f"kill {shown}")


def _wakeups(opened: App) -> Line:
    if getattr(opened.kernel.wakeups, "is_shared", True):
        return Line("wake-ups", "ok", "processes of this store can wake each other")
    return Line("wake-ups", "warn", "no sockets can be made here: processes look once a second", "nothing: it works")


def _executor(opened: App) -> Line:
    """Run `true` under a keeper, as an attempt would be run."""
    clock = opened.kernel.clock
    ids = IdSource(opened.kernel.entropy.seed(), clock.read().utc_us)
    with tempfile.TemporaryDirectory(dir=opened.home / "work", prefix="doctor.") as folder:
        place = Path(folder)
        job = Job(
            attempt=ids.next("attempt"),
            order=ids.next("order"),
            fence=1,
            argv=("true",),
            environment={"PATH": os.environ.get("PATH") or os.defpath},
            cwd=folder,
            stdout_path=str(place / "stdout"),
            stderr_path=str(place / "stderr"),
            lock_path=str(place / "lock"),
            status_path=str(place / "status"),
            time_limit_us=TRY_TIME_US,
            log_head_bytes=1_024,
            log_tail_bytes=1_024,
        )
        ended = opened.executor.start(job, clock.read().tick_us + TRY_TIME_US).wait(TRY_TIME_US / 1_000_000)
    if ended is not None and ended.reason == "exited" and ended.exit_code == 0:
        return Line("executor", "ok", f"`true` ran in {ended.duration_us // 1_000} ms and left nobody")
    told: Any = "it did not end" if ended is None else ended.message or ended.reason
    return Line("executor", "bad", f"`true` could not be run: {told}", "check PATH, and that processes may be started")


CHECKS: tuple[Callable[[App], Line], ...] = (
    *(_store, _ledger, _authority, _artifacts, _clock),
    *(_workers, _leftovers, _wakeups, _executor),
)
"""What is looked at in an open home, in this order."""
