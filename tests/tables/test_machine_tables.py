"""The machines are walked whole: every state with every target, every guard with every flag, every reason."""

from __future__ import annotations

from itertools import product

import pytest

from fencepost.core.machines import (
    ATTEMPT,
    BUDGET_HOLD,
    CLOCK_DOMAIN,
    ENDED,
    LIVE,
    MACHINES,
    WITH_OPEN_EFFECT,
    WORK_ORDER,
    CorruptHistory,
    Guard,
    Machine,
    order_guard,
)
from fencepost.core.reasons import WAITS_AND_ENDS

BLOCKED = ("blocked_dependency", "blocked_policy", "blocked_budget")

# As the documents write the tables, state by state; compared with the code, pair by pair.
ORDER_ROWS = {
    "submitted": {*BLOCKED, "ready", "dependency_failed", "cancelled", "quarantined"},
    **{
        state: {*BLOCKED, "ready", "dependency_failed", "budget_exhausted", "cancelled", "quarantined"} - {state}
        for state in BLOCKED
    },
    "ready": {"reserved", *BLOCKED, "dependency_failed", "budget_exhausted", "cancelled"},
    "reserved": {"active", "ready", *BLOCKED, "dependency_failed", "cancelled"},
    "active": {
        "result_pending",
        "cancellation_requested",
        "reconciling",
        "retry_wait",
        "ready",
        "failed",
        "budget_exhausted",
        "conflict",
        "cancelled",
        "waiting",  # added: a yielded attempt's order, which holds nothing (lifecycle, 9)
    },
    "waiting": {"ready", "failed", "cancelled"},
    "cancellation_requested": {"cancelled", "reconciling", "failed"},
    "reconciling": {"result_pending", "retry_wait", "failed", "cancelled", "unknown_terminal"},
    "result_pending": {"applied", "retry_wait", "failed", "conflict", "cancelled", "reconciling"},
    "retry_wait": {"ready", "budget_exhausted", "failed", "cancelled"},
    "conflict": {"result_pending", "failed", "cancelled"},
    "quarantined": {"submitted", "failed", "cancelled"},
    "unknown_terminal": {"cancelled", "retry_wait", "failed", "result_pending"},
    **{state: set() for state in ("applied", "failed", "cancelled", "dependency_failed", "budget_exhausted")},
}
ATTEMPT_ROWS = {
    "reserved": {"leased", "expired_no_effect", "cancelled_no_effect"},
    "leased": {"running", "result_reported", "cancellation_requested", "lease_expired"},
    "running": {"result_reported", "cancellation_requested", "lease_expired", "yielded", "reconciling"},
    "cancellation_requested": {"cancelled_no_effect", "reconciling"},
    "lease_expired": {"cancelled_no_effect", "reconciling", "result_reported"},
    "reconciling": {"result_reported", "retryable_failed", "failed", "unknown_terminal", "cancelled_no_effect"},
    "result_reported": {
        "accepted",
        "retryable_failed",
        "failed",
        "rejected_stale",
        "rejected_conflict",
        "reconciling",
    },
    **{
        state: set()
        for state in (
            "accepted",
            "retryable_failed",
            "failed",
            "rejected_stale",
            "rejected_conflict",
            "expired_no_effect",
            "cancelled_no_effect",
            "yielded",
            "unknown_terminal",
        )
    },
}
DOCUMENTED = {
    "work_order": ORDER_ROWS,
    "attempt": ATTEMPT_ROWS,
    "budget_hold": {
        "held": {"settled", "released", "unsettled"},
        "unsettled": {"settled"},
        "settled": set(),
        "released": set(),
    },
    "clock_domain": {
        "running": {"clock_reconciliation_required"},
        "clock_reconciliation_required": {"running"},
    },
}


@pytest.mark.parametrize("name", sorted(MACHINES))
def test_w13_w14_every_pair_of_states_is_as_documented(name: str) -> None:
    machine = MACHINES[name]
    rows = DOCUMENTED[name]
    assert set(machine.states) == set(rows)
    for state, target in product(machine.states, [*machine.states, "no_such_state"]):
        assert machine.allows(state, target) == (target in rows[state]), f"{state} -> {target}"
        if target in rows[state]:
            assert machine.require(state, target) == target
        else:
            with pytest.raises(CorruptHistory, match=f"{state} -> {target}"):
                machine.require(state, target)
    assert not machine.allows("no_such_state", machine.first[0])


@pytest.mark.parametrize("machine", list(MACHINES.values()), ids=lambda machine: machine.name)
def test_w13_every_state_that_goes_on_has_registered_reasons(machine: Machine) -> None:
    going_on = {state for state, targets in machine.rows.items() if targets}
    assert set(machine.reasons) == going_on
    for state, reasons in machine.reasons.items():
        assert reasons, state
        assert set(reasons) <= set(WAITS_AND_ENDS), state


@pytest.mark.parametrize("machine", list(MACHINES.values()), ids=lambda machine: machine.name)
def test_every_state_can_be_reached_and_left_towards_an_end(machine: Machine) -> None:
    rows = machine.rows
    reached = set(machine.first)
    while more := {target for state in reached for target in rows[state]} - reached:
        reached |= more
    assert reached == set(rows)
    ends = {state for state, targets in rows.items() if not targets}
    if not ends:
        assert machine is CLOCK_DOMAIN
        return
    leads = set(ends)
    while more := {state for state, targets in rows.items() if leads & set(targets)} - leads:
        leads |= more
    assert leads == set(rows)


def test_sets_of_states() -> None:
    assert {"applied", "failed", "cancelled", "dependency_failed", "budget_exhausted"} == ENDED
    assert WORK_ORDER.automatic_end == ("unknown_terminal",)
    assert {"leased", "running"} == LIVE
    assert set(ATTEMPT.states) >= LIVE and set(WORK_ORDER.states) >= WITH_OPEN_EFFECT
    assert BUDGET_HOLD.terminal == {"settled", "released"}


@pytest.mark.parametrize("target", WORK_ORDER.states)
@pytest.mark.parametrize(("is_open", "applied", "failing"), list(product((False, True), repeat=3)))
def test_g1_g2_g3_and_w14_for_every_target_and_flag(target: str, is_open: bool, applied: bool, failing: bool) -> None:
    found = order_guard(target, effect_open=is_open, effect_applied=applied, after_effect_failure=failing)
    kept = {"cancellation_requested", "reconciling", "unknown_terminal", "conflict"}
    if target == "reconciling":
        expected = None if is_open or applied else Guard.NO_EFFECT
    elif is_open and target not in kept:
        expected = Guard.EFFECT_OPEN
    elif target == "cancelled" and applied:
        expected = Guard.EFFECT_NOT_ABSENT
    elif failing and target not in kept:
        expected = Guard.EFFECT_RECEIPT
    else:
        expected = None
    assert found == expected
