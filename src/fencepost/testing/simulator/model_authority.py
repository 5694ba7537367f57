"""Who may: the principals, grants and decisions of a scope, and the first command that brings them in.

What the constitution says to a question is not the auditor's to predict: it is taken from the record of the decision,
and must then be the answer to that question for ever. Everything else about a grant is compared each time.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from fencepost.testing.simulator.model_clock import first_reading
from fencepost.testing.simulator.model_state import AUTHORITY, SCOPE, Account, Mismatch, Outcome, Refused, World

PROOF = "prove_clock_deadline/clock_domain"
PAIRS: dict[str, tuple[str, ...]] = {
    "observe_clock": ("sample_clock/clock_domain",),
    "submit_plan": ("submit_work/plan",),
    "submit_order": ("submit_work/work_order",),
    "cancel_plan": ("cancel_work/plan",),
    "cancel_order": ("cancel_work/work_order",),
    "retry_order": ("retry_work/work_order",),
    "set_budget": ("set_budget/account",),
    "enrol_worker": ("enrol_worker/worker",),
    "reserve": ("reserve_attempt/work_order",),
    "reserve_next": ("reserve_attempt/work_order",),
    "release_reservation": ("reserve_attempt/work_order",),
    "activate": ("activate_attempt/attempt",),
    "renew_leases": ("renew_lease/attempt",),
    "append_event": ("append_event/attempt",),
    "save_checkpoint": ("save_checkpoint/attempt",),
    "record_artifact": ("append_event/attempt",),
    "charge_usage": ("charge_usage/attempt",),
    "report_yielded": ("report_result/attempt",),
    "submit_child": ("submit_child/attempt",),
    "answer_order": ("answer_work/work_order",),
    "end_wait": ("propagate_readiness/work_order", PROOF),
    "report_result": ("report_result/attempt",),
    "report_stopped": ("report_result/attempt",),
    "record_verification": ("record_verification/attempt",),
    "apply_result": ("apply_result/work_order",),
    "expire_attempt": ("expire_attempt/attempt", PROOF),
    "prove_holder_gone": ("prove_holder_gone/attempt",),
    "settle_hold": ("expire_attempt/attempt", PROOF),
    "end_backoff": ("propagate_readiness/work_order", PROOF),
    "reexamine": ("reexamine_work/work_order",),
    "tell_dependents": ("propagate_readiness/work_order",),
    "advance_cancel": ("propagate_readiness/work_order",),
    "enforce_deadline": ("enforce_deadline/plan", PROOF),
}
"""Which pairs a command needs: the first of its own principal, a second one of the prover of a deadline."""
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


class Authority:
    """Everyone enrolled, every grant, and every question that was answered."""

    def __init__(self) -> None:
        self.principals: dict[str, Mapping[str, Any]] = {}
        self.grants: dict[str, Mapping[str, Any]] = {}
        self.decisions: dict[tuple[str, str, tuple[tuple[str, str], ...]], tuple[str, bool]] = {}
        self.digests: set[str] = set()
        self.own_decision = ""  # digest that the batch of this command names
        self.untold = False  # a decision that has no record yet

    def open_scope(self, world: World, command: Mapping[str, Any]) -> Outcome:
        if SCOPE in world.versions:
            return Refused("scope_open")
        record = world.next_record("scope_opened")
        fold_version = record["body"]["fold_version"]
        body = {key: command[key] for key in ("scope", "store_id", "schema_registry")}
        body |= {"clock_domain": "main", "fold_version": fold_version}
        world.expect("scope_opened", SCOPE, body)
        world.accounts[SCOPE] = Account()
        text = {key: command[key] for key in ("constitution", "vocabulary", "policies", "schema")}
        world.constitution = {"version": command["constitution_version"], **text}
        world.expect("constitution_adopted", AUTHORITY, dict(world.constitution))
        for each in command["principals"]:
            if each["principal"] in self.principals:
                raise Mismatch(f"{each['principal']} is enrolled twice")
            self.principals[each["principal"]] = each
            body = {key: each[key] for key in ("principal", "name", "public_key", "assurance")}
            world.expect("principal_enrolled", AUTHORITY, {**body, "principal_kind": each["kind"]})
            if each["name"] == "prover":
                world.prover = each["principal"]
        for each in command["grants"]:
            if each["chain"] in self.grants:
                raise Mismatch(f"{each['grant']} is issued twice")
            self.grants[each["chain"]] = each
            world.expect("grant_issued", AUTHORITY, dict(each))
        first_reading(world, command["reading"])
        return {"scope": command["scope"]}

    def authorize(self, world: World, request: Mapping[str, Any]) -> str:
        """The code that refuses a request before its command is looked at, "" if none does."""
        self.own_decision, self.untold = "", False
        principal = request["principal"]
        if principal not in self.principals:
            return "unauthenticated"
        command = request["command"]
        pairs = PAIRS[command["command"]]
        grant = self.grants.get(request["grant"])
        if grant is None:
            return "grant_missing"
        if grant["audience"] != principal:
            return "grant_audience"
        if pairs[0] not in grant["operations"]:
            return "grant_operation"
        attributes: tuple[tuple[str, str], ...] = ()
        if command["command"] == "submit_order":
            draft = command["order"]
            attributes = (("classification", draft["classification"]), ("work_kind", draft["work_kind"]))
        for place, pair in enumerate(pairs):
            digest, allow = self._decision(world, world.prover if place else principal, pair, attributes)
            if place:
                world.proof_decision = digest
            else:
                self.own_decision = digest
            if not allow:
                return "denied"
        return ""

    def _decision(
        self, world: World, principal: str, pair: str, attributes: tuple[tuple[str, str], ...]
    ) -> tuple[str, bool]:
        question = (principal, pair, attributes)
        known = self.decisions.get(question)
        if known is not None:
            return known
        place = len(world.expected)
        if place >= len(world.records) or world.records[place]["kind"] != "authority_decision":
            self.untold = True
            return "", True
        said = world.records[place]["body"]
        digest = said["decision"]
        if not _DIGEST.fullmatch(digest) or digest in self.digests:
            raise Mismatch(f"{digest} is no decision of its own")
        action, kind = pair.split("/")
        body = {key: said[key] for key in ("decision", "allow", "rule", "reason")}
        body |= {
            "principal": principal,
            "principal_kind": self.principals[principal]["kind"],
            "action": action,
            "resource_kind": kind,
            "attributes": dict(attributes),
            "constitution_version": world.constitution["version"],
            "constitution": world.constitution["constitution"],
            "vocabulary": world.constitution["vocabulary"],
        }
        world.expect("authority_decision", f"decision:{digest}", body)
        self.digests.add(digest)
        self.decisions[question] = digest, bool(said["allow"])
        return self.decisions[question]
