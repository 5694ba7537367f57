"""The end of a run: for each order what happened, what it cost, and what proves it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TextIO

from fencepost.core.machines import ENDED
from fencepost.core.reasons import WAITS_AND_ENDS
from fencepost.core.records.attempt import ResultFacts
from fencepost.core.state import AttemptState, OrderState, PlanState
from fencepost.core.views import order_document
from fencepost.kernel.read import Look
from fencepost.kernel.replay import projection_digest
from fencepost.surfaces.cli.order_failure import failure_lines
from fencepost.surfaces.cli.order_why import budget_lines, budget_of
from fencepost.surfaces.cli.typed import here, plan_step
from fencepost.surfaces.cli.words import amounts, count, named_step, one_line, wrapped

FILES_SHOWN_MAX = 8
BUDGETS_SHOWN_MAX = 5  # what lacks in a budget is looked up for so many orders
DIGEST_CHARACTERS = 23  # "sha256:" and sixteen digits: enough to compare by eye; documents have all of it


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One order at the end of a run. `facts` are those of the result that was judged last."""

    order: OrderState
    attempt: AttemptState | None
    facts: ResultFacts | None
    details: tuple[str, ...] = ()  # why it was not applied, where more is known than its reason says
    following: str = ""


@dataclass(frozen=True, kw_only=True)
class Report:
    """What a run ends with, all of it true at `sequence`."""

    plan: PlanState
    outcome: str
    sequence: int
    digest: str
    findings: tuple[Finding, ...]

    def document(self) -> dict[str, Any]:
        return {
            "plan": self.plan.plan,
            "name": self.plan.name,
            "outcome": self.outcome,
            "sequence": self.sequence,
            "projection_digest": self.digest,
            "orders": [order_document(finding.order, finding.facts) for finding in self.findings],
        }


def report(look: Look, plan: PlanState, outcome: str) -> Report:
    orders = look.orders(plan.plan)
    attempts = look.many([order.attempt for order in orders if order.attempt])
    findings = []
    budgets_left = BUDGETS_SHOWN_MAX
    for order in orders:
        attempt = attempts.get(order.attempt) if order.attempt else None
        facts = look.facts(order.result_seq) if order.result_seq else None
        known = attempt if isinstance(attempt, AttemptState) else None
        details, following = _helps(look, order, known, f"{plan.name}/{order.task}", budgets_left)
        budgets_left -= order.state == "budget_exhausted"
        findings.append(Finding(order=order, attempt=known, facts=facts, details=details, following=following))
    digest = projection_digest(row for page in look.state_pages() for row in page)
    return Report(plan=plan, outcome=outcome, sequence=look.head.seq, digest=digest, findings=tuple(findings))


def print_report(found: Report, out: TextIO) -> None:
    plan = found.plan
    counts = _counts(found)
    out.write(f"\nplan {plan.name}: {found.outcome} ({counts})\n")
    width = max(len(finding.order.task) for finding in found.findings)
    for finding in found.findings:
        _print_order(finding, out, width)
    out.write(f"  cost: {amounts(plan.account.charged)}\n")


def _counts(found: Report) -> str:
    states: dict[str, int] = {}
    for finding in found.findings:
        states[finding.order.state] = states.get(finding.order.state, 0) + 1
    return ", ".join(f"{count} {state}" for state, count in sorted(states.items()))


def _print_order(finding: Finding, out: TextIO, width: int) -> None:
    order, facts = finding.order, finding.facts
    told = order.state if order.state == order.reason else f"{order.state} ({order.reason})"
    allowed = ", may fail" if order.may_fail and order.state in ENDED and order.state != "applied" else ""
    charged = f"; {amounts(order.account.charged)}" if any(order.account.charged.values()) else ""
    out.write(f"  {order.task.ljust(width)}  {told}{allowed}{charged}\n")
    indent = " " * (width + 4)
    if order.state == "applied" and facts is not None:
        for line in _proofs(finding, facts):
            out.write(f"{indent}{line}\n")
        return
    for line in finding.details:
        out.write("\n".join(wrapped(line, indent=indent, after=f"{indent}  ")) + "\n")
    out.write(f"{indent}next: {here(finding.following)}\n")


def _helps(
    look: Look, order: OrderState, attempt: AttemptState | None, name: str, budgets_left: int
) -> tuple[tuple[str, ...], str]:
    """What is known of an order that was not applied, and what helps it on.

    Where that depends on other orders, `why` names them.
    """
    if order.state == "applied":
        return (), ""
    row = WAITS_AND_ENDS.get(order.reason)
    if row is None or "OTHER" in row.next_step or order.state == "blocked_dependency":
        return (), f"fencepost order why {name}"
    if order.state == "budget_exhausted":
        found = budget_of(look, order) if budgets_left > 0 else {}
        lines = [line.strip() for short in found.get("budget", ()) for line in budget_lines(short)]
        return tuple(lines), found.get("next") or f"fencepost order why {name}"
    ordinal = attempt.ordinal if attempt is not None else None
    step = named_step(plan_step(look, order.plan, row.next_step), name, ordinal)
    return tuple(failure_lines(look, order)), step


def _proofs(finding: Finding, facts: ResultFacts) -> list[str]:
    lines = []
    for artifact in facts.artifacts[:FILES_SHOWN_MAX]:
        lines.append(
            f"{one_line(artifact.path)}  {artifact.digest[:DIGEST_CHARACTERS]}  {count(artifact.bytes, 'byte')}"
        )
    more = len(facts.artifacts) - FILES_SHOWN_MAX
    if more > 0:
        lines.append(here(f"and {count(more, 'more file')}: fencepost order files {finding.order.task}"))
    checks = [f"exit code {facts.exit_code}"]
    checks += [f"schema of {receipt.subject} followed" for receipt in facts.validation if receipt.check == "schema"]
    if finding.attempt is not None and finding.attempt.verification:
        checks.append(f"verifier {finding.attempt.verification}")
    lines.append(f"proved by {', '.join(checks)}")
    return lines
