"""What must hold on every edge and in every place of every world. Each rule answers with a sentence, "" when it holds.

Edges are judged by the states before and behind them, places by their state alone. Nothing here trusts what the core
counts: dependency verdicts come from the outcomes of the very orders, accounts from their holds, attempts from the
descriptors that stand.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fencepost.core import commands as c
from fencepost.core.decide import Decided
from fencepost.core.index import difference, rows_of
from fencepost.core.machines import ATTEMPT, BUDGET_HOLD, ENDED, MACHINES, WORK_ORDER
from fencepost.core.records.attempt import AttemptResult, LateRecord
from fencepost.core.state import AttemptState, HoldState, NameState, OrderState, PlanState, Value, receipt_subject
from fencepost.testing.search import expected, rules_inside
from fencepost.testing.search.moves import Cast, Move
from fencepost.testing.search.place import Place, Refold

_FINAL: dict[type, frozenset[str]] = {
    OrderState: WORK_ORDER.terminal,
    AttemptState: ATTEMPT.terminal,
    HoldState: BUDGET_HOLD.terminal,
}
_BLOCKED = frozenset({("work_order", "ready", "blocked_budget")})
_EXHAUSTED = frozenset(
    {
        ("work_order", "ready", "budget_exhausted"),
        ("work_order", "blocked_dependency", "ready"),
        ("work_order", "blocked_dependency", "dependency_failed"),
    }
)
_MAY_CHANGE: dict[str, frozenset[tuple[str, str, str]]] = {
    "budget_held": _BLOCKED,
    "currency_not_budgeted": _BLOCKED,
    "budget_exhausted": _EXHAUSTED,
    "rejected_stale": frozenset({("budget_hold", "unsettled", "settled")}),
    "rejected_conflict": frozenset({("work_order", "result_pending", "conflict"), ("budget_hold", "held", "settled")}),
}
"""Rows that a refusal may take. One that is not here may leave records of its own kind if it is durable, else none."""


def of_edge(before: Place, move: Move, decided: Decided, refold: Refold) -> str:
    """Why this edge should not exist, "" when all is well."""
    for rule in (_answer, _refusal, _fold, _versions, _finality, _accounts, _index, _outcome):
        problem = rule(before, move, decided, refold)
        if problem:
            return problem
    return ""


def of_answer(before: Place, move: Move, decided: Decided) -> str:
    """The same for a command that left no record: only its answer can be wrong."""
    return _answer(before, move, decided, None)


def _answer(before: Place, move: Move, decided: Decided, _: Refold | None) -> str:
    command, refusal = move.command, decided.refusal
    ought = expected.accepts(before, command)
    if ought is True and refusal is not None:
        return f"it ought to be accepted and is refused: {refusal.code}"
    if ought is False and refusal is None:
        return "it ought to be refused and is accepted"
    if isinstance(command, c.RenewLeases):
        renewed, ought_renew = list(decided.result["renewed"]), expected.renewed(before, command)
        if renewed != ought_renew:
            return f"{len(renewed)} leases are renewed and {len(ought_renew)} ought to be"
    return ""


def _refusal(before: Place, move: Move, decided: Decided, refold: Refold) -> str:
    refusal = decided.refusal
    if refusal is None:
        return ""
    if not refusal.reason.durable and refusal.code not in _MAY_CHANGE:
        return f"the refusal {refusal.code} is to bind nobody and leaves {len(decided.facts)} records"
    allowed = _MAY_CHANGE.get(refusal.code, frozenset())
    for subject, row in refold.moves:
        told = refusal.code == "budget_exhausted" and rules_inside.is_told_to_kin(refold, subject, row)
        if row not in allowed and not told:
            return f"the refusal {refusal.code} moves a {row.machine} from {row.origin} to {row.target}"
    return ""


def _fold(before: Place, move: Move, decided: Decided, refold: Refold) -> str:
    if refold.values.keys() != decided.values.keys():
        return "the records touch other subjects than what was decided"
    for subject, value in decided.values.items():
        if refold.values[subject] != value:
            return f"folding the records again gives another {type(value).__name__} than was decided"
    if refold.edges != list(decided.edges):
        return "folding the records again gives other dependencies"
    for number, fact in enumerate(decided.facts):
        if fact.seq != before.next_seq + number:
            return "the records do not follow on each other"
    return ""


def _versions(before: Place, move: Move, decided: Decided, refold: Refold) -> str:
    if refold.jumps:
        return f"the version of {refold.jumps[0]} does not go up by one with each record"
    return ""


def _finality(before: Place, move: Move, decided: Decided, refold: Refold) -> str:
    for subject, row in refold.moves:
        if row.origin in MACHINES[row.machine].terminal and row.origin:
            return f"{subject} leaves {row.origin}, which is final"
        if row.origin and not MACHINES[row.machine].allows(row.origin, row.target):
            return f"{subject} goes from {row.origin} to {row.target}, which is no row of its machine"
    for subject, value in _each(decided):
        final = _FINAL.get(type(value))
        known = before.values.get(subject)
        if known is None or final is None or known.state not in final:
            continue
        if value.state != known.state:
            return f"{subject} was {known.state}, which is final, and is {value.state}"
        if isinstance(value, OrderState) and value.reason != known.reason:
            return f"the reason of {subject}, which has ended, becomes {value.reason}"
        if isinstance(value, HoldState) and value.held:
            return f"{subject} has ended and holds something"
    return ""


def _each(decided: Decided) -> Iterator[tuple[str, Any]]:
    """The values that were decided, of whatever kind."""
    yield from decided.values.items()


_Moved = dict[tuple[str, str], int]


def _accounts(before: Place, move: Move, decided: Decided, refold: Refold) -> str:
    """Every account moves by exactly what the holds on it move by; no hold passes a ceiling."""
    by_holds: dict[str, _Moved] = {}
    granted: list[HoldState] = []
    for subject, value in decided.values.items():
        if isinstance(value, HoldState):
            known = before.values.get(subject)
            if known is None:
                granted.append(value)
            for name in value.accounts:
                _add(by_holds.setdefault(name, {}), known, value)
    for subject, value in decided.values.items():
        account = getattr(value, "account", None)
        if account is None:
            continue
        found: _Moved = {}
        _add(found, getattr(before.values.get(subject), "account", None), account)
        wanted = by_holds.pop(subject, {})
        for sort, dimension in {*found, *wanted}:
            here, there = found.get((sort, dimension), 0), wanted.get((sort, dimension), 0)
            if here != there:
                return f"{sort} {dimension} of {subject} moves by {here} and its holds by {there}"
    if any(any(total.values()) for total in by_holds.values()):
        return "a hold moves and an account above it does not"
    return _passed(decided, granted) or _refused_money(before, decided, granted)


def _refused_money(before: Place, decided: Decided, granted: list[HoldState]) -> str:
    """No hold is granted and no attempt starts below a level that names money and has any that it does not name."""
    holds = list(granted)
    for subject, value in decided.values.items():
        known = before.values.get(subject)
        if isinstance(value, AttemptState) and value.descriptor_seq and known is not None and not known.descriptor_seq:
            holds.append(before.values[value.hold])
    for hold in holds:
        for subject in hold.accounts:
            account = decided.values[subject].account  # type: ignore[attr-defined]  # a hold moved it
            money = {name for name in account.ceiling if name.startswith("money_micros:")}
            booked = [*account.charged.items(), *account.unknown.items(), *hold.held.items()]
            refused = {name for name, amount in booked if amount and name.startswith("money_micros:")} - money
            if money and refused:
                return f"an attempt goes on beside {min(refused)} of {subject}, which budgets other money"
    return ""


def _add(total: _Moved, known: Any, value: Any) -> None:
    """Add what `value` holds and has charged, and take away what it was known to."""
    for each, sign in ((value, 1), (known, -1)):
        if each is not None:
            for sort, amounts in (("held", each.held), ("charged", each.charged)):
                for dimension, amount in amounts.items():
                    total[sort, dimension] = total.get((sort, dimension), 0) + sign * amount


def _passed(decided: Decided, granted: list[HoldState]) -> str:
    for hold in granted:
        for subject in hold.accounts:
            account = decided.values[subject].account  # type: ignore[attr-defined]  # a hold moved it
            for dimension in hold.held:
                ceiling = account.ceiling.get(dimension)
                used = account.held.get(dimension, 0) + account.charged.get(dimension, 0)
                if ceiling is not None and used > ceiling:
                    return f"a hold takes {dimension} of {subject} to {used}, past its ceiling of {ceiling}"
    return ""


def _index(before: Place, move: Move, decided: Decided, refold: Refold) -> str:
    """The rows that a kernel would keep are those of the values."""
    for subject, value in decided.values.items():
        known = before.values.get(subject)
        put, delete = difference(known, value)
        rows = {} if known is None else {(row.stage, row.subject): row for row in rows_of(known)}
        for stage, name in delete:
            if rows.pop((stage, name), None) is None:
                return f"an index row of {subject} is deleted that was not there: {stage}"
        rows.update({(row.stage, row.subject): row for row in put})
        if rows != {(row.stage, row.subject): row for row in rows_of(value)}:
            return f"the index rows of {subject} are not those of its value"
    return ""


def _outcome(before: Place, move: Move, decided: Decided, refold: Refold) -> str:
    """What some commands lead to, when they are accepted."""
    command = move.command
    if decided.refusal is not None:
        return ""
    if isinstance(command, c.CancelOrder):
        state = _behind(before, decided, command.order).state
        return "" if state == "cancelled" else f"a cancel was accepted and the order is {state}"
    if isinstance(command, c.EndBackoff):
        state = _behind(before, decided, command.order).state
        return "" if state == "ready" else f"a backoff ended and the order is {state}"
    if isinstance(command, c.ExpireAttempt | c.ProveHolderGone):
        return _lost(before, decided, command.attempt)
    if isinstance(command, c.ApplyResult):
        return _applied(before, decided, command.attempt)
    return rules_inside.of_outcome(before, command, decided)


def _behind(before: Place, decided: Decided, subject: str) -> Any:
    found: Value | None = decided.values.get(subject)
    return before.values[subject] if found is None else found


def _lost(before: Place, decided: Decided, name: str) -> str:
    """An attempt that ended without a report holds nothing, and its order goes on if it can."""
    attempt: AttemptState = before.values[name]
    hold: HoldState = _behind(before, decided, attempt.hold)
    if hold.state not in BUDGET_HOLD.terminal:
        return f"an attempt was lost and its hold is {hold.state}"
    was: OrderState = before.values[attempt.order]
    order: OrderState = _behind(before, decided, attempt.order)
    if was.state in ENDED:
        return "" if order.state == was.state else f"an order that was {was.state} is {order.state}"
    if attempt.state == "reserved":
        return "" if order.state == "ready" else f"a reservation lapsed and the order is {order.state}"
    wanted = "ready" if _fits(before, decided, order) else "budget_exhausted"
    return "" if order.state == wanted else f"an attempt was lost and the order is {order.state}, not {wanted}"


def _fits(before: Place, decided: Decided, order: OrderState) -> bool:
    """Whether the smallest next hold would fit if nothing else were held: else the order is exhausted."""
    for subject in order.accounts:
        account = _behind(before, decided, subject).account
        for dimension, least in order.terms.hold_least.items():
            ceiling = account.ceiling.get(dimension)
            if ceiling is not None and account.charged.get(dimension, 0) + least > ceiling:
                return False
    return True


def _applied(before: Place, decided: Decided, name: str) -> str:
    """A result that meets its contract is applied; one that failed is tried again only as policy and budget allow."""
    attempt: AttemptState = before.values[name]
    if attempt.application_seq:
        return "" if not decided.facts else "a result is applied twice"
    body = before.body(attempt.result_seq)
    if not isinstance(body, AttemptResult):
        return "the result that is applied is none"
    order: OrderState = _behind(before, decided, attempt.order)
    facts = body.facts
    verified = not order.terms.accept.verify or attempt.verification == "passed"
    if facts.outcome == "succeeded" and facts.tree_empty and verified:
        return "" if order.state == "applied" else f"a result that meets its contract makes the order {order.state}"
    failure = facts.failure or ("terminal" if not facts.tree_empty else "validation")
    if facts.outcome == "succeeded" and facts.tree_empty and attempt.verification == "error":
        failure = "executor"
    again = (
        order.terms.retry is not None
        and failure in order.terms.retry.on
        and _fits(before, decided, order)
        and not expected.starts_nothing(before, before.values[attempt.order])
    )
    wanted = "retry_wait" if again else "failed"
    return "" if order.state == wanted else f"a failed result makes the order {order.state}, not {wanted}"


def of_place(place: Place, cast: Cast) -> str:
    """Why this place should not exist, "" when all is well."""
    open_attempts: dict[str, AttemptState] = {}
    for attempt in cast.attempts:
        if attempt.state in ATTEMPT.terminal:
            problem = _ended_attempt(place, attempt)
            if problem:
                return problem
            continue
        if attempt.order in open_attempts:
            return f"{cast.names[attempt.order]} has two attempts that have not ended"
        open_attempts[attempt.order] = attempt
    for order in cast.orders:
        problem = _order_of_place(place, order, open_attempts.get(order.order)) or _reasons(order.state, order.reason)
        if problem:
            return f"{cast.names[order.order]}: {problem}"
    for plan in cast.plans:
        problem = _plan(place, plan, cast)
        if problem:
            return problem
    return rules_inside.of_place(place, cast)


def _reasons(state: str, reason: str) -> str:
    allowed = WORK_ORDER.reasons.get(state)
    return "" if allowed is None or reason in allowed else f"it is {state} and shows the reason {reason}"


def _ended_attempt(place: Place, attempt: AttemptState) -> str:
    hold: HoldState = place.values[attempt.hold]
    order: OrderState = place.values[attempt.order]
    if hold.state == "held":
        return f"{attempt.attempt} has ended as {attempt.state} and its budget is still held"
    if hold.state == "unsettled" and order.state != "cancelled":
        return f"{attempt.attempt} has ended, its hold is unsettled and its order is {order.state}"
    if hold.state == "settled":
        for receipt in _receipts(place, attempt):
            if receipt not in hold.receipts and receipt_subject(receipt) not in place.values:
                return f"{attempt.hold} is settled and has not booked the receipt {receipt}"
    return ""


def _receipts(place: Place, attempt: AttemptState) -> Iterator[str]:
    """Every receipt of every result that was kept of an attempt, in time or late: facts outlive authority."""
    seqs = [attempt.result_seq] if attempt.result_seq else []
    for seq in (*seqs, *(seq for what, _, seq in attempt.late if what == "result")):
        body = place.body(seq)
        facts = body.facts if isinstance(body, AttemptResult | LateRecord) else None
        for usage in () if facts is None else facts.usage:
            yield f"{usage.provider}:{usage.receipt}"
    if any(what in ("stop", "yield") for what, _, _ in attempt.late):
        yield f"kernel:{attempt.attempt}:time"


_ATTEMPT_OF = {
    "reserved": ("reserved",),
    "active": ("leased", "running"),
    "result_pending": ("result_reported",),
    "conflict": ("result_reported",),
}


def _order_of_place(place: Place, order: OrderState, attempt: AttemptState | None) -> str:
    wanted = _ATTEMPT_OF.get(order.state)
    if (attempt is None) != (wanted is None):
        return f"it is {order.state} and its attempt is {None if attempt is None else attempt.state}"
    if attempt is not None and (attempt.state not in (wanted or ()) or order.attempt != attempt.attempt):
        return f"it is {order.state} and its attempt is {attempt.state}"
    if order.state == "submitted":
        return "it was submitted and has no place"
    verdict = expected.verdict_of(place, order)
    untold = any(
        isinstance(other, OrderState) and other.state in ENDED and not other.told_done
        for other in place.values.values()
    )
    if order.state == "blocked_dependency":
        return "" if verdict == "open" or untold else f"it waits, and its dependencies say: it {verdict}"
    if order.state == "dependency_failed":
        return "" if verdict == "fails" else f"it ended because of its dependencies, which say: {verdict}"
    if order.state == "cancelled" or verdict == "holds":
        return _charged(place, order)
    return f"it is {order.state} and its dependencies say: {verdict}"


def _charged(place: Place, order: OrderState) -> str:
    """One attempt is charged for each activation of an order and those that it ordered, if it was not given back."""
    mine = {order.order: min(order.yields, place.shared.world.limits.yields_max)}
    for child in place.values.values():  # in the order of their making, so that a parent comes first
        if isinstance(child, OrderState) and child.parent in mine:
            mine[child.order] = min(child.yields, place.shared.world.limits.yields_max)
    activated = sum(
        isinstance(value, AttemptState) and value.order in mine and value.activated_us > 0
        for value in place.values.values()
    )
    credited = sum(mine.values())
    charged = order.account.charged.get("attempts", 0)
    if charged != activated - credited:
        return f"{activated} attempts were activated, {credited} given back and {charged} charged"
    ceiling = order.account.ceiling.get("attempts")
    if ceiling is not None and charged > ceiling and "budget" not in place.left:
        return f"{charged} attempts were charged and {ceiling} are permitted"
    return ""


def _plan(place: Place, plan: PlanState, cast: Cast) -> str:
    mine = [order for order in cast.orders if order.plan == plan.plan]
    replaced = {order.replaces for order in mine}
    lost = sum(
        order.state in ENDED and order.state != "applied" and not order.may_fail and order.order not in replaced
        for order in mine
    )
    open_now = sum(order.state not in ENDED for order in mine)
    applied = sum(order.state == "applied" for order in mine)
    found = (plan.orders, plan.open, plan.applied, plan.lost)
    wanted = (len(mine), open_now, applied, lost)
    if found != wanted:
        return f"the plan counts {found} (orders, open, applied, lost) and its orders say {wanted}"
    name = place.values[f"name:{plan.name}"]
    listed = isinstance(name, NameState) and any(each.plan == plan.plan for each in name.open_plans)
    if listed != (open_now > 0):
        return f"the plan has {open_now} open orders and its name lists it as {'open' if listed else 'ended'}"
    if plan.cancel and plan.cancel_done and any(o.state not in ENDED and o.state != "conflict" for o in mine):
        return "the plan's cancel has been carried out and an order has not ended"
    return ""
