"""The finish stage of a worker: a reported result is verified in a fresh folder, and handed to the reducer.

A verification may be made again (its record counts once), so that whoever finds a result whose worker is gone can
bring it to its end.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Literal

import msgspec

from fencepost.core.canonical import sanitize
from fencepost.core.commands import AnyCommand, AppendEvent, ApplyResult, RecordVerification, ReportResult, ReserveNext
from fencepost.core.index import FINISH
from fencepost.core.records.attempt import AttemptDescriptor, ResultFacts
from fencepost.core.records.plan import WorkOrderSpec
from fencepost.core.state import AttemptState
from fencepost.kernel.receipts import Receipt
from fencepost.ports.artifacts import ArtifactMissing
from fencepost.ports.errors import FencepostError, StorageError
from fencepost.ports.executor import STOP_GRACE_US, Ended, Running
from fencepost.ports.journal import Cursor
from fencepost.ports.workspace import HandedFile, Inputs, Output, Workspace
from fencepost.services.jobs import Place, job_for
from fencepost.services.means import Means, estimated_now_us, finish_lock, verify_lock, worker_lock
from fencepost.services.results import log_ref
from fencepost.services.verifications import Begun, Runs, Verifications

PAGE = 32
AGAIN_S = 1.0
SEEN_US_MIN = 900_000  # less than between two tries
SEEN_MAX = 4096
"""So many locks that are taken are remembered; of the oldest the time is counted anew."""

Following = Callable[[], ReserveNext | None]
"""Asked as a report is told: what is to be reserved for the slot that its attempt leaves, None for nothing."""


class Reported(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a report. `state` is that of the order after its application, "" if there was none yet.

    `reserved` is what the same group reserved for the slot that the attempt leaves.
    """

    receipt: Receipt
    state: str
    reserved: dict[str, Any] | None = None


class Finisher:
    """Verifies and applies results. Safe for several threads, each with attempts of its own."""

    def __init__(self, means: Means, worker: str) -> None:
        self._means = means
        self._worker = worker
        self._verifications = Verifications(means)
        self._running: dict[str, Running] = {}
        self._mine: set[str] = set()
        self._again_at: dict[str, float] = {}  # attempt -> when a finish that led nowhere may be tried again
        self._lock = means.threads.lock()
        self._draining = False
        self._silent: dict[str, int] = {}  # orphans whose worker lives and is late -> how long a run may last, in us
        self._seen: dict[str, tuple[Begun | None, int]] = {}  # the run of a lock that is taken, and seen so since when
        self._left: deque[str] = deque()  # own results whose finish led nowhere, and nobody has asked for them yet
        self._position: Cursor | None = None  # behind which the next look for results begins
        self.unfinished = False  # whether the last look for results has seen a part of them only

    def drain(self, grace_us: int = STOP_GRACE_US) -> None:
        """Stop verifiers that run; their results stay reported and are verified by whoever comes next."""
        with self._lock:
            self._draining = True
            for running in self._running.values():
                running.stop("stopped", grace_us)

    def confirm(self) -> None:
        """Say that the worker lives, to every verifier that it runs."""
        deadline_tick_us = self._means.reading().tick_us + self._means.kernel.limits.lease_us
        with self._lock:
            for running in self._running.values():
                running.confirm(deadline_tick_us)

    def report(
        self,
        command: ReportResult,
        before: Sequence[AppendEvent],
        after: Following | None,
        *,
        verified: bool,
        until_tick_us: int,
    ) -> Reported:
        """Report a result behind the events of `before`. Where no verifier has to speak, the application and what
        `after` reserves follow in the same group.

        While the store cannot be reached this goes on until `until_tick_us`. Raises StorageError.
        """
        kernel = self._means.kernel
        told: list[AnyCommand] = [*before, command]
        requests = [kernel.request("executor", each) for each in told]
        reported = len(requests) - 1
        if not verified:
            requests.append(kernel.request("reducer", ApplyResult(attempt=command.attempt)))
            following = None if after is None or self._draining else after()
            if following is not None:
                requests.append(kernel.request("dispatcher", following))
        with self._lock:
            self._mine.add(command.attempt)
        try:
            receipts = self._means.insist(requests, until_tick_us)
        except BaseException:
            self._forget(command.attempt)
            raise
        receipt = receipts[reported]
        state = "" if verified else receipts[reported + 1].result.get("state", "")
        reserved = [each for later in receipts[reported + 2 :] for each in later.result.get("reservations", ())]
        if state or not receipt.ok:
            self._forget(command.attempt)
        return Reported(receipt=receipt, state=state, reserved=reserved[0] if reserved else None)

    def finish(self, attempt: str, *, kept: ResultFacts | None = None) -> str:
        """Bring one reported result to its application. Returns the state of its order then, "" if it got none.

        Two that try at once do not both run its verifier: the one that comes second leaves it to the first. But for
        a worker that stands still as it verifies, and keeps the lock: beside it one other does, in other folders.
        Whoever has `kept` its facts is the one that reported it: where that leads nowhere, `take_left` names it.
        """
        state = ""
        with self._lock:
            self._mine.add(attempt)
        try:
            lock, late = self._means.locks.take(finish_lock(attempt), wait=False), False
            if lock is None and self._stands_still(attempt):
                lock, late = self._means.locks.take(finish_lock(attempt, late=True), wait=False), True
            if lock is not None:
                try:
                    state = self._finish(attempt, kept, late=late)
                finally:
                    lock.release()
        finally:
            with self._lock:
                self._mine.discard(attempt)
                self._silent.pop(attempt, None)
                self._again_at.pop(attempt, None)
                if not state:
                    self._again_at[attempt] = self._means.threads.monotonic() + AGAIN_S
                    if kept is not None:
                        self._left.append(attempt)
        return state

    def _stands_still(self, attempt: str) -> bool:
        """Whether whoever holds the lock of a silent result has had all the time that a run may take and a lease more,
        from when that run was begun; it may be another one than the result was reported to, and has just come.

        A run that a worker left which is gone stands there until the next has taken its place, which is soon done: it
        is to be seen twice.
        """
        limit_us = self._silent.get(attempt)
        if limit_us is None:
            return False
        reading, lease_us = self._means.reading(), self._means.kernel.limits.lease_us
        begun = self._verifications.begun(attempt)
        if begun is not None and begun.boot_id != reading.boot_id:
            begun = None
        with self._lock:
            seen, since_us = self._seen.pop(attempt, (None, reading.tick_us))
            since_us = since_us if seen == begun else reading.tick_us
            if len(self._seen) >= SEEN_MAX:
                self._seen.pop(next(iter(self._seen)))
            self._seen[attempt] = (begun, since_us)
            seen_us = reading.tick_us - since_us
        if begun is None:
            return seen_us > limit_us + lease_us
        return seen_us > SEEN_US_MIN and reading.tick_us - begun.tick_us > begun.limit_us + lease_us

    def _finish(self, attempt: str, kept: ResultFacts | None, *, late: bool) -> str:
        with self._means.kernel.reader.look() as look:
            known = look.find(attempt, AttemptState)
            if known is None or known.state != "result_reported":
                return ""
            order = look.order(known.order)
            if order is None or order.state != "result_pending" or order.attempt != attempt:
                return ""
            spec = look.spec(order)
            facts = kept if kept is not None else look.facts(known.result_seq)
            descriptor = look.body(known.descriptor_seq, AttemptDescriptor)
        if facts is None:
            raise FencepostError(f"{attempt} has a result without facts")
        if spec.accept.verify and facts.outcome == "succeeded" and not known.verification_seq:
            command = self._verify(known, spec, facts, descriptor, late=late)
            if command is None:
                return ""
            # To verify again would cost more than to wait for a store that is away.
            until_tick_us = self._means.reading().tick_us + self._means.kernel.limits.lease_us
            self._means.insist([self._means.kernel.request("verifier", command)], until_tick_us)
        state: str = self._means.issue("reducer", ApplyResult(attempt=attempt)).result.get("state", "")
        return state

    def _forget(self, attempt: str) -> None:
        with self._lock:
            self._mine.discard(attempt)

    def check(self) -> None:
        """Stop verifiers whose result nobody waits for any more, such as that of a cancelled order."""
        with self._lock:
            running = dict(self._running)
        if not running:
            return
        with self._means.kernel.reader.look() as look:
            states = look.many(list(running))
        for attempt, run in running.items():
            state = states.get(attempt)
            if state is None or state.state != "result_reported":
                run.stop("lease_lost", STOP_GRACE_US)

    def take_left(self) -> list[str]:
        """Own results that were reported and not brought to their end since this was asked last, without a look."""
        left = []
        while self._left:
            left.append(self._left.popleft())
        return left

    def orphans(self) -> list[str]:
        """Reported results that nobody works on: those whose worker is gone, or silent for longer than it may be.

        Oldest first, of one page; the next look begins behind it, since a page of results that are none of this
        worker's business (of other hosts, of living workers) may stand there for long.
        """
        with self._means.kernel.reader.look() as look:
            rows = look.due(FINISH, limit=PAGE, after=self._position)
            self.unfinished = len(rows) == PAGE
            self._position = Cursor(rows[-1].due_us, rows[-1].rank, rows[-1].subject) if self.unfinished else None
            if not rows:
                self._forget_tries()
                return []
            values = look.many([row.subject for row in rows])
            orders = {row.subject: values[row.subject] for row in rows if row.subject in values}
            attempts = look.many([order.attempt for order in orders.values() if order.attempt])
            now_us = estimated_now_us(look.clock(), self._means.reading())
        host = self._means.reading().source
        found = []
        for order in orders.values():
            attempt = attempts.get(order.attempt)
            if attempt is None or attempt.host != host or self._is_busy(attempt.attempt):
                continue
            own = attempt.worker == self._worker
            # A worker that is stopped keeps its lock. Its verifier has an end of its own all the same.
            silent_us = now_us - order.moved_us - order.terms.attempt_time_us - self._means.kernel.limits.lease_us
            if own or silent_us > 0 or not self._means.locks.is_held(worker_lock(attempt.worker)):
                found.append(attempt.attempt)
                if silent_us > 0 and not own:
                    with self._lock:
                        self._silent[attempt.attempt] = order.terms.attempt_time_us
        self._forget_tries()
        return found

    def _forget_tries(self) -> None:
        """Forget what was tried so long ago that it may be tried again."""
        now_s = self._means.threads.monotonic()
        with self._lock:
            self._again_at = {attempt: at_s for attempt, at_s in self._again_at.items() if at_s > now_s}

    def _is_busy(self, attempt: str) -> bool:
        with self._lock:
            return attempt in self._mine or self._again_at.get(attempt, 0.0) > self._means.threads.monotonic()

    def adopt(self, attempt: str) -> None:
        """Finish a result of a worker that is gone."""
        if self.finish(attempt) == "applied":
            self._means.workspaces.discard(attempt)

    def _verify(
        self,
        attempt: AttemptState,
        spec: WorkOrderSpec,
        facts: ResultFacts,
        descriptor: AttemptDescriptor,
        *,
        late: bool,
    ) -> RecordVerification | None:
        """Run the verifier; None when it has not spoken: this worker drains, or another's verifier still runs."""
        if self._draining or not self._is_alone(attempt, late=late):
            return None
        runs = self._verifications.take(attempt)
        if runs.spent:
            return self._verdict(attempt, "error", runs, message=runs.spent)
        outputs = tuple(
            Output(path=ref.path, mode=_mode(ref.mode), digest=ref.digest, bytes=ref.bytes) for ref in facts.artifacts
        )
        handed = tuple(HandedFile(path=ref.path, digest=ref.digest, mode=_mode(ref.mode)) for ref in descriptor.handed)
        inputs = Inputs(manifests=() if spec.inputs.manifest is None else (spec.inputs.manifest,), handed=handed)
        try:
            space = self._means.workspaces.prepare_verifier(attempt.attempt, inputs=inputs, outputs=outputs, late=late)
        except FencepostError as error:
            if isinstance(error, StorageError) and not isinstance(error, ArtifactMissing):
                raise  # it says nothing about the result, which stays reported and is verified again
            return self._verdict(attempt, "error", runs, message=error.message)
        if not isinstance(space, Workspace):
            shown = "; ".join(f"{problem.path}: {problem.message}" for problem in space)
            return self._verdict(attempt, "failed", runs, message=shown)
        lock = verify_lock(attempt.attempt, late=late)
        begun = self._verifications.begin(attempt, runs, spec.attempt_time_us, late=late)
        ended = self._run(attempt, spec, space, lock)
        if ended.reason == "lease_lost" or (ended.reason == "stopped" and self._draining):
            return self._without_verdict(attempt, runs, begun, ended)
        if ended.reason == "not_started" and self._means.locks.is_held(lock):
            self._verifications.end(attempt, begun, ended, drained=True)
            return None  # another one runs, which says nothing about the result
        outcome: Literal["passed", "failed", "error"] = "error"
        if ended.reason == "exited" and ended.exit_code is not None:
            outcome = "passed" if ended.exit_code == 0 else "failed"
        return self._verdict(attempt, outcome, runs, ended=ended, space=space, spec=spec)

    def _without_verdict(
        self, attempt: AttemptState, runs: Runs, begun: Begun, ended: Ended
    ) -> RecordVerification | None:
        """One that was stopped before it could speak is made again, unless nobody waits for it any more: then its time
        is told, and charged as what comes late is."""
        with self._means.kernel.reader.look() as look:
            known = look.find(attempt.attempt, AttemptState)
        if known is not None and known.state != "result_reported":
            return self._verdict(attempt, "error", runs, ended=ended)
        self._verifications.end(attempt, begun, ended, drained=self._draining)
        return None

    def _is_alone(self, attempt: AttemptState, *, late: bool) -> bool:
        """Whether no verifier of the attempt runs in the same place. One that a worker left which is gone is ended
        first, but not beside a late one, which would be ended with it; that of a late one has an end of its own."""
        lock = verify_lock(attempt.attempt, late=late)
        if not self._means.locks.is_held(lock):
            return True
        beside = None if late else self._means.locks.take(finish_lock(attempt.attempt, late=True), wait=False)
        if beside is None:
            return False
        try:
            boot_id = self._means.reading().boot_id
            path = self._means.locks.path(lock)
            return self._means.executor.end_holder(path, attempt.attempt, boot_id, same_host=True).gone
        finally:
            beside.release()

    def _run(self, attempt: AttemptState, spec: WorkOrderSpec, space: Workspace, lock: str) -> Ended:
        job = job_for(
            self._means,
            spec,
            Place(attempt=attempt.attempt, order=attempt.order, fence=attempt.fence, space=space, lock=lock),
            argv=spec.accept.verify,
            logs="verify.",
            time_limit_us=spec.attempt_time_us,
        )
        # A verifier holds no lease: its result is only a fact. But it lives no longer than a lease after its worker's
        # last sign of life, so that nothing runs on beside those who take over from a worker that is stopped.
        running = self._means.executor.start(job, self._means.reading().tick_us + self._means.kernel.limits.lease_us)
        with self._lock:
            self._running[attempt.attempt] = running
            if self._draining:
                running.stop("stopped", 0)
        try:
            ended = running.wait(None)
        finally:
            with self._lock:
                del self._running[attempt.attempt]
            self._means.locks.remove_if_free(lock)
        if ended is None:
            raise FencepostError(f"the verifier of {attempt.attempt} was waited for without limit and has no end")
        return ended

    def _verdict(
        self,
        attempt: AttemptState,
        outcome: Literal["passed", "failed", "error"],
        runs: Runs,
        *,
        message: str = "",
        ended: Ended | None = None,
        space: Workspace | None = None,
        spec: WorkOrderSpec | None = None,
    ) -> RecordVerification:
        """What is to be recorded, with the time of the runs that came to no verdict in its own."""
        stdout = stderr = None
        limits = self._means.kernel.limits
        took_us = runs.used_us + (0 if ended is None else ended.duration_us)
        parts = [message or (ended.message if ended else "")]
        if space is not None and spec is not None:
            stdout, unread = log_ref(self._means, space.logs / "verify.stdout", spec.classification)
            stderr, unread_too = log_ref(self._means, space.logs / "verify.stderr", spec.classification)
            parts += [unread, unread_too]
        return RecordVerification(
            attempt=attempt.attempt,
            result=attempt.result,
            outcome=outcome,
            duration_us=min(took_us, limits.duration_max_us),
            exit_code=None if ended is None else ended.exit_code,
            signal=None if ended is None else ended.signal,
            stdout=stdout,
            stderr=stderr,
            message=sanitize("; ".join(part for part in parts if part), limits.text_bytes_max),
        )


def _mode(mode: int) -> Literal["0644", "0755"]:
    return "0755" if mode & 0o100 else "0644"
