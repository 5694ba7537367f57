"""Why an order is where it is: the code, a sentence, what lies behind it, and the command that would help (X3).

What blocks is followed to where it starts: through orders that wait for orders, and through orders that ended because
of orders. A budget names who holds it, a queue how long it is and whether anybody serves it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any, TextIO

from fencepost.app import App
from fencepost.core import needs
from fencepost.core.amounts import available
from fencepost.core.machines import ENDED
from fencepost.core.readiness import verdict
from fencepost.core.reasons import WAITS_AND_ENDS
from fencepost.core.shares import MONEY
from fencepost.core.state import Account, AttemptState, OrderState, PlanState
from fencepost.core.views import held_up_by_clock, why
from fencepost.kernel.read import Look, ReadinessPlan
from fencepost.services.means import estimated_now_us
from fencepost.surfaces.cli.accounts import Named, account_of, open_holds, title_of
from fencepost.surfaces.cli.funds import set_steps
from fencepost.surfaces.cli.living import GONE, is_orphan, living_workers, serving_others
from fencepost.surfaces.cli.order_failure import (
    failure_lines,
    left_out_lines,
    note_lines,
    note_of,
    wait_lines,
    wait_step,
)
from fencepost.surfaces.cli.pinned import pinned_hint
from fencepost.surfaces.cli.retry_step import funded_retry_of, retry_of, with_retry
from fencepost.surfaces.cli.typed import here, plan_file, plan_step
from fencepost.surfaces.cli.words import (
    amount,
    count,
    dimension_label,
    duration,
    instant,
    named_step,
    one_line,
    state_text,
    unknown_note,
    wrapped,
)

_ROOTS_MAX = 20
_ROOTS_SHOWN_MAX = 3  # below an order of a table
_WALK_MAX = 10_000
_CAUSE_LINES_MAX = 2
_MICROS = 1_000_000  # of one unit of a currency
_RETRYABLE = frozenset({"failed", "cancelled", "budget_exhausted"})


def why_document(home: App, look: Look, order: OrderState) -> dict[str, Any]:
    """The whole answer. Keys beyond those of `views.why` are there where they have something to say."""
    document = _answer(home, look, order)
    document["next"] = here(document["next"])
    return document


def _answer(home: App, look: Look, order: OrderState) -> dict[str, Any]:
    behind = _behind(look, order.order) if order.state == "ready" else 0
    document = why(order, ready_behind=behind)
    document["next"] = _next(look, order) or document["next"]
    if order.state in ("blocked_dependency", "dependency_failed"):
        document.update(_dependencies(look, order))
        document["next"] = _dependency_next(look, order, document) or document["next"]
    elif order.state in ("blocked_budget", "budget_exhausted"):
        document.update(budget_of(look, order))
    elif order.state == "ready":
        alive = living_workers(look, home.locks)
        document["workers"] = [worker.worker for worker in alive]
        document["workers_elsewhere"] = serving_others(order.plan, alive, home.locks)
        if alive and len(alive) == len(document["workers_elsewhere"]):
            document["next"] = f"fencepost run {plan_file(look, order.plan)}, or fencepost worker start"
    if order.state in ("failed", "retry_wait") and (facts := look.facts(order.result_seq)) is not None:
        document["detail"] = facts.message
        document["details"] = failure_lines(look, order) + left_out_lines(look, order)
    if note := note_of(look, order):
        document["note"] = note
        document["details"] = note_lines(look, order)
    if order.wait is not None:
        document["details"] = wait_lines(look, order)
        document["next"] = wait_step(look, order) or document["next"]
    clock = look.clock()
    reading = home.kernel.clock.read()
    if order.wait is not None and order.wait.until_us:
        document["due_us"] = order.wait.until_us
        document["due_in_us"] = max(order.wait.until_us - estimated_now_us(clock, reading), 0)
    if order.state == "retry_wait":
        document["due_us"] = order.retry_due_us
        document["due_in_us"] = max(order.retry_due_us - estimated_now_us(clock, reading), 0)
    attempt = look.find(order.attempt, AttemptState) if order.attempt is not None else None
    if attempt is not None and not document["ended"] and is_orphan(attempt, home.locks, reading):
        document["worker_gone"] = True
        document["message"] = GONE
        document["next"] = f"fencepost run {plan_file(look, order.plan)}, or fencepost worker start"
    if order.replaced_by is not None:
        document["replaced_by"] = order.replaced_by
    elif order.state == "failed":
        document["pinned"] = pinned_hint(home, look, order.plan, [order])
    if clock is not None and held_up_by_clock(order, clock, look.attempt):
        row = WAITS_AND_ENDS[clock.state]
        following = plan_step(look, order.plan, row.next_step)
        document["clock"] = {"state": clock.state, "message": row.sentence, "next": following}
        document["next"] = following
    return document


def _next(look: Look, order: OrderState) -> str | None:
    """The reason's own next step, with the order named so that the command can be typed anywhere."""
    row = WAITS_AND_ENDS.get(order.reason)
    if row is None:
        return None
    step = with_retry(look, order, row.next_step)
    return named_step(plan_step(look, order.plan, step), title_of(look, order), _ordinal(look, order))


def _ordinal(look: Look, order: OrderState) -> int | None:
    attempt = look.find(order.attempt, AttemptState) if order.attempt is not None else None
    return None if attempt is None else attempt.ordinal


def _behind(look: Look, order: str) -> int:
    """How many orders of the scope stand before it in the queue, by the last accepted time."""
    clock = look.clock()
    queue = look.ready(clock.last_seq if clock is not None else 0, look.head.seq, limit=look.head.seq)
    names = [one.order for one in queue.orders] if isinstance(queue, ReadinessPlan) else []
    return names.index(order) if order in names else len(names)


def _blockers(look: Look, order: OrderState) -> list[OrderState]:
    """Members that hold it up: those that failed one of its groups, or those that an open group still waits for."""
    lost = order.state == "dependency_failed"
    blockers: dict[str, OrderState] = {}
    spec = look.spec(order)
    members = look.many([member.order for group in spec.groups for member in group.members])
    for group, state in zip(spec.groups, order.groups, strict=True):
        if verdict(state) != ("fails" if lost else "open"):
            continue
        for member in group.members:
            value = members[member.order]
            ended = value.state in ENDED
            if (ended and value.state not in member.outcomes) if lost else not ended:
                blockers[value.order] = value
    return list(blockers.values())


def _dependencies(look: Look, order: OrderState) -> dict[str, Any]:
    """Direct blockers, and the orders where the chain starts, nearest first. The walk is bounded, not recursive."""
    direct = _blockers(look, order)
    roots: list[OrderState] = []
    known = {member.order for member in direct}
    queue = deque(direct)
    while queue and len(roots) < _ROOTS_MAX and len(known) <= _WALK_MAX:
        one = queue.popleft()
        further = _blockers(look, one) if one.state == order.state else []
        if not further:
            roots.append(one)
        for member in further:
            if member.order not in known:
                known.add(member.order)
                queue.append(member)
    return {
        "needs": [_cause(look, member) for member in direct[:_ROOTS_MAX]],
        "needs_count": len(direct),
        "because": [_cause(look, root) for root in roots],
    }


def _cause(look: Look, order: OrderState) -> dict[str, Any]:
    cause: dict[str, Any] = {
        "name": title_of(look, order),
        "task": order.task,
        "id": order.order,
        "state": order.state,
        "reason": order.reason,
    }
    newest = _newest(look, order)
    if newest.order != order.order:
        cause["now"] = {"name": title_of(look, newest), "id": newest.order, "state": newest.state}
    if order.state == "failed":
        cause["detail"] = "; ".join(failure_lines(look, order)[:_CAUSE_LINES_MAX])
    return cause


def _newest(look: Look, order: OrderState) -> OrderState:
    """The order that stands in the place of another one by now, itself where nothing replaced it."""
    for _ in range(_WALK_MAX):
        after = look.order(order.replaced_by) if order.replaced_by is not None else None
        if after is None:
            break
        order = after
    return order


def because_lines(look: Look, order: OrderState) -> tuple[str, ...]:
    """The orders where the chain starts that an order ended because of, one a line, and how many more there are."""
    because = _dependencies(look, order)["because"]
    lines = [f"because of {_cause_text(cause)}" for cause in because[:_ROOTS_SHOWN_MAX]]
    more = len(because) - _ROOTS_SHOWN_MAX
    return (*lines, f"and of {more} more") if more > 0 else tuple(lines)


def _dependency_next(look: Look, order: OrderState, document: Mapping[str, Any]) -> str | None:
    """The command for the first root cause."""
    for root in document["because"]:
        if order.state == "dependency_failed":
            value = look.order(root["id"])
            if value is not None and value.replaced_by is not None:
                return retry_of(look, order)
            if root["state"] in _RETRYABLE:
                return funded_retry_of(look, value) if value is not None else None
        else:
            return f"fencepost order why {root['name']}"
    return None


def budget_of(look: Look, order: OrderState) -> dict[str, Any]:
    """The accounts that cannot carry its next hold, by how much, and who holds what of them.

    By the rules that reserve it (`core.needs`): what a level that budgets other currencies lacks is named as well.
    """
    accounts = {subject: account_of(look, subject) for subject in order.accounts}
    holds = open_holds(look)
    short = []
    wanted: dict[str, dict[str, int]] = {}  # account -> ceilings that would do
    for found in _obstacles(look, order, accounts):
        named = accounts[found.account]
        for dimension, needed, _ in found.short:
            held_by = [
                {"name": open_hold.name, "id": open_hold.order, "amount": held, "state": open_hold.hold.state}
                for open_hold in holds
                if found.account in open_hold.hold.accounts and (held := open_hold.hold.held.get(dimension, 0))
            ]
            line = {
                "account": found.account,
                "kind": named.kind,
                "name": named.name,
                "dimension": dimension,
                "needed": needed,
                "available": available(named.account, dimension),
                "charged": named.account.charged.get(dimension, 0),
                "ceiling": named.account.ceiling.get(dimension),
                "unknown": named.account.unknown.get(dimension, 0),
                "held_by": held_by,
                "waits": _waits_that_count(look, order) if dimension == "attempts" else 0,
            }
            taken = named.account.charged.get(dimension, 0) + named.account.held.get(dimension, 0)
            # Nobody knows what refused money the next attempt takes: as much again as was charged is named.
            wanted.setdefault(found.account, {})[dimension] = taken + (needed or max(taken, _MICROS))
            if found.code == "currency_not_budgeted":
                line.update(currency=dimension.removeprefix(MONEY), held_by=[])
            short.append(line)
    if not short:
        return {"budget": []}
    if order.state == "budget_exhausted":  # what stands in its place has its ceilings and has charged nothing on them
        return {"budget": short, "next": funded_retry_of(look, order)}
    steps = set_steps((accounts[subject], dict(sorted(ceilings.items()))) for subject, ceilings in wanted.items())
    return {"budget": short, "next": steps}


def _waits_that_count(look: Look, order: OrderState) -> int:
    """How many attempts yielded without a checkpoint of their own: those are not given back."""
    return sum(bool(each.yielded_seq) and not each.checkpoint for each in look.attempts(order.order))


def _obstacles(look: Look, order: OrderState, accounts: Mapping[str, Named]) -> list[needs.Obstacle]:
    def account(subject: str) -> Account:
        return accounts[subject].account

    plan = look.find(order.plan, PlanState) if order.plan is not None else None
    shares = needs.shares_now(order, account, 1 if plan is None else plan.orders)
    if order.state == "budget_exhausted":
        return list(needs.exhaustions(order, shares, account))
    return list(needs.obstacles(order, needs.wanted(order, shares, account), account))


def why_text(document: Mapping[str, Any], out: TextIO) -> None:
    """The same for people."""
    lines = [f"{document['name']} is {state_text(document['state'], document['reason'])}"]
    lines += wrapped(document["message"], indent="  ")
    for line in document.get("details", ()):
        lines += wrapped(line, indent="  ", after="    ")
    if "due_us" in document:
        lines.append(f"  Due in {duration(document['due_in_us'])}, at {instant(document['due_us'])}.")
    for cause in document.get("needs", ()):
        lines += _cause_lines("needs", cause)
    direct = {cause["id"] for cause in document.get("needs", ())}
    for cause in document.get("because", ()):
        if cause["id"] not in direct:
            lines += _cause_lines("because of", cause)
    for short in document.get("budget", ()):
        lines += budget_lines(short)
    if "workers" in document:
        elsewhere = len(document["workers_elsewhere"])
        lines += wrapped(_queue_text(len(document["workers"]), elsewhere, document["behind"]), indent="  ")
    if "clock" in document:
        lines += wrapped(f"{document['clock']['state']}: {document['clock']['message']}", indent="  ")
    if document.get("pinned"):
        lines += wrapped(here(document["pinned"]), indent="  ", after="    ")
    lines.append(f"  next: {document['next']}")  # not broken, since it will be copied
    out.write("\n".join(lines) + "\n")


def _cause_lines(word: str, cause: Mapping[str, Any]) -> list[str]:
    return wrapped(f"{word} {_cause_text(cause)}", indent="  ", after="    ")


def _cause_text(cause: Mapping[str, Any]) -> str:
    detail = f": {one_line(cause['detail'])}" if cause.get("detail") else ""
    # An order that was replaced goes by its id, which says nothing to a person.
    name = cause["name"] if cause["name"] != cause["id"] else f"{one_line(cause['task'])} as it was before"
    now = f"; the one in its place is {cause['now']['state']} now" if "now" in cause else ""
    return f"{name}, which is {state_text(cause['state'], cause['reason'])}{detail}{now}"


def budget_lines(short: Mapping[str, Any]) -> list[str]:
    dimension = str(short["dimension"])
    name = short["name"] if short["kind"] == "order" else f"{short['kind']} {short['name']}"
    if "currency" in short:
        parts = [("needed", short["needed"]), ("charged", short["charged"])]
        told = ", ".join(f"{word} {amount(dimension, value)}" for word, value in parts if value)
        text = f"{name}: {short['currency']} is not budgeted, {told}"
        return wrapped(text, indent="  ", after="    ")
    text = (
        f"{name}: {dimension_label(dimension)} needed {amount(dimension, short['needed'])}, available "
        f"{amount(dimension, short['available'])} of {amount(dimension, short['ceiling'])}"
    )
    lines = wrapped(text, indent="  ", after="    ")
    if short["unknown"]:
        unknown = unknown_note({dimension: short["unknown"]})
        lines += wrapped(f"unknown: {unknown}", indent="    ", after="      ")
    if short["waits"]:
        waits = f"{count(short['waits'], 'attempt')} of this order ended to wait and had saved nothing, so that"
        advice = "it counts" if short["waits"] == 1 else "they count"
        text = f"{waits} {advice}: record a step or save a checkpoint before waiting"
        lines += wrapped(text, indent="    ", after="      ")
    for holder in short["held_by"]:
        lines += wrapped(f"{holder['name']} holds {amount(dimension, holder['amount'])}", indent="    ", after="      ")
    return lines


def _queue_text(workers: int, elsewhere: int, behind: int) -> str:
    alive = "No worker is alive" if not workers else f"{workers} worker{' is' if workers == 1 else 's are'} alive"
    before = "no order stands" if not behind else f"{behind} order{' stands' if behind == 1 else 's stand'}"
    if elsewhere:
        serving = "serves" if workers == 1 else f"{elsewhere} of them serve" if elsewhere < workers else "serve"
        return f"{alive} in this home and {serving} another plan alone; {before} before it."
    return f"{alive} in this home; {before} before it."
