"""One attempt from its reservation to its report: activate, lay out, run under a keeper, collect, report.

The order of durable steps is the whole point. The reservation grants nothing; only the receipt of the activation lets
anything start; the report is durable before anybody acts on it; and whatever goes wrong on this side becomes a result
with a typed failure, so that nothing is retried because somebody was not sure.
"""

from __future__ import annotations

import os
from typing import Any

from msgspec.structs import replace

from fencepost.core.canonical import digest_of
from fencepost.core.commands import Activate, AppendEvent, ReleaseReservation, ReportResult, ReportStopped
from fencepost.core.decide.dispatch import input_set as set_of_inputs
from fencepost.core.records.attempt import ResultFacts
from fencepost.core.records.common import ArtifactRef
from fencepost.core.records.plan import PlanRevision, WorkOrderSpec
from fencepost.core.state import PlanState
from fencepost.kernel.read import Look
from fencepost.kernel.receipts import Receipt
from fencepost.ports.errors import FencepostError, StorageError
from fencepost.ports.executor import Ended, Job
from fencepost.ports.workspace import HandedFile, Inputs, Workspace
from fencepost.services.finish import Finisher
from fencepost.services.leases import Lease, Leases
from fencepost.services.means import Means
from fencepost.services.results import facts_of, failed, matches_any, time_used

LOG_BYTES = 2**20  # of the first and of the last part of each stream
SHORT_S = 0.05  # a command that ends sooner is told to have started together with its report, in one commit
REPOSITORY = "repository"  # provenance key under which a plan says where it was submitted from


class Attempts:
    """Runs attempts of one worker, each in the thread that calls `run`."""

    def __init__(self, means: Means, worker: str, leases: Leases, finisher: Finisher) -> None:
        self._means = means
        self._worker = worker
        self._leases = leases
        self._finisher = finisher

    def run(self, reservation: dict[str, Any], *, draining: bool = False) -> None:
        """Carry one reservation through to its report and, where nobody else has to speak, its application."""
        if draining:
            self._release(reservation)
            return
        with self._means.kernel.reader.look() as look:
            order = look.order(reservation["order"])
            if order is None:
                raise FencepostError(f"{reservation['order']} was reserved and is not there")
            spec = look.spec(order)
            handed = _handed(look, spec)
            repository = _repository(look, spec)
        inputs = set_of_inputs(spec.inputs.digest, handed)
        lease = self._activate(reservation, spec, inputs, handed)
        if lease is None:
            return
        self._leases.add(lease)
        try:
            self._under_lease(lease, spec, inputs, handed, repository)
        finally:
            self._leases.remove(lease)
            self._means.attempt_lock(lease.attempt).unlink(missing_ok=True)

    def _release(self, reservation: dict[str, Any]) -> None:
        command = ReleaseReservation(attempt=reservation["attempt"], fence=reservation["fence"])
        self._means.issue("dispatcher", command)

    def _activate(
        self, reservation: dict[str, Any], spec: WorkOrderSpec, inputs: str, handed: tuple[ArtifactRef, ...]
    ) -> Lease | None:
        names = sorted(self._means.base_environment)
        chosen = [name for name in names if matches_name(spec.environment, name)]
        sent_tick_us = self._means.reading().tick_us
        receipt = self._means.issue(
            "dispatcher",
            Activate(
                attempt=reservation["attempt"],
                expected=reservation["version"],
                fence=reservation["fence"],
                worker=self._worker,
                executor="command",
                executor_version=1,
                environment=digest_of({name: self._means.base_environment[name] for name in chosen}),
                input_set=inputs,
                mode="local",
                handed=handed,
            ),
        )
        if not receipt.ok:
            return None
        return Lease(
            attempt=reservation["attempt"],
            order=reservation["order"],
            fence=reservation["fence"],
            deadline_tick_us=sent_tick_us + self._means.kernel.limits.lease_us,
        )

    def _under_lease(
        self, lease: Lease, spec: WorkOrderSpec, inputs: str, handed: tuple[ArtifactRef, ...], repository: str
    ) -> None:
        try:
            space = self._means.workspaces.prepare(
                attempt=lease.attempt,
                inputs=layout_of(spec, handed),
                params=spec.params.encode() if spec.params else None,
            )
        except StorageError:
            raise
        except FencepostError as error:
            self._report(lease, spec, self._failed(spec, inputs, "inputs_unavailable", error.message))
            return
        if lease.stopping and not lease.lost:
            self._stopped(lease, 0)
            return
        ended, started = self._execute(lease, spec, inputs, space, repository)
        if ended.reason in ("stopped", "lease_lost"):
            # Stopped by its own side before it was done: that is no failure of the work (lifecycle, 8).
            self._stopped(lease, ended.duration_us)
            self._means.workspaces.discard(lease.attempt)
            return
        facts = facts_of(self._means, spec, lease.attempt, inputs, space, ended)
        self._report(lease, spec, facts, started)

    def _execute(
        self, lease: Lease, spec: WorkOrderSpec, inputs: str, space: Workspace, repository: str
    ) -> tuple[Ended, AppendEvent | None]:
        """Run the command to its end. A start that has not been told yet comes back, to be told with the report."""
        environment = self._means.environment(
            spec.environment,
            home=str(space.home),
            temporary=str(space.tmp),
            order=lease.order,
            attempt=lease.attempt,
            fence=lease.fence,
            workspace=str(space.path),
            repository=repository,
            params_path="" if space.params_path is None else str(space.params_path),
        )
        job = Job(
            attempt=lease.attempt,
            order=lease.order,
            fence=lease.fence,
            argv=spec.run,
            environment=environment,
            cwd=str(space.path),
            stdout_path=str(space.logs / "stdout"),
            stderr_path=str(space.logs / "stderr"),
            lock_path=str(self._means.attempt_lock(lease.attempt)),
            status_path=str(space.logs / "status"),
            time_limit_us=spec.attempt_time_us,
            log_head_bytes=LOG_BYTES,
            log_tail_bytes=LOG_BYTES,
        )
        running = self._means.executor.start(job, lease.deadline_tick_us)
        lease.bind(running)
        if lease.stopping:
            lease.drain(0)
        started = AppendEvent(
            attempt=lease.attempt,
            fence=lease.fence,
            spec=spec.spec,
            input_set=inputs,
            family="execution_started",
            pid=running.pid or 0,
        )
        ended = running.wait(SHORT_S)
        if ended is not None:
            return ended, started
        self._say(started)
        ended = running.wait(None)
        if ended is None:
            raise FencepostError(f"{lease.attempt} was waited for without limit and has no end")
        return ended, None

    def _say(self, event: AppendEvent) -> None:
        """Say that it runs. Evidence only, so that a store that fails just now costs the attempt nothing."""
        try:
            self._means.issue("executor", event)
        except StorageError:
            self._leases.failures += 1

    def _failed(self, spec: WorkOrderSpec, inputs: str, code: str, message: str) -> ResultFacts:
        bound = self._means.kernel.limits.text_bytes_max
        return failed(spec, inputs, "deterministic_input", code, message, bound)

    def _stopped(self, lease: Lease, duration_us: int) -> None:
        receipt = self._means.issue(
            "executor", ReportStopped(attempt=lease.attempt, fence=lease.fence, duration_us=duration_us)
        )
        if not receipt.ok:
            self._usage_only(lease, duration_us)

    def _usage_only(self, lease: Lease, duration_us: int) -> None:
        """The fence is gone and the time is spent all the same: facts outlive authority."""
        with self._means.kernel.reader.look() as look:
            order = look.order(lease.order)
            attempt = look.get(lease.attempt)
            if order is None or attempt is None:
                return
            spec = look.spec(order)
        bound = self._means.kernel.limits.text_bytes_max
        facts = failed(spec, attempt.input_set, "executor", "stopped_on_order", "stopped by its worker", bound)
        facts = with_time(facts, lease.attempt, duration_us)
        self._means.issue(
            "executor", ReportResult(attempt=lease.attempt, fence=lease.fence, spec=spec.spec, facts=facts)
        )

    def _report(
        self, lease: Lease, spec: WorkOrderSpec, facts: ResultFacts, started: AppendEvent | None = None
    ) -> None:
        command = ReportResult(attempt=lease.attempt, fence=lease.fence, spec=spec.spec, facts=facts)
        verified = bool(spec.accept.verify) and facts.outcome == "succeeded"
        receipt = self._finisher.report(command, started, verified=verified)
        if receipt.ok:
            self._finisher.finish(lease.attempt, kept=facts)
        self._tidy(lease, receipt, facts)

    def _tidy(self, lease: Lease, receipt: Receipt, facts: ResultFacts) -> None:
        """Workspaces go after collection; a failed one stays for a person to look at, until the sweep."""
        if facts.outcome == "succeeded" or not receipt.ok:
            self._means.workspaces.discard(lease.attempt)


def with_time(facts: ResultFacts, attempt: str, duration_us: int) -> ResultFacts:
    return replace(facts, duration_us=duration_us, usage=time_used(attempt, duration_us))


def matches_name(names: tuple[str, ...], name: str) -> bool:
    """Whether a variable is among those an order names; one that ends in `*` is a prefix."""
    return any(name.startswith(wanted[:-1]) if wanted.endswith("*") else name == wanted for wanted in names)


def layout_of(spec: WorkOrderSpec, handed: tuple[ArtifactRef, ...]) -> Inputs:
    return Inputs(
        manifests=() if spec.inputs.manifest is None else (spec.inputs.manifest,),
        handed=tuple(
            HandedFile(path=ref.path, digest=ref.digest, mode="0755" if ref.mode & 0o100 else "0644") for ref in handed
        ),
    )


def _handed(look: Look, spec: WorkOrderSpec) -> tuple[ArtifactRef, ...]:
    """Files that other orders hand over: those of their applied results that the patterns choose."""
    chosen: dict[str, ArtifactRef] = {}
    for source in spec.inputs.orders:
        order = look.order(source.order)
        if order is None or order.state != "applied":
            continue
        facts = look.facts(order.result_seq)
        for ref in facts.artifacts if facts is not None else ():
            if matches_any(source.files, ref.path):
                chosen[ref.path] = ref
    return tuple(chosen[path] for path in sorted(chosen, key=os.fsencode))


def _repository(look: Look, spec: WorkOrderSpec) -> str:
    if spec.plan is None:
        return ""
    plan = look.find(spec.plan, PlanState)
    if plan is None:
        raise FencepostError(f"{spec.plan} is named by an order and is not there")
    return look.body(plan.record_seq, PlanRevision).provenance.get(REPOSITORY, "")
