"""The open home: what its records, keys, artifacts, clock, workers and executor say."""

from __future__ import annotations

import os
import re
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from fencepost.app import App, diagnosis
from fencepost.core.ids import IdSource, sha256_of
from fencepost.core.machines import ENDED, CorruptHistory
from fencepost.core.reasons import WAITS_AND_ENDS
from fencepost.core.state import AttemptState
from fencepost.core.views import is_blocked
from fencepost.ports.artifacts import ArtifactMissing
from fencepost.ports.authority import KeyDamaged
from fencepost.ports.errors import FencepostError, IntegrityError
from fencepost.ports.executor import Job
from fencepost.services.means import estimated_now_us
from fencepost.surfaces.cli.anchors import anchor_finding
from fencepost.surfaces.cli.doctor.findings import Line, fault, well

BEHIND_WARN_US = 2_000_000
TRY_TIME_US = 30_000_000
PIDS_SHOWN_MAX = 8
PLANS_MAX = 1_000  # looked through for kept files, the newest first
FILES_MAX = 10_000
DOOR_S = 2.5  # more than a worker needs to put back a socket whose name was taken away
READ_S_MAX = 3.0  # for reading kept files; a large one may take longer by itself
_ATTEMPT_FOLDER = re.compile(r"(attempt_[0-9a-f]{32})(?:\..*)?")


def inside_lines(opened: App, *, keys_told: bool = False) -> Iterator[Line]:
    """`keys_told` says that something is wrong with the keys, and that it has been said."""
    for check in CHECKS:
        if not (keys_told and check is _authority):
            yield _safely(check, opened)


def _safely(check: Callable[[App], Line], opened: App) -> Line:
    """A check that fails is a finding like any other."""
    try:
        return check(opened)
    except (FencepostError, CorruptHistory, OSError) as error:
        line = fault("store_unusable", told=str(error), following=getattr(error, "next_step", None))
        return line._replace(check=check.__name__.strip("_"))


def _store(opened: App) -> Line:
    kernel = opened.kernel
    with kernel.reader.look() as look:
        head = look.head
        rows = look.records(head.seq - 1, 1)
    if not rows or sha256_of(rows[0][1]) != head.digest:
        return fault("store_head_wrong", sequence=head.seq)
    told = f"{kernel.journal.engine}, {head.seq} records"
    found = anchor_finding(opened)
    if found is not None:
        name = "store_not_as_signed" if found.bad else "store_unsigned"
        return fault(name, told=f"{told}; {found.message}", following=found.following)
    if not opened.ledger.all(scope=kernel.stream.scope, stream=kernel.stream.name):
        return well("store", f"{told}; nothing of scope {kernel.scope} has been signed yet, the first run to end does")
    return well("store", f"{told}; the newest anchor agrees, journal verify checks them all")


def _ledger(opened: App) -> Line:
    where = opened.ledger.where()
    copies = opened.ledger.other_homes()
    if copies:
        return fault("home_copied", where=str(where), other=copies[0])
    if where.is_relative_to(opened.home.parent):
        return fault("ledger_beside", where=str(where))
    return well("ledger", str(where))


def _authority(opened: App) -> Line:
    try:
        opened.keys.check()
    except KeyDamaged as error:
        return fault("keys_missing", where=str(opened.home / "keys"), told=str(error), following=error.next_step)
    problems = opened.kernel.authority_problems()
    if problems:
        return fault("authority_wrong", told="; ".join(problems))
    return well("authority", "everyone is enrolled with key and grant, and the constitution can be evaluated")


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
        return fault("artifacts_damaged", where=name, count=len(damaged), checked=checked, digest=digest)
    missing = [(digest, name) for digest, name in {**wanted, **manifests}.items() if not opened.artifacts.has(digest)]
    missing += [
        (pack, name)
        for digest, name in manifests.items()
        if opened.artifacts.has(digest)
        and not opened.packs.path_of(pack := opened.packs.read_manifest(digest).pack).is_file()
    ]
    if missing:
        digest, name = missing[0]
        return fault("artifacts_missing", where=name, count=len(missing), digest=digest)
    kept = len(wanted) + len(manifests)
    return well("artifacts", f"{kept} kept files that matter are there, {checked} of them read and whole")


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
        return fault("store_unusable", told="the scope has no clock")._replace(check="clock")
    if is_blocked(clock):
        row = WAITS_AND_ENDS[clock.state]
        return fault("clock_blocked", told=row.sentence, following=row.next_step)
    behind_us = max(reading.utc_us - estimated_now_us(clock, reading), 0)
    if behind_us > BEHIND_WARN_US:
        return fault("clock_behind", state=clock.state, seconds=behind_us // 1_000_000)
    return well("clock", f"{clock.state}, logical time agrees with UTC")


def _workers(opened: App) -> Line:
    names = [name for name in opened.locks.names() if name.startswith(("worker_", "attempt_"))]
    held = [name for name in names if opened.locks.is_held(name)]
    alive = sum(name.startswith("worker_") for name in held)
    stale = len(names) - len(held)
    more = f"; {stale} lock files of workers that were killed" if stale else ""
    return well("workers", f"{alive} running on this host{more}")


def _processes(opened: App) -> Line:
    """Processes of attempts that have ended: nothing should be left of them."""
    carriers = diagnosis().marked_processes()
    with opened.kernel.reader.look() as look:
        states = look.many(list(carriers))
    left = {
        name: carriers[name] for name, state in states.items() if isinstance(state, AttemptState) and state.ended_us
    }
    if not left:
        return well("processes", "none is left of an attempt that has ended")
    pids = [pid for group in left.values() for pid in group]
    shown = " ".join(map(str, pids[:PIDS_SHOWN_MAX]))
    return fault("processes_left", count=len(pids), pids=shown)


def _folders(opened: App) -> Line:
    """Folders of workspaces that no attempt of this store has: nothing removes them."""
    work = opened.home / "work"
    names = [name for name in sorted(os.listdir(work)) if not name.startswith(".")][:FILES_MAX]
    attempts = {name: found[1] for name in names if (found := _ATTEMPT_FOLDER.fullmatch(name)) is not None}
    with opened.kernel.reader.look() as look:
        known = look.many(sorted(set(attempts.values())))
    strange = [name for name in names if attempts.get(name) not in known]
    if strange:
        return fault("folders_left", where=str(work), count=len(strange), name=strange[0])
    return well("workspaces", f"{len(names)} folders, each of an attempt of this store")


def _wakeups(opened: App) -> Line:
    if getattr(opened.kernel.wakeups, "is_shared", True):
        return well("wake-ups", "processes of this store can wake each other")
    return fault("wakeups_missing", where=str(opened.home / "wake"))


def _door(opened: App) -> Line:
    folder = diagnosis().door_folder(opened.home, opened.kernel.journal.info.store_id, os.environ)
    if folder is None:
        return fault("door_missing", where=str(opened.home / "run"))
    alive, heard = _workers_and_doors(opened)
    if alive > heard:
        time.sleep(DOOR_S)  # one that begins or ends just now, or that puts back what was removed
        alive, heard = _workers_and_doors(opened)
    if alive > heard:
        return fault("door_unheard", where=str(folder), alive=alive, heard=heard)
    return well("door", f"programs inside attempts are heard in {folder}")


def _workers_and_doors(opened: App) -> tuple[int, int]:
    alive = sum(opened.locks.is_held(name) for name in opened.locks.names() if name.startswith("worker_"))
    if not alive:
        return 0, 0
    return alive, diagnosis().doors_heard(opened.home, opened.kernel.journal.info.store_id, os.environ)


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
        return well("executor", f"`true` ran in {ended.duration_us // 1_000} ms and left nobody")
    told: Any = "it did not end" if ended is None else ended.message or ended.reason
    return fault("executor_failed", told=told)


CHECKS: tuple[Callable[[App], Line], ...] = (
    *(_store, _ledger, _authority, _artifacts, _clock),
    *(_workers, _processes, _folders, _wakeups, _door, _executor),
)
"""What is looked at in an open home, in this order."""
