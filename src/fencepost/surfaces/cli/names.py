"""What a name means to a command that binds: an answer, a cancel, a retry, a ceiling.

To look at the wrong order costs nothing, so that a name without a plan may mean the current one. What binds takes no
order of a plan that was not named where another plan may be meant: one that is open as well, or the one that was
submitted last. Two open plans of one name are told apart by their ids alone (decision 0020).
"""

from __future__ import annotations

from collections.abc import Sequence

from fencepost.core import index
from fencepost.core.state import OrderState, PlanState
from fencepost.kernel.read import Look
from fencepost.surfaces.cli.accounts import Named, find_account, title_of
from fencepost.surfaces.cli.context import (
    ORDERS_SEARCHED_MAX,
    PLANS_SEARCHED_MAX,
    CommandError,
    current_plan,
    find_order,
    find_plan,
    is_one_of_several,
)
from fencepost.surfaces.cli.words import count, instant

CANDIDATES_SHOWN_MAX = 10
PLANS_MEANT_MAX = 10_000  # of a scope: where there are more, what binds names its plan


def bound_order(look: Look, name: str) -> OrderState:
    """The one order that `[PLAN/]TASK` or an id can mean. Raises CommandError not_found, ambiguous."""
    plan_name, _, task = name.rpartition("/")
    if not plan_name and not name.startswith("order_"):
        _require_few_plans(look, f"name its plan: PLAN/{task}, or its id")
    order = find_order(look, name)
    if name.startswith("order_") or plan_name.startswith("plan_"):
        return order
    others = _namesakes(look, plan_name) if plan_name else _candidates(look)
    others = [plan for plan in others if plan.plan != order.plan]
    if len(others) > PLANS_SEARCHED_MAX or sum(plan.orders for plan in others) > ORDERS_SEARCHED_MAX:
        told = f"{count(len(others) + 1, 'plan')} may have an order {name!r}, too many to look through"
        raise CommandError("ambiguous", told, next_step=f"name its plan: PLAN/{task}, or its id")
    same = [found for plan in others for found in look.orders(plan.plan) if found.task == task]
    if same:
        told = f"{count(len(same) + 1, 'plan')} that may be meant have an order {task!r}"
        raise _ambiguous(told, [_choice(look, found) for found in (order, *same)])
    return order


def bound_plan(look: Look, name: str | None) -> PlanState:
    """The one plan that a name or an id can mean; without a name the only one that may be meant. Raises CommandError
    not_found, ambiguous."""
    if name is None:
        _require_few_plans(look, "name the plan: fencepost plan list")
    found = current_plan(look) if name is None else find_plan(look, name)
    if name is not None and name.startswith("plan_"):
        return found
    plans = _candidates(look) if name is None else _namesakes(look, name)
    if len(plans) > 1:
        told = f"{count(len(plans), 'plan')} may be meant" if name is None else f"several open plans are called {name}"
        raise _ambiguous(told, [_plan_choice(look, plan) for plan in plans])
    return found


def bound_account(look: Look, name: str | None, plan: str | None) -> Named:
    """The one account that is meant, as `accounts.find_account` finds it. Raises CommandError not_found, ambiguous, and
    usage for a word that means both an order and a plan."""
    found = find_account(look, name, plan)
    if found.kind == "plan":
        bound_plan(look, plan if plan is not None else name)
    elif found.kind == "order" and name is not None:
        bound_order(look, name)
    return found


def said_of(look: Look, order: OrderState) -> str:
    """An order as what binds says it: always PLAN/NAME, with the id where that is not enough to tell it."""
    plan = look.find(order.plan, PlanState) if order.plan is not None else None
    title = title_of(look, order)
    if plan is None or title != order.order:
        return title
    return f"{plan.name}/{order.task} ({order.order})"


def _require_few_plans(look: Look, following: str) -> None:
    """Refuse a name without a plan where all plans of the scope are too many to look for what it may mean. Raises
    CommandError ambiguous."""
    found = 0
    for page in look.pages(index.PLAN):
        found += len(page)
        if found > PLANS_MEANT_MAX:
            told = f"more than {count(PLANS_MEANT_MAX, 'plan')} may be meant, too many to look through"
            raise CommandError("ambiguous", told, next_step=following)


def _candidates(look: Look) -> list[PlanState]:
    """Plans that a name without a plan may mean to a person: those that are open, and the one submitted last."""
    plans = look.newest_plans(PLANS_MEANT_MAX)
    return [plan for number, plan in enumerate(plans) if plan.open or number == 0]


def _namesakes(look: Look, name: str) -> list[PlanState]:
    """The open plans of one name, the newest first."""
    known = look.name(name)
    ids = [each.plan for each in known.open_plans] if known is not None else []
    return [plan for each in reversed(ids) if (plan := look.find(each, PlanState)) is not None]


def _choice(look: Look, order: OrderState) -> str:
    title = title_of(look, order)
    plan = look.find(order.plan, PlanState) if order.plan is not None else None
    return title if title != order.order or plan is None else f"{title} ({_when(plan)})"


def _plan_choice(look: Look, plan: PlanState) -> str:
    return f"{plan.plan} ({_when(plan)})" if is_one_of_several(look, plan) else plan.name


def _when(plan: PlanState) -> str:
    return f"of {plan.name}, submitted {instant(plan.submitted_us)}"


def _ambiguous(told: str, choices: Sequence[str]) -> CommandError:
    more = len(choices) - CANDIDATES_SHOWN_MAX
    shown = [*choices[:CANDIDATES_SHOWN_MAX], *([f"{more} more"] if more > 0 else [])]
    return CommandError("ambiguous", told, next_step=f"name one: {', '.join(shown)}")
