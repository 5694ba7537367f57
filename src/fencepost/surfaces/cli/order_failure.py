"""Why a result was not accepted, what a waiting order waits for, why a person cancelled: what a reason leaves open."""

from __future__ import annotations

from fencepost.core.instant import format_duration
from fencepost.core.machines import ENDED
from fencepost.core.matching import matches
from fencepost.core.records.attempt import ResultApplication, ResultFacts, VerificationReceipt
from fencepost.core.records.plan import PlanCancelRequested, Wait, WorkOrderMoved
from fencepost.core.state import AttemptState, OrderState, PlanState
from fencepost.kernel.read import Look
from fencepost.surfaces.cli.accounts import title_of
from fencepost.surfaces.cli.funds import Lack, funding_step, lacks, lacks_text, retry_left_out
from fencepost.surfaces.cli.words import line_by_line, one_line, state_text

LINES_MAX = 8
FILES_SHOWN_MAX = 5
CHILDREN_SHOWN_MAX = 5
_LIMIT = "attempt_time is pinned with the plan: a retry has the same limit"


def failure_code(look: Look, order: OrderState) -> str:
    """The reason of the last judgement: that of a failed order, and of one that waits for its backoff."""
    if order.state == "retry_wait" and order.application_seq:
        return look.body(order.application_seq, ResultApplication).reason
    return order.reason


def failure_lines(look: Look, order: OrderState) -> list[str]:
    """What is known of the last result that was judged and not accepted; nothing for one that was."""
    if order.state not in ("failed", "retry_wait") or not order.result_seq:
        return []
    facts = look.facts(order.result_seq)
    if facts is None:
        return []
    code = failure_code(look, order)
    told = facts.message.splitlines() if code != "timed_out" else []
    lines = [one_line(line) for line in told if line.strip()]
    if code == "timed_out":
        limit = format_duration(order.terms.attempt_time_us)
        lines += [f"it was stopped after {limit}, its attempt_time", _LIMIT]
    elif code == "outputs_missing":
        lines += _missing(order, facts)
    elif code == "schema_failed":
        receipts = [each for each in facts.validation if each.check == "schema" and not each.passed]
        lines += [one_line(each.message or f"{each.subject} was refused") for each in receipts]
    elif code in ("verifier_failed", "verifier_error"):
        lines += _verifier(look, order)
    return lines[:LINES_MAX]


def left_out_lines(look: Look, order: OrderState) -> list[str]:
    """Why a retry that the plan promised was left out; nothing where none was."""
    found = retry_left_out(look, order)
    return [f"no further attempt: {lacks_text(found)}"] if found else []


def note_of(look: Look, order: OrderState) -> str:
    """Why a person has cancelled the order, or its whole plan, in the words that were given with it; "" for none."""
    if order.note_seq:
        return look.body(order.note_seq, WorkOrderMoved).note
    plan = look.find(order.plan, PlanState) if order.plan is not None and order.reason == "plan_cancelled" else None
    return "" if plan is None or not plan.cancel_seq else look.body(plan.cancel_seq, PlanCancelRequested).note


def note_lines(look: Look, order: OrderState) -> list[str]:
    """The same for people; nothing where nothing was said."""
    note = note_of(look, order)
    first, *rest = line_by_line(note)
    return [f"note: {first}", *rest] if note.strip() else []


def wait_lines(look: Look, order: OrderState) -> list[str]:
    """What a waiting order asks, and which children it waits for; nothing for one that waits for a time alone."""
    wait = order.wait
    if wait is None:
        return []
    asked = question_lines(wait)
    lines = [f"asks {asked[0]}", *asked[1:]] if asked else []
    missing = lacks(look, order) if asked else []
    lines += [f"an answer would end it, since no attempt can follow: {lacks_text(missing)}"] if missing else []
    children = open_children(look, wait)
    for child in children[:CHILDREN_SHOWN_MAX]:
        lines.append(f"waits for {title_of(look, child)}, which is {state_text(child.state, child.reason)}")
    if len(children) > CHILDREN_SHOWN_MAX:
        lines.append(f"and for {len(children) - CHILDREN_SHOWN_MAX} more")
    return lines


def question_lines(wait: Wait) -> list[str]:
    """The question that is asked, with its prompt, which may have several lines; nothing where none is."""
    if not wait.question or not wait.prompt.strip():
        return [wait.question] if wait.question else []
    first, *rest = line_by_line(wait.prompt)
    return [f"{wait.question}: {first}", *rest]


def wait_step(look: Look, order: OrderState) -> str | None:
    """What would unblock a waiting order, each way as a command that can be typed; None for one that waits for a time
    alone, or for nothing any more.

    It goes on as soon as one of the things holds that it named, whichever of them its reason speaks of.
    """
    wait = order.wait
    if wait is None:
        return None
    steps = [answer_step(look, order, lacks(look, order))] if wait.question else []
    steps += [f"fencepost order why {title_of(look, child)}" for child in open_children(look, wait)[:1]]
    if steps and wait.until_us:
        steps.append("wait until it goes on")
    return ", or ".join(steps) or None


def answer_step(look: Look, order: OrderState, missing: list[Lack]) -> str:
    """How a question is answered so that the order can go on with the answer: what it lacks for that is set first."""
    step = f"fencepost order answer {title_of(look, order)} VALUE"
    return f"{funding_step(missing)}, then {step}" if missing else step


def open_children(look: Look, wait: Wait) -> list[OrderState]:
    """The children that are waited for and have not ended, in the order in which they were submitted."""
    found = look.many(wait.orders)
    return [child for name in wait.orders if (child := found[name]).state not in ENDED]


def _missing(order: OrderState, facts: ResultFacts) -> list[str]:
    paths = [artifact.path for artifact in facts.artifacts]
    lines = [
        f"no output is {one_line(text)}, which accept.files asks for"
        for text in order.terms.accept.files
        if not any(matches(text, path) for path in paths)
    ]
    shown = ", ".join(one_line(path) for path in paths[:FILES_SHOWN_MAX])
    more = f" and {len(paths) - FILES_SHOWN_MAX} more" if len(paths) > FILES_SHOWN_MAX else ""
    outputs = ", ".join(one_line(text) for text in order.terms.outputs) or "nothing"
    return [*lines, f"outputs ask for {outputs}; collected: {shown or 'nothing'}{more}"]


def _verifier(look: Look, order: OrderState) -> list[str]:
    attempt = look.find(order.attempt, AttemptState) if order.attempt is not None else None
    if attempt is None or not attempt.verification_seq:
        return []
    receipt = look.body(attempt.verification_seq, VerificationReceipt)
    lines = [f"verifier: {one_line(receipt.message)}"] if receipt.message else []
    if receipt.exit_code is not None:
        lines.append(f"the verifier ended with exit code {receipt.exit_code}")
    if receipt.signal is not None:
        lines.append(f"the verifier was ended by signal {receipt.signal}")
    return lines
