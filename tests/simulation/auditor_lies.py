"""Lies that the auditor must find: what it is shown is altered, or one rule of the kernel is bent while it runs.

An alteration returns True once it has altered something. A bend replaces functions of the kernel, by dotted name; all
of them leave the kernel at peace with itself, so that nobody but the auditor can notice.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from fencepost.core import index
from fencepost.core.decide import ending, finish
from fencepost.core.decide.batch import Batch
from fencepost.core.records.budget import HoldSettled
from fencepost.core.state import ClockState, GroupState, HoldState, PlanState
from fencepost.kernel.group import Group
from fencepost.testing.simulator.auditor import Reply
from tests.simulation.auditor_drive import Seen

Alteration = Callable[[Seen], bool]
Bend = dict[str, Any]

ALTERATIONS: dict[str, Alteration] = {}
BENDS: dict[str, tuple[int, Callable[[], Bend]]] = {}
"""Name -> (a seed that meets it, the functions to put in place by dotted name)."""


def altered(step: Alteration) -> Alteration:
    ALTERATIONS[step.__name__] = step
    return step


def bent(seed: int) -> Callable[[Callable[[], Bend]], Callable[[], Bend]]:
    def register(make: Callable[[], Bend]) -> Callable[[], Bend]:
        BENDS[make.__name__] = seed, make
        return make

    return register


def body_of(seen: Seen, kind: str) -> dict[str, Any] | None:
    return next((record["body"] for record in seen.records if record["kind"] == kind), None)


def plus_one(seen: Seen, kind: str, field: str, dimension: str = "") -> bool:
    body = body_of(seen, kind)
    if body is None or (dimension and dimension not in body[field]):
        return False
    if dimension:
        body[field][dimension] += 1
    else:
        body[field] += 1
    return True


def another(seen: Seen, kind: str, field: str, known: Any, other: Any) -> bool:
    body = body_of(seen, kind)
    if body is None or body.get(field) != known:
        return False
    body[field] = other
    return True


@altered
def a_link_is_changed(seen: Seen) -> bool:
    if not seen.records:
        return False
    seen.records[-1]["prev"] = "sha256:" + "0" * 64
    return True


@altered
def a_record_is_dropped(seen: Seen) -> bool:
    return len(seen.records) > 2 and bool(seen.records.pop(1))


@altered
def a_record_is_shown_twice(seen: Seen) -> bool:
    if seen.records:
        seen.records.append(seen.records[-1])
    return bool(seen.records)


@altered
def two_records_are_swapped(seen: Seen) -> bool:
    if len(seen.records) < 3:
        return False
    seen.records[1], seen.records[2] = seen.records[2], seen.records[1]
    return True


@altered
def a_version_is_passed_over(seen: Seen) -> bool:
    if seen.records:
        seen.records[-1]["subject_version"] += 1
    return bool(seen.records)


@altered
def a_batch_says_that_another_asked(seen: Seen) -> bool:
    if seen.records:
        seen.records[0]["command"]["principal"] = "principal_" + "0" * 32
    return bool(seen.records)


@altered
def a_batch_names_an_older_observation(seen: Seen) -> bool:
    if seen.records and seen.records[0]["command"].get("clock"):
        seen.records[0]["command"]["clock"] -= 1
        return True
    return False


@altered
def a_hold_is_charged_more_than_was_used(seen: Seen) -> bool:
    return plus_one(seen, "hold_settled", "charged", "time_us")


@altered
def a_hold_is_larger_than_its_share(seen: Seen) -> bool:
    return plus_one(seen, "attempt_reservation", "amounts", "time_us")


@altered
def a_fence_is_passed_over(seen: Seen) -> bool:
    return plus_one(seen, "attempt_reservation", "fence")


@altered
def a_lease_lasts_longer(seen: Seen) -> bool:
    return plus_one(seen, "attempt_descriptor", "lease_until_us")


@altered
def a_renewal_lasts_longer(seen: Seen) -> bool:
    return plus_one(seen, "lease_renewal", "until_us")


@altered
def logical_time_advances_further(seen: Seen) -> bool:
    return body_of(seen, "scope_opened") is None and plus_one(seen, "logical_clock_observation", "logical_us")


@altered
def a_backoff_is_lengthened_past_its_jitter(seen: Seen) -> bool:
    body = body_of(seen, "result_application")
    if body is None or "backoff" not in body:
        return False
    body["backoff"]["jitter_us"] = body["backoff"]["delay_us"] + 1
    body["backoff"]["due_us"] += body["backoff"]["delay_us"] + 1
    return True


@altered
def a_failed_result_is_applied(seen: Seen) -> bool:
    return another(seen, "result_application", "decision", "failed", "applied")


@altered
def an_order_waits_that_could_run(seen: Seen) -> bool:
    return another(seen, "work_order_moved", "target", "ready", "blocked_dependency")


@altered
def an_order_ends_for_another_reason(seen: Seen) -> bool:
    return another(seen, "work_order_moved", "reason", "cancelled_by_request", "plan_cancelled")


@altered
def a_lost_member_satisfies_its_group(seen: Seen) -> bool:
    return another(seen, "dependency_observed", "satisfies", False, True)


@altered
def an_attempt_id_is_used_again(seen: Seen) -> bool:
    for record in seen.records:
        if record["kind"] == "attempt_reservation":
            record["subject"] = record["body"]["order"]
            return True
    return False


@altered
def a_proof_names_another_deadline(seen: Seen) -> bool:
    return plus_one(seen, "expiry_eligibility", "deadline_us")


@altered
def a_refusal_is_silent(seen: Seen) -> bool:
    if seen.reply.refusal != "stale_fence":
        return False
    seen.reply = Reply("", {}, True)
    return True


@altered
def a_cancel_loses_its_note(seen: Seen) -> bool:
    body = body_of(seen, "work_order_moved")
    return body is not None and bool(body.pop("note", ""))


@altered
def a_refusal_has_another_code(seen: Seen) -> bool:
    if seen.reply.refusal != "order_state":
        return False
    seen.reply = seen.reply._replace(refusal="version_moved")
    return True


@altered
def a_replay_says_that_it_is_fresh(seen: Seen) -> bool:
    if seen.reply.fresh:
        return False
    seen.reply = seen.reply._replace(fresh=True)
    return True


@altered
def a_replay_gets_another_answer(seen: Seen) -> bool:
    if seen.reply.fresh or seen.reply.refusal:
        return False
    seen.reply = seen.reply._replace(result={**seen.reply.result, "more": 1})
    return True


@altered
def a_caller_is_told_of_another_fence(seen: Seen) -> bool:
    made = seen.reply.result.get("reservations")
    if not made:
        return False
    seen.reply = seen.reply._replace(result={"reservations": [{**made[0], "fence": made[0]["fence"] + 1}, *made[1:]]})
    return True


@bent(31)
def a_lapsed_lease_is_renewed() -> Bend:
    def never(_: ClockState, __: int) -> bool:
        return False

    return {"fencepost.core.decide.dispatch.has_lapsed": never, "fencepost.core.evolve.attempt.has_lapsed": never}


@bent(0)
def a_grace_is_forgotten() -> Bend:
    def as_written(_: ClockState, deadline_us: int) -> int:
        return deadline_us

    return {
        "fencepost.core.decide.clock.effective_end_us": as_written,
        "fencepost.core.evolve.authority.effective_end_us": as_written,
        "fencepost.core.deadlines.effective_end_us": as_written,
    }


@bent(0)
def versions_are_not_compared() -> Bend:
    return {"fencepost.core.decide.ending.version_refusal": lambda *_: None}


@bent(0)
def a_lost_attempt_costs_no_time() -> Bend:
    def settle(batch: Batch, attempt: Any, basis: Any, _: int) -> None:
        batch.emit(attempt.hold, HoldSettled(charged={}, basis=basis))

    return {"fencepost.core.decide.recover._settle_unreported": settle}


@bent(13)
def the_verifier_is_not_paid() -> Bend:
    settle = ending.settle_from_result

    def without(batch: Batch, attempt: Any, facts: Any) -> None:
        settle(batch, replace(attempt, verification_seq=0), facts)

    return {"fencepost.core.decide.ending.settle_from_result": without}


@bent(11)
def unknown_usage_is_zero() -> Bend:
    used = ending.used

    def as_zero(batch: Batch, usages: Any, hold: HoldState) -> Any:
        return used(batch, [replace(usage, unknown=()) for usage in usages], hold)

    return {"fencepost.core.decide.ending.used": as_zero}


@bent(31)
def a_backoff_is_not_doubled() -> Bend:
    decision = finish._decision

    def flat(batch: Batch, order: Any, verdict: Any) -> Any:
        return decision(batch, replace(order, failures=0), verdict)

    return {"fencepost.core.decide.finish._decision": flat}


@bent(13)
def a_failure_is_never_retried() -> Bend:
    return {"fencepost.core.decide.finish.RETRYABLE": frozenset()}


@bent(0)
def a_priority_has_no_head_start() -> Bend:
    return {"fencepost.core.index.BONUS_US": dict.fromkeys(index.BONUS_US, 0)}


@bent(1)
def an_optional_group_can_fail() -> Bend:
    def verdict(groups: tuple[GroupState, ...]) -> str:
        found = {
            "fails"
            if group.unsatisfied
            else "holds"
            if group.satisfied == group.total or (group.kind == "alternative" and group.satisfied)
            else "open"
            for group in groups
        }
        return "fails" if "fails" in found else "open" if "open" in found else "holds"

    names = ("decide.ending", "decide.claim", "decide.dispatch", "evolve.edit")
    return {f"fencepost.core.{name}.verdict_of_all": verdict for name in names}


@bent(1)
def a_deadline_of_a_plan_stops_nobody() -> Bend:
    over = ending.plan_over

    def later(batch: Batch, plan: PlanState) -> Any:
        return over(batch, replace(plan, deadline_us=None))

    return {"fencepost.core.decide.ending.plan_over": later}


@bent(0)
def late_facts_are_not_kept() -> Bend:
    names = ("dispatch", "finish")
    return {f"fencepost.core.decide.{name}.remembers_more": lambda *_: False for name in names}


@bent(0)
def a_drained_attempt_is_not_credited() -> Bend:
    def settled(**fields: Any) -> Any:
        return HoldSettled(**{key: value for key, value in fields.items() if key != "credited"})

    return {"fencepost.core.decide.finish.HoldSettled": settled}


@bent(38)
def dependents_are_left_out_of_a_retry() -> Bend:
    return {"fencepost.core.decide.retry._closure": lambda _, order: [order.order]}


@bent(13)
def a_need_that_still_fails_is_retried_over() -> Bend:
    return {"fencepost.core.decide.retry._still_fails": lambda *_: None}


@bent(1)
def command_keys_are_not_kept() -> Bend:
    take = Group.take

    def forgetting(self: Group, ticket: Any) -> bool:
        taken = take(self, ticket)
        self._new_rows.clear()
        return taken

    return {"fencepost.kernel.group.Group.take": forgetting}


@bent(0)
def a_grant_is_good_for_everything() -> Bend:
    return {"fencepost.core.decide.authority.objection": lambda *_, **__: None}


@bent(6)
def a_cancel_forgets_what_runs() -> Bend:
    return {"fencepost.core.decide.ending.LIVE": frozenset({"leased"})}


@bent(23)
def a_lost_order_is_ready_without_a_budget() -> Bend:
    return {"fencepost.core.decide.ending.exhausted_on_path": lambda *_: None}


@bent(10)
def a_wrong_clock_is_believed() -> Bend:
    return {"fencepost.core.decide.clock.abs": lambda _: 0}
