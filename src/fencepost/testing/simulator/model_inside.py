"""What a running program says of itself: checkpoints, files, charges, and orders of its own (W5, W6, W17, W18).

A checkpoint builds on the last one of its order, a child is found again by its name within its parent, and a receipt
is booked once in the whole scope, whenever it comes and whoever's turn it is by then.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from fencepost.testing.simulator.model_attempts import is_live, late
from fencepost.testing.simulator.model_budgets import TIME, charge, foreign_currency, is_dimension, rounded_up
from fencepost.testing.simulator.model_canonical import canonical, digest_of
from fencepost.testing.simulator.model_moves import plan_of, plan_over
from fencepost.testing.simulator.model_state import SCOPE, Attempt, Order, Outcome, Refused, World
from fencepost.testing.simulator.model_submit import (
    Shares,
    draft_refusal,
    drafted,
    impossible,
    place_order,
    policy_context,
    shares_for,
    spec_body,
    work_of,
    write_order,
)

_PROVIDER = re.compile(r"[a-z0-9][a-z0-9._/-]{0,62}")
_NAME = re.compile(r"[a-z][a-z0-9-]{0,62}")


def speaker(world: World, command: Mapping[str, Any]) -> tuple[Attempt, Order] | Refused:
    """Who speaks, if it names the spec and the inputs that it was given."""
    attempt = world.attempts.get(command["attempt"])
    if attempt is None:
        return Refused("not_found")
    order = world.orders[attempt.order]
    if command["spec"] != order.spec["spec"] or command["input_set"] != attempt.input_set:
        return Refused("spec_mismatch")
    return attempt, order


def _bound(order: Order, command: Mapping[str, Any]) -> dict[str, Any]:
    return {"order": order.order, **{key: command[key] for key in ("spec", "fence", "input_set")}}


def save_checkpoint(world: World, command: Mapping[str, Any]) -> Outcome:
    known = speaker(world, command)
    if isinstance(known, Refused):
        return known
    attempt, order = known
    limits = world.limits
    artifacts = command.get("artifacts", [])
    too_large = (
        command["bytes"] > limits["checkpoint_bytes_max"]
        or len(artifacts) > limits["artifacts_per_checkpoint_max"]
        or order.checkpoints >= limits["checkpoints_per_order_max"]
    )
    if too_large:
        return Refused("too_large")
    if not is_live(world, attempt, command["fence"]):
        return late(world, attempt, command, "checkpoint")
    if command["builds_on"] != order.checkpoints:
        return Refused("checkpoint_moved")
    body = _bound(order, command)
    body |= {key: command[key] for key in ("builds_on", "payload", "bytes")}
    body |= {
        "number": order.checkpoints + 1,
        "payload_kind": command["kind"],
        "policy_context": policy_context(world),
    }
    if artifacts:
        body["artifacts"] = artifacts
    world.expect("checkpoint_envelope", attempt.attempt, body, order.order)
    order.checkpoints += 1
    order.checkpoint = attempt.checkpoint = digest_of(body)
    return {
        "attempt": attempt.attempt,
        "number": order.checkpoints,
        "checkpoint": order.checkpoint,
        "lease_until_us": attempt.lease_us,
    }


def record_artifact(world: World, command: Mapping[str, Any]) -> Outcome:
    known = speaker(world, command)
    if isinstance(known, Refused):
        return known
    attempt, order = known
    if not is_live(world, attempt, command["fence"]):
        return late(world, attempt, command, "artifact")
    if attempt.artifacts >= world.limits["artifacts_per_attempt_max"]:
        return Refused("too_large")
    world.expect("attempt_artifact", attempt.attempt, {**_bound(order, command), "artifact": command["artifact"]})
    attempt.artifacts += 1
    return {"attempt": attempt.attempt, "digest": command["artifact"]["digest"]}


CURRENCIES_MAX = 16  # in which one attempt is charged


def charge_usage(world: World, command: Mapping[str, Any]) -> Outcome:
    """A receipt is booked as it is; under a lost fence its sender is refused, and it is booked all the same."""
    known = speaker(world, command)
    if isinstance(known, Refused):
        return known
    attempt, order = known
    usage = command["usage"]
    name = f"{usage['provider']}:{usage['receipt']}"
    hold = world.holds[attempt.hold]
    names = [*hold.charged, *hold.unknown, *usage["amounts"], *usage.get("unknown", ())]
    named = {each for each in names if each[:6] == "money_"}
    code = _usage_refusal(world, usage, name) or ("too_large" if len(named) > CURRENCIES_MAX else "")
    if code:
        return Refused(code)
    if command["fence"] != attempt.fence or not attempt.descriptor_seq:
        return Refused("stale_fence")
    live = is_live(world, attempt, command["fence"])
    said = world.receipts.get(name)
    if said is not None:
        if said and said != digest_of(usage):
            return Refused("receipt_differs")
        return _charged(attempt, name, hold.held, {}, duplicate=True) if live else Refused("rejected_stale")
    if hold.charges >= world.limits["charges_per_attempt_max"]:
        return Refused("too_large")
    hold.charges += 1
    body: dict[str, Any] = {
        "attempt": attempt.attempt,
        **{key: value for key, value in _bound(order, command).items() if key != "input_set"},
        "usage": usage,
        "disposition": "accepted" if live else "rejected_stale",
    }
    world.expect("usage_charged", hold.hold, body, *hold.accounts)
    charged, body["freed"] = charge(world, hold, usage)
    hold.unknown.update(usage.get("unknown", ()))
    for subject in hold.accounts:
        world.accounts[subject].unknown.update(usage.get("unknown", ()))
    world.receipts[name] = digest_of(usage)
    over = {each: amount - body["freed"].get(each, 0) for each, amount in charged.items()}
    told = _charged(attempt, name, hold.held, over, duplicate=False)
    levels = [world.accounts[each].ceiling for each in order.accounts]
    told["refused"] = [
        each
        for each in sorted({*charged, *usage.get("unknown", ())})
        if any(foreign_currency(level, {each: 1}) for level in levels)
    ]
    return told if live else Refused("rejected_stale", told)


def _usage_refusal(world: World, usage: Mapping[str, Any], name: str) -> str:
    dimensions = [*usage["amounts"], *usage.get("unknown", ())]
    wrong = (
        _PROVIDER.fullmatch(usage["provider"]) is None
        or usage["provider"] == "kernel"
        or not usage["receipt"]
        or not dimensions
        or not all(is_dimension(each) and each not in ("attempts", TIME) for each in dimensions)
    )
    if wrong:
        return "out_of_range"
    return "too_large" if len(canonical(name)) - 2 > world.limits["receipt_name_bytes_max"] else ""


def _charged(
    attempt: Attempt, name: str, held: Mapping[str, int], over: Mapping[str, int], *, duplicate: bool
) -> dict[str, Any]:
    return {
        "attempt": attempt.attempt,
        "receipt": name,
        "duplicate": duplicate,
        "left": {each: amount for each, amount in held.items() if each not in ("attempts", TIME)},
        "over": {each: amount for each, amount in over.items() if amount},
        "refused": [],
    }


def submit_child(world: World, command: Mapping[str, Any]) -> Outcome:
    """An order within the plan and under all accounts of its parent, one for each of the parent's names."""
    known = speaker(world, command)
    if isinstance(known, Refused):
        return known
    attempt, parent = known
    if not is_live(world, attempt, command["fence"]):
        return late(world, attempt, command, "child")
    over = plan_over(world, plan_of(world, parent))
    draft = {**command["order"], "may_fail": True}
    code = over or _child_refusal(world, parent, draft) or draft_refusal(world, draft)
    if code:
        return Refused(code)
    found = world.orders.get(parent.children.get(draft["task"], ""))
    if found is not None:
        same = _is_same(world, parent, draft, found)
        told = {"order": found.order, "task": found.spec["task"], "fresh": False}
        return told if same else Refused("child_changed")
    shares = _shares(world, parent, draft)
    code = impossible(draft, shares, [world.accounts[subject].ceiling for subject in parent.accounts])
    if code:
        return Refused(code)
    record = world.next_record("work_order_spec")
    name = world.adopt(record["subject"], "order")
    contracts = {name: record["body"]["contract"]}
    names = {**parent.children, draft["task"]: name}
    plan = plan_of(world, parent)
    position = 0 if plan is None else len(plan.orders)
    child = write_order(world, spec_body(world, draft, position, names, parent.plan, shares, contracts, parent=parent))
    place_order(world, child)
    return {"order": name, "task": child.spec["task"], "fresh": True}


def _shares(world: World, parent: Order, draft: Mapping[str, Any]) -> Shares:
    """Of each dimension that something above the child limits, the nearest such level gives one attempt's part."""
    above: dict[str, int] = {}
    for subject in parent.accounts:
        if subject != SCOPE:
            ceiling = world.accounts[subject].ceiling
            first = len(world.plans[subject].orders) if subject in world.plans else 1
            above |= {name: rounded_up(amount, ceiling.get("attempts", first)) for name, amount in ceiling.items()}
    return shares_for(draft, above, 1)


def _is_same(world: World, parent: Order, draft: Mapping[str, Any], found: Order) -> bool:
    """Whether a draft asks for the work that its name stands for, whatever has become of ceilings since."""
    spec = found.spec
    shares = spec["hold"], spec["hold_least"]
    if any(shares[0].get(name) != amount for name, amount in draft.get("per_attempt", {}).items()):
        return False
    names = {**parent.children, draft["task"]: found.order}
    contracts = {found.order: spec["contract"]}
    asked = drafted(world, draft, spec["position"], names, parent.plan, shares, contracts, parent=parent)
    return world.contracts[spec["contract"]] == work_of(world, asked, draft, contracts)


def _asks_for_more(parent: Mapping[str, Any], draft: Mapping[str, Any]) -> bool:
    """Whether a child would have what its parent does not: a lower class, or more of anything else."""
    classes, effects = ("public", "internal", "private"), ("none", "declared", "opaque")
    priorities = ("low", "normal", "high")
    passed = parent.get("environment", ())

    def is_passed(name: str) -> bool:
        return any(name == one or (one[-1:] == "*" and name.startswith(one[:-1])) for one in passed)

    return (
        classes.index(draft["classification"]) < classes.index(parent["classification"])
        or not all(is_passed(name) for name in draft.get("environment", ()))
        or not set(draft.get("may", ())) <= set(parent.get("may", ()))
        or effects.index(draft["effects"]) > effects.index(parent["effects"])
        or priorities.index(draft["priority"]) > priorities.index(parent["priority"])
    )


def _child_refusal(world: World, parent: Order, draft: Mapping[str, Any]) -> str:
    limits = world.limits
    if _NAME.fullmatch(draft["task"]) is None or draft.get("handed"):
        return "out_of_range"
    members = [member for group in draft.get("groups", ()) for member in group["members"]]
    for member in members:
        if member.get("order") or member.get("task") == draft["task"] or member.get("task") not in parent.children:
            return "dependency_missing"
    if _asks_for_more(parent.spec, draft):
        return "child_exceeds"
    if draft["task"] in parent.children:
        return ""
    depth, above = 1, parent
    while above.parent:
        depth, above = depth + 1, world.orders[above.parent]
    plan = plan_of(world, parent)
    many = plan is not None and len(plan.orders) >= 2 * limits["plan_orders_max"]
    too_large = len(parent.children) >= limits["children_max"] or depth > limits["children_depth_max"] or many
    return "too_large" if too_large else ""
