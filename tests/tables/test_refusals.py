"""Every refusal of the deciders is provoked, in both of its halves: the code, and that nothing has changed."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from fencepost.core import commands as c
from fencepost.core import decide
from fencepost.core.limits import DAY_US, Limits
from fencepost.core.planfile.bounds import CURRENCIES_MAX
from fencepost.core.reasons import REASONS
from fencepost.core.records.attempt import ResultFacts
from fencepost.core.records.authority import AuthorityDecision
from fencepost.core.records.common import Usage
from fencepost.core.records.plan import Acceptance, Retry
from fencepost.core.state import AUTHORITY, SCOPE
from tests.support.states import TASK, world_in
from tests.support.world import DIGEST, GRANT, ME, SECOND, World, artifact, draft, group, plan_of

Case = Callable[[], str]
CASES: list[tuple[str, str, Case]] = []


def case(code: str) -> Callable[[Case], Case]:
    def register(function: Case) -> Case:
        CASES.append((code, function.__name__, function))
        return function

    return register


def refused(world: World, command: Any, **who: str) -> str:
    """The code; a refusal that is not durable leaves no record, and every one leaves a sound state."""
    decided = world.do(command, **who)
    world.check()
    code = "" if decided.refusal is None else decided.refusal.code
    moved = [fact for fact in decided.facts if not isinstance(fact.body, AuthorityDecision)]
    assert not code or not moved or REASONS[code].durable, f"{code} was written down and is not durable"
    return code


def attempt(world: World) -> Any:
    return world.attempt_of(world.order(TASK))


def submit(
    *orders: c.OrderDraft, limits: Limits | None = None, scope: dict[str, int] | None = None, **more: Any
) -> str:
    world = World(limits)
    if scope:
        world.ok(c.SetBudget(account=SCOPE, ceilings=scope))
    code = refused(world, plan_of(*orders, **more))
    assert code == "" or not [value for value in world.live.values if value.startswith(("plan_", "order_"))]
    return code


# Authority


@case("scope_not_open")
def nobody_has_opened_it() -> str:
    return World(opened=False).refused(c.CancelOrder(order="x"))


@case("scope_open")
def it_is_open_already() -> str:
    world = World()
    try:
        world.open()
    except AssertionError as error:
        return str(error).split()[1]
    return ""


@case("unauthenticated")
def nobody_knows_them() -> str:
    return refused(World(), c.CancelOrder(order="x"), principal="principal_" + "2" * 32, grant=DIGEST)


@case("grant_missing")
def the_grant_is_unknown() -> str:
    return refused(World(), c.CancelOrder(order="x"), grant=DIGEST)


def _with_grant(**changes: Any) -> World:
    world = World()
    value = world.live.values[AUTHORITY]
    grants = {GRANT: replace(value.grants[GRANT], **changes)}
    for fold in (world.live, world.replayed):
        fold.values[AUTHORITY] = replace(value, grants=grants)
    return world


@case("grant_revoked")
def the_grant_was_revoked() -> str:
    return refused(_with_grant(revoked=True, audience="x"), c.CancelOrder(order="x"))


@case("grant_audience")
def the_grant_is_somebody_elses() -> str:
    return refused(_with_grant(audience="x", operations=()), c.CancelOrder(order="x"))


@case("grant_operation")
def the_grant_is_for_something_else() -> str:
    return refused(_with_grant(operations=("cancel_work/plan",), expires_us=1), c.CancelOrder(order="x"))


@case("grant_expired")
def the_grant_is_over() -> str:
    world = _with_grant(expires_us=World().now_us)
    world.denied.add("cancel_work/work_order")
    return refused(world, c.CancelOrder(order="x"))


@case("denied")
def the_constitution_says_no() -> str:
    world = World()
    world.denied.add("cancel_work/work_order")
    first = world.do(c.CancelOrder(order="x"))
    assert isinstance(first.facts[0].body, AuthorityDecision) and not first.facts[0].body.allow
    assert first.decision == first.facts[0].body.decision
    again = world.do(c.CancelOrder(order="x"))
    assert not again.facts, "a decision is recorded once"
    return again.refusal.code if again.refusal else ""


@case("denied")
def the_prover_may_not_prove() -> str:
    world = world_in("active/running")
    world.denied.add("prove_clock_deadline/clock_domain")
    world.advance(20 * SECOND)
    return refused(world, world.expiry(attempt(world)))


@case("denied")
def nobody_decided() -> str:
    world = World()
    world.undecided.add("cancel_work/work_order")
    return refused(world, c.CancelOrder(order="x"))


# Names and versions


@pytest.mark.parametrize(
    "command",
    [
        c.CancelPlan(plan="plan_x"),
        c.CancelOrder(order="order_x"),
        c.CancelOrder(order=SCOPE),
        c.RetryOrder(order="order_x"),
        c.SetBudget(account="x", ceilings={}),
        c.SetBudget(account=AUTHORITY, ceilings={}),
        c.Reserve(order="order_x", expected=1, worker="worker_x"),
        c.ReserveNext(worker="worker_x", count=1),
        c.ReleaseReservation(attempt="x", fence=1),
        c.RenewLeases(worker="x", attempts=()),
        c.ApplyResult(attempt="x"),
        c.ExpireAttempt(attempt="x", expected=1),
        c.SettleHold(hold="x", expected=1),
        c.EndBackoff(order="x", expected=1),
        c.Reexamine(order="x", expected=1),
        c.TellDependents(order="x"),
        c.AdvanceCancel(plan="x"),
        c.EnforceDeadline(plan="x", expected=1),
        c.ReportStopped(reason="drained", attempt="x", fence=1, duration_us=0),
        c.RecordVerification(attempt="x", result=DIGEST, outcome="passed", duration_us=0),
    ],
    ids=lambda command: type(command).__name__,
)
def test_a_name_that_is_not_there_is_not_found(command: Any) -> None:
    assert refused(World(), command) == "not_found"


@case("not_found")
def the_worker_is_asked_for_before_the_order() -> str:
    world = world_in("ready")
    order = world.order(TASK)
    return refused(world, c.Reserve(order=order.order, expected=99, worker="worker_x"))


@case("not_found")
def the_order_is_missing() -> str:
    world = world_in("ready")
    return refused(world, c.Reserve(order="order_x", expected=1, worker=world.worker()))


@case("version_moved")
def somebody_was_faster() -> str:
    world = world_in("reserved")
    order = world.order(TASK)
    return refused(world, c.Reserve(order=order.order, expected=order.version - 1, worker=world.worker()))


@case("version_moved")
def the_budget_has_moved() -> str:
    world = world_in("ready")
    return refused(world, c.SetBudget(account=SCOPE, ceilings={}, expected=77))


@case("version_moved")
def the_reservation_has_moved() -> str:
    world = world_in("reserved")
    return refused(world, world.activation(attempt(world), expected=9))


@pytest.mark.parametrize(
    ("state", "make"),
    [
        ("active/running", lambda w: c.ExpireAttempt(attempt=attempt(w).attempt, expected=1)),
        ("cancelled/live", lambda w: c.SettleHold(hold=w.hold_of(w.order(TASK)).hold, expected=1)),
        ("retry_wait", lambda w: c.EndBackoff(order=w.order(TASK).order, expected=1)),
        ("blocked_budget", lambda w: c.Reexamine(order=w.order(TASK).order, expected=1)),
        ("ready", lambda w: c.EnforceDeadline(plan=w.order(TASK).plan or "", expected=1)),
    ],
    ids=["expire", "settle", "backoff", "reexamine", "deadline"],
)
def test_services_name_the_version_that_they_saw(state: str, make: Callable[[World], Any]) -> None:
    world = world_in(state)
    assert refused(world, make(world)) == "version_moved"


# Admission


@case("out_of_range")
def a_plan_without_orders() -> str:
    return submit()


@case("out_of_range")
def a_task_named_twice() -> str:
    return submit(draft("a"), draft("a"))


@case("too_large")
def a_plan_of_too_many_orders() -> str:
    return submit(draft("a"), draft("b"), limits=Limits(plan_orders_max=1))


@case("too_large")
def a_plan_of_too_many_edges() -> str:
    return submit(draft("a"), draft("b"), draft("c", "a", "b"), limits=Limits(plan_edges_max=1))


@case("too_large")
def a_batch_of_too_many_records() -> str:
    return submit(draft("a"), draft("b"), draft("c"), draft("d"), limits=Limits(batch_records_max=7))


@pytest.mark.parametrize(
    "wrong",
    [
        {"ceilings": {"attempts": 0}},
        {"ceilings": {"apples": 1}},
        {"ceilings": {"attempts": 1, "money_micros:usd": 1}},
        {"per_attempt": {"attempts": 2}},
        {"per_attempt": {"time_us": 2}},
        {"per_attempt": {"apples": 2}},
        {"attempt_time_us": 366 * DAY_US},
        {"retry": Retry(on=("policy",), backoff_us=0, backoff_max_us=0)},
        {"retry": Retry(on=(), backoff_us=0, backoff_max_us=0)},
        {"retry": Retry(on=("executor",), backoff_us=0, backoff_max_us=2 * 3_600 * SECOND)},
        {"retry": Retry(on=("executor",), backoff_us=2, backoff_max_us=1)},
        {"outputs": ("/etc/passwd",)},
        {"groups": (c.GroupDraft(kind="alternative", members=()),)},
        {"groups": (group("required", "b", outcomes=()),)},
    ],
    ids=lambda wrong: "-".join(f"{key}={value}" for key, value in wrong.items())[:60],
)
def test_w1_an_order_that_could_not_be_evaluated_is_refused(wrong: dict[str, Any]) -> None:
    assert submit(draft("b"), draft("a", **wrong)) == "out_of_range"


def test_w1_plan_ceilings_and_deadlines_are_checked() -> None:
    assert submit(draft("a"), ceilings={"apples": 1}) == "out_of_range"
    assert submit(draft("a", may_fail=True), ceilings={"attempts": 0}) == "out_of_range"
    assert submit(draft("a"), deadline_us=366 * DAY_US) == "out_of_range"
    assert submit(draft("a"), deadline_us=365 * DAY_US) == ""


@case("dependency_missing")
def a_need_that_is_not_in_the_plan() -> str:
    return submit(draft("a", "b"))


@case("dependency_missing")
def a_plan_that_needs_an_order_by_id() -> str:
    return submit(draft("a", group("required", "order_" + "1" * 32, ids=True)))


@case("dependency_missing")
def files_of_an_order_that_is_not_needed() -> str:
    return submit(draft("b", outputs=("x",)), draft("a", handed=(c.FromDraft(task="b", files=("x",)),)))


@case("dependency_missing")
def an_order_that_needs_an_unknown_id() -> str:
    return refused(World(), c.SubmitOrder(order=draft("a", group("required", "order_" + "1" * 32, ids=True))))


@case("dependency_cycle")
def a_ring_of_three() -> str:
    world = World()
    decided = world.do(plan_of(draft("a", "b"), draft("b", "c"), draft("c", "a")))
    assert decided.refusal is not None and all(name in decided.refusal.message for name in "abc")
    return decided.refusal.code


@case("too_large")
def ceilings_in_more_currencies_than_anybody_has() -> str:
    codes = [f"A{chr(65 + first)}{chr(65 + second)}" for first in range(26) for second in range(26)]
    money = {f"money_micros:{code}": 1 for code in codes[: CURRENCIES_MAX + 1]}
    amounts = {"attempts": 3, "time_us": 60 * SECOND, "calls": 1, "tokens_input": 1, "tokens_output": 1}
    most = dict(list(money.items())[:-1])
    assert submit(draft("a", may_fail=True), ceilings={**amounts, **most}) == ""
    return submit(draft("a"), ceilings={**amounts, **money})


@case("impossible_budget")
def one_attempt_is_past_its_own_ceiling() -> str:
    return submit(draft("a", ceilings={"attempts": 1, "time_us": 5}))


@case("impossible_budget")
def one_attempt_is_past_the_plans_ceiling() -> str:
    return submit(draft("a"), ceilings={"time_us": 5})


@case("impossible_budget")
def one_attempt_is_past_the_scopes_ceiling() -> str:
    return submit(draft("a"), scope={"time_us": 5})


@case("impossible_budget")
def a_ceiling_is_past_the_plans() -> str:
    return submit(draft("a", ceilings={"attempts": 3, "calls": 9}), ceilings={"attempts": 3, "calls": 8})


@case("impossible_budget")
def a_declared_amount_is_past_its_ceiling() -> str:
    return submit(draft("a", ceilings={"attempts": 1, "calls": 4}, per_attempt={"calls": 5}))


@case("impossible_budget")
def fewer_attempts_than_orders_that_may_not_fail() -> str:
    return submit(draft("a", attempts=1), draft("b", attempts=1), ceilings={"attempts": 1})


@case("currency_not_budgeted")
def a_currency_that_the_plan_does_not_name() -> str:
    return submit(draft("a", per_attempt={"money_micros:USD": 1}), ceilings={"money_micros:EUR": 5})


@case("incompatible_output")
def acceptance_of_a_file_outside_the_outputs() -> str:
    return submit(draft("a", outputs=("report.xml",), accept=Acceptance(files=("other.xml",))))


@case("incompatible_output")
def files_that_the_other_order_does_not_put_out() -> str:
    handed = (c.FromDraft(task="b", files=("secret.txt",)),)
    return submit(draft("b", outputs=("x/**",)), draft("a", "b", handed=handed))


@case("out_of_range")
def handed_files_outside_a_plan() -> str:
    return refused(World(), c.SubmitOrder(order=draft("a", handed=(c.FromDraft(task="b", files=("x",)),))))


@case("plan_changed")
def an_open_plan_of_other_content() -> str:
    world = world_in("ready")
    return refused(world, plan_of(draft("z"), mode="again"))


# Revision


@case("plan_ended")
def a_cancel_of_a_plan_that_has_ended() -> str:
    world = World()
    plan = world.submit(draft(TASK))
    world.finish(TASK)
    return refused(world, c.CancelPlan(plan=plan))


@case("not_due")
def a_deadline_that_the_plan_does_not_have() -> str:
    world = world_in("ready")
    plan = world.live.values[world.order(TASK).plan or ""]
    return refused(world, c.EnforceDeadline(plan=plan.plan, expected=plan.version))


@case("plan_ended")
def a_deadline_of_a_plan_that_has_ended() -> str:
    world = World()
    world.submit(draft(TASK), deadline_us=60 * SECOND)
    plan = world.live.values[world.finish(TASK).plan or ""]
    return refused(world, c.EnforceDeadline(plan=plan.plan, expected=plan.version))


@case("plan_cancelled")
def a_deadline_of_a_plan_that_is_being_cancelled() -> str:
    world = World(Limits(cancel_per_batch=1))
    name = world.submit(draft(TASK), draft("b"), deadline_us=60 * SECOND)
    world.ok(c.CancelPlan(plan=name))
    return refused(world, c.EnforceDeadline(plan=name, expected=world.live.values[name].version))


@case("executor_unsupported")
def a_kind_of_work_that_no_executor_has() -> str:
    return refused(World(), plan_of(draft(TASK, work_kind="model/1")))


@case("order_ended")
def a_cancel_of_an_order_that_has_ended() -> str:
    world = world_in("applied")
    return refused(world, c.CancelOrder(order=world.order(TASK).order))


@case("order_state")
def a_cancel_while_an_effect_may_have_happened() -> str:
    world = world_in("active/running")
    order = replace(world.order(TASK), effect_open=True)
    for fold in (world.live, world.replayed):
        fold.values[order.order] = order
    return refused(world, c.CancelOrder(order=order.order))


@case("order_state")
def a_reservation_of_an_order_that_is_taken() -> str:
    world = world_in("reserved")
    order = world.order(TASK)
    return refused(world, c.Reserve(order=order.order, expected=order.version, worker=world.worker(2)))


@case("order_state")
def a_backoff_that_nobody_waits_for() -> str:
    world = world_in("ready")
    order = world.order(TASK)
    return refused(world, c.EndBackoff(order=order.order, expected=order.version))


@case("order_state")
def nothing_to_look_at_again() -> str:
    world = world_in("ready")
    order = world.order(TASK)
    return refused(world, c.Reexamine(order=order.order, expected=order.version))


@case("already_replaced")
def a_second_retry() -> str:
    world = world_in("failed")
    order = world.order(TASK).order
    world.ok(c.RetryOrder(order=order))
    return refused(world, c.RetryOrder(order=order))


@case("retry_refused")
def a_retry_of_what_is_applied() -> str:
    world = world_in("applied")
    return refused(world, c.RetryOrder(order=world.order(TASK).order))


@case("retry_refused")
def a_retry_of_what_would_end_again_at_once() -> str:
    world = world_in("dependency_failed")
    return refused(world, c.RetryOrder(order=world.order(TASK).order))


@case("too_large")
def a_retry_of_too_many() -> str:
    world = World()
    world.submit(draft(TASK), draft("b", TASK), draft("c", "b"))
    world.fail(TASK)
    world.limits = Limits(plan_orders_max=2)
    return refused(world, c.RetryOrder(order=world.order(TASK).order, with_dependents=True))


@case("plan_cancelled")
def a_retry_in_a_cancelled_plan() -> str:
    world = world_in("failed")
    order = world.order(TASK)
    assert world.live.values[order.plan].open
    world.ok(c.CancelPlan(plan=order.plan or ""))
    return refused(world, c.RetryOrder(order=order.order))


# Claim


@case("plan_cancelled")
def an_activation_in_a_plan_whose_cancel_is_on_its_way() -> str:
    world = World(Limits(cancel_per_batch=1))
    plan = world.submit(draft("x"), draft(TASK))
    reserved = world.reserve(TASK)
    world.ok(c.CancelPlan(plan=plan))
    return refused(world, world.activation(reserved))


@case("deadline_passed")
def a_reservation_past_the_deadline() -> str:
    world = World()
    world.submit(draft(TASK), deadline_us=SECOND)
    world.advance(SECOND)
    order = world.order(TASK)
    return refused(world, c.Reserve(order=order.order, expected=order.version, worker=world.worker()))


@case("clock_blocked")
def the_clock_waits_for_a_person() -> str:
    world = world_in("ready")
    world.tick_us += SECOND
    world.utc_us += DAY_US
    world.observe()
    return refused(world, c.ReserveNext(worker=world.worker(), count=1))


@case("executor_unsupported")
def a_worker_that_cannot_run_it() -> str:
    world = world_in("ready")
    order = world.order(TASK)
    worker = world.worker(7, executors=("python/1",))
    return refused(world, c.Reserve(order=order.order, expected=order.version, worker=worker))


@case("nothing_ready")
def an_empty_queue() -> str:
    world = World()
    return refused(world, c.ReserveNext(worker=world.worker(), count=1))


def _two_of_one_budget() -> World:
    world = World()
    hold = {"attempt_time_us": 10 * SECOND}
    plan = world.submit(draft("first", **hold), draft(TASK, **hold), ceilings={"time_us": 15 * SECOND})
    assert world.live.values[plan].account.ceiling == {"time_us": 15 * SECOND}
    return world


@case("budget_held")
def the_budget_is_held_by_another() -> str:
    world = _two_of_one_budget()
    world.reserve("first")
    order = world.order(TASK)
    code = refused(world, c.Reserve(order=order.order, expected=order.version, worker=world.worker()))
    assert (world.order(TASK).state, world.order(TASK).reason) == ("blocked_budget", "budget_held")
    order = world.order(TASK)
    assert refused(world, c.Reexamine(order=order.order, expected=order.version)) == "budget_held"
    return code


@case("budget_held")
def a_ceiling_that_was_lowered_under_a_reservation() -> str:
    world = world_in("reserved")
    order = world.order(TASK)
    world.ok(c.SetBudget(account=order.order, ceilings={"attempts": 3, "time_us": 1}))
    return refused(world, world.activation(attempt(world)))


@case("budget_exhausted")
def what_is_left_is_too_little() -> str:
    world = _two_of_one_budget()
    world.finish("first", duration_us=6 * SECOND)
    order = world.order(TASK)
    code = refused(world, c.Reserve(order=order.order, expected=order.version, worker=world.worker()))
    assert world.order(TASK).state == "budget_exhausted"
    return code


@case("currency_not_budgeted")
def a_currency_that_was_taken_out_of_the_budget() -> str:
    world = World()
    world.submit(draft(TASK, per_attempt={"money_micros:USD": 1}))
    world.ok(c.SetBudget(account=SCOPE, ceilings={"money_micros:EUR": 5}))
    order = world.order(TASK)
    code = refused(world, c.Reserve(order=order.order, expected=order.version, worker=world.worker()))
    assert world.order(TASK).state == "blocked_budget"
    return code


# Dispatch


@case("wrong_holder")
def somebody_elses_reservation() -> str:
    world = world_in("reserved")
    return refused(world, world.activation(attempt(world), worker=world.worker(2), fence=9, expected=9))


@case("lost_race")
def the_second_activation() -> str:
    world = world_in("reserved")
    command = world.activation(attempt(world))
    world.ok(command)
    return refused(world, command)


@case("attempt_state")
def an_activation_of_what_has_ended() -> str:
    world = world_in("reserved")
    command = world.activation(attempt(world))
    world.ok(c.CancelOrder(order=world.order(TASK).order))
    return refused(world, command)


@case("stale_fence")
def an_activation_with_another_fence() -> str:
    world = world_in("reserved")
    return refused(world, world.activation(attempt(world), fence=9, expected=9))


@case("stale_fence")
def an_activation_too_late() -> str:
    world = world_in("reserved")
    world.advance(5 * SECOND)
    return refused(world, world.activation(attempt(world)))


@case("executor_unsupported")
def another_executor() -> str:
    world = world_in("reserved")
    return refused(world, world.activation(attempt(world), executor="python", extensions={"x": "y"}))


@case("executor_unsupported")
def an_unknown_mode() -> str:
    world = world_in("reserved")
    return refused(world, world.activation(attempt(world), mode="orbit"))


@case("extension_unregistered")
def w22_any_extension() -> str:
    world = world_in("reserved")
    return refused(world, world.activation(attempt(world), extensions={"role": "1"}, input_set=DIGEST))


# What a running program says


@case("checkpoint_moved")
def a_checkpoint_beside_another_one() -> str:
    world = world_in("active/running")
    world.ok(world.checkpoint(attempt(world)))
    return refused(world, world.checkpoint(attempt(world), builds_on=0, payload="sha256:" + "7" * 64))


@case("receipt_differs")
def a_receipt_with_other_amounts() -> str:
    world = world_in("active/running")
    world.ok(world.charge(attempt(world), "r", calls=1))
    return refused(world, world.charge(attempt(world), "r", calls=2))


@case("child_changed")
def another_child_of_the_same_name() -> str:
    world = world_in("active/running")
    world.ok(world.child(attempt(world), draft("part")))
    return refused(world, world.child(attempt(world), draft("part", run=("false",))))


@case("not_asked")
def an_answer_that_nobody_waits_for() -> str:
    world = world_in("active/running")
    return refused(world, c.AnswerOrder(order=world.order(TASK).order, value="x"))


@case("not_asked")
def an_answer_to_another_question() -> str:
    world = world_in("waiting")
    return refused(world, c.AnswerOrder(order=world.order(TASK).order, value="x", question="other"))


@case("already_answered")
def a_second_answer() -> str:
    world = world_in("waiting")
    answer = c.AnswerOrder(order=world.order(TASK).order, value="yes", question="go")
    world.ok(answer)
    return refused(world, answer)


def _limited(state: str, **limits: int) -> World:
    world = world_in(state)
    world.limits = Limits(**limits)
    return world


@case("too_large")
def a_payload_past_its_bound() -> str:
    world = _limited("active/running", checkpoint_bytes_max=2)
    return refused(world, world.checkpoint(attempt(world)))


@case("too_large")
def more_artifacts_of_a_checkpoint_than_its_bound() -> str:
    world = _limited("active/running", artifacts_per_checkpoint_max=0)
    return refused(world, world.checkpoint(attempt(world), artifacts=(artifact("x"),)))


@case("too_large")
def one_checkpoint_too_many() -> str:
    world = _limited("active/running", checkpoints_per_order_max=0)
    return refused(world, world.checkpoint(attempt(world)))


@case("too_large")
def one_kept_file_too_many() -> str:
    world = _limited("active/running", artifacts_per_attempt_max=0)
    return refused(world, world.kept(attempt(world)))


@case("stale_fence")
def a_charge_under_a_fence_that_nobody_had() -> str:
    world = world_in("active/running")
    return refused(world, world.charge(attempt(world), "r", fence=9, calls=1))


@case("out_of_range")
def a_charge_of_the_kernels_own() -> str:
    world = world_in("active/running")
    return refused(world, world.charge(attempt(world), "r", provider="kernel", calls=1))


@case("out_of_range")
def a_charge_without_a_receipt() -> str:
    world = world_in("active/running")
    return refused(world, world.charge(attempt(world), "", calls=1))


@case("out_of_range")
def a_charge_of_nothing() -> str:
    world = world_in("active/running")
    return refused(world, world.charge(attempt(world), "r"))


@case("out_of_range")
def a_charge_of_time() -> str:
    world = world_in("active/running")
    return refused(world, world.charge(attempt(world), "r", time_us=1))


@case("too_large")
def a_receipt_with_a_long_name() -> str:
    world = world_in("active/running")
    return refused(world, world.charge(attempt(world), "r" * 508, calls=1))


@case("out_of_range")
def a_child_without_a_name() -> str:
    world = world_in("active/running")
    return refused(world, world.child(attempt(world), draft("No Name")))


@case("out_of_range")
def a_child_that_is_handed_files() -> str:
    world = world_in("active/with a child")
    handed = (c.FromDraft(task="part", files=("x",)),)
    return refused(world, world.child(attempt(world), draft("two", "part", handed=handed)))


@case("dependency_missing")
def a_child_that_needs_a_stranger() -> str:
    world = world_in("active/running")
    return refused(world, world.child(attempt(world), draft("two", "first")))


@case("dependency_missing")
def a_child_that_needs_an_order_by_id() -> str:
    world = world_in("active/with a child")
    needed = group("required", world.order("first").order, ids=True)
    return refused(world, world.child(attempt(world), draft("two", needed)))


@case("executor_unsupported")
def a_child_that_no_executor_has() -> str:
    world = world_in("active/running")
    return refused(world, world.child(attempt(world), draft("two", work_kind="model/1")))


@case("impossible_budget")
def a_child_past_its_parent() -> str:
    world = world_in("active/running")
    return refused(world, world.child(attempt(world), draft("two", attempts=9)))


@case("child_exceeds")
def a_child_of_a_lower_class() -> str:
    world = world_in("active/running")
    return refused(world, world.child(attempt(world), draft("two", classification="public")))


@case("child_exceeds")
def a_child_with_a_variable_more() -> str:
    world = world_in("active/running")
    return refused(world, world.child(attempt(world), draft("two", environment=("HOME",))))


@case("child_exceeds")
def a_child_that_may_do_more() -> str:
    world = world_in("active/running")
    return refused(world, world.child(attempt(world), draft("two", may=("workspace.write", "net"))))


@case("child_exceeds")
def a_child_with_effects() -> str:
    world = world_in("active/running")
    return refused(world, world.child(attempt(world), draft("two", effects="declared")))


@case("child_exceeds")
def a_child_before_its_parent() -> str:
    world = world_in("active/running")
    return refused(world, world.child(attempt(world), draft("two", priority="high")))


@case("too_large")
def one_receipt_too_many() -> str:
    world = _limited("active/running", charges_per_attempt_max=0)
    return refused(world, world.charge(attempt(world), "r", calls=1))


@case("too_large")
def more_currencies_than_anybody_pays_in() -> str:
    world = world_in("active/running")
    money = {f"money_micros:A{chr(65 + number)}A": 1 for number in range(17)}
    return refused(world, world.charge(attempt(world), "r", **money))


@case("out_of_range")
def a_task_named_like_a_child() -> str:
    return submit(draft("a"), draft("a.kid"))


@case("too_large")
def one_child_too_many() -> str:
    world = _limited("active/with a child", children_max=1)
    return refused(world, world.child(attempt(world), draft("two", attempts=1)))


@case("too_large")
def a_child_too_deep() -> str:
    world = _limited("active/running", children_depth_max=0)
    return refused(world, world.child(attempt(world), draft("two", attempts=1)))


@case("too_large")
def a_child_past_the_orders_of_its_plan() -> str:
    world = _limited("active/running", plan_orders_max=2)
    return refused(world, world.child(attempt(world), draft("two", attempts=1)))


@case("plan_cancelled")
def a_child_in_a_plan_whose_cancel_is_on_its_way() -> str:
    world = World(Limits(cancel_per_batch=1))
    plan = world.submit(draft("x"), draft(TASK))
    world.ok(world.event(world.activate(TASK)))
    world.ok(c.CancelPlan(plan=plan))
    return refused(world, world.child(attempt(world), draft("two", attempts=1)))


@case("attempt_state")
def a_yield_of_what_has_not_begun() -> str:
    world = world_in("active/leased")
    return refused(world, world.yielding(attempt(world), question="go"))


@case("out_of_range")
def a_wait_for_nothing() -> str:
    world = world_in("active/running")
    return refused(world, world.yielding(attempt(world)))


@case("out_of_range")
def a_question_without_a_name() -> str:
    world = world_in("active/running")
    return refused(world, world.yielding(attempt(world), question="No Name"))


@case("out_of_range")
def a_wait_for_a_strangers_end() -> str:
    world = world_in("active/running")
    return refused(world, world.yielding(attempt(world), orders=(world.order("first").order,)))


@case("out_of_range")
def a_wait_without_end() -> str:
    world = world_in("active/running")
    assert refused(world.fork(), world.yielding(attempt(world), after_us=365 * DAY_US)) == ""
    return refused(world, world.yielding(attempt(world), after_us=365 * DAY_US + 1))


@case("out_of_range")
def a_yield_after_a_year() -> str:
    world = world_in("active/running")
    assert refused(world.fork(), world.yielding(attempt(world), question="go", duration_us=365 * DAY_US)) == ""
    return refused(world, world.yielding(attempt(world), question="go", duration_us=365 * DAY_US + 1))


@case("spec_mismatch")
def a_yield_of_another_order() -> str:
    world = world_in("active/running")
    return refused(world, replace(world.yielding(attempt(world), question="go"), spec=DIGEST))


@case("spec_mismatch")
def a_yield_with_other_inputs() -> str:
    world = world_in("active/running")
    return refused(world, replace(world.yielding(attempt(world), question="go"), input_set="sha256:" + "3" * 64))


@case("not_found")
def a_yield_of_an_attempt_that_is_not_there() -> str:
    world = world_in("active/running")
    return refused(world, replace(world.yielding(attempt(world), question="go"), attempt="attempt_x"))


@case("stale_fence")
def a_yield_under_a_fence_that_nobody_had() -> str:
    world = world_in("active/running")
    return refused(world, world.yielding(attempt(world), question="go", fence=9))


@case("too_large")
def an_answer_past_its_bound() -> str:
    world = world_in("waiting")
    return refused(world, c.AnswerOrder(order=world.order(TASK).order, value="x" * 65_537))


@case("not_found")
def an_answer_to_an_order_that_is_not_there() -> str:
    return refused(World(), c.AnswerOrder(order="order_x", value="x"))


@case("not_due")
def a_wait_that_no_time_ends() -> str:
    world = world_in("waiting")
    order = world.order(TASK)
    return refused(world, c.EndWait(order=order.order, expected=order.version))


@case("not_due")
def a_wait_whose_time_has_not_come() -> str:
    world = world_in("waiting/time")
    order = world.order(TASK)
    return refused(world, c.EndWait(order=order.order, expected=order.version))


@case("spec_mismatch")
def other_inputs() -> str:
    world = world_in("reserved")
    return refused(world, world.activation(attempt(world), input_set="sha256:" + "3" * 64))


@case("spec_mismatch")
def files_that_nobody_handed_over() -> str:
    world = world_in("reserved")
    return refused(world, world.activation(attempt(world), handed=(artifact("x"),)))


@case("spec_mismatch")
def another_constitution_in_force() -> str:
    world = world_in("reserved")
    value = replace(world.live.values[AUTHORITY], constitution_version=2)
    for fold in (world.live, world.replayed):
        fold.values[AUTHORITY] = value
    return refused(world, world.activation(attempt(world)))


@case("out_of_range")
def a_workers_name_used_again() -> str:
    world = World()
    name = world.worker()
    return refused(world, c.EnrolWorker(worker=name, host="h", boot_id="b", pid=2, executors=()))


@case("too_large")
def a_renewal_of_too_many() -> str:
    world = World(Limits(renewal_attempts_max=1))
    held = c.Held(attempt="x", fence=1)
    return refused(world, c.RenewLeases(worker=world.worker(), attempts=(held, held)))


@case("rejected_stale")
def an_event_under_a_dead_fence() -> str:
    world = world_in("cancelled/live")
    return refused(world, world.event(attempt(world), "heartbeat_observed"))


@case("spec_mismatch")
def an_event_about_another_spec() -> str:
    world = world_in("active/running")
    return refused(world, world.event(attempt(world), spec=DIGEST))


# Finish


@case("spec_mismatch")
def a_result_about_other_inputs() -> str:
    world = world_in("active/running")
    return refused(world, world.result(attempt(world), input_set="sha256:" + "3" * 64))


@case("too_large")
def a_result_of_too_many_files() -> str:
    world = world_in("active/running")
    world.limits = Limits(artifacts_per_result_max=1)
    return refused(world, world.result(attempt(world), artifacts=(artifact("a"), artifact("b"))))


@case("too_large")
def a_result_of_too_many_receipts() -> str:
    world = world_in("active/running")
    world.limits = Limits(receipts_per_result_max=0)
    return refused(world, world.result(attempt(world)))


@case("out_of_range")
def a_receipt_named_twice() -> str:
    world = world_in("active/running")
    one = Usage(receipt="r", provider="p", amounts={"calls": 1})
    return refused(world, world.result(attempt(world), usage=(one, one)))


@case("out_of_range")
def a_receipt_in_apples() -> str:
    world = world_in("active/running")
    return refused(
        world, world.result(attempt(world), usage=(Usage(receipt="r", provider="p", amounts={"apples": 1}),))
    )


@pytest.mark.parametrize("state", ["active/running", "result_pending/unverified"])
def test_a_duration_past_every_bound_is_refused(state: str) -> None:
    world = world_in(state)
    known = attempt(world)
    too_long = 366 * DAY_US
    commands: list[Any] = [
        c.ReportStopped(reason="drained", attempt=known.attempt, fence=known.fence, duration_us=too_long)
    ]
    if state == "active/running":
        facts: ResultFacts = world.facts_of(known, usage=())
        commands.append(world.result(known, replace(facts, duration_us=too_long)))
    else:
        commands = [
            c.RecordVerification(attempt=known.attempt, result=known.result, outcome="passed", duration_us=too_long)
        ]
    for command in commands:
        assert refused(world, command) == "out_of_range"


@case("rejected_conflict")
def another_result_of_one_attempt() -> str:
    world = world_in("result_pending")
    return refused(world, world.result(attempt(world), exit_code=3))


@case("rejected_stale")
def a_result_under_a_dead_fence() -> str:
    world = world_in("cancelled/live")
    return refused(world, world.result(attempt(world)))


@case("stale_fence")
def a_stop_under_another_fence() -> str:
    world = world_in("active/running")
    return refused(world, c.ReportStopped(reason="drained", attempt=attempt(world).attempt, fence=9, duration_us=1))


@case("verification_missing")
def an_application_before_its_verification() -> str:
    world = world_in("result_pending/unverified")
    return refused(world, c.ApplyResult(attempt=attempt(world).attempt))


@case("verification_known")
def a_second_verification() -> str:
    world = world_in("result_pending/verified")
    known = attempt(world)
    return refused(
        world, c.RecordVerification(attempt=known.attempt, result=known.result, outcome="failed", duration_us=1)
    )


@case("spec_mismatch")
def a_verification_of_another_result() -> str:
    world = world_in("result_pending/unverified")
    return refused(
        world, c.RecordVerification(attempt=attempt(world).attempt, result=DIGEST, outcome="passed", duration_us=1)
    )


@case("attempt_state")
def a_verification_that_nobody_waits_for() -> str:
    world = world_in("failed")
    known = attempt(world)
    return refused(
        world, c.RecordVerification(attempt=known.attempt, result=known.result, outcome="passed", duration_us=0)
    )


@case("attempt_state")
def an_application_without_a_result() -> str:
    world = world_in("active/running")
    return refused(world, c.ApplyResult(attempt=attempt(world).attempt))


# Recovery


@case("attempt_state")
def an_expiry_of_what_has_reported() -> str:
    world = world_in("result_pending")
    world.advance(60 * SECOND)
    return refused(world, c.ExpireAttempt(attempt=attempt(world).attempt, expected=99))


@case("not_due")
def an_expiry_too_early() -> str:
    world = world_in("active/running")
    return refused(world, world.expiry(attempt(world)))


@case("not_due")
def an_expiry_within_the_uncertainty() -> str:
    world = world_in("active/running")
    world.uncertainty_us = SECOND
    world.advance(10 * SECOND)
    return refused(world, world.expiry(attempt(world)))


@case("clock_grace")
def an_expiry_right_after_nobody_looked() -> str:
    world = world_in("active/running")
    world.advance(30 * SECOND, step_us=30 * SECOND)
    return refused(world, world.expiry(attempt(world)))


@case("stale_fence")
def a_proof_about_another_holder() -> str:
    world = world_in("active/running")
    known = attempt(world)
    return refused(
        world,
        c.ProveHolderGone(
            attempt=known.attempt, fence=9, host=known.host, boot_id=known.boot_id, basis="locks_free", evidence=""
        ),
    )


@pytest.mark.parametrize(
    ("host", "boot_id", "basis"),
    [("host-2", "boot-1", "locks_free"), ("host-1", "boot-2", "locks_free"), ("host-1", "boot-1", "later_boot"),
     ("host-2", "boot-2", "later_boot")],
)  # fmt: skip
def test_w17_a_proof_from_elsewhere_proves_nothing(host: str, boot_id: str, basis: Any) -> None:
    world = world_in("active/running")
    known = attempt(world)
    command = c.ProveHolderGone(
        attempt=known.attempt, fence=known.fence, host=host, boot_id=boot_id, basis=basis, evidence=""
    )
    assert refused(world, command) == "holder_alive"


@case("holder_alive")
def the_holder_lives_on() -> str:
    world = world_in("active/running")
    known = attempt(world)
    return refused(
        world,
        c.ProveHolderGone(
            attempt=known.attempt, fence=1, host="elsewhere", boot_id="b", basis="locks_free", evidence=""
        ),
    )


@case("hold_state")
def a_settlement_of_what_is_settled() -> str:
    world = world_in("applied")
    hold = world.hold_of(world.order(TASK))
    return refused(world, c.SettleHold(hold=hold.hold, expected=hold.version))


def _names() -> set[str]:
    """Codes in the source of the deciders."""
    found: set[str] = set()
    for path in Path(decide.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Refusal":
                found |= {
                    keyword.value.value
                    for keyword in node.keywords
                    if keyword.arg == "code" and isinstance(keyword.value, ast.Constant)
                }
    chosen = {"lost_race", "grant_audience", "grant_operation", "grant_expired"}  # by an expression, or by `objection`
    return found | chosen | {f"{kind}_state" for kind in ("attempt", "hold", "order")}


@pytest.mark.parametrize(("code", "function"), [(c, f) for c, _, f in CASES], ids=[n for _, n, _ in CASES])
def test_every_refusal_is_given_where_it_belongs(code: str, function: Case) -> None:
    assert function() == code


def test_every_code_of_the_deciders_has_a_case() -> None:
    assert {code for code, _, _ in CASES} == _names()


def test_who_asks_comes_before_what_is_asked() -> None:
    """Scope, principal, grant, decision, then the stage: the first that applies is told, and no later one."""
    nothing = c.CancelOrder(order="order_x")
    world = World()
    world.denied.add("cancel_work/work_order")
    assert world.refused(nothing, principal="principal_" + "2" * 32, grant=DIGEST) == "unauthenticated"
    assert world.refused(nothing, grant=DIGEST) == "grant_missing"
    assert world.refused(nothing) == "denied"
    world = World()
    assert world.refused(nothing, principal=ME) == "not_found"
