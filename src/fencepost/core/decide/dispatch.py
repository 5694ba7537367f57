"""The dispatch stage: a reservation becomes one lease, which is renewed, and speaks through events (W3, W4, W5, C8).

Activation is one batch from `reserved` to `leased`: descriptor, lease, consumption of the reservation and the order's
move stand in one record, so that no activated state exists in between. It rechecks everything that the reservation
rested on. Renewal needs a lease that has not ended, by the accepted clock: one that is over is over, even if nobody
has taken it yet.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Literal

from fencepost.core.amounts import available
from fencepost.core.canonical import digest_of
from fencepost.core.commands import (
    Activate,
    AppendEvent,
    ChargeUsage,
    EnrolWorker,
    RecordArtifact,
    RenewLeases,
    ReportYielded,
    Request,
    SaveCheckpoint,
    SubmitChild,
)
from fencepost.core.deadlines import has_lapsed
from fencepost.core.decide import ending
from fencepost.core.decide.batch import Batch, Decided
from fencepost.core.decide.clock import blocked
from fencepost.core.decide.specs import EXECUTOR_CEILINGS
from fencepost.core.ids import is_id
from fencepost.core.machines import LIVE
from fencepost.core.matching import handed_files
from fencepost.core.needs import Obstacle, Short, foreign
from fencepost.core.readiness import verdict_of_all
from fencepost.core.reasons import Refusal
from fencepost.core.records.attempt import (
    AttemptDescriptor,
    AttemptEvent,
    AttemptResult,
    Contributors,
    LateRecord,
    LeaseRenewal,
    WorkerEnrolled,
)
from fencepost.core.records.common import ArtifactRef
from fencepost.core.records.plan import WorkOrderSpec
from fencepost.core.state import AUTHORITY, AttemptState, AuthorityState, OrderState, WorkerState

MODE_CEILINGS: dict[str, tuple[str, ...]] = {"local": ("workspace.write",)}
"""Operations that each deployment mode permits at most."""


def enrol_worker(batch: Batch, command: EnrolWorker) -> Decided | Refusal:
    if not is_id(command.worker, "worker"):
        # Every other name may be that of something else one day, which could then not be made any more.
        detail = {"subject": command.worker, "needed": "worker_ and 32 hex digits"}
        return Refusal(code="out_of_range", field="/worker", detail=detail)
    if batch.get(command.worker) is not None:
        detail = {"subject": command.worker, "needed": "a name that was never used"}
        return Refusal(code="out_of_range", field="/worker", detail=detail)
    batch.emit(
        command.worker,
        WorkerEnrolled(
            worker=command.worker,
            host=command.host,
            boot_id=command.boot_id,
            pid=command.pid,
            executors=command.executors,
        ),
    )
    return batch.decided({"worker": command.worker})


def input_set(terms_digest: str, handed: tuple[ArtifactRef, ...]) -> str:
    """Digest of everything that an attempt may read: the order's own set, and the files handed to it."""
    if not handed:
        return terms_digest
    return digest_of({"inputs": terms_digest, "handed": [[ref.path, ref.digest, ref.mode] for ref in handed]})


def activate(batch: Batch, request: Request, command: Activate) -> Decided | Refusal:
    attempt = batch.find(command.attempt, AttemptState)
    if attempt is None:
        return Refusal(code="not_found", field="/attempt", detail={"subject": command.attempt})
    order = ending.order_of(batch, attempt.order)
    refusal = _not_this_holder(attempt, command) or _not_now(batch, order, attempt)
    if refusal is not None:
        return refusal
    refusal = _mismatch(batch, order, command)
    if refusal is not None:
        return refusal
    until_us = batch.now_us + batch.given.limits.lease_us
    granted = tuple(
        operation
        for operation in order.terms.may
        if operation in MODE_CEILINGS[command.mode]
        and operation in EXECUTOR_CEILINGS[command.executor, command.executor_version]
    )
    batch.emit(
        attempt.attempt,
        AttemptDescriptor(
            order=order.order,
            spec=order.spec,
            reservation_version=attempt.version,
            fence=attempt.fence,
            claim=attempt.claim,
            worker=attempt.worker,
            lease_from_us=batch.now_us,
            lease_until_us=until_us,
            executor=command.executor,
            executor_version=command.executor_version,
            environment=command.environment,
            input_set=command.input_set,
            handed=command.handed,
            outputs=order.terms.outputs,
            granted=granted,
            contributors=_contributors(batch, request, command, order.terms.may),
            checkpoint=order.checkpoint or None,
        ),
    )
    live = ending.attempt_of(batch, attempt.attempt)
    return batch.decided(
        {"attempt": live.attempt, "order": order.order, "fence": live.fence, "lease_until_us": until_us}
    )


@lru_cache(maxsize=1024)
def _operations_digest(operations: tuple[str, ...]) -> str:
    return digest_of(operations)


def _contributors(batch: Batch, request: Request, command: Activate, may: tuple[str, ...]) -> Contributors:
    authority = batch.find(AUTHORITY, AuthorityState)
    if authority is None:
        raise LookupError("an authorized command without a constitution")
    return Contributors(
        constitution=authority.constitution,
        requirement=_operations_digest(may),
        mode=_operations_digest(MODE_CEILINGS[command.mode]),
        executor=_operations_digest(EXECUTOR_CEILINGS[command.executor, command.executor_version]),
        grant=request.grant,
    )


def _not_this_holder(attempt: AttemptState, command: Activate) -> Refusal | None:
    if attempt.worker != command.worker:
        return Refusal(code="wrong_holder", field="/worker", detail={"subject": attempt.attempt})
    if attempt.state != "reserved":
        code = "lost_race" if attempt.state in LIVE else "attempt_state"
        detail = {"subject": attempt.attempt, "state": attempt.state, "needed": "reserved"}
        return Refusal(code=code, field="/attempt", detail=detail)
    if attempt.fence != command.fence:
        return Refusal(code="stale_fence", field="/fence", detail={"subject": attempt.attempt})
    return ending.version_refusal(attempt.attempt, attempt, command.expected)


def _not_now(batch: Batch, order: OrderState, attempt: AttemptState) -> Refusal | None:
    refusal = blocked(batch.clock) or ending.plan_refusal(batch, order)
    if refusal is not None:
        return refusal
    refusal = _overdrawn(batch, order, attempt)
    if refusal is not None:
        return refusal
    if order.state != "reserved" or order.attempt != attempt.attempt:
        detail = {"subject": order.order, "state": order.state, "needed": "reserved"}
        return Refusal(code="order_state", field="/attempt", detail=detail)
    if has_lapsed(batch.clock, attempt.activation_deadline_us):
        return Refusal(code="stale_fence", field="/attempt", detail={"subject": attempt.attempt})
    if verdict_of_all(order.groups) != "holds":
        raise LookupError(f"{order.order} is reserved and its dependencies do not hold")
    return None


def _overdrawn(batch: Batch, order: OrderState, attempt: AttemptState) -> Refusal | None:
    """A ceiling that was lowered below what is held and charged lets nothing new start (W3), and neither does money
    that an account has in a currency that it does not budget."""
    held = ending.hold_of(batch, attempt).held
    for subject in order.accounts:
        account = ending.account_of(batch, subject)
        refused = foreign(subject, account, held)
        if refused is not None:
            return Refusal(code=refused.code, detail=refused.detail)
        short = tuple(
            Short(name, held[name], left)
            for name in sorted(held)
            if held[name] and (left := available(account, name)) is not None and left < 0
        )
        if short:
            return Refusal(code="budget_held", detail=Obstacle("budget_held", subject, short).detail)
    return None


def _handed(batch: Batch, order: OrderState) -> tuple[ArtifactRef, ...]:
    def applied(name: str) -> tuple[ArtifactRef, ...]:
        producer = ending.order_of(batch, name)
        if producer.state != "applied":
            return ()
        return batch.body(producer.result_seq, AttemptResult).facts.artifacts

    return handed_files(batch.body(order.spec_seq, WorkOrderSpec), applied) if order.terms.handed else ()


def _mismatch(batch: Batch, order: OrderState, command: Activate) -> Refusal | None:
    if (
        f"{command.executor}/{command.executor_version}" != order.terms.work_kind
        or (command.executor, command.executor_version) not in EXECUTOR_CEILINGS
        or command.mode not in MODE_CEILINGS
    ):
        detail = {"subject": order.order, "executor": order.terms.work_kind}
        return Refusal(code="executor_unsupported", field="/executor", detail=detail)
    if command.extensions:
        name = min(command.extensions)
        return Refusal(code="extension_unregistered", field="/extensions", detail={"extension": name})
    if command.handed != _handed(batch, order):
        return Refusal(code="spec_mismatch", field="/handed", detail={"subject": order.order})
    if command.input_set != input_set(order.terms.input_set, command.handed):
        return Refusal(code="spec_mismatch", field="/input_set", detail={"subject": order.order})
    authority = batch.find(AUTHORITY, AuthorityState)
    if authority is None or authority.constitution_version != order.terms.constitution_version:
        return Refusal(code="spec_mismatch", field="/attempt", detail={"subject": order.order})
    return None


def fence_refusal(batch: Batch, attempt: AttemptState, fence: int) -> Refusal | None:
    """Is this fence live? The one answer that renewals, events and reports share: a stale worker changes nothing."""
    if attempt.fence == fence and attempt.state in LIVE and not has_lapsed(batch.clock, attempt.lease_us):
        return None
    return Refusal(code="stale_fence", field="/fence", detail={"subject": attempt.attempt})


def renew(batch: Batch, command: RenewLeases) -> Decided | Refusal:
    worker = batch.find(command.worker, WorkerState)
    if worker is None:
        return Refusal(code="not_found", field="/worker", detail={"subject": command.worker})
    if len(command.attempts) > batch.given.limits.renewal_attempts_max:
        bound = str(batch.given.limits.renewal_attempts_max)
        return Refusal(code="too_large", field="/attempts", detail={"subject": "attempts", "bound": bound})
    renewed: list[str] = []
    lost: list[dict[str, Any]] = []
    for held in command.attempts:
        code = _renewal_code(batch, held.attempt, held.fence, worker.worker)
        if code:
            lost.append({"attempt": held.attempt, "code": code})
        elif held.attempt not in renewed:
            renewed.append(held.attempt)
    until_us = batch.now_us + batch.given.limits.lease_us
    if renewed:
        batch.emit(worker.worker, LeaseRenewal(attempts=tuple(renewed), until_us=until_us))
    return batch.decided({"until_us": until_us, "renewed": renewed, "lost": lost})


def _renewal_code(batch: Batch, name: str, fence: int, worker: str) -> str:
    attempt = batch.find(name, AttemptState)
    if attempt is None:
        return "not_found"
    if attempt.worker != worker:
        return "wrong_holder"
    if fence_refusal(batch, attempt, fence) is not None:
        return "stale_fence"
    order = ending.order_of(batch, attempt.order)
    refusal = ending.plan_refusal(batch, order)
    if refusal is not None:
        return refusal.code
    limits = batch.given.limits
    if batch.now_us >= attempt.activated_us + order.terms.attempt_time_us + limits.collect_us:
        return "timed_out"
    return ""


def speaker(
    batch: Batch,
    command: AppendEvent | SaveCheckpoint | RecordArtifact | ChargeUsage | SubmitChild | ReportYielded,
) -> tuple[AttemptState, OrderState] | Refusal:
    """The attempt that speaks and its order, if it names what that attempt was given (W5). Says nothing of fences."""
    attempt = batch.find(command.attempt, AttemptState)
    if attempt is None:
        return Refusal(code="not_found", field="/attempt", detail={"subject": command.attempt})
    order = ending.order_of(batch, attempt.order)
    if command.spec != order.spec or command.input_set != attempt.input_set:
        return Refusal(code="spec_mismatch", field="/spec", detail={"subject": order.order})
    return attempt, order


def append_event(batch: Batch, command: AppendEvent) -> Decided | Refusal:
    known = speaker(batch, command)
    if isinstance(known, Refusal):
        return known
    attempt, order = known
    if fence_refusal(batch, attempt, command.fence) is not None:
        return late(batch, attempt, command, "event")
    batch.emit(
        attempt.attempt,
        AttemptEvent(
            family=command.family,
            order=order.order,
            spec=command.spec,
            fence=command.fence,
            input_set=command.input_set,
            pid=command.pid,
            note=command.note,
        ),
    )
    return batch.decided({"attempt": attempt.attempt, "lease_until_us": attempt.lease_us})


def late(
    batch: Batch,
    attempt: AttemptState,
    command: AppendEvent | SaveCheckpoint | RecordArtifact | SubmitChild,
    what: Literal["event", "checkpoint", "artifact", "child"],
) -> Decided | Refusal:
    """Keep a late fact once for each attempt, kind and digest; it moves nothing (W17)."""
    detail = {"subject": attempt.attempt}
    stale = Refusal(code="rejected_stale", field="/fence", detail=detail)
    digest = digest_of(command)
    if is_kept(attempt, what, digest):
        return stale
    if not remembers_more(batch, attempt, command.fence):
        return Refusal(code="stale_fence", field="/fence", detail=detail)
    batch.emit(
        attempt.attempt,
        LateRecord(
            order=attempt.order,
            fence=command.fence,
            what=what,
            digest=digest,
            disposition="rejected_stale",
            reason="stale_fence",
        ),
    )
    return batch.decided({}, stale)


def is_kept(attempt: AttemptState, what: str, digest: str) -> bool:
    """Whether this late fact is kept already; repeats are counted by nobody."""
    return any((kind, kept) == (what, digest) for kind, kept, _ in attempt.late)


def remembers_more(batch: Batch, attempt: AttemptState, fence: int) -> bool:
    """Whether another late fact is kept. Under a fence that its attempt never had it is nobody's, and has no room."""
    if fence != attempt.fence or attempt.state == "reserved":
        return False
    return len(attempt.late) < batch.given.limits.late_records_per_attempt
