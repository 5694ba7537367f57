"""Results, verdicts, retries and what they cost: W7, W16, W17, W18; the field's cases 01, 02, 03, 29, 40."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import pytest
from msgspec.structs import replace

from fencepost.core import commands as c
from fencepost.core.limits import Limits
from fencepost.core.reasons import FAILURES
from fencepost.core.records.attempt import AttemptResult, LateRecord, ResultApplication, ValidationReceipt
from fencepost.core.records.budget import HoldAdjusted, HoldSettled
from fencepost.core.records.common import FailureClass, Usage
from fencepost.core.records.plan import Acceptance, Retry
from fencepost.core.state import AttemptState
from tests.support.states import gone, world_in
from tests.support.world import DIGEST, SECOND, World, artifact, draft, used

CLASSES: tuple[FailureClass, ...] = (
    "deterministic_input",
    "policy",
    "budget",
    "transient_dependency",
    "executor",
    "validation",
    "concurrency_conflict",
    "stale_result",
    "ambiguous_external_effect",
    "terminal",
)


def attempt(world: World, task: str = "a") -> AttemptState:
    return world.attempt_of(world.order(task))


def bodies(world: World, kind: type) -> list[Any]:
    return [fact.body for fact in world.facts if isinstance(fact.body, kind)]


def judged(accept: Acceptance, *, outputs: tuple[str, ...] = (), verdict: Any = None, **facts: Any) -> tuple[str, str]:
    """(state, reason) of an order whose only attempt reported these facts."""
    world = World()
    world.submit(draft("a", accept=accept, outputs=outputs))
    known = world.activate("a")
    world.ok(world.result(known, **facts))
    if verdict:
        world.ok(
            c.RecordVerification(
                attempt=known.attempt, result=attempt(world).result, outcome=verdict, duration_us=SECOND
            )
        )
    world.ok(c.ApplyResult(attempt=known.attempt))
    world.check()
    return world.order("a").state, world.order("a").reason


def checked(path: str, passed: bool) -> ValidationReceipt:
    return ValidationReceipt(check="schema", subject=path, passed=passed)


def test_w7_the_reducer_judges_evidence_and_no_claim() -> None:
    files = Acceptance(files=("out/*.xml",))
    schema = Acceptance(schemas={"s.json": DIGEST})
    verify = Acceptance(verify=("check",))
    found = (artifact("out/a.xml"),)
    assert judged(Acceptance()) == ("applied", "applied")
    assert judged(Acceptance(exit_code=3)) == ("failed", "exit_code_unexpected")
    assert judged(Acceptance(), exit_code=None) == ("failed", "exit_code_unexpected")
    assert judged(Acceptance(exit_code=3), exit_code=3) == ("applied", "applied")
    assert judged(files, outputs=("out/**",)) == ("failed", "outputs_missing")
    assert judged(files, outputs=("out/**",), artifacts=found) == ("applied", "applied")
    assert judged(Acceptance(), artifacts=found) == ("failed", "outputs_refused"), "only declared outputs count"
    assert judged(schema, outputs=("s.json",)) == ("failed", "schema_failed")
    assert judged(schema, outputs=("s.json",), validation=(checked("s.json", False),)) == ("failed", "schema_failed")
    assert judged(schema, outputs=("s.json",), validation=(checked("s.json", True),)) == ("applied", "applied")
    for verdict, reason in (("passed", "applied"), ("failed", "verifier_failed"), ("error", "verifier_error")):
        assert judged(verify, verdict=verdict)[1] == reason
    assert judged(Acceptance(), failure="executor", message_code="timed_out") == ("failed", "result_invalid")


def test_w13_a_failure_names_a_registered_cause_whatever_its_sender_says() -> None:
    for code in ("", "timed_out", "made_up", "applied", "not_found"):
        expected = code if code in FAILURES else "executor_failed"
        assert judged(Acceptance(), outcome="failed", message_code=code) == ("failed", expected)


def test_w7_result_and_application_are_separate_and_name_what_was_checked() -> None:
    world = world_in("result_pending/verified")
    known = attempt(world)
    order = world.order("a")
    world.ok(c.ApplyResult(attempt=known.attempt))
    body = bodies(world, ResultApplication)[0]
    assert body.applied_events == (known.descriptor_seq, known.result_seq, known.verification_seq)
    assert (body.checked.spec, body.checked.generation, body.checked.input_set) == (order.spec, 1, known.input_set)
    assert body.projection.startswith("sha256:")
    assert [world.order("a").result_seq, attempt(world).state] == [known.result_seq, "accepted"]
    assert world.order("a").account.charged == {"attempts": 1, "time_us": 2 * SECOND}, "the verifier's time included"


def test_w17_an_exact_duplicate_gets_the_first_application_and_another_result_is_a_conflict() -> None:
    world = world_in("applied")
    known = attempt(world)
    told = world.ok(world.result(known))
    assert told == {"attempt": known.attempt, "duplicate": True, "application": known.application_seq}
    assert world.ok(c.ApplyResult(attempt=known.attempt))["application"] == known.application_seq
    assert world.refused(world.result(known, exit_code=5)) == "rejected_conflict"
    assert world.order("a").state == "applied", "a later contradiction is kept and moves nothing"
    assert len(bodies(world, AttemptResult)) == len(bodies(world, ResultApplication)) == 1
    assert [body.disposition for body in bodies(world, LateRecord)] == ["rejected_conflict"]
    assert world.refused(world.result(known, exit_code=5)) == "rejected_conflict"
    assert len(bodies(world, LateRecord)) == 1, "kept once"
    world.check()


def test_w17_two_results_before_an_application_wait_for_a_person_and_both_are_paid() -> None:
    world = world_in("result_pending")
    known = attempt(world)
    more = (used(known, time_us=SECOND), used(known, receipt="c", provider="gateway", calls=7))
    assert world.refused(world.result(known, exit_code=2, usage=more)) == "rejected_conflict"
    order = world.order("a")
    assert (order.state, order.reason) == ("conflict", "results_differ")
    assert order.account.held == {} and order.account.charged == {"attempts": 1, "time_us": SECOND, "calls": 7}
    assert world.refused(c.ApplyResult(attempt=known.attempt)) == "attempt_state"
    assert world.order("after").state == "blocked_dependency", "a conflict is no end"
    world.ok(c.CancelOrder(order=order.order))
    assert attempt(world).state == "rejected_conflict" and world.order("after").state == "dependency_failed"
    assert world.order("a").account.charged == order.account.charged
    world.check()


# W16


@pytest.mark.parametrize("failure", CLASSES)
@pytest.mark.parametrize("declared", [True, False])
def test_w16_only_declared_transient_classes_retry(failure: FailureClass, declared: bool) -> None:
    world = World()
    world.submit(draft("a", retry=declared))
    order = world.fail("a", failure=failure)
    retries = declared and failure in ("executor", "validation", "transient_dependency")
    assert order.state == ("retry_wait" if retries else "failed")
    assert attempt(world).state == ("retryable_failed" if retries else "failed")
    assert order.failures == 1 and bodies(world, ResultApplication)[0].failure == failure


def test_w16_a_class_that_the_policy_does_not_name_fails() -> None:
    world = World()
    world.submit(draft("a", retry=Retry(on=("validation",), backoff_us=SECOND, backoff_max_us=SECOND)))
    assert world.fail("a").state == "failed"


def test_w16_backoff_doubles_to_its_bound_with_recorded_jitter() -> None:
    world = World()
    world.submit(draft("a", attempts=9, retry=Retry(on=("executor",), backoff_us=SECOND, backoff_max_us=5 * SECOND)))
    for failures, delay in enumerate((1, 2, 4, 5, 5), start=1):
        order = world.fail("a")
        backoff = bodies(world, ResultApplication)[-1].backoff
        assert (backoff.failures, backoff.delay_us) == (failures, delay * SECOND)
        assert 0 <= backoff.jitter_us <= delay * SECOND // 10
        assert order.retry_due_us == backoff.due_us == world.now_us + backoff.delay_us + backoff.jitter_us
        assert world.refused(c.EndBackoff(order=order.order, expected=order.version)) == "not_due"
        world.advance(6 * SECOND)
        world.ok(c.EndBackoff(order=order.order, expected=order.version))
    world.check()


def test_w16_a_retry_never_passes_attempts_budget_deadline_or_cancel() -> None:
    world = World()
    budget = {"attempts": 3, "time_us": 40 * SECOND}
    world.submit(draft("a", ceilings=budget, retry=True), draft("b", retry=True), deadline_us=20 * SECOND)
    order = world.fail("a", duration_us=11 * SECOND)
    assert (order.state, order.reason) == ("failed", "exit_code_unexpected"), "29 s cannot carry 30 s"
    known = world.activate("b")
    world.ok(world.result(known, outcome="failed", failure="executor", message_code="timed_out"))
    world.advance(20 * SECOND)
    world.ok(c.ApplyResult(attempt=known.attempt))
    assert world.order("b").state == "failed"


# case-01, case-02, case-03: money


def _late(world: World, known: AttemptState, **amounts: int) -> c.ReportResult:
    return world.result(known, usage=(used(known, receipt="late", provider="gateway", **amounts),))


STEPS = {
    "sweep": lambda world, known: world.expiry(known),
    "receipt": lambda world, known: _late(world, known, time_us=SECOND, calls=40),
    "again": lambda world, known: _late(world, known, time_us=SECOND, calls=40),
}


@pytest.mark.parametrize("chosen", sorted(permutations(STEPS)), ids="-".join)
@pytest.mark.parametrize("released", [False, True], ids=["", "finished-by-another"])
def test_case_01_a_receipt_and_a_sweep_in_every_order_book_forty_once(chosen: tuple[str, ...], released: bool) -> None:
    world = World()
    world.submit(draft("a", ceilings={"attempts": 3, "calls": 1_000}, per_attempt={"calls": 100}))
    known = world.activate("a")
    world.advance(30 * SECOND)
    for name in chosen:
        world.refused(STEPS[name](world, known))
        world.check()
        if released and name == "sweep":
            world.finish("a", 2)
    hold = world.live.values[known.hold]
    assert (hold.state, hold.held) == ("settled", {})
    assert hold.charged == {"attempts": 1, "time_us": 10 * SECOND, "calls": 40}
    account = world.order("a").account
    assert account.held == {} and account.charged["calls"] == 40
    settled = [fact for fact in world.facts if isinstance(fact.body, HoldSettled) and fact.subject == known.hold]
    adjusted = [fact for fact in world.facts if isinstance(fact.body, HoldAdjusted) and fact.subject == known.hold]
    assert len(settled) == 1 and len(adjusted) == (chosen[0] == "sweep")


def test_case_01_a_receipt_that_came_between_lapse_and_cancel_ends_the_hold_at_once() -> None:
    world = world_in("active/running")
    known = attempt(world)
    world.advance(10 * SECOND)
    assert world.refused(_late(world, known, time_us=4 * SECOND, calls=2)) == "rejected_stale"
    world.ok(c.CancelOrder(order=known.order))
    hold = world.live.values[known.hold]
    assert (hold.state, hold.charged) == ("settled", {"attempts": 1, "time_us": 4 * SECOND, "calls": 2})
    world.check()


def test_case_01_the_hold_of_a_cancelled_attempt_stays_until_its_facts_come_or_a_deadline_is_proved() -> None:
    for arrives in (True, False):
        world = world_in("cancelled/live")
        known = attempt(world)
        hold = world.live.values[known.hold]
        assert (hold.state, hold.held) == ("unsettled", {"time_us": 30 * SECOND})
        assert world.refused(c.SettleHold(hold=hold.hold, expected=hold.version)) == "not_due"
        if arrives:
            assert world.refused(world.result(known, duration_us=7 * SECOND)) == "rejected_stale"
            expected = 7 * SECOND
        else:
            world.advance(20 * SECOND)
            world.ok(c.SettleHold(hold=hold.hold, expected=hold.version))
            assert bodies(world, HoldSettled)[-1].flagged
            expected = 30 * SECOND
        hold = world.live.values[known.hold]
        assert (hold.state, hold.held, hold.charged) == ("settled", {}, {"attempts": 1, "time_us": expected})
        late = c.ReportStopped(reason="drained", attempt=known.attempt, fence=known.fence, duration_us=9 * SECOND)
        assert world.refused(late) in ("rejected_stale", "stale_fence")
        world.check()


def test_case_01_a_stop_told_late_is_charged_once_and_credits_nothing() -> None:
    world = world_in("cancelled/live")
    known = attempt(world)
    late = c.ReportStopped(reason="drained", attempt=known.attempt, fence=known.fence, duration_us=3 * SECOND)
    assert [world.refused(late), world.refused(late)] == ["rejected_stale", "rejected_stale"]
    assert [(body.what, body.duration_us) for body in bodies(world, LateRecord)] == [("stop", 3 * SECOND)], "kept once"
    assert world.order("a").account.charged == {"attempts": 1, "time_us": 3 * SECOND}
    assert world.refused(world.result(known, duration_us=3 * SECOND)) == "rejected_stale"
    assert world.order("a").account.charged == {"attempts": 1, "time_us": 3 * SECOND}, "one receipt, one charge"
    world.check()


@pytest.mark.parametrize(
    ("usage", "charged"),
    [
        (None, 10),  # no receipt in this dimension: known zero for calls, measured for time
        ({"calls": 0}, 10),
        ({"calls": 4}, 10),
        ("unknown", 10),
    ],
)
@pytest.mark.parametrize("succeeds", [True, False])
def test_case_02_known_zero_known_amount_and_unknown_are_three_facts(usage: Any, charged: int, succeeds: bool) -> None:
    world = World()
    world.submit(draft("a", ceilings={"attempts": 1, "calls": 9}))
    known = world.activate("a")
    receipts: tuple[Usage, ...] = (used(known, time_us=charged * SECOND),)
    if usage == "unknown":
        receipts += (Usage(receipt="r", provider="gateway", amounts={"calls": 2}, unknown=("calls",)),)
    elif usage is not None:
        receipts += (used(known, receipt="r", provider="gateway", **usage),)
    failing = {} if succeeds else {"outcome": "failed", "failure": "executor", "message_code": "timed_out"}
    world.ok(world.result(known, usage=receipts, **failing))
    world.ok(c.ApplyResult(attempt=known.attempt))
    calls = 9 if usage == "unknown" else (usage or {}).get("calls", 0)
    account = world.order("a").account
    assert account.charged.get("calls", 0) == calls and account.charged["time_us"] == charged * SECOND
    assert account.held == {} and bodies(world, HoldSettled)[-1].flagged == (usage == "unknown")
    assert sum(isinstance(fact.body, HoldSettled) for fact in world.facts) == 1, "charged and freed in one record"


def test_case_02_time_without_a_receipt_is_what_was_measured_and_never_nothing() -> None:
    world = World()
    world.submit(draft("a"))
    known = world.activate("a")
    world.ok(world.result(known, usage=(), duration_us=6 * SECOND))
    world.ok(c.ApplyResult(attempt=known.attempt))
    assert world.order("a").account.charged == {"attempts": 1, "time_us": 6 * SECOND}


def test_case_02_a_charge_is_booked_as_it_is_and_nothing_new_is_held_below_zero() -> None:
    world = World()
    plan = world.submit(draft("a", attempts=1), draft("b"), ceilings={"time_us": 60 * SECOND})
    world.finish("a", duration_us=100 * SECOND)
    account = world.live.values[plan].account
    assert account.charged["time_us"] == 100 * SECOND
    order = world.order("b")
    reserve = c.Reserve(order=order.order, expected=order.version, worker=world.worker())
    assert world.refused(reserve) == "budget_exhausted"
    world.check()


def test_case_02_money_and_tokens_are_charged_per_dimension() -> None:
    world = World()
    budget = {"attempts": 2, "money_micros:USD": 5, "tokens_input": 10}
    world.submit(draft("a", ceilings=budget))
    known = world.activate("a")
    assert world.live.values[known.hold].held == {"time_us": 30 * SECOND, "money_micros:USD": 3, "tokens_input": 5}
    spent = {"time_us": 1, "money_micros:USD": 4, "tokens_input": 37}
    usage = (Usage(receipt="r", provider="gateway", amounts=spent),)
    world.ok(world.result(known, outcome="failed", failure="executor", message_code="timed_out", usage=usage))
    world.ok(c.ApplyResult(attempt=known.attempt))
    assert world.order("a").account.charged == {"attempts": 1, **spent}
    assert world.order("a").state == "failed"


def test_case_03_the_replaced_worker_reports_last_and_changes_nothing_but_the_bill() -> None:
    world = World()
    world.submit(draft("a", attempts=3, retry=True), draft("b", "a"))
    world.fail("a")
    world.ok(c.RetryOrder(order=world.order("a").order))
    stalled = world.activate("a", 1)
    world.advance(10 * SECOND)
    world.ok(world.expiry(stalled))
    order = world.fail("a", 2)
    assert (order.state, world.order("b").state) == ("failed", "dependency_failed")
    spent = (used(stalled, time_us=12 * SECOND), used(stalled, receipt="c", provider="gateway", calls=3))
    late = [
        world.result(stalled, outcome="failed", failure="executor", message_code="timed_out", usage=spent),
        world.result(stalled, usage=spent),
        world.event(stalled, "heartbeat_observed"),
        c.ReportStopped(reason="drained", attempt=stalled.attempt, fence=stalled.fence, duration_us=12 * SECOND),
    ]
    assert [world.refused(command) for command in late] == ["rejected_stale"] * 4
    assert world.ok(world.renewal(stalled))["lost"][0]["code"] == "stale_fence"
    after = world.order("a")
    assert (after.state, after.failures, after.reason) == (order.state, order.failures, order.reason)
    assert after.account.charged == {"attempts": 3, "time_us": 14 * SECOND, "calls": 3}, "1 + 12 + 1 seconds, once"
    world.check()


def test_case_03_a_fence_that_was_never_the_holders_pays_nothing() -> None:
    world = world_in("active/running")
    known = attempt(world)
    forged = c.ReportResult(attempt=known.attempt, fence=7, spec=world.order("a").spec, facts=world.facts_of(known))
    assert world.refused(forged) == "stale_fence"
    assert world.order("a").account.charged == {"attempts": 1} and attempt(world).state == "running"
    assert not attempt(world).late, "a fence that was nobody's takes no room"


def test_case_03_a_forged_fence_pays_nothing_after_the_end_either() -> None:
    world = world_in("cancelled/live")
    known = attempt(world)
    facts = world.facts_of(known, usage=(used(known, receipt="forged", provider="x", calls=9),))
    forged = c.ReportResult(attempt=known.attempt, fence=7, spec=world.order("a").spec, facts=facts)
    assert world.refused(forged) == "stale_fence"
    assert world.hold_of(world.order("a")).state == "unsettled" and world.order("a").account.charged == {"attempts": 1}


def test_w16_a_failed_result_needs_no_verifier() -> None:
    world = World()
    world.submit(draft("a", accept=Acceptance(verify=("check",))))
    assert world.fail("a").reason == "exit_code_unexpected"


def test_w16_a_policy_that_names_what_is_not_transient_retries_nothing() -> None:
    world = World()
    world.submit(draft("a", retry=True))
    order = world.order("a")
    retry = Retry(on=("policy",), backoff_us=SECOND, backoff_max_us=SECOND)
    for fold in (world.live, world.replayed):
        fold.values[order.order] = replace(order, terms=replace(order.terms, retry=retry))
    assert world.fail("a", failure="policy").state == "failed"


# case-29, case-40


def test_case_29_a_verdict_names_the_exact_result_and_a_stale_one_is_never_applied() -> None:
    world = world_in("result_pending/unverified")
    known = attempt(world)
    verdict = c.RecordVerification(attempt=known.attempt, result=DIGEST, outcome="passed", duration_us=SECOND)
    assert world.refused(verdict) == "spec_mismatch"
    assert world.refused(c.ApplyResult(attempt=known.attempt)) == "verification_missing", "no evidence, no acceptance"
    world.refused(world.result(known, exit_code=1))
    right = c.RecordVerification(attempt=known.attempt, result=known.result, outcome="passed", duration_us=SECOND)
    assert world.order("a").state == "conflict"
    assert world.refused(right) == "rejected_stale", "evidence changed between request and verdict"
    assert world.order("a").account.charged["time_us"] == 2 * SECOND, "its time is spent all the same"
    assert world.refused(right) == "attempt_state"
    assert attempt(world).verification == ""
    world.check()


def test_case_29_of_two_verdicts_the_first_counts() -> None:
    world = world_in("result_pending/verified")
    known = attempt(world)
    second = c.RecordVerification(attempt=known.attempt, result=known.result, outcome="failed", duration_us=SECOND)
    assert world.refused(second) == "verification_known"
    world.ok(c.ApplyResult(attempt=known.attempt))
    assert world.order("a").state == "applied"


def test_case_40_a_result_past_its_bounds_is_refused_whole_and_one_within_is_taken() -> None:
    limits = Limits(artifacts_per_result_max=2, receipts_per_result_max=2)
    for count, code in ((2, ""), (3, "too_large")):
        world = World(limits)
        world.submit(draft("a", outputs=("*",)))
        known = world.activate("a")
        assert world.refused(world.result(known, artifacts=tuple(artifact(str(n)) for n in range(count)))) == code
        usage = tuple(used(known, receipt=str(n), calls=1) for n in range(count))
        again = world_in("active/running")
        again.limits = limits
        assert again.refused(again.result(attempt(again), usage=usage)) == code


def test_w18_a_lost_attempts_time_is_charged_at_most_as_it_was_held() -> None:
    world = World()
    world.submit(draft("a", attempt_time_us=2 * SECOND, ceilings={"attempts": 3, "time_us": 6 * SECOND}))
    known = world.activate("a")
    world.advance(10 * SECOND)
    world.ok(world.expiry(known))
    assert world.order("a").account.charged == {"attempts": 1, "time_us": 2 * SECOND}
    gone(world, "a")
    assert world.order("a").state == "ready", "the third attempt still fits"
