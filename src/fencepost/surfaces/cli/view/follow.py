"""The query model behind a live view: a plan's orders held in memory, and moved on by what was written since.

The first look reads the plan as a whole, in pages. Each further look reads the records after the last sequence, and of
the values only those that these records name, in one question; what it costs depends on what happened and never on
how large the plan is. What a record touches is found by the ids in its bytes: too many are read rather than too few.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from fencepost.core.machines import ENDED
from fencepost.core.readiness import verdict
from fencepost.core.state import (
    CLOCK,
    SCOPE,
    Account,
    AttemptState,
    ClockState,
    OrderState,
    PlanState,
    ScopeState,
)
from fencepost.kernel.read import Look
from fencepost.surfaces.cli.graph_model import layers_of, needs_of, nodes_of
from fencepost.surfaces.cli.needs_read import Group, newest_of, read_groups
from fencepost.surfaces.cli.view.picture import Meter, Picture, Row
from fencepost.surfaces.cli.view.signs import ASKING, RUNNING, rank_of
from fencepost.surfaces.cli.words import cost_text

PAGE = 500
RECORDS_MAX = 20_000  # a store that has moved on by more is read anew
_TIMED = frozenset({"attempts", "time_us"})
_IDS = re.compile(rb'"((?:order|attempt|hold)_[0-9a-f]{32})"')


class Follower:
    """One plan, or one order outside of any, as it stands at `sequence`."""

    def __init__(self, look: Look, *, plan: str | None, order: str | None = None) -> None:
        """With `order`, only that one and what it waits for are shown."""
        self._plan_id = plan
        self._only = order
        self.sequence = 0
        self.plan: PlanState | None = None
        self.scope: ScopeState | None = None
        self.clock: ClockState | None = None
        self.orders: dict[str, OrderState] = {}
        self.attempts: dict[str, AttemptState] = {}
        self._groups: dict[str, tuple[Group, ...]] = {}
        self._needs: dict[str, dict[int, list[str]]] = {}
        self._rows: dict[str, Row] = {}
        self._current: list[str] = []
        self._steps: dict[str, int] = {}
        self._step_count = 1
        self._owners: dict[str, str] = {}  # attempt or hold -> order
        self._load(look)

    def update(self, look: Look) -> bool:
        """Move on to this look. True when anything that is shown may have changed."""
        if look.head.seq == self.sequence:
            return False
        if look.head.seq - self.sequence > RECORDS_MAX:
            self._load(look)
            return True
        touched: dict[str, None] = {}
        mine = f'"{self._plan_id}"'.encode()
        while self.sequence < look.head.seq and (page := look.records(self.sequence, PAGE)):
            for _, data in page:
                names = [found.decode() for found in _IDS.findall(data)]
                if mine in data or any(name in self.orders or name in self._owners for name in names):
                    touched.update(dict.fromkeys(names))
            self.sequence = page[-1][0]
        return self._apply(look, touched)

    def order_of(self, name: str) -> OrderState | None:
        """The order as it stands, or what replaced it."""
        found = self.orders.get(name)
        while found is not None and found.replaced_by is not None and found.replaced_by in self.orders:
            found = self.orders[found.replaced_by]
        return found

    def current(self) -> list[OrderState]:
        """The orders as they stand, in the plan's order."""
        return [self.orders[name] for name in self._current]

    def running(self) -> list[AttemptState]:
        """Attempts of the orders that run."""
        return list(self.attempts.values())

    def attempt_of(self, order: OrderState) -> AttemptState | None:
        return self.attempts.get(order.attempt) if order.attempt is not None else None

    def waits_for(self, order: OrderState) -> tuple[str, ...]:
        """What keeps its needs open, or failed them: names, `end of NAME` where any outcome will do, `A or B`."""
        found: dict[str, None] = {}
        lost = order.state == "dependency_failed"
        for group, state in zip(self._groups.get(order.order, ()), order.groups, strict=False):
            if verdict(state) != ("fails" if lost else "open"):
                continue
            names = []
            for member in group.members:
                value = self.order_of(member.order)
                if value is None:
                    continue
                ended = value.state in ENDED
                if (ended and value.state not in member.outcomes) if lost else not ended:
                    names.append(value.task)
            if group.kind == "alternative" and not lost:
                names = [" or ".join(names)]
            elif group.kind == "optional":
                names = [f"end of {name}" for name in names]
            found.update(dict.fromkeys(name for name in names if name))
        return tuple(found)

    def account_of(self, subject: str) -> Account:
        """An account of the path from the scope to an order of the plan."""
        value: ScopeState | PlanState | OrderState | None = self.orders.get(subject)
        if subject == SCOPE:
            value = self.scope
        elif subject == self._plan_id:
            value = self.plan
        return value.account if value is not None else Account()

    def picture(self, *, notices: tuple[str, ...] = (), hint: str = "") -> Picture:
        plan = self.plan
        only = self.orders.get(self._only) if self._only is not None else None
        names = self._behind(self._only) if self._only is not None else self._current
        title = plan.name if plan is not None else ""
        if only is not None:
            title = f"{title}/{only.task}" if title else only.task
        account = only.account if only is not None and plan is None else plan.account if plan is not None else Account()
        began = plan.submitted_us if plan is not None else only.submitted_us if only is not None else 0
        return Picture(
            name=title,
            rows=[self._row(name) for name in names],
            steps=self._step_count,
            sequence=self.sequence,
            began_us=began,
            ended_us=plan.ended_us if plan is not None else None,
            meters=meters_of(account),
            notices=notices,
            hint=hint,
        )

    def _load(self, look: Look) -> None:
        """Read everything anew."""
        if self._plan_id is not None:
            every = look.orders(self._plan_id, replaced=True)
        else:
            every = [found for found in [look.order(self._only or "")] if found is not None]
        self.orders = {order.order: order for order in every}
        self._owners = {}
        self.attempts = {}
        self._rows = {}
        self._groups = read_groups(look, every)
        self._arrange()
        self.sequence = look.head.seq
        self._apply(look, {order.attempt: None for order in every if order.attempt and _runs(order)})

    def _apply(self, look: Look, touched: Mapping[str, None]) -> bool:
        subjects = [name for name in touched if not name.startswith("hold_")]
        subjects += [owner for name in touched if (owner := self._owners.get(name)) is not None]
        singles = [SCOPE, CLOCK, *([self._plan_id] if self._plan_id is not None else [])]
        values = look.many(list(dict.fromkeys([*singles, *subjects])))
        changed = [value for value in values.values() if isinstance(value, OrderState) and self._is_mine(value)]
        fresh = [order for order in changed if order.order not in self.orders]
        for order in changed:
            self.orders[order.order] = order
            self._rows.pop(order.order, None)
        if fresh:
            self._groups.update(read_groups(look, fresh))
            self._arrange()
        self._take_singles(values)
        self._take_attempts(look, values, changed)
        return bool(touched) or bool(changed)

    def _is_mine(self, order: OrderState) -> bool:
        return order.plan == self._plan_id if self._plan_id is not None else order.order in self.orders

    def _take_singles(self, values: Mapping[str, object]) -> None:
        scope, clock = values.get(SCOPE), values.get(CLOCK)
        plan = values.get(self._plan_id) if self._plan_id is not None else None
        self.scope = scope if isinstance(scope, ScopeState) else self.scope
        self.clock = clock if isinstance(clock, ClockState) else self.clock
        self.plan = plan if isinstance(plan, PlanState) else self.plan

    def _take_attempts(self, look: Look, values: Mapping[str, object], changed: Iterable[OrderState]) -> None:
        """Keep the attempts of what runs, and no others."""
        wanted = [order.attempt for order in changed if order.attempt and _runs(order)]
        missing = [name for name in wanted if name not in values]
        found = {**values, **(look.many(missing) if missing else {})}
        for value in found.values():
            if isinstance(value, AttemptState) and value.order in self.orders:
                self._owners[value.attempt] = self._owners[value.hold] = value.order
                order = self.orders[value.order]
                if order.attempt == value.attempt and _runs(order):
                    self.attempts[value.attempt] = value
                self._rows.pop(value.order, None)
        for name, attempt in list(self.attempts.items()):
            order = self.orders[attempt.order]
            if order.attempt != name or not _runs(order):
                del self.attempts[name]

    def _arrange(self) -> None:
        """Put current orders into steps; only new orders change that."""
        newest = newest_of(self.orders)
        firsts = sorted(
            (order for order in self.orders.values() if order.replaces not in self.orders),
            key=lambda order: (order.position, order.spec_seq),
        )
        current = [self.orders[newest[order.order]] for order in firsts]
        self._needs = needs_of(current, self._groups, newest)
        layers = layers_of(nodes_of(current, self._needs))
        self._steps = {node.order: step for step, layer in enumerate(layers, start=1) for node in layer}
        self._current = self._with_children([node.order for layer in layers for node in layer])
        self._step_count = max(self._steps.values(), default=1)

    def _with_children(self, names: Sequence[str]) -> list[str]:
        """Orders that another one submitted itself stand below it, in its step."""
        children: dict[str, list[str]] = {}
        for name in names:
            parent = self.orders[name].parent
            if parent in self.orders:
                children.setdefault(parent, []).append(name)
        if not children:
            return list(names)
        placed: list[str] = []
        stack = [name for name in reversed(names) if self.orders[name].parent not in self.orders]
        while stack:
            name = stack.pop()
            placed.append(name)
            for child in reversed(children.get(name, [])):
                self._steps[child] = self._steps[name]
                stack.append(child)
        return placed

    def asking(self) -> list[OrderState]:
        """Orders whose question a person has not answered."""
        return [order for order in self.current() if order.wait is not None and order.wait.question]

    def _behind(self, order: str) -> list[str]:
        """An order and everything that it still waits for, in the order of the graph."""
        found = self.order_of(order)
        if found is None:
            return []
        chosen = {found.order}
        queue = [found.order]
        for name in queue:  # grows while it is walked
            for members in self._needs.get(name, {}).values():
                for member in members:
                    if member not in chosen and (self.orders[member].state != "applied" or name == found.order):
                        chosen.add(member)
                        queue.append(member)
        return [name for name in self._current if name in chosen]

    def _row(self, name: str) -> Row:
        row = self._rows.get(name)
        if row is None:
            order = self.orders[name]
            row = self._rows[name] = row_of(order, self.attempt_of(order), self._steps.get(name, 1))
        return row


def _runs(order: OrderState) -> bool:
    return rank_of(order.state) == RUNNING


def row_of(order: OrderState, attempt: AttemptState | None, step: int) -> Row:
    """One order as a row."""
    runs = _runs(order)
    charged, held = order.account.charged, order.account.held
    return Row(
        order=order.order,
        name=order.task,
        state=ASKING if order.wait is not None and order.wait.question else order.state,
        step=step,
        tries=charged.get("attempts", 0) + held.get("attempts", 0),
        tries_max=order.account.ceiling.get("attempts"),
        since_us=attempt.activated_us if attempt is not None and runs else 0,
        due_us=order.retry_due_us if order.state == "retry_wait" else order.wait_until_us,
        time_us=charged.get("time_us", 0),
        cost=cost_text(charged),
        moved_us=order.moved_us,
        may_fail=order.may_fail,
    )


def meters_of(account: Account) -> tuple[Meter, ...]:
    """Every dimension that is limited, in the order of plan files; then what was charged without a limit."""
    names = sorted({*account.ceiling, *(name for name, value in account.charged.items() if value)}, key=_place)
    names.sort(key=lambda name: name not in account.ceiling)
    return tuple(
        Meter(
            dimension=name,
            charged=account.charged.get(name, 0),
            held=account.held.get(name, 0),
            ceiling=account.ceiling.get(name),
        )
        for name in names
        if name in account.ceiling or name not in _TIMED
    )


_PLACES: Sequence[str] = ("attempts", "time_us", "tokens_input", "tokens_output", "calls")


def _place(name: str) -> tuple[int, str]:
    return (_PLACES.index(name) if name in _PLACES else len(_PLACES), name)
