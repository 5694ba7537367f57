"""The authority vocabulary: who can be a principal, and which pairs of action and resource kind exist.

This is data. A pair that is not here cannot be permitted by any constitution, and a pair marked `human_only`
cannot be permitted to anyone but a human by any constitution or grant: both are checked before policies are
even read, and the Cedar schema, which is generated from this file and pinned by digest, says the same once
more.

Rules:
- The vocabulary registers what *can* be asked. The constitution decides what *is* permitted; a registered
  pair that no policy names is denied. The human-only pairs stand here before their features exist, and
  version 1 of the constitution forbids them by name.
- A principal's kind and name decide together; the id says which key of which store signed. A human who is
  called "dispatcher" is still a human.
- Attributes are few, named, and have a bounded value: they are what a decision may depend on beside
  principal, action and resource kind. Ids, times and amounts are never among them; those are compared in
  `decide`, every time.

Rows: W23, and W12 for what each service principal is for.
"""

from __future__ import annotations

from typing import NamedTuple

CONSTITUTION_VERSION = 1
"""Version of the constitution that ships with this program."""

PRINCIPAL_KINDS: tuple[str, ...] = ("human", "daemon", "sampler", "runtime_operator", "agent", "adapter")

HUMAN_PRINCIPAL = "human"
"""Name of a store's first human, the operating-system user who ran `init` (assurance: session)."""

SERVICE_PRINCIPALS: dict[str, str] = {
    "scheduler": "daemon",  # reads only: no pair is permitted to it
    "dispatcher": "daemon",
    "sampler": "sampler",
    "prover": "daemon",
    "executor": "agent",  # the attempt sink: what a running program says, as evidence
    "verifier": "daemon",
    "reducer": "daemon",
}
"""Name to kind of every service principal that a store has from its first record on."""

ATTRIBUTES: tuple[str, ...] = ("classification", "mode", "work_kind")
"""Names of the attributes that a question may carry, in order. Each is optional."""

ATTRIBUTE_LENGTH_MAX = 64
"""Most characters of an attribute's value."""

DEFAULT_DENY_RULE = "default-deny"
"""Rule of a denial that no policy caused: nothing permits what was asked."""

VOCABULARY_RULE = "vocabulary"
"""Rule of a denial by the vocabulary itself, before any policy is read."""

EVALUATION_RULE = "evaluation"
"""Rule of a denial because the policies could not be evaluated."""


class Action(NamedTuple):
    """One registered pair. `human_only` pairs are out of reach of every other kind of principal."""

    verb: str
    resource_kind: str
    human_only: bool = False

    @property
    def pair(self) -> str:
        """`verb/resource_kind`, the pair's name in records, grants and messages."""
        return f"{self.verb}/{self.resource_kind}"


ACTIONS: tuple[Action, ...] = (
    Action("accept_repository_commit", "repository_acceptance", human_only=True),
    Action("activate_attempt", "attempt"),
    Action("answer_work", "work_order"),
    Action("append_event", "attempt"),
    Action("apply_result", "work_order"),
    Action("cancel_work", "plan"),
    Action("cancel_work", "work_order"),
    Action("charge_usage", "attempt"),
    Action("enforce_deadline", "plan"),
    Action("enrol_worker", "worker"),
    Action("expire_attempt", "attempt"),
    Action("initialize_repository_acceptance", "repository_acceptance", human_only=True),
    Action("open_scope", "scope"),
    Action("propagate_readiness", "work_order"),
    Action("prove_clock_deadline", "clock_domain"),
    Action("prove_holder_gone", "attempt"),
    Action("reconcile_clock", "clock_domain", human_only=True),
    Action("record_verification", "attempt"),
    Action("recover_journal", "event_journal", human_only=True),
    Action("reexamine_work", "work_order"),
    Action("renew_lease", "attempt"),
    Action("report_result", "attempt"),
    Action("reserve_attempt", "work_order"),
    Action("resolve_ambiguous_effect", "external_effect", human_only=True),
    Action("resolve_conflict", "work_order", human_only=True),
    Action("retry_work", "work_order"),
    Action("sample_clock", "clock_domain"),
    Action("save_checkpoint", "attempt"),
    Action("set_budget", "account"),
    Action("submit_child", "attempt"),
    Action("submit_work", "plan"),
    Action("submit_work", "work_order"),
)
"""Every registered pair, by pair name in order."""

_PAIRS: dict[tuple[str, str], Action] = {(action.verb, action.resource_kind): action for action in ACTIONS}


def registered(verb: str, resource_kind: str) -> Action | None:
    """The registered pair, or None: then nobody may do it."""
    return _PAIRS.get((verb, resource_kind))


def objection(*, principal_kind: str, verb: str, resource_kind: str, attributes: dict[str, str]) -> str | None:
    """Reason code for which the vocabulary alone denies a question, or None if the constitution has to
    decide.

    In order of precedence: `unregistered_principal_kind`, `unregistered_action`, `human_only`,
    `unregistered_attribute`, `attribute_too_long`.
    """
    if principal_kind not in PRINCIPAL_KINDS:
        return "unregistered_principal_kind"
    action = registered(verb, resource_kind)
    if action is None:
        return "unregistered_action"
    if action.human_only and principal_kind != "human":
        return "human_only"
    if any(name not in ATTRIBUTES for name in attributes):
        return "unregistered_attribute"
    if any(len(value) > ATTRIBUTE_LENGTH_MAX for value in attributes.values()):
        return "attribute_too_long"
    return None


def cedar_type(name: str) -> str:
    """Cedar entity type of a principal kind or resource kind: `work_order` is `WorkOrder`."""
    return "".join(part.capitalize() for part in name.split("_"))


def cedar_schema() -> str:
    """The Cedar schema of this vocabulary, byte for byte as it is shipped and pinned by digest."""
    every_kind = ", ".join(cedar_type(kind) for kind in PRINCIPAL_KINDS)
    context = ", ".join(f"{name}?: String" for name in ATTRIBUTES)
    lines = [
        "// Authority vocabulary. Generated from core/vocabulary.py; a test compares the two.",
        "",
        *(f"entity {cedar_type(kind)};" for kind in PRINCIPAL_KINDS),
        "",
        *(f"entity {cedar_type(kind)};" for kind in sorted({action.resource_kind for action in ACTIONS})),
    ]
    for verb in sorted({action.verb for action in ACTIONS}):
        pairs = [action for action in ACTIONS if action.verb == verb]
        principals = cedar_type("human") if all(pair.human_only for pair in pairs) else every_kind
        resources = ", ".join(cedar_type(pair.resource_kind) for pair in pairs)
        lines += [
            "",
            f'action "{verb}" appliesTo {{',
            f"  principal: [{principals}],",
            f"  resource: [{resources}],",
            f"  context: {{ {context} }},",
            "};",
        ]
    return "\n".join(lines) + "\n"
