"""Why a row is where it is, in one line: what `order why` says, cut to what a glance needs.

Most of it follows from what is held in memory. A failure's message stands in the journal: it is read once, and only
for rows that are seen.
"""

from __future__ import annotations

from collections.abc import Iterable

from fencepost.app import App
from fencepost.core import needs
from fencepost.core.machines import ENDED
from fencepost.core.reasons import WAITS_AND_ENDS
from fencepost.core.records.plan import Wait
from fencepost.core.state import AttemptState, OrderState
from fencepost.core.views import held_up_by_clock
from fencepost.kernel.read import Look
from fencepost.surfaces.cli.order_failure import failure_code, failure_lines
from fencepost.surfaces.cli.view.follow import Follower
from fencepost.surfaces.cli.view.picture import Detail
from fencepost.surfaces.cli.words import amount, dimension_label

KNOWN_MAX = 2_000  # failures that are remembered
GONE = "its worker is gone; the next one takes it up"
_SELF_TOLD = frozenset({"attempt_running", "applied", "waiting_for_worker", "waiting_for_dependencies", "backoff"})
_WORDS = {
    "waiting_for_activation": "",
    "waiting_for_verification": "the verifier runs",
    "waiting_for_reduction": "its result is judged",
    "cancel_requested": "is being stopped",
    "holder_gone": "its worker was proved gone",
    "lease_expired": "its worker's lease ended",
    "keeper_lost": "its program's keeper was lost",
    "drained": "its worker was told to stop",
    "backoff_over": "its backoff is over",
    "budget_freed": "budget came free",
    "retry_requested": "a retry was asked for",
    "cancelled_by_request": "cancelled on request",
    "plan_cancelled": "its plan was cancelled",
    "deadline_passed": "the plan's deadline passed",
    "dependency_undecided": "a person must decide first",
}


class Reasons:
    """Details of rows, as far as they are not in the picture itself."""

    def __init__(self, app: App, follower: Follower) -> None:
        self._app = app
        self._follower = follower
        self._failures: dict[tuple[str, int], str] = {}

    def missing(self, seen: Iterable[str]) -> list[OrderState]:
        """Orders whose message has to be read before `detail` can say it."""
        orders = [self._follower.orders[name] for name in seen]
        return [order for order in orders if _has_message(order) and (order.order, order.version) not in self._failures]

    def read(self, look: Look, orders: Iterable[OrderState]) -> None:
        """Read the messages of these orders, as far as their values are those of this look."""
        if len(self._failures) > KNOWN_MAX:
            self._failures.clear()
        for order in orders:
            lines = failure_lines(look, order)
            code = failure_code(look, order)
            row = WAITS_AND_ENDS.get(code)
            self._failures[order.order, order.version] = lines[0] if lines else row.sentence if row else code

    def detail(self, name: str, *, gone: bool, log: str) -> Detail:
        order = self._follower.orders[name]
        attempt = self._follower.attempt_of(order)
        if gone:
            return Detail(why=GONE, note=GONE, log=log)
        if attempt is not None:
            return Detail(why=_WORDS.get(order.reason, ""), note=running_note(attempt), log=log)
        if order.wait is not None:
            return self._waits(order.wait)
        if order.state in ("blocked_dependency", "dependency_failed"):
            lead = "needs" if order.state == "blocked_dependency" else "because of"
            return Detail(why=lead, names=self._follower.waits_for(order))
        return Detail(why=self._why(order), log=log)

    def _waits(self, wait: Wait) -> Detail:
        """What a paused order waits for: an answer, its children, or a time, which stands in the row itself."""
        if wait.question:
            return Detail(why=wait.prompt or wait.question)
        children = [found for name in wait.orders if (found := self._follower.order_of(name)) is not None]
        names = tuple(child.task for child in children if child.state not in ENDED)
        return Detail(why="waits for" if names else "waits for its time", names=names)

    def _why(self, order: OrderState) -> str:
        if _has_message(order):
            return self._failures.get((order.order, order.version), "")
        if order.state in ("blocked_budget", "budget_exhausted"):
            return self._lacks(order)
        clock = self._follower.clock
        if clock is not None and held_up_by_clock(order, clock, self._follower.attempts.get):
            return "the clock waits for a person"
        if order.reason in _WORDS:
            return _WORDS[order.reason]
        row = WAITS_AND_ENDS.get(order.reason)
        return "" if order.reason in _SELF_TOLD or row is None else row.sentence

    def _lacks(self, order: OrderState) -> str:
        """`USD: needs 0.50, 0.10 left of 2.50`, of the account that is nearest to the scope."""
        account_of = self._follower.account_of
        plan = self._follower.plan
        shares = needs.shares_now(order, account_of, plan.orders if plan is not None else 1)
        if order.state == "budget_exhausted":
            found = next(needs.exhaustions(order, shares, account_of), None)
        else:
            found = needs.obstacle(order, needs.wanted(order, shares, account_of), account_of)
        if found is None:
            return "what was held is free again" if order.state == "blocked_budget" else ""
        short = found.short[0]
        if found.code == "currency_not_budgeted":
            spent = amount(short.dimension, -short.left)
            return f"{dimension_label(short.dimension)} is not budgeted" + (
                f", {spent} is charged" if short.left else ""
            )
        ceiling = account_of(found.account).ceiling.get(short.dimension)
        label = dimension_label(short.dimension)
        needed, left = amount(short.dimension, short.needed), amount(short.dimension, max(short.left, 0))
        return f"{label}: needs {needed}, {left} free of {amount(short.dimension, ceiling)}"


def running_note(attempt: AttemptState) -> str:
    """What a running attempt says of itself: the one place where a view takes notes and progress from."""
    return attempt.note


def _has_message(order: OrderState) -> bool:
    return order.state in ("failed", "retry_wait")
