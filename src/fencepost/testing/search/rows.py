"""Every row of every machine: reached in some world, or listed here with the reason why nothing leads there.

The table is checked both ways: a row that is neither reached nor listed is missing, and one that is both is a lie. Each
reason is proved as well, by the argument that stands in `ARGUMENT` (`proofs`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from fencepost.core.machines import MACHINES, WORK_ORDER
from fencepost.testing.search.place import MachineRow

EFFECTS = "needs an outside effect, which no executor of this version has"
POLICY = "needs a constitution that changes while orders wait, and no command changes it yet"
CONTENT = "needs content that this program cannot evaluate, which admission refuses today"
CHOICE = "needs a person who chooses among results, and no command does that yet"
ADOPT = "belongs to plans that recover by adoption; admission takes `replace` only"
APPLIED_EFFECT = "a cancel ends so after an effect that was applied, and nothing records such an effect yet"
STARTED = "needs an attempt that ends the order without a result; today such an order is ready or exhausted"
HELD = "dependencies hold for good once they hold, so that nothing that was ready waits for them again"
OWN_BLOCK = "an order comes to be blocked by budget only when it is tried, which is when it is ready"
REQUESTED = "a cancel of a running attempt passes through cancellation_requested, in the same batch"
RESULT_FIRST = "two results differ only after the first has made the order wait"
SAME_BATCH = "a spec and its first move stand in one batch, in a plan that nobody has cancelled yet"
PERSON_OF_CLOCK = "needs the person who reconciles a clock, and no command does that yet"
EXPIRES = "the reservation ends first: the order is ready in the batch that ends it"
REPORTED = "what was reported is judged as a result; it is exhausted only when it is tried again"

UNWRITTEN = "unwritten"
"""Nothing in the core moves a subject to the row's target, or none to its origin: read from the source (`writers`)."""
CLOSED = "closed"
"""Both states are written. No command takes the row, from an order of any shape, in any combination (`closure`)."""
ARGUMENT: Mapping[str, str] = {
    **dict.fromkeys((EFFECTS, POLICY, CONTENT, PERSON_OF_CLOCK), UNWRITTEN),
    **dict.fromkeys((CHOICE, ADOPT, APPLIED_EFFECT, STARTED, HELD, OWN_BLOCK, REQUESTED, RESULT_FIRST), CLOSED),
    **dict.fromkeys((SAME_BATCH, EXPIRES, REPORTED), CLOSED),
}
"""Reason -> the argument that proves it."""


def _table() -> dict[MachineRow, str]:
    listed: dict[MachineRow, str] = {}

    def order(origin: str, reason: str, *targets: str) -> None:
        listed.update({MachineRow("work_order", origin, target): reason for target in targets})

    def attempt(origin: str, reason: str, *targets: str) -> None:
        listed.update({MachineRow("attempt", origin, target): reason for target in targets})

    for origin, targets in WORK_ORDER.rows.items():
        order(origin, POLICY, *(target for target in targets if "blocked_policy" in (origin, target)))
        order(origin, CONTENT, *(target for target in targets if "quarantined" in (origin, target)))
        effects = ("reconciling", "unknown_terminal")
        order(origin, EFFECTS, *(target for target in targets if origin in effects or target in effects))
    order("submitted", OWN_BLOCK, "blocked_budget")
    order("submitted", SAME_BATCH, "cancelled")
    order("blocked_dependency", OWN_BLOCK, "blocked_budget", "budget_exhausted")
    order("blocked_budget", HELD, "blocked_dependency", "dependency_failed")
    order("ready", HELD, "blocked_dependency", "dependency_failed")
    order("reserved", HELD, "blocked_dependency", "dependency_failed")
    order("reserved", EXPIRES, "blocked_budget")
    order("active", STARTED, "retry_wait", "failed")
    order("active", REQUESTED, "cancelled")
    order("active", RESULT_FIRST, "conflict")
    order("cancellation_requested", APPLIED_EFFECT, "failed")
    order("waiting", APPLIED_EFFECT, "failed")
    order("retry_wait", REPORTED, "budget_exhausted", "failed")
    order("conflict", CHOICE, "result_pending", "failed")
    resolved = ("result_reported", "retryable_failed", "failed", "unknown_terminal", "cancelled_no_effect")
    attempt("reconciling", EFFECTS, *resolved)
    for origin in ("running", "cancellation_requested", "lease_expired", "result_reported"):
        attempt(origin, EFFECTS, "reconciling")
    attempt("lease_expired", ADOPT, "result_reported")
    listed[MachineRow("clock_domain", "clock_reconciliation_required", "running")] = PERSON_OF_CLOCK
    strange = sorted(listed.keys() - ALL)
    if strange:
        raise LookupError(f"listed as unreachable and in no table: {strange[0]}")
    return listed


def _all_rows() -> frozenset[MachineRow]:
    rows = {MachineRow(name, "", first) for name, machine in MACHINES.items() for first in machine.first}
    for name, machine in MACHINES.items():
        rows |= {MachineRow(name, origin, target) for origin, targets in machine.rows.items() for target in targets}
    return frozenset(rows)


ALL: frozenset[MachineRow] = _all_rows()
"""Every row of every machine, births included (from "")."""

BEFORE_THE_SEARCH = frozenset({MachineRow("clock_domain", "", "running")})
"""Rows that each world takes before it begins."""

UNREACHABLE: Mapping[MachineRow, str] = _table()
"""Row -> why no command of this version leads along it."""


class Coverage(NamedTuple):
    """How the rows that were reached compare with those that there are."""

    reached: frozenset[MachineRow]
    missing: tuple[MachineRow, ...]  # neither reached nor listed
    lies: tuple[MachineRow, ...]  # listed and reached all the same
    foreign: tuple[MachineRow, ...]  # reached and in no table


def coverage(reached: Iterable[MachineRow]) -> Coverage:
    """Compare what some searches have reached with the tables of the machines."""
    found = frozenset(reached) | BEFORE_THE_SEARCH
    return Coverage(
        found & ALL,
        tuple(sorted(ALL - found - UNREACHABLE.keys())),
        tuple(sorted(found & UNREACHABLE.keys())),
        tuple(sorted(found - ALL)),
    )
