"""What an attempt starts from: its order's spec, the files that it gets, and what earlier attempts have left."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from fencepost.core.decide.dispatch import input_set as set_of_inputs
from fencepost.core.matching import handed_files
from fencepost.core.records.common import ArtifactRef
from fencepost.core.records.plan import PlanRevision, WorkOrderSpec
from fencepost.core.state import AttemptState, PlanState
from fencepost.kernel.read import Look
from fencepost.ports.errors import FencepostError
from fencepost.ports.workspace import HandedFile, Inputs
from fencepost.services.payloads import BLOB

REPOSITORY: Final = "repository"
"""Provenance key under which a plan says where it was submitted from."""


@dataclass(frozen=True, kw_only=True)
class Task:
    """What an attempt needs to know of its order."""

    spec: WorkOrderSpec
    inputs: str
    handed: tuple[ArtifactRef, ...]
    repository: str
    time_limit_us: int  # as held: what is left of a ceiling may be less than the spec's
    earlier: tuple[AttemptState, ...] = ()
    checkpoint: str | None = None  # payload that its program goes on from


def task_of(look: Look, reservation: Mapping[str, Any]) -> Task:
    """The task of a reservation, as the state has it now."""
    order = look.order(reservation["order"])
    if order is None:
        raise FencepostError(f"{reservation['order']} was reserved and is not there")
    spec = look.spec(order)
    handed = handed_files(spec, partial(_applied_files, look))
    earlier = look.attempts(order.order) if reservation["fence"] > 1 else []
    return Task(
        spec=spec,
        inputs=set_of_inputs(spec.inputs.digest, handed),
        handed=handed,
        repository=_repository(look, spec),
        time_limit_us=reservation["time_limit_us"],
        earlier=tuple(attempt for attempt in earlier if attempt.attempt != reservation["attempt"]),
        checkpoint=saved.payload if (saved := order.checkpoints.get(BLOB)) is not None else None,
    )


def layout_of(spec: WorkOrderSpec, handed: tuple[ArtifactRef, ...]) -> Inputs:
    return Inputs(
        manifests=() if spec.inputs.manifest is None else (spec.inputs.manifest,),
        handed=tuple(
            HandedFile(path=ref.path, digest=ref.digest, mode="0755" if ref.mode & 0o100 else "0644") for ref in handed
        ),
    )


def _applied_files(look: Look, name: str) -> tuple[ArtifactRef, ...]:
    order = look.order(name)
    facts = look.facts(order.result_seq) if order is not None and order.state == "applied" else None
    return () if facts is None else facts.artifacts


def _repository(look: Look, spec: WorkOrderSpec) -> str:
    if spec.plan is None:
        return ""
    plan = look.find(spec.plan, PlanState)
    if plan is None:
        raise FencepostError(f"{spec.plan} is named by an order and is not there")
    return look.body(plan.record_seq, PlanRevision).provenance.get(REPOSITORY, "")
