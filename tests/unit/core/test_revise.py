"""Cancels, deadlines, retries and ceilings: W18, W19; decisions 4, 10 and 16."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from fencepost.core import commands as c
from fencepost.core.limits import Limits
from fencepost.core.machines import ENDED
from fencepost.core.records.plan import PlanCancelAdvanced, PlanCancelRequested, WorkOrderMoved
from fencepost.core.state import SCOPE
from tests.support.states import BUILDERS, world_in
from tests.support.world import SECOND, World, draft, group, plan_of

GOING_ON = [name for name in BUILDERS if name.split("/", maxsplit=1)[0] not in ENDED]


@pytest.mark.parametrize("state", GOING_ON)
def test_w19_a_cancel_reaches_every_state_that_goes_on_and_frees_what_was_held(state: str) -> None:
    world = world_in(state)
    before = world.order("a")
    assert world.ok(c.CancelOrder(order=before.order))["state"] == "cancelled"
    after = world.order("a")
    assert (after.state, after.reason) == ("cancelled", "cancelled_by_request")
    held = {"time_us": 30 * SECOND} if state.startswith("active") else {}
    assert after.account.held == held, "an attempt whose end is not proved keeps its time and nothing else"
    assert world.order("after").state == "dependency_failed" and world.order("cleanup").state == "ready"
    if before.attempt:
        expected = {
            "result_pending": "rejected_stale",
            "conflict": "rejected_conflict",
            "retry_wait": "retryable_failed",
            "waiting": "yielded",
        }
        attempt = world.attempt_of(after)
        assert attempt.state == expected.get(before.state, "cancelled_no_effect")
    world.advance(40 * SECOND)
    assert not [row for row in world.due("retry", 2**62, 9, None, None) if row.subject == before.order]
    assert world.refused(c.EndBackoff(order=after.order, expected=after.version)) == "order_state"
    world.check()


def test_w19_a_running_attempt_passes_through_the_request() -> None:
    world = world_in("active/running")
    world.ok(c.CancelOrder(order=world.order("a").order))
    moves = [f.body for f in world.facts if isinstance(f.body, WorkOrderMoved) and f.subject == world.order("a").order]
    assert [(m.origin, m.target) for m in moves[-2:]] == [
        ("active", "cancellation_requested"),
        ("cancellation_requested", "cancelled"),
    ]


def test_w19_a_verified_result_that_is_cancelled_still_pays_its_verifier() -> None:
    world = world_in("result_pending/verified")
    world.ok(c.CancelOrder(order=world.order("a").order))
    assert world.order("a").account.charged == {"attempts": 1, "time_us": 2 * SECOND}


def test_g2_a_cancel_after_an_applied_effect_ends_as_failed() -> None:
    for state in ("active/running", "result_pending"):
        world = world_in(state)
        order = replace(world.order("a"), effect_applied=True)
        for fold in (world.live, world.replayed):
            fold.values[order.order] = order
        world.ok(c.CancelOrder(order=order.order))
        assert (world.order("a").state, world.order("a").reason) == ("failed", "cancelled_after_effect")


def test_w19_a_plans_cancel_is_carried_out_in_pages_and_stops_new_work_at_once() -> None:
    world = World(Limits(cancel_per_batch=3))
    plan = world.submit(*(draft(f"t{n}") for n in range(8)), draft("last", "t7"))
    running = world.activate("t1")
    world.finish("t0")
    first = world.ok(c.CancelPlan(plan=plan, note="enough"))
    assert first == {"plan": plan, "open": 6, "done": False}
    assert world.refused(c.ReserveNext(worker=world.worker(), count=9)) == "nothing_ready"
    assert world.ok(c.CancelPlan(plan=plan)) == first, "asked again, it tells where it is"
    assert world.ok(world.renewal(running))["lost"][0]["code"] == "stale_fence"
    pages = list(iter(lambda: world.ok(c.AdvanceCancel(plan=plan))["done"], True))
    assert len(pages) == 2, "nine orders in pages of three, and an empty page that closes it"
    assert world.live.values[plan].open == 0 and world.order("t0").state == "applied"
    cancelled = [world.order(name) for name in (*(f"t{n}" for n in range(1, 8)), "last")]
    assert {(order.state, order.reason) for order in cancelled} == {("cancelled", "plan_cancelled")}
    assert world.ok(c.AdvanceCancel(plan=plan)) == {"plan": plan, "open": 0, "done": True}
    assert len([f for f in world.facts if isinstance(f.body, PlanCancelRequested)]) == 1
    positions = [f.body.position for f in world.facts if isinstance(f.body, PlanCancelAdvanced)]
    assert positions == sorted(positions)
    world.check()


def test_w19_the_deadline_of_a_plan_stops_and_cancels_and_settlement_goes_on() -> None:
    world = World()
    plan = world.submit(draft("a"), draft("b"), deadline_us=5 * SECOND)
    known = world.activate("a")
    state = world.live.values[plan]
    assert [row.subject for row in world.due("deadline", state.deadline_us, 9, None, None)] == [plan]
    assert world.refused(c.EnforceDeadline(plan=plan, expected=state.version)) == "not_due"
    world.advance(5 * SECOND)
    order = world.order("b")
    reserve = c.Reserve(order=order.order, expected=order.version, worker=world.worker())
    assert world.refused(reserve) == "deadline_passed", "also before anybody has enforced it"
    world.ok(c.EnforceDeadline(plan=plan, expected=world.live.values[plan].version))
    assert [world.order(task).reason for task in "ab"] == ["deadline_passed"] * 2
    assert world.refused(c.EnforceDeadline(plan=plan, expected=world.live.values[plan].version)) == "plan_ended"
    assert world.due("deadline", 2**62, 9, None, None) == []
    assert world.refused(world.result(known, duration_us=2 * SECOND)) == "rejected_stale"
    assert world.live.values[plan].account.charged == {"attempts": 1, "time_us": 2 * SECOND}
    assert world.refused(c.RetryOrder(order=order.order)) == "deadline_passed"
    world.check()


def test_c1_a_name_is_free_for_the_next_plan_once_its_plan_has_ended() -> None:
    world = World()
    world.submit(draft("a"))
    assert world.refused(plan_of(draft("b"))) == "plan_changed"
    world.ok(c.CancelPlan(plan=world.live.values["name:plan"].open))
    assert world.live.values["name:plan"].open is None
    assert world.ok(plan_of(draft("b")))["fresh"]


def test_retry_makes_a_backoff_due() -> None:
    world = world_in("retry_wait")
    order = world.order("a")
    assert world.ok(c.RetryOrder(order=order.order)) == {"order": order.order, "replacements": []}
    assert (world.order("a").state, world.order("a").reason) == ("ready", "retry_requested")
    assert world.order("a").failures == 1, "it stays a failure"


def test_retry_replaces_the_whole_closure_with_its_handed_files_and_nothing_else() -> None:
    world = World()
    handed = (c.FromDraft(task="a", files=("x",)),)
    world.submit(
        draft("a", outputs=("x",)),
        draft("b", "a", handed=handed),
        draft("c", "b", group("optional", "other")),
        draft("other"),
        draft("apart", group("optional", "a")),
    )
    world.fail("a")
    world.finish("other")
    old = {task: world.order(task) for task in ("a", "b", "c", "other", "apart")}
    told = world.ok(c.RetryOrder(order=old["a"].order, with_dependents=True))
    assert [made["replaces"] for made in told["replacements"]] == [old[task].order for task in "abc"]
    spec: Any = world.body(world.order("b").spec_seq)
    assert spec.inputs.orders[0].order == world.order("a").order == spec.groups[0].members[0].order
    assert world.order("apart").order == old["apart"].order
    assert [world.order(task).position for task in "abc"] == [5, 6, 7], "behind every order that the plan has"
    assert [world.order(task).state for task in "abc"] == ["ready", "blocked_dependency", "blocked_dependency"]
    for task in "abc":
        world.finish(task, artifacts=()) if task != "b" else world.finish("b")
    assert world.live.values[world.order("a").plan].lost == 0
    world.check()


def test_c1_a_retry_opens_its_plan_and_the_name_again() -> None:
    world = World()
    plan = world.submit(draft("a"))
    world.fail("a")
    assert world.live.values["name:plan"].open is None and world.live.values[plan].ended_us is not None
    world.ok(c.RetryOrder(order=world.order("a").order))
    assert world.live.values["name:plan"].open == plan and world.live.values[plan].ended_us is None
    assert world.refused(plan_of(draft("b"))) == "plan_changed"
    world.check()


def test_retry_of_one_dependent_alone_uses_the_newest_of_what_it_needs() -> None:
    world = World()
    world.submit(draft("a"), draft("b", "a"))
    world.fail("a")
    old = world.order("b")
    assert world.refused(c.RetryOrder(order=old.order)) == "retry_refused"
    world.ok(c.RetryOrder(order=world.order("a").order))
    world.ok(c.RetryOrder(order=old.order))
    assert world.order("b").state == "blocked_dependency"
    world.finish("a")
    assert world.order("b").state == "ready"
    world.check()


def test_a_retry_with_dependents_finds_those_that_waited_for_an_order_that_it_replaced() -> None:
    """The edges of a dependent name the order that was there when it was written, not the replacements since."""
    world = World()
    world.submit(draft("a"), draft("b", "a"), draft("c", "b"))
    world.fail("a")
    world.ok(c.RetryOrder(order=world.order("a").order))
    world.fail("a")
    again = world.order("a")
    assert again.replaces is not None
    told = world.ok(c.RetryOrder(order=again.order, with_dependents=True))
    assert len(told["replacements"]) == 3
    for task in "abc":
        world.finish(task)
    assert {world.order(task).state for task in "abc"} == {"applied"}
    world.check()


def test_case_01_a_cancelled_attempt_whose_holder_is_proved_gone_is_charged_until_then() -> None:
    world = World()
    world.submit(draft("a"))
    known = world.activate("a")
    world.advance(3 * SECOND)
    world.ok(c.CancelOrder(order=world.order("a").order))
    world.advance(2 * SECOND)
    proof = c.ProveHolderGone(
        attempt=known.attempt,
        fence=known.fence,
        host=known.host,
        boot_id=known.boot_id,
        basis="locks_free",
        evidence="free",
    )
    world.ok(proof)
    hold = world.live.values[known.hold]
    assert (hold.state, hold.basis, hold.charged["time_us"]) == ("settled", "holder_gone", 5 * SECOND)
    assert world.refused(proof) == "attempt_state", "a hold ends once"
    world.check()


def test_case_23_a_result_whose_processes_may_still_run_is_never_accepted_nor_followed_by_itself() -> None:
    world = World()
    world.submit(draft("a", attempts=3, retry=True), draft("b", "a"))
    known = world.activate("a")
    world.ok(world.result(known, tree_empty=False))
    world.ok(c.ApplyResult(attempt=known.attempt))
    assert (world.order("a").state, world.order("a").reason) == ("failed", "containment_lost")
    assert world.order("b").state == "dependency_failed"
    world.check()


def test_w18_a_ceiling_is_replaced_and_counts_from_the_next_hold_on() -> None:
    world = World()
    plan = world.submit(draft("a", attempts=2, retry=True))
    world.fail("a")
    state = world.live.values[plan]
    world.ok(c.SetBudget(account=plan, ceilings={"attempts": 1}, expected=state.version))
    world.ok(c.RetryOrder(order=world.order("a").order))
    order = world.order("a")
    assert world.refused(c.Reserve(order=order.order, expected=order.version, worker=world.worker())) == (
        "budget_exhausted"
    )
    assert world.live.values[plan].account.ceiling == {"attempts": 1}
    world.ok(c.SetBudget(account=SCOPE, ceilings={"attempts": 1}))
    assert world.refused(c.SetBudget(account=SCOPE, ceilings={"attempts": 0})) == "out_of_range"
    assert world.refused(c.SetBudget(account=SCOPE, ceilings={"pears": 1})) == "out_of_range"
