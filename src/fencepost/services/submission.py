"""From a checked plan document to its submission: files chosen, pinned once, and named by digest.

Everything that an order reads of the source tree is pinned before the plan is placed: the files that its patterns
select, the files that its verifier is started with (an argument that is a path of the tree), and the schemas of its
acceptance. Nothing is written for a plan with a problem; a problem names the place in the plan that asked for the
file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from fencepost.core import canonical
from fencepost.core.commands import FromDraft, GroupDraft, MemberDraft, OrderDraft, SubmitPlan
from fencepost.core.ids import sha256_of
from fencepost.core.matching import pattern_of
from fencepost.core.planfile import (
    FilePatterns,
    FileTree,
    FromOrder,
    PlanDocument,
    PlanProblem,
    WorkItem,
    select,
)
from fencepost.core.reasons import Refusal
from fencepost.core.records.plan import Acceptance, PythonCall, Retry
from fencepost.core.state import NameState, PlanState, name_subject
from fencepost.kernel.kernel import Kernel
from fencepost.kernel.read import Look
from fencepost.kernel.receipts import Receipt
from fencepost.ports.artifacts import ArtifactStore, Classification
from fencepost.ports.errors import ContentTooLarge, PathRefused
from fencepost.ports.packs import ManifestStored, PackRefused, Packs, PackWritten, PathProblem
from fencepost.services.callables import Callee

SCHEMA_BYTES_MAX = 4 * 2**20
ATTEMPT_TIME_LEAST_US = 1_000_000
"""The shortest limit that an attempt gets whose `attempt_time` nobody wrote down."""

INTERPRETER = "python"  # provenance key under which a plan says how it names its interpreter

Submission = Literal["continue", "again", "new"]

_CODES = {"path_outside": "path_outside", "no_file": "no_match"}
_STEPS = {
    "path_outside": "name files inside the tree, or replace the link by what it points to",
    "no_match": "make the file readable, or leave it out of the patterns",
    "out_of_range": "leave the file out of the patterns, or let git ignore it",
}


class Selection(msgspec.Struct, frozen=True):
    """The paths that one order pins, in bytewise order, and those of its schemas."""

    paths: tuple[str, ...]
    schemas: tuple[str, ...]


class Pins(msgspec.Struct, frozen=True, kw_only=True):
    """What a plan's orders are bound to: a manifest for each, in definition order, and schema path -> digest.

    `callables` are those of the orders that have one, by their names.
    """

    manifests: tuple[ManifestStored, ...]
    schemas: Mapping[str, str]
    callables: Mapping[str, PythonCall] = {}


def selections(document: PlanDocument, tree: Sequence[str]) -> tuple[Selection, ...]:
    """What each order pins. The work is shared by orders with the same patterns."""
    files = FileTree(tree)
    every = tuple(select((pattern_of("**"),), files))
    known: dict[tuple[str, ...] | None, tuple[str, ...]] = {None: every}
    found = []
    for item in document.work:
        texts = _texts(item)
        if texts not in known:
            known[texts] = tuple(select([pattern_of(text) for text in texts or ()], files))
        paths = known[texts]
        extra = {word for word in item.accept.verify if word in files}.difference(paths)
        if extra:
            paths = tuple(sorted({*paths, *extra}, key=str.encode))
        found.append(Selection(paths, tuple(path for _, path in item.accept.schema)))
    return tuple(found)


def _texts(item: WorkItem) -> tuple[str, ...] | None:
    """Patterns of the source tree, None for every file."""
    if item.pins_every_file():
        return None
    return tuple(text for source in item.inputs or () if isinstance(source, FilePatterns) for text in source.patterns)


def every_path(chosen: Sequence[Selection]) -> tuple[str, ...]:
    """Each path of the source tree that the plan pins, once."""
    return tuple(sorted({path for each in chosen for path in (*each.paths, *each.schemas)}))


def plan_problems(
    document: PlanDocument, chosen: Sequence[Selection], found: Sequence[PathProblem]
) -> tuple[PlanProblem, ...]:
    """Problems of paths as problems of the plan, each at the first place that selects the path."""
    return tuple(_placed(document, chosen, problem) for problem in found)


def _placed(document: PlanDocument, chosen: Sequence[Selection], problem: PathProblem) -> PlanProblem:
    code = _CODES.get(problem.code, "out_of_range")
    at, name = "/work", None
    for item, selection in zip(document.work, chosen, strict=True):
        if problem.path in selection.paths or problem.path in selection.schemas:
            at, name = _place_of(item, problem.path), item.name
            break
    shown = f"{problem.path}: {problem.message}" if problem.path else problem.message
    return PlanProblem(code=code, message=shown, at=at, name=name, next=_STEPS[code])


def _place_of(item: WorkItem, path: str) -> str:
    base = f"/work/{item.position}"
    for place, source in enumerate(item.inputs or ()):
        if isinstance(source, FilePatterns) and any(pattern_of(text).matches(path) for text in source.patterns):
            return f"{base}/inputs/{place}"
    for text, schema in item.accept.schema:
        if schema == path:
            return f"{base}/accept/schema/{text.replace('~', '~0').replace('/', '~1')}"
    return f"{base}/inputs" if path not in item.accept.verify else f"{base}/accept/verify"


def pin(
    document: PlanDocument,
    chosen: Sequence[Selection],
    callees: Sequence[Callee | None] = (),
    *,
    root: Path,
    packs: Packs,
    artifacts: ArtifactStore,
    between: Callable[[], None] | None = None,
) -> Pins | tuple[PlanProblem, ...]:
    """Write one pack, one manifest for each different selection, and the schemas. Raises StorageError, and whatever
    `between` does, which is called between pieces of files.

    `callees` are those of the document's orders, in definition order; none are needed where no order has one.
    """
    written = packs.write(root, {path for each in chosen for path in each.paths}, between)
    if isinstance(written, PackRefused):
        return plan_problems(document, chosen, written.problems)
    moved = _moved(document, callees, written)
    if moved:
        return moved
    stored: dict[tuple[Classification, tuple[str, ...]], ManifestStored] = {}
    manifests = []
    schemas: dict[str, str] = {}
    with artifacts.batch() as sink:
        for item, each in zip(document.work, chosen, strict=True):
            key = (item.classification, each.paths)
            if key not in stored:
                stored[key] = packs.put_manifest(written, each.paths, classification=item.classification, sink=sink)
            manifests.append(stored[key])
            for path in each.schemas:
                try:
                    put = sink.put_file(root / path, classification=item.classification, bytes_max=SCHEMA_BYTES_MAX)
                except (PathRefused, ContentTooLarge) as error:
                    problem = PathProblem(code="not_regular", path=path, message=error.message)
                    return plan_problems(document, chosen, (problem,))
                schemas[path] = put.digest
    named = zip(document.work, callees, strict=bool(callees))
    callables = {item.name: callee.python for item, callee in named if callee is not None}
    return Pins(manifests=tuple(manifests), schemas=schemas, callables=callables)


def _moved(document: PlanDocument, callees: Sequence[Callee | None], written: PackWritten) -> tuple[PlanProblem, ...]:
    """Modules whose pinned bytes are not those that were read; a link is judged by whoever imports it."""
    pinned = {entry.path: entry.digest for entry in written.entries if entry.mode != "link"}
    return tuple(
        PlanProblem(
            code="module_unreadable",
            message=f"{callee.path} changed while it was read",
            at=f"/work/{item.position}/call",
            name=item.name,
            next="try again when nothing writes to it",
        )
        for item, callee in zip(document.work, callees, strict=False)
        if callee is not None and pinned.get(callee.path, callee.digest) != callee.digest
    )


def submit_command(
    document: PlanDocument,
    content: str,
    pins: Pins,
    *,
    mode: Submission,
    provenance: Mapping[str, str],
    predecessor: str,
) -> SubmitPlan:
    """The command that places a plan with its pinned inputs."""
    return SubmitPlan(
        name=document.name,
        objective=document.objective,
        content=content,
        orders=tuple(
            draft_of(item, pins, manifest) for item, manifest in zip(document.work, pins.manifests, strict=True)
        ),
        recovery=document.recovery,
        mode=mode,
        ceilings=document.budget,
        deadline_us=document.deadline_us,
        provenance={**provenance, INTERPRETER: document.python} if document.python else dict(provenance),
        predecessor=predecessor,
    )


def submission_key(name: str, content: str, predecessor: str) -> str:
    """The command key of a submission: two who submit the same at the same time make one plan."""
    return f"submit:{sha256_of('|'.join((name, content, predecessor)).encode())}"


def answered(kernel: Kernel, document: PlanDocument, content: str, key: str) -> Receipt | None:
    """What the submission of this plan under a key was answered, None for an unused key.

    Authority is asked again. A key of something else is refused as `operation_collision`.
    """
    question = SubmitPlan(name=document.name, objective="", content=content, orders=(), recovery="replace", mode="new")
    receipt = kernel.recall(kernel.request("human", question, key))
    if receipt is None or receipt.refusal is not None:
        return receipt
    if (receipt.result.get("name"), receipt.result.get("content")) == (document.name, content):
        return receipt
    refusal = Refusal(code="operation_collision", field="/key", detail={"subject": key})
    return Receipt(key=key, sequence=receipt.sequence, refusal=refusal, fresh=False)


def known_plan(look: Look, name: str, content: str = "") -> PlanState | None:
    """The plan that a name means: the open one of this content, else the newest open one, else the newest."""
    known = look.find(name_subject(name), NameState)
    return None if known is None else look.find(known.meant_by(content), PlanState)


def draft_of(item: WorkItem, pins: Pins, manifest: ManifestStored | None) -> OrderDraft:
    """An order as the kernel is asked for it. Without a manifest it has no files of its own."""
    accept = item.accept
    return OrderDraft(
        task=item.name,
        work_kind=f"{item.executor}/1",
        priority=item.priority,
        classification=item.classification,
        effects=item.effects,
        attempt_time_us=item.attempt_time_us,
        accept=Acceptance(
            exit_code=accept.exit_code,
            files=accept.files,
            schemas={text: pins.schemas[path] for text, path in accept.schema},
            verify=accept.verify,
        ),
        run=item.run,
        environment=item.environment,
        attempt_time_least_us=0 if item.attempt_time_declared else ATTEMPT_TIME_LEAST_US,
        manifest=None if manifest is None else manifest.digest,
        manifest_content=None if manifest is None else manifest.content_digest,
        manifest_files=0 if manifest is None else manifest.files,
        manifest_bytes=0 if manifest is None else manifest.bytes,
        handed=tuple(
            FromDraft(task=source.order, files=source.patterns)
            for source in item.inputs or ()
            if isinstance(source, FromOrder)
        ),
        outputs=item.outputs,
        groups=tuple(
            GroupDraft(
                kind=group.kind,
                members=tuple(
                    MemberDraft(task=member.name, outcomes=member.outcomes)  # type: ignore[arg-type]  # checked words
                    for member in group.members
                ),
            )
            for group in item.needs
        ),
        ceilings=item.budget,
        per_attempt=item.per_attempt_declared,
        retry=None
        if item.retry is None
        else Retry(
            on=item.retry.on,  # type: ignore[arg-type]  # a checked plan names registered classes
            backoff_us=item.retry.backoff_us,
            backoff_max_us=item.retry.backoff_max_us,
        ),
        may=item.may,
        may_fail=item.may_fail,
        params=canonical.encode(item.params).decode() if item.params else "",
        python=pins.callables.get(item.name),
    )
