"""What the two digests of a spec cover, computed a second time from the documents alone (W1, C1; lifecycle, 13)."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from fencepost.core import commands as c
from fencepost.core.records.plan import Acceptance, Policies, Retry, WorkOrderSpec
from tests.support.world import DIGEST, SECOND, World, draft, group

USD = "money_micros:USD"


def digest(document: Any) -> str:
    text = json.dumps(msgspec.to_builtins(document), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def specs(world: World) -> list[WorkOrderSpec]:
    return [fact.body for fact in world.facts if isinstance(fact.body, WorkOrderSpec)]


FULL: dict[str, Any] = {
    "environment": ("PATH",),
    "manifest": "sha256:" + "4" * 64,
    "manifest_content": "sha256:" + "5" * 64,
    "outputs": ("answer", "out/*"),
    "attempt_time_us": 7 * SECOND,
    "ceilings": {"attempts": 2, "calls": 9},
    "per_attempt": {USD: 3},
    "accept": Acceptance(exit_code=3, files=("answer",), schemas={"answer": DIGEST}, verify=("check",)),
    "effects": "declared",
    "may": ("workspace.write", "net"),
    "retry": Retry(on=("executor",), backoff_us=1, backoff_max_us=2),
    "may_fail": True,
    "priority": "high",
    "classification": "private",
    "params": '{"k":1}',
    "run": ("make", "it"),
}


def test_c1_the_contract_covers_the_work_and_names_its_needs_by_their_contracts() -> None:
    world = World()
    handed = (c.FromDraft(task="first", files=("out/a",)),)
    needs = (group("required", "first"), group("optional", "first", outcomes=("failed", "applied")))
    world.submit(draft("first", outputs=("out/*",)), draft("whole", *needs, handed=handed, **FULL))
    first, whole = specs(world)
    assert whole.contract == digest(
        {
            "work_kind": "command/1",
            "run": ["make", "it"],
            "environment": ["PATH"],
            "manifest": "sha256:" + "5" * 64,
            "handed": [{"order": first.contract, "files": ["out/a"]}],
            "outputs": ["answer", "out/*"],
            "groups": [
                {"kind": "required", "members": [{"order": "", "contract": first.contract, "outcomes": ["applied"]}]},
                {
                    "kind": "optional",
                    "members": [{"order": "", "contract": first.contract, "outcomes": ["applied", "failed"]}],
                },
            ],
            "attempt_time_us": 7 * SECOND,
            "ceilings": {"attempts": 2, "calls": 9},
            "hold": {"attempts": 1, "time_us": 7 * SECOND, USD: 3, "calls": 5},
            "accept": FULL["accept"],
            "effects": "declared",
            "policies": Policies(
                cancellation="fence_at_once",
                checkpoint="resume_last",
                reconciliation="human",
                retention="plan",
                projection="local",
            ),
            "may": ["workspace.write", "net"],
            "retry": FULL["retry"],
            "may_fail": True,
            "priority": "high",
            "classification": "private",
            "params": '{"k":1}',
        }
    )


def test_c1_inputs_are_named_by_their_files_or_else_by_their_manifest() -> None:
    def contract(**more: Any) -> str:
        world = World()
        world.submit(draft("a", **more))
        return specs(world)[0].contract

    four, five, six = ("sha256:" + digit * 64 for digit in "456")
    assert contract(manifest=four, manifest_content=five) == contract(manifest=six, manifest_content=five)
    assert contract(manifest=four) != contract(manifest=six) != contract()


@pytest.mark.parametrize("again", [False, True])
def test_c1_the_spec_is_named_by_all_of_it_with_the_contract_in_the_place_of_its_name(again: bool) -> None:
    world = World()
    world.submit(draft("a", **{**FULL, "accept": Acceptance()}))
    if again:
        world.fail("a", failure="policy")
        world.ok(c.RetryOrder(order=world.order("a").order))
    body = specs(world)[-1]
    assert (body.replaces is not None) == again
    assert body.spec == digest(replace(body, spec=body.contract)) != body.contract
