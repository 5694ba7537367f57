"""What people and programs are shown: documents made of states, as pure functions.

The documents are contracts (`product.md`); they only grow. Every one of them is true at a source sequence, which its
caller knows, and every pending item in them carries its stable reason code (W13, W28).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fencepost.core import needs
from fencepost.core.amounts import DIMENSIONS, available, over
from fencepost.core.deadlines import has_lapsed
from fencepost.core.machines import ENDED
from fencepost.core.reasons import WAITS_AND_ENDS, fill
from fencepost.core.records.attempt import ResultFacts
from fencepost.core.shares import MONEY
from fencepost.core.state import (
    Account,
    AttemptState,
    ClockState,
    HoldState,
    OrderState,
    PlanState,
    ScopeState,
    Source,
)


def amounts_document(amounts: Mapping[str, int]) -> dict[str, Any]:
    """Amounts in the documents' form: fixed dimensions always present, money as a table by currency."""
    document: dict[str, Any] = {dimension: amounts.get(dimension, 0) for dimension in DIMENSIONS}
    document["money_micros"] = {
        dimension.removeprefix(MONEY): amounts[dimension]
        for dimension in sorted(amounts)
        if dimension.startswith(MONEY) and amounts[dimension]
    }
    return document


def order_document(order: OrderState, facts: ResultFacts | None) -> dict[str, Any]:
    """An order; `facts` are those of its applied result, None while there is none."""
    artifacts = facts.artifacts if facts is not None and order.state == "applied" else ()
    return {
        "name": order.task,
        "id": order.order,
        "state": order.state,
        "reason": order.reason,
        "attempts": order.account.charged.get("attempts", 0),
        "charged": amounts_document(order.account.charged),
        "unknown": dict(sorted(order.account.unknown.items())),
        "artifacts": [
            {"path": artifact.path, "digest": artifact.digest, "bytes": artifact.bytes} for artifact in artifacts
        ],
        "effects": [],
        "plan": order.plan,
        "may_fail": order.may_fail,
        "attempt": order.attempt,
        "replaces": order.replaces,
        "replaced_by": order.replaced_by,
        "failures": order.failures,
        "retry_due_us": order.retry_due_us if order.state == "retry_wait" else None,
        "version": order.version,
        "parent": order.parent,
        "children": dict(sorted(order.children.items())),
        "checkpoints": order.checkpoint_number,
        "wait": wait_document(order),
        "answers": sorted(order.answers),
    }


def wait_document(order: OrderState) -> dict[str, Any] | None:
    """What a waiting order waits for: whichever of it comes first. None for an order that does not wait."""
    if order.wait is None:
        return None
    return {
        "question": order.wait.question or None,
        "prompt": order.wait.prompt or None,
        "orders": list(order.wait.orders),
        "until_us": order.wait.until_us or None,
    }


StateOf = Callable[[str], Any | None]
"""Finds a value by its subject, None where there is none: `kernel.read.Look.get`."""


def plan_outcome(plan: PlanState, orders: Sequence[OrderState], clock: ClockState | None, state_of: StateOf) -> str:
    """`open`, `done`, `failed`, or `waiting` when only a person can move what is left."""
    if plan.open == 0:
        return "done" if plan.lost == 0 else "failed"
    return "waiting" if only_a_person_can_move(orders, clock, state_of) else "open"


def only_a_person_can_move(orders: Sequence[OrderState], clock: ClockState | None, state_of: StateOf) -> bool:
    """Whether something has not ended and everything that has not waits, directly or not, for a person.

    While the clock is blocked nothing starts: what runs still ends, and all else waits for the clock's person. So does
    an attempt whose lease was over before: it can neither report any more nor be ended.

    Nobody need act as long as the system has something left to carry on: an end that has not been told to everyone, a
    cancel on its way, or a block that says what stood in the way before ceilings were set anew.
    """
    pending = [order for order in orders if order.state not in ENDED]
    if not pending or _is_carried_on(orders, pending, state_of):
        return False
    if clock is not None and is_blocked(clock):
        running = [order for order in pending if order.state in _RUNNING]
        if all(_is_over(order, clock, state_of) for order in running):
            return True
    waiting = [order for order in pending if waits_for_person(order)]
    if not waiting or not all(waits_for_person(order) or _waits_for_others(order) for order in pending):
        return False
    return not _is_examined_again(waiting, state_of)


def _is_carried_on(orders: Sequence[OrderState], pending: Sequence[OrderState], state_of: StateOf) -> bool:
    """Whether an end or a cancel has not reached all that it will reach by itself."""
    if any(not order.told_done for order in orders):
        return True
    plans = [state_of(name) for name in sorted({order.plan for order in pending if order.plan is not None})]
    return any(isinstance(plan, PlanState) and not plan.cancel_done for plan in plans)


def _is_examined_again(orders: Sequence[OrderState], state_of: StateOf) -> bool:
    """Whether one of them shows a block by budget that is out of date, so that the system moves it by itself."""
    accounts = {order.order: order.account for order in orders}

    def account_of(subject: str) -> Account:
        if subject not in accounts:
            value = state_of(subject)
            accounts[subject] = value.account if isinstance(value, ScopeState | PlanState | OrderState) else Account()
        return accounts[subject]

    for order in orders:
        if order.state != "blocked_budget":
            continue
        plan = state_of(order.plan) if order.plan is not None else None
        shares = needs.shares_now(order, account_of, plan.orders if isinstance(plan, PlanState) else 1)
        found = next(needs.exhaustions(order, shares, account_of), None)
        found = found or needs.obstacle(order, needs.wanted(order, shares, account_of), account_of)
        if found is None or found.code != order.reason:
            return True
    return False


def _waits_for_others(order: OrderState) -> bool:
    """Whether only the end of other orders of its plan lets it go on."""
    if order.state == "waiting" and order.wait is not None:
        return bool(order.wait.orders) and not order.wait.until_us
    return order.state == "blocked_dependency"


_RUNNING = frozenset({"active", "result_pending", "reserved", "cancellation_requested"})
_NEEDS_CLOCK = frozenset({"ready", "reserved", "retry_wait", "waiting"})


def is_blocked(clock: ClockState | None) -> bool:
    """Whether a reading contradicted the accepted time, so that only a person can let time go on."""
    return clock is not None and clock.state == "clock_reconciliation_required"


def held_up_by_clock(order: OrderState, clock: ClockState | None, state_of: StateOf) -> bool:
    """Whether the order would move if the clock ran."""
    if clock is None or clock.state == "running":
        return False
    return order.state in _NEEDS_CLOCK or _is_over(order, clock, state_of)


def _is_over(order: OrderState, clock: ClockState, state_of: StateOf) -> bool:
    """Whether what an order's state says is running has outlived its lease."""
    attempt = state_of(order.attempt) if order.state == "active" and order.attempt else None
    return isinstance(attempt, AttemptState) and has_lapsed(clock, attempt.lease_us)


def waits_for_person(order: OrderState) -> bool:
    """Whether the order's own reason says that a person must act (exit code 9)."""
    row = WAITS_AND_ENDS.get(order.reason)
    return order.state not in ENDED and row is not None and row.exit_code == 9


def plan_document(plan: PlanState, outcome: str) -> dict[str, Any]:
    return {
        "plan": plan.plan,
        "name": plan.name,
        "outcome": outcome,
        "revision": plan.revision,
        "digest": plan.content,
        "orders": plan.orders,
        "open": plan.open,
        "applied": plan.applied,
        "lost": plan.lost,
        "cancel": plan.cancel or None,
        "deadline_us": plan.deadline_us,
        "submitted_us": plan.submitted_us,
        "ended_us": plan.ended_us,
        "charged": amounts_document(plan.account.charged),
    }


def attempt_document(attempt: AttemptState) -> dict[str, Any]:
    return {
        "attempt": attempt.attempt,
        "order": attempt.order,
        "ordinal": attempt.ordinal,
        "state": attempt.state,
        "reason": attempt.reason,
        "fence": attempt.fence,
        "generation": attempt.generation,
        "worker": attempt.worker,
        "host": attempt.host,
        "reserved_us": attempt.reserved_us,
        "activated_us": attempt.activated_us or None,
        "lease_until_us": attempt.lease_us or None,
        "ended_us": attempt.ended_us or None,
        "claim": attempt.claim,
        "verification": attempt.verification or None,
        "note": attempt.note or None,
        "heard_us": attempt.heard_us or None,
        "checkpoint": attempt.checkpoint or None,
        "kept": attempt.artifacts,
        "late": [{"what": what, "digest": digest} for what, digest, _ in attempt.late],
        "records": {
            "reservation": attempt.reservation_seq,
            "descriptor": attempt.descriptor_seq or None,
            "yield": attempt.yielded_seq or None,
            "stop": attempt.stopped_seq or None,
            "result": attempt.result_seq or None,
            "verification": attempt.verification_seq or None,
            "application": attempt.application_seq or None,
        },
    }


def account_document(subject: str, account: Account) -> dict[str, Any]:
    dimensions = sorted({*account.ceiling, *account.held, *account.charged, *account.unknown})
    return {
        "account": subject,
        "dimensions": {
            dimension: {
                "ceiling": account.ceiling.get(dimension),
                "held": account.held.get(dimension, 0),
                "charged": account.charged.get(dimension, 0),
                "available": available(account, dimension),
                "unknown": account.unknown.get(dimension, 0),
            }
            for dimension in dimensions
        },
        "over": over(account),
    }


def hold_document(hold: HoldState) -> dict[str, Any]:
    return {
        "hold": hold.hold,
        "attempt": hold.attempt,
        "state": hold.state,
        "held": hold.held,
        "charged": hold.charged,
        "basis": hold.basis or None,
        "receipts": list(hold.receipts),
        "unknown": hold.unknown,
    }


def why(order: OrderState, *, ready_behind: int = 0, undecided: bool = False) -> dict[str, Any]:
    """Why the order is where it is: the code, one sentence, and the command that would help (X3).

    `undecided` says that an order that this one waits for waits for a person itself, so that the verdict is open.
    """
    reason = "dependency_undecided" if undecided and order.state == "blocked_dependency" else order.reason
    row = WAITS_AND_ENDS.get(reason)
    detail = {"subject": order.task}
    sentence = fill(row.sentence, detail) if row is not None else f"It is {order.state}."
    following = fill(row.next_step, detail) if row is not None else "fencepost order show"
    return {
        "name": order.task,
        "id": order.order,
        "state": order.state,
        "reason": reason,
        "message": sentence,
        "next": following.replace("NAME", order.task),
        "ended": order.state in ENDED,
        "behind": ready_behind,
    }


def clock_document(clock: ClockState, utc_us: int) -> dict[str, Any]:
    return {
        "domain": clock.domain,
        "state": clock.state,
        "logical_us": clock.logical_us,
        "utc_us": utc_us,
        "behind_us": max(utc_us - clock.logical_us, 0),
        "uncertainty_us": clock.uncertainty_us,
        "observation": clock.last_seq,
        "quarantined": clock.quarantined_seq or None,
        "grace_until_us": clock.grace_until_us if clock.grace_until_us > clock.logical_us else None,
        "sources": {name: _source_document(source) for name, source in sorted(clock.sources.items())},
    }


def _source_document(source: Source) -> dict[str, Any]:
    return {
        "boot_id": source.boot_id,
        "anchor_logical_us": source.anchor_logical_us,
        "anchor_utc_us": source.anchor_utc_us,
        "anchor_tick_us": source.anchor_tick,
        "last_tick_us": source.last_tick,
        "observation": source.last_seq,
    }
