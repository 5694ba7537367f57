"""The finish stage of a worker: a reported result is verified in a fresh folder, and handed to the reducer.

A verification may be made again (its record counts once), so that whoever finds a result whose worker is gone can
bring it to its end.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Literal

from fencepost.core.canonical import sanitize
from fencepost.core.commands import AppendEvent, ApplyResult, RecordVerification, ReportResult
from fencepost.core.index import FINISH
from fencepost.core.records.attempt import AttemptDescriptor, ResultFacts
from fencepost.core.records.plan import WorkOrderSpec
from fencepost.core.state import AttemptState
from fencepost.kernel.receipts import Receipt
from fencepost.ports.errors import FencepostError, StorageError
from fencepost.ports.executor import STOP_GRACE_US, Ended, Job, Running
from fencepost.ports.workspace import HandedFile, Inputs, Output, Workspace
from fencepost.services.means import Means, is_locked, try_lock
from fencepost.services.results import log_ref

PAGE = 32
LOG_BYTES = 2**20
HOUR_US = 3_600_000_000


class Finisher:
    """Verifies and applies results. Safe for several threads, each with attempts of its own."""

    def __init__(self, means: Means, worker: str) -> None:
        self._means = means
        self._worker = worker
        self._running: dict[str, Running] = {}
        self._mine: set[str] = set()
        self._lock = threading.Lock()
        self._draining = False

    def drain(self) -> None:
        """Stop verifiers that run; their results stay reported and are verified by whoever comes next."""
        with self._lock:
            self._draining = True
            for running in self._running.values():
                running.stop("stopped", STOP_GRACE_US)

    def report(self, command: ReportResult, started: AppendEvent | None, *, verified: bool) -> Receipt:
        """Report a result. Where no verifier has to speak, the application follows in the same group."""
        kernel = self._means.kernel
        requests = [kernel.request("executor", event) for event in (started, command) if event is not None]
        reported = len(requests) - 1
        with self._lock:
            self._mine.add(command.attempt)
        if not verified:
            requests.append(kernel.request("reducer", ApplyResult(attempt=command.attempt)))
        return kernel.write_many(requests)[reported]

    def finish(self, attempt: str, *, kept: ResultFacts | None = None) -> bool:
        """Bring one reported result to its application. Returns whether it got there."""
        with self._means.kernel.reader.look() as look:
            known = look.find(attempt, AttemptState)
            if known is None or known.state != "result_reported":
                self._forget(attempt)
                return known is not None and bool(known.application_seq)
            order = look.order(known.order)
            if order is None or order.state != "result_pending":
                self._forget(attempt)
                return False
            spec = look.spec(order)
            facts = kept if kept is not None else look.facts(known.result_seq)
            descriptor = look.body(known.descriptor_seq, AttemptDescriptor)
        if facts is None:
            raise FencepostError(f"{attempt} has a result without facts")
        if spec.accept.verify and facts.outcome == "succeeded" and not known.verification_seq:
            command = self._verify(known, spec, facts, descriptor)
            if command is None:
                return False
            self._means.issue("verifier", command)
        receipt = self._means.issue("reducer", ApplyResult(attempt=attempt))
        self._forget(attempt)
        return receipt.ok

    def _forget(self, attempt: str) -> None:
        with self._lock:
            self._mine.discard(attempt)

    def orphans(self, limit: int) -> list[str]:
        """Reported results that nobody works on: those whose worker is gone."""
        with self._means.kernel.reader.look() as look:
            rows = look.due(FINISH, limit=PAGE)
            orders = look.many([row.subject for row in rows])
            attempts = look.many([order.attempt for order in orders.values() if order.attempt])
        host = self._means.reading().source
        found = []
        for attempt in attempts.values():
            with self._lock:
                mine = attempt.attempt in self._mine
            own = attempt.worker == self._worker
            if mine or attempt.host != host or (not own and is_locked(self._means.worker_lock(attempt.worker))):
                continue
            found.append(attempt.attempt)
        return found[:limit]

    def adopt(self, attempt: str) -> bool:
        """Finish a result of a worker that is gone; two that try at once do not both run its verifier."""
        with try_lock(self._means.locks / f"{attempt}.finish.lock") as locked:
            return self.finish(attempt) if locked else False

    def _verify(
        self, attempt: AttemptState, spec: WorkOrderSpec, facts: ResultFacts, descriptor: AttemptDescriptor
    ) -> RecordVerification | None:
        """Run the verifier; None when this worker drains and the verifier was stopped for that."""
        outputs = tuple(
            Output(path=ref.path, mode=_mode(ref.mode), digest=ref.digest, bytes=ref.bytes) for ref in facts.artifacts
        )
        handed = tuple(HandedFile(path=ref.path, digest=ref.digest, mode=_mode(ref.mode)) for ref in descriptor.handed)
        inputs = Inputs(manifests=() if spec.inputs.manifest is None else (spec.inputs.manifest,), handed=handed)
        space = self._means.workspaces.find(attempt.attempt)
        try:
            tree = self._means.workspaces.prepare_verifier(space, inputs=inputs, outputs=outputs)
        except StorageError:
            raise
        except FencepostError as error:
            return self._verdict(attempt, "error", message=error.message)
        if not isinstance(tree, Path):
            shown = "; ".join(f"{problem.path}: {problem.message}" for problem in tree)
            return self._verdict(attempt, "failed", message=shown)
        ended = self._run(attempt, spec, space, tree)
        if ended.reason == "stopped" and self._draining:
            return None
        outcome: Literal["passed", "failed", "error"] = "error"
        if ended.reason == "exited" and ended.exit_code is not None:
            outcome = "passed" if ended.exit_code == 0 else "failed"
        return self._verdict(attempt, outcome, ended=ended, space=space, spec=spec)

    def _run(self, attempt: AttemptState, spec: WorkOrderSpec, space: Workspace, tree: Path) -> Ended:
        for folder in (space.home, space.tmp, space.logs):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        environment = self._means.environment(
            spec.environment,
            home=str(space.home),
            temporary=str(space.tmp),
            order=attempt.order,
            attempt=attempt.attempt,
            fence=attempt.fence,
            workspace=str(tree),
            repository="",
            params_path="",
        )
        job = Job(
            attempt=attempt.attempt,
            order=attempt.order,
            fence=attempt.fence,
            argv=spec.accept.verify,
            environment=environment,
            cwd=str(tree),
            stdout_path=str(space.logs / "verify.stdout"),
            stderr_path=str(space.logs / "verify.stderr"),
            lock_path=str(self._means.locks / f"{attempt.attempt}.verify.lock"),
            status_path=str(space.logs / "verify.status"),
            time_limit_us=spec.attempt_time_us,
            log_head_bytes=LOG_BYTES,
            log_tail_bytes=LOG_BYTES,
        )
        # A verifier holds no lease: its result is only a fact. Its own limit ends it, and the worker's death.
        deadline = self._means.reading().tick_us + spec.attempt_time_us + HOUR_US
        running = self._means.executor.start(job, deadline)
        with self._lock:
            self._running[attempt.attempt] = running
            if self._draining:
                running.stop("stopped", 0)
        try:
            ended = running.wait(None)
        finally:
            with self._lock:
                del self._running[attempt.attempt]
            Path(job.lock_path).unlink(missing_ok=True)
        if ended is None:
            raise FencepostError(f"the verifier of {attempt.attempt} was waited for without limit and has no end")
        return ended

    def _verdict(
        self,
        attempt: AttemptState,
        outcome: Literal["passed", "failed", "error"],
        *,
        message: str = "",
        ended: Ended | None = None,
        space: Workspace | None = None,
        spec: WorkOrderSpec | None = None,
    ) -> RecordVerification:
        stdout = stderr = None
        if space is not None and spec is not None:
            stdout = log_ref(self._means, space.logs / "verify.stdout", spec.classification)
            stderr = log_ref(self._means, space.logs / "verify.stderr", spec.classification)
        return RecordVerification(
            attempt=attempt.attempt,
            result=attempt.result,
            outcome=outcome,
            duration_us=0 if ended is None else ended.duration_us,
            exit_code=None if ended is None else ended.exit_code,
            signal=None if ended is None else ended.signal,
            stdout=stdout,
            stderr=stderr,
            message=sanitize(message or (ended.message if ended else ""), self._means.kernel.limits.text_bytes_max),
        )


def _mode(mode: int) -> Literal["0644", "0755"]:
    return "0755" if mode & 0o100 else "0644"
