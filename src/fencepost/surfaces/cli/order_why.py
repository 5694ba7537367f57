"""Why an order is where it is: the code, a sentence, what lies behind it, and the command that would help (X3).

What blocks is followed to where it starts: through orders that wait for orders, and through orders that ended because
of orders. A budget names who holds it, a queue how long it is and whether anybody serves it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TextIO

from fencepost.core.amounts import available, exhausted, shortfall
from fencepost.core.index import CLAIM
from fencepost.core.machines import ENDED
from fencepost.core.readiness import verdict
from fencepost.core.reasons import WAITS_AND_ENDS, fill
from fencepost.core.state import OrderState, WorkerState
from fencepost.core.views import why
from fencepost.kernel.read import Look
from fencepost.services.means import is_locked
from fencepost.surfaces.cli.accounts import account_of, open_holds, title_of
from fencepost.surfaces.cli.words import amount, dimension_label, dimension_option, one_line, state_text, wrapped

_ROOTS_MAX = 20
_WALK_MAX = 10_000
_RETRYABLE = frozenset({"failed", "cancelled", "budget_exhausted"})
_NEEDS_CLOCK = frozenset({"ready", "reserved", "retry_wait"})


def why_document(look: Look, order: OrderState, locks: Path) -> dict[str, Any]:
    """The whole answer. Keys beyond those of `views.why` are there where they have something to say."""
    behind = _behind(look, order.order) if order.state == "ready" else 0
    document = why(order, ready_behind=behind)
    document["next"] = _next(look, order) or document["next"]
    if order.state in ("blocked_dependency", "dependency_failed"):
        document.update(_dependencies(look, order))
        document["next"] = _dependency_next(look, order, document) or document["next"]
    elif order.state in ("blocked_budget", "budget_exhausted"):
        document.update(_budget(look, order))
    elif order.state == "ready":
        document["workers"] = [worker.worker for worker in living_workers(look, locks)]
    if order.state in ("failed", "retry_wait") and (facts := look.facts(order.result_seq)) is not None:
        document["detail"] = facts.message
    if order.state == "retry_wait":
        document["due_us"] = order.retry_due_us
    if order.replaced_by is not None:
        document["replaced_by"] = order.replaced_by
    clock = look.clock()
    if clock is not None and clock.state != "running" and order.state in _NEEDS_CLOCK:
        row = WAITS_AND_ENDS[clock.state]
        document["clock"] = {"state": clock.state, "message": row.sentence, "next": row.next_step}
        document["next"] = row.next_step
    return document


def _next(look: Look, order: OrderState) -> str | None:
    """The reason's own next step, with the order named so that the command can be typed anywhere."""
    row = WAITS_AND_ENDS.get(order.reason)
    if row is None:
        return None
    title = title_of(look, order)
    following = fill(row.next_step, {"subject": title})
    if following in ("fencepost attempt show", "fencepost order show"):
        return f"{following} {title}"
    return following.replace("NAME", title)


def living_workers(look: Look, locks: Path) -> list[WorkerState]:
    """Workers of this home whose lock is held. A worker that leads its life elsewhere is not seen."""
    names = sorted(path.stem for path in locks.glob("worker_*.lock") if is_locked(path))
    return [value for value in look.many(names).values() if isinstance(value, WorkerState)]


def _behind(look: Look, order: str) -> int:
    """How many orders of the scope stand before it in the queue."""
    count = 0
    for page in look.pages(CLAIM):
        for row in page:
            if row.subject == order:
                return count
            count += 1
    return count


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
    cause = {"name": title_of(look, order), "id": order.order, "state": order.state, "reason": order.reason}
    if order.state == "failed" and (facts := look.facts(order.result_seq)) is not None:
        cause["detail"] = facts.message
    return cause


def _dependency_next(look: Look, order: OrderState, document: Mapping[str, Any]) -> str | None:
    """The command for the first root cause."""
    for root in document["because"]:
        if order.state == "dependency_failed":
            value = look.order(root["id"])
            if value is not None and value.replaced_by is not None:
                return f"fencepost order retry {title_of(look, order)}"
            if root["state"] in _RETRYABLE:
                return f"fencepost order retry {root['name']} --with-dependents"
        else:
            return f"fencepost order why {root['name']}"
    return None


def _budget(look: Look, order: OrderState) -> dict[str, Any]:
    """The accounts that cannot carry its next hold, by how much, and who holds what of them."""
    test = shortfall if order.state == "blocked_budget" else exhausted
    need = order.terms.hold_least
    holds = open_holds(look)
    short = []
    for subject in order.accounts:
        named = account_of(look, subject)
        for dimension in test(named.account, need):
            held_by = [
                {"name": open_hold.name, "id": open_hold.order, "amount": held, "state": open_hold.hold.state}
                for open_hold in holds
                if subject in open_hold.hold.accounts and (held := open_hold.hold.held.get(dimension, 0))
            ]
            short.append(
                {
                    "account": subject,
                    "kind": named.kind,
                    "name": named.name,
                    "dimension": dimension,
                    "needed": need[dimension],
                    "available": available(named.account, dimension),
                    "charged": named.account.charged.get(dimension, 0),
                    "ceiling": named.account.ceiling.get(dimension),
                    "held_by": held_by,
                }
            )
    if not short:
        return {"budget": []}
    first = short[0]
    which = "scope" if first["kind"] == "scope" else first["name"] if first["kind"] == "order" else None
    account = which if which is not None else f"--plan {first['name']}"
    command = f"fencepost budget set {account} {dimension_option(str(first['dimension']))}"
    if order.state == "budget_exhausted":
        command += f", then fencepost order retry {title_of(look, order)}"
    return {"budget": short, "next": command}


def why_text(document: Mapping[str, Any], out: TextIO) -> None:
    """The same for people, at most 80 columns wide."""
    lines = [f"{document['name']} is {state_text(document['state'], document['reason'])}"]
    lines += wrapped(document["message"], indent="  ")
    if document.get("detail"):
        lines += wrapped(one_line(document["detail"]), indent="  ")
    for cause in document.get("needs", ()):
        lines += _cause_lines("needs", cause)
    direct = {cause["id"] for cause in document.get("needs", ())}
    for cause in document.get("because", ()):
        if cause["id"] not in direct:
            lines += _cause_lines("because of", cause)
    for short in document.get("budget", ()):
        lines += _budget_lines(short)
    if "workers" in document:
        lines += wrapped(_queue_text(len(document["workers"]), document["behind"]), indent="  ")
    if "clock" in document:
        lines += wrapped(f"{document['clock']['state']}: {document['clock']['message']}", indent="  ")
    lines += wrapped(f"next: {document['next']}", indent="  ", after="    ")
    out.write("\n".join(lines) + "\n")


def _cause_lines(word: str, cause: Mapping[str, Any]) -> list[str]:
    detail = f": {one_line(cause['detail'])}" if cause.get("detail") else ""
    state = state_text(cause["state"], cause["reason"])
    return wrapped(f"{word} {cause['name']}, which is {state}{detail}", indent="  ", after="    ")


def _budget_lines(short: Mapping[str, Any]) -> list[str]:
    dimension = str(short["dimension"])
    name = short["name"] if short["kind"] == "order" else f"{short['kind']} {short['name']}"
    text = (
        f"{name}: {dimension_label(dimension)} needed {amount(dimension, short['needed'])}, available "
        f"{amount(dimension, short['available'])} of {amount(dimension, short['ceiling'])}"
    )
    lines = wrapped(text, indent="  ", after="    ")
    for holder in short["held_by"]:
        lines += wrapped(f"{holder['name']} holds {amount(dimension, holder['amount'])}", indent="    ", after="      ")
    return lines


def _queue_text(workers: int, behind: int) -> str:
    alive = "No worker is alive" if not workers else f"{workers} worker{' is' if workers == 1 else 's are'} alive"
    before = "no order stands" if not behind else f"{behind} order{' stands' if behind == 1 else 's stand'}"
    return f"{alive} in this home; {before} before it."
