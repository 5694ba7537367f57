"""Every command in every state that an order can be in: records that evolve accepts, or a registered refusal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fencepost.core import commands as c
from fencepost.core.machines import ENDED
from fencepost.core.reasons import REASONS
from fencepost.core.records.authority import AuthorityDecision
from fencepost.core.state import AttemptState, HoldState, OrderState
from tests.support.states import BUILDERS, TASK, world_in
from tests.support.world import DIGEST, SECOND, World, draft, plan_of

NOBODY = "attempt_" + "e" * 32


def _order(world: World) -> OrderState:
    return world.order(TASK)


def _attempt(world: World) -> AttemptState:
    """The order's attempt, another order's, or one that does not exist."""
    name = _order(world).attempt
    if name is None:
        found = [value for value in world.live.values.values() if isinstance(value, AttemptState)]
        if found:
            return found[0]
        return AttemptState(
            version=1,
            attempt=NOBODY,
            order=_order(world).order,
            plan=None,
            ordinal=1,
            generation=1,
            fence=1,
            state="reserved",
            reason="",
            worker=world.worker(1),
            host="host-1",
            boot_id="boot-1",
            hold="hold_" + "e" * 32,
            claim="",
            reserved_us=0,
            activation_deadline_us=0,
            reservation_seq=0,
            input_set=DIGEST,
        )
    value = world.live.values[name]
    if not isinstance(value, AttemptState):
        raise TypeError(name)
    return value


def _hold(world: World) -> HoldState | None:
    value = world.get(_attempt(world).hold)
    return value if isinstance(value, HoldState) else None


def _gone(world: World) -> c.Command:
    attempt = _attempt(world)
    return c.ProveHolderGone(
        attempt=attempt.attempt,
        fence=attempt.fence,
        host=attempt.host,
        boot_id=attempt.boot_id,
        basis="locks_free",
        evidence="free",
    )


def _settle(world: World) -> c.Command:
    hold = _hold(world)
    return c.SettleHold(hold=hold.hold if hold else "hold_none", expected=hold.version if hold else 1)


def _verification(world: World) -> c.Command:
    attempt = _attempt(world)
    return c.RecordVerification(
        attempt=attempt.attempt, result=attempt.result or DIGEST, outcome="failed", duration_us=SECOND
    )


def _plan(world: World) -> Any:
    return world.live.values[_order(world).plan or ""]


COMMANDS: dict[str, Callable[[World], Any]] = {
    "observe_clock": lambda w: c.ObserveClock(reading=w.reading()),
    "submit_plan": lambda w: plan_of(draft("x"), name="other"),
    "submit_plan_again": lambda w: plan_of(draft("x"), mode="again"),
    "submit_order": lambda w: c.SubmitOrder(order=draft("x", _member(w))),
    "cancel_plan": lambda w: c.CancelPlan(plan=_plan(w).plan),
    "cancel_order": lambda w: c.CancelOrder(order=_order(w).order),
    "retry_order": lambda w: c.RetryOrder(order=_order(w).order),
    "retry_from_start": lambda w: c.RetryOrder(order=_order(w).order, from_start=True),
    "retry_with_dependents": lambda w: c.RetryOrder(order=_order(w).order, with_dependents=True),
    "set_budget": lambda w: c.SetBudget(account=_order(w).order, ceilings={"attempts": 1}),
    "enrol_worker": lambda w: c.EnrolWorker(
        worker="worker_" + "f" * 32, host="h", boot_id="b", pid=1, executors=("command/1",)
    ),
    "reserve": lambda w: c.Reserve(order=_order(w).order, expected=_order(w).version, worker=w.worker(2)),
    "reserve_next": lambda w: c.ReserveNext(worker=w.worker(2), count=3),
    "release": lambda w: c.ReleaseReservation(attempt=_attempt(w).attempt, fence=_attempt(w).fence),
    "activate": lambda w: w.activation(_attempt(w)),
    "renew": lambda w: w.renewal(_attempt(w)),
    "event": lambda w: w.event(_attempt(w)),
    "event_heartbeat": lambda w: w.event(_attempt(w), "heartbeat_observed"),
    "checkpoint": lambda w: w.checkpoint(_attempt(w)),
    "checkpoint_behind": lambda w: w.checkpoint(_attempt(w), builds_on=7),
    "artifact": lambda w: w.kept(_attempt(w)),
    "charge": lambda w: w.charge(_attempt(w), "r-9", calls=2),
    "child": lambda w: w.child(_attempt(w), draft("piece", attempts=1)),
    "yield": lambda w: w.yielding(_attempt(w), question="go"),
    "answer": lambda w: c.AnswerOrder(order=_order(w).order, value="yes"),
    "end_wait": lambda w: c.EndWait(order=_order(w).order, expected=_order(w).version),
    "report": lambda w: w.result(_attempt(w)),
    "report_failed": lambda w: w.result(_attempt(w), outcome="failed", failure="executor", message_code="timed_out"),
    "report_stale": lambda w: c.ReportResult(
        attempt=_attempt(w).attempt, fence=99, spec=_order_of(w).spec, facts=w.facts_of(_attempt(w), duration_us=3)
    ),
    "report_stopped": lambda w: c.ReportStopped(
        reason="drained", attempt=_attempt(w).attempt, fence=_attempt(w).fence, duration_us=SECOND
    ),
    "report_lost": lambda w: c.ReportStopped(
        attempt=_attempt(w).attempt, fence=_attempt(w).fence, duration_us=SECOND, reason="lease_expired"
    ),
    "report_keeper_lost": lambda w: c.ReportStopped(
        attempt=_attempt(w).attempt, fence=_attempt(w).fence, duration_us=SECOND, reason="keeper_lost"
    ),
    "verify": _verification,
    "apply": lambda w: c.ApplyResult(attempt=_attempt(w).attempt),
    "expire": lambda w: c.ExpireAttempt(attempt=_attempt(w).attempt, expected=_attempt(w).version),
    "holder_gone": _gone,
    "settle_hold": _settle,
    "end_backoff": lambda w: c.EndBackoff(order=_order(w).order, expected=_order(w).version),
    "reexamine": lambda w: c.Reexamine(order=_order(w).order, expected=_order(w).version),
    "tell_dependents": lambda w: c.TellDependents(order=_order(w).order),
    "advance_cancel": lambda w: c.AdvanceCancel(plan=_plan(w).plan),
    "enforce_deadline": lambda w: c.EnforceDeadline(plan=_plan(w).plan, expected=_plan(w).version),
}


def _member(world: World) -> c.GroupDraft:
    return c.GroupDraft(kind="required", members=(c.MemberDraft(outcomes=("applied",), order=_order(world).order),))


def _order_of(world: World) -> OrderState:
    value = world.live.values[_attempt(world).order]
    if not isinstance(value, OrderState):
        raise TypeError(value)
    return value


# State -> commands that are accepted there, besides those that touch other subjects; everything else is refused.
EVERYWHERE = {
    "observe_clock",
    "submit_plan",
    "submit_order",
    "set_budget",
    "enrol_worker",
    "renew",
    "tell_dependents",
    "advance_cancel",
    "cancel_plan",
}
SAID = {"checkpoint", "artifact", "charge", "child"}
LIVE_COMMANDS = SAID | {
    "event",
    "event_heartbeat",
    "report",
    "report_failed",
    "report_stopped",
    "report_lost",
    "report_keeper_lost",
    "holder_gone",
}
ACCEPTED: dict[str, set[str]] = {
    "blocked_dependency": {"cancel_order", "reserve_next"},
    "blocked_budget": {"cancel_order", "release", "activate", "holder_gone"},
    "ready": {"cancel_order", "reserve", "reserve_next"},
    "reserved": {"cancel_order", "release", "activate", "holder_gone", "reserve_next"},
    "active/leased": {"cancel_order", "reserve_next"} | LIVE_COMMANDS,
    "active/running": {"cancel_order", "reserve_next", "yield"} | LIVE_COMMANDS,
    "result_pending": {"cancel_order", "reserve_next", "report", "apply", "verify"},
    "result_pending/unverified": {"cancel_order", "reserve_next", "report", "verify"},
    "result_pending/verified": {"cancel_order", "reserve_next", "report", "apply"},
    "conflict": {"cancel_order", "reserve_next", "report"},
    "retry_wait": {"cancel_order", "reserve_next", "apply", "retry_order", "retry_with_dependents"},
    "waiting": {"cancel_order", "reserve_next", "answer"},
    "waiting/time": {"cancel_order", "reserve_next"},
    "waiting/children": {"cancel_order", "reserve_next"},
    "applied": {"reserve_next", "report", "apply"},
    "failed": {"reserve_next", "apply", "retry_order", "retry_with_dependents", "retry_from_start"},
    "cancelled": {"reserve_next", "retry_order", "retry_with_dependents", "retry_from_start"},
    "cancelled/live": {"reserve_next", "retry_order", "retry_with_dependents", "retry_from_start", "holder_gone"},
    "dependency_failed": {"reserve_next", "apply"},
    "budget_exhausted": {"reserve_next", "retry_order", "retry_with_dependents", "retry_from_start"},
}


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("state", BUILDERS)
def test_every_command_in_every_state(state: str, command: str) -> None:
    world = world_in(state)
    before = _order(world)
    assert before.state == state.split("/", maxsplit=1)[0]
    decided = world.do(COMMANDS[command](world))
    world.check()
    code = "" if decided.refusal is None else decided.refusal.code
    accepted = command in ACCEPTED[state] or command in EVERYWHERE
    assert (code == "") == accepted, f"{command} in {state}: {code or 'accepted'}"
    if decided.refusal is not None:
        assert code in REASONS and decided.refusal.message and decided.refusal.next_step
    if code and not all(isinstance(fact.body, AuthorityDecision) for fact in decided.facts):
        assert REASONS[code].durable, f"{code} was written down and is not durable"
    after = world.live.values[before.order]
    if before.state in ENDED:
        assert after.state == before.state, "an ended order moved"
        assert after.reason == before.reason


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_before_the_scope_is_open_and_without_a_grant(command: str) -> None:
    world = world_in("active/running")
    made = COMMANDS[command](world)
    assert world.refused(made, principal="principal_" + "2" * 32) == "unauthenticated"
    assert world.refused(made, grant=DIGEST) == "grant_missing"
    assert World(opened=False).decide(made).refusal is not None


@pytest.mark.parametrize("command", sorted(COMMANDS))
@pytest.mark.parametrize("state", ["ready", "reserved", "active/running", "result_pending", "retry_wait", "conflict"])
def test_every_command_while_the_clock_waits_for_a_person(state: str, command: str) -> None:
    """Blocked: no expiry, no reservation, no activation; renewals, reports, charges and cancels are accepted."""
    world = world_in(state)
    world.tick_us += SECOND
    world.utc_us += 3_600 * SECOND
    world.observe()
    assert world.clock.state == "clock_reconciliation_required"
    code = world.refused(COMMANDS[command](world))
    world.check()
    new_work = {"reserve", "reserve_next", "activate"}
    if command in new_work and command in ACCEPTED[state]:
        assert code == "clock_blocked"
    elif command in ACCEPTED[state]:
        assert code == ""
