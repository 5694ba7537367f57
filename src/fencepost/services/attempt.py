"""One attempt from its reservation to its report: activate, lay out, run under a keeper, collect, report.

The order of durable steps is the whole point. The reservation grants nothing; only the receipt of the activation lets
anything start; the report is durable before anybody acts on it; and whatever goes wrong on this side becomes a result
with a typed failure, so that nothing is retried because somebody was not sure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from fencepost.core.canonical import digest_of, sanitize
from fencepost.core.commands import (
    Activate,
    AnyCommand,
    AppendEvent,
    ReleaseReservation,
    ReportResult,
    ReportStopped,
    ReportYielded,
    WaitDraft,
)
from fencepost.core.matching import passes_on
from fencepost.core.records.attempt import ResultFacts
from fencepost.core.records.common import FailureClass, LogRef
from fencepost.core.state import AttemptState
from fencepost.ports.artifacts import ArtifactMissing
from fencepost.ports.errors import DescriptorsExhausted, FencepostError, StorageError, StorageFull
from fencepost.ports.executor import CannotStart, Ended, Job
from fencepost.ports.workspace import Workspace
from fencepost.services.cleaner import Cleaner
from fencepost.services.finish import Finisher, Following, Reported
from fencepost.services.jobs import OUTCOME, Place, job_for, program_of
from fencepost.services.leases import Lease, Leases
from fencepost.services.means import Means, attempt_lock
from fencepost.services.outcomes import OUTCOME_BYTES_MAX, outcome_in
from fencepost.services.results import facts_of, failed, log_ref, printed, stopped_for, time_used, without
from fencepost.services.sink import Sink
from fencepost.services.tasks import Task, layout_of, task_of

CONTAIN_TRIES = 6  # of some seconds each, for a tree that its keeper could not end
SHORT_S = 0.05  # a command that ends sooner is told to have started together with its report, in one commit
PASSING = frozenset({"budget_held", "clock_blocked", "currency_not_budgeted"})
"""Refusals of an activation that pass: the reservation is given back at once, everything else lets it lapse."""
UNKEEPABLE = frozenset({"too_large", "bad_command", "out_of_range"})
"""Refusals of a report for what it contains."""


@dataclass(kw_only=True)
class Run:
    """How far an attempt has come. `events` have not been told yet; `wish` is what it waits for if it has yielded,
    `stdout` and `stderr` what it printed then, `space` its folder, once that is laid out."""

    space: Workspace | None = None
    ended: Ended | None = None
    events: tuple[AppendEvent, ...] = ()
    wish: WaitDraft | None = None
    facts: ResultFacts | None = None
    token: str = ""
    stdout: LogRef | None = None
    stderr: LogRef | None = None


class Attempts:
    """Runs attempts of one worker, each in the thread that calls `run`."""

    def __init__(
        self, means: Means, worker: str, leases: Leases, finisher: Finisher, cleaner: Cleaner, sink: Sink
    ) -> None:
        self._means = means
        self._worker = worker
        self._leases = leases
        self._finisher = finisher
        self._cleaner = cleaner
        self._sink = sink
        self._base = dict(means.base_environment)
        self._environments: dict[tuple[str, ...], str] = {}  # names that an order passes on -> digest

    def run(self, reservation: dict[str, Any], after: Following | None) -> dict[str, Any] | None:
        """Carry one reservation through to its report and, where nobody else has to speak, its application.

        `after` says what reserves the next order in the group of the report, which spares a commit; what it got is
        returned.
        """
        with self._means.kernel.reader.look() as look:
            task = task_of(look, reservation)
        lease = self._activate(reservation, task)
        if lease is None:
            return None
        self._leases.add(lease)
        try:
            reported = self._under_lease(lease, task, after)
        finally:
            self._leases.remove(lease)
            # A tree that could not be ended holds it on, and is looked for by it.
            self._means.locks.remove_if_free(attempt_lock(lease.attempt))
        if reported is None:
            return None
        self._settle(lease, *reported)
        return reported[1].reserved

    def release(self, reservation: dict[str, Any]) -> None:
        """Give a reservation back that this worker will not use."""
        command = ReleaseReservation(attempt=reservation["attempt"], fence=reservation["fence"])
        self._means.issue("dispatcher", command)

    def _activate(self, reservation: dict[str, Any], task: Task) -> Lease | None:
        limits = self._means.kernel.limits
        sent_tick_us = self._means.reading().tick_us
        executor, _, version = task.spec.work_kind.partition("/")
        command = Activate(
            attempt=reservation["attempt"],
            expected=reservation["version"],
            fence=reservation["fence"],
            worker=self._worker,
            executor=executor,
            executor_version=int(version),
            environment=self._environment_digest(task.spec.environment),
            input_set=task.inputs,
            mode="local",
            handed=task.handed,
        )
        request = self._means.kernel.request("dispatcher", command)
        receipt = self._means.insist([request], sent_tick_us + limits.reservation_us)[0]
        if receipt.refusal is not None:
            if receipt.refusal.code in PASSING:
                self.release(reservation)
            return None
        return Lease(
            attempt=reservation["attempt"],
            order=reservation["order"],
            fence=reservation["fence"],
            deadline_tick_us=sent_tick_us + limits.lease_us,
            lock=self._means.threads.lock(),
        )

    def _environment_digest(self, names: tuple[str, ...]) -> str:
        known = self._environments.get(names)
        if known is None:
            chosen = {name: value for name, value in self._base.items() if passes_on(names, name)}
            known = self._environments[names] = digest_of(chosen)
        return known

    def _under_lease(self, lease: Lease, task: Task, after: Following | None) -> tuple[ReportResult, Reported] | None:
        """Lay out, run and report. None when there was nothing to report but a stop."""
        run = Run()
        try:
            self._work(lease, task, run)
        except (StorageFull, CannotStart):
            # The work did no wrong. It costs no attempt, and this worker takes no more of it.
            self._stopped(lease, task, run)
            raise
        except DescriptorsExhausted as error:
            # Nor here: a host that opens no more files for a moment starts nothing either.
            self._stopped(lease, task, run)
            refused = CannotStart(f"no attempt can be carried out: {error.message}", next_step=error.next_step)
            refused.code = error.code
            raise refused from error
        except FencepostError as error:
            run.facts = self._hindered(lease, task, run, error)
        if run.wish is not None and run.ended is not None:
            run.facts = self._yielded(lease, task, run, run.wish, run.ended)
            if run.facts is None:
                return None
        if run.facts is None:
            self._stopped(lease, task, run)
            return None
        return self._report(lease, task, run.facts, run.events, after)

    def _work(self, lease: Lease, task: Task, run: Run) -> None:
        """Write into `run` how far it came: no facts mean that its own side ended it (lifecycle, 8)."""
        space = run.space = self._means.workspaces.prepare(
            attempt=lease.attempt,
            inputs=layout_of(task.spec, task.handed),
            params=task.spec.params.encode() if task.spec.params else None,
            checkpoint=task.checkpoint,
        )
        if lease.stopping or lease.lost:
            return
        left = self._left_of(task.earlier)
        if left:
            message = f"something of {left} still runs here and cannot be ended"
            run.facts = self._failed(lease, task, run, "executor", "executor_failed", message)
            return
        run.ended = self._execute(lease, task, space, run)
        told = None
        if task.spec.python is not None:
            told = outcome_in(self._means.workspaces.read_left(space, OUTCOME, bytes_max=OUTCOME_BYTES_MAX))
        if run.wish is not None:
            kept_as = task.spec.classification
            out, err = run.ended.stdout.bytes_total, run.ended.stderr.bytes_total
            run.stdout, _ = log_ref(self._means, space.logs / "stdout", kept_as, run.token, written_bytes=out)
            run.stderr, _ = log_ref(self._means, space.logs / "stderr", kept_as, run.token, written_bytes=err)
        # A callable that heard of it may end before it is ordered to.
        heeded = told is not None and told.outcome == "stopped" and bool(lease.stopping or lease.lost)
        # Whoever loses the supervisor of its program has not failed: nobody knows what it would have done.
        gone = run.ended.reason == "keeper_lost" and run.ended.tree_empty
        if run.wish is None and run.ended.reason not in ("stopped", "lease_lost") and not (heeded or gone):
            run.facts = facts_of(
                self._means,
                task.spec,
                lease.attempt,
                task.inputs,
                space,
                run.ended,
                told,
                must_stop=lambda: lease.must_stop(self._means.reading().tick_us),
                token=run.token,
            )

    def _left_of(self, earlier: Sequence[AttemptState]) -> str:
        """End what earlier attempts of the order may have left on this host; the first that cannot be, "" for none.

        A tree whose worker and keeper were both killed is ended with its lease by a worker of its own host. Where one
        of another host was faster, nobody has looked.
        """
        reading = self._means.reading()
        for attempt in earlier:
            if attempt.result_seq or attempt.yielded_seq or attempt.stopped_seq:
                continue  # its holder has told of its end, and that its tree is empty
            if (attempt.host, attempt.boot_id) != (reading.source, reading.boot_id):
                continue  # what ran elsewhere cannot be looked for
            path = self._means.locks.path(attempt_lock(attempt.attempt))
            if not self._means.executor.end_holder(path, attempt.attempt, attempt.boot_id, same_host=True).gone:
                return attempt.attempt
        return ""

    def _hindered(self, lease: Lease, task: Task, run: Run, error: FencepostError) -> ResultFacts:
        """Facts of an attempt whose files could not be laid out, or not be kept, for a reason that repeating keeps."""
        is_disk = isinstance(error, StorageError) and not isinstance(error, ArtifactMissing)
        failure: FailureClass = "executor" if is_disk else "deterministic_input"
        code = "inputs_unavailable" if run.ended is None else "executor_failed"
        return self._failed(lease, task, run, failure, code, error.message)

    def _failed(
        self, lease: Lease, task: Task, run: Run, failure: FailureClass, code: str, message: str
    ) -> ResultFacts:
        bound = self._means.kernel.limits.text_bytes_max
        facts = failed(task.spec, task.inputs, failure, code, without(run.token, message), bound)
        return with_time(facts, lease.attempt, 0 if run.ended is None else run.ended.duration_us)

    def _execute(self, lease: Lease, task: Task, space: Workspace, run: Run) -> Ended:
        """Run the command to its end, at a desk where it may speak. What has not been told yet is told with the
        report."""
        desk, run.token = self._sink.open(lease, task.spec, task.inputs, space)
        try:
            ended = self._run(lease, task, self._job(lease, task, space, run.token), run)
        finally:
            note = self._sink.close(desk)
            run.events += () if note is None else (note,)
        if ended.reason in ("exited", "stopped") and (ended.exit_code, ended.tree_empty) == (0, True):
            # One that is stopped by a drain, and ends well, waits for what it has asked for all the same.
            run.wish = desk.wish
        return ended

    def _run(self, lease: Lease, task: Task, job: Job, run: Run) -> Ended:
        running = self._means.executor.start(job, lease.deadline_tick_us)
        lease.bind(running)
        started = AppendEvent(
            attempt=lease.attempt,
            fence=lease.fence,
            spec=task.spec.spec,
            input_set=task.inputs,
            family="execution_started",
            pid=running.pid or 0,
        )
        ended = running.wait(SHORT_S)
        if ended is not None:
            run.events = (started,)
            return self._contained(lease, ended)
        if not self._say(started):
            run.events = (started,)
        ended = running.wait(None)
        if ended is None:
            raise RuntimeError(f"{lease.attempt} was waited for without limit and has no end")
        return self._contained(lease, ended)

    def _contained(self, lease: Lease, ended: Ended) -> Ended:
        """An end without the proof that nobody is left goes on being sought, for as long as `CONTAIN_TRIES` reach."""
        lock = self._means.locks.path(attempt_lock(lease.attempt))
        began_us = self._means.reading().tick_us
        for _ in range(0 if ended.tree_empty else CONTAIN_TRIES):
            reading = self._means.reading()
            seen = self._means.executor.end_holder(lock, lease.attempt, reading.boot_id, same_host=True)
            if seen.gone:
                took_us = self._means.reading().tick_us - began_us
                return replace(ended, tree_empty=True, duration_us=ended.duration_us + took_us)
        return ended

    def _job(self, lease: Lease, task: Task, space: Workspace, token: str) -> Job:
        return job_for(
            self._means,
            task.spec,
            Place(
                attempt=lease.attempt,
                order=lease.order,
                fence=lease.fence,
                space=space,
                lock=attempt_lock(lease.attempt),
                socket=self._means.door.address,
                token=token,
            ),
            argv=program_of(task.spec, space),
            logs="",
            time_limit_us=task.time_limit_us,
            repository=task.repository,
        )

    def _say(self, event: AppendEvent) -> bool:
        """Say that it runs; whether that was taken. Evidence only, so that a store that fails just now costs nothing:
        it is said again at the end."""
        try:
            self._means.issue("executor", event)
        except StorageError:
            self._leases.failures += 1
            return False
        return True

    def _stopped(self, lease: Lease, task: Task, run: Run) -> None:
        """Tell of an attempt that its own side ended, behind whatever it had said; it may never have started."""
        ended = run.ended
        kernel = self._means.kernel
        # Whatever is said under a lease that is over is late, and this was said before.
        told = [] if lease.lost else [kernel.request("executor", event) for event in run.events]
        run.events = ()
        if ended is not None and not ended.tree_empty:
            # Without the proof of its end nothing is given back: the lease ends by itself, and time is charged.
            self._leases.failures += 1
            if told:
                self._means.insist(told, self._patience_us(lease))
            return
        reason, seen = stopped_for(lease.lost, ended)
        stdout, stderr, unkept = printed(self._means, task.spec, run.space, run.token, ended)
        note = "\n".join(part for part in (seen, *unkept) if part)
        command = ReportStopped(
            attempt=lease.attempt,
            fence=lease.fence,
            duration_us=0 if ended is None else ended.duration_us,
            reason=reason,
            note=sanitize(without(run.token, note), kernel.limits.text_bytes_max),
            stdout=stdout,
            stderr=stderr,
        )
        self._means.insist([*told, kernel.request("executor", command)], self._patience_us(lease))

    def _yielded(self, lease: Lease, task: Task, run: Run, wish: WaitDraft, ended: Ended) -> ResultFacts | None:
        """Tell that the attempt waits for something (lifecycle, 9); facts where that is no way for it to end."""
        command = ReportYielded(
            attempt=lease.attempt,
            fence=lease.fence,
            spec=task.spec.spec,
            input_set=task.inputs,
            duration_us=ended.duration_us,
            wait=wish,
            stdout=run.stdout,
            stderr=run.stderr,
        )
        kernel = self._means.kernel
        told: list[AnyCommand] = [*run.events, command]
        requests = [kernel.request("executor", each) for each in told]
        refusal = self._means.insist(requests, self._patience_us(lease))[-1].refusal
        run.events = ()
        if refusal is None or refusal.code in ("stale_fence", "rejected_stale"):
            return None  # under a stale fence its time and output are kept, and somebody else has the order
        message = f"it could not yield, {refusal.code} at {refusal.field or '/'}: {refusal.message}"
        facts = self._failed(lease, task, run, "deterministic_input", "result_invalid", message)
        return replace(facts, exit_code=ended.exit_code, stdout=run.stdout, stderr=run.stderr)

    def _report(
        self, lease: Lease, task: Task, facts: ResultFacts, events: tuple[AppendEvent, ...], after: Following | None
    ) -> tuple[ReportResult, Reported]:
        command = _report_of(lease, task, facts)
        reported = self._tell(lease, task, command, events, after)
        refusal = reported.receipt.refusal
        if refusal is not None and refusal.code in UNKEEPABLE:
            # What cannot be kept ends its attempt once, in words that can; doing the work again would end the same.
            message = f"{refusal.code} at {refusal.field or '/'}: {refusal.message}"
            bound = self._means.kernel.limits.text_bytes_max
            least = failed(task.spec, task.inputs, "deterministic_input", "result_invalid", message, bound)
            least = with_time(least, lease.attempt, facts.duration_us)
            command = _report_of(lease, task, replace(least, exit_code=facts.exit_code, signal=facts.signal))
            reported = replace(self._tell(lease, task, command, (), None), reserved=reported.reserved)
        return command, reported

    def _tell(
        self,
        lease: Lease,
        task: Task,
        command: ReportResult,
        events: tuple[AppendEvent, ...],
        after: Following | None,
    ) -> Reported:
        verified = bool(task.spec.accept.verify) and command.facts.outcome == "succeeded"
        until = self._patience_us(lease)
        return self._finisher.report(command, events, after, verified=verified, until_tick_us=until)

    def _patience_us(self, lease: Lease) -> int:
        """Until when it is worth telling: what comes after the lease is refused, and still paid for."""
        return lease.deadline_tick_us + self._means.kernel.limits.lease_us

    def _settle(self, lease: Lease, command: ReportResult, reported: Reported) -> None:
        """Workspaces go once their result is applied; any other stays for a person to look at, until the sweep."""
        state = reported.state
        if reported.receipt.ok and not state:
            state = self._finisher.finish(lease.attempt, kept=command.facts)
        if state == "applied":
            self._cleaner.give_up(lease.attempt)


def _report_of(lease: Lease, task: Task, facts: ResultFacts) -> ReportResult:
    return ReportResult(attempt=lease.attempt, fence=lease.fence, spec=task.spec.spec, facts=facts)


def with_time(facts: ResultFacts, attempt: str, duration_us: int) -> ResultFacts:
    return replace(facts, duration_us=duration_us, usage=time_used(attempt, duration_us))
