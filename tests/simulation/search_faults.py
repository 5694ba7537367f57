"""Faults to plant into a copy of the core, one at a time, each with the world in which the search must see it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import NamedTuple

import fencepost

PACKAGE = Path(fencepost.__file__).parent
COPIED = ("__init__.py", "_version.py", "core", "testing/__init__.py", "testing/search")


class Change(NamedTuple):
    """One piece of text that becomes another; it stands in the file exactly once."""

    path: str  # below core/
    before: str
    after: str


class Fault(NamedTuple):
    name: str
    world: str
    changes: tuple[Change, ...]


def _one(name: str, world: str, path: str, before: str, after: str) -> Fault:
    return Fault(name, world, (Change(path, before, after),))


FAULTS: tuple[Fault, ...] = (
    Fault(
        "fence_comparison_removed",
        "fences",
        (
            Change(
                "decide/dispatch.py",
                "attempt.fence == fence and attempt.state in LIVE and not",
                "attempt.state in LIVE and not",
            ),
            Change(
                "evolve/attempt.py",
                "known.fence != body.fence or known.order != body.order or not is_live(edit, known)",
                "known.order != body.order or not is_live(edit, known)",
            ),
            Change(
                "evolve/attempt.py",
                "known.fence != fence or order.attempt != known.attempt or not is_live(edit, known)",
                "order.attempt != known.attempt or not is_live(edit, known)",
            ),
        ),
    ),
    _one(
        "fence_of_a_release_not_compared",
        "fences",
        "decide/claim.py",
        "if attempt.fence != command.fence:",
        "if not command.fence:",
    ),
    _one(
        "holder_not_compared",
        "fences",
        "decide/dispatch.py",
        "if attempt.worker != command.worker:",
        "if not command.worker:",
    ),
    _one(
        "hold_kept_at_expiry",
        "fences",
        "decide/recover.py",
        """        ending.release(batch, attempt, "reservation_expired")
""",
        "",
    ),
    _one(
        "hold_of_a_lost_lease_kept",
        "fences",
        "decide/recover.py",
        "    _settle_unreported(batch, attempt, basis, until_us)\n    ending.lose",
        "    ending.lose",
    ),
    _one(
        "dependents_never_told",
        "optional",
        "decide/ending.py",
        '    if dependent.state != "blocked_dependency":\n',
        "    if dependent:\n",
    ),
    _one(
        "told_and_forgotten",
        "optional",
        "evolve/edit.py",
        'changes["told_done"] = order.dependents == 0',
        'changes["told_done"] = True',
    ),
    _one(
        "retry_past_the_cap",
        "fences",
        "decide/finish.py",
        "        or ending.exhausted_on_path(batch, order) is not None\n",
        "",
    ),
    _one(
        "cancel_misses_a_backoff",
        "fences",
        "decide/revise.py",
        '''    if order.state in ENDED:
        return Refusal(code="order_ended"''',
        '''    if order.state in ENDED or order.state == "retry_wait":
        return Refusal(code="order_ended"''',
    ),
    _one(
        "deadline_compared_wrongly",
        "deadline",
        "deadlines.py",
        "clock.logical_us - clock.uncertainty_us >= deadline_us",
        "clock.logical_us - clock.uncertainty_us > deadline_us",
    ),
    Fault(
        "uncertainty_forgotten",
        "deadline",
        (
            Change(
                "deadlines.py",
                "clock.logical_us - clock.uncertainty_us >= deadline_us",
                "clock.logical_us >= deadline_us",
            ),
            Change(
                "evolve/authority.py",
                "body.logical_us - body.uncertainty_us >= body.deadline_us",
                "body.logical_us >= body.deadline_us",
            ),
        ),
    ),
    _one(
        "lease_lives_on_at_its_end",
        "fences",
        "deadlines.py",
        "clock.logical_us >= effective_end_us(clock, deadline_us)",
        "clock.logical_us > effective_end_us(clock, deadline_us)",
    ),
    _one(
        "grace_forgotten",
        "clock",
        "deadlines.py",
        "    if clock.grace_until_us and deadline_us >= clock.grace_from_us:\n",
        "    if False:\n",
    ),
    _one(
        "version_not_compared",
        "fences",
        "decide/ending.py",
        "    if value.version == expected:",
        "    if value.version >= expected:",
    ),
    _one(
        "any_group_waits_for_all",
        "any",
        "readiness.py",
        """    if group.satisfied:
        return "holds"
""",
        """    if group.satisfied == group.total:
        return "holds"
""",
    ),
    _one(
        "optional_group_fails",
        "optional",
        "readiness.py",
        """    if group.kind == "optional":
        return""",
        """    if group.kind == "optional" and group.unsatisfied:
        return "fails"
    if group.kind == "optional":
        return""",
    ),
    _one(
        "ended_plan_listed_as_open",
        "optional",
        "evolve/edit.py",
        "    if left == 0:\n",
        "    if left < 0:\n",
    ),
    _one(
        "verifier_not_waited_for",
        "verified",
        "decide/finish.py",
        "    if needs_verifier and not attempt.verification_seq:",
        "    if False:",
    ),
    _one(
        "late_result_not_charged",
        "late",
        "decide/recover.py",
        "ending.used(batch, ending.late_usages(batch, attempt), hold)",
        "ending.used(batch, [], hold)",
    ),
    _one(
        "index_row_forgotten",
        "fences",
        "index.py",
        "    return [row for row in new if row not in old], [",
        "    return [], [",
    ),
    _one(
        "yield_credited_for_ever",
        "drained",
        "decide/finish.py",
        'credited = {"attempts": 1} if drained and order.yields < batch.given.limits.yields_max else {}',
        'credited = {"attempts": 1}',
    ),
    _one(
        "budget_never_examined_again",
        "tight",
        "decide/recover.py",
        """    if found is not None and found.code == order.reason:
        return Refusal(code=found.code, detail=found.detail)
""",
        """    if found is None or found.code == order.reason:
        return Refusal(code=order.reason)
""",
    ),
    _one(
        "ceiling_not_compared",
        "tight",
        "amounts.py",
        "        if left is not None and amount > left:",
        "        if left is not None and amount > left + 1:",
    ),
    _one(
        "blocked_clock_starts_work",
        "clock",
        "decide/clock.py",
        """    if clock.state == "clock_reconciliation_required":
        return Refusal(code="clock_blocked")
""",
        "",
    ),
    _one(
        "plan_cancel_skips_an_order",
        "pages",
        "decide/revise.py",
        "        if order.state not in ENDED and not ending.waits_for_effect(order):",
        '        if order.state not in (*ENDED, "reserved") and not ending.waits_for_effect(order):',
    ),
    _one(
        "drained_time_counts_twice",
        "drained",
        "evolve/attempt.py",
        "    book(edit, hold.accounts, free=hold.held, charge=body.charged, credit=body.credited)",
        "    book(edit, hold.accounts, free=hold.held, charge=plus(body.charged, body.charged), credit=body.credited)",
    ),
    _one(
        "hold_kept_while_waiting",
        "asks",
        "decide/wait.py",
        """    batch.emit(
        attempt.hold,
        HoldSettled(charged=charged, basis="yielded", receipts=(ending.time_receipt(attempt),), credited=credited),
    )
""",
        "",
    ),
    _one(
        "yield_without_a_checkpoint_credited",
        "asks",
        "decide/wait.py",
        "if attempt.checkpoint and order.yields < limits.yields_max else",
        "if order.yields < limits.yields_max else",
    ),
    _one(
        "yields_credited_for_ever",
        "asks",
        "decide/wait.py",
        "if attempt.checkpoint and order.yields < limits.yields_max else",
        "if attempt.checkpoint else",
    ),
    Fault(
        "checkpoint_overtakes_another",
        "asks",
        (
            Change(
                "decide/inside.py",
                "    if command.builds_on != order.checkpoint_number:\n",
                "    if command.builds_on > order.checkpoint_number:\n",
            ),
            Change(
                "evolve/inside.py",
                "body.builds_on == order.checkpoint_number and body.number == body.builds_on + 1",
                "body.number == body.builds_on + 1",
            ),
        ),
    ),
    _one(
        "answer_that_is_there_waited_for",
        "asks",
        "decide/wait.py",
        "    if wait.question and wait.question in waiting.answers:\n",
        "    if not wait.question and wait.question in waiting.answers:\n",
    ),
    _one(
        "answer_to_another_question_taken",
        "asks",
        "decide/wait.py",
        "    if not question or question != asked:\n",
        "    question = asked\n    if not question:\n",
    ),
    Fault(
        "receipt_charged_twice",
        "charged",
        (
            Change(
                "decide/inside.py",
                "    if booked_before is not None:\n",
                "    if booked_before is not None and stale:\n",
            ),
            Change(
                "evolve/inside.py",
                "    edit.create(receipt_subject(receipt_name(body.usage)), receipt)\n",
                "    if edit.find(receipt_subject(receipt_name(body.usage))) is None:\n"
                "        edit.create(receipt_subject(receipt_name(body.usage)), receipt)\n",
            ),
        ),
    ),
    _one(
        "refused_money_holds_nothing_up",
        "euros",
        "needs.py",
        "plus(plus(account.charged, account.unknown), amounts))",
        "amounts)",
    ),
    _one(
        "refused_money_is_not_looked_at_again_before_the_start",
        "euros",
        "decide/dispatch.py",
        "        if refused is not None:\n            return Refusal(code=refused.code, detail=refused.detail)\n",
        "",
    ),
    _one(
        "receipt_differs_and_is_taken",
        "charged",
        "decide/inside.py",
        'if booked_before.digest not in ("", digest_of(command.usage)):',
        "if not booked_before:",
    ),
    _one(
        "receipt_of_a_charge_booked_again_with_the_result",
        "charged",
        "decide/ending.py",
        "    return provider != KERNEL and batch.find(receipt_subject(name), ReceiptState) is not None",
        "    return provider == KERNEL and batch.find(receipt_subject(name), ReceiptState) is not None",
    ),
    _one(
        "child_outlives_its_parent",
        "child",
        "decide/ending.py",
        "        if child.state in ENDED or waits_for_effect(child):\n",
        "        if child.state in (*ENDED, 'waiting', 'active') or waits_for_effect(child):\n",
    ),
    _one(
        "parent_never_hears_of_its_child",
        "child",
        "decide/ending.py",
        '        if parent.state == "waiting" and children_ended(batch, parent):\n',
        "        if parent.state in ENDED and children_ended(batch, parent):\n",
    ),
    Fault(
        "child_beside_its_parents_budget",
        "child",
        (
            Change(
                "decide/specs.py",
                "                accounts=(*parent.accounts, order),\n",
                "                accounts=(*parent.accounts[:-1], order),\n",
            ),
            Change(
                "evolve/plan.py", "body.accounts == (*parent.accounts, body.order)", "body.accounts != parent.accounts"
            ),
        ),
    ),
    _one(
        "children_of_children_without_end",
        "children",
        "decide/inside.py",
        '("the number of orders above a child", depth, limits.children_depth_max)',
        '("the number of orders above a child", 0, limits.children_depth_max)',
    ),
    _one(
        "one_child_of_two_waited_for",
        "children",
        "decide/ending.py",
        "    return wait is not None and bool(wait.orders) and all(",
        "    return wait is not None and bool(wait.orders) and any(",
    ),
    _one(
        "untold_end_said_to_need_a_person",
        "untold",
        "views.py",
        "    if not pending or _is_carried_on(orders, pending, state_of):\n",
        "    if not pending:\n",
    ),
    _one(
        "block_out_of_date_said_to_need_a_person",
        "currency",
        "views.py",
        "    return not _is_examined_again(waiting, state_of)\n",
        "    return True\n",
    ),
)


def planted(fault: Fault, folder: Path) -> None:
    """Put a copy of the core with the fault, and the search beside it, below `folder`."""
    for name in COPIED:
        source, target = PACKAGE / name, folder / "fencepost" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, target)
    for change in fault.changes:
        path = folder / "fencepost" / "core" / change.path
        text = path.read_text()
        if text.count(change.before) != 1:
            raise ValueError(f"{fault.name}: {change.path} has the text {text.count(change.before)} times")
        path.write_text(text.replace(change.before, change.after))
