"""Folding of authority and time."""

from __future__ import annotations

from msgspec.structs import replace

from fencepost.core.evolve.edit import Edit
from fencepost.core.machines import CLOCK_DOMAIN, CorruptHistory
from fencepost.core.records import authority, clock
from fencepost.core.state import (
    AUTHORITY,
    CLOCK,
    SCOPE,
    AuthorityState,
    ClockState,
    DecisionState,
    GrantState,
    PrincipalState,
    ScopeState,
    Source,
    decision_subject,
)


def scope_opened(edit: Edit, body: authority.ScopeOpened) -> None:
    edit.create(SCOPE, ScopeState(version=1, scope=body.scope, store_id=body.store_id, clock=CLOCK))


def constitution_adopted(edit: Edit, body: authority.ConstitutionAdopted) -> None:
    known = edit.find(AUTHORITY)
    if known is None:
        edit.create(
            AUTHORITY,
            AuthorityState(
                version=1,
                constitution_version=body.version,
                constitution=body.constitution,
                vocabulary=body.vocabulary,
                constitution_seq=edit.fact.seq,
            ),
        )
        return
    if body.version <= known.constitution_version:
        raise CorruptHistory(f"record {edit.fact.seq}: constitution {body.version} is not newer")
    edit.change(
        AUTHORITY,
        known,
        constitution_version=body.version,
        constitution=body.constitution,
        vocabulary=body.vocabulary,
        constitution_seq=edit.fact.seq,
    )


def principal_enrolled(edit: Edit, body: authority.PrincipalEnrolled) -> None:
    known = edit.need(AUTHORITY, AuthorityState)
    if body.principal in known.principals:
        raise CorruptHistory(f"record {edit.fact.seq}: principal {body.principal} is enrolled already")
    state = PrincipalState(body.principal_kind, body.name, body.assurance, body.public_key)
    edit.change(AUTHORITY, known, principals={**known.principals, body.principal: state})


def grant_issued(edit: Edit, body: authority.GrantIssued) -> None:
    known = edit.need(AUTHORITY, AuthorityState)
    if body.chain in known.grants:
        raise CorruptHistory(f"record {edit.fact.seq}: grant {body.grant} is issued already")
    state = GrantState(body.chain, body.audience, body.operations, body.expires_us)
    edit.change(AUTHORITY, known, grants={**known.grants, body.chain: state})


def authority_decision(edit: Edit, body: authority.AuthorityDecision) -> None:
    edit.create(
        decision_subject(body.decision),
        DecisionState(
            version=1,
            allow=body.allow,
            rule=body.rule,
            reason=body.reason,
            constitution_version=body.constitution_version,
        ),
    )


def clock_observation(edit: Edit, body: clock.LogicalClockObservation) -> None:
    known = edit.find(CLOCK)
    seq = edit.fact.seq
    source = Source(body.boot_id, body.logical_us, body.utc_us, body.tick, body.tick, seq)
    if known is None:
        edit.create(
            CLOCK,
            ClockState(
                version=1,
                domain=body.domain,
                state=CLOCK_DOMAIN.first[0],
                logical_us=body.logical_us,
                uncertainty_us=body.uncertainty_us,
                last_seq=seq,
                sources={body.source: source},
            ),
        )
        return
    if body.logical_us < known.logical_us:
        raise CorruptHistory(f"record {seq}: logical time goes back")
    if body.disposition == "quarantined":
        state = known.state
        if state != "clock_reconciliation_required":
            state = CLOCK_DOMAIN.require(state, "clock_reconciliation_required")
        edit.change(CLOCK, known, state=state, quarantined_seq=seq)
        return
    if body.disposition == "accepted" and body.source in known.sources:
        before = known.sources[body.source]
        source = replace(before, last_tick=body.tick, last_seq=seq)
    grace = {}
    if body.grace_until_us:
        grace = {"grace_from_us": body.grace_from_us, "grace_until_us": body.grace_until_us}
    edit.change(
        CLOCK,
        known,
        logical_us=body.logical_us,
        uncertainty_us=body.uncertainty_us,
        last_seq=seq,
        sources={**known.sources, body.source: source},
        **grace,
    )


def deadline_proved(edit: Edit, body: clock.ClockDeadlineEligibility | clock.ExpiryEligibility) -> None:
    """A proof moves nothing; it only takes its place in the domain's history."""
    known = edit.need(CLOCK, ClockState)
    if known.version != body.clock_version or known.logical_us < body.deadline_us:
        raise CorruptHistory(f"record {edit.fact.seq}: the clock does not prove this deadline")
    edit.change(CLOCK, known)
