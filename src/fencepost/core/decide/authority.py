"""May it? Every command is judged on three separate inputs: who asks, what policy says, which grant was handed out.

Authentication happened outside; here the principal must be enrolled. The grant must have been issued in this scope,
to this principal, for this operation, and be neither expired nor revoked: checked every time, replays included. The
policy decision is recorded once for each question and named by its digest from then on (W23, C26).
"""

from __future__ import annotations

from fencepost.core.commands import Command, OpenScope, Request
from fencepost.core.decide.batch import Batch, Decided
from fencepost.core.decide.clock import first_observation
from fencepost.core.grants import Caveat, objection
from fencepost.core.reasons import Refusal
from fencepost.core.records.authority import ConstitutionAdopted, GrantIssued, PrincipalEnrolled, ScopeOpened
from fencepost.core.state import (
    AUTHORITY,
    DOMAIN,
    FOLD_VERSION,
    SCOPE,
    AuthorityState,
    DecisionState,
    GrantState,
    decision_subject,
)


def _grant_refusal(batch: Batch, grant: GrantState | None, principal: str, operation: str) -> Refusal | None:
    """Why a grant does not carry an operation, in order of precedence.

    A grant ends by whichever time is later, the accepted one or the host's: a clock that waits for a person prolongs
    no authority.
    """
    if grant is None:
        return Refusal(code="grant_missing", field="/grant")
    if grant.revoked:
        return Refusal(code="grant_revoked", field="/grant")
    found = objection(
        Caveat(audience=grant.audience, operations=grant.operations, expires_us=grant.expires_us),
        audience=principal,
        operation=operation,
        work_order=None,
        attempt=None,
        fence=None,
        now_us=max(batch.now_us, batch.given.utc_us),
    )
    return None if found is None else Refusal(code=found.code, field="/grant", detail={"operation": operation})


def authorize(batch: Batch, request: Request) -> tuple[str, Refusal | None]:
    """Return (digest of the decision for the command's own pair, refusal).

    Records the decisions that are not recorded yet, denials too: those are durable.
    """
    authority = batch.find(AUTHORITY, AuthorityState)
    if authority is None:
        return "", Refusal(code="scope_not_open")
    if request.principal not in authority.principals:
        return "", Refusal(code="unauthenticated", field="/principal", detail={"principal": request.principal})
    command: Command = request.command
    own = command.pairs[0]
    refusal = _grant_refusal(batch, authority.grants.get(request.grant), request.principal, own)
    if refusal is not None:
        return "", refusal
    for pair in command.pairs:
        ruling = _ruling(batch, pair)
        if ruling is None or not ruling.allow:
            rule = "no decision" if ruling is None else ruling.rule
            return batch.given.questions[own], Refusal(code="denied", detail={"operation": pair, "rule": rule})
    return batch.given.questions[own], None


def _ruling(batch: Batch, pair: str) -> DecisionState | None:
    digest = batch.given.questions[pair]
    subject = decision_subject(digest)
    known = batch.find(subject, DecisionState)
    if known is None:
        fresh = batch.given.rulings.get(pair)
        if fresh is None or fresh.decision != digest:
            return None
        batch.emit(subject, fresh)
        known = batch.find(subject, DecisionState)
    return known


def open_scope(batch: Batch, command: OpenScope) -> Decided | Refusal:
    """Bootstrap: exactly once, before anybody could be asked. The first batch of every stream."""
    if batch.get(SCOPE) is not None:
        return Refusal(code="scope_open")
    batch.emit(
        SCOPE,
        ScopeOpened(
            scope=command.scope,
            store_id=command.store_id,
            clock_domain=DOMAIN,
            schema_registry=command.schema_registry,
            fold_version=FOLD_VERSION,
        ),
    )
    batch.emit(
        AUTHORITY,
        ConstitutionAdopted(
            version=command.constitution_version,
            constitution=command.constitution,
            vocabulary=command.vocabulary,
            policies=command.policies,
            schema=command.schema,
        ),
    )
    for principal in command.principals:
        batch.emit(
            AUTHORITY,
            PrincipalEnrolled(
                principal=principal.principal,
                principal_kind=principal.kind,
                name=principal.name,
                public_key=principal.public_key,
                assurance=principal.assurance,
            ),
        )
    for grant in command.grants:
        batch.emit(
            AUTHORITY,
            GrantIssued(grant=grant.grant, chain=grant.chain, audience=grant.audience, operations=grant.operations),
        )
    first_observation(batch, command.reading)
    return batch.decided({"scope": command.scope})
