"""Records of time: observations by the sampler, and proofs that a deadline has passed (W8, W10)."""

from __future__ import annotations

from typing import Literal

from fencepost.core.records.common import Count, Name, Positive
from fencepost.core.records.envelope import Body, record_kind

Purpose = Literal[
    "activation_deadline",
    "lease_expiry",
    "heartbeat",
    "backoff",
    "reservation_expiry",
    "plan_deadline",
    "handoff_deadline",
    "proof_expiry",
    "evidence_retention",
    "unsettled_hold",
    "wait",
]


@record_kind("logical_clock_observation", 1, "W8")
class LogicalClockObservation(Body, frozen=True):
    """One reading of one source, and what the domain made of it.

    `accepted` advances the domain by the ticks since the source's anchor, `restart` re-anchors the source at the
    domain's last value with zero advance, `quarantined` moves nothing and stops expiry and replacement.
    """

    domain: Name
    source: Name
    utc_us: Count
    tick: Count
    tick_unit: Literal["us"]
    boot_id: Name
    uncertainty_us: Count
    receipt: str  # digest of the reading
    disposition: Literal["accepted", "restart", "quarantined"]
    logical_us: Count  # of the domain after this observation
    previous: Count = 0  # seq of the source's observation before, 0 for none
    grace_from_us: Count = 0  # leases that ended from here on get one grace interval …
    grace_until_us: Count = 0  # … until here; 0 when this observation opens none


@record_kind("clock_deadline_eligibility", 1, "W10")
class ClockDeadlineEligibility(Body, frozen=True):
    """Proof that one declared deadline lies in the past of the accepted logical timeline. It moves nothing."""

    domain: Name
    purpose: Purpose
    target_kind: Literal["work_order", "attempt", "plan", "budget_hold"]
    target: str
    target_version: Positive
    deadline_us: Count
    observation: Positive  # seq
    logical_us: Count
    uncertainty_us: Count
    clock_version: Positive
    prover: str
    decision: str
    reducer_version: Positive = 1


@record_kind("expiry_eligibility", 1, "W10", "W17")
class ExpiryEligibility(Body, frozen=True):
    """The specialization for leases and reservations: it also binds the fence that it ends."""

    domain: Name
    purpose: Literal["lease_expiry", "reservation_expiry"]
    target: str
    target_version: Positive
    fence: Positive
    deadline_us: Count
    observation: Positive
    logical_us: Count
    uncertainty_us: Count
    clock_version: Positive
    prover: str
    decision: str
    reducer_version: Positive = 1
