"""What a running program may say: checkpoints, files, charges and children; and what its lost fence leaves of it."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from fencepost.core import commands as c
from fencepost.core.charges import booked
from fencepost.core.decide import Batch
from fencepost.core.limits import Limits
from fencepost.core.machines import CorruptHistory
from fencepost.core.records.attempt import (
    AttemptArtifact,
    AttemptDescriptor,
    AttemptYielded,
    CheckpointEnvelope,
    LateRecord,
)
from fencepost.core.records.budget import HoldSettled, UsageCharged
from fencepost.core.records.common import LogRef, Usage
from fencepost.core.records.plan import AnswerRecorded, Wait, WorkOrderMoved, WorkOrderSpec, WorkOrderWaits
from fencepost.core.state import AttemptState, HoldState, OrderState
from fencepost.core.strictjson import INT_MAX
from fencepost.core.views import account_document, hold_document
from tests.support.states import TASK, gone, world_in
from tests.support.world import DIGEST, SECOND, World, artifact, draft, group, plan_of, used

OTHER = "sha256:" + "7" * 64
USD = "money_micros:USD"


def attempt(world: World, task: str = TASK) -> AttemptState:
    return world.attempt_of(world.order(task))


def code(world: World, command: Any) -> str:
    refused = world.refused(command)
    world.check()
    return refused


def budgeted(**ceilings: int) -> World:
    """A plan of one running order with ceilings, whose attempts hold a third of each."""
    world = World()
    world.submit(draft(TASK, ceilings={"attempts": 3, **ceilings}))
    world.ok(world.event(world.activate(TASK)))
    return world


def hold(world: World, task: str = TASK) -> HoldState:
    return world.hold_of(world.order(task))


# Checkpoints


def test_w6_a_new_attempt_points_to_the_last_accepted_checkpoint_and_the_old_one_never_opens_again() -> None:
    world = world_in("active/running")
    first = attempt(world)
    saved = world.ok(world.checkpoint(first))
    assert (saved["number"], world.order(TASK).checkpoints["blob/1"].payload) == (1, DIGEST)
    gone_command = c.ProveHolderGone(
        attempt=first.attempt,
        fence=first.fence,
        host=first.host,
        boot_id=first.boot_id,
        basis="locks_free",
        evidence="free",
    )
    world.ok(gone_command)
    second = world.activate(TASK)
    assert descriptor(world, second).checkpoint == saved["checkpoint"]
    assert code(world, world.checkpoint(first)) == "rejected_stale"
    assert world.live.values[first.attempt].state == "cancelled_no_effect"
    assert world.order(TASK).checkpoint_number == 1
    assert world.ok(world.checkpoint(second))["number"] == 2


def test_w6_one_sequence_runs_through_all_kinds_and_the_last_of_each_is_known() -> None:
    world = world_in("active/running")
    world.ok(world.checkpoint(attempt(world)))
    world.ok(world.checkpoint(attempt(world), kind="steps/1", payload=OTHER))
    order = world.order(TASK)
    assert {kind: saved.number for kind, saved in order.checkpoints.items()} == {"blob/1": 1, "steps/1": 2}
    assert order.checkpoint == order.checkpoints["steps/1"].envelope == attempt(world).checkpoint
    assert code(world, world.checkpoint(attempt(world), builds_on=1)) == "checkpoint_moved"
    assert code(world, world.checkpoint(attempt(world), builds_on=3)) == "checkpoint_moved"


def descriptor(world: World, known: AttemptState) -> AttemptDescriptor:
    body = world.body(known.descriptor_seq)
    assert isinstance(body, AttemptDescriptor)
    return body


def saved_and_failed(world: World, **more: Any) -> OrderState:
    world.submit(draft(TASK, attempts=1, retry=None, **more))
    world.ok(world.event(world.activate(TASK)))
    world.ok(world.checkpoint(attempt(world)))
    world.ok(world.checkpoint(attempt(world), kind="steps/1", payload=OTHER))
    world.ok(world.result(attempt(world), outcome="failed", exit_code=1, failure="executor"))
    world.ok(c.ApplyResult(attempt=attempt(world).attempt))
    return world.order(TASK)


def test_w6_a_replacement_goes_on_from_what_is_paid_for() -> None:
    world = World()
    old = saved_and_failed(world)
    made = world.ok(c.RetryOrder(order=old.order))["replacements"]
    new = world.order(TASK)
    assert made == [{"order": new.order, "replaces": old.order, "checkpoints": 2}]
    assert (new.checkpoint_number, new.checkpoint, new.checkpoints) == (2, old.checkpoint, old.checkpoints)
    second = world.activate(TASK)
    assert descriptor(world, second).checkpoint == old.checkpoint
    world.ok(world.event(second))
    assert code(world, world.checkpoint(attempt(world), builds_on=0)) == "checkpoint_moved"
    assert world.ok(world.checkpoint(attempt(world), builds_on=2))["number"] == 3
    assert world.live.values[old.order].checkpoint_number == 2, "what was replaced stays as it is"
    world.check()


def test_w6_a_retry_from_the_start_leaves_checkpoints_behind() -> None:
    world = World()
    old = saved_and_failed(world)
    (made,) = world.ok(c.RetryOrder(order=old.order, from_start=True))["replacements"]
    assert (made["checkpoints"], world.order(TASK).checkpoint, world.order(TASK).checkpoints) == (0, "", {})
    again = world.activate(TASK)
    assert descriptor(world, again).checkpoint is None
    world.check()


def test_w6_what_was_saved_without_an_input_is_left_behind_once_it_is_there() -> None:
    world = World()
    any_end = group("optional", "a", outcomes=("applied", "failed"))
    handed = (c.FromDraft(task="a", files=("x",)),)
    world.submit(
        draft("a", attempts=1, retry=None, outputs=("x",)), draft("b", any_end, attempts=1, retry=None, handed=handed)
    )
    world.fail("a")
    world.ok(world.event(world.activate("b")))
    world.ok(world.checkpoint(attempt(world, "b")))
    world.ok(world.result(attempt(world, "b"), outcome="failed", exit_code=1, failure="executor"))
    world.ok(c.ApplyResult(attempt=attempt(world, "b").attempt))
    world.ok(c.RetryOrder(order=world.order("a").order))
    world.finish("a")
    (made,) = world.ok(c.RetryOrder(order=world.order("b").order))["replacements"]
    assert (made["checkpoints"], world.order("b").checkpoint) == (0, "")
    world.check()


def test_w6_a_backoff_has_no_other_start_than_what_was_saved() -> None:
    world = world_in("retry_wait")
    assert code(world, c.RetryOrder(order=world.order("a").order, from_start=True)) == "retry_refused"
    assert world.order("a").state == "retry_wait"


def test_w18_a_replacement_has_the_ceilings_that_a_person_has_set() -> None:
    world = World()
    old = saved_and_failed(world)
    raised = {**old.account.ceiling, "attempts": 7}
    world.ok(c.SetBudget(account=old.order, ceilings=raised))
    world.ok(c.RetryOrder(order=old.order))
    assert world.order(TASK).account.ceiling == raised
    assert world.order(TASK).contract == old.contract, "the work is the same"
    world.check()


def test_w6_a_replacement_goes_on_from_its_own_order_s_checkpoint_only() -> None:
    world = World()
    old = saved_and_failed(world)
    body = body_of(world, c.RetryOrder(order=old.order), WorkOrderSpec)
    assert not corrupt(world, body.order, body)
    for changes in ({"resumes": OTHER}, {"replaces": None}):
        assert corrupt(world, body.order, replace(body, **changes)), changes


def test_w17_a_late_checkpoint_leaves_one_rejected_record_and_moves_nothing() -> None:
    world = world_in("cancelled/live")
    before = world.order(TASK)
    late = world.checkpoint(attempt(world))
    assert code(world, late) == "rejected_stale"
    assert code(world, late) == "rejected_stale", "a repeat is told the same and leaves nothing"
    kept = [fact.body for fact in world.facts if isinstance(fact.body, LateRecord)]
    assert [record.what for record in kept] == ["checkpoint"]
    assert world.order(TASK) == before


@pytest.mark.parametrize(
    ("changes", "limits"),
    [
        ({"bytes": 11}, {"checkpoint_bytes_max": 10}),
        ({"artifacts": ()}, {"checkpoints_per_order_max": 0}),
    ],
)
def test_w6_checkpoints_are_bounded(changes: dict[str, Any], limits: dict[str, int]) -> None:
    world = world_in("active/running")
    world.limits = Limits(**limits)
    assert code(world, world.checkpoint(attempt(world), **changes)) == "too_large"
    world.limits = Limits(**{name: value + 1 for name, value in limits.items()})
    assert code(world, world.checkpoint(attempt(world), **changes)) == ""


def test_w5_what_a_program_says_it_says_under_its_own_fence() -> None:
    world = world_in("active/running")
    live = attempt(world)
    other = live.fence + 1
    assert code(world, world.checkpoint(live, fence=other)) == "stale_fence"
    assert code(world, world.kept(live, fence=other)) == "stale_fence"
    assert code(world, world.child(live, draft("part"), fence=other)) == "stale_fence"
    assert code(world, world.yielding(live, fence=other, question="go")) == "stale_fence"
    assert (world.order(TASK).checkpoint_number, world.order(TASK).children) == (0, {})


def test_w5_what_a_program_says_binds_its_own_spec_and_input_set() -> None:
    world = world_in("active/running")
    for make in (world.checkpoint, world.kept):
        assert code(world, make(attempt(world), spec=OTHER)) == "spec_mismatch"
        assert code(world, make(attempt(world), input_set=OTHER)) == "spec_mismatch"
        assert code(world, replace(make(attempt(world)), attempt="attempt_" + "9" * 32)) == "not_found"
    envelope = world.ok(world.checkpoint(attempt(world)))
    body = next(fact.body for fact in world.facts if isinstance(fact.body, CheckpointEnvelope))
    assert envelope["number"] == body.number == 1 and body.policy_context.startswith("sha256:")


def test_w5_files_are_kept_as_evidence_within_their_bound() -> None:
    world = world_in("active/running")
    world.limits = Limits(artifacts_per_attempt_max=1)
    world.ok(world.kept(attempt(world)))
    assert code(world, world.kept(attempt(world), "other.txt")) == "too_large"
    assert attempt(world).artifacts == 1 and world.order(TASK).state == "active"


def test_w5_a_heartbeat_says_what_it_is_at_and_a_silent_one_leaves_that_standing() -> None:
    world = world_in("active/running")
    world.ok(world.event(attempt(world), "heartbeat_observed", note="page 7 of 9"))
    world.advance(SECOND)
    world.ok(world.event(attempt(world), "heartbeat_observed"))
    assert attempt(world).note == "page 7 of 9"
    assert attempt(world).heard_us == world.now_us
    world.ok(world.event(attempt(world), "heartbeat_observed", note="x" * 4_096))
    assert len(attempt(world).note.encode()) <= 256


# Charges


def test_w18_a_charge_uses_up_the_hold_first_and_the_rest_is_overflow() -> None:
    world = budgeted(calls=9, tokens_input=30)
    assert hold(world).held == {"time_us": 30 * SECOND, "calls": 3, "tokens_input": 10}
    told = world.ok(world.charge(attempt(world), "r-1", calls=2))
    assert (told["left"], told["over"], told["duplicate"]) == ({"calls": 1, "tokens_input": 10}, {}, False)
    told = world.ok(world.charge(attempt(world), "r-2", calls=5, tokens_input=10))
    assert (told["left"], told["over"]) == ({}, {"calls": 4})
    assert hold(world).held == {"time_us": 30 * SECOND}
    assert world.order(TASK).account.charged == {"attempts": 1, "calls": 7, "tokens_input": 10}
    world.check()


def test_w18_a_receipt_is_booked_once_in_the_whole_scope_whoever_names_it_again() -> None:
    world = World()
    world.submit(draft(TASK), draft("b"))
    for task in (TASK, "b"):
        world.ok(world.event(world.activate(task)))
    assert not world.ok(world.charge(attempt(world), "r-1", calls=2))["duplicate"]
    assert world.ok(world.charge(attempt(world), "r-1", calls=2))["duplicate"]
    assert world.ok(world.charge(attempt(world, "b"), "r-1", calls=2))["duplicate"]
    assert code(world, world.charge(attempt(world, "b"), "r-1", calls=3)) == "receipt_differs"
    assert not world.ok(world.charge(attempt(world, "b"), "r-1", provider="shop/other", calls=2))["duplicate"]
    assert world.order(TASK).account.charged["calls"] == 2 and world.order("b").account.charged["calls"] == 2
    world.check()


def test_w18_a_result_does_not_pay_again_what_was_charged_and_a_charge_not_what_a_result_paid() -> None:
    world = budgeted(calls=9)
    mine = attempt(world)
    world.ok(world.charge(mine, "r-1", calls=2))
    usage = (used(mine, time_us=SECOND), Usage(receipt="r-1", provider="shop", amounts={"calls": 2}))
    also = Usage(receipt="r-2", provider="shop", amounts={"calls": 1})
    world.ok(world.result(mine, usage=(*usage, also)))
    world.ok(c.ApplyResult(attempt=mine.attempt))
    assert world.order(TASK).account.charged["calls"] == 3
    assert code(world, world.charge(mine, "r-2", calls=1)) == "rejected_stale"
    assert world.order(TASK).account.charged["calls"] == 3
    assert hold(world).state == "settled" and not world.order(TASK).account.held


@pytest.mark.parametrize(
    ("state", "hold_state"),
    [
        ("cancelled/live", "unsettled"),
        ("ready/expired", "settled"),
        ("applied", "settled"),
        ("result_pending", "held"),
    ],
)
def test_w17_a_charge_under_a_lost_fence_is_refused_and_booked_all_the_same(state: str, hold_state: str) -> None:
    world = world_in(state)
    mine = attempt(world)
    assert world.live.values[mine.hold].state == hold_state
    held = dict(world.live.values[mine.hold].held)
    before = world.order(TASK).account.charged.get("calls", 0)
    charge = world.charge(mine, "late", calls=4)
    assert code(world, charge) == "rejected_stale"
    assert world.order(TASK).account.charged["calls"] == before + 4
    assert code(world, charge) == "rejected_stale", "told the same again"
    assert world.order(TASK).account.charged["calls"] == before + 4, "and paid once"
    assert world.live.values[mine.hold].held == held, "its time is settled by its own facts"
    body = next(fact.body for fact in reversed(world.facts) if isinstance(fact.body, UsageCharged))
    assert body.disposition == "rejected_stale"


def test_w17_nobody_charges_what_never_ran_or_under_a_fence_that_was_never_given() -> None:
    world = world_in("reserved")
    mine = attempt(world)
    mine_charge = world.charge(mine, "r", calls=1)
    assert code(world, c.ChargeUsage(**{**_fields(mine_charge), "input_set": mine.input_set})) in (
        "stale_fence",
        "spec_mismatch",
    )
    world = world_in("active/running")
    assert code(world, world.charge(attempt(world), "r", calls=1, fence=99)) == "stale_fence"
    assert "calls" not in world.order(TASK).account.charged


def _fields(command: c.ChargeUsage) -> dict[str, Any]:
    return {name: getattr(command, name) for name in command.__struct_fields__}


@pytest.mark.parametrize(
    ("receipt", "provider", "amounts"),
    [
        ("", "shop", {"calls": 1}),
        ("r", "kernel", {"calls": 1}),
        ("r", "Shop", {"calls": 1}),
        ("r", "a:b", {"calls": 1}),
        ("r", "x" * 64, {"calls": 1}),
        ("r", "shop", {"attempts": 1}),
        ("r", "shop", {"time_us": 1}),
        ("r", "shop", {"apples": 1}),
        ("r", "shop", {"money_micros:usd": 1}),
    ],
)
def test_w18_a_receipt_says_nothing_that_only_the_kernel_knows(
    receipt: str, provider: str, amounts: dict[str, int]
) -> None:
    world = world_in("active/running")
    assert code(world, world.charge(attempt(world), receipt, provider=provider, **amounts)) == "out_of_range"


def test_w18_a_charge_that_says_nothing_takes_no_receipt_from_its_payment() -> None:
    world = world_in("active/running")
    assert code(world, world.charge(attempt(world), "r")) == "out_of_range"
    assert code(world, world.charge(attempt(world), "r", calls=1)) == "", "the name is still free"
    assert code(world, world.charge(attempt(world), "zero", calls=0)) == "", "known to be nothing"
    assert code(world, world.charge(attempt(world), "unknown", "calls")) == ""


def test_w18_the_name_of_a_receipt_is_bounded() -> None:
    world = world_in("active/running")
    assert code(world, world.charge(attempt(world), "x" * (512 - len("shop:")), calls=1)) == ""
    assert code(world, world.charge(attempt(world), "x" * (513 - len("shop:")), calls=1)) == "too_large"


def test_case_02_an_unknown_dimension_is_charged_as_it_is_held_and_none_is_taken_for_nothing() -> None:
    world = budgeted(calls=9, tokens_output=30)
    told = world.ok(world.charge(attempt(world), "r-1", "tokens_output", calls=1))
    assert (told["left"], told["over"]) == ({"calls": 2}, {})
    assert world.order(TASK).account.charged == {"attempts": 1, "calls": 1, "tokens_output": 10}
    told = world.ok(world.charge(attempt(world), "r-2", "calls", calls=INT_MAX))
    assert told["left"] == {} and world.order(TASK).account.charged["calls"] == INT_MAX, "sums stop there"


def test_w18_overflow_leaves_a_level_below_zero_which_then_grants_nothing() -> None:
    world = World()
    plan = world.submit(draft(TASK, ceilings={"attempts": 3}), draft("b"), ceilings={"calls": 4})
    world.ok(world.event(world.activate(TASK)))
    world.ok(world.charge(attempt(world), "r-1", calls=9))
    world.ok(world.result(attempt(world)))
    world.ok(c.ApplyResult(attempt=attempt(world).attempt))
    assert world.live.values[plan].account.charged["calls"] == 9
    order = world.order("b")
    assert (
        code(world, c.Reserve(order=order.order, expected=order.version, worker=world.worker())) == "budget_exhausted"
    )


# Children


def family(**ceilings: int) -> tuple[World, OrderState]:
    world = World()
    world.submit(
        draft(TASK, attempts=9, **({"ceilings": {"attempts": 9, **ceilings}} if ceilings else {})), draft("z", TASK)
    )
    world.ok(world.event(world.activate(TASK)))
    world.ok(world.child(attempt(world), draft("part", attempts=2)))
    return world, world.order(f"{TASK}.part")


def test_c1_a_child_is_in_the_plan_under_all_accounts_above_it_and_fails_nobody() -> None:
    world, child = family()
    parent = world.order(TASK)
    assert (child.parent, child.plan, child.may_fail) == (parent.order, parent.plan, True)
    assert child.accounts == ("scope", parent.plan, parent.order, child.order)
    assert parent.children == {"part": child.order} and child.state == "ready"
    world.fail(f"{TASK}.part")
    assert parent.plan is not None and world.live.values[parent.plan].lost == 0
    assert world.order(TASK).account.charged["attempts"] == 2, "its own and its child's"
    world.check()


def test_w18_children_hold_inside_their_parents_ceiling() -> None:
    world, _ = family(calls=6)
    world.ok(world.child(attempt(world), draft("two", attempts=1, ceilings={"attempts": 1, "calls": 6})))
    order = world.order(f"{TASK}.two")
    reserve = c.Reserve(order=order.order, expected=order.version, worker=world.worker())
    assert code(world, reserve) == "budget_held", "the parent's own attempt holds a part of it"
    too_much = draft("three", ceilings={"attempts": 1, "calls": 7})
    assert code(world, world.child(attempt(world), too_much)) == "impossible_budget"
    many = draft("four", attempts=10)
    assert code(world, world.child(attempt(world), many)) == "impossible_budget"


def test_c1_a_child_is_found_again_by_its_name_and_other_work_under_it_is_refused() -> None:
    world, child = family()
    again = world.ok(world.child(attempt(world), draft("part", attempts=2)))
    assert (again["order"], again["fresh"], again["task"]) == (child.order, False, f"{TASK}.part")
    assert code(world, world.child(attempt(world), draft("part", attempts=3))) == "child_changed"
    gone_world = world.fork()
    first = attempt(gone_world)
    gone_world.ok(
        c.ProveHolderGone(
            attempt=first.attempt,
            fence=first.fence,
            host=first.host,
            boot_id=first.boot_id,
            basis="locks_free",
            evidence="free",
        )
    )
    gone_world.ok(gone_world.event(gone_world.activate(TASK)))
    again = gone_world.ok(gone_world.child(attempt(gone_world), draft("part", attempts=2)))
    assert (again["order"], again["fresh"]) == (child.order, False), "the next attempt finds it too"


@pytest.mark.parametrize("ceilings", [{"attempts": 3, "calls": 90}, {"attempts": 3, "calls": 1}, {}])
def test_c1_a_child_is_found_again_whatever_ceilings_a_person_has_set_since(ceilings: dict[str, int]) -> None:
    world = budgeted(calls=9)
    asked = draft("part", ceilings={"attempts": 1, "calls": 2})
    placed = world.ok(world.child(attempt(world), asked))
    world.ok(c.SetBudget(account=world.order(TASK).order, ceilings=ceilings))
    again = world.ok(world.child(attempt(world), asked))
    assert (again["order"], again["fresh"]) == (placed["order"], False)
    unlimited = draft("other", attempts=1)
    placed = world.ok(world.child(attempt(world), unlimited)) if ceilings else {}
    world.ok(c.SetBudget(account=world.order(TASK).order, ceilings={"attempts": 3, "tokens_input": 40}))
    if placed:
        assert world.ok(world.child(attempt(world), unlimited))["order"] == placed["order"]
    world.check()


def test_c1_another_share_for_each_attempt_is_other_work() -> None:
    world = budgeted(calls=9)
    asked = draft("part", attempts=1, per_attempt={"calls": 2})
    world.ok(world.child(attempt(world), asked))
    assert code(world, world.child(attempt(world), replace(asked, per_attempt={"calls": 3}))) == "child_changed"
    assert world.ok(world.child(attempt(world), asked))["fresh"] is False


def test_w15_children_may_need_each_other_and_nobody_else() -> None:
    world, _ = family()
    world.ok(world.child(attempt(world), draft("two", "part", attempts=1)))
    assert world.order(f"{TASK}.two").state == "blocked_dependency"
    for need in ("z", "two.x", TASK, "three"):
        assert code(world, world.child(attempt(world), draft("three", need))) == "dependency_missing"
    by_id = draft("three", group("required", world.order("z").order, ids=True))
    assert code(world, world.child(attempt(world), by_id)) == "dependency_missing"
    world.finish(f"{TASK}.part")
    assert world.order(f"{TASK}.two").state == "ready"


@pytest.mark.parametrize("name", ["", "A", "a.b", "1", "a" * 64, "a b"])
def test_c1_the_name_of_a_child_is_a_name(name: str) -> None:
    world = world_in("active/running")
    if not name:
        name = "-"
    assert code(world, world.child(attempt(world), draft(name))) == "out_of_range"


def test_case_27_depth_and_number_of_children_are_bounded() -> None:
    world = World(Limits(children_max=2))
    world.submit(draft(TASK, attempts=9))
    task = TASK
    for _ in range(3):
        world.ok(world.event(world.activate(task)))
        world.ok(world.child(attempt(world, task), draft("down", attempts=5)))
        task = f"{task}.down"
    world.ok(world.event(world.activate(task)))
    assert code(world, world.child(attempt(world, task), draft("down", attempts=1))) == "too_large"
    world.ok(world.child(attempt(world), draft("two", attempts=1)))
    assert code(world, world.child(attempt(world), draft("three", attempts=1))) == "too_large"
    assert world.ok(world.child(attempt(world), draft("two", attempts=1)))["fresh"] is False


@pytest.mark.parametrize("end", ["cancel", "apply", "fail", "exhaust"])
def test_c25_what_a_parent_has_submitted_ends_with_it_however_it_ends(end: str) -> None:
    world, _ = family()
    world.ok(world.child(attempt(world), draft("live", attempts=2)))
    world.ok(world.event(world.activate(f"{TASK}.live", worker=2)))
    if end == "cancel":
        world.ok(c.CancelOrder(order=world.order(TASK).order))
    elif end == "exhaust":
        world.ok(c.SetBudget(account=world.order(TASK).order, ceilings={"attempts": 2}))
        mine = attempt(world)
        world.ok(
            c.ProveHolderGone(
                attempt=mine.attempt,
                fence=mine.fence,
                host=mine.host,
                boot_id=mine.boot_id,
                basis="locks_free",
                evidence="free",
            )
        )
        assert world.order(TASK).state == "budget_exhausted"
    else:
        outcome: dict[str, Any] = {} if end == "apply" else {"outcome": "failed", "exit_code": 1, "failure": "executor"}
        world.ok(world.result(attempt(world), **outcome))
        world.ok(c.ApplyResult(attempt=attempt(world).attempt))
    for name in ("part", "live"):
        child = world.order(f"{TASK}.{name}")
        assert (child.state, child.reason) == ("cancelled", "parent_ended")
    assert attempt(world, f"{TASK}.live").state == "cancelled_no_effect"
    assert hold(world, f"{TASK}.live").state == "unsettled", "its time is known when its holder says"
    world.check()


def test_w15_ends_reach_children_in_pages_like_everybody_else() -> None:
    world = World(Limits(fanout_per_batch=1, children_max=9))
    world.submit(draft(TASK, attempts=9), draft("z", TASK))
    world.ok(world.event(world.activate(TASK)))
    for number in range(4):
        world.ok(world.child(attempt(world), draft(f"c{number}", attempts=1)))
    world.ok(c.CancelOrder(order=world.order(TASK).order))
    for _ in range(20):
        world.settle()
    assert {world.order(f"{TASK}.c{number}").state for number in range(4)} == {"cancelled"}
    assert world.order("z").state == "dependency_failed"
    world.check()


def test_c25_only_its_parent_asks_for_a_child_again() -> None:
    world, child = family()
    world.fail(f"{TASK}.part")
    assert code(world, c.RetryOrder(order=child.order)) == "retry_refused"
    world.ok(world.result(attempt(world), outcome="failed", exit_code=1, failure="executor"))
    world.ok(c.ApplyResult(attempt=attempt(world).attempt))
    made = world.ok(c.RetryOrder(order=world.order(TASK).order, with_dependents=True))["replacements"]
    assert [world.live.values[one["order"]].task for one in made] == [TASK, "z"]
    assert world.order(TASK).children == {}


def test_w17_a_late_child_is_kept_as_a_fact_and_is_no_order() -> None:
    world = world_in("cancelled/live")
    before = len([value for value in world.live.values.values() if isinstance(value, OrderState)])
    assert code(world, world.child(attempt(world), draft("part"))) == "rejected_stale"
    assert len([value for value in world.live.values.values() if isinstance(value, OrderState)]) == before


# Waiting


def test_lifecycle_9_a_yield_holds_nothing_and_gives_the_attempt_back_if_it_saved_its_state() -> None:
    world = world_in("active/running")
    world.ok(world.checkpoint(attempt(world)))
    told = world.ok(world.yielding(attempt(world), question="go", prompt="Shall it?", duration_us=2 * SECOND))
    order = world.order(TASK)
    assert (told["state"], order.state, order.reason) == ("waiting", "waiting", "waiting_for_answer")
    assert order.account.held == {} and order.account.charged == {"time_us": 2 * SECOND}
    assert (attempt(world).state, hold(world).basis, order.yields) == ("yielded", "yielded", 1)
    world.ok(c.AnswerOrder(order=order.order, value="yes"))
    assert (world.order(TASK).state, world.order(TASK).reason) == ("ready", "answered")
    assert world.order(TASK).wait is None and world.activate(TASK).ordinal == 2
    world.check()


def test_w5_what_an_attempt_printed_before_it_yielded_stands_in_the_record_of_its_end() -> None:
    world = world_in("active/running")
    printed = LogRef(digest=DIGEST, bytes_total=9, bytes_kept=3)
    world.ok(world.yielding(attempt(world), question="go", stdout=printed))
    ended: Any = world.body(attempt(world).yielded_seq)
    assert (ended.stdout, ended.stderr) == (printed, None)
    world.check()


def test_lifecycle_8_a_yield_without_a_checkpoint_of_its_own_costs_its_attempt() -> None:
    world = world_in("active/running")
    world.ok(world.checkpoint(attempt(world)))
    world.ok(world.yielding(attempt(world), after_us=SECOND))
    world.advance(2 * SECOND)
    order = world.order(TASK)
    world.ok(c.EndWait(order=order.order, expected=order.version))
    world.ok(world.event(world.activate(TASK)))
    world.ok(world.yielding(attempt(world), after_us=SECOND))
    assert world.order(TASK).account.charged["attempts"] == 1, "the second saved nothing itself"
    world.limits = Limits(yields_max=1)
    world.advance(2 * SECOND)
    order = world.order(TASK)
    world.ok(c.EndWait(order=order.order, expected=order.version))
    world.ok(world.event(world.activate(TASK)))
    world.ok(world.checkpoint(attempt(world)))
    world.ok(world.yielding(attempt(world), after_us=SECOND))
    assert world.order(TASK).account.charged["attempts"] == 2, "and no more than its bound are given back"


@pytest.mark.parametrize(
    ("wait", "reason"),
    [
        ({"question": "q"}, "waiting_for_answer"),
        ({"question": "q", "after_us": SECOND}, "waiting_for_answer_or_time"),
        ({"after_us": SECOND}, "waiting_for_time"),
        ({"orders": True}, "waiting_for_children"),
        ({"orders": True, "question": "q", "after_us": SECOND}, "waiting_for_children"),
    ],
)
def test_w13_a_waiting_order_says_what_it_waits_for(wait: dict[str, Any], reason: str) -> None:
    world, child = family()
    if wait.get("orders"):
        wait = {**wait, "orders": (child.order,)}
    world.ok(world.yielding(attempt(world), **wait))
    assert world.order(TASK).reason == reason


def test_w10_a_time_ends_a_wait_only_when_the_clock_proves_it() -> None:
    world = world_in("waiting/time")
    order = world.order(TASK)
    assert code(world, c.EndWait(order=order.order, expected=order.version)) == "not_due"
    world.advance(SECOND + world.uncertainty_us)
    assert code(world, c.EndWait(order=order.order, expected=order.version - 1)) == "version_moved"
    assert code(world, c.EndWait(order=order.order, expected=order.version)) == ""
    assert world.order(TASK).reason == "time_passed"
    asking = world_in("waiting")
    asking.advance(1_000 * SECOND)
    order = asking.order(TASK)
    assert code(asking, c.EndWait(order=order.order, expected=order.version)) == "not_due"


def test_lifecycle_9_whichever_comes_first_lets_it_go_on_and_the_rest_is_inert() -> None:
    world, child = family()
    world.ok(world.yielding(attempt(world), question="q", orders=(child.order,), after_us=60 * SECOND))
    waiting = world.order(TASK)
    by_time, by_child = world.fork(), world.fork()
    world.ok(c.AnswerOrder(order=waiting.order, value="x", question="q"))
    assert world.order(TASK).reason == "answered"
    by_child.finish(f"{TASK}.part")
    assert by_child.order(TASK).reason == "children_ended"
    assert code(by_child, c.AnswerOrder(order=waiting.order, value="x", question="q")) == "not_asked"
    by_time.advance(61 * SECOND)
    by_time.ok(c.EndWait(order=waiting.order, expected=by_time.order(TASK).version))
    by_time.finish(f"{TASK}.part", worker=2)
    assert by_time.order(TASK).state == "ready"
    for one in (world, by_child, by_time):
        one.check()


def test_lifecycle_9_what_has_come_already_is_not_waited_for() -> None:
    world, child = family()
    world.finish(f"{TASK}.part", worker=2)
    assert world.ok(world.yielding(attempt(world), orders=(child.order,)))["state"] == "ready"
    assert world.order(TASK).reason == "children_ended"
    world.ok(world.event(world.activate(TASK)))
    world.ok(world.yielding(attempt(world), question="q"))
    world.ok(c.AnswerOrder(order=world.order(TASK).order, value="1"))
    world.ok(world.event(world.activate(TASK)))
    assert world.ok(world.yielding(attempt(world), question="q"))["state"] == "ready"
    assert world.order(TASK).reason == "answered"


def test_lifecycle_9_all_of_the_children_that_it_names_have_to_end() -> None:
    world, child = family()
    world.ok(world.child(attempt(world), draft("two", attempts=1)))
    both = (child.order, world.order(f"{TASK}.two").order)
    world.ok(world.yielding(attempt(world), orders=both))
    world.fail(f"{TASK}.part")
    assert world.order(TASK).state == "waiting"
    world.finish(f"{TASK}.two")
    assert world.order(TASK).state == "ready"


@pytest.mark.parametrize(
    "wait",
    [
        {},
        {"question": "Not a name"},
        {"question": "a" * 64},
        {"orders": ("order_" + "1" * 32,)},
        {"after_us": 366 * 86_400 * SECOND},
    ],
)
def test_lifecycle_9_a_wait_that_could_not_end_is_refused(wait: dict[str, Any]) -> None:
    world = world_in("active/running")
    assert code(world, world.yielding(attempt(world), **wait)) == "out_of_range"
    world, child = family()
    assert code(world, world.yielding(attempt(world), orders=(child.order, child.order))) == "out_of_range"


def test_w17_a_late_yield_pays_its_time_and_moves_nothing() -> None:
    world = world_in("cancelled/live")
    assert code(world, world.yielding(attempt(world), question="q", duration_us=3 * SECOND)) == "rejected_stale"
    assert world.order(TASK).account.charged == {"attempts": 1, "time_us": 3 * SECOND}
    assert world.order(TASK).state == "cancelled"


def test_lifecycle_9_an_answer_is_bounded_and_stays_as_it_is() -> None:
    world = world_in("waiting")
    order = world.order(TASK).order
    assert code(world, c.AnswerOrder(order=order, value="é" * 32_769)) == "too_large"
    assert code(world, c.AnswerOrder(order=order, value="é" * 32_768)) == ""
    assert code(world, c.AnswerOrder(order=order, value="other", question="go")) == "already_answered"


def test_w15_a_waiting_order_keeps_its_dependents_waiting_and_its_plan_open() -> None:
    world = world_in("waiting")
    assert world.order("after").state == "blocked_dependency"
    plan = world.live.values[world.order(TASK).plan or ""]
    assert plan.open and plan.ended_us is None
    gone_world = World()
    gone_world.submit(draft(TASK, attempts=1))
    gone(gone_world, TASK)
    assert gone_world.order(TASK).state == "budget_exhausted"


# What no decider could have decided is no history


def corrupt(world: World, subject: str, body: Any) -> bool:
    batch = Batch(world, world.given(), len(world.facts) + 1)
    try:
        batch.emit(subject, body)
    except CorruptHistory:
        return True
    return False


def body_of(world: World, command: Any, kind: type[Any]) -> Any:
    decided = world.decide(command)
    assert decided.refusal is None
    return next(fact.body for fact in decided.facts if isinstance(fact.body, kind))


def test_w6_a_checkpoint_that_could_not_be_accepted_is_no_history() -> None:
    world = world_in("active/running")
    mine = attempt(world)
    body = body_of(world, world.checkpoint(mine), CheckpointEnvelope)
    assert not corrupt(world, mine.attempt, body)
    for changes in (
        {"builds_on": 1, "number": 2},
        {"builds_on": 0, "number": 2},
        {"builds_on": 1, "number": 1},
        {"fence": body.fence + 1},
        {"spec": OTHER},
        {"input_set": OTHER},
        {"order": world.order("first").order},
    ):
        assert corrupt(world, mine.attempt, replace(body, **changes)), changes
    later = world.fork()
    later.advance(11 * SECOND)
    assert corrupt(later, mine.attempt, body), "its lease is over"
    over = world_in("cancelled/live")
    assert corrupt(over, attempt(over).attempt, body_of(world, world.kept(mine), AttemptArtifact))


def test_w5_a_yield_names_the_checkpoint_that_its_attempt_saved() -> None:
    world = world_in("active/running")
    mine = attempt(world)
    world.ok(world.checkpoint(mine))
    body = body_of(world, world.yielding(mine, question="go"), AttemptYielded)
    assert body.checkpoint == attempt(world).checkpoint
    assert corrupt(world, mine.attempt, replace(body, checkpoint=""))
    assert not corrupt(world, mine.attempt, body)


def test_lifecycle_9_an_order_waits_only_behind_its_own_yield_and_for_what_can_come() -> None:
    world, child = family()
    mine = attempt(world)
    stranger = world.order("z").order
    asked = world.yielding(mine, question="go", orders=(child.order,), after_us=SECOND)
    told = world.decide(asked)
    waits = next(fact.body for fact in told.facts if isinstance(fact.body, WorkOrderWaits))
    assert corrupt(world, world.order(TASK).order, waits), "its attempt still runs"
    batch = Batch(world, world.given(), len(world.facts) + 1)
    for fact in told.facts:
        if not isinstance(fact.body, WorkOrderWaits):
            batch.emit(fact.subject, fact.body)
    order = world.order(TASK).order
    for wait, reason in (
        (Wait(), "waiting_for_time"),
        (Wait(until_us=world.now_us), "waiting_for_time"),
        (Wait(orders=(stranger,)), "waiting_for_children"),
        (Wait(question="go", orders=(stranger,)), "waiting_for_children"),
        (Wait(question="go"), "waiting_for_time"),
        (Wait(question="go", until_us=world.now_us + 1), "waiting_for_answer"),
    ):
        with pytest.raises(CorruptHistory):
            batch.emit(order, replace(waits, wait=wait, reason=reason))
    with pytest.raises(CorruptHistory):
        batch.emit(world.order("z").order, waits)
    batch.emit(order, waits)
    waiting = batch.find(order, OrderState)
    assert waiting is not None and waiting.wait == waits.wait and waiting.reason == "waiting_for_children"


def test_lifecycle_9_an_answer_is_to_the_question_that_is_asked_and_once() -> None:
    world = world_in("waiting")
    order = world.order(TASK).order
    body = AnswerRecorded(question="go", value="yes")
    assert corrupt(world, order, replace(body, question="other"))
    assert corrupt(world, world.order("first").order, body)
    batch = Batch(world, world.given(), len(world.facts) + 1)
    batch.emit(order, body)
    with pytest.raises(CorruptHistory):
        batch.emit(order, body)


def test_lifecycle_9_a_wait_ends_by_nothing_else_than_what_it_waits_for() -> None:
    for name, reasons in (
        ("waiting", ("answered", "children_ended", "time_passed", "waiting_for_worker")),
        ("waiting/time", ("answered", "children_ended", "time_passed")),
        ("waiting/children", ("answered", "children_ended", "time_passed")),
    ):
        world = world_in(name)
        for reason in reasons:
            moved = WorkOrderMoved(origin="waiting", target="ready", reason=reason, ready_us=world.now_us)
            assert corrupt(world, world.order(TASK).order, moved), (name, reason)


def test_w18_a_charge_that_could_not_be_booked_is_no_history() -> None:
    world = budgeted(calls=9)
    mine = attempt(world)
    body = body_of(world, world.charge(mine, "r-1", calls=2), UsageCharged)
    assert not corrupt(world, mine.hold, body)
    for changes in (
        {"freed": {}},
        {"freed": {"calls": 1}},
        {"freed": {"calls": 3}},
        {"disposition": "rejected_stale"},
        {"fence": 9},
        {"spec": OTHER},
        {"order": "order_" + "9" * 32},
    ):
        assert corrupt(world, mine.hold, replace(body, **changes)), changes
    world.ok(world.charge(mine, "r-1", calls=2))
    assert corrupt(world, mine.hold, replace(body, freed={"calls": 1})), "it is booked already"
    reserved = world_in("reserved")
    known = attempt(reserved)
    never = replace(body, attempt=known.attempt, order=known.order, spec=reserved.order(TASK).spec, fence=known.fence)
    assert corrupt(reserved, known.hold, replace(never, freed={}, disposition="rejected_stale"))
    released = world_in("ready/released")
    known = attempt(released)
    never = replace(body, attempt=known.attempt, order=known.order, spec=released.order(TASK).spec, fence=known.fence)
    assert corrupt(released, known.hold, replace(never, freed={}, disposition="rejected_stale"))


def test_c1_a_spec_that_is_no_child_of_its_parent_is_no_history() -> None:
    world = world_in("active/running")
    spec = body_of(world, world.child(attempt(world), draft("part", attempts=1)), WorkOrderSpec)
    assert not corrupt(world, spec.order, spec)
    other = world.order("first").order
    for changes in (
        {"parent": other},
        {"parent": "order_" + "9" * 32},
        {"task": "part"},
        {"plan": None},
        {"accounts": ("scope", spec.plan, spec.order)},
        {"accounts": (*spec.accounts[:-1], other)},
    ):
        assert corrupt(world, spec.order, replace(spec, **changes)), changes
    world.ok(world.child(attempt(world), draft("part", attempts=1)))
    fresh = "order_" + "8" * 32
    again = replace(spec, order=fresh, accounts=(*spec.accounts[:-1], fresh))
    assert corrupt(world, fresh, again), "it has a child of that name"


def test_w18_how_many_receipts_do_not_say_an_amount_is_known_on_every_account_of_the_path() -> None:
    world = budgeted()
    speaks = attempt(world)
    world.ok(world.charge(speaks, "known", calls=1))
    world.ok(world.charge(speaks, "r-1", "tokens_output", "calls", "calls"))
    world.ok(world.charge(speaks, "r-1", "tokens_output", "calls", "calls"))
    world.ok(world.charge(speaks, "r-2", "tokens_output"))
    counted = {"calls": 1, "tokens_output": 2}
    found, order = hold(world), world.order(TASK)
    assert (found.charges, found.unknown) == (3, counted), "one that is said again counts once, and so does a name"
    assert [world.live.values[subject].account.unknown for subject in order.accounts] == [counted] * len(order.accounts)
    shown = account_document("a", order.account)["dimensions"]
    assert shown["tokens_output"] == {"ceiling": None, "held": 0, "charged": 0, "available": None, "unknown": 2}
    assert hold_document(found)["unknown"] == counted
    ceilings = {**order.account.ceiling, "calls": 99}
    world.ok(c.SetBudget(account=order.order, ceilings=ceilings))
    assert world.order(TASK).account.unknown == counted, "a ceiling that is set anew makes nothing known"


def test_w18_an_unknown_dimension_of_which_nothing_is_held_books_nothing() -> None:
    charged, freed = booked(Usage(receipt="r", provider="p", amounts={"calls": 0}, unknown=("tokens_input",)), {})
    assert (charged, freed) == ({}, {})
    charged, freed = booked(Usage(receipt="r", provider="p", amounts={}, unknown=("calls",)), {"calls": 1})
    assert (charged, freed) == ({"calls": 1}, {"calls": 1})
    charged, freed = booked(Usage(receipt="r", provider="p", amounts={"calls": 1}, unknown=("calls",)), {"calls": 1})
    assert (charged, freed) == ({"calls": 1}, {"calls": 1})


def test_w6_what_is_told_of_a_checkpoint_and_of_a_yield() -> None:
    world = world_in("active/running")
    refs = (artifact("model.bin"),)
    told = world.ok(world.checkpoint(attempt(world), artifacts=refs))
    body = next(fact.body for fact in world.facts if isinstance(fact.body, CheckpointEnvelope))
    assert body.artifacts == refs and body.payload_kind == "blob/1"
    assert told["attempt"] == attempt(world).attempt and told["lease_until_us"] == attempt(world).lease_us
    assert world.ok(world.kept(attempt(world))) == {"attempt": attempt(world).attempt, "digest": DIGEST}
    waiting = world_in("waiting/time")
    waiting.advance(2 * SECOND)
    order = waiting.order(TASK)
    assert waiting.ok(c.EndWait(order=order.order, expected=order.version)) == {"order": order.order}
    moved = next(fact.body for fact in reversed(waiting.facts) if isinstance(fact.body, WorkOrderMoved))
    assert moved.cause == str(len(waiting.facts) - 1), "the proof right before it"


def test_c1_a_child_outside_a_plan_is_a_child_too() -> None:
    world = World()
    order = world.ok(c.SubmitOrder(order=draft("lone", attempts=5)))["order"]
    state = world.live.values[order]
    world.ok(c.Reserve(order=order, expected=state.version, worker=world.worker()))
    reserved = world.attempt_of(world.live.values[order])
    world.ok(world.activation(reserved))
    live = world.live.values[reserved.attempt]
    world.ok(world.event(live))
    told = world.ok(world.child(live, draft("part", attempts=1)))
    child = world.live.values[told["order"]]
    assert (told["task"], child.plan, child.position, child.accounts) == (
        "lone.part",
        None,
        0,
        ("scope", order, child.order),
    )
    assert child.state == "ready"
    world.check()


@pytest.mark.parametrize(
    ("field", "parent", "more", "same"),
    [
        ("classification", "private", "internal", "private"),
        ("classification", "internal", "public", "private"),
        ("may", (), ("workspace.write",), ()),
        ("environment", ("PATH",), ("HOME",), ("PATH",)),
        ("environment", ("PATH",), ("PATH*",), ()),
        ("environment", ("LC_*",), ("L*",), ("LC_ALL", "LC_*")),
        ("priority", "normal", "high", "low"),
        ("effects", "none", "declared", "none"),
    ],
)
def test_w4_a_child_has_no_more_than_its_parent(field: str, parent: Any, more: Any, same: Any) -> None:
    world = World()
    world.submit(draft(TASK, attempts=9, **{field: parent}))
    world.ok(world.event(world.activate(TASK)))
    assert code(world, world.child(attempt(world), draft("part", attempts=1, **{field: more}))) == "child_exceeds"
    assert code(world, world.child(attempt(world), draft("part", attempts=1, **{field: same}))) == ""


def test_w18_a_child_has_the_part_of_each_ceiling_that_its_level_gives_to_one_attempt() -> None:
    world = World()
    world.submit(
        draft(TASK, ceilings={"attempts": 2, "tokens_input": 30}),
        draft("z", attempts=1),
        ceilings={"attempts": 20, "calls": 200, "tokens_input": 9_000},
    )
    world.ok(world.event(world.activate(TASK)))
    world.ok(world.child(attempt(world), draft("c", attempts=1)))
    assert world.order(f"{TASK}.c").terms.hold == {
        "attempts": 1,
        "time_us": 30 * SECOND,
        "calls": 10,
        "tokens_input": 15,
    }
    open_plan = World()
    open_plan.submit(draft(TASK, attempts=9), draft("z", attempts=1), ceilings={"calls": 60})
    open_plan.ok(open_plan.event(open_plan.activate(TASK)))
    open_plan.ok(open_plan.child(attempt(open_plan), draft("c", attempts=1)))
    assert open_plan.order(f"{TASK}.c").terms.hold["calls"] == 30, "a plan without attempts shares by its orders"


def test_lifecycle_9_nothing_is_waited_for_where_no_attempt_could_follow_but_a_person() -> None:
    asks = World()
    asks.submit(draft(TASK, attempts=1))
    asks.ok(asks.event(asks.activate(TASK)))
    assert asks.ok(asks.yielding(attempt(asks), question="go", after_us=SECOND))["state"] == "waiting"
    asks.ok(c.SetBudget(account=asks.order(TASK).order, ceilings={"attempts": 2}))
    asks.ok(c.AnswerOrder(order=asks.order(TASK).order, value="yes"))
    assert asks.activate(TASK).ordinal == 2
    world = World()
    world.submit(draft(TASK, attempts=1), draft("z", TASK))
    world.ok(world.event(world.activate(TASK)))
    assert world.ok(world.yielding(attempt(world), after_us=SECOND))["state"] == "budget_exhausted"
    assert world.order(TASK).state == "budget_exhausted" and world.order("z").state == "dependency_failed"
    assert attempt(world).state == "yielded" and not world.order(TASK).account.held
    world.check()
    spent = World()
    spent.submit(draft(TASK, ceilings={"attempts": 3, "calls": 3}))
    spent.ok(spent.event(spent.activate(TASK)))
    spent.ok(spent.checkpoint(attempt(spent)))
    spent.ok(spent.charge(attempt(spent), "r", calls=50))
    assert spent.ok(spent.yielding(attempt(spent), after_us=SECOND))["state"] == "budget_exhausted"


@pytest.mark.parametrize(
    ("credited", "basis", "saved"),
    [
        ({"calls": 1}, "yielded", True),
        ({"attempts": 1}, "yielded", False),
        ({"attempts": 1}, "expiry", True),
        ({"attempts": 1}, "receipts", True),
        ({"attempts": 1, "calls": 1}, "stopped", True),
        ({"attempts": 2}, "stopped", True),
    ],
)
def test_lifecycle_8_a_credit_that_nobody_earned_is_no_history(credited: Any, basis: Any, saved: bool) -> None:
    world = budgeted(calls=9)
    world.ok(world.charge(attempt(world), "r", calls=3))
    if saved:
        world.ok(world.checkpoint(attempt(world)))
    body = HoldSettled(charged={}, basis=basis, credited=credited)
    assert corrupt(world, hold(world).hold, body)


def test_w18_the_receipts_and_currencies_of_an_attempt_are_bounded() -> None:
    world = budgeted(calls=9)
    world.limits = Limits(charges_per_attempt_max=2)
    for number in range(2):
        world.ok(world.charge(attempt(world), f"r{number}", calls=1))
    assert code(world, world.charge(attempt(world), "r2", calls=1)) == "too_large"
    assert world.ok(world.charge(attempt(world), "r1", calls=1))["duplicate"], "what is booked is still known"
    assert hold(world).charges == 2
    world.limits = Limits()
    codes = [f"money_micros:A{chr(65 + number)}A" for number in range(17)]
    for number, money in enumerate(codes):
        expected = "too_large" if number == 16 else ""
        assert code(world, world.charge(attempt(world), f"m{number}", **{money: 1})) == expected
    assert code(world, world.charge(attempt(world), "m17", codes[0])) == "", "one that it has already"


def test_w18_sums_of_charges_stay_numbers_of_a_document() -> None:
    world = budgeted(calls=9)
    for number in range(3):
        world.ok(world.charge(attempt(world), f"r{number}", calls=INT_MAX))
    assert world.order(TASK).account.charged["calls"] == INT_MAX == world.live.values["scope"].account.charged["calls"]


def test_c1_a_task_of_a_plan_is_never_named_like_a_child() -> None:
    world = World()
    assert code(world, plan_of(draft("a"), draft("a.kid"))) == "out_of_range"


def test_g2_a_waiting_order_that_is_cancelled_after_an_effect_has_failed() -> None:
    world = world_in("waiting")
    order = replace(world.order(TASK), effect_applied=True)
    for fold in (world.live, world.replayed):
        fold.values[order.order] = order
    world.ok(c.CancelOrder(order=order.order))
    assert (world.order(TASK).state, world.order(TASK).reason) == ("failed", "cancelled_after_effect")


@pytest.mark.parametrize("state", ["active/leased", "active/running"])
def test_lifecycle_8_an_attempt_that_was_ended_for_want_of_a_renewal_is_no_planned_pause(state: str) -> None:
    world = world_in(state)
    mine = attempt(world)
    stopped = c.ReportStopped(attempt=mine.attempt, fence=mine.fence, duration_us=SECOND, reason="lease_expired")
    world.ok(stopped)
    order = world.order(TASK)
    assert (order.state, order.reason) == ("ready", "lease_expired")
    assert order.account.charged == {"attempts": 1, "time_us": SECOND}
    assert attempt(world).state == "cancelled_no_effect" and order.yields == 0
    world.check()
