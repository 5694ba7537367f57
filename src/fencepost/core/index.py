"""What makes work findable: the index rows of each value, as a function of the value alone.

A stage names a question that a service asks ("what may be claimed?"), a row's `due_us` from when on the answer holds.
The store keeps and finds these rows and never computes one. Rows of a value that changed are compared with those
that it had before, so that a row exists exactly while its value says so.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from fencepost.core.limits import HOUR_US, MINUTE_US
from fencepost.core.state import AttemptState, HoldState, OrderState, PlanState, WorkerState

BONUS_US = {"low": 0, "normal": 10 * MINUTE_US, "high": HOUR_US}
"""Head start of each priority: fixed when an order becomes ready, so that it ages by itself and replays."""

CLAIM = "claim"  # orders that a worker may reserve
RETRY = "retry"  # orders whose backoff ends
BUDGET = "budget"  # orders that wait for budget to come free
FINISH = "finish"  # orders whose result waits for verification or reduction
TELL = "tell"  # ended orders whose dependents have not all been told
TASK = "task"  # every order of a plan, in definition order
RESERVATION = "reservation"  # reservations, by activation deadline
LEASE = "lease"  # live leases, by their end
UNSETTLED = "unsettled"  # holds that wait for facts, by the time that settles them anyway
PLAN = "plan"  # every plan, by submission
DEADLINE = "deadline"  # open plans with a deadline
REVISE = "revise"  # plans whose cancel has not reached every order
WORKER = "worker"  # every worker start
ATTEMPT = "attempt"  # every attempt of an order, by ordinal

STAGES = (
    CLAIM,
    RETRY,
    BUDGET,
    FINISH,
    TELL,
    TASK,
    RESERVATION,
    LEASE,
    UNSETTLED,
    PLAN,
    DEADLINE,
    REVISE,
    WORKER,
    ATTEMPT,
)

_SEQ_BITS = 40  # of a rank: position above, sequence below


class Row(NamedTuple):
    """One way to find a subject. Unique by (stage, subject)."""

    stage: str
    group: str
    due_us: int
    rank: int
    subject: str


def rank(position: int, seq: int) -> int:
    """Ties within a stage: plan position first, then sequence."""
    return (position << _SEQ_BITS) | seq


def _order_rows(value: OrderState) -> list[Row]:
    group = value.plan or ""
    place = rank(value.position, value.spec_seq)
    rows = [Row(TASK, group, value.position, value.spec_seq, value.order)]
    if value.state == "ready":
        rows.append(Row(CLAIM, group, value.ready_us - BONUS_US[value.terms.priority], place, value.order))
    elif value.state == "retry_wait":
        rows.append(Row(RETRY, group, value.retry_due_us, place, value.order))
    elif value.state == "blocked_budget":
        rows.append(Row(BUDGET, group, value.ready_us - BONUS_US[value.terms.priority], place, value.order))
    elif value.state == "result_pending":
        rows.append(Row(FINISH, group, value.moved_us, place, value.order))
    if not value.told_done:
        rows.append(Row(TELL, group, value.moved_us, place, value.order))
    return rows


def _attempt_rows(value: AttemptState) -> list[Row]:
    seq = value.reservation_seq
    rows = [Row(ATTEMPT, value.order, value.ordinal, seq, value.attempt)]
    if value.state == "reserved":
        rows.append(Row(RESERVATION, value.worker, value.activation_deadline_us, seq, value.attempt))
    elif value.state in ("leased", "running"):
        rows.append(Row(LEASE, value.worker, value.lease_us, seq, value.attempt))
    return rows


def _plan_rows(value: PlanState) -> list[Row]:
    rows = [Row(PLAN, value.name, value.submitted_us, value.record_seq, value.plan)]
    if value.open and value.deadline_us is not None and not value.cancel:
        rows.append(Row(DEADLINE, "", value.deadline_us, value.record_seq, value.plan))
    if not value.cancel_done:
        rows.append(Row(REVISE, "", 0, value.record_seq, value.plan))
    return rows


def rows_of(value: Any) -> list[Row]:
    """Return the rows of one value, none for values that no service looks for."""
    if isinstance(value, OrderState):
        return _order_rows(value)
    if isinstance(value, AttemptState):
        return _attempt_rows(value)
    if isinstance(value, PlanState):
        return _plan_rows(value)
    if isinstance(value, HoldState):
        if value.state == "unsettled":
            return [Row(UNSETTLED, "", value.settle_by_us, 0, value.hold)]
        return []
    if isinstance(value, WorkerState):
        return [Row(WORKER, "", value.enrolled_us, 0, value.worker)]
    return []


def difference(before: Any | None, after: Any) -> tuple[list[Row], list[tuple[str, str]]]:
    """Return (rows to put, (stage, subject) pairs to delete) that turn the rows of `before` into those of `after`."""
    new = rows_of(after)
    if before is None:
        return new, []
    old = {row.stage: row for row in rows_of(before)}
    put = [row for row in new if old.pop(row.stage, None) != row]
    return put, [(row.stage, row.subject) for row in old.values()]
