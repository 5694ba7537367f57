"""The canonical content of a plan, which is its identity beside its name.

Rules: content is the document with first values and without resolved files, so a plan keeps its digest when a
pinned file changes, when keys change places, and when it is written as JSON. A priority counts as it was
declared; what was raised follows from the rest. `params` stand as the text of their canonical form, so that
every other value has a type of its own and ten thousand orders are digested in one go.
"""

from __future__ import annotations

from typing import Final

import msgspec

from fencepost.core import canonical
from fencepost.core.ids import sha256_of
from fencepost.core.planfile.document import (
    Accept,
    FilePatterns,
    FromOrder,
    Group,
    PlanDocument,
    Retry,
    WorkItem,
)

CONTENT_VERSION: Final = 1


class InputContent(msgspec.Struct, frozen=True, kw_only=True):
    """`order` of None: files of the repository."""

    order: str | None
    patterns: tuple[str, ...]


class OrderContent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One order; the fields are those of `WorkItem`. A later field is absent where it says nothing, so that a plan
    without it keeps its digest."""

    name: str
    executor: str
    run: tuple[str, ...]
    may_fail: bool
    environment: tuple[str, ...]
    needs: tuple[Group, ...]
    inputs: tuple[InputContent, ...] | None
    outputs: tuple[str, ...]
    attempt_time_us: int
    budget: dict[str, int]
    per_attempt: dict[str, int]
    retry: Retry | None
    accept: Accept
    priority: str
    classification: str
    may: tuple[str, ...]
    effects: str
    params: str
    call: str = ""


class PlanContent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The whole plan; its canonical bytes are what the content digest covers."""

    version: int
    name: str
    objective: str
    deadline_us: int | None
    recovery: str
    budget: dict[str, int]
    work: tuple[OrderContent, ...]
    python: str = ""


def content_of(document: PlanDocument) -> PlanContent:
    """The content of a checked plan."""
    return PlanContent(
        version=CONTENT_VERSION,
        name=document.name,
        objective=document.objective,
        deadline_us=document.deadline_us,
        recovery=document.recovery,
        budget=document.budget,
        work=tuple(_order(item) for item in document.work),
        python=document.python,
    )


def content_digest(document: PlanDocument) -> str:
    """Raises `canonical.Undecodable` (`too_large`) past the size of one canonical document."""
    return sha256_of(canonical.encode_trusted(content_of(document)))


def _order(item: WorkItem) -> OrderContent:
    return OrderContent(
        name=item.name,
        executor=item.executor,
        run=item.run,
        may_fail=item.may_fail,
        environment=item.environment,
        needs=item.needs,
        inputs=None if item.inputs is None else tuple(_input(source) for source in item.inputs),
        outputs=item.outputs,
        attempt_time_us=item.attempt_time_us,
        budget=item.budget,
        per_attempt=item.per_attempt,
        retry=item.retry,
        accept=item.accept,
        priority=item.priority_declared,
        classification=item.classification,
        may=item.may,
        effects=item.effects,
        params=canonical.encode(item.params).decode("utf-8"),
        call=item.call,
    )


def _input(source: FilePatterns | FromOrder) -> InputContent:
    order = source.order if isinstance(source, FromOrder) else None
    return InputContent(order=order, patterns=source.patterns)
