"""What must hold where programs checkpoint, charge, order children and wait (lifecycle, 8 and 9; W5, W6, W18).

Whoever waits holds nothing, and waits for something that can still come. A receipt is booked once in the scope. What
children hold and charge stands in their parents' accounts, counted here from the holds by who ordered whom and not by
the paths that holds name. No child outlives the told end of its parent.
"""

from __future__ import annotations

from typing import Any

from fencepost.core import commands as c
from fencepost.core.canonical import digest_of
from fencepost.core.decide import Decided
from fencepost.core.machines import ENDED, WORK_ORDER
from fencepost.core.state import AttemptState, HoldState, OrderState, PlanState, ReceiptState, receipt_subject
from fencepost.core.strictjson import INT_MAX
from fencepost.testing.search.moves import Cast
from fencepost.testing.search.place import MachineRow, Place, Refold

Amounts = dict[str, int]
_ENDS_OF_CHILDREN = frozenset(
    {
        *(("work_order", origin, "cancelled") for origin in WORK_ORDER.rows),
        ("work_order", "active", "cancellation_requested"),
        ("attempt", "reserved", "cancelled_no_effect"),
        ("attempt", "leased", "cancellation_requested"),
        ("attempt", "running", "cancellation_requested"),
        ("attempt", "cancellation_requested", "cancelled_no_effect"),
        ("attempt", "result_reported", "rejected_stale"),
        ("attempt", "result_reported", "rejected_conflict"),
        ("budget_hold", "held", "released"),
        ("budget_hold", "held", "unsettled"),
        ("budget_hold", "held", "settled"),
        ("budget_hold", "unsettled", "settled"),
    }
)
"""Rows that the end of a parent takes its children along."""


def is_told_to_kin(refold: Refold, subject: str, row: MachineRow) -> bool:
    """Whether the row is one that an order's end takes its children along, or lets a parent go on that waited."""
    value = refold.get(subject)
    order = value if isinstance(value, OrderState) else refold.get(getattr(value, "order", ""))
    if not isinstance(order, OrderState):
        return False
    if order.parent is not None and tuple(row) in _ENDS_OF_CHILDREN:
        return True
    return bool(order.children) and tuple(row) == ("work_order", "waiting", "ready")


def of_outcome(before: Place, command: Any, decided: Decided) -> str:
    """What a program's word or a person's answer leads to, when it is accepted."""

    def behind(subject: str) -> Any:
        found = decided.values.get(subject)
        return before.values[subject] if found is None else found

    if isinstance(command, c.AnswerOrder | c.EndWait):
        order: OrderState = behind(command.order)
        if order.state != "ready" or order.wait is not None:
            return f"a wait ended and the order is {order.state}"
        by = "time" if isinstance(command, c.EndWait) else "answer"
        return _over(before.values[command.order], order, by)
    if isinstance(command, c.ReportYielded):
        return _yielded(before, command, behind(command.attempt), behind)
    if isinstance(command, c.SaveCheckpoint):
        attempt: AttemptState = before.values[command.attempt]
        was, now = before.values[attempt.order], behind(attempt.order)
        saved = behind(command.attempt).checkpoint
        whole = now.checkpoint_number == was.checkpoint_number + 1 and saved == now.checkpoint != was.checkpoint
        return "" if whole else "a checkpoint was accepted and is not the order's last"
    if isinstance(command, c.ChargeUsage):
        return _charged(before, command, behind)
    if isinstance(command, c.RetryOrder):
        return _replaced(before, command, decided, behind)
    if isinstance(command, c.SubmitChild):
        return _child(before, command, behind)
    return ""


def _over(was: OrderState, order: OrderState, by: str) -> str:
    """What an order knows of the wait that it goes on from: by what it ended, and which of its waits it was."""
    asked = was.wait.asked if was.wait is not None else None
    waited = order.waited
    if waited is None or waited.by != by or (asked is not None and waited.ended_by(asked) != by):
        return f"a wait ended by {by}, and what is known of it is {waited}"
    earlier = () if was.waited is None else was.waited.ended
    lost = [each for each in earlier if each[0] != asked and each not in waited.ended]
    return f"how earlier waits ended is forgotten: {lost}" if lost else ""


def _replaced(before: Place, command: c.RetryOrder, decided: Decided, behind: Any) -> str:
    """A replacement goes on from what was saved, unless it begins anew, and may use what a person has allowed since."""
    for made in decided.result["replacements"]:
        old, new = before.values[made["replaces"]], behind(made["order"])
        kept = (0, "", {}) if command.from_start else (old.checkpoint_number, old.checkpoint, old.checkpoints)
        if (new.checkpoint_number, new.checkpoint, new.checkpoints) != kept:
            return f"{new.checkpoint_number} checkpoints are there after a retry, and {kept[0]} should be"
        if new.account.ceiling != old.account.ceiling:
            return "a replacement has other ceilings than the order that it replaces"
    return ""


def _yielded(before: Place, command: c.ReportYielded, attempt: AttemptState, behind: Any) -> str:
    was: OrderState = before.values[attempt.order]
    order: OrderState = behind(attempt.order)
    hold: HoldState = behind(attempt.hold)
    if (attempt.state, hold.state) != ("yielded", "settled"):
        return f"an attempt yielded and is {attempt.state}, its hold {hold.state}"
    known = before.values[command.attempt].checkpoint != ""
    credited = int(known and was.yields < before.shared.world.limits.yields_max)
    if order.yields != was.yields + credited:
        return f"a yield {'with' if known else 'without'} a checkpoint was credited {order.yields - was.yields} times"
    wait = command.wait
    there = wait.question in was.answers or (
        bool(wait.orders) and all(before.values[name].state in ENDED for name in wait.orders)
    )
    spent = _is_spent(order, behind) and not wait.question
    wanted = "budget_exhausted" if spent else "ready" if there else "waiting"
    if order.state != wanted:
        return f"an attempt yielded and its order is {order.state}, not {wanted}"
    if wanted != "ready":
        return ""
    ended = "answer" if wait.question in was.answers else "children"
    return "" if order.waited is not None and order.waited.by == ended else f"a wait was over, and not by {ended}"


def _is_spent(order: OrderState, behind: Any) -> bool:
    """Whether what is left of some ceiling above it, if nothing were held, is less than an attempt needs."""
    for subject in order.accounts:
        account = behind(subject).account
        for dimension, least in order.terms.hold_least.items():
            if account.charged.get(dimension, 0) + least > account.ceiling.get(dimension, INT_MAX):
                return True
    return False


def _charged(before: Place, command: c.ChargeUsage, behind: Any) -> str:
    """A receipt that is known moves nothing; a new one is charged as it is, on every account of the path."""
    usage = command.usage
    known = receipt_subject(f"{usage.provider}:{usage.receipt}") in before.values
    attempt: AttemptState = before.values[command.attempt]
    hold: HoldState = before.values[attempt.hold]
    wanted = {} if known else dict(usage.amounts)
    for name in () if known else usage.unknown:
        wanted[name] = max(wanted.get(name, 0), hold.held.get(name, 0))
    for subject in before.values[attempt.order].accounts:
        was, now = before.values[subject].account.charged, behind(subject).account.charged
        for name in {*was, *now, *wanted}:
            moved = now.get(name, 0) - was.get(name, 0)
            if moved != wanted.get(name, 0):
                return f"a receipt of {wanted.get(name, 0)} {name} charges {subject} {moved}"
    return ""


def _child(before: Place, command: c.SubmitChild, behind: Any) -> str:
    """It stands under its name, in its parent's plan and accounts, and is made once."""
    parent: OrderState = behind(before.values[command.attempt].order)
    name = parent.children.get(command.order.task)
    if name is None:
        return "a child was accepted and its parent does not know it"
    child: OrderState = behind(name)
    if child.parent != parent.order or child.plan != parent.plan or child.accounts != (*parent.accounts, name):
        return f"{name} is not in its parent's plan and accounts"
    if child.order in before.values and child != before.values[child.order]:
        return "a child that was found again has changed"
    return ""


def of_place(place: Place, cast: Cast) -> str:
    """Why this place should not exist, "" when all is well."""
    for order in cast.orders:
        problem = _wait(place, order) or _kin(place, order)
        if problem:
            return f"{cast.names[order.order]}: {problem}"
    if place.shared.world.children:
        problem = _books(place, cast)
        if problem:
            return problem
    return _receipts(place) if place.shared.world.charges else ""


def _wait(place: Place, order: OrderState) -> str:
    """An order that waits names what it waits for, and none of it is there yet that has been told."""
    wait = order.wait
    if (order.state == "waiting") != (wait is not None):
        return f"it is {order.state} and waits for {'nothing' if wait is None else 'something'}"
    if wait is None:
        return ""
    for value in place.values.values():
        if isinstance(value, HoldState) and value.order == order.order and value.held:
            return f"it waits, and {value.hold} holds something"
        if isinstance(value, AttemptState) and value.order == order.order and not value.ended_us:
            return f"it waits, and {value.attempt} is {value.state}"
    if wait.question and wait.question in order.answers:
        return "it waits for an answer that it has"
    children: list[OrderState] = [place.values[name] for name in wait.orders]
    if children and all(child.state in ENDED and child.told_done for child in children):
        return "it waits for children that have ended and told it"
    return "" if wait.question or wait.orders or wait.until_us else "it waits for nothing"


def _kin(place: Place, order: OrderState) -> str:
    if order.parent is None:
        return ""
    parent: OrderState = place.values[order.parent]
    if order.order not in parent.children.values():
        return "its parent does not know it"
    if parent.state in ENDED and parent.told_done and order.state not in ENDED:
        return f"it is {order.state}, and its parent has ended and told it"
    return ""


def _books(place: Place, cast: Cast) -> str:
    """Accounts hold and have charged what the holds of all orders below them hold and have charged."""
    held: dict[str, Amounts] = {}
    charged: dict[str, Amounts] = {}
    for hold in cast.holds:
        for subject in _above(place, place.values[hold.order]):
            for books, amounts in ((held, hold.held), (charged, hold.charged)):
                book = books.setdefault(subject, {})
                for name, amount in amounts.items():
                    book[name] = book.get(name, 0) + amount
    for value in (place.values["scope"], *cast.plans, *cast.orders):
        subject = value.order if isinstance(value, OrderState) else getattr(value, "plan", "scope")
        for word, books, amounts in (
            ("holds", held, value.account.held),
            ("has charged", charged, value.account.charged),
        ):
            if _positive(books.get(subject, {})) != _positive(amounts):
                return f"{cast.names[subject]} {word} {_positive(amounts)}, and the holds below it say otherwise"
    return ""


def _positive(amounts: Amounts) -> Amounts:
    return {name: amount for name, amount in sorted(amounts.items()) if amount}


def _above(place: Place, order: OrderState) -> list[str]:
    """The accounts above a hold of an order, by who ordered whom."""
    found = ["scope"]
    if isinstance(place.values.get(order.plan or ""), PlanState):
        found.append(order.plan or "")
    each: OrderState | None = order
    while each is not None:
        found.append(each.order)
        each = None if each.parent is None else place.values[each.parent]
    return found


def _receipts(place: Place) -> str:
    """What the world's receipts say stands in the scope's account once for each that is booked, and nothing else."""
    world = place.shared.world
    total: Amounts = {}
    for name in sorted({f"{usage.provider}:{usage.receipt}" for usage in world.charges.values()}):
        known: ReceiptState | None = place.values.get(receipt_subject(name))
        if known is None:
            continue
        alike = [usage for usage in world.charges.values() if f"{usage.provider}:{usage.receipt}" == name]
        said = [usage for usage in alike if digest_of(usage) == known.digest] or alike
        for dimension, amount in said[0].amounts.items():
            total[dimension] = total.get(dimension, 0) + amount
    found = place.values["scope"].account.charged
    for dimension in {name for usage in world.charges.values() for name in usage.amounts}:
        if found.get(dimension, 0) != total.get(dimension, 0):
            return f"{found.get(dimension, 0)} {dimension} are charged, and the receipts say {total.get(dimension, 0)}"
    return ""
