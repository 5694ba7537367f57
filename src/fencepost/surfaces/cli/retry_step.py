"""Which command runs an ended order again: its own retry, or that of the order that submitted it."""

from __future__ import annotations

from fencepost.core.machines import ENDED
from fencepost.core.state import OrderState, PlanState
from fencepost.kernel.read import Look
from fencepost.surfaces.cli.accounts import title_of
from fencepost.surfaces.cli.funds import funding_step, lacks, retry_left_out
from fencepost.surfaces.cli.typed import plan_file

_RETRY_NAME = "fencepost order retry NAME"
_DEPTH_MAX = 100


def retry_of(look: Look, order: OrderState) -> str:
    """The retry that brings an ended order back, with those that ended because of it.

    A child is only asked for by its parent, so that the outermost parent is retried; where that one cannot be, since it
    has not ended or was applied, it is the one to look at. A plan that was cancelled, or whose deadline has passed,
    takes no retry: it is submitted anew.
    """
    root = order
    for _ in range(_DEPTH_MAX):
        parent = look.order(root.parent) if root.parent is not None else None
        if parent is None:
            break
        root = parent
    plan = look.find(root.plan, PlanState) if root.plan is not None else None
    if plan is not None and plan.cancel:
        return f"fencepost run {plan_file(look, plan.plan)} {'--new' if plan.open else '--again'}"
    title = title_of(look, root)
    if root.state not in ENDED or root.state in ("applied", "unknown_terminal"):
        return f"fencepost order why {title}"
    return f"fencepost order retry {title}{' --with-dependents' if root.dependents else ''}"


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
    is_refused = order.parent is not None or " order retry " not in retry  # whatever is funded
    missing = [] if is_refused else lacks(look, order, replaced=True)
    return f"{funding_step(missing)}, then {retry}" if missing else retry
