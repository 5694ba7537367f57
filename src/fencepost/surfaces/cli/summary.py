"""The end of a run: for each order what happened, what it cost, and what proves it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any, TextIO

import msgspec

from fencepost.core.amounts import over
from fencepost.core.machines import ENDED
from fencepost.core.reasons import WAITS_AND_ENDS
from fencepost.core.records.attempt import ResultFacts
from fencepost.core.state import Account, AttemptState, OrderState, PlanState
from fencepost.core.views import order_document
from fencepost.kernel.read import Look
from fencepost.kernel.replay import projection_digest
from fencepost.surfaces.cli.accounts import refused_of
from fencepost.surfaces.cli.context import is_one_of_several
from fencepost.surfaces.cli.order_attempts import tries_text
from fencepost.surfaces.cli.order_failure import failure_lines, left_out_lines, note_lines, wait_lines, wait_step
from fencepost.surfaces.cli.order_why import because_lines, budget_lines, budget_of
from fencepost.surfaces.cli.retry_step import with_retry
from fencepost.surfaces.cli.summary_fold import folded_rows, is_acting, names_text, step_lines
from fencepost.surfaces.cli.summary_table import Entry, table_lines, unbroken
from fencepost.surfaces.cli.typed import filled_step, here, plan_file
from fencepost.surfaces.cli.view.cells import Line, Span, clean, painted
from fencepost.surfaces.cli.view.signs import Marks, rank_of
from fencepost.surfaces.cli.words import (
    amount,
    amounts,
    columns,
    cost_text,
    count,
    dimension_label,
    duration,
    named_step,
    wrapped,
)

ORDERS_SHOWN_MAX = 60  # on a terminal
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
    refused: Mapping[str, int] = field(default_factory=dict)  # charged in currencies that are not budgeted above it
    is_orphan: bool = False  # its attempt lives on paper only: the worker that had it is gone
    tries: str = "-"  # its own: those of the orders that it submitted stand beside them


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


def report(look: Look, plan: PlanState, outcome: str, *, gone: Set[str] = frozenset()) -> Report:
    """`gone` are the orders whose worker is seen to be gone (`living.orphans`)."""
    orders = look.orders(plan.plan)
    attempts = look.many([order.attempt for order in orders if order.attempt])
    findings = []
    levels: dict[str, Mapping[str, int]] = {}
    budgets_left, causes_left = BUDGETS_SHOWN_MAX, ORDERS_SHOWN_MAX
    file = plan_file(look, plan.plan)
    by_id = is_one_of_several(look, plan)
    for order in orders:
        attempt = attempts.get(order.attempt) if order.attempt else None
        facts = look.facts(order.result_seq) if order.result_seq else None
        known = attempt if isinstance(attempt, AttemptState) else None
        name = order.order if by_id or order.replaced_by is not None else f"{plan.name}/{order.task}"
        details, following = _helps(look, plan, order, known, file, name, budgets_left)
        budgets_left -= _lacks_budget(order)
        if order.state == "dependency_failed" and causes_left > 0:
            details, causes_left = because_lines(look, order), causes_left - 1
            following = "" if details else following  # what helps its cause brings it back
        if order.order in gone:
            following = filled_step("fencepost run PLAN, or fencepost worker start", file=file, is_open=plan.open > 0)
        findings.append(
            Finding(
                order=order,
                is_orphan=order.order in gone,
                attempt=known,
                facts=facts,
                details=details,
                following=following,
                refused=refused_of(look, order, levels),
                tries=tries_text(look, order),
            )
        )
    digest = projection_digest(row for page in look.state_pages() for row in page)
    return Report(plan=plan, outcome=outcome, sequence=look.head.seq, digest=digest, findings=tuple(findings))


def print_report(found: Report, out: TextIO, *, colour: bool, marks: Marks | None) -> None:
    """The table and what all of it cost. `marks` are given where a person looks: a long list is then cut short."""
    plan = found.plan
    width = columns() - 1
    rows = _rows(found.findings)
    shown = _shown(rows) if marks is not None else rows
    lines: list[Line] = [
        (),
        (Span(f"plan {plan.name}: {found.outcome}", "strong"), Span(f" ({_counts(found.findings)})")),
    ]
    lines += table_lines([row.entry for row in shown], width=width, marks=marks)
    rest = [finding for row in rows if row not in shown for finding in row.findings]
    if rest:
        lines.append((Span(here(f"and {_counts(rest)} more: fencepost order list --plan {plan.name}")),))
    lines += [(Span(line),) for line in wrapped(f"cost: {_cost(plan.account)}", after="  ")]
    steps = step_lines([(name, here(step)) for row in shown for name, step in row.steps()])
    lines += [(Span(part),) for line in steps for part in unbroken(clean(line), width)]
    out.write("".join(painted(line, colour=colour) + "\n" for line in lines))


@dataclass(frozen=True, kw_only=True)
class _Row:
    """One line of the table and the orders that it tells of."""

    entry: Entry
    findings: tuple[Finding, ...]

    def steps(self) -> list[tuple[str, str]]:
        """What helps its orders on, with whose step it is: each that has to be taken, one of those that only look."""
        first, *others = self.findings
        acting = [finding for finding in others if is_acting(finding.following)]
        alone = first.order.task if acting else self.entry.name
        return [(alone, first.following), *((each.order.task, each.following) for each in acting)]


def _rows(findings: Sequence[Finding]) -> list[_Row]:
    entries = [_entry(finding) for finding in findings]
    kept = [finding.order.state == "applied" for finding in findings]
    rows = []
    for places in folded_rows(entries, kept=kept):
        entry, told = entries[places[0]], tuple(findings[place] for place in places)
        rows.append(_Row(entry=entry if len(places) == 1 else _folded(entry, told, places), findings=told))
    return rows


def _folded(entry: Entry, findings: Sequence[Finding], places: Sequence[int]) -> Entry:
    """What orders that ended alike took together."""
    charged: dict[str, int] = {}
    for finding in findings:
        for dimension, used in finding.order.account.charged.items():
            charged[dimension] = charged.get(dimension, 0) + used
    tries = sum(int(finding.tries) for finding in findings if finding.tries.isdecimal())
    return msgspec.structs.replace(
        entry,
        name=names_text([finding.order.task for finding in findings], is_run=places[-1] - places[0] < len(places)),
        tries=str(tries) if tries else "-",
        time=duration(charged["time_us"]) if charged.get("time_us") else "-",
        cost=cost_text(charged),
    )


def _shown(rows: Sequence[_Row]) -> list[_Row]:
    """At most ORDERS_SHOWN_MAX, in the plan's order: what needs a person or failed before what only waits."""
    if len(rows) <= ORDERS_SHOWN_MAX:
        return list(rows)
    pressing = sorted(range(len(rows)), key=lambda place: rank_of(rows[place].entry.state))
    return [rows[place] for place in sorted(pressing[:ORDERS_SHOWN_MAX])]


def _counts(findings: Sequence[Finding]) -> str:
    states: dict[str, int] = {}
    for finding in findings:
        states[finding.order.state] = states.get(finding.order.state, 0) + 1
    return ", ".join(f"{count} {state}" for state, count in sorted(states.items()))


def _cost(account: Account) -> str:
    """Everything that was charged, each against its ceiling."""
    charged = [name for name in sorted(account.charged) if account.charged[name]]
    parts = []
    beyond = over(account)
    for name in charged:
        ceiling = account.ceiling.get(name)
        most = f" of {amount(name, ceiling)}" if ceiling is not None else ""
        most += f" ({amount(name, beyond[name])} over)" if name in beyond else ""
        parts.append(f"{dimension_label(name)} {amount(name, account.charged[name])}{most}")
    return ", ".join(parts) or "nothing"


def _entry(finding: Finding) -> Entry:
    order, facts = finding.order, finding.facts
    charged = order.account.charged
    entry = Entry(
        name=order.task,
        state=order.state,
        tries=finding.tries,
        time=duration(charged["time_us"]) if charged.get("time_us") else "-",
        cost=cost_text(charged),
    )
    own = over(order.account)
    refused = {name: value for name, value in finding.refused.items() if name not in own}
    below = [f"over its ceiling by {amounts(own)}"] if own else []
    below += [f"over: {amounts(refused)} in a currency that is not budgeted"] if refused else []
    entry = msgspec.structs.replace(entry, below=tuple(below))
    if order.state == "applied" and facts is not None:
        files, checks = _proofs(finding, facts)
        return msgspec.structs.replace(entry, told=checks, copied=tuple(files))
    allowed = "may fail" if order.may_fail and order.state in ENDED and order.state != "applied" else ""
    reason = "worker gone" if finding.is_orphan else order.reason if order.reason != order.state else ""
    told = ", ".join(part for part in (reason, allowed) if part)
    return msgspec.structs.replace(entry, told=told, below=(*entry.below, *finding.details))


def _helps(
    look: Look,
    plan: PlanState,
    order: OrderState,
    attempt: AttemptState | None,
    file: str,
    name: str,
    budgets_left: int,
) -> tuple[tuple[str, ...], str]:
    """What is known of an order that was not applied, and what helps it on; `name` is how it may be named.

    Where that depends on other orders, `why` names them.
    """
    if order.state == "applied":
        return (), ""
    if (waits := wait_step(look, order)) is not None:
        return tuple(wait_lines(look, order)), waits
    row = WAITS_AND_ENDS.get(order.reason)
    if row is None or "OTHER" in row.next_step or order.state == "blocked_dependency":
        return (), f"fencepost order why {name}"
    if _lacks_budget(order):
        found = budget_of(look, order) if budgets_left > 0 else {}
        lines = [line.strip() for short in found.get("budget", ()) for line in budget_lines(short)]
        return tuple(lines), found.get("next") or f"fencepost order why {name}"
    ordinal = attempt.ordinal if attempt is not None else None
    step = filled_step(with_retry(look, order, row.next_step), file=file, is_open=plan.open > 0)
    step = named_step(step, name, ordinal)
    return (*note_lines(look, order), *failure_lines(look, order), *left_out_lines(look, order)), step


def _lacks_budget(order: OrderState) -> bool:
    """Whether only a ceiling that a person sets brings it on, so that it is told which."""
    return order.state == "budget_exhausted" or order.reason == "currency_not_budgeted"


def _proofs(finding: Finding, facts: ResultFacts) -> tuple[list[str], str]:
    """The files that were accepted, and what was checked of them."""
    lines = []
    for artifact in facts.artifacts[:FILES_SHOWN_MAX]:
        lines.append(f"{artifact.path}  {artifact.digest[:DIGEST_CHARACTERS]}  {count(artifact.bytes, 'byte')}")
    more = len(facts.artifacts) - FILES_SHOWN_MAX
    if more > 0:
        lines.append(here(f"and {count(more, 'more file')}: fencepost order files {finding.order.task}"))
    checks = [f"exit code {facts.exit_code}"]
    checks += [f"schema of {receipt.subject} followed" for receipt in facts.validation if receipt.check == "schema"]
    if finding.attempt is not None and finding.attempt.verification:
        checks.append(f"verifier {finding.attempt.verification}")
    return lines, ", ".join(checks)
