"""Records of who may: scope, constitution, principals, grants, decisions (W23)."""

from __future__ import annotations

from typing import Literal

from fencepost.core.records.common import Digest, Name, Positive, Text
from fencepost.core.records.envelope import Body, record_kind

PrincipalKind = Literal["human", "daemon", "sampler", "runtime_operator", "agent", "adapter"]


@record_kind("scope_opened", 1, "W23", "C26")
class ScopeOpened(Body, frozen=True):
    """First record of a scope: which store it stands in, and the domain that its deadlines name."""

    scope: Name
    store_id: str
    clock_domain: Name
    schema_registry: Digest  # of the schemas that its records were written under
    fold_version: Positive


@record_kind("constitution_adopted", 1, "W23")
class ConstitutionAdopted(Body, frozen=True):
    """A version of the constitution comes into force. Its texts are kept in full, so that a decision can be re-made."""

    version: Positive
    constitution: Digest
    vocabulary: Digest
    policies: str
    schema: str


@record_kind("principal_enrolled", 1, "W23")
class PrincipalEnrolled(Body, frozen=True):
    principal: str
    principal_kind: PrincipalKind
    name: Name
    public_key: str  # Ed25519, 64 hex digits
    assurance: Literal["service", "session", "presence"]


@record_kind("grant_issued", 1, "W23", "W4")
class GrantIssued(Body, frozen=True):
    """A runtime grant: who may use it, for what. `chain` is the digest of its caveat chain."""

    grant: str
    chain: Digest
    audience: str  # principal
    operations: tuple[str, ...]  # "action/resource_kind", in byte order
    expires_us: int | None = None


@record_kind("authority_decision", 1, "W23")
class AuthorityDecision(Body, frozen=True):
    """What the constitution says to one question. Recorded once and then named by `decision`."""

    decision: Digest  # of the question together with constitution and vocabulary
    principal: str
    principal_kind: PrincipalKind
    action: Name
    resource_kind: Name
    attributes: dict[str, str]
    allow: bool
    rule: Text
    reason: Text
    constitution_version: Positive
    constitution: Digest
    vocabulary: Digest
