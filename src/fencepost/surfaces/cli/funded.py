"""What a person is kept from: an answer or a retry with which an order would only end.

Both are checked before anything is written, by accounts as they stand then; whoever spends meanwhile is not waited for.
"""

from __future__ import annotations

from fencepost.core.machines import ENDED
from fencepost.core.state import OrderState
from fencepost.kernel.read import Look
from fencepost.surfaces.cli.accounts import title_of
from fencepost.surfaces.cli.context import CommandError
from fencepost.surfaces.cli.funds import funding_step, lacks, lacks_text
from fencepost.surfaces.cli.order_failure import answer_step
from fencepost.surfaces.cli.retry_step import retry_of


def require_funds_behind(look: Look, order: OrderState) -> None:
    """Refuse an answer that nobody would ever read, since the order would end with it. Raises CommandError."""
    missing = lacks(look, order) if order.wait is not None and order.wait.question else []
    if missing:
        message = f"no attempt of {order.task} can follow its answer, which would end it: {lacks_text(missing)}"
        step = f"{answer_step(look, order, missing)}; with --anyway it is answered, and ends"
        raise CommandError("budget_exhausted", message, next_step=step)


def require_funds_for_retry(look: Look, order: OrderState) -> None:
    """Refuse a retry that would end at once. One that is refused for another reason is left to that. Raises
    CommandError.
    """
    waits = order.state == "retry_wait"
    ended = order.state in ENDED and order.state not in ("applied", "unknown_terminal")
    replaceable = ended and order.replaced_by is None and order.parent is None
    missing = lacks(look, order, replaced=ended) if waits or replaceable else []
    if missing:
        message = f"no attempt of {order.task} can be funded, so that it would end at once: {lacks_text(missing)}"
        step_again = f"fencepost order retry {title_of(look, order)}" if waits else retry_of(look, order)
        step = f"{funding_step(missing)}, then {step_again}"
        raise CommandError("budget_exhausted", message, next_step=step)
