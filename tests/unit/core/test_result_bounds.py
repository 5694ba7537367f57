"""What a holder may report, at its exact bounds, and what is judged of it (W7, W16, W17)."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from fencepost.core import commands as c
from fencepost.core.decide.finish import judge
from fencepost.core.limits import Limits
from fencepost.core.reasons import Refusal
from fencepost.core.records.attempt import ResultFacts, ValidationReceipt
from fencepost.core.records.common import RETRYABLE, Usage
from fencepost.core.records.plan import Acceptance, Retry
from fencepost.core.state import AUTHORITY
from tests.support.states import TASK, world_in
from tests.support.world import DIGEST, SECOND, World, artifact, draft

LIMITS = replace(
    Limits(),
    artifacts_per_result_max=2,
    receipts_per_result_max=2,
    receipts_per_hold_max=3,
    receipt_name_bytes_max=10,
)
MOST_US = Limits().duration_max_us


def receipts(*names: str) -> tuple[Usage, ...]:
    return tuple(Usage(receipt=name, provider="shop", amounts={"calls": 1}) for name in names)


def told(world: World, command: Any) -> tuple[str, str, dict[str, str]]:
    refusal = world.decide(command).refusal
    return ("", "", {}) if refusal is None else (refusal.code, refusal.field, refusal.detail)


@pytest.mark.parametrize(
    ("taken", "past", "told_of"),
    [
        (
            {"artifacts": (artifact("a"), artifact("b"))},
            {"artifacts": (artifact("a"), artifact("b"), artifact("c"))},
            ("too_large", "/facts/artifacts", {"subject": "artifacts", "bound": "2"}),
        ),
        (
            {"usage": receipts("1", "2")},
            {"usage": receipts("1", "2", "3")},
            ("too_large", "/facts/usage", {"subject": "usage", "bound": "2"}),
        ),
        (
            {"usage": receipts("1", "2")},
            {"usage": receipts("1", "1")},
            ("out_of_range", "/facts/usage", {"subject": "each receipt", "needed": "named once"}),
        ),
        (
            {"usage": receipts("12345")},
            {"usage": receipts("123456")},
            ("too_large", "/facts/usage", {"subject": "the name of a receipt", "bound": "10 bytes"}),
        ),
        (
            {"usage": receipts('123"')},  # as it stands in a record, with a backslash before it
            {"usage": receipts('1234"')},
            ("too_large", "/facts/usage", {"subject": "the name of a receipt", "bound": "10 bytes"}),
        ),
        (
            {"usage": (Usage(receipt="1", provider="shop", amounts={}, unknown=("calls",)),)},
            {"usage": (Usage(receipt="1", provider="shop", amounts={}, unknown=("kisses",)),)},
            ("out_of_range", "/facts/usage", {"subject": "each dimension", "needed": "a registered one"}),
        ),
        (
            {"usage": (Usage(receipt="1", provider="shop", amounts={"time_us": 1}),)},
            {"usage": (Usage(receipt="1", provider="shop", amounts={"attempts": 1}),)},
            (
                "out_of_range",
                "/facts/usage",
                {"subject": "a receipt", "needed": "about what was used; the kernel alone counts attempts"},
            ),
        ),
        (
            {"duration_us": MOST_US},
            {"duration_us": MOST_US + 1},
            (
                "out_of_range",
                "/facts/duration_us",
                {"subject": "the duration", "needed": f"at most {MOST_US} us"},
            ),
        ),
    ],
    ids=["artifacts", "receipts", "names", "length", "escapes", "dimensions", "attempts", "duration"],
)
def test_w7_a_result_is_taken_at_each_bound_and_refused_past_it(
    taken: dict[str, Any], past: dict[str, Any], told_of: tuple[str, str, dict[str, str]]
) -> None:
    world = world_in("active/running")
    world.limits = LIMITS
    attempt = world.attempt_of(world.order(TASK))
    whole = {"usage": (), **taken}
    assert told(world, world.result(attempt, **whole)) == ("", "", {})
    assert told(world, world.result(attempt, **{"usage": (), **past})) == told_of


@pytest.mark.parametrize(("duration_us", "code"), [(MOST_US, ""), (MOST_US + 1, "out_of_range")])
def test_w7_so_are_a_drains_and_a_verifiers_durations(duration_us: int, code: str) -> None:
    expected = (code, "/duration_us", {"subject": "the duration", "needed": f"at most {MOST_US} us"})
    running = world_in("active/running")
    attempt = running.attempt_of(running.order(TASK))
    stopped = c.ReportStopped(reason="drained", attempt=attempt.attempt, fence=attempt.fence, duration_us=duration_us)
    assert told(running, stopped) == (expected if code else ("", "", {}))
    waiting = world_in("result_pending/unverified")
    attempt = waiting.attempt_of(waiting.order(TASK))
    verified = c.RecordVerification(
        attempt=attempt.attempt, result=attempt.result or "", outcome="passed", duration_us=duration_us
    )
    assert told(waiting, verified) == (expected if code else ("", "", {}))


def test_w17_a_drain_that_took_no_time_charges_none() -> None:
    world = world_in("active/running")
    attempt = world.attempt_of(world.order(TASK))
    world.ok(c.ReportStopped(reason="drained", attempt=attempt.attempt, fence=attempt.fence, duration_us=0))
    assert world.live.values[attempt.hold].charged == {}


def lapsed() -> World:
    """A lease that is over and that nobody has ended yet; its hold is still held."""
    world = world_in("active/running")
    world.advance(12 * SECOND)
    world.limits = LIMITS
    return world


def late(world: World, *names: str) -> tuple[str, str]:
    attempt = world.attempt_of(world.order(TASK))
    decided = world.do(world.result(attempt, usage=receipts(*names)))
    assert decided.refusal is not None
    return decided.refusal.code, str(decided.result.get("disposition", ""))


def test_w17_late_receipts_are_kept_up_to_those_that_a_hold_may_book() -> None:
    kept = ("rejected_stale", "rejected_stale")
    world = lapsed()
    assert late(world, "1", "2") == kept
    assert late(world, "2", "3") == kept, "one of them is new, and the bound is reached"
    assert late(world, "3", "4") == ("stale_fence", ""), "past the bound nothing is kept"
    assert late(world, "1", "3") == kept, "nothing new in it: kept as far as late facts are kept"
    world.limits = replace(LIMITS, late_records_per_attempt=3)
    assert late(world, "2") == ("stale_fence", "")
    world.limits = Limits()
    attempt = world.attempt_of(world.order(TASK))
    world.ok(world.expiry(attempt))
    assert world.live.values[attempt.hold].receipts == ("shop:1", "shop:2", "shop:3")


def test_w17_a_second_result_is_answered_with_what_became_of_it() -> None:
    world = world_in("result_pending")
    attempt = world.attempt_of(world.order(TASK))
    decided = world.do(world.result(attempt, duration_us=7))
    assert decided.result == {"disposition": "rejected_conflict"}


def test_w17_a_late_drain_and_a_late_verifier_are_told_nothing_more_than_that() -> None:
    world = world_in("cancelled/live")
    attempt = world.attempt_of(world.order(TASK))
    stopped = world.do(c.ReportStopped(reason="drained", attempt=attempt.attempt, fence=attempt.fence, duration_us=5))
    assert stopped.refusal is not None and stopped.refusal.code == "rejected_stale" and stopped.result == {}
    conflict = world_in("conflict")
    attempt = conflict.attempt_of(conflict.order(TASK))
    verified = conflict.do(
        c.RecordVerification(attempt=attempt.attempt, result=attempt.result or "", outcome="passed", duration_us=5)
    )
    assert verified.refusal == Refusal(code="rejected_stale", field="/attempt", detail={"subject": attempt.attempt})
    assert verified.result == {}


@pytest.mark.parametrize(("bound", "booked"), [(2, True), (1, False)])
def test_w17_a_late_verifiers_receipt_has_the_room_of_every_other(bound: int, booked: bool) -> None:
    world = world_in("conflict")
    attempt = world.attempt_of(world.order(TASK))
    assert len(world.live.values[attempt.hold].receipts) == 1
    world.limits = replace(Limits(), receipts_per_hold_max=bound)
    world.do(
        c.RecordVerification(attempt=attempt.attempt, result=attempt.result or "", outcome="passed", duration_us=5)
    )
    assert len(world.live.values[attempt.hold].receipts) == 1 + booked


GOOD = ResultFacts(
    outcome="succeeded",
    input_set=DIGEST,
    output_kind="files/1",
    duration_us=1,
    classification="internal",
    exit_code=0,
    artifacts=(artifact("out/a"), artifact("log")),
    validation=(ValidationReceipt(check="schema", subject="log", passed=True),),
)
ACCEPT = Acceptance(files=("log", "out/*"), schemas={"log": DIGEST}, verify=("check",))


@pytest.mark.parametrize(
    ("change", "verification", "verdict"),
    [
        ({}, "passed", ("applied", None)),
        ({"tree_empty": False, "outcome": "failed"}, "passed", ("containment_lost", "terminal")),
        ({"failure": "policy"}, "passed", ("result_invalid", "executor")),
        ({"outcome": "failed"}, "passed", ("executor_failed", "executor")),
        ({"outcome": "failed", "message_code": "whatever"}, "passed", ("executor_failed", "executor")),
        (
            {"outcome": "failed", "message_code": "timed_out", "failure": "validation"},
            "passed",
            ("timed_out", "validation"),
        ),
        ({"exit_code": 1}, "passed", ("exit_code_unexpected", "executor")),
        ({"exit_code": None}, "passed", ("exit_code_unexpected", "executor")),
        ({"artifacts": (artifact("log"), artifact("elsewhere"))}, "passed", ("outputs_refused", "validation")),
        ({"artifacts": (artifact("log"),)}, "passed", ("outputs_missing", "validation")),
        ({"validation": ()}, "passed", ("schema_failed", "validation")),
        (
            {"validation": (ValidationReceipt(check="schema", subject="log", passed=False),)},
            "passed",
            ("schema_failed", "validation"),
        ),
        (
            {"validation": (ValidationReceipt(check="files", subject="log", passed=True),)},
            "passed",
            ("schema_failed", "validation"),
        ),
        ({}, "failed", ("verifier_failed", "validation")),
        ({}, "error", ("verifier_error", "executor")),
        ({}, "", ("verifier_failed", "validation")),
    ],
)
def test_w7_what_the_evidence_says(change: dict[str, Any], verification: str, verdict: tuple[str, str | None]) -> None:
    world = World()
    world.submit(draft("a", accept=ACCEPT, outputs=("log", "out/*")))
    assert judge(world.order("a").terms, replace(GOOD, **change), verification) == verdict


def test_w16_only_retryable_failures_are_retried_whatever_a_policy_says() -> None:
    assert "policy" not in RETRYABLE
    world = World()
    world.submit(draft("a", retry=True))
    failing: dict[str, Any] = {"outcome": "failed", "message_code": "timed_out"}
    world.finish("a", failure="policy", **failing)
    assert world.order("a").state == "failed"
    world.submit(draft("b", retry=Retry(on=("validation",), backoff_us=1, backoff_max_us=1)), mode="new")
    world.finish("b", failure="executor", **failing)
    assert world.order("b").state == "failed", "retryable, and the policy does not name it"


def test_w7_a_result_under_another_constitution_is_not_applied() -> None:
    world = world_in("result_pending")
    authority = world.live.values[AUTHORITY]
    world.live.values[AUTHORITY] = replace(authority, constitution_version=2)
    order = world.order(TASK)
    assert told(world, c.ApplyResult(attempt=order.attempt or "")) == (
        "spec_mismatch",
        "/attempt",
        {"subject": order.order},
    )
