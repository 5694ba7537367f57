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
from fencepost.surfaces.cli.words import amounts, one_line

FILES_SHOWN_MAX = 8
DIGEST_CHARACTERS = 23  # "sha256:" and sixteen digits: enough to compare by eye; documents have all of it


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One order at the end of a run. `facts` are those of the result that was judged last."""

    order: OrderState
    attempt: AttemptState | None
    facts: ResultFacts | None


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
    for order in orders:
        attempt = attempts.get(order.attempt) if order.attempt else None
        facts = look.facts(order.result_seq) if order.result_seq else None
        findings.append(
            Finding(order=order, attempt=attempt if isinstance(attempt, AttemptState) else None, facts=facts)
        )
    digest = projection_digest(row for page in look.state_pages() for row in page)
    return Report(plan=plan, outcome=outcome, sequence=look.head.seq, digest=digest, findings=tuple(findings))


def print_report(found: Report, out: TextIO) -> None:
    plan = found.plan
    counts = _counts(found)
    out.write(f"\nplan {plan.name}: {found.outcome} ({counts})\n")
    width = max(len(finding.order.task) for finding in found.findings)
    for finding in found.findings:
        _print_order(finding, out, width, plan.name)
    out.write(f"  cost: {amounts(plan.account.charged)}\n")


def _counts(found: Report) -> str:
    states: dict[str, int] = {}
    for finding in found.findings:
        states[finding.order.state] = states.get(finding.order.state, 0) + 1
    return ", ".join(f"{count} {state}" for state, count in sorted(states.items()))


def _print_order(finding: Finding, out: TextIO, width: int, plan: str) -> None:
    order, facts = finding.order, finding.facts
    told = order.state if order.state == order.reason else f"{order.state} ({order.reason})"
    allowed = ", may fail" if order.may_fail and order.state in ENDED and order.state != "applied" else ""
    out.write(f"  {order.task.ljust(width)}  {told}{allowed}; {amounts(order.account.charged)}\n")
    indent = " " * (width + 4)
    if order.state == "applied" and facts is not None:
        for line in _proofs(finding, facts):
            out.write(f"{indent}{line}\n")
        return
    if facts is not None and facts.message:
        out.write(f"{indent}{one_line(facts.message)[:200]}\n")
    out.write(f"{indent}next: {_following(order, plan)}\n")


def _following(order: OrderState, plan: str) -> str:
    """What helps an order on; where that depends on other orders, `why` names them."""
    name = f"{plan}/{order.task}"
    row = WAITS_AND_ENDS.get(order.reason)
    if row is None or "OTHER" in row.next_step or order.state == "blocked_dependency":
        return f"fencepost order why {name}"
    return row.next_step.replace("NAME", name)


def _proofs(finding: Finding, facts: ResultFacts) -> list[str]:
    lines = []
    for artifact in facts.artifacts[:FILES_SHOWN_MAX]:
        lines.append(f"{one_line(artifact.path)}  {artifact.digest[:DIGEST_CHARACTERS]}  {artifact.bytes} bytes")
    more = len(facts.artifacts) - FILES_SHOWN_MAX
    if more > 0:
        lines.append(f"and {more} more files: fencepost order files {finding.order.task}")
    checks = [f"exit code {facts.exit_code}"]
    checks += [f"schema of {receipt.subject} followed" for receipt in facts.validation if receipt.check == "schema"]
    if finding.attempt is not None and finding.attempt.verification:
        checks.append(f"verifier {finding.attempt.verification}")
    lines.append(f"proved by {', '.join(checks)}")
    return lines
