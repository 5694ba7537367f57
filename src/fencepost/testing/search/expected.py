"""What ought to be accepted, said a second time and without the deciders: the lifecycle page in a few lines a command.

`accepts` answers True or False where the page leaves no doubt, None where it depends on amounts. It reads states and
never calls core but for the names of states, so that a check that is missing or wrong in a decider, and in the fold
behind it, is seen here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fencepost.core import commands as c
from fencepost.core.canonical import digest_of
from fencepost.core.machines import ENDED
from fencepost.core.records.plan import WorkOrderSpec
from fencepost.core.state import (
    AttemptState,
    ClockState,
    HoldState,
    OrderState,
    PlanState,
    ReceiptState,
    WorkerState,
    receipt_subject,
)
from fencepost.testing.search.place import Place

_LIVE = ("leased", "running")


def end_us(clock: ClockState, deadline_us: int) -> int:
    """When a lease or reservation is over: a grace covers what would have ended in the gap or after it."""
    covered = clock.grace_until_us > 0 and deadline_us >= clock.grace_from_us
    return max(deadline_us, clock.grace_until_us) if covered else deadline_us


def is_over(clock: ClockState, deadline_us: int) -> bool:
    """Whether its holder may not use it any more: at its end it is over."""
    return clock.logical_us >= end_us(clock, deadline_us)


def is_proved(clock: ClockState, deadline_us: int) -> bool:
    """Whether others may act on it: the reading's uncertainty is behind it too, and the clock is not in doubt."""
    return clock.state == "running" and clock.logical_us - clock.uncertainty_us >= deadline_us


def starts_nothing(place: Place, order: OrderState) -> bool:
    """A cancelled plan, and one past its deadline, get no reservation, activation or renewal."""
    plan = place.values.get(order.plan or "")
    if not isinstance(plan, PlanState):
        return False
    late = plan.deadline_us is not None and place.now_us >= plan.deadline_us
    return bool(plan.cancel) or late


def has_fence(place: Place, attempt: AttemptState, fence: int) -> bool:
    return attempt.fence == fence and attempt.state in _LIVE and not is_over(place.clock, attempt.lease_us)


def verdict_of(place: Place, order: OrderState) -> str:
    """What an order's groups say, from the very outcomes of the orders that they name."""
    spec = place.body(order.spec_seq)
    if not isinstance(spec, WorkOrderSpec):
        raise LookupError(f"{order.order} has no spec")
    answer = "holds"
    for group in spec.groups:
        states = [(place.values[member.order].state, member.outcomes) for member in group.members]
        over = [state in ENDED for state, _ in states]
        good = [state in outcomes for state, outcomes in states]
        bad = [ended and not fits for ended, fits in zip(over, good, strict=True)]
        if group.kind == "required":
            fails, holds = any(bad), all(good)
        elif group.kind == "optional":
            fails, holds = False, all(over)
        else:
            fails, holds = all(bad), any(good)
        if fails:
            return "fails"
        if not holds:
            answer = "open"
    return answer


def accepts(place: Place, command: Any) -> bool | None:
    """Whether the command ought to be accepted here; None where only its amounts can tell."""
    return _EXPECTED[type(command)](place, command)


def renewed(place: Place, command: c.RenewLeases) -> list[str]:
    """The attempts whose lease the command prolongs."""
    limits = place.shared.world.limits
    found = []
    for held in command.attempts:
        attempt: AttemptState = place.values[held.attempt]
        order: OrderState = place.values[attempt.order]
        used_up = place.now_us >= attempt.activated_us + order.terms.attempt_time_us + limits.collect_us
        if (
            attempt.worker == command.worker
            and has_fence(place, attempt, held.fence)
            and not starts_nothing(place, order)
            and not used_up
        ):
            found.append(held.attempt)
    return found


def _reserve(place: Place, command: c.Reserve) -> bool | None:
    order: OrderState = place.values[command.order]
    may = order.version == command.expected and _may_start(place, order)
    return None if may else False


def _may_start(place: Place, order: OrderState) -> bool:
    return order.state == "ready" and place.clock.state == "running" and not starts_nothing(place, order)


def _reserve_next(place: Place, command: c.ReserveNext) -> bool | None:
    orders = (value for value in place.values.values() if isinstance(value, OrderState))
    return None if any(_may_start(place, order) for order in orders) else False


def _release(place: Place, command: c.ReleaseReservation) -> bool:
    attempt: AttemptState = place.values[command.attempt]
    return attempt.state == "reserved" and attempt.fence == command.fence


def _activate(place: Place, command: c.Activate) -> bool | None:
    attempt: AttemptState = place.values[command.attempt]
    order: OrderState = place.values[attempt.order]
    may = (
        attempt.state == "reserved"
        and (attempt.worker, attempt.fence, attempt.version) == (command.worker, command.fence, command.expected)
        and place.clock.state == "running"
        and not is_over(place.clock, attempt.activation_deadline_us)
        and not starts_nothing(place, order)
    )
    lowered = "budget" in place.left or "charge" in place.left  # money of a currency that nobody budgets
    return None if may and lowered else may


def _event(place: Place, command: c.AppendEvent) -> bool:
    return has_fence(place, place.values[command.attempt], command.fence)


def _report(place: Place, command: c.ReportResult) -> bool | None:
    attempt: AttemptState = place.values[command.attempt]
    if attempt.result and attempt.fence == command.fence:
        return None  # the same once more, or another one
    return has_fence(place, attempt, command.fence)


def _stopped(place: Place, command: c.ReportStopped) -> bool:
    return has_fence(place, place.values[command.attempt], command.fence)


def _speaks(place: Place, command: Any) -> bool:
    return has_fence(place, place.values[command.attempt], command.fence)


def _checkpoint(place: Place, command: c.SaveCheckpoint) -> bool:
    attempt: AttemptState = place.values[command.attempt]
    order: OrderState = place.values[attempt.order]
    return _speaks(place, command) and command.builds_on == order.checkpoint_number


def _charge(place: Place, command: c.ChargeUsage) -> bool:
    """A receipt that is booked already is found again if it says the same; one that came with a result says nothing."""
    name = f"{command.usage.provider}:{command.usage.receipt}"
    known: ReceiptState | None = place.values.get(receipt_subject(name))
    same = known is None or known.digest in ("", digest_of(command.usage))
    return _speaks(place, command) and same


def _yielded(place: Place, command: c.ReportYielded) -> bool:
    attempt: AttemptState = place.values[command.attempt]
    order: OrderState = place.values[attempt.order]
    own = all(place.values[name].parent == order.order for name in command.wait.orders)
    return _speaks(place, command) and attempt.state == "running" and own


def _child(place: Place, command: c.SubmitChild) -> bool | None:
    """A child is found again by its name; a new one is placed while depth, plan and its siblings permit."""
    attempt: AttemptState = place.values[command.attempt]
    parent: OrderState = place.values[attempt.order]
    if not _speaks(place, command) or starts_nothing(place, parent):
        return False
    known = parent.children.get(command.order.task)
    if known is not None:
        spec = place.body(place.values[known].spec_seq)
        return isinstance(spec, WorkOrderSpec) and spec.run == command.order.run
    depth, above = 1, parent
    while above.parent is not None:
        depth, above = depth + 1, place.values[above.parent]
    siblings = all(member.task in parent.children for group in command.order.groups for member in group.members)
    may = siblings and depth <= place.shared.world.limits.children_depth_max
    return None if may and "budget" in place.left else may


def asked(order: OrderState) -> str:
    """The question that an order waits for, "" for none."""
    return order.wait.question if order.state == "waiting" and order.wait is not None else ""


def _answer(place: Place, command: c.AnswerOrder) -> bool:
    order: OrderState = place.values[command.order]
    return bool(asked(order)) and command.question in ("", asked(order)) and asked(order) not in order.answers


def _end_wait(place: Place, command: c.EndWait) -> bool:
    order: OrderState = place.values[command.order]
    if order.state != "waiting" or order.wait is None or order.version != command.expected:
        return False
    return order.wait.until_us > 0 and is_proved(place.clock, order.wait.until_us)


def _waits(place: Place, attempt: AttemptState) -> bool:
    order: OrderState = place.values[attempt.order]
    return (attempt.state, order.state, order.attempt) == ("result_reported", "result_pending", attempt.attempt)


def _verification(place: Place, command: c.RecordVerification) -> bool:
    attempt: AttemptState = place.values[command.attempt]
    return _waits(place, attempt) and attempt.result == command.result and not attempt.verification


def _apply(place: Place, command: c.ApplyResult) -> bool:
    attempt: AttemptState = place.values[command.attempt]
    if attempt.application_seq:
        return True
    order: OrderState = place.values[attempt.order]
    waits_for_verifier = attempt.reason == "waiting_for_verification" and not attempt.verification
    return _waits(place, attempt) and not (bool(order.terms.accept.verify) and waits_for_verifier)


def _expire(place: Place, command: c.ExpireAttempt) -> bool:
    attempt: AttemptState = place.values[command.attempt]
    reserved = attempt.state == "reserved"
    deadline_us = attempt.activation_deadline_us if reserved else attempt.lease_us
    return (
        (reserved or attempt.state in _LIVE)
        and attempt.version == command.expected
        and is_proved(place.clock, end_us(place.clock, deadline_us))
    )


def _gone(place: Place, command: c.ProveHolderGone) -> bool:
    attempt: AttemptState = place.values[command.attempt]
    hold: HoldState = place.values[attempt.hold]
    holds = attempt.state in ("reserved", *_LIVE) or hold.state == "unsettled"
    same_boot = command.boot_id == attempt.boot_id
    fits = command.host == attempt.host and same_boot == (command.basis == "locks_free")
    return holds and fits and attempt.fence == command.fence


def _settle(place: Place, command: c.SettleHold) -> bool:
    hold: HoldState = place.values[command.hold]
    due = is_proved(place.clock, hold.settle_by_us)
    return hold.state == "unsettled" and hold.version == command.expected and due


def _backoff(place: Place, command: c.EndBackoff) -> bool:
    order: OrderState = place.values[command.order]
    due = is_proved(place.clock, order.retry_due_us)
    return order.state == "retry_wait" and order.version == command.expected and due


def _reexamine(place: Place, command: c.Reexamine) -> bool | None:
    order: OrderState = place.values[command.order]
    return None if order.state == "blocked_budget" and order.version == command.expected else False


def _cancel(place: Place, command: c.CancelOrder) -> bool:
    order: OrderState = place.values[command.order]
    return order.state not in ENDED


def _cancel_plan(place: Place, command: c.CancelPlan) -> bool:
    plan: PlanState = place.values[command.plan]
    return plan.open > 0


def _deadline(place: Place, command: c.EnforceDeadline) -> bool:
    plan: PlanState = place.values[command.plan]
    return (
        plan.version == command.expected
        and plan.open > 0
        and not plan.cancel
        and plan.deadline_us is not None
        and is_proved(place.clock, plan.deadline_us)
    )


def _retry(place: Place, command: c.RetryOrder) -> bool | None:
    order: OrderState = place.values[command.order]
    if order.state == "retry_wait" and command.from_start:
        return False  # its next attempt goes on from what it saved
    if order.state == "retry_wait":
        return not starts_nothing(place, order)
    if order.parent is not None:
        return False  # its parent alone asks for it again
    lost = order.state in ENDED and order.state != "applied" and order.replaced_by is None
    return None if lost and not starts_nothing(place, order) else False


def _enrol(place: Place, command: c.EnrolWorker) -> bool:
    return not isinstance(place.values.get(command.worker), WorkerState)


def _submit(place: Place, command: c.SubmitPlan) -> bool:
    """Another content is refused while a plan of the name is open, unless it is meant to stand beside it."""
    plans = [value for value in place.values.values() if isinstance(value, PlanState)]
    same = any(plan.open and plan.content == command.content for plan in plans)
    return command.mode == "new" or same or not any(plan.open for plan in plans)


def _always(place: Place, command: Any) -> bool:
    return True


def _depends(place: Place, command: Any) -> None:
    return None


_EXPECTED: Mapping[type, Callable[[Place, Any], bool | None]] = {
    c.ObserveClock: _always,
    c.SubmitOrder: _always,
    c.SubmitPlan: _submit,
    c.CancelPlan: _cancel_plan,
    c.CancelOrder: _cancel,
    c.RetryOrder: _retry,
    c.SetBudget: _always,
    c.EnrolWorker: _enrol,
    c.Reserve: _reserve,
    c.ReserveNext: _reserve_next,
    c.ReleaseReservation: _release,
    c.Activate: _activate,
    c.RenewLeases: _always,
    c.AppendEvent: _event,
    c.SaveCheckpoint: _checkpoint,
    c.RecordArtifact: _speaks,
    c.ChargeUsage: _charge,
    c.SubmitChild: _child,
    c.ReportYielded: _yielded,
    c.AnswerOrder: _answer,
    c.EndWait: _end_wait,
    c.ReportResult: _report,
    c.ReportStopped: _stopped,
    c.RecordVerification: _verification,
    c.ApplyResult: _apply,
    c.ExpireAttempt: _expire,
    c.ProveHolderGone: _gone,
    c.SettleHold: _settle,
    c.EndBackoff: _backoff,
    c.Reexamine: _reexamine,
    c.TellDependents: _always,
    c.AdvanceCancel: _always,
    c.EnforceDeadline: _deadline,
}
