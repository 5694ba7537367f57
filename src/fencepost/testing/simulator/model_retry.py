"""Retry on request: a backoff made due at once, or replacements of the same contract and lineage."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fencepost.testing.simulator.model_canonical import digest_of
from fencepost.testing.simulator.model_moves import move, plan_of, plan_over
from fencepost.testing.simulator.model_state import ENDED, SCOPE, Mismatch, Order, Outcome, Refused, World
from fencepost.testing.simulator.model_submit import place_order, policy_context, write_order


def retry_order(world: World, command: Mapping[str, Any]) -> Outcome:
    order = world.orders.get(command["order"])
    if order is None:
        return Refused("not_found")
    over = plan_over(world, plan_of(world, order))
    if order.state == "retry_wait":
        if command.get("from_start"):
            return Refused("retry_refused")  # its next attempt goes on from what it saved
        if over:
            return Refused(over)
        move(world, order, "ready", "retry_requested")
        return {"order": order.order, "replacements": []}
    if order.replaced_by:
        return Refused("already_replaced")
    if order.state not in ENDED or order.state == "applied":
        return Refused("retry_refused")
    if order.parent:
        return Refused("retry_refused")  # its parent alone knows what it is for
    if over:
        return Refused(over)
    plan = plan_of(world, order)
    reopens = plan is not None and not plan.open
    if plan is not None and reopens and len(world.names[plan.name].open_plans) >= world.limits["name_open_plans_max"]:
        return Refused("too_large")
    if _still_fails(world, order):
        return Refused("retry_refused")
    chosen = _because_of(world, order) if command.get("with_dependents") else [order]
    if len(chosen) > world.limits["plan_orders_max"]:
        return Refused("too_large")
    new: dict[str, str] = {}
    for old in chosen:
        _replace(world, old, new, anew=bool(command.get("from_start")))
    made = [
        {"order": new[old.order], "replaces": old.order, "checkpoints": world.orders[new[old.order]].checkpoints}
        for old in chosen
    ]
    return {"order": new[order.order], "replacements": made}


def newest(world: World, name: str) -> Order:
    order = world.orders[name]
    while order.replaced_by:
        order = world.orders[order.replaced_by]
    return order


def _still_fails(world: World, order: Order) -> bool:
    """Whether a need, as it stands now, keeps the replacement from ever running."""
    for group in order.groups:
        lost = [
            (last := newest(world, member)).state in ENDED and last.state not in outcomes
            for member, outcomes in group.members
        ]
        if (group.kind == "required" and any(lost)) or (group.kind == "alternative" and all(lost)):
            return True
    return False


def _because_of(world: World, first: Order) -> list[Order]:
    """The order, and all that ended because of it or of one of these, needs before dependents."""
    chosen = {first.order: first}
    waiting = [first]
    while waiting:
        name = waiting.pop().order
        while name:
            for dependent, number, _ in world.orders[name].dependents:
                if number < 0:
                    continue
                last = newest(world, dependent)
                if last.state == "dependency_failed" and last.order not in chosen:
                    chosen[last.order] = last
                    waiting.append(last)
            name = world.orders[name].spec.get("replaces", "")
    return sorted(chosen.values(), key=lambda each: world.orders[each.spec["lineage"]].seq)


def _replace(world: World, old: Order, new: dict[str, str], *, anew: bool) -> None:
    record = world.next_record("work_order_spec")
    name = world.adopt(record["subject"], "order")
    if record["body"].get("replaces") != old.order:
        raise Mismatch(f"predicted that {old.order} is replaced next, and {name} replaces another")
    new[old.order] = name

    def current(member: str) -> str:
        last = newest(world, member).order
        return new.get(last, last)

    spec = old.spec
    groups = [
        {**group, "members": [{**each, "order": current(each["order"])} for each in group["members"]]}
        for group in spec.get("groups", ())
    ]
    handed = [{**each, "order": current(each["order"])} for each in spec["inputs"].get("orders", ())]
    plan = plan_of(world, old)
    body = {
        **spec,
        "order": name,
        "spec": spec["contract"],
        "replaces": old.order,
        "constitution_version": world.constitution["version"],
        "policy_context": policy_context(world),
        "accounts": [SCOPE, name] if plan is None else [SCOPE, plan.plan, name],
    }
    if plan is not None:
        body["position"] = len(plan.orders)
    if groups:
        body["groups"] = groups
    if handed:
        body["inputs"] = {**spec["inputs"], "orders": handed}
    body.pop("resumes", None)
    if old.checkpoint and not anew and handed == spec["inputs"].get("orders", []):
        body["resumes"] = old.checkpoint
    body["spec"] = digest_of(body)
    place_order(world, write_order(world, body))
    ceiling = world.accounts[old.order].ceiling
    if ceiling != spec["ceilings"]:
        said = {"ceilings": dict(ceiling), "note": "as they were set for the order that it replaces"}
        world.expect("budget_ceiling_set", name, said)
        world.accounts[name].ceiling = dict(ceiling)
