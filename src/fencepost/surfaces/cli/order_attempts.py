"""What an order's attempts did, for lists and for `order show`: how many were its own, why each ended, its steps."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from fencepost.core.limits import FIRST_VALUES
from fencepost.core.records.attempt import AttemptResult
from fencepost.core.state import AttemptState, OrderState
from fencepost.core.views import attempt_document
from fencepost.kernel.read import Look
from fencepost.ports.artifacts import ArtifactStore
from fencepost.ports.errors import FencepostError
from fencepost.surfaces.cli.words import count, instant, line_by_line, one_line, state_text

STEPS_KIND = "steps/1"
PAYLOADS_READ_MAX = 200  # of a chain of recorded steps; each holds up to some hundred


def tries_text(look: Look, order: OrderState) -> str:
    """How many attempts of its own were charged; those of the orders that it submitted are theirs. "-" for none."""
    charged = order.account.charged.get("attempts", 0)
    children = look.many(list(order.children.values())).values() if order.children else ()
    own = charged - sum(child.account.charged.get("attempts", 0) for child in children)
    return str(own) if own > 0 else "-"


def made_document(look: Look, attempt: AttemptState) -> dict[str, Any]:
    """One attempt, with what its result said of it."""
    message = look.body(attempt.result_seq, AttemptResult).facts.message if attempt.result_seq else ""
    return {**attempt_document(attempt), "detail": message or None}


def made_rows(made: Mapping[str, Any]) -> list[tuple[str, str]]:
    """One attempt for people: when it began, how it ended and why; the last note of one that is not over."""
    state = state_text(made["state"], made["reason"])
    when = instant(made["activated_us"] or made["reserved_us"])
    first, *rest = line_by_line(made["detail"], lines_max=2) if made["detail"] else [""]
    rows = [("tries", f"attempt {made['ordinal']}, {when}: {state}{f': {first}' if first else ''}")]
    rows += [("tries", f"  {line}") for line in rest]
    if made["note"] and made["ended_us"] is None:
        heard = f", heard {instant(made['heard_us'])}" if made["heard_us"] else ""
        first, *rest = line_by_line(made["note"], lines_max=2)
        rows += [("said", f"{first}{heard}"), *(("said", line) for line in rest)]
    return rows


def steps_document(artifacts: ArtifactStore, order: OrderState) -> dict[str, Any] | None:
    """How many steps a callable has recorded, and the last one's name; None where it recorded none.

    `whole` is whether all of them were counted: a payload that cannot be read, or the bound, leaves earlier ones out.
    """
    saved = order.checkpoints.get(STEPS_KIND)
    if saved is None:
        return None
    names: set[str] = set()
    last: str | None = None
    wanted: str | None = saved.payload
    for _ in range(PAYLOADS_READ_MAX):
        if wanted is None:
            break
        try:
            payload = json.loads(artifacts.read(wanted, FIRST_VALUES.checkpoint_bytes_max))
            steps = [str(step["name"]) for step in payload["steps"]]
            base = payload["base"]
        except (FencepostError, ValueError, KeyError, TypeError):
            break  # `order show` tells what can be told; doctor and the next attempt say what is damaged
        if last is None and steps:
            last = steps[-1]
        names.update(steps)
        wanted = None if base is None else str(base)
    return {"count": len(names), "last": last, "whole": wanted is None}


def steps_rows(document: Mapping[str, Any] | None) -> list[tuple[str, str]]:
    """The recorded steps for people."""
    if document is None:
        return []
    least = "" if document["whole"] else "at least "
    last = f", the last one {one_line(document['last'])}" if document["last"] is not None else ""
    return [("steps", f"{least}{count(document['count'], 'recorded step')}{last}")]
