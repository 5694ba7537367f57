"""W23: who may do what, whole: every kind and name of principal, every action, every kind of resource."""

from __future__ import annotations

import itertools
import subprocess
import sys

import pytest

from fencepost.adapters.authority.cedar import (
    POLICIES_FILE,
    SCHEMA_FILE,
    CedarAuthority,
    ConstitutionInvalid,
    make_constitution,
    parse_constitution,
    shipped_constitution,
)
from fencepost.core.vocabulary import (
    ACTIONS,
    HUMAN_PRINCIPAL,
    PRINCIPAL_KINDS,
    SERVICE_PRINCIPALS,
    cedar_schema,
)
from fencepost.ports.authority import Constitution, Question

HUMAN = "any human"
EXPECTED: dict[str, str | None] = {
    # what a person does
    "submit_work/plan": HUMAN,
    "submit_work/work_order": HUMAN,
    "cancel_work/plan": HUMAN,
    "cancel_work/work_order": HUMAN,
    "retry_work/work_order": HUMAN,
    "answer_work/work_order": HUMAN,
    "set_budget/account": HUMAN,
    "open_scope/scope": HUMAN,
    # what services do
    "enrol_worker/worker": "daemon dispatcher",
    "reserve_attempt/work_order": "daemon dispatcher",
    "activate_attempt/attempt": "daemon dispatcher",
    "renew_lease/attempt": "daemon dispatcher",
    "expire_attempt/attempt": "daemon dispatcher",
    "prove_holder_gone/attempt": "daemon dispatcher",
    "sample_clock/clock_domain": "sampler sampler",
    "prove_clock_deadline/clock_domain": "daemon prover",
    "append_event/attempt": "agent executor",
    "save_checkpoint/attempt": "agent executor",
    "charge_usage/attempt": "agent executor",
    "submit_child/attempt": "agent executor",
    "report_result/attempt": "agent executor",
    "record_verification/attempt": "daemon verifier",
    "apply_result/work_order": "daemon reducer",
    "propagate_readiness/work_order": "daemon reducer",
    "reexamine_work/work_order": "daemon reducer",
    "enforce_deadline/plan": "daemon reducer",
    # registered for humans alone, not enabled in version 1
    "reconcile_clock/clock_domain": None,
    "resolve_ambiguous_effect/external_effect": None,
    "initialize_repository_acceptance/repository_acceptance": None,
    "accept_repository_commit/repository_acceptance": None,
    "recover_journal/event_journal": None,
    "resolve_conflict/work_order": None,
}
HUMAN_ONLY = [pair for pair, who in EXPECTED.items() if who is None]
NAMES = (*SERVICE_PRINCIPALS, HUMAN_PRINCIPAL, "stranger", "")


def ask(
    action: str,
    resource_kind: str,
    *,
    kind: str = "human",
    name: str = "human",
    attributes: dict[str, str] | None = None,
    identity: str = "principal_1",
) -> Question:
    return Question(
        principal_id=identity,
        principal_kind=kind,
        principal_name=name,
        action=action,
        resource_kind=resource_kind,
        attributes=attributes or {},
    )


@pytest.fixture(scope="module")
def authority() -> CedarAuthority:
    return CedarAuthority()


def doctored(policies: str, schema: str | None = None) -> CedarAuthority:
    shipped = shipped_constitution()
    return CedarAuthority(
        make_constitution(version=1, policies=policies, schema=shipped.texts[SCHEMA_FILE] if schema is None else schema)
    )


def shipped_policies() -> str:
    return shipped_constitution().texts[POLICIES_FILE]


def test_w23_every_actor_action_and_resource_as_written_down(authority: CedarAuthority) -> None:
    verbs = sorted({action.verb for action in ACTIONS})
    resources = sorted({action.resource_kind for action in ACTIONS})
    wrong = []
    for kind, name, verb, resource in itertools.product(PRINCIPAL_KINDS, NAMES, verbs, resources):
        who = EXPECTED.get(f"{verb}/{resource}")
        expected = (who == HUMAN and kind == "human") or who == f"{kind} {name}"
        decision = authority.decide(ask(verb, resource, kind=kind, name=name))
        if decision.allow != expected:
            wrong.append((kind, name, verb, resource, decision.allow, decision.rule))
    assert wrong == []


def test_w23_the_table_above_names_every_registered_pair() -> None:
    assert {action.pair for action in ACTIONS} == set(EXPECTED)
    assert [action.pair for action in ACTIONS] == sorted(action.pair for action in ACTIONS)
    assert sorted(action.pair for action in ACTIONS if action.human_only) == sorted(HUMAN_ONLY)


def test_w12_the_scheduler_may_do_nothing(authority: CedarAuthority) -> None:
    for action in ACTIONS:
        question = ask(action.verb, action.resource_kind, kind="daemon", name="scheduler")
        assert not authority.decide(question).allow


@pytest.mark.parametrize("pair", HUMAN_ONLY)
def test_w23_human_only_pairs_are_denied_to_everyone_in_version_1(authority: CedarAuthority, pair: str) -> None:
    verb, resource = pair.split("/")
    for kind, name in itertools.product(PRINCIPAL_KINDS, NAMES):
        decision = authority.decide(ask(verb, resource, kind=kind, name=name))
        assert not decision.allow
        if kind == "human":
            assert (decision.rule, decision.reason) == ("not-enabled-yet", "forbidden")
        else:
            assert (decision.rule, decision.reason) == ("vocabulary", "human_only")


@pytest.mark.parametrize("pair", HUMAN_ONLY)
def test_w23_no_constitution_can_give_a_human_only_pair_to_another(pair: str) -> None:
    verb, resource = pair.split("/")
    generous = doctored('@id("all") permit (principal, action, resource);')
    assert generous.decide(ask(verb, resource)).allow
    for kind in set(PRINCIPAL_KINDS) - {"human"}:
        assert not generous.decide(ask(verb, resource, kind=kind, name="human")).allow


def test_w23_the_schema_alone_refuses_a_human_only_pair_to_another() -> None:
    import cedarpy

    policies, schema = parse_constitution(
        make_constitution(
            version=1,
            policies='@id("all") permit (principal, action, resource);',
            schema=shipped_constitution().texts[SCHEMA_FILE],
        )
    )
    request = {
        "principal": {"type": "Daemon", "id": "reducer"},
        "action": {"type": "Action", "id": "reconcile_clock"},
        "resource": {"type": "ClockDomain", "id": "any"},
        "context": {},
    }
    assert cedarpy.is_authorized(request, policies, [], schema).decision == cedarpy.Decision.NoDecision


def test_w23_a_decision_names_rule_reason_version_and_digests(authority: CedarAuthority) -> None:
    constitution = authority.constitution
    allowed = authority.decide(ask("submit_work", "plan"))
    assert (allowed.rule, allowed.reason) == ("person-steers-work", "permitted")
    assert allowed.constitution_version == 1
    assert allowed.constitution_digest == constitution.text_digest
    assert allowed.vocabulary_digest == constitution.vocabulary_digest
    denied = authority.decide(ask("submit_work", "plan", kind="daemon", name="reducer"))
    assert (denied.allow, denied.rule, denied.reason) == (False, "default-deny", "not_permitted")


@pytest.mark.parametrize(
    ("question", "reason"),
    [
        (ask("submit_work", "plan", kind="root", name="root"), "unregistered_principal_kind"),
        (ask("submit_work", "plan", kind="Human"), "unregistered_principal_kind"),
        (ask("destroy", "plan"), "unregistered_action"),
        (ask("submit_work", "scope"), "unregistered_action"),
        (ask("", ""), "unregistered_action"),
        (ask("submit_work", "plan", attributes={"urgent": "yes"}), "unregistered_attribute"),
        (ask("submit_work", "plan", attributes={"mode": "x" * 65}), "attribute_too_long"),
    ],
)
def test_w23_what_the_vocabulary_does_not_know_is_denied(
    authority: CedarAuthority, question: Question, reason: str
) -> None:
    decision = authority.decide(question)
    assert (decision.allow, decision.rule, decision.reason) == (False, "vocabulary", reason)


def test_w23_names_that_try_to_be_policy_text_stay_names(authority: CedarAuthority) -> None:
    for name in ('dispatcher" || true', 'x"::Daemon::"dispatcher', "a\nb", "\\", "🦜", "dispatcher "):
        decision = authority.decide(ask("reserve_attempt", "work_order", kind="daemon", name=name))
        assert not decision.allow


def test_trap_1_an_error_in_a_forbid_is_a_denial_and_not_an_allow() -> None:
    broken = doctored(
        shipped_policies()
        + '@id("overflows") forbid (principal, action, resource) when { 9223372036854775807 + 1 > 0 };'
    )
    decision = broken.decide(ask("submit_work", "plan"))
    assert (decision.allow, decision.rule, decision.reason) == (False, "evaluation", "evaluation_error")


def test_trap_1_no_decision_is_a_denial() -> None:
    # The schema does not know the verb, though the vocabulary does: the engine gives no decision.
    schema = (
        "entity Human; entity Plan; entity Daemon;\n"
        'action "cancel_work" appliesTo { principal: [Human], resource: [Plan], context: {} };'
    )
    narrow = doctored('@id("all") permit (principal, action, resource);', schema)
    assert narrow.decide(ask("cancel_work", "plan")).allow
    for question in (
        ask("submit_work", "plan"),
        ask("cancel_work", "plan", kind="daemon", name="reducer"),
        ask("cancel_work", "plan", attributes={"mode": "local"}),
    ):
        decision = narrow.decide(question)
        assert not decision.allow
        assert decision.rule == "evaluation"


def test_trap_1_an_answer_without_error_and_without_decision_is_a_denial() -> None:
    import cedarpy

    from fencepost.adapters.authority.cedar import _interpret

    silent = cedarpy.AuthzResult({"decision": "NoDecision", "diagnostics": {"reason": [], "errors": []}})
    assert _interpret(silent) == (False, "evaluation", "no_decision")
    without_rule = cedarpy.AuthzResult({"decision": "Allow", "diagnostics": {"reason": [], "errors": []}})
    assert not _interpret(without_rule)[0]


@pytest.mark.parametrize(
    "policies",
    [
        "permit (principal, action, resource);",  # no id
        '@id("a") permit (principal, action, resource); @id("a") forbid (principal, action, resource);',
        '@id("a") permit (principal == ?principal, action, resource);',
        '@id("a") permit (principal, action == Action::"fly", resource);',
        '@id("a") permit (principal, action, resource) when { context.nothing == 1 };',
        "not cedar",
    ],
)
def test_w23_an_invalid_constitution_denies_everything(policies: str) -> None:
    invalid = doctored(policies)
    with pytest.raises(ConstitutionInvalid):
        parse_constitution(invalid.constitution)
    decision = invalid.decide(ask("submit_work", "plan"))
    assert (decision.allow, decision.reason) == (False, "constitution_invalid")


def test_w23_a_forbid_is_above_every_permit() -> None:
    strict = doctored(
        shipped_policies()
        + '@id("no-private") forbid (principal, action, resource)'
        + ' when { context has classification && context.classification == "private" };'
    )
    assert strict.decide(ask("submit_work", "plan", attributes={"classification": "public"})).allow
    denied = strict.decide(ask("submit_work", "plan", attributes={"classification": "private"}))
    assert (denied.allow, denied.rule, denied.reason) == (False, "no-private", "forbidden")


def test_w23_schema_and_vocabulary_say_the_same() -> None:
    assert shipped_constitution().texts[SCHEMA_FILE] == cedar_schema()


def test_w23_version_1_is_pinned() -> None:
    constitution = shipped_constitution()
    assert constitution.version == 1
    assert (constitution.text_digest, constitution.vocabulary_digest) == (
        "sha256:01827b5340572a887f141e9c3b2f8929f10bca4c1fcf73c191cfaa9d45d39fc2",
        "sha256:409f0e02a493fade7366c1e90ddab436152036c117da43f9d7e121b2dd3dc345",
    ), "a changed constitution or vocabulary is a new version: raise CONSTITUTION_VERSION, then pin it here"


_DIGESTS = """
import sys
from fencepost.adapters.authority.cedar import CedarAuthority
from fencepost.ports.authority import Question
authority = CedarAuthority()
print("cedarpy" in sys.modules)
attributes = {"work_kind": "command", "mode": "local", "classification": "internal"}
decision = authority.decide(Question(principal_id="principal_1", principal_kind="human",
    principal_name="human", action="submit_work", resource_kind="plan", attributes=attributes))
print(decision)
"""


def test_w23_a_decision_is_the_same_in_every_process() -> None:
    outputs = {
        subprocess.run(
            [sys.executable, "-c", _DIGESTS],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    (output,) = outputs
    # Trap 17: the policy engine was not loaded before there was a question.
    assert output.startswith("False\nDecision(allow=True")


def test_w23_order_of_attributes_and_asking_twice_change_nothing(authority: CedarAuthority) -> None:
    one = authority.decide(ask("submit_work", "plan", attributes={"mode": "a", "work_kind": "b"}))
    other = CedarAuthority().decide(ask("submit_work", "plan", attributes={"work_kind": "b", "mode": "a"}))
    assert one == other == authority.decide(ask("submit_work", "plan", attributes={"mode": "a", "work_kind": "b"}))


def test_w23_a_decision_belongs_to_the_principal_that_asked(authority: CedarAuthority) -> None:
    one = authority.decide(ask("submit_work", "plan", identity="principal_1"))
    other = authority.decide(ask("submit_work", "plan", identity="principal_2"))
    assert one.allow and other.allow
    assert one.question_digest != other.question_digest


def test_the_constitution_is_read_without_the_engine() -> None:
    constitution: Constitution = CedarAuthority().constitution
    assert set(constitution.texts) == {POLICIES_FILE, SCHEMA_FILE}


def test_the_cache_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fencepost.adapters.authority.cedar.CACHED_DECISIONS_MAX", 4)
    small = CedarAuthority()
    for number in range(20):
        assert small.decide(ask("submit_work", "plan", identity=f"principal_{number}")).allow
    assert len(small._cache) <= 4
