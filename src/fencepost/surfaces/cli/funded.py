"""What a person is kept from: an answer or a retry with which an order would only end.

Both are checked before anything is written, by accounts as they stand then; whoever spends meanwhile is not waited for.
"""

from __future__ import annotations

from fencepost.core.state import OrderState
from fencepost.kernel.read import Look
from fencepost.surfaces.cli.accounts import title_of
from fencepost.surfaces.cli.context import CommandError
from fencepost.surfaces.cli.funds import funding_step, lacks, lacks_text
from fencepost.surfaces.cli.order_failure import answer_step
from fencepost.surfaces.cli.retry_step import lacks_of_retry, retry_of


def require_funds_behind(look: Look, order: OrderState, question: str = "") -> None:
    """Refuse an answer that nobody would ever read, since the order would end with it. Raises CommandError.

    An answer to another question than the one that is asked is refused for that.
    """
    asked = order.wait.question if order.wait is not None else ""
    missing = lacks(look, order) if asked and question in ("", asked) else []
    if missing:
        message = f"no attempt of {order.task} can follow its answer, which would end it: {lacks_text(missing)}"
        step = f"{answer_step(look, order, missing)}; with --anyway it is answered, and ends"
        raise CommandError("budget_exhausted", message, next_step=step)


def require_funds_for_retry(look: Look, order: OrderState) -> None:
    """Refuse a retry that would end at once. One that is refused for another reason is left to that. Raises
    CommandError.
    """
    missing = lacks_of_retry(look, order)
    if missing:
        waits = order.state == "retry_wait"
        message = f"no attempt of {order.task} can be funded, so that it would end at once: {lacks_text(missing)}"
        step_again = f"fencepost order retry {title_of(look, order)}" if waits else retry_of(look, order)
        step = f"{funding_step(missing)}, then {step_again}"
        raise CommandError("budget_exhausted", message, next_step=step)
