"""What makes work findable: the index rows of each value, as a function of the value alone.

A stage names a question that a service asks ("what may be claimed?"), a row's `due_us` from when on the answer holds.
The store keeps and finds these rows and never computes one. Rows of a value that changed are compared with those
that it had before, so that a row exists exactly while its value says so. The row that finds a subject by its birth
never changes, so that only those that come and go are compared.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from fencepost.core.limits import HOUR_US, MINUTE_US
from fencepost.core.state import AttemptState, HoldState, OrderState, PlanState, WorkerState

BONUS_US = {"low": 0, "normal": 10 * MINUTE_US, "high": HOUR_US}
"""Head start of each priority: fixed when an order becomes ready, so that it ages by itself and replays."""

CLAIM = "claim"  # orders that a worker may reserve
WAIT = "wait"  # waiting orders that go on by a time, by that time
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
    WAIT,
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
    rows = []
    state = value.state
    if state in ("ready", "blocked_budget"):
        stage = CLAIM if state == "ready" else BUDGET
        rows.append(_order_row(stage, value, value.ready_us - BONUS_US[value.terms.priority]))
    elif state == "retry_wait":
        rows.append(_order_row(RETRY, value, value.retry_due_us))
    elif state == "waiting" and value.wait_until_us:
        rows.append(_order_row(WAIT, value, value.wait_until_us))
    elif state == "result_pending":
        rows.append(_order_row(FINISH, value, value.moved_us))
    if not value.told_done:
        rows.append(_order_row(TELL, value, value.moved_us))
    return rows


def _order_row(stage: str, value: OrderState, due_us: int) -> Row:
    return Row(stage, value.plan or "", due_us, rank(value.position, value.spec_seq), value.order)


def _attempt_rows(value: AttemptState) -> list[Row]:
    if value.state == "reserved":
        stage, due_us = RESERVATION, value.activation_deadline_us
    elif value.state in ("leased", "running"):
        stage, due_us = LEASE, value.lease_us
    else:
        return []
    return [Row(stage, value.worker, due_us, value.reservation_seq, value.attempt)]


def _plan_rows(value: PlanState) -> list[Row]:
    rows = []
    if value.open and value.deadline_us is not None and not value.cancel:
        rows.append(Row(DEADLINE, "", value.deadline_us, value.record_seq, value.plan))
    if not value.cancel_done:
        rows.append(Row(REVISE, "", 0, value.record_seq, value.plan))
    return rows


def _hold_rows(value: HoldState) -> list[Row]:
    return [Row(UNSETTLED, "", value.settle_by_us, 0, value.hold)] if value.state == "unsettled" else []


def _no_rows(_: Any) -> list[Row]:
    return []


def _birth(value: Any) -> Row | None:
    """The row that a value has from its first version on, unchanged for ever."""
    if isinstance(value, OrderState):
        return Row(TASK, value.plan or "", value.position, value.spec_seq, value.order)
    if isinstance(value, AttemptState):
        return Row(ATTEMPT, value.order, value.ordinal, value.reservation_seq, value.attempt)
    if isinstance(value, PlanState):
        return Row(PLAN, value.name, value.submitted_us, value.record_seq, value.plan)
    if isinstance(value, WorkerState):
        return Row(WORKER, "", value.enrolled_us, 0, value.worker)
    return None


_MOVING: dict[type, Callable[[Any], list[Row]]] = {
    OrderState: _order_rows,
    AttemptState: _attempt_rows,
    PlanState: _plan_rows,
    HoldState: _hold_rows,
}
"""The rows that come and go with a value's state; a kind that is not here has none."""


def rows_of(value: Any) -> list[Row]:
    """Return the rows of one value, none for values that no service looks for."""
    born = _birth(value)
    moving = _MOVING.get(type(value), _no_rows)(value)
    return moving if born is None else [born, *moving]


def difference(before: Any | None, after: Any) -> tuple[list[Row], list[tuple[str, str]]]:
    """Return (rows to put, (stage, subject) pairs to delete) that turn the rows of `before` into those of `after`."""
    if before is None:
        return rows_of(after), []
    moving = _MOVING.get(type(after))
    if moving is None:
        return [], []
    old, new = moving(before), moving(after)
    if old == new:
        return [], []
    if not old:
        return new, []
    stages = {row.stage for row in new}
    return [row for row in new if row not in old], [(row.stage, row.subject) for row in old if row.stage not in stages]
