"""Which command runs an ended order again: its own retry, or that of the order that submitted it."""

from __future__ import annotations

from fencepost.core.machines import ENDED
from fencepost.core.state import OrderState, PlanState
from fencepost.kernel.read import Look
from fencepost.surfaces.cli.accounts import title_of
from fencepost.surfaces.cli.funds import Lack, funding_step, lacks, retry_left_out
from fencepost.surfaces.cli.typed import plan_file

_RETRY_NAME = "fencepost order retry NAME"
_DEPTH_MAX = 100


def retry_of(look: Look, order: OrderState) -> str:
    """The retry that brings an ended order back, with those that ended because of it.

    A child is only asked for by its parent, so that the outermost parent is retried; where that one cannot be, since it
    has not ended or was applied, it is the one to look at. A plan that was cancelled, or whose deadline has passed,
    takes no retry: it is submitted anew.
    """
    root = _outermost(look, order)
    plan = _plan_without_retries(look, root)
    if plan is not None:
        return f"fencepost run {plan_file(look, plan.plan)} {'--new' if plan.open else '--again'}"
    title = title_of(look, root)
    if not _is_replaceable(root):
        return f"fencepost order why {title}"
    return f"fencepost order retry {title}{' --with-dependents' if root.dependents else ''}"


def _outermost(look: Look, order: OrderState) -> OrderState:
    """The order that nobody submitted above this one, itself for one of a plan."""
    for _ in range(_DEPTH_MAX):
        parent = look.order(order.parent) if order.parent is not None else None
        if parent is None:
            break
        order = parent
    return order


def _plan_without_retries(look: Look, order: OrderState) -> PlanState | None:
    """The order's plan where it was cancelled, or its deadline has passed; None where retries are taken."""
    plan = look.find(order.plan, PlanState) if order.plan is not None else None
    return plan if plan is not None and plan.cancel else None


def _is_replaceable(order: OrderState) -> bool:
    return order.state in ENDED and order.state not in ("applied", "unknown_terminal")


def with_retry(look: Look, order: OrderState, step: str) -> str:
    """A reason's next step whose retry is one that is not refused. Orders that have not ended retry by themselves.

    One whose own retries were left out for want of budget has the retry behind whatever else helps.
    """
    if order.state not in ENDED:
        return step
    if _RETRY_NAME not in step:
        return f"{step}, then {funded_retry_of(look, order)}" if retry_left_out(look, order) else step
    return step.replace(_RETRY_NAME, funded_retry_of(look, order))


def funded_retry_of(look: Look, order: OrderState) -> str:
    """The retry, behind the ceilings that it lacks: without them it is refused."""
    retry = retry_of(look, order)
    root = _outermost(look, order)
    if " order retry " not in retry:
        return retry  # whatever is funded
    missing = lacks_of_retry(look, root)
    if root.order != order.order:
        # A child is asked for anew by its parent, and lacks again what it lacked of the accounts above both.
        missing += [lack for lack in lacks(look, order, replaced=True) if lack.account.subject in root.accounts[:-1]]
    return f"{funding_step(missing)}, then {retry}" if missing else retry


def lacks_of_retry(look: Look, order: OrderState) -> list[Lack]:
    """What the attempt behind a retry of this order lacks; nothing where the retry is refused whatever is funded."""
    if _plan_without_retries(look, order) is not None:
        return []
    if order.state == "retry_wait":
        return lacks(look, order)
    is_taken = _is_replaceable(order) and order.replaced_by is None and order.parent is None
    return lacks(look, order, replaced=True) if is_taken else []
