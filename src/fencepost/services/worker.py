"""A worker: claims orders, runs them in slots, renews their leases, and keeps the scope moving meanwhile.

One start of one process is one worker with a name that is never reused; while it lives it holds the lock of that
name, so that others of the same host can tell. Claims happen in one thread; each attempt has a thread of its own;
renewals have another. Nothing depends on a worker ending well: what it leaves is found by whoever comes next.
"""

from __future__ import annotations

import fcntl
import os
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from fencepost.core.commands import EnrolWorker, ReserveNext
from fencepost.core.ids import IdSource
from fencepost.core.index import CLAIM, DEADLINE, LEASE, RESERVATION, RETRY, UNSETTLED
from fencepost.kernel.receipts import Refused
from fencepost.ports.errors import FencepostError, StorageError, StorageFull
from fencepost.services.attempt import Attempts
from fencepost.services.finish import Finisher
from fencepost.services.leases import Leases
from fencepost.services.means import Means, estimated_now_us
from fencepost.services.recover import Recoverer
from fencepost.services.upkeep import Upkeep

LOOK_S = 0.1  # between looks at everything but the queue, while there is traffic
IDLE_S = 1.0  # the longest sleep: a lost wake-up costs this much, and an idle worker looks this often
SUSPECT_S = 0.1  # while a holder that seems gone is not yet proved to be
RETRY_S = 0.5  # after the store failed
DRAIN_GRACE_US = 5_000_000
EXECUTORS = ("command/1",)


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker is doing, without private content (C28)."""

    worker: str
    running: int
    jobs: int
    claimed: int
    failures: int
    stopping: bool
    last_error: str


class Worker:
    """Serves one scope, or one plan of it, with up to `jobs` attempts at once."""

    def __init__(self, means: Means, *, jobs: int, plan: str | None = None) -> None:
        if jobs < 1:
            raise ValueError("a worker needs at least one slot")
        self._means = means
        self._jobs = jobs
        self._plan = plan
        reading = means.reading()
        self.worker = IdSource(means.kernel.entropy.seed(), reading.utc_us).next("worker")
        self._leases = Leases(means, self.worker)
        self._finisher = Finisher(means, self.worker)
        self._attempts = Attempts(means, self.worker, self._leases, self._finisher)
        self._recoverer = Recoverer(means, self.worker)
        self._upkeep = Upkeep(means)
        self._slots: dict[threading.Thread, str] = {}
        self._guard = threading.Lock()
        self._stop = threading.Event()
        self._lock_descriptor = -1
        self._thread = threading.Thread(target=self._serve, name="fencepost-worker", daemon=True)
        self._look_at = 0.0
        self._looked_token = -1
        self._claimed = 0
        self._failures = 0
        self._last_error = ""
        self.fatal: FencepostError | None = None

    def start(self) -> None:
        """Take the name, enrol, and begin to serve. Raises StorageError or Refused."""
        path = self._means.worker_lock(self.worker)
        self._lock_descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._lock_descriptor, fcntl.LOCK_EX)
        reading = self._means.reading()
        receipt = self._means.issue(
            "human",
            EnrolWorker(
                worker=self.worker,
                host=reading.source,
                boot_id=reading.boot_id,
                pid=os.getpid(),
                executors=EXECUTORS,
            ),
        )
        if receipt.refusal is not None:
            raise Refused(receipt.refusal)
        self._leases.start()
        self._thread.start()

    def request_stop(self) -> None:
        """Claim nothing more and begin to drain: running attempts are stopped cleanly and cost no attempt."""
        self._stop.set()
        self._finisher.drain()
        for lease in self._leases.all():
            lease.drain(DRAIN_GRACE_US)
        self._means.kernel.wakeups.notify()

    def stop(self) -> None:
        """Drain, and return only when everything of this worker has ended. Fine after a start that failed."""
        self.request_stop()
        if self._thread.ident is not None:
            self._thread.join()
            for thread in self._threads():
                thread.join()
            self._leases.stop()
        if self._lock_descriptor >= 0:
            os.close(self._lock_descriptor)
            self._lock_descriptor = -1
            self._means.worker_lock(self.worker).unlink(missing_ok=True)

    def is_idle(self) -> bool:
        """Whether no slot is taken and nothing of the scope (or plan) that this worker could move is due."""
        if self._threads():
            return False
        reading = self._means.reading()
        with self._means.kernel.reader.look() as look:
            if look.due(CLAIM, limit=1, group=self._plan):
                return False
            now_us = estimated_now_us(look.clock(), reading)
            timed = (RETRY, RESERVATION, LEASE, UNSETTLED, DEADLINE)
            return not any(look.due(stage, now_us=now_us, limit=1) for stage in timed) and not self._waits(look)

    def _waits(self, look: Any) -> bool:
        """Backoffs, leases and reservations that are not due yet are waiting, not an end."""
        return any(look.next_due(stage) is not None for stage in (RETRY, RESERVATION, LEASE))

    def status(self) -> Status:
        with self._guard:
            running = len(self._slots)
        return Status(
            worker=self.worker,
            running=running,
            jobs=self._jobs,
            claimed=self._claimed,
            failures=self._failures + self._leases.failures,
            stopping=self._stop.is_set(),
            last_error=self._last_error,
        )

    def _threads(self) -> list[threading.Thread]:
        with self._guard:
            return list(self._slots)

    def _serve(self) -> None:
        self._safely(self._upkeep.sweep_workspaces)
        while not self._stop.is_set():
            ticket = self._means.kernel.wakeups.ticket()
            token = self._means.kernel.reader.change_token()
            moved = self._safely(partial(self._round, token))
            if moved is None:
                self._stop.wait(RETRY_S)
            elif not moved:
                self._sleep(ticket, token)

    def _round(self, token: int) -> int:
        """Claim, and look after everything else at most every `LOOK_S`; returns how much was moved."""
        moved = self._claim()
        if time.monotonic() < self._look_at:
            return moved
        self._leases.check()
        looked = self._recoverer.run_once() + self._upkeep.run_once() + self._adopt()
        self._look_at = 0.0 if looked else time.monotonic() + LOOK_S
        self._looked_token = token
        return moved + looked

    def _safely(self, step: Callable[[], int]) -> int | None:
        """Run a step; None after a failure of the store, which passes or is fatal."""
        try:
            return step()
        except StorageFull as error:
            self._note(error)
            self.fatal = error
            return None
        except StorageError as error:
            self._note(error)
            return None
        except FencepostError as error:
            self._note(error)
            self.fatal = error
            self._stop.set()
            return None
        except Exception as error:
            # A fault of this program, or a history that cannot be: nobody may wait for a worker that is gone.
            self.fatal = _as_fatal(error)
            self._note(self.fatal)
            self._stop.set()
            return None

    def _note(self, error: FencepostError) -> None:
        self._failures += 1
        self._last_error = f"{error.code}: {error.message}"

    def _sleep(self, ticket: int, token: int) -> None:
        """Sleep until a hint, a due time, or the safety look finds that somebody has written."""
        reader = self._means.kernel.reader
        while not self._stop.is_set():
            wait_s = SUSPECT_S if self._recoverer.suspects else self._until_due_s()
            if self._looked_token != token:
                # Somebody wrote since the last look at everything: the next one is not far.
                wait_s = min(wait_s, max(self._look_at - time.monotonic(), 0.0) + 0.001)
            if self._means.kernel.wakeups.wait(ticket, min(wait_s, IDLE_S)):
                return
            if wait_s <= IDLE_S or reader.change_token() != token:
                return

    def _until_due_s(self) -> float:
        reading = self._means.reading()
        with self._means.kernel.reader.look() as look:
            now_us = estimated_now_us(look.clock(), reading)
            stages = (RESERVATION, LEASE, RETRY, UNSETTLED, DEADLINE)
            times = [due for stage in stages if (due := look.next_due(stage)) is not None]
        if not times:
            return IDLE_S * 60
        # A little behind the deadline, so that the reading's uncertainty is covered.
        return max(min(times) - now_us, 0) / 1_000_000 + 0.01

    def _free(self) -> int:
        with self._guard:
            return self._jobs - len(self._slots)

    def _claim(self) -> int:
        free = self._free()
        if free < 1 or self._stop.is_set():
            return 0
        with self._means.kernel.reader.look() as look:
            if not look.due(CLAIM, limit=1, group=self._plan):
                return 0
        receipt = self._means.issue("dispatcher", ReserveNext(worker=self.worker, count=free, plan=self._plan))
        reservations = receipt.result.get("reservations", [])
        for reservation in reservations:
            self._claimed += 1
            self._spawn(reservation["attempt"], self._run_attempt, reservation)
        return len(reservations) or receipt.count

    def _adopt(self) -> int:
        free = self._free()
        if free < 1:
            return 0
        orphans = self._finisher.orphans(free)
        for attempt in orphans:
            self._spawn(attempt, self._finisher.adopt, attempt)
        return 0

    def _spawn(self, name: str, target: Callable[[Any], object], argument: object) -> None:
        with self._guard:
            if name in self._slots.values():
                return
            thread = threading.Thread(
                target=self._in_slot, args=(target, argument), name=f"fencepost-{name[-8:]}", daemon=True
            )
            self._slots[thread] = name
        thread.start()

    def _run_attempt(self, reservation: dict[str, Any]) -> None:
        self._attempts.run(reservation, draining=self._stop.is_set())

    def _in_slot(self, target: Callable[[Any], object], argument: object) -> None:
        try:
            target(argument)
        except StorageError as error:
            # The lease is not renewed by this attempt any more; whoever looks next finds what it left.
            self._note(error)
            if isinstance(error, StorageFull):
                self.fatal = error
        except FencepostError as error:
            self._note(error)
            self.fatal = error
        except Exception as error:
            # A fault of this program: the worker ends, and says so; the attempt is recovered like a lost one.
            self.fatal = _as_fatal(error)
            self._note(self.fatal)
        finally:
            with self._guard:
                self._slots.pop(threading.current_thread(), None)
            self._means.kernel.wakeups.notify()


def _as_fatal(error: Exception) -> FencepostError:
    """An unexpected exception as one that a surface can tell; a corrupt history stays one."""
    fatal = FencepostError(f"{type(error).__name__}: {error}")
    fatal.code = getattr(error, "code", fatal.code)
    fatal.__cause__ = error
    return fatal
