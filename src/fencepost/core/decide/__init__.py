"""Deciding: a command, the state under the lock and what was handed in, turned into records or a refusal.

`decide` is pure and total: it never raises for anything that a caller can ask, and the same inputs give the same
records. Each stage has a module of its own. Checks stand in one order of precedence: the scope, who asks, the grant,
the policy decision, and then what the stage says.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fencepost.core import commands as c
from fencepost.core.decide import admit, authority, claim, clock, dispatch, finish, inside, recover, retry, revise, wait
from fencepost.core.decide.batch import Batch, Decided, Given, Seen, View
from fencepost.core.reasons import Refusal

_Step = Callable[[Batch, Any], Decided | Refusal]

_STEPS: dict[type[c.Command], _Step] = {
    c.ObserveClock: clock.observe,
    c.CancelPlan: revise.cancel_plan,
    c.CancelOrder: revise.cancel_order,
    c.RetryOrder: retry.retry,
    c.SetBudget: revise.set_budget,
    c.EnrolWorker: dispatch.enrol_worker,
    c.Reserve: claim.reserve,
    c.ReserveNext: claim.reserve_next,
    c.ReleaseReservation: claim.release,
    c.RenewLeases: dispatch.renew,
    c.AppendEvent: dispatch.append_event,
    c.SaveCheckpoint: inside.save_checkpoint,
    c.RecordArtifact: inside.record_artifact,
    c.ChargeUsage: inside.charge,
    c.ReportYielded: wait.report_yielded,
    c.AnswerOrder: wait.answer,
    c.EndWait: wait.end_wait,
    c.ReportResult: finish.report,
    c.ReportStopped: finish.report_stopped,
    c.RecordVerification: finish.record_verification,
    c.ApplyResult: finish.apply,
    c.ExpireAttempt: recover.expire,
    c.ProveHolderGone: recover.prove_holder_gone,
    c.SettleHold: recover.settle_hold,
    c.EndBackoff: recover.end_backoff,
    c.Reexamine: recover.reexamine,
    c.TellDependents: revise.tell_dependents,
    c.AdvanceCancel: revise.advance_cancel,
    c.EnforceDeadline: revise.enforce_deadline,
}

_WITH_REQUEST: dict[type[c.Command], Callable[[Batch, c.Request, Any], Decided | Refusal]] = {
    c.SubmitPlan: admit.submit_plan,
    c.SubmitOrder: admit.submit_order,
    c.Activate: dispatch.activate,
    c.SubmitChild: inside.submit_child,
}


def decide(view: View, request: c.Request, given: Given, next_seq: int) -> Decided:
    """Decide one command. The first of its records, if it makes any, gets sequence number `next_seq`."""
    batch = Batch(view, given, next_seq)
    command = request.command
    if isinstance(command, c.OpenScope):
        return _closed(batch, authority.open_scope(batch, command))
    batch.decision, refusal = authority.authorize(batch, request)
    if refusal is not None:
        return batch.decided({}, refusal)
    step = _STEPS.get(type(command))
    outcome = step(batch, command) if step is not None else _WITH_REQUEST[type(command)](batch, request, command)
    return _closed(batch, outcome)


def _closed(batch: Batch, outcome: Decided | Refusal) -> Decided:
    if isinstance(outcome, Refusal):
        return batch.decided({}, outcome)
    most = batch.given.limits.batch_records_max
    if len(outcome.facts) > most:
        detail = {"subject": "the batch of this command", "bound": f"{most} records"}
        return Decided((), {}, (), {}, batch.decision, Refusal(code="too_large", detail=detail))
    return outcome


__all__ = ["Batch", "Decided", "Given", "Seen", "View", "decide"]
