"""Every state machine as data, and the one function that moves a state.

A pair (state, next state) that has no entry here is not a transition: a decider never proposes it and replay stops
on it with `CorruptHistory`. Every state has a row, terminal ones an empty one. Beside each nonterminal state stand
the reason codes that it may show, so that every pending item explains itself (W13, W14). `docs/LIFECYCLE.md` is
generated from this module.

Guards, on every row of the work-order machine:

- **G1** while an effect of the order is started or ambiguous, the only targets are `cancellation_requested`,
  `reconciling`, `unknown_terminal` and `conflict`;
- **G2** `cancelled` needs every effect of the lineage proved absent or never started; with an applied one an
  accepted cancel ends as `failed`, reason `cancelled_after_effect`;
- **G3** an attempt that fails after an effect passes through `reconciling`, even if the receipt is conclusive.

And on both machines: nothing is `reconciling` without a recorded possible effect (W14).

Tables are versioned with the record version and only grow within one.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType

import msgspec


class CorruptHistory(Exception):
    """A journal says something that no decider could have decided. Nobody's input causes it: work stops here."""

    code = "corrupt_history"


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """One machine. `rows` maps each state to the states it may move to, in the order of the documents."""

    name: str
    version: int
    first: tuple[str, ...]  # states in which a subject may be born
    rows: Mapping[str, tuple[str, ...]]
    reasons: Mapping[str, tuple[str, ...]]  # nonterminal state -> reason codes it may show
    automatic_end: tuple[str, ...] = ()  # terminal for automatic execution, left only by a human word

    @property
    def states(self) -> tuple[str, ...]:
        return tuple(self.rows)

    @property
    def terminal(self) -> frozenset[str]:
        return frozenset(state for state, targets in self.rows.items() if not targets)

    def allows(self, state: str, target: str) -> bool:
        return target in self.rows.get(state, ())

    def require(self, state: str, target: str) -> str:
        """Return `target` when the table has the pair; raise CorruptHistory otherwise."""
        if target not in self.rows.get(state, ()):
            raise CorruptHistory(f"{self.name}: {state} -> {target} is not a transition")
        return target


class Guard(StrEnum):
    """Why a move that the table has is nevertheless not permitted now."""

    EFFECT_OPEN = "G1"
    EFFECT_NOT_ABSENT = "G2"
    EFFECT_RECEIPT = "G3"
    NO_EFFECT = "W14"


def _frozen(rows: dict[str, tuple[str, ...]]) -> Mapping[str, tuple[str, ...]]:
    return MappingProxyType(rows)


WORK_ORDER = Machine(
    name="work_order",
    version=1,
    first=("submitted",),
    rows=_frozen(
        {
            "submitted": (
                "blocked_dependency",
                "blocked_policy",
                "blocked_budget",
                "ready",
                "dependency_failed",
                "cancelled",
                "quarantined",
            ),
            "blocked_dependency": (
                "blocked_policy",
                "blocked_budget",
                "ready",
                "dependency_failed",
                "budget_exhausted",
                "cancelled",
                "quarantined",
            ),
            "blocked_policy": (
                "blocked_dependency",
                "blocked_budget",
                "ready",
                "dependency_failed",
                "budget_exhausted",
                "cancelled",
                "quarantined",
            ),
            "blocked_budget": (
                "blocked_dependency",
                "blocked_policy",
                "ready",
                "dependency_failed",
                "budget_exhausted",
                "cancelled",
                "quarantined",
            ),
            "ready": (
                "reserved",
                "blocked_dependency",
                "blocked_policy",
                "blocked_budget",
                "dependency_failed",
                "budget_exhausted",
                "cancelled",
            ),
            "reserved": (
                "active",
                "ready",
                "blocked_dependency",
                "blocked_policy",
                "blocked_budget",
                "dependency_failed",
                "cancelled",
            ),
            "active": (
                "result_pending",
                "cancellation_requested",
                "reconciling",
                "retry_wait",
                "ready",
                "failed",
                "budget_exhausted",
                "conflict",
                "cancelled",
                "waiting",
            ),
            "waiting": ("ready", "failed", "cancelled"),
            "cancellation_requested": ("cancelled", "reconciling", "failed"),
            "reconciling": ("result_pending", "retry_wait", "failed", "cancelled", "unknown_terminal"),
            "result_pending": ("applied", "retry_wait", "failed", "conflict", "cancelled", "reconciling"),
            "retry_wait": ("ready", "budget_exhausted", "failed", "cancelled"),
            "conflict": ("result_pending", "failed", "cancelled"),
            "quarantined": ("submitted", "failed", "cancelled"),
            "unknown_terminal": ("cancelled", "retry_wait", "failed", "result_pending"),
            "applied": (),
            "failed": (),
            "cancelled": (),
            "dependency_failed": (),
            "budget_exhausted": (),
        }
    ),
    reasons=_frozen(
        {
            "submitted": ("just_submitted",),
            "blocked_dependency": ("waiting_for_dependencies", "dependency_undecided"),
            "blocked_policy": ("policy_denied",),
            "blocked_budget": ("budget_held", "currency_not_budgeted"),
            "ready": (
                "waiting_for_worker",
                "lease_expired",
                "holder_gone",
                "keeper_lost",
                "drained",
                "reservation_expired",
                "reservation_released",
                "budget_freed",
                "backoff_over",
                "retry_requested",
                "containment_lost",
                "answered",
                "children_ended",
                "time_passed",
            ),
            "reserved": ("waiting_for_activation",),
            "active": ("attempt_running",),
            "waiting": (
                "waiting_for_answer",
                "waiting_for_answer_or_time",
                "waiting_for_children",
                "waiting_for_time",
            ),
            "cancellation_requested": ("cancel_requested",),
            "reconciling": ("effect_unresolved",),
            "result_pending": ("waiting_for_reduction", "waiting_for_verification"),
            "retry_wait": ("backoff",),
            "conflict": ("results_differ",),
            "quarantined": ("cannot_be_evaluated",),
            "unknown_terminal": ("effect_unknown",),
        }
    ),
    automatic_end=("unknown_terminal",),
)

ATTEMPT = Machine(
    name="attempt",
    version=1,
    first=("reserved",),
    rows=_frozen(
        {
            "reserved": ("leased", "expired_no_effect", "cancelled_no_effect"),
            "leased": (
                "running",
                "result_reported",
                "cancellation_requested",
                "lease_expired",
            ),
            "running": (
                "result_reported",
                "cancellation_requested",
                "lease_expired",
                "yielded",
                "reconciling",
            ),
            "cancellation_requested": ("cancelled_no_effect", "reconciling"),
            "lease_expired": ("cancelled_no_effect", "reconciling", "result_reported"),
            "reconciling": (
                "result_reported",
                "retryable_failed",
                "failed",
                "unknown_terminal",
                "cancelled_no_effect",
            ),
            "result_reported": (
                "accepted",
                "retryable_failed",
                "failed",
                "rejected_stale",
                "rejected_conflict",
                "reconciling",
            ),
            "accepted": (),
            "retryable_failed": (),
            "failed": (),
            "rejected_stale": (),
            "rejected_conflict": (),
            "expired_no_effect": (),
            "cancelled_no_effect": (),
            "yielded": (),
            "unknown_terminal": (),
        }
    ),
    reasons=_frozen(
        {
            "reserved": ("waiting_for_activation",),
            "leased": ("waiting_for_start",),
            "running": ("attempt_running",),
            "cancellation_requested": ("cancel_requested",),
            "lease_expired": ("lease_expired", "holder_gone"),
            "reconciling": ("effect_unresolved",),
            "result_reported": ("waiting_for_reduction", "waiting_for_verification", "results_differ"),
        }
    ),
)

BUDGET_HOLD = Machine(
    name="budget_hold",
    version=1,
    first=("held",),
    rows=_frozen(
        {
            "held": ("settled", "released", "unsettled"),
            "unsettled": ("settled",),
            "settled": (),
            "released": (),
        }
    ),
    reasons=_frozen({"held": ("attempt_running",), "unsettled": ("usage_unknown",)}),
)

CLOCK_DOMAIN = Machine(
    name="clock_domain",
    version=1,
    first=("running",),
    rows=_frozen(
        {
            "running": ("clock_reconciliation_required",),
            "clock_reconciliation_required": ("running",),
        }
    ),
    reasons=_frozen(
        {
            "running": ("clock_running",),
            "clock_reconciliation_required": ("clock_reconciliation_required",),
        }
    ),
)

MACHINES: Mapping[str, Machine] = MappingProxyType(
    {machine.name: machine for machine in (WORK_ORDER, ATTEMPT, BUDGET_HOLD, CLOCK_DOMAIN)}
)

WITH_OPEN_EFFECT = frozenset({"cancellation_requested", "reconciling", "unknown_terminal", "conflict"})
ENDED = WORK_ORDER.terminal
"""Final outcomes. `unknown_terminal` ends automatic execution only: its dependents wait for a person's word."""
LIVE = frozenset({"leased", "running"})  # attempt states that hold a live fence


def order_guard(
    target: str, *, effect_open: bool, effect_applied: bool, after_effect_failure: bool = False
) -> Guard | None:
    """Return the guard that forbids moving a work order to `target`, None when none does."""
    if target == "reconciling" and not (effect_open or effect_applied):
        return Guard.NO_EFFECT
    if effect_open and target not in WITH_OPEN_EFFECT:
        return Guard.EFFECT_OPEN
    if target == "cancelled" and (effect_open or effect_applied):
        return Guard.EFFECT_NOT_ABSENT
    if after_effect_failure and target not in WITH_OPEN_EFFECT:
        return Guard.EFFECT_RECEIPT
    return None
