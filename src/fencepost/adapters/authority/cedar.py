"""The constitution in Cedar.

Policies and schema are text files, pinned by digest; `cedarpy` is imported when the first question has to be
decided and not before, since most commands name a decision that is recorded already.

Cedar skips a policy that fails to evaluate, so a `forbid` that overflows leaves an `Allow` behind. Hence an
allow counts only if there is not one error beside it, and everything that is no clean allow is a denial.
"""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from fencepost.core.ids import sha256_of
from fencepost.core.vocabulary import (
    CONSTITUTION_VERSION,
    DEFAULT_DENY_RULE,
    EVALUATION_RULE,
    VOCABULARY_RULE,
    cedar_type,
    objection,
)
from fencepost.ports.authority import Constitution, Decision, Question, question_digest

if TYPE_CHECKING:
    import cedarpy

POLICIES_FILE = "constitution.cedar"
SCHEMA_FILE = "vocabulary.cedarschema"
CACHED_DECISIONS_MAX = 4096
_SHIPPED_FOLDER = Path(__file__).parent / "constitution"


class ConstitutionInvalid(ValueError):
    """The texts do not parse, do not fit the vocabulary, or a policy has no `@id` of its own."""


def make_constitution(*, version: int, policies: str, schema: str) -> Constitution:
    """Pin texts by their digests. Does not parse them."""
    return Constitution(
        version=version,
        text_digest=sha256_of(policies.encode()),
        vocabulary_digest=sha256_of(schema.encode()),
        texts={POLICIES_FILE: policies, SCHEMA_FILE: schema},
    )


def shipped_constitution() -> Constitution:
    """The constitution that comes with this program."""
    return make_constitution(
        version=CONSTITUTION_VERSION,
        policies=(_SHIPPED_FOLDER / POLICIES_FILE).read_bytes().decode("utf-8"),
        schema=(_SHIPPED_FOLDER / SCHEMA_FILE).read_bytes().decode("utf-8"),
    )


class CedarAuthority:
    """`Authority` by Cedar. A constitution that is invalid denies everything (`constitution_invalid`)."""

    def __init__(self, constitution: Constitution | None = None) -> None:
        """None is the shipped constitution."""
        self._constitution = constitution if constitution is not None else shipped_constitution()
        self._lock = threading.Lock()
        self._parsed: tuple[cedarpy.PolicySet, cedarpy.Schema] | None = None
        self._cache: dict[str, Decision] = {}

    @property
    def constitution(self) -> Constitution:
        return self._constitution

    def decide(self, question: Question) -> Decision:
        digest = question_digest(question)
        known = self._cache.get(digest)
        if known is not None:
            return known
        allow, rule, reason = self._judge(question)
        decision = Decision(
            allow=allow,
            rule=rule,
            reason=reason,
            constitution_version=self._constitution.version,
            constitution_digest=self._constitution.text_digest,
            vocabulary_digest=self._constitution.vocabulary_digest,
            question_digest=digest,
        )
        with self._lock:
            if len(self._cache) >= CACHED_DECISIONS_MAX:
                self._cache.clear()
            self._cache[digest] = decision
        return decision

    def _judge(self, question: Question) -> tuple[bool, str, str]:
        """(allow, rule, reason code)."""
        code = objection(
            principal_kind=question.principal_kind,
            verb=question.action,
            resource_kind=question.resource_kind,
            attributes=question.attributes,
        )
        if code is not None:
            return False, VOCABULARY_RULE, code
        import cedarpy

        try:
            policies, schema = self._policies_and_schema()
        except ConstitutionInvalid:
            return False, EVALUATION_RULE, "constitution_invalid"
        try:
            result = cedarpy.is_authorized(
                {
                    "principal": {
                        "type": cedar_type(question.principal_kind),
                        "id": question.principal_name,
                    },
                    "action": {"type": "Action", "id": question.action},
                    "resource": {"type": cedar_type(question.resource_kind), "id": "any"},
                    "context": dict(question.attributes),
                },
                policies,
                [],
                schema,
            )
        except ValueError:  # what the engine raises for input that it cannot take in
            return False, EVALUATION_RULE, "evaluation_error"
        return _interpret(result)

    def _policies_and_schema(self) -> tuple[cedarpy.PolicySet, cedarpy.Schema]:
        with self._lock:
            if self._parsed is None:
                self._parsed = parse_constitution(self._constitution)
            return self._parsed


def _interpret(result: cedarpy.AuthzResult) -> tuple[bool, str, str]:
    """(allow, rule, reason code) of what the engine answered."""
    import cedarpy

    rules = sorted(result.diagnostics.reasons)
    if result.diagnostics.errors:
        return False, EVALUATION_RULE, "evaluation_error"
    if result.decision == cedarpy.Decision.Allow and rules:
        return True, rules[0], "permitted"
    if result.decision == cedarpy.Decision.Deny:
        return (False, rules[0], "forbidden") if rules else (False, DEFAULT_DENY_RULE, "not_permitted")
    return False, EVALUATION_RULE, "no_decision"


def parse_constitution(constitution: Constitution) -> tuple[cedarpy.PolicySet, cedarpy.Schema]:
    """Parse and check both texts; policies are known by their `@id`. Raises `ConstitutionInvalid`.

    The engine numbers policies by position; ids are put in through the JSON form, so that a reason says
    `person-steers-work` and not `policy0`.
    """
    import cedarpy

    policies_text = constitution.texts[POLICIES_FILE]
    schema_text = constitution.texts[SCHEMA_FILE]
    try:
        schema = cedarpy.Schema.from_str(schema_text)
        document = json.loads(cedarpy.policies_to_json_str(policies_text))
        if document["templates"] or document.get("templateLinks"):
            raise ConstitutionInvalid("templates are not used")
        renamed: dict[str, object] = {}
        for number, policy in document["staticPolicies"].items():
            name = policy.get("annotations", {}).get("id")
            if not name:
                raise ConstitutionInvalid(f"{number} has no @id")
            if name in renamed:
                raise ConstitutionInvalid(f"the id {name} is used twice")
            renamed[name] = policy
        policies = cedarpy.PolicySet.from_json_str(json.dumps({**document, "staticPolicies": renamed}))
    except ConstitutionInvalid:
        raise
    except ValueError as error:
        raise ConstitutionInvalid(str(error)) from error
    verdict = cedarpy.validate_policies(policies_text, schema)
    if not verdict.validation_passed:
        raise ConstitutionInvalid("; ".join(str(error) for error in verdict.errors))
    return policies, schema
