"""Folding of authority and time."""

from __future__ import annotations

from msgspec.structs import replace

from fencepost.core.deadlines import effective_end_us, is_past
from fencepost.core.evolve.edit import Edit
from fencepost.core.grants import Caveat, named_digest
from fencepost.core.machines import CLOCK_DOMAIN, CorruptHistory
from fencepost.core.records import authority, clock
from fencepost.core.state import (
    AUTHORITY,
    BOOTS_MAX,
    CLOCK,
    SCOPE,
    AttemptState,
    AuthorityState,
    Boot,
    ClockState,
    DecisionState,
    GrantState,
    HoldState,
    OrderState,
    PlanState,
    PrincipalState,
    Proof,
    ScopeState,
    Source,
    Value,
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
    permits = Caveat(audience=body.audience, operations=body.operations, expires_us=body.expires_us)
    edit.require(body.chain == named_digest(body.grant, (permits,)), f"the chain of {body.grant} is not its digest")
    state = GrantState(body.audience, body.operations, body.expires_us)
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
    moves = body.disposition == "accepted"
    edit.require(body.domain == known.domain, f"the domain is {known.domain}, not {body.domain}")
    edit.require(moves or body.logical_us == known.logical_us, f"a {body.disposition} reading moves time")
    if body.disposition == "quarantined":
        state = known.state
        if state != "clock_reconciliation_required":
            state = CLOCK_DOMAIN.require(state, "clock_reconciliation_required")
        edit.change(CLOCK, known, state=state, quarantined_seq=seq)
        return
    edit.require(known.state == "running", "time moves only while the domain runs")
    if moves:
        boot = known.boot(body.source, body.boot_id)
        if boot is None or body.tick <= boot.last_tick:
            raise edit.corrupt(f"the reading of {body.source} does not follow on the last one of its boot")
        source = _followed(known.sources[body.source], replace(boot, last_tick=body.tick, last_seq=seq))
    elif body.source in known.sources:
        source = replace(source, earlier=_before(known.sources[body.source], body.boot_id))
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


def _followed(source: Source, boot: Boot) -> Source:
    """A source of which one boot has come further."""
    if isinstance(boot, Source):
        return boot
    earlier = tuple(boot if each.boot_id == boot.boot_id else each for each in source.earlier)
    return replace(source, earlier=earlier)


def _before(source: Source, boot_id: str) -> tuple[Boot, ...]:
    """What is remembered of a source once another boot of it has begun."""
    newest = Boot(**{name: getattr(source, name) for name in Boot.__struct_fields__})
    boots = [boot for boot in (newest, *source.earlier) if boot.boot_id != boot_id]
    boots.sort(key=lambda boot: boot.last_seq, reverse=True)
    return tuple(boots[: BOOTS_MAX - 1])


_TARGETS: dict[str, tuple[str, type[Value], str]] = {
    "backoff": ("work_order", OrderState, "retry_due_us"),
    "plan_deadline": ("plan", PlanState, "deadline_us"),
    "unsettled_hold": ("budget_hold", HoldState, "settle_by_us"),
    "wait": ("work_order", OrderState, "wait_until_us"),
    "lease_expiry": ("attempt", AttemptState, "lease_us"),
    "reservation_expiry": ("attempt", AttemptState, "activation_deadline_us"),
}
"""Purpose -> kind of its target, and the field in which that names its deadline. Only the reducer that owns the
target uses the proof; a purpose that is not here has no owner yet."""


def deadline_proved(edit: Edit, body: clock.ClockDeadlineEligibility | clock.ExpiryEligibility) -> None:
    """A proof moves nothing; it takes its place in the domain's history, for the record right behind it."""
    known = edit.need(CLOCK, ClockState)
    seen = (known.domain, known.version, known.last_seq, known.logical_us, known.uncertainty_us)
    named = (body.domain, body.clock_version, body.observation, body.logical_us, body.uncertainty_us)
    passed = body.logical_us - body.uncertainty_us >= body.deadline_us
    edit.require(seen == named and known.state == "running" and passed, "the clock does not prove this deadline")
    edit.require(body.purpose in _TARGETS, f"{body.purpose} has no owner")
    target_kind, kind, field = _TARGETS[body.purpose]
    value = edit.need(body.target, kind)
    edit.require(
        value.version == body.target_version and getattr(value, field) == body.deadline_us,
        f"{body.target} has another version or deadline",
    )
    if isinstance(body, clock.ExpiryEligibility):
        edit.require(edit.need(body.target, AttemptState).fence == body.fence, f"{body.target} has another fence")
        edit.require(is_past(known, effective_end_us(known, body.deadline_us)), f"{body.target} has a grace left")
    else:
        edit.require(body.target_kind == target_kind, f"{body.purpose} is not a purpose of a {body.target_kind}")
    edit.change(CLOCK, known, proof=Proof(body.purpose, body.target, body.target_version, edit.fact.seq))
