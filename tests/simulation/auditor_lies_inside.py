"""Lies about what running programs say, about waits and about children (see `auditor_lies`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from fencepost.core import commands as c
from fencepost.core import decide
from fencepost.core.charges import Booked, booked
from fencepost.core.decide import ending, inside
from fencepost.core.decide.batch import Batch
from fencepost.core.evolve import CHILD
from fencepost.core.machines import ENDED
from fencepost.core.reasons import Refusal
from fencepost.core.records.budget import HoldSettled
from fencepost.core.records.common import Usage
from fencepost.core.state import AttemptState, OrderState
from tests.simulation.auditor_drive import Seen
from tests.simulation.auditor_lies import ALTERATIONS, BENDS, Bend, altered, another, bent, body_of, plus_one


@altered
def a_receipt_charges_more_than_it_says(seen: Seen) -> bool:
    body = body_of(seen, "usage_charged")
    amounts = {} if body is None else body["usage"]["amounts"]
    for name in amounts:
        amounts[name] += 1
    return bool(amounts)


@altered
def a_charge_gives_back_more_than_it_uses(seen: Seen) -> bool:
    return plus_one(seen, "usage_charged", "freed", "calls")


@altered
def a_checkpoint_builds_on_another(seen: Seen) -> bool:
    return plus_one(seen, "checkpoint_envelope", "builds_on")


@altered
def a_new_attempt_forgets_its_checkpoint(seen: Seen) -> bool:
    body = body_of(seen, "attempt_descriptor")
    return body is not None and bool(body.pop("checkpoint", ""))


@altered
def a_wait_lasts_longer(seen: Seen) -> bool:
    body = body_of(seen, "work_order_waits")
    if body is None or "until_us" not in body["wait"]:
        return False
    body["wait"]["until_us"] += 1
    return True


@altered
def a_wait_is_taken_for_another(seen: Seen) -> bool:
    body = body_of(seen, "work_order_waits")
    return body is not None and bool(body["wait"].pop("asked", None))


@altered
def another_answer_is_recorded(seen: Seen) -> bool:
    return another(seen, "answer_recorded", "value", "yes", "no")


@altered
def a_child_is_outside_the_accounts_of_its_parent(seen: Seen) -> bool:
    body = body_of(seen, "work_order_spec")
    if body is None or "parent" not in body:
        return False
    body["accounts"] = [name for name in body["accounts"] if name != body["parent"]]
    return True


@altered
def a_receipt_that_was_booked_says_that_it_is_new(seen: Seen) -> bool:
    if not seen.reply.result.get("duplicate") or seen.request["command"]["command"] != "charge_usage":
        return False
    seen.reply = seen.reply._replace(result={**seen.reply.result, "duplicate": False})
    return True


@altered
def a_child_that_was_there_says_that_it_is_new(seen: Seen) -> bool:
    if seen.reply.result.get("fresh") is not False or seen.request["command"]["command"] != "submit_child":
        return False
    seen.reply = seen.reply._replace(result={**seen.reply.result, "fresh": True})
    return True


def instead(command: type[c.Command], step: Callable[..., Any]) -> Bend:
    """Another decider for one command."""
    return {"fencepost.core.decide._STEPS": {**decide._STEPS, command: step}}


class _Anything(str):
    """Equal to every text."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = str.__hash__


@bent(0)
def a_checkpoint_may_build_on_anything() -> Bend:
    def save(batch: Batch, command: c.SaveCheckpoint) -> Any:
        attempt = batch.find(command.attempt, AttemptState)
        order = None if attempt is None else batch.find(attempt.order, OrderState)
        return inside.save_checkpoint(
            batch, command if order is None else replace(command, builds_on=order.checkpoint_number)
        )

    return instead(c.SaveCheckpoint, save)


@bent(0)
def a_receipt_with_other_amounts_passes_for_the_same() -> Bend:
    return {"fencepost.core.decide.inside.digest_of": lambda _: _Anything()}


@bent(0)
def a_receipt_that_comes_again_is_refused() -> Bend:
    return {"fencepost.core.decide.inside.digest_of": lambda _: "other"}


@bent(0)
def a_late_charge_is_not_booked() -> Bend:
    def charge(batch: Batch, command: c.ChargeUsage) -> Any:
        attempt = batch.find(command.attempt, AttemptState)
        if attempt is not None and inside.fence_refusal(batch, attempt, command.fence) is not None:
            return Refusal(code="rejected_stale", field="/fence", detail={"subject": attempt.attempt})
        return inside.charge(batch, command)

    return instead(c.ChargeUsage, charge)


def booking(rule: Callable[[Usage, Any], Booked]) -> Bend:
    return {f"fencepost.core.{name}.inside.booked": rule for name in ("decide", "evolve")}


@bent(0)
def what_a_charge_does_not_know_is_nothing() -> Bend:
    return booking(lambda usage, held: booked(replace(usage, unknown=()), held))


@bent(0)
def a_charge_leaves_its_hold_as_it_was() -> Bend:
    return booking(lambda usage, held: Booked(booked(usage, held).charged, {}))


@bent(0)
def a_yield_without_a_checkpoint_is_credited() -> Bend:
    def settled(**fields: Any) -> Any:
        return HoldSettled(**{**fields, "credited": {"attempts": 1}})

    return {
        "fencepost.core.decide.wait.HoldSettled": settled,
        "fencepost.core.evolve.attempt._may_credit": lambda *_: True,
    }


@bent(43)
def one_child_is_enough_to_end_a_wait() -> Bend:
    def ended(batch: Batch, parent: OrderState) -> bool:
        names = () if parent.wait is None else parent.wait.orders
        return any(ending.order_of(batch, name).state in ENDED for name in names)

    return {
        "fencepost.core.decide.ending.children_ended": ended,
        "fencepost.core.evolve.plan._require_end_of_wait": lambda *_: None,
    }


@bent(0)
def children_that_have_ended_wake_nobody() -> Bend:
    return {"fencepost.core.decide.ending.children_ended": lambda *_: False}


@bent(0)
def children_live_on_without_their_parent() -> Bend:
    hear = ending._hear

    def deaf(batch: Batch, edge: Any, outcome: str) -> bool:
        return edge.group != CHILD and hear(batch, edge, outcome)

    return {"fencepost.core.decide.ending._hear": deaf}


@bent(0)
def a_wait_shows_another_reason() -> Bend:
    names = ("decide.wait", "evolve.inside")
    return {f"fencepost.core.{name}.reason_of": lambda _: "waiting_for_time" for name in names}


@bent(0)
def a_child_is_never_found_again() -> Bend:
    return {"fencepost.core.decide.inside._is_same_work": lambda *_: False}


@bent(0)
def any_work_under_its_name_passes_for_a_child() -> Bend:
    return {"fencepost.core.decide.inside._is_same_work": lambda *_: True}


LIES = (ALTERATIONS, BENDS)
"""All of them, those of `auditor_lies` included."""
