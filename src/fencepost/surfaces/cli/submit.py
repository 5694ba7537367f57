"""How a plan file becomes a plan of the store: found again by its identity, or pinned and submitted."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fencepost.app import App
from fencepost.config import Config
from fencepost.core.identity import meaning
from fencepost.core.reasons import Refusal
from fencepost.core.records.plan import PlanRevision
from fencepost.core.state import PlanState
from fencepost.kernel.read import Look
from fencepost.kernel.receipts import Receipt
from fencepost.services.submission import Pins, Submission, answered, known_plan, pin, submission_key, submit_command
from fencepost.surfaces.cli.context import CommandError, opened_home, required, write_by_person
from fencepost.surfaces.cli.plan_files import Checked, PlanRefused, Source, check, check_alone
from fencepost.surfaces.cli.words import cost_text, count, duration, planned_step

STILL_OPEN = "--again is for a plan that has ended: this one is open, so that it goes on; --new submits it beside"


@dataclass(frozen=True, kw_only=True)
class Placed:
    """A plan of the store. `fresh` is True when this submission made it."""

    plan: str
    sequence: int
    fresh: bool


def find_known(source: Source, home: Path | None, config: Config, mode: Submission) -> Checked | None:
    """The plan as checked by itself, when the store has it already and nothing needs to be pinned.

    Then nobody looks at the source tree: a plan goes on with the inputs that were pinned at its submission.
    """
    alone = check_alone(source)
    if alone is None or mode == "new" or home is None or not (home / "layout").is_file():
        return None
    try:
        with opened_home(home, config) as app, app.kernel.reader.look() as look:
            known = known_plan(look, alone.document.name, alone.content)
    except CommandError as error:
        if error.code != "scope_not_open":
            raise
        return None
    return alone if _goes_on(known, alone, mode) else None


def _goes_on(known: PlanState | None, checked: Checked, mode: Submission) -> bool:
    """Whether the submission means the known plan. Raises CommandError plan_changed, as the kernel would refuse it."""
    found = meaning(known, checked.content, mode)
    if found == "changed":
        error = CommandError.of(Refusal(code="plan_changed", detail={"name": checked.document.name}))
        error.next_step = planned_step(error.next_step or "", shlex.quote(checked.source.file))
        raise error
    return found == "found"


def checked_for(source: Source, home: Path | None, config: Config, mode: Submission) -> Checked:
    """A plan ready to be placed. Raises PlanRefused with all problems, and `plan_changed`."""
    return find_known(source, home, config, mode) or check(source)


def place(app: App, checked: Checked, mode: Submission, command_key: str | None) -> Placed:
    """Find the plan that this submission means, or pin its inputs and submit it."""
    if command_key is not None:
        # A repetition is answered whatever the tree is like by now.
        receipt = answered(app.kernel, checked.document, checked.content, command_key)
        if receipt is not None:
            return _placed(receipt)
    with app.kernel.reader.look() as look:
        known = known_plan(look, checked.document.name, checked.content)
        name = look.name(checked.document.name)
        sequence = look.head.seq
    if known is not None and _goes_on(known, checked, mode):
        return Placed(plan=known.plan, sequence=sequence, fresh=False)
    if not checked.chosen:
        checked = check(checked.source)
    pins = _pin(app, checked)
    document, content = checked.document, checked.content
    predecessor = "" if name is None else name.newest
    command = submit_command(
        document, content, pins, mode=mode, provenance=checked.source.provenance(), predecessor=predecessor
    )
    key = command_key or submission_key(document.name, content, predecessor)
    receipt = write_by_person(app, command, key)
    if command_key is None and _was_overtaken(receipt):
        return _overtaken(app, checked, receipt)
    return _placed(receipt)


def done_anew(look: Look, plan: PlanState) -> str | None:
    """One line that says what the plan before of this name had done, all of which a fresh one does, and pays for,
    again; None where nothing of it was applied."""
    before = look.find(look.body(plan.record_seq, PlanRevision).predecessor or "", PlanState)
    orders = look.orders(before.plan) if before is not None else []
    applied = {order.order: order for order in orders if order.state == "applied"}
    if before is None or not applied:
        return None
    # A parent's account has what its children were charged as well.
    outer = [order.account.charged for order in applied.values() if order.parent not in applied]
    charged: dict[str, int] = {}
    for account in outer:
        for name, amount in account.items():
            charged[name] = charged.get(name, 0) + amount
    cost = cost_text(charged) or f"time {duration(charged.get('time_us', 0))}"
    which = "is open and" if before.open else "has ended and"
    return (
        f"plan {plan.name}: the one before {which} has {count(len(applied), 'applied order')} ({cost}): all of it is "
        "done again"
    )


def _pin(app: App, checked: Checked) -> Pins:
    source = checked.source
    root = source.repository.root
    pins = pin(checked.document, checked.chosen, checked.callees, root=root, packs=app.packs, artifacts=app.artifacts)
    if not isinstance(pins, Pins):
        raise PlanRefused(source.file, pins, 0)
    return pins


def _was_overtaken(receipt: Receipt) -> bool:
    return receipt.refusal is not None and receipt.refusal.code == "operation_collision"


def _overtaken(app: App, checked: Checked, receipt: Receipt) -> Placed:
    """Somebody submitted the same plan at the same moment, from other files: theirs is the one that goes on."""
    with app.kernel.reader.look() as look:
        known = known_plan(look, checked.document.name, checked.content)
        sequence = look.head.seq
    if known is None or known.content != checked.content:
        required(receipt)
        raise CommandError("operation_collision", "another submission has this key", next_step="run again")
    return Placed(plan=known.plan, sequence=sequence, fresh=False)


def _placed(receipt: Receipt) -> Placed:
    result: Mapping[str, Any] = required(receipt)
    return Placed(
        plan=result["plan"], sequence=receipt.sequence, fresh=bool(result.get("fresh", receipt.fresh)) and receipt.fresh
    )
