"""A worker: claims orders, runs them in slots, renews their leases, and keeps the scope moving meanwhile.

One start of one process is one worker with a name that is never reused; while it lives it holds the lock of that
name, so that others of the same host can tell. Claims happen in one thread; each attempt has a thread of its own;
renewals have another. Nothing depends on a worker ending well: what it leaves is found by whoever comes next.

A slot that falls free goes to a reported result that waits for somebody, or to an order that is ready; where there are
both they take turns. So neither a long queue keeps a result from its end, nor results that nobody can finish the queue.
"""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec

from fencepost.core.commands import EnrolWorker, ReserveNext
from fencepost.core.ids import IdSource
from fencepost.core.index import CLAIM, DEADLINE, FINISH, LEASE, RESERVATION, RETRY, REVISE, TELL, UNSETTLED, WAIT
from fencepost.core.views import is_blocked
from fencepost.kernel.read import Look
from fencepost.kernel.receipts import Refused
from fencepost.ports.errors import (
    DescriptorsExhausted,
    FencepostError,
    StorageError,
    StorageFull,
    StorageMismatch,
    StorageUnavailable,
)
from fencepost.ports.executor import STOP_GRACE_US, CannotStart
from fencepost.ports.locks import HeldLock
from fencepost.ports.threads import Event, Thread
from fencepost.services.attempt import Attempts
from fencepost.services.cleaner import Cleaner
from fencepost.services.finish import Finisher
from fencepost.services.leases import Leases
from fencepost.services.means import Means, estimated_now_us, serves_lock, worker_lock
from fencepost.services.recover import Recoverer
from fencepost.services.sink import Sink
from fencepost.services.upkeep import Upkeep

LOOK_S = 0.1  # between looks at everything but the queue, while there is traffic
IDLE_S = 1.0  # the longest sleep: a lost wake-up costs this much, and an idle worker looks this often
FOREVER_S = 3_600.0
SWEEP_S = 600.0  # between looks for folders and locks that nobody needs any more
RETRY_S = 0.5  # after the store failed
LOCKLESS_S_MAX = 1.0
DRAIN_GRACE_US = 5_000_000
DOCTOR = "fencepost doctor"
EXECUTORS = ("command/1", "python/1")


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker is doing, without private content (C28)."""

    worker: str
    running: int
    jobs: int
    claimed: int
    failures: int
    stopping: bool
    last_error: str


@dataclass(kw_only=True)
class Slot:
    """A place for one attempt at a time, with a thread of its own until there is nothing more for it."""

    number: int
    attempt: str
    ended: Event


class Worker:
    """Serves one scope, or one plan of it, with up to `jobs` attempts at once."""

    def __init__(self, means: Means, *, jobs: int, plan: str | None = None) -> None:
        most = means.kernel.limits.renewal_attempts_max
        if not 1 <= jobs <= most:
            raise ValueError(f"a worker has 1 to {most} slots, not {jobs}")
        self._means = means
        self._jobs = jobs
        self._plan = plan
        reading = means.reading()
        self.worker = IdSource(means.kernel.entropy.seed(), reading.utc_us).next("worker")
        self._finisher = Finisher(means, self.worker)
        self._sink = Sink(means)
        self._leases = Leases(means, self.worker, self._confirm, self._sink.flush)
        self._cleaner = Cleaner(means, self._take)
        self._attempts = Attempts(means, self.worker, self._leases, self._finisher, self._cleaner, self._sink)
        self._recoverer = Recoverer(means, self.worker)
        self._upkeep = Upkeep(means)
        self._slots: dict[int, Slot] = {}
        self._slots_made = 0
        self._results: deque[str] = deque()  # attempts whose results wait for a slot
        self._result_is_next = True  # whose turn it is where an order is ready as well
        self._guard = means.threads.lock()
        self._stop = means.threads.event()
        self._lock: HeldLock | None = None
        self._serves: HeldLock | None = None
        self._thread: Thread | None = None
        self._look_at = 0.0
        self._lockless_at: float | None = None  # since when others take this worker for dead
        self._sweep_at = 0.0
        self._fruitless = 0  # looks in a row that moved nothing
        self._looked_token = -1
        self._claimed = 0
        self._failures = 0
        self._last_error = ""
        self.fatal: FencepostError | None = None

    def start(self) -> None:
        """Take the name, enrol, and begin to serve. Raises StorageError or Refused."""
        if self._plan is not None:
            self._serves = self._means.locks.take(serves_lock(self.worker, self._plan), wait=True)
        self._lock = self._means.locks.take(worker_lock(self.worker), wait=True)
        reading = self._means.reading()
        receipt = self._means.issue(
            "dispatcher",
            EnrolWorker(
                worker=self.worker,
                host=reading.source,
                boot_id=reading.boot_id,
                pid=self._means.pid,
                executors=EXECUTORS,
            ),
        )
        if receipt.refusal is not None:
            raise Refused(receipt.refusal)
        self._means.door.open(self._sink, self._take)
        self._leases.start()
        self._cleaner.start()
        self._thread = self._means.threads.start(self._serve, name="fencepost-worker")

    def request_stop(self) -> None:
        """Claim nothing more and begin to drain: running attempts are stopped cleanly and cost no attempt."""
        self._stop.set()
        self._finisher.drain()
        self._leases.drain(DRAIN_GRACE_US)
        self._means.kernel.wakeups.notify()

    def kill(self) -> None:
        """Drain without patience: whatever runs is killed, and its end told as that of anything that was stopped."""
        self.request_stop()
        self._finisher.drain(0)
        self._leases.drain(0)

    def stop(self) -> None:
        """Drain, and return only when everything of this worker has ended. Fine after a start that failed."""
        self.request_stop()
        if self._thread is not None:
            self._thread.join()
            for slot in self._taken():
                slot.ended.wait()
            self._leases.stop()
            self._cleaner.stop()
        self._means.door.close()
        if self._lock is not None:
            self._lock.release()
            self._lock = None
        if self._serves is not None:
            self._serves.release()
            self._serves = None

    def is_idle(self) -> bool:
        """Whether no slot is taken, nothing is left that this worker may claim, and nothing of the whole scope moves.

        Backoffs, leases, reservations and unsettled holds that are not due yet are waiting, not an end. Orders that
        wait for budget are examined before they count as one: a round of looks has found that none can go on.
        """
        if self._taken():
            return False
        with self._means.kernel.reader.look() as look:
            if is_blocked(look.clock()):
                # Until a person has spoken nothing starts and nothing falls due; what was reported still ends.
                return all(look.next_due(stage) is None for stage in (FINISH, TELL, REVISE))
            if look.due(CLAIM, limit=1, group=self._plan) or look.due(DEADLINE, now_us=self._now_us(look), limit=1):
                return False
            if not self._upkeep.is_quiet(look):
                return False
            waiting = (RETRY, WAIT, RESERVATION, LEASE, UNSETTLED, FINISH, TELL, REVISE)
            return all(look.next_due(stage) is None for stage in waiting)

    def _now_us(self, look: Look) -> int:
        return estimated_now_us(look.clock(), self._means.reading())

    def status(self) -> Status:
        with self._guard:
            running = len(self._slots)
        return Status(
            worker=self.worker,
            running=running,
            jobs=self._jobs,
            claimed=self._claimed,
            failures=self._failures + self._leases.failures + self._cleaner.failures,
            stopping=self._stop.is_set(),
            last_error=self._last_error,
        )

    def _confirm(self) -> None:
        """What every round of renewals begins with: verifiers are told that this worker lives, if its home does."""
        if not self._means.store_stands():
            self._end_without_store()
        self._finisher.confirm()

    def _end_without_store(self) -> None:
        """Nobody can be told of what runs any more, and nobody may run it beside whoever made the next home."""
        with self._guard:
            if self.fatal is not None:
                return
            self.fatal = StorageUnavailable(
                "the store of this home was removed or replaced while its worker ran: what ran was stopped, and how it "
                "ended is kept nowhere",
                next_step="restore the home from a backup, or begin anew: fencepost run PLAN",
            )
        self._finisher.drain(STOP_GRACE_US)
        self._leases.drain(STOP_GRACE_US)
        self.request_stop()

    def _taken(self) -> list[Slot]:
        with self._guard:
            return list(self._slots.values())

    def _serve(self) -> None:
        while not self._stop.is_set():
            ticket = self._means.kernel.wakeups.ticket()
            token = self._means.kernel.reader.change_token()
            moved = self._safely(partial(self._round, token))
            if moved is None:
                self._stop.wait(RETRY_S)
            elif not moved:
                self._safely(partial(self._sleep, ticket, token))

    def _round(self, token: int) -> int:
        """Claim, and look after everything else at most every `LOOK_S`; returns how much was moved."""
        moved = self._fill()
        now = self._means.threads.monotonic()
        if now < self._look_at:
            return moved
        self._require_lock(now)
        self._leases.check()
        self._finisher.check()
        looked = self._recoverer.run_once() + self._upkeep.run_once()
        if not self._results:
            self._results.extend(self._finisher.orphans())
            moved += self._fill() if self._results else 0
        self._fruitless = 0 if looked else self._fruitless + 1
        self._look_at = 0.0 if looked else self._means.threads.monotonic() + LOOK_S
        self._looked_token = token
        if now >= self._sweep_at:
            self._sweep_at = now + SWEEP_S
            self._cleaner.sweep(self._upkeep.sweep)
            self._cleaner.sweep(self._means.sweep_partials)
        return moved + looked

    def _require_lock(self, now: float) -> None:
        """Raises CannotStart where this worker's lock has been gone for a while: no longer than a removal takes of the
        whole home, which is told as what it is, and into which nothing more is written."""
        if self._lock is None or self._lock.stands():
            self._lockless_at = None
            return
        self._lockless_at = now if self._lockless_at is None else self._lockless_at
        if now - self._lockless_at >= LOCKLESS_S_MAX and self._means.store_stands():
            path = self._means.locks.path(worker_lock(self.worker))
            raise CannotStart(f"{path}, this worker's lock, is gone: others take it for dead", next_step=DOCTOR)

    def _safely(self, step: Callable[[], int]) -> int | None:
        """Run a step; None after a failure of the store, which passes or is fatal."""
        try:
            return step()
        except Exception as error:
            self._take(error)
            return None

    def _take(self, error: Exception) -> None:
        """A store that fails may pass. A full one, a host on which nothing can be started, and a fault of this program
        end the worker: it drains."""
        if not isinstance(error, FencepostError):
            # A history that cannot be, or a fault of this program: nobody may wait for a worker that is gone.
            error = _as_fatal(error)
        with self._guard:
            self._failures += 1
            self._last_error = f"{error.code}: {error.message}"
            passes = isinstance(error, StorageError) and not isinstance(
                error, StorageFull | StorageMismatch | CannotStart
            )
            if passes:
                return
            if self.fatal is None:
                self.fatal = error
        self.request_stop()

    def _sleep(self, ticket: int, token: int) -> int:
        """Sleep until a hint, a due time, or the safety look finds that somebody has written."""
        wakeups, reader, threads = self._means.kernel.wakeups, self._means.kernel.reader, self._means.threads
        if self._looked_token != token:
            # Somebody wrote since the last look at everything: the next one is not far, whatever falls due.
            wakeups.wait(ticket, max(self._look_at - threads.monotonic(), 0.0) + 0.001)
            return 0
        until = threads.monotonic() + self._until_due_s()
        while not self._stop.is_set():
            wait_s = max(min(until - threads.monotonic(), IDLE_S), 0.0)
            if wakeups.wait(ticket, wait_s) or threads.monotonic() >= until or reader.change_token() != token:
                break
        return 0

    def _until_due_s(self) -> float:
        if self._recoverer.suspects or self._upkeep.unfinished or (self._finisher.unfinished and not self._results):
            return LOOK_S
        with self._means.kernel.reader.look() as look:
            stages = (RESERVATION, LEASE, RETRY, WAIT, UNSETTLED, DEADLINE)
            times = {stage: due for stage in stages if (due := look.next_due(stage)) is not None}
            now_us = self._now_us(look)
            # The death of somebody who holds something is written down by nobody: it has to be looked for.
            watched = RESERVATION in times or LEASE in times or look.next_due(FINISH) is not None
        longest_s = IDLE_S if watched else FOREVER_S
        if not times:
            return longest_s
        left_s = min((min(times.values()) - now_us) / 1_000_000, longest_s)
        if left_s <= 0:
            # Overdue, and the last looks did not move it (a clock that waits for a person, say).
            left_s = min(LOOK_S * 2 ** min(self._fruitless, 10), IDLE_S)
        # A little behind the deadline, so that the reading's uncertainty is covered.
        return left_s + 0.01

    def _free(self) -> int:
        with self._guard:
            return self._jobs - len(self._slots)

    def _fill(self) -> int:
        """Give free slots to results and to orders, by turns; returns how many orders were moved."""
        self._results.extend(self._finisher.take_left())
        moved = 0
        while (free := self._free()) > 0 and not self._stop.is_set():
            result = self._next_result()
            if result is not None and self._result_is_next:
                self._results.remove(result)
                self._spawn(result, self._adopt_one, result)
                self._result_is_next = False
                continue
            moved += self._claim(free if result is None else 1)
            self._result_is_next = True
            if result is None:
                break
        return moved

    def _next_result(self) -> str | None:
        """The first that waits, but for those whose own slot has not been left yet."""
        if not self._results:
            return None
        taken = {slot.attempt for slot in self._taken()}
        return next((attempt for attempt in self._results if attempt not in taken), None)

    def _claim(self, count: int) -> int:
        with self._means.kernel.reader.look() as look:
            if not look.due(CLAIM, limit=1, group=self._plan):
                return 0
        receipt = self._means.issue("dispatcher", ReserveNext(worker=self.worker, count=count, plan=self._plan))
        reservations = receipt.result.get("reservations", [])
        for reservation in reservations:
            self._spawn(reservation["attempt"], self._run_attempts, reservation)
        return len(reservations) or receipt.count

    def _following(self) -> ReserveNext | None:
        """What a report reserves for the slot that it leaves: nothing where that is a result's, by whose turn it is."""
        if self._results and self._result_is_next:
            return None
        self._result_is_next = True
        return ReserveNext(worker=self.worker, count=1, plan=self._plan)

    def _adopt_one(self, _: Slot, attempt: str) -> None:
        self._finisher.adopt(attempt)

    def _spawn(self, name: str, target: Callable[[Slot, Any], object], argument: object) -> None:
        with self._guard:
            if any(slot.attempt == name for slot in self._slots.values()):
                return
            self._slots_made += 1
            slot = Slot(number=self._slots_made, attempt=name, ended=self._means.threads.event())
            self._slots[slot.number] = slot
        try:
            self._means.threads.start(partial(self._in_slot, slot, target, argument), name=f"fencepost-{name[-8:]}")
        except BaseException:
            # Nobody will ever leave this slot. What was reserved for it lapses, or is found with its worker gone.
            self._leave(slot)
            raise

    def _run_attempts(self, slot: Slot, reservation: dict[str, Any]) -> None:
        """Run an attempt, and then whatever its report reserved for the slot that it leaves."""
        following: dict[str, Any] | None = reservation
        while following is not None:
            if self._stop.is_set():
                self._attempts.release(following)
                return
            with self._guard:
                self._claimed += 1
                slot.attempt = following["attempt"]
            following = self._attempts.run(following, self._following)

    def _in_slot(self, slot: Slot, target: Callable[[Slot, Any], object], argument: object) -> None:
        try:
            target(slot, argument)
        except Exception as error:
            # The attempt's lease is not renewed any more: whoever looks next finds what it left.
            self._take(error)
        finally:
            self._leave(slot)

    def _leave(self, slot: Slot) -> None:
        with self._guard:
            del self._slots[slot.number]
        slot.ended.set()
        self._means.kernel.wakeups.notify()


def _as_fatal(error: Exception) -> FencepostError:
    """An unexpected exception as one that a surface can tell; a corrupt history stays one."""
    fatal = FencepostError(f"{type(error).__name__}: {error}")
    fatal.code = getattr(error, "code", fatal.code)
    if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
        fatal.code = DescriptorsExhausted.code
    fatal.__cause__ = error
    return fatal
