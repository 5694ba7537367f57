"""Waiting for changes of the store, and what says what changed: a line for each, or the live view on a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TextIO

from fencepost.app import App
from fencepost.core.instant import format_instant
from fencepost.core.machines import ENDED
from fencepost.core.state import OrderState, PlanState
from fencepost.core.views import order_document
from fencepost.kernel.read import Look
from fencepost.kernel.rows import record_of
from fencepost.surfaces.cli.signals import TICK_S, Interrupts
from fencepost.surfaces.cli.words import one_line, state_text

HINT = "Ctrl-C ends the watching, never the work"
POLL_S = 0.5  # a hint may be lost; a look this often costs little
_PAGE = 500


def until(app: App, done: Callable[[Look], bool], *, poll_s: float = POLL_S) -> None:
    """Look now and after every change, until a look says that it is done. Each look is one consistent view."""
    while True:
        ticket = app.kernel.wakeups.ticket()
        with app.kernel.reader.look() as look:
            if done(look):
                return
        app.kernel.wakeups.wait(ticket, poll_s)


class OrderChanges:
    """Follows orders through the journal: what each look has not seen yet, at the cost of what was written."""

    def __init__(self, orders: dict[str, OrderState], sequence: int) -> None:
        self._seen = {name: (order.state, order.reason) for name, order in orders.items()}
        self._plans = {order.plan for order in orders.values()}
        self._sequence = sequence

    def since(self, look: Look, *, whole_plan: bool) -> Iterator[OrderState]:
        """Orders whose state or reason differs from the last look, in the order of the journal."""
        touched: dict[str, None] = {}
        while self._sequence < look.head.seq and (page := look.records(self._sequence, _PAGE)):
            for seq, data in page:
                record = record_of(seq, data)
                touched.update(dict.fromkeys(_orders_of(record.subject, record.body)))
            self._sequence = page[-1][0]
        wanted = [name for name in touched if whole_plan or name in self._seen]
        for name, order in look.many(wanted).items():
            known = order.order in self._seen or order.plan in self._plans
            if known and self._seen.get(name) != (order.state, order.reason):
                self._seen[name] = (order.state, order.reason)
                yield order


def _orders_of(subject: str, body: Any) -> list[str]:
    named = getattr(body, "order", None)
    names = [subject, named] if isinstance(named, str) else [subject]
    return [name for name in names if name.startswith("order_")]


def change_document(look: Look, order: OrderState) -> dict[str, Any]:
    """One line of a stream of changes: the order, and the sequence that this is true at."""
    return {
        "sequence": look.head.seq,
        "moved_us": order.moved_us,
        **order_document(order, look.facts(order.result_seq)),
    }


def change_line(order: OrderState, *, width: int = 0) -> str:
    """One change for people. The time is the scope's own, UTC."""
    time = format_instant(order.moved_us)[11:19]
    return f"{time}  {one_line(order.task).ljust(width)}  {state_text(order.state, order.reason)}"


def outcome_code(orders: list[OrderState]) -> int:
    """0 when every order that may not fail was applied, 7 when one has ended otherwise."""
    return 7 if any(order.state in ENDED and order.state != "applied" and not order.may_fail for order in orders) else 0


def plan_ended(look: Look, plan: str) -> bool:
    value = look.find(plan, PlanState)
    return value is None or value.open == 0


def watch_live(app: App, out: TextIO, *, plan: str | None, order: OrderState | None) -> int:
    """Show a plan, or an order with what it waits for, until it has ended. The last picture stays.

    Returns the exit code: that of the outcome, or 128 and the number of the signal that ended the watching.
    """
    from fencepost.surfaces.cli.view.live import live_view

    subject = order.order if order is not None else None
    with Interrupts() as interrupts:
        with app.kernel.reader.look() as look:
            view = live_view(app, out, look, hint=HINT, plan=order.plan if order is not None else plan, order=subject)
        interrupts.before_exit = view.restore
        try:
            token = -1
            while interrupts.code is None:
                ticket = app.kernel.wakeups.ticket()
                now_token = app.kernel.reader.change_token()
                if now_token != token:
                    token = now_token
                    with app.kernel.reader.look() as look:
                        view.tell(look)
                        if _has_ended(look, plan, subject):
                            break
                view.tick()
                app.kernel.wakeups.wait(ticket, TICK_S)
            view.keep()
        finally:
            view.close()
        if interrupts.code is not None:
            return interrupts.code
    with app.kernel.reader.look() as look:
        if subject is None:
            return outcome_code(look.orders(plan or ""))
        found = look.order(subject)
        return outcome_code([found] if found is not None else [])


def _has_ended(look: Look, plan: str | None, order: str | None) -> bool:
    if order is None:
        return plan_ended(look, plan or "")
    found = look.order(order)
    return found is None or found.state in ENDED
