"""Waiting without holding anything: yields, what an order waits for, and answers (lifecycle, 9)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from fencepost.testing.simulator.model_attempts import ended_late, is_live
from fencepost.testing.simulator.model_budgets import TIME, settle, shares_of, spent_out
from fencepost.testing.simulator.model_inside import speaker
from fencepost.testing.simulator.model_moves import children_ended, end, enter, enter_attempt, move
from fencepost.testing.simulator.model_state import Order, Outcome, Refused, World

_NAME = re.compile(r"[a-z][a-z0-9-]{0,62}")


def report_yielded(world: World, command: Mapping[str, Any]) -> Outcome:
    """The attempt ends; it is credited back if it has saved a checkpoint, and its time stays charged."""
    known = speaker(world, command)
    if isinstance(known, Refused):
        return known
    attempt, order = known
    duration_us, draft = command["duration_us"], command["wait"]
    if duration_us > world.limits["duration_max_us"] or _is_no_wait(world, order, draft):
        return Refused("out_of_range")
    if not is_live(world, attempt, command["fence"]):
        return ended_late(world, attempt, command, "yield")
    if attempt.state != "running":
        return Refused("attempt_state")
    body = {key: command[key] for key in ("spec", "fence", "input_set", "duration_us")}
    body |= {"order": order.order, "checkpoint": attempt.checkpoint}
    body |= {key: command[key] for key in ("stdout", "stderr") if command.get(key) is not None}
    enter_attempt(attempt, "yielded", "yielded")
    world.expect("attempt_yielded", attempt.attempt, body)
    credited = {"attempts": 1} if attempt.checkpoint and order.yields < world.limits["yields_max"] else {}
    charged = {TIME: duration_us} if duration_us else {}
    receipt = f"kernel:{attempt.attempt}:time"
    settle(world, world.holds[attempt.hold], "yielded", charged, receipts=[receipt], credited=credited)
    order.activations -= len(credited)
    _, least = shares_of(world, order)
    if spent_out(world, order, least) and not draft.get("question"):
        end(world, order, "budget_exhausted", "budget_exhausted", attempt.attempt)
        return {"order": order.order, "state": "budget_exhausted"}
    wait = {key: draft[key] for key in ("question", "prompt", "orders", "asked") if draft.get(key)}
    if draft.get("after_us"):
        wait["until_us"] = world.now_us + draft["after_us"]
    reason = _reason(wait)
    enter(world, order, "waiting", reason)
    order.wait = wait
    world.expect("work_order_waits", order.order, {"attempt": attempt.attempt, "wait": wait, "reason": reason})
    if wait.get("question") in order.answers:
        move(world, order, "ready", "answered", attempt.attempt)
    elif children_ended(world, order):
        move(world, order, "ready", "children_ended", attempt.attempt)
    return {"order": order.order, "state": order.state}


def _is_no_wait(world: World, order: Order, wait: Mapping[str, Any]) -> bool:
    """Whether there is nothing in it that could come: an answer, the end of children of its own, or a time."""
    question, names = wait.get("question", ""), wait.get("orders", [])
    return (
        not (question or names or wait.get("after_us"))
        or (bool(question) and _NAME.fullmatch(question) is None)
        or len(set(names)) != len(names)
        or not set(names) <= set(order.children.values())
        or wait.get("after_us", 0) > world.limits["duration_max_us"]
    )


def _reason(wait: Mapping[str, Any]) -> str:
    """The strongest of what may let it go on by itself: children, a time, and last an answer."""
    if wait.get("orders"):
        return "waiting_for_children"
    if not wait.get("question"):
        return "waiting_for_time"
    return "waiting_for_answer_or_time" if wait.get("until_us") else "waiting_for_answer"


def answer_order(world: World, command: Mapping[str, Any]) -> Outcome:
    order = world.orders.get(command["order"])
    if order is None:
        return Refused("not_found")
    asked = (order.wait or {}).get("question", "")
    question = command.get("question") or asked
    if question in order.answers:
        return Refused("already_answered")
    if not question or question != asked:
        return Refused("not_asked")
    if len(command["value"].encode()) > world.limits["answer_bytes_max"]:
        return Refused("too_large")
    world.expect("answer_recorded", order.order, {"question": question, "value": command["value"]})
    order.answers.add(question)
    move(world, order, "ready", "answered")
    return {"order": order.order, "question": question}
