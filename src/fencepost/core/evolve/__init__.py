"""Folding: how a record changes the states of the subjects that it touches.

`evolve` is total over the registered record kinds and has no choice: the same records give the same states, in any
process, for ever. It checks what a decider has decided (versions, table rows, guards, balances), because the same
function builds live state and replays history: a record that could not have been decided raises CorruptHistory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fencepost.core.evolve import attempt as _attempt
from fencepost.core.evolve import authority as _authority
from fencepost.core.evolve import inside as _inside
from fencepost.core.evolve import plan as _plan
from fencepost.core.evolve.edit import CHILD, PARENT, Edge, Edit, Fact, Fold, claim_revision
from fencepost.core.machines import CorruptHistory
from fencepost.core.records import attempt, authority, budget, clock, plan

STEPS: dict[type, Callable[[Edit, Any], None]] = {
    authority.ScopeOpened: _authority.scope_opened,
    authority.ConstitutionAdopted: _authority.constitution_adopted,
    authority.PrincipalEnrolled: _authority.principal_enrolled,
    authority.GrantIssued: _authority.grant_issued,
    authority.AuthorityDecision: _authority.authority_decision,
    clock.LogicalClockObservation: _authority.clock_observation,
    clock.ClockDeadlineEligibility: _authority.deadline_proved,
    clock.ExpiryEligibility: _authority.deadline_proved,
    plan.PlanRevision: _plan.plan_revision,
    plan.WorkOrderSpec: _plan.work_order_spec,
    plan.WorkOrderMoved: _plan.work_order_moved,
    plan.DependencyObserved: _plan.dependency_observed,
    plan.DependentsTold: _plan.dependents_told,
    plan.WorkOrderWaits: _inside.work_order_waits,
    plan.AnswerRecorded: _inside.answer_recorded,
    plan.PlanCancelRequested: _plan.plan_cancel_requested,
    plan.PlanCancelAdvanced: _plan.plan_cancel_advanced,
    budget.BudgetCeilingSet: _plan.budget_ceiling_set,
    budget.HoldSettled: _attempt.hold_settled,
    budget.HoldReleased: _attempt.hold_released,
    budget.HoldUnsettled: _attempt.hold_unsettled,
    budget.HoldAdjusted: _attempt.hold_adjusted,
    budget.UsageCharged: _inside.usage_charged,
    attempt.CheckpointEnvelope: _inside.checkpoint_envelope,
    attempt.AttemptArtifact: _inside.attempt_artifact,
    attempt.AttemptYielded: _inside.attempt_yielded,
    attempt.AttemptStopped: _attempt.attempt_stopped,
    attempt.WorkerEnrolled: _attempt.worker_enrolled,
    attempt.AttemptReservation: _attempt.attempt_reservation,
    attempt.AttemptDescriptor: _attempt.attempt_descriptor,
    attempt.LeaseRenewal: _attempt.lease_renewal,
    attempt.AttemptEvent: _attempt.attempt_event,
    attempt.AttemptResult: _attempt.attempt_result,
    attempt.LateRecord: _attempt.late_record,
    attempt.VerificationReceipt: _attempt.verification_receipt,
    attempt.ResultApplication: _attempt.result_application,
    attempt.AttemptMoved: _attempt.attempt_moved,
    attempt.HolderGoneProof: _attempt.holder_gone_proof,
}


def evolve(fold: Fold, fact: Fact) -> None:
    """Fold one record. Raises CorruptHistory, with the fold unchanged, when it does not follow from what was."""
    step = STEPS.get(type(fact.body))
    if step is None:
        raise CorruptHistory(f"record {fact.seq}: {type(fact.body).__name__} is no registered kind")
    edit = Edit(fold, fact)
    step(edit, fact.body)
    edit.close()


__all__ = ["CHILD", "PARENT", "STEPS", "Edge", "Edit", "Fact", "Fold", "claim_revision", "evolve"]
