"""What the auditor has found in the kernel, each as the shortest story that shows it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from fencepost.core.commands import (
    AppendEvent,
    ApplyResult,
    EnrolWorker,
    ExpireAttempt,
    RecordVerification,
    RenewLeases,
    ReportResult,
    SetBudget,
    SubmitPlan,
)
from fencepost.core.ids import sha256_of
from fencepost.core.limits import FIRST_VALUES, Limits
from fencepost.core.records.common import Usage
from fencepost.core.records.plan import Acceptance
from fencepost.core.state import AttemptState, HoldState
from fencepost.kernel.kernel import Kernel
from fencepost.testing.fakes import FakeClock
from tests.kernel.support import (
    INPUTS,
    WORKER,
    activate,
    done,
    draft,
    enrol,
    head_of,
    kernel_over,
    memory,
    report,
    reserve,
    submit,
)

SECOND_US = 1_000_000
FEW = Limits(receipts_per_result_max=2, receipts_per_hold_max=3)


def opened(clock: FakeClock | None = None, limits: Limits = FIRST_VALUES) -> Kernel:
    made = kernel_over(memory(), clock=clock, limits=limits)
    done(made, "dispatcher", enrol())
    return made


@pytest.fixture
def kernel() -> Kernel:
    return opened()


def started(kernel: Kernel, **changes: Any) -> dict[str, Any]:
    """A reservation that has been activated."""
    reserved: dict[str, Any] = done(kernel, "dispatcher", reserve(done(kernel, "human", submit(**changes))))
    one: dict[str, Any] = reserved["reservations"][0]
    done(kernel, "dispatcher", activate(one))
    return one


def code(kernel: Kernel, who: str, command: Any) -> str:
    refusal = kernel.write(kernel.request(who, command)).refusal
    return "" if refusal is None else refusal.code


def value(kernel: Kernel, subject: str, kind: type[Any]) -> Any:
    with kernel.reader.look() as look:
        return look.find(subject, kind)


def result(reserved: dict[str, Any], *receipts: str) -> ReportResult:
    """A result with these receipts beside the time."""
    plain = report(reserved)
    usage = tuple(Usage(receipt=name, provider="model", amounts={"calls": 1}) for name in receipts)
    return msgspec.structs.replace(plain, facts=msgspec.structs.replace(plain.facts, usage=usage))


def test_w23_a_refusal_that_wrote_nothing_but_its_decision_leaves_its_key_free(kernel: Kernel) -> None:
    """The first activation of a scope is refused for budget; under the same key it succeeds once there is some."""
    submitted = done(kernel, "human", submit(ceilings={"attempts": 3, "calls": 9}))
    reserved = done(kernel, "dispatcher", reserve(submitted))["reservations"][0]
    done(kernel, "human", SetBudget(account=submitted["order"], ceilings={"attempts": 3, "calls": 1}))
    before = head_of(kernel)
    request = kernel.request("dispatcher", activate(reserved), "one key")
    refused = kernel.write(request)
    assert refused.refusal is not None and refused.refusal.code == "budget_held"
    assert (refused.count, head_of(kernel)) == (0, before)
    done(kernel, "human", SetBudget(account=submitted["order"], ceilings={"attempts": 3, "calls": 9}))
    assert kernel.write(request).ok


def test_w17_a_stale_event_as_the_first_of_its_kind_is_no_record(kernel: Kernel) -> None:
    submitted = done(kernel, "human", submit())
    reserved = done(kernel, "dispatcher", reserve(submitted))["reservations"][0]
    done(kernel, "dispatcher", activate(reserved))
    before = head_of(kernel)
    event = AppendEvent(
        attempt=reserved["attempt"],
        fence=reserved["fence"] + 1,
        spec=reserved["spec"],
        input_set=INPUTS,
        family="heartbeat_observed",
    )
    refused = kernel.write(kernel.request("executor", event))
    assert refused.refusal is not None and refused.refusal.code == "stale_fence"
    assert head_of(kernel) == before


def late(kernel: Kernel, clock: FakeClock) -> dict[str, Any]:
    """An attempt whose lease is over by recorded time, to the microsecond, and that nobody has ended."""
    one = started(kernel)
    for _ in range(4):
        clock.advance(FIRST_VALUES.lease_us // 4)
        with kernel.reader.look():
            done(kernel, "human", SetBudget(account="scope", ceilings={}))
    return one


@pytest.mark.parametrize("gap", [lambda clock: clock.restart(), lambda clock: clock.advance(6 * SECOND_US)])
def test_w8_a_grace_is_not_for_those_that_had_ended_before_the_gap(gap: Callable[[FakeClock], None]) -> None:
    """Its holder was told that its lease is over; a gap that begins at that moment gives it nothing back."""
    clock = FakeClock()
    kernel = opened(clock)
    one = late(kernel, clock)
    assert code(kernel, "executor", result(one, "first")) == "rejected_stale"
    gap(clock)
    assert code(kernel, "executor", result(one, "second")) == "rejected_stale"
    renewal = RenewLeases(worker=WORKER, attempts=({"attempt": one["attempt"], "fence": one["fence"]},))  # type: ignore[arg-type]  # read strictly on its way in
    assert done(kernel, "dispatcher", renewal)["renewed"] == []


def test_w18_a_hold_books_no_more_late_receipts_than_its_bound() -> None:
    clock = FakeClock()
    kernel = opened(clock, FEW)
    one = late(kernel, clock)
    assert code(kernel, "executor", result(one, "a", "b")) == "rejected_stale"
    assert code(kernel, "executor", result(one, "c", "d")) == "stale_fence"
    assert code(kernel, "executor", result(one, "b", "c")) == "rejected_stale"
    for _ in range(3):
        clock.advance(FIRST_VALUES.lease_us // 4)
        done(kernel, "human", SetBudget(account="scope", ceilings={}))
    attempt = value(kernel, one["attempt"], AttemptState)
    done(kernel, "dispatcher", ExpireAttempt(attempt=attempt.attempt, expected=attempt.version))
    assert value(kernel, attempt.hold, HoldState).receipts == ("model:a", "model:b", "model:c")


def test_w18_a_late_verifier_is_booked_within_the_bound_of_receipts() -> None:
    kernel = opened(limits=FEW)
    one = started(kernel, accept=Acceptance(verify=("check",)))
    first = result(one, "a", "b")
    assert code(kernel, "executor", first) == ""
    assert code(kernel, "executor", result(one, "c")) == "rejected_conflict"
    attempt = value(kernel, one["attempt"], AttemptState)
    verdict = RecordVerification(attempt=attempt.attempt, result=attempt.result, outcome="passed", duration_us=5)
    assert len(value(kernel, attempt.hold, HoldState).receipts) == 3
    assert code(kernel, "verifier", verdict) == "attempt_state"
    assert len(value(kernel, attempt.hold, HoldState).receipts) == 3
    assert code(kernel, "reducer", ApplyResult(attempt=attempt.attempt)) == "attempt_state"


@pytest.mark.parametrize("name", ["name:checks", "decision:" + sha256_of(b"x"), "worker_1", "order_" + "0" * 32])
def test_c28_a_worker_takes_no_name_that_is_somebody_elses(kernel: Kernel, name: str) -> None:
    enrolment = EnrolWorker(worker=name, host="host", boot_id="boot", pid=1, executors=("command/1",))
    assert code(kernel, "dispatcher", enrolment) == "out_of_range"
    plan = SubmitPlan(
        name="checks",
        objective="",
        content=sha256_of(b"content"),
        orders=(draft(),),
        recovery="replace",
        mode="continue",
    )
    assert code(kernel, "human", plan) == ""


def test_w18_receipts_with_long_names_cannot_keep_a_hold_from_its_end() -> None:
    """What late results name is booked in one record, which has to fit."""
    clock = FakeClock()
    kernel = opened(clock)
    one = late(kernel, clock)
    assert code(kernel, "executor", result(one, "x" * 2_000)) == "too_large"
    assert code(kernel, "executor", result(one, "\x01" * 100)) == "too_large", "as they stand in a record"
    for number in range(3):
        names = [f"{number}-{each}-{'x' * 480}" for each in range(1_000)]
        assert code(kernel, "executor", result(one, *names)) == "rejected_stale"
    for _ in range(3):
        clock.advance(FIRST_VALUES.lease_us // 4)
        done(kernel, "human", SetBudget(account="scope", ceilings={}))
    attempt = value(kernel, one["attempt"], AttemptState)
    assert code(kernel, "dispatcher", ExpireAttempt(attempt=attempt.attempt, expected=attempt.version)) == ""
