"""Records of attempts: reservation, descriptor, events, results, verification, application (W2, W3, W5, W7, W17)."""

from __future__ import annotations

from typing import Literal

import msgspec

from fencepost.core.records.common import (
    Amounts,
    ArtifactRef,
    CheckpointKind,
    Classification,
    Count,
    Digest,
    FailureClass,
    LogRef,
    Name,
    Positive,
    StoppedFor,
    Text,
    Usage,
)
from fencepost.core.records.envelope import Body, Wire, record_kind


@record_kind("worker_enrolled", 1, "C28", "W28")
class WorkerEnrolled(Body, frozen=True):
    """One start of one worker process. Its name is never reused."""

    worker: str
    host: Name
    boot_id: Name
    pid: Positive
    executors: tuple[str, ...]


@record_kind("attempt_reservation", 1, "W2", "C2", "C3", "W18")
class AttemptReservation(Body, frozen=True):
    """Allocates attempt, ordinal, lease generation, fence and budget; grants nothing and can cause no effect."""

    order: str
    plan: str | None
    spec: Digest
    order_version: Positive  # before this record
    ordinal: Positive
    generation: Positive
    fence: Positive
    worker: str
    host: Name
    boot_id: Name
    hold: str
    amounts: Amounts
    accounts: tuple[str, ...]
    activation_deadline_us: Count
    extension_requirements: tuple[str, ...] = ()


class Contributors(Wire, frozen=True):
    """Digests of what the granted operations were intersected from (W4)."""

    constitution: Digest
    requirement: Digest
    mode: Digest
    executor: Digest
    grant: Digest


@record_kind("attempt_descriptor", 1, "W3", "W4", "C7")
class AttemptDescriptor(Body, frozen=True):
    """One live reservation has become one active lease. Never rewritten; renewals are records of their own."""

    order: str
    spec: Digest
    reservation_version: Positive
    fence: Positive
    claim: Digest  # revision of the claim that this one follows
    worker: str
    lease_from_us: Count
    lease_until_us: Count
    executor: Name
    executor_version: Positive
    environment: Digest
    input_set: Digest
    handed: tuple[ArtifactRef, ...]
    outputs: tuple[str, ...]
    granted: tuple[str, ...]
    contributors: Contributors
    extensions: dict[str, str] = msgspec.field(default_factory=dict)
    checkpoint: str | None = None


@record_kind("lease_renewal", 1, "W3", "C2", "C8")
class LeaseRenewal(Body, frozen=True):
    """A worker's leases, all that it named and that were live, run until `until_us`."""

    attempts: tuple[str, ...]
    until_us: Count


@record_kind("attempt_event", 1, "W5")
class AttemptEvent(Body, frozen=True):
    """What an executor says of a running attempt. Evidence, never state beyond `started`."""

    family: Literal["execution_started", "heartbeat_observed", "cancellation_acknowledged", "execution_stopped"]
    order: str
    spec: Digest
    fence: Positive
    input_set: Digest
    pid: Count = 0
    note: Text = ""


@record_kind("checkpoint_envelope", 1, "W5", "W6")
class CheckpointEnvelope(Body, frozen=True):
    """A checkpoint that the reducer has accepted, under a live fence and on the one that it builds on.

    `number` counts the accepted checkpoints of the order, over all kinds. A new attempt points to the last of them; the
    attempt that saved it never opens again. What was refused leaves a late record, or nothing.
    """

    order: str
    spec: Digest
    fence: Positive
    input_set: Digest
    number: Positive
    builds_on: Count  # number of the one before, 0 for none
    payload_kind: CheckpointKind
    payload: Digest
    bytes: Count
    policy_context: Digest
    artifacts: tuple[ArtifactRef, ...] = ()  # that a resumed attempt may need beside the payload


@record_kind("attempt_artifact", 1, "W5")
class AttemptArtifact(Body, frozen=True):
    """A file that a running attempt put into the artifact store. Evidence: no output until a result names it."""

    order: str
    spec: Digest
    fence: Positive
    input_set: Digest
    artifact: ArtifactRef


@record_kind("attempt_yielded", 1, "W5", "W6")
class AttemptYielded(Body, frozen=True):
    """The attempt ended by itself, to wait without holding anything (lifecycle, 9)."""

    order: str
    spec: Digest
    fence: Positive
    input_set: Digest
    duration_us: Count
    checkpoint: str  # envelope that this attempt saved last, "" for none
    stdout: LogRef | None = None  # what it printed, None for nothing
    stderr: LogRef | None = None


@record_kind("attempt_stopped", 1, "W5", "W17")
class AttemptStopped(Body, frozen=True):
    """The holder ended its own attempt before it was done and saw its tree end. The moves that follow name this."""

    order: str
    fence: Positive
    reason: StoppedFor
    duration_us: Count
    note: Text = ""  # what the supervisor saw, for whoever looks closely
    stdout: LogRef | None = None  # what it printed, None for nothing
    stderr: LogRef | None = None


class ValidationReceipt(Wire, frozen=True):
    """One check that the executor's side made of an output. Evidence for the reducer, not a verdict."""

    check: Literal["files", "schema", "outputs"]
    subject: str
    passed: bool
    message: Text = ""


class ResultFacts(Wire, frozen=True):
    """What a result says, whoever accepts it: shared by reported and by late results."""

    outcome: Literal["succeeded", "failed"]
    input_set: Digest
    output_kind: Literal["files/1"]
    duration_us: Count
    classification: Classification
    exit_code: int | None = None
    signal: int | None = None
    failure: FailureClass | None = None
    message_code: str = ""  # reason code of a failure
    message: Text = ""
    artifacts: tuple[ArtifactRef, ...] = ()
    stdout: LogRef | None = None
    stderr: LogRef | None = None
    validation: tuple[ValidationReceipt, ...] = ()
    usage: tuple[Usage, ...] = ()
    effects: tuple[str, ...] = ()  # receipts of outside operations
    tree_empty: bool = True
    completed_us: Count = 0  # the worker's own clock: data, never evidence of time


@record_kind("attempt_result", 1, "W7", "C9")
class AttemptResult(Body, frozen=True):
    """A result reported under a live fence. It claims nothing; the lease ends with it."""

    order: str
    spec: Digest
    fence: Positive
    claim: Digest
    facts_digest: Digest
    facts: ResultFacts


@record_kind("late_record", 1, "W17")
class LateRecord(Body, frozen=True):
    """A fact that came under a fence that is no longer live: kept, refused, its usage still counted.

    A result has its facts; an end by a stop or a yield has the time that its supervisor measured, and what was printed.
    """

    order: str
    fence: Positive
    what: Literal["result", "event", "checkpoint", "artifact", "yield", "stop", "child"]
    digest: Digest
    disposition: Literal["rejected_stale", "rejected_conflict"]
    reason: str
    facts: ResultFacts | None = None
    duration_us: Count = 0
    stdout: LogRef | None = None
    stderr: LogRef | None = None


@record_kind("verification_receipt", 1, "C9", "W7")
class VerificationReceipt(Body, frozen=True):
    """What a verifier saw in a fresh folder. Bound to the exact result; the reducer judges it."""

    order: str
    attempt: str
    result: Digest  # facts digest
    outcome: Literal["passed", "failed", "error"]
    duration_us: Count
    exit_code: int | None = None
    signal: int | None = None
    stdout: LogRef | None = None
    stderr: LogRef | None = None
    message: Text = ""


class Checked(Wire, frozen=True):
    """The versions that the reducer compared in its own transaction."""

    order_version: Positive
    attempt_version: Positive
    generation: Positive
    spec: Digest
    input_set: Digest
    constitution_version: Positive
    organization_epoch: Count
    repository: str


class Backoff(Wire, frozen=True):
    """A retry decision. Jitter is recorded, so that replay never draws it again (W16)."""

    failures: Positive
    delay_us: Count
    jitter_us: Count
    due_us: Count


@record_kind("result_application", 1, "W7", "W16", "W17", "C12")
class ResultApplication(Body, frozen=True):
    """The reducer's decision about one attempt's result: applied, retried later, or failed; and on what it rests."""

    order: str
    attempt: str
    decision: Literal["applied", "retry", "failed"]
    reason: str
    checked: Checked
    applied_events: tuple[int, ...]
    projection: Digest  # of the order's own state after this record
    failure: FailureClass | None = None
    backoff: Backoff | None = None


@record_kind("attempt_moved", 1, "W14", "W17")
class AttemptMoved(Body, frozen=True):
    """The attempt takes another state, for a registered reason."""

    order: str
    origin: str
    target: str
    reason: str
    evidence: str = ""  # seq or digest of what it rests on


@record_kind("holder_gone_proof", 1, "W17")
class HolderGoneProof(Body, frozen=True):
    """A supervisor of the same host and boot found the holder's locks free and nobody carrying its marker."""

    attempt: str
    order: str
    fence: Positive
    worker: str
    host: Name
    boot_id: Name
    basis: Literal["locks_free", "later_boot"]
    evidence: Text
