"""What a draft must be before it becomes an order, on its own and under the budgets above it (W1, W15, W16, W18).

Whoever wrote a plan has checked it already; these checks stand here because a command may come from anyone, and what
is written down must be evaluable for ever. Each function returns the first refusal, None when there is none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from fencepost.core.amounts import DIMENSIONS, foreign_currency, is_dimension
from fencepost.core.commands import OrderDraft
from fencepost.core.decide.specs import WORK_KINDS
from fencepost.core.limits import Limits
from fencepost.core.planfile.bounds import CURRENCIES_MAX
from fencepost.core.planfile.patterns import Pattern, compile_pattern, covers
from fencepost.core.reasons import Refusal
from fencepost.core.records.common import RETRYABLE
from fencepost.core.shares import OWN_RULE, Shares

_PROGRAM = {"command/1": ((False, False), (False, True)), "python/1": ((True, False),)}
"""Work kind -> whether a callable and a command may be named together with it."""


def out_of_range(field: str, subject: str, needed: str) -> Refusal:
    return Refusal(code="out_of_range", field=field, detail={"subject": subject, "needed": needed})


def ceilings_refusal(ceilings: Mapping[str, int], field: str) -> Refusal | None:
    """Dimensions are registered ones, and somebody who may try at all may try once."""
    wrong = [dimension for dimension in sorted(ceilings) if not is_dimension(dimension)]
    if wrong:
        return out_of_range(field, f"the dimension {wrong[0]!r}", "a registered one")
    if len(ceilings) > len(DIMENSIONS) + CURRENCIES_MAX:
        # A plan's ceilings stand in the holds of all of its orders: one command would make records without end.
        return Refusal(
            code="too_large",
            field=field,
            detail={"subject": "the currencies of a budget", "bound": str(CURRENCIES_MAX)},
        )
    if ceilings.get("attempts", 1) < 1:
        return out_of_range(field, "attempts", "at least 1")
    return None


def draft_refusal(draft: OrderDraft, limits: Limits, field: str) -> Refusal | None:
    """Everything that can be told from one draft alone."""
    if draft.work_kind not in WORK_KINDS:
        detail = {"subject": draft.task, "executor": draft.work_kind}
        return Refusal(code="executor_unsupported", field=field, detail=detail)
    if (draft.python is not None, bool(draft.run)) not in _PROGRAM[draft.work_kind]:
        return out_of_range(field, f"the program of {draft.task}", f"what {draft.work_kind} runs, and nothing else")
    declared = [dimension for dimension in sorted(draft.per_attempt) if dimension in OWN_RULE]
    if declared:
        return out_of_range(field, f"per_attempt of {draft.task}", f"without {declared[0]}")
    if draft.attempt_time_us > limits.duration_max_us:
        return out_of_range(field, f"attempt_time of {draft.task}", f"at most {limits.duration_max_us} us")
    for group in draft.groups:
        if not group.members or not all(member.outcomes for member in group.members):
            return out_of_range(field, f"each group of {draft.task}", "one with members and outcomes")
    return (
        ceilings_refusal(draft.ceilings, field)
        or ceilings_refusal(draft.per_attempt, field)
        or _retry_refusal(draft, limits, field)
        or _files_refusal(draft, field)
    )


def _retry_refusal(draft: OrderDraft, limits: Limits, field: str) -> Refusal | None:
    retry = draft.retry
    if retry is None:
        return None
    if not retry.on or not set(retry.on) <= RETRYABLE:
        return out_of_range(field, f"retry.on of {draft.task}", f"some of {', '.join(sorted(RETRYABLE))}")
    if not retry.backoff_us <= retry.backoff_max_us <= limits.backoff_max_us:
        needed = f"from backoff to {limits.backoff_max_us} us"
        return out_of_range(field, f"backoff_max of {draft.task}", needed)
    return None


def _files_refusal(draft: OrderDraft, field: str) -> Refusal | None:
    """File patterns can be read, and acceptance looks at outputs only, since nothing else is collected."""
    handed = [text for source in draft.handed for text in source.files]
    for text in (*draft.outputs, *draft.accept.files, *draft.accept.schemas, *handed):
        if not isinstance(compile_pattern(text), Pattern):
            return out_of_range(field, f"the pattern {text!r} of {draft.task}", "a readable pattern")
    return outputs_refusal(draft.task, (*draft.accept.files, *sorted(draft.accept.schemas)), draft.outputs, field)


def outputs_refusal(task: str, wanted: Iterable[str], outputs: Sequence[str], field: str) -> Refusal | None:
    """Refuse files that lie outside the outputs that should contain them."""
    known = [pattern for pattern in map(compile_pattern, outputs) if isinstance(pattern, Pattern)]
    for text in wanted:
        pattern = compile_pattern(text)
        if text not in outputs and isinstance(pattern, Pattern) and not covers(known, pattern):
            return Refusal(code="incompatible_output", field=field, detail={"subject": task, "file": text})
    return None


def impossible(
    draft: OrderDraft, hold: Shares, above: Sequence[tuple[str, Mapping[str, int]]], field: str
) -> Refusal | None:
    """Refuse what could not start even if nothing else ran: a hold, or a ceiling, past a level above it."""
    for account, level in ((draft.task, draft.ceilings), *above):
        for dimension, amount in sorted(hold.least.items()):
            if amount > level.get(dimension, amount):
                detail = {"subject": draft.task, "dimension": dimension}
                return Refusal(code="impossible_budget", field=field, detail=detail)
        currency = foreign_currency(level, hold.amounts)
        if currency is not None:
            detail = {"account": account, "currency": currency}
            return Refusal(code="currency_not_budgeted", field=field, detail=detail)
    for _, level in above:
        for dimension, ceiling in sorted(draft.ceilings.items()):
            if ceiling > level.get(dimension, ceiling):
                detail = {"subject": draft.task, "dimension": dimension}
                return Refusal(code="impossible_budget", field=field, detail=detail)
    return None
