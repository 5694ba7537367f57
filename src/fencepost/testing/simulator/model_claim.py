"""Workers, reservations and activations: who gets what, in which order, and what keeps it from them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from fencepost.testing.simulator.model_budgets import (
    add,
    book,
    has_foreign,
    in_the_way,
    release,
    shares_of,
    spent_out,
    wanted,
)
from fencepost.testing.simulator.model_canonical import digest_of
from fencepost.testing.simulator.model_files import handed_files
from fencepost.testing.simulator.model_moves import (
    claim,
    end,
    enter,
    enter_attempt,
    move,
    move_attempt,
    plan_of,
    plan_over,
    verdict_of,
)
from fencepost.testing.simulator.model_state import (
    LIVE,
    NO_PLAN,
    Attempt,
    Hold,
    Mismatch,
    Order,
    Outcome,
    Refused,
    World,
    is_id,
)

EXECUTORS = {("command", 1): ("workspace.write",)}
"""Executors of this version, with the operations that each permits at most."""
MODES = {"local": ("workspace.write",)}


def enrol_worker(world: World, command: Mapping[str, Any]) -> Outcome:
    name = command["worker"]
    if name in world.versions or not is_id(name, "worker"):
        return Refused("out_of_range")
    body = {key: command[key] for key in ("worker", "host", "boot_id", "pid")}
    body["executors"] = list(command["executors"])
    world.expect("worker_enrolled", name, body)
    world.workers[name] = body
    return {"worker": name}


def reserve(world: World, command: Mapping[str, Any]) -> Outcome:
    worker = world.workers.get(command["worker"])
    order = world.orders.get(command["order"])
    if worker is None or order is None:
        return Refused("not_found")
    if world.versions[order.order] != command["expected"]:
        return Refused("version_moved")
    made = _reserve_one(world, order, worker)
    return made if isinstance(made, Refused) else {"reservations": [made]}


def reserve_next(world: World, command: Mapping[str, Any]) -> Outcome:
    worker = world.workers.get(command["worker"])
    if worker is None:
        return Refused("not_found")
    if world.clock.state != "running":
        return Refused("clock_blocked")
    count = min(command["count"], world.limits["reserve_next_max"])
    made = []
    before = len(world.expected)
    for order in _in_line(world, 2 * count + 8, command.get("plan")):
        one = _reserve_one(world, order, worker)
        if not isinstance(one, Refused):
            made.append(one)
        if len(made) == count:
            break
    moved = len(world.expected) > before  # what it passed over has left the queue: that is no refusal
    return {"reservations": made} if made or moved else Refused("nothing_ready")


def _in_line(world: World, page: int, plan: str | None) -> Iterator[Order]:
    """Ready orders in the queue's order, those of plans that are over left out; within the bounds of one look."""
    queue = world.ready.get("" if plan is None else plan or NO_PLAN, [])
    line = [world.orders[key[3]] for key in queue[: page * 2]]
    if len(line) == page * 2:
        line = [world.orders[key[3]] for key in queue]
    looked = passed = start = 0
    while looked < world.limits["page_max"] and passed <= 2 * world.limits["plan_orders_max"]:
        rows = line[start : start + page]
        live = [order for order in rows if not plan_over(world, plan_of(world, order))]
        yield from live
        if len(rows) < page:
            return
        start += page
        looked += len(live)
        passed += len(rows) - len(live)
        if not live:
            page = max(page, world.limits["page_max"])


def _reserve_one(world: World, order: Order, worker: Mapping[str, Any]) -> Refused | dict[str, Any]:
    if world.clock.state != "running":
        return Refused("clock_blocked")
    over = plan_over(world, plan_of(world, order))
    if over:
        return Refused(over)
    if order.state != "ready":
        return Refused("order_state")
    if order.spec["work_kind"] not in worker["executors"]:
        return Refused("executor_unsupported")
    if verdict_of(order.groups) != "holds":
        raise Mismatch(f"{order.order} is ready and its dependencies do not hold")
    asks, least = shares_of(world, order)
    spent = spent_out(world, order, least)
    if spent:
        end(world, order, "budget_exhausted", "budget_exhausted", spent)
        return Refused("budget_exhausted")
    amounts = wanted(world, order, asks, least)
    code, account = in_the_way(world, order, amounts)
    if code:
        move(world, order, "blocked_budget", code, account)
        return Refused(code)
    return _write(world, order, worker, amounts)


def _write(world: World, order: Order, worker: Mapping[str, Any], amounts: dict[str, int]) -> dict[str, Any]:
    record = world.next_record("attempt_reservation")
    name = world.adopt(record["subject"], "attempt")
    hold = world.adopt(record["body"]["hold"], "hold")
    fence = order.generation + 1
    deadline_us = world.now_us + world.limits["reservation_us"]
    body = {
        "order": order.order,
        "plan": order.plan or None,
        "spec": order.spec["spec"],
        "order_version": world.versions[order.order],
        "ordinal": order.ordinal + 1,
        "generation": fence,
        "fence": fence,
        "worker": worker["worker"],
        "host": worker["host"],
        "boot_id": worker["boot_id"],
        "hold": hold,
        "amounts": amounts,
        "accounts": order.accounts,
        "activation_deadline_us": deadline_us,
    }
    enter(world, order, "reserved", "waiting_for_activation")
    world.expect("attempt_reservation", name, body, hold, *order.accounts)
    order.generation = fence
    order.ordinal += 1
    order.attempt = name
    world.attempts[name] = Attempt(
        attempt=name,
        order=order.order,
        ordinal=order.ordinal,
        fence=fence,
        state="reserved",
        reason="waiting_for_activation",
        worker=worker["worker"],
        host=worker["host"],
        boot_id=worker["boot_id"],
        hold=hold,
        claim=claim("", name, worker["worker"], fence, "reserved", deadline_us),
        deadline_us=deadline_us,
    )
    world.holds[hold] = Hold(hold, name, order.order, order.accounts, dict(amounts))
    book(world, order.accounts, hold=amounts)
    return {
        "attempt": name,
        "order": order.order,
        "plan": order.plan or None,
        "task": order.spec["task"],
        "spec": order.spec["spec"],
        "spec_seq": order.seq,
        "fence": fence,
        "version": 1,
        "ordinal": order.ordinal,
        "activation_deadline_us": deadline_us,
        "time_limit_us": amounts["time_us"],
    }


def activate(world: World, command: Mapping[str, Any]) -> Outcome:
    attempt = world.attempts.get(command["attempt"])
    if attempt is None:
        return Refused("not_found")
    order = world.orders[attempt.order]
    code = (
        _other_holder(world, attempt, command) or _not_now(world, order, attempt) or _other_work(world, order, command)
    )
    if code:
        return Refused(code)
    until_us = world.now_us + world.limits["lease_us"]
    may = order.spec.get("may", [])
    mode, executor = MODES[command["mode"]], EXECUTORS[command["executor"], command["executor_version"]]
    body = {
        "order": order.order,
        "spec": order.spec["spec"],
        "reservation_version": world.versions[attempt.attempt],
        "fence": attempt.fence,
        "claim": attempt.claim,
        "worker": attempt.worker,
        "lease_from_us": world.now_us,
        "lease_until_us": until_us,
        "executor": command["executor"],
        "executor_version": command["executor_version"],
        "environment": command["environment"],
        "input_set": command["input_set"],
        "handed": list(command.get("handed", ())),
        "outputs": order.spec["outputs"],
        "granted": [operation for operation in may if operation in mode and operation in executor],
        "contributors": {
            "constitution": world.constitution["constitution"],
            "requirement": _digest_of(tuple(may)),
            "mode": _digest_of(mode),
            "executor": _digest_of(executor),
            "grant": world.request["grant"],
        },
    }
    if order.checkpoint:
        body["checkpoint"] = order.checkpoint
    enter(world, order, "active", "attempt_running")
    seq = world.expect("attempt_descriptor", attempt.attempt, body, attempt.hold, *order.accounts)
    attempt.lease_us, attempt.activated_us = until_us, world.now_us
    attempt.input_set, attempt.descriptor_seq = command["input_set"], seq
    enter_attempt(attempt, "leased", "waiting_for_start")
    hold = world.holds[attempt.hold]
    one = {"attempts": 1}
    del hold.held["attempts"]
    add(hold.charged, one)
    book(world, hold.accounts, free=one, charge=one)
    order.activations += 1
    return {"attempt": attempt.attempt, "order": order.order, "fence": attempt.fence, "lease_until_us": until_us}


@lru_cache(maxsize=1024)
def _digest_of(operations: tuple[str, ...]) -> str:
    return digest_of(list(operations))


def _other_holder(world: World, attempt: Attempt, command: Mapping[str, Any]) -> str:
    if attempt.worker != command["worker"]:
        return "wrong_holder"
    if attempt.state != "reserved":
        return "lost_race" if attempt.state in LIVE else "attempt_state"
    if attempt.fence != command["fence"]:
        return "stale_fence"
    return "" if world.versions[attempt.attempt] == command["expected"] else "version_moved"


def _not_now(world: World, order: Order, attempt: Attempt) -> str:
    if world.clock.state != "running":
        return "clock_blocked"
    over = plan_over(world, plan_of(world, order))
    if over:
        return over
    held = world.holds[attempt.hold].held
    for subject in order.accounts:
        account = world.accounts[subject]
        if has_foreign(account, held):
            return "currency_not_budgeted"
        for name, ceiling in account.ceiling.items():
            if held.get(name) and ceiling < account.held.get(name, 0) + account.charged.get(name, 0):
                return "budget_held"  # a ceiling was lowered below what is out already
    if order.state != "reserved" or order.attempt != attempt.attempt:
        return "order_state"
    if world.clock.lapsed(attempt.deadline_us):
        return "stale_fence"
    if verdict_of(order.groups) != "holds":
        raise Mismatch(f"{order.order} is reserved and its dependencies do not hold")
    return ""


def _other_work(world: World, order: Order, command: Mapping[str, Any]) -> str:
    executor = (command["executor"], command["executor_version"])
    if (
        "{}/{}".format(*executor) != order.spec["work_kind"]
        or executor not in EXECUTORS
        or command["mode"] not in MODES
    ):
        return "executor_unsupported"
    if command.get("extensions"):
        return "extension_unregistered"
    handed = list(command.get("handed", ()))
    if handed != handed_files(world, order):
        return "spec_mismatch"
    inputs = order.spec["inputs"]["digest"]
    if handed:
        files = [[ref["path"], ref["digest"], ref["mode"]] for ref in handed]
        inputs = digest_of({"handed": files, "inputs": inputs})
    if command["input_set"] != inputs:
        return "spec_mismatch"
    return "" if world.constitution["version"] == order.spec["constitution_version"] else "spec_mismatch"


def release_reservation(world: World, command: Mapping[str, Any]) -> Outcome:
    attempt = world.attempts.get(command["attempt"])
    if attempt is None:
        return Refused("not_found")
    if attempt.fence != command["fence"]:
        return Refused("stale_fence")
    if attempt.state != "reserved":
        return Refused("attempt_state")
    move_attempt(world, attempt, "cancelled_no_effect", reason="reservation_released")
    release(world, attempt, "reservation_released")
    move(world, world.orders[attempt.order], "ready", "reservation_released", attempt.attempt)
    return {"order": attempt.order}
