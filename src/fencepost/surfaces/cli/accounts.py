"""Accounts and holds as commands name and show them: the scope's, a plan's, an order's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from fencepost.core.amounts import over, refuses
from fencepost.core.index import FINISH, LEASE, RESERVATION, UNSETTLED
from fencepost.core.machines import BUDGET_HOLD
from fencepost.core.shares import MONEY
from fencepost.core.state import SCOPE, Account, AttemptState, HoldState, OrderState, PlanState, ScopeState
from fencepost.core.views import account_document, hold_document
from fencepost.kernel.read import Look
from fencepost.surfaces.cli.context import (
    CommandError,
    current_plan,
    find_order,
    find_plan,
    is_one_of_several,
    known_names,
    plan_title,
)
from fencepost.surfaces.cli.words import amounts, like

OPEN_HOLDS = frozenset(state for state, targets in BUDGET_HOLD.rows.items() if targets)


class Named(msgspec.Struct, frozen=True, kw_only=True):
    """One account: its subject, what kind of thing it belongs to, and that thing's name and version.

    `title` is what a command may name it by, which a plan's name is not where it means another plan as well.
    """

    subject: str
    kind: str
    name: str
    title: str
    version: int
    account: Account
    path: tuple[str, ...]  # from the scope down to itself

    def document(self) -> dict[str, Any]:
        shown = account_document(self.subject, self.account)
        return {**shown, "kind": self.kind, "name": self.name, "version": self.version}


class OpenHold(msgspec.Struct, frozen=True, kw_only=True):
    """A hold that has not ended, and the order that it is for."""

    hold: HoldState
    order: str
    name: str  # PLAN/TASK

    def document(self) -> dict[str, Any]:
        accounts = list(self.hold.accounts)
        return {**hold_document(self.hold), "order": self.order, "name": self.name, "accounts": accounts}


def title_of(look: Look, order: OrderState) -> str:
    """How a person may name the order anywhere in the scope: `PLAN/TASK`, or its id outside any plan."""
    plan = look.find(order.plan, PlanState) if order.plan is not None else None
    if plan is None or order.replaced_by is not None or is_one_of_several(look, plan):
        return order.order
    return f"{plan.name}/{order.task}"


def refused_of(look: Look, order: OrderState, known: dict[str, Mapping[str, int]] | None = None) -> dict[str, int]:
    """What an order was charged in currencies that a level above it refuses, since that budgets others.

    `known` keeps the ceilings that were read from one order to the next.
    """
    money = {name: value for name, value in sorted(order.account.charged.items()) if value and name.startswith(MONEY)}
    if not money:
        return {}
    levels = {} if known is None else known
    for subject in order.accounts[:-1]:
        if subject not in levels:
            levels[subject] = account_of(look, subject).account.ceiling
    above = [levels[subject] for subject in order.accounts[:-1]]
    return {name: value for name, value in money.items() if any(refuses(level, name) for level in above)}


def over_of(look: Look, order: OrderState) -> dict[str, int]:
    """What an order was charged beyond its own ceilings, and in currencies that any level of its path refuses."""
    return dict(sorted({**over(order.account), **refused_of(look, order)}.items()))


def over_lines(look: Look, order: OrderState) -> list[str]:
    """The same for people, own ceilings and those of other levels apart."""
    own = over(order.account)
    refused = {name: amount for name, amount in refused_of(look, order).items() if name not in own}
    lines = [f"{amounts(own)} more than this order's ceiling"] if own else []
    return lines + ([f"{amounts(refused)} in a currency that is not budgeted above it"] if refused else [])


def account_of(look: Look, subject: str) -> Named:
    """An account by the subject that it belongs to. Raises CommandError not_found."""
    value = look.get(subject)
    path: tuple[str, ...]
    if isinstance(value, ScopeState):
        kind, name, title, path = "scope", value.scope, SCOPE, (SCOPE,)
    elif isinstance(value, PlanState):
        kind, name, title, path = "plan", value.name, plan_title(look, value), (SCOPE, value.plan)
    elif isinstance(value, OrderState):
        name = title = title_of(look, value)
        kind, path = "order", value.accounts
    else:
        raise CommandError("not_found", f"there is no account {subject!r}", next_step="fencepost budget show")
    return Named(
        subject=subject, kind=kind, name=name, title=title, version=value.version, account=value.account, path=path
    )


def find_account(look: Look, name: str | None, plan: str | None) -> Named:
    """What a command names: `scope`, a plan, `[PLAN/]TASK` or an id. Neither: the current plan.

    Raises CommandError: not_found, or usage for a word that means both an order and a plan.
    """
    if plan is not None:
        if name is not None:
            raise CommandError("usage", "name an account or a plan, not both", next_step="fencepost budget show --help")
        return account_of(look, find_plan(look, plan).plan)
    if name is None:
        return account_of(look, current_plan(look).plan)
    if name == SCOPE or name.startswith("plan_"):
        return account_of(look, name)
    found: list[str] = []
    refused: CommandError | None = None
    try:
        found.append(find_order(look, name).order)
    except CommandError as error:
        refused = error
    known = look.name(name) if "/" not in name else None
    if known is not None:
        found.append(known.meant_by())
    if len(found) > 1:
        raise CommandError(
            "usage",
            f"{name!r} is an order and a plan",
            next_step=f"write --plan {name} for the plan, or PLAN/{name} for the order",
        )
    if not found:
        if refused is not None and "/" in name:
            raise refused
        told = f"no order and no plan is called {name!r}{like(name, known_names(look))}"
        raise CommandError("not_found", told, next_step="fencepost order list")
    return account_of(look, found[0])


def open_holds(look: Look) -> list[OpenHold]:
    """Every hold of the scope that has not ended, oldest attempt first. Costs by what is open, not by the backlog."""
    attempts = [row.subject for stage in (RESERVATION, LEASE) for page in look.pages(stage) for row in page]
    pending = [row.subject for page in look.pages(FINISH) for row in page]
    attempts += [order.attempt for order in look.many(pending).values() if order.attempt]
    holds = [attempt.hold for attempt in look.many(attempts).values() if isinstance(attempt, AttemptState)]
    holds += [row.subject for page in look.pages(UNSETTLED) for row in page]
    found = [hold for hold in look.many(list(dict.fromkeys(holds))).values() if hold.state in OPEN_HOLDS]
    orders = look.many([hold.order for hold in found])
    return [
        OpenHold(hold=hold, order=hold.order, name=title_of(look, orders[hold.order]))
        for hold in sorted(found, key=lambda hold: hold.attempt)
    ]
