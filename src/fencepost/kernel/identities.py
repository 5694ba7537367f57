"""Who the kernel's own services are: principals and grants as the scope's authority knows them, and how a policy
decision is asked for.

A decision is asked for only when the question has not been decided under the constitution in force; the policy
engine is not even loaded for questions whose decision is recorded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from fencepost.core.commands import Request
from fencepost.core.ids import sha256_of
from fencepost.core.records.authority import AuthorityDecision
from fencepost.core.state import AuthorityState
from fencepost.ports.authority import Authority, Question, question_digest

_QUESTIONS_MAX = 1_024


class Identity(NamedTuple):
    """A principal with the grant that it uses here."""

    principal: str
    kind: str
    name: str
    grant: str
    assurance: str


class Identities:
    """The scope's principals by name, each with the grant issued to it."""

    def __init__(self, state: AuthorityState) -> None:
        grants = {grant.audience: chain for chain, grant in state.grants.items() if not grant.revoked}
        self._by_id = {
            principal: Identity(principal, known.kind, known.name, grants.get(principal, ""), known.assurance)
            for principal, known in state.principals.items()
        }
        self._by_name = {identity.name: identity for identity in self._by_id.values()}

    def named(self, name: str) -> Identity:
        """Raises KeyError for a name that is not enrolled."""
        return self._by_name[name]

    @property
    def prover(self) -> str:
        """Principal that proves deadlines."""
        return self._by_name["prover"].principal

    def get(self, principal: str) -> Identity | None:
        return self._by_id.get(principal)


class Questions(NamedTuple):
    """What authority is asked about one command: digests by pair, and the decisions for them."""

    digests: Mapping[str, str]
    rulings: Rulings


class Asked:
    """Questions of one scope under one constitution; remembers those that it was asked often."""

    def __init__(self, authority: Authority) -> None:
        self._authority = authority
        constitution = authority.constitution
        self._pin = f"{constitution.text_digest}|{constitution.vocabulary_digest}"
        self._known: dict[tuple[object, ...], Questions] = {}
        self._identities: tuple[AuthorityState, Identities] | None = None

    def identities(self, state: AuthorityState) -> Identities:
        if self._identities is None or self._identities[0] is not state:
            self._identities = (state, Identities(state))
            self._known.clear()
        return self._identities[1]

    def questions(self, identities: Identities, request: Request) -> Questions:
        """The questions of one command; none for a principal that is not enrolled."""
        command = request.command
        attributes = command.attributes
        key = (request.principal, type(command), *attributes.items())
        known = self._known.get(key)
        if known is None:
            if len(self._known) >= _QUESTIONS_MAX:
                self._known.clear()
            known = self._known[key] = self._questions(identities, request)
        return known

    def _questions(self, identities: Identities, request: Request) -> Questions:
        identity = identities.get(request.principal)
        asked: dict[str, tuple[str, Question]] = {}
        if identity is not None:
            for place, pair in enumerate(request.command.pairs):
                # The second pair of an expiry is the prover's: it proves, the caller moves.
                asker = identities.named("prover") if place else identity
                asked[pair] = self._question(asker, pair, request.command.attributes)
        return Questions({pair: digest for pair, (digest, _) in asked.items()}, Rulings(self, asked))

    def _question(self, identity: Identity, pair: str, attributes: Mapping[str, str]) -> tuple[str, Question]:
        """Return (digest of question, constitution and vocabulary; the question)."""
        action, resource_kind = pair.split("/")
        question = Question(
            principal_id=identity.principal,
            principal_kind=identity.kind,
            principal_name=identity.name,
            action=action,
            resource_kind=resource_kind,
            attributes=dict(attributes),
        )
        return sha256_of(f"{question_digest(question)}|{self._pin}".encode()), question

    def ruling(self, digest: str, question: Question) -> AuthorityDecision:
        """Ask the policy engine now."""
        decision = self._authority.decide(question)
        return AuthorityDecision(
            decision=digest,
            principal=question.principal_id,
            principal_kind=question.principal_kind,  # type: ignore[arg-type]  # enrolled kinds are registered ones
            action=question.action,
            resource_kind=question.resource_kind,
            attributes=question.attributes,
            allow=decision.allow,
            rule=decision.rule,
            reason=decision.reason,
            constitution_version=decision.constitution_version,
            constitution=decision.constitution_digest,
            vocabulary=decision.vocabulary_digest,
        )


class Rulings(Mapping[str, AuthorityDecision]):
    """Decisions for the pairs of one command, made only when one is looked at."""

    def __init__(self, asked: Asked, questions: Mapping[str, tuple[str, Question]]) -> None:
        self._asked = asked
        self._questions = questions

    def __getitem__(self, pair: str) -> AuthorityDecision:
        digest, question = self._questions[pair]
        return self._asked.ruling(digest, question)

    def __iter__(self) -> Iterator[str]:
        return iter(self._questions)

    def __len__(self) -> int:
        return len(self._questions)
