"""The finish stage: a result is evidence, the reducer alone decides what becomes of it (W7, W16, W17, C9, C12).

A report under a live fence ends the lease and waits. The reducer compares everything that it rests on in its own
transaction, judges the evidence by the acceptance contract, and writes one application: applied, a retry with its
recorded backoff, or failed. What comes late is kept, refused, and still paid for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from msgspec.structs import replace

from fencepost.core.amounts import is_dimension
from fencepost.core.canonical import digest_of, encode, encode_trusted
from fencepost.core.commands import ApplyResult, RecordVerification, ReportResult, ReportStopped, ReportYielded
from fencepost.core.decide import ending
from fencepost.core.decide.batch import Batch, Decided
from fencepost.core.decide.dispatch import fence_refusal, is_kept, remembers_more
from fencepost.core.evolve import Edit
from fencepost.core.evolve.attempt import application_projection
from fencepost.core.ids import sha256_of
from fencepost.core.matching import matches, matches_any
from fencepost.core.reasons import FAILURES, Refusal
from fencepost.core.records.attempt import (
    AttemptResult,
    AttemptStopped,
    Backoff,
    Checked,
    LateRecord,
    ResultApplication,
    ResultFacts,
    VerificationReceipt,
)
from fencepost.core.records.budget import HoldAdjusted, HoldSettled
from fencepost.core.records.common import RETRYABLE, FailureClass, Usage
from fencepost.core.state import AUTHORITY, AttemptState, AuthorityState, OrderState, Terms


def report(batch: Batch, command: ReportResult) -> Decided | Refusal:
    attempt = batch.find(command.attempt, AttemptState)
    if attempt is None:
        return Refusal(code="not_found", field="/attempt", detail={"subject": command.attempt})
    order = ending.order_of(batch, attempt.order)
    if command.spec != order.spec or command.facts.input_set != attempt.input_set:
        return Refusal(code="spec_mismatch", field="/spec", detail={"subject": order.order})
    refusal = _bounds(batch, command.facts)
    if refusal is not None:
        return refusal
    digest = sha256_of(encode_trusted(command.facts))
    if attempt.result and attempt.fence == command.fence:
        if attempt.result == digest:
            return batch.decided(
                {"attempt": attempt.attempt, "duplicate": True, "application": attempt.application_seq}
            )
        return _differs(batch, order, attempt, command, digest)
    if fence_refusal(batch, attempt, command.fence) is not None:
        return _late(batch, attempt, command, digest)
    batch.emit(
        attempt.attempt,
        AttemptResult(
            order=order.order,
            spec=command.spec,
            fence=command.fence,
            claim=attempt.claim,
            facts_digest=digest,
            facts=command.facts,
        ),
    )
    return batch.decided({"attempt": attempt.attempt, "duplicate": False, "application": 0})


def _bounds(batch: Batch, facts: ResultFacts) -> Refusal | None:
    limits = batch.given.limits
    if len(facts.artifacts) > limits.artifacts_per_result_max:
        detail = {"subject": "artifacts", "bound": str(limits.artifacts_per_result_max)}
        return Refusal(code="too_large", field="/facts/artifacts", detail=detail)
    if len(facts.usage) > limits.receipts_per_result_max:
        detail = {"subject": "usage", "bound": str(limits.receipts_per_result_max)}
        return Refusal(code="too_large", field="/facts/usage", detail=detail)
    names = [(usage.provider, usage.receipt) for usage in facts.usage]
    if len(set(names)) != len(names):
        detail = {"subject": "each receipt", "needed": "named once"}
        return Refusal(code="out_of_range", field="/facts/usage", detail=detail)
    if any(len(encode(f"{provider}:{receipt}")) - 2 > limits.receipt_name_bytes_max for provider, receipt in names):
        detail = {"subject": "the name of a receipt", "bound": f"{limits.receipt_name_bytes_max} bytes"}
        return Refusal(code="too_large", field="/facts/usage", detail=detail)
    if not all(is_dimension(name) for usage in facts.usage for name in (*usage.amounts, *usage.unknown)):
        detail = {"subject": "each dimension", "needed": "a registered one"}
        return Refusal(code="out_of_range", field="/facts/usage", detail=detail)
    if any("attempts" in (*usage.amounts, *usage.unknown) for usage in facts.usage):
        detail = {"subject": "a receipt", "needed": "about what was used; the kernel alone counts attempts"}
        return Refusal(code="out_of_range", field="/facts/usage", detail=detail)
    if facts.duration_us > limits.duration_max_us:
        detail = {"subject": "the duration", "needed": f"at most {limits.duration_max_us} us"}
        return Refusal(code="out_of_range", field="/facts/duration_us", detail=detail)
    return None


def _differs(
    batch: Batch, order: OrderState, attempt: AttemptState, command: ReportResult, digest: str
) -> Decided | Refusal:
    """A second, different result of one attempt: kept. Before the first is applied a person must say which counts."""
    refusal = Refusal(code="rejected_conflict", field="/facts", detail={"subject": attempt.attempt})
    if is_kept(attempt, "result", digest):
        return refusal
    if remembers_more(batch, attempt, command.fence):
        _keep(batch, attempt, command, digest, "rejected_conflict", "results_differ")
    if order.state == "result_pending" and order.attempt == attempt.attempt:
        ending.move(batch, order.order, "conflict", "results_differ", attempt.attempt)
        # Nothing more is done for this attempt until a person has spoken; what both results used is paid now.
        ending.settle_from_result(batch, attempt, batch.body(attempt.result_seq, AttemptResult).facts)
    ending.settle_late(batch, attempt, command.facts.usage)
    return batch.decided({"disposition": "rejected_conflict"}, refusal)


def _late(batch: Batch, attempt: AttemptState, command: ReportResult, digest: str) -> Decided | Refusal:
    """A late result is kept within the bound, and paid for beyond it: what was used does not depend on our memory."""
    detail = {"subject": attempt.attempt}
    kept = Refusal(code="rejected_stale", field="/fence", detail=detail)
    if command.fence != attempt.fence or attempt.state == "reserved":
        return Refusal(code="stale_fence", field="/fence", detail=detail)
    if is_kept(attempt, "result", digest):
        return kept
    before = len(batch.facts)
    if _is_to_be_kept(batch, attempt, command.fence, command.facts.usage):
        _keep(batch, attempt, command, digest, "rejected_stale", "stale_fence")
    ending.settle_late(batch, attempt, command.facts.usage)
    if len(batch.facts) == before:
        return Refusal(code="stale_fence", field="/fence", detail=detail)
    return batch.decided({"disposition": "rejected_stale"}, kept)


def _is_to_be_kept(batch: Batch, attempt: AttemptState, fence: int, usages: Sequence[Usage]) -> bool:
    """Whether a late end is remembered.

    While the hold is still held, its end reads the receipts from these records: only they could tell of new ones, and
    there are never more of them than a hold may book.
    """
    hold = ending.hold_of(batch, attempt)
    if hold.state != "held":
        return remembers_more(batch, attempt, fence)
    waiting = ending.used(batch, ending.late_usages(batch, attempt), hold).receipts
    fresh = set(ending.used(batch, usages, hold).receipts).difference(waiting)
    if len(waiting) + len(fresh) > batch.given.limits.receipts_per_hold_max:
        return False
    return bool(fresh) or remembers_more(batch, attempt, fence)


def _keep(
    batch: Batch,
    attempt: AttemptState,
    command: ReportResult,
    digest: str,
    disposition: Literal["rejected_stale", "rejected_conflict"],
    reason: str,
) -> None:
    batch.emit(
        attempt.attempt,
        LateRecord(
            order=attempt.order,
            fence=command.fence,
            what="result",
            digest=digest,
            disposition=disposition,
            reason=reason,
            facts=command.facts,
        ),
    )


def report_stopped(batch: Batch, command: ReportStopped) -> Decided | Refusal:
    """The holder proved its tree's end; its time stays charged. A drain credits the attempt back, a lost lease and a
    lost keeper do not (lifecycle, 8): they cost what they cost where another worker ends the attempt."""
    attempt = batch.find(command.attempt, AttemptState)
    if attempt is None:
        return Refusal(code="not_found", field="/attempt", detail={"subject": command.attempt})
    if command.duration_us > batch.given.limits.duration_max_us:
        detail = {"subject": "the duration", "needed": f"at most {batch.given.limits.duration_max_us} us"}
        return Refusal(code="out_of_range", field="/duration_us", detail=detail)
    refusal = fence_refusal(batch, attempt, command.fence)
    if refusal is not None:
        return ended_late(batch, attempt, command)
    order = ending.order_of(batch, attempt.order)
    batch.emit(
        attempt.attempt,
        AttemptStopped(
            order=order.order,
            fence=command.fence,
            reason=command.reason,
            duration_us=command.duration_us,
            note=command.note,
            stdout=command.stdout,
            stderr=command.stderr,
        ),
    )
    evidence = str(batch.facts[-1].seq)
    drained = command.reason == "drained"
    credited = {"attempts": 1} if drained and order.yields < batch.given.limits.yields_max else {}
    is_pause = drained and attempt.state == "running"
    path = ("yielded",) if is_pause else ("cancellation_requested", "cancelled_no_effect")
    ending.move_attempt(batch, attempt, *path, reason=command.reason, evidence=evidence)
    charged = {"time_us": command.duration_us} if command.duration_us else {}
    batch.emit(
        attempt.hold,
        HoldSettled(charged=charged, basis="stopped", receipts=(ending.time_receipt(attempt),), credited=credited),
    )
    ending.lose(batch, order.order, command.reason, attempt.attempt)
    return batch.decided({"order": order.order})


def ended_late(batch: Batch, attempt: AttemptState, command: ReportStopped | ReportYielded) -> Decided | Refusal:
    """The fence is gone: nothing is credited and nothing waits. What was spent and printed stays true, and is kept
    within the bound: facts outlive authority (W17)."""
    detail = {"subject": attempt.attempt}
    late = Refusal(code="rejected_stale", field="/fence", detail=detail)
    stale = Refusal(code="stale_fence", field="/fence", detail=detail)
    if command.fence != attempt.fence or attempt.state == "reserved":
        return stale
    what: Literal["stop", "yield"] = "stop" if isinstance(command, ReportStopped) else "yield"
    digest = digest_of(command)
    if is_kept(attempt, what, digest):
        return late
    usages = (ending.time_used(attempt, command.duration_us),)
    before = len(batch.facts)
    if _is_to_be_kept(batch, attempt, command.fence, usages):
        body = LateRecord(
            order=attempt.order,
            fence=command.fence,
            what=what,
            digest=digest,
            disposition="rejected_stale",
            reason="stale_fence",
            duration_us=command.duration_us,
            stdout=command.stdout,
            stderr=command.stderr,
        )
        batch.emit(attempt.attempt, body)
    ending.settle_late(batch, attempt, usages)
    return batch.decided({}, late) if len(batch.facts) > before else stale


def record_verification(batch: Batch, command: RecordVerification) -> Decided | Refusal:
    attempt = batch.find(command.attempt, AttemptState)
    if attempt is None:
        return Refusal(code="not_found", field="/attempt", detail={"subject": command.attempt})
    if attempt.result != command.result:
        return Refusal(code="spec_mismatch", field="/result", detail={"subject": attempt.attempt})
    if attempt.verification_seq:
        return Refusal(code="verification_known", field="/attempt", detail={"subject": attempt.attempt})
    if command.duration_us > batch.given.limits.duration_max_us:
        detail = {"subject": "the duration", "needed": f"at most {batch.given.limits.duration_max_us} us"}
        return Refusal(code="out_of_range", field="/duration_us", detail=detail)
    order = ending.order_of(batch, attempt.order)
    if order.state != "result_pending" or order.attempt != attempt.attempt:
        return _verified_late(batch, attempt, command)
    batch.emit(
        attempt.attempt,
        VerificationReceipt(
            order=attempt.order,
            attempt=attempt.attempt,
            result=command.result,
            outcome=command.outcome,
            duration_us=command.duration_us,
            exit_code=command.exit_code,
            signal=command.signal,
            stdout=command.stdout,
            stderr=command.stderr,
            message=command.message,
        ),
    )
    return batch.decided({"attempt": attempt.attempt, "outcome": command.outcome})


def _verified_late(batch: Batch, attempt: AttemptState, command: RecordVerification) -> Decided | Refusal:
    """Nobody waits for this verdict any more; the verifier's time is charged all the same, once."""
    detail = {"subject": attempt.attempt, "state": attempt.state, "needed": "result_reported"}
    refusal = Refusal(code="attempt_state", field="/attempt", detail=detail)
    hold = ending.hold_of(batch, attempt)
    receipt = ending.verifier_receipt(attempt)
    if hold.state != "settled" or receipt in hold.receipts or not command.duration_us:
        return refusal
    if len(hold.receipts) >= batch.given.limits.receipts_per_hold_max:
        return refusal
    batch.emit(attempt.hold, HoldAdjusted(charged={ending.TIME: command.duration_us}, receipts=(receipt,)))
    return batch.decided({}, Refusal(code="rejected_stale", field="/attempt", detail={"subject": attempt.attempt}))


class Verdict(NamedTuple):
    """What the evidence says under the contract. `failure` is None exactly when it is accepted."""

    reason: str
    failure: FailureClass | None


def judge(terms: Terms, facts: ResultFacts, verification: str) -> Verdict:
    """Judge a result by its order's acceptance contract; the claims of its sender decide nothing."""
    accept = terms.accept
    if not facts.tree_empty:
        # Its processes may still be writing: nothing of it is accepted, and nothing starts beside them by itself.
        return Verdict("containment_lost", "terminal")
    if facts.outcome == "succeeded" and facts.failure is not None:
        return Verdict("result_invalid", "executor")
    if facts.outcome == "failed":
        code = facts.message_code if facts.message_code in FAILURES else "executor_failed"
        return Verdict(code, facts.failure or "executor")
    if facts.exit_code != accept.exit_code:
        return Verdict("exit_code_unexpected", "executor")
    paths = [artifact.path for artifact in facts.artifacts]
    if not all(matches_any(terms.outputs, path) for path in paths):
        return Verdict("outputs_refused", "validation")
    for text in accept.files:
        if not any(matches(text, path) for path in paths):
            return Verdict("outputs_missing", "validation")
    passed = {receipt.subject for receipt in facts.validation if receipt.check == "schema" and receipt.passed}
    if any(path not in passed for path in accept.schemas):
        return Verdict("schema_failed", "validation")
    if accept.verify and verification != "passed":
        return Verdict(
            *(("verifier_error", "executor") if verification == "error" else ("verifier_failed", "validation"))
        )
    return Verdict("applied", None)


def apply(batch: Batch, command: ApplyResult) -> Decided | Refusal:
    attempt = batch.find(command.attempt, AttemptState)
    if attempt is None:
        return Refusal(code="not_found", field="/attempt", detail={"subject": command.attempt})
    order = ending.order_of(batch, attempt.order)
    if attempt.application_seq:
        return batch.decided(
            {
                "order": order.order,
                "state": order.state,
                "application": attempt.application_seq,
                "duplicate": True,
            }
        )
    if attempt.state != "result_reported" or order.state != "result_pending" or order.attempt != attempt.attempt:
        detail = {"subject": attempt.attempt, "state": attempt.state, "needed": "result_reported"}
        return Refusal(code="attempt_state", field="/attempt", detail=detail)
    result = batch.body(attempt.result_seq, AttemptResult)
    needs_verifier = bool(order.terms.accept.verify) and result.facts.outcome == "succeeded"
    if needs_verifier and not attempt.verification_seq:
        return Refusal(code="verification_missing", field="/attempt", detail={"subject": attempt.attempt})
    authority = batch.find(AUTHORITY, AuthorityState)
    if authority is None or authority.constitution_version != order.terms.constitution_version:
        return Refusal(code="spec_mismatch", field="/attempt", detail={"subject": order.order})
    return _write_application(batch, order, attempt, result.facts, authority)


def _write_application(
    batch: Batch, order: OrderState, attempt: AttemptState, facts: ResultFacts, authority: AuthorityState
) -> Decided:
    events = [attempt.descriptor_seq, attempt.result_seq]
    if attempt.verification_seq:
        events.append(attempt.verification_seq)
    verdict = judge(order.terms, facts, attempt.verification)
    ending.settle_from_result(batch, attempt, facts)
    order = ending.order_of(batch, order.order)
    decision, backoff = _decision(batch, order, verdict)
    body = ResultApplication(
        order=order.order,
        attempt=attempt.attempt,
        decision=decision,
        reason=verdict.reason,
        checked=Checked(
            order_version=order.version,
            attempt_version=attempt.version,
            generation=attempt.generation,
            spec=order.spec,
            input_set=attempt.input_set,
            constitution_version=authority.constitution_version,
            organization_epoch=order.terms.organization_epoch,
            repository=order.terms.repository,
        ),
        applied_events=tuple(events),
        projection="",
        failure=verdict.failure,
        backoff=backoff,
    )
    # Folded before it is whole: the record names the digest of what it leads to.
    edit = Edit(batch, batch.fact(order.order, body))
    batch.keep(edit, replace(body, projection=application_projection(edit, body)))
    ending.tell(batch, order.order)
    after = ending.order_of(batch, order.order)
    return batch.decided(
        {
            "order": order.order,
            "state": after.state,
            "reason": after.reason,
            "application": after.application_seq,
            "duplicate": False,
        }
    )


def _decision(
    batch: Batch, order: OrderState, verdict: Verdict
) -> tuple[Literal["applied", "retry", "failed"], Backoff | None]:
    if verdict.failure is None:
        return "applied", None
    retry = order.terms.retry
    if (
        retry is None
        or verdict.failure not in retry.on
        or verdict.failure not in RETRYABLE
        or ending.exhausted_on_path(batch, order) is not None
        or ending.plan_refusal(batch, order) is not None
    ):
        return "failed", None
    failures = order.failures + 1
    # 2^62 microseconds is past every permitted backoff, so a longer shift says nothing more.
    delay_us = min(retry.backoff_us << min(failures - 1, 40), retry.backoff_max_us)
    jitter_us = batch.given.ids.below(delay_us * batch.given.limits.jitter_ppm_max // 1_000_000 + 1)
    due_us = batch.now_us + delay_us + jitter_us
    return "retry", Backoff(failures=failures, delay_us=delay_us, jitter_us=jitter_us, due_us=due_us)
