"""From the end of a command to the facts of a result: outputs, logs, schema checks and usage, all by digest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from fencepost.core.canonical import sanitize
from fencepost.core.matching import matches, matches_any
from fencepost.core.records.attempt import ResultFacts, ValidationReceipt
from fencepost.core.records.common import ArtifactRef, Classification, FailureClass, LogRef, StoppedFor, Usage
from fencepost.core.records.plan import Acceptance, WorkOrderSpec
from fencepost.ports.artifacts import ArtifactMissing
from fencepost.ports.checks import Check
from fencepost.ports.errors import FencepostError, StorageError
from fencepost.ports.executor import Ended, LogUnreadable
from fencepost.ports.workspace import Collected, Output, OutputProblem, Workspace
from fencepost.services.means import Means
from fencepost.services.outcomes import Outcome

SCHEMA_BYTES_MAX = 16 * 2**20  # of a schema, and of a document that is checked against one
PROBLEMS_SHOWN_MAX = 5
COLLECT_US_MAX = 600_000_000
LOOK_FILES = 64  # between looks at the clock
HIDDEN = "*" * 64
"""What stands where somebody has written the token of an attempt."""


def without(token: str, text: str) -> str:
    """Words of an attempt, or about its files, as they may be recorded."""
    return text.replace(token, HIDDEN) if token else text


def log_ref(
    means: Means, path: Path, classification: Classification, token: str = "", *, written_bytes: int = 0
) -> tuple[LogRef | None, str]:
    """Keep one stream of output as an artifact; None when there is none. The text says why one cannot be read.

    The attempt's `token` is not kept, where its program has printed it. `written_bytes` is what its supervisor has seen
    go by, 0 where nobody tells: a full disk takes less, and the stream says so then, also where it took nothing.
    """
    try:
        total, kept = means.read_log(path)
    except LogUnreadable as error:
        return None, f"{path.name} was not kept: {error.message}"
    total = max(total, written_bytes)
    if not total:
        return None, ""
    if token:
        kept = kept.replace(token.encode(), HIDDEN.encode())
    stored = means.artifacts.put_bytes(kept, classification=classification)
    return LogRef(digest=stored.digest, bytes_total=total, bytes_kept=len(kept)), ""


def printed(
    means: Means, spec: WorkOrderSpec, space: Workspace | None, token: str, ended: Ended | None
) -> tuple[LogRef | None, LogRef | None, list[str]]:
    """What a stopped program printed, as far as that can be kept, and why something cannot: no stop waits for it."""
    refs: list[LogRef | None] = []
    unkept: list[str] = []
    for stream in ("stdout", "stderr"):
        ref, problem = None, ""
        written_bytes = 0 if ended is None else (ended.stdout if stream == "stdout" else ended.stderr).bytes_total
        try:
            if space is not None:
                path = space.logs / stream
                ref, problem = log_ref(means, path, spec.classification, token, written_bytes=written_bytes)
        except StorageError as error:
            problem = f"{stream} was not kept: {error.message}"
        refs.append(ref)
        unkept += [problem] if problem else []
    return refs[0], refs[1], unkept


def stopped_for(lost: str, ended: Ended | None) -> tuple[StoppedFor, str]:
    """Why its own side ended an attempt, and what its supervisor saw of that, for whoever looks closely.

    `lost` says why the lease was, "" for a lease that holds; without `ended` nothing had started.
    """
    if lost or (ended is not None and ended.reason == "lease_lost"):
        return "lease_expired", lost or "lease_lost"
    if ended is not None and ended.reason == "keeper_lost":
        return "keeper_lost", ended.message
    return "drained", "" if ended is None or ended.reason == "stopped" else ended.reason


def artifact_refs(outputs: Sequence[Output]) -> tuple[ArtifactRef, ...]:
    return tuple(
        ArtifactRef(path=output.path, digest=output.digest, bytes=output.bytes, mode=int(output.mode, 8))
        for output in outputs
    )


def time_used(attempt: str, duration_us: int) -> tuple[Usage, ...]:
    """The supervisor's own receipt: what it measured. Everything else a command spends passes the kernel.

    None is a receipt too: it ends a hold that waits for one.
    """
    return (Usage(receipt=f"{attempt}:time", provider="kernel", amounts={"time_us": max(duration_us, 0)}),)


def schema_receipts(
    means: Means, accept: Acceptance, outputs: Sequence[Output], must_stop: Callable[[], bool], token: str = ""
) -> tuple[ValidationReceipt, ...] | None:
    """Check every output that a schema is asked for; a schema that no output falls under has not passed. None where
    that was stopped."""
    if not accept.schemas:
        return ()
    receipts = []
    with means.schema_checks(must_stop) as check:
        for text, digest in sorted(accept.schemas.items()):
            chosen = [output for output in outputs if matches(text, output.path)]
            problems: list[str] | None = [] if chosen else [f"no output matches {text}"]
            try:
                problems = _schema_problems(means, digest, chosen, check) if chosen else problems
            except FencepostError as error:
                if isinstance(error, StorageError) and not isinstance(error, ArtifactMissing):
                    raise
                problems = [f"{text}: {error.message}"]
            if problems is None:
                return None
            message = "; ".join(problems[:PROBLEMS_SHOWN_MAX])
            receipts.append(
                ValidationReceipt(
                    check="schema",
                    subject=text,
                    passed=not problems,
                    message=sanitize(without(token, message), means.kernel.limits.text_bytes_max),
                )
            )
    return tuple(receipts)


def _schema_problems(means: Means, digest: str, chosen: Sequence[Output], check: Check) -> list[str] | None:
    schema = means.artifacts.read(digest, SCHEMA_BYTES_MAX)
    problems = []
    for output in chosen:
        document = means.artifacts.read(output.digest, SCHEMA_BYTES_MAX)
        found = check(document, schema)
        if found is None:
            return None
        problems += [f"{output.path}: {problem}" for problem in found]
    return problems


def failed(
    spec: WorkOrderSpec, input_set: str, failure: FailureClass, code: str, message: str, text_bytes_max: int
) -> ResultFacts:
    """Facts of an attempt that ended before its command could."""
    return ResultFacts(
        outcome="failed",
        input_set=input_set,
        output_kind=spec.output_kind,
        duration_us=0,
        classification=spec.classification,
        failure=failure,
        message_code=code,
        message=sanitize(message, text_bytes_max),
    )


def facts_of(
    means: Means,
    spec: WorkOrderSpec,
    attempt: str,
    input_set: str,
    space: Workspace,
    ended: Ended,
    told: Outcome | None = None,
    *,
    must_stop: Callable[[], bool],
    token: str = "",
) -> ResultFacts | None:
    """Collect what a command left, whatever its exit code, and say what happened. Claims nothing. None where this
    `must_stop` before its outputs are checked.

    `told` is what a callable's own process said came of it, `token` what no word and no name of it is to hold.
    """
    classification = spec.classification
    try:
        collected = means.workspaces.collect(space, _declared(means, spec, must_stop), classification=classification)
    except _Stopped:
        return None
    except _TooSlow:
        message = f"its workspace holds so much that {COLLECT_US_MAX // 1_000_000}s did not do to look through it"
        problem = OutputProblem(code="too_many", path="", message=message)
        collected = Collected(outputs=(), problems=(problem,))
    outputs = [output for output in collected.outputs if not (token and token in output.path)]
    failure, code, message = _failure(spec, ended, collected.problems, told)
    if not failure and told is not None:
        failure, code, message = _missing(told.files, outputs)
    if not failure and len(outputs) < len(collected.outputs):
        failure, code, message = "validation", "outputs_refused", "an output is named by the token of its attempt"
    validation = () if failure else schema_receipts(means, spec.accept, outputs, must_stop, token)
    if validation is None:
        return None
    stdout, unread = log_ref(
        means, space.logs / "stdout", classification, token, written_bytes=ended.stdout.bytes_total
    )
    stderr, unread_too = log_ref(
        means, space.logs / "stderr", classification, token, written_bytes=ended.stderr.bytes_total
    )
    message = "; ".join(part for part in (message, unread, unread_too) if part)
    reading = means.reading()
    return ResultFacts(
        outcome="failed" if failure else "succeeded",
        input_set=input_set,
        output_kind=spec.output_kind,
        duration_us=ended.duration_us,
        classification=classification,
        exit_code=ended.exit_code,
        signal=ended.signal,
        failure=failure,
        message_code=code,
        message=sanitize(without(token, message), means.kernel.limits.text_bytes_max),
        artifacts=artifact_refs(outputs),
        stdout=stdout,
        stderr=stderr,
        validation=validation,
        usage=time_used(attempt, ended.duration_us),
        tree_empty=ended.tree_empty,
        completed_us=reading.utc_us,
    )


class _Stopped(Exception):
    """The worker does not want to know any more what an attempt has left."""


class _TooSlow(Exception):
    """What an attempt has left takes too long to look through."""


def _declared(means: Means, spec: WorkOrderSpec, must_stop: Callable[[], bool]) -> Callable[[str], bool]:
    """Whether a path is an output. Files and patterns can be so many, and paths so deep, that asking takes hours: it is
    asked for no longer than `COLLECT_US_MAX`, and no longer than anybody wants to know. Raises _Stopped, _TooSlow."""
    until_us = means.reading().tick_us + COLLECT_US_MAX
    asked = 0

    def is_declared(path: str) -> bool:
        nonlocal asked
        asked += 1
        if asked % LOOK_FILES == 0:
            if must_stop():
                raise _Stopped
            if means.reading().tick_us > until_us:
                raise _TooSlow
        return matches_any(spec.outputs, path)

    return is_declared


def _missing(files: Sequence[str], outputs: Sequence[Output]) -> tuple[FailureClass | None, str, str]:
    """Files that a success names and nobody collected."""
    kept = {output.path for output in outputs}
    missing = [name for name in files if name not in kept]
    if not missing:
        return None, "", ""
    shown = ", ".join(missing[:PROBLEMS_SHOWN_MAX])
    return "validation", "outputs_missing", f"named by the result and not within the order's outputs: {shown}"


def _failure(
    spec: WorkOrderSpec, ended: Ended, problems: Sequence[OutputProblem], told: Outcome | None
) -> tuple[FailureClass | None, str, str]:
    """(failure class, reason code, message) of an end; the class is None when nothing speaks against it."""
    if ended.reason == "spawn_failed":
        return "deterministic_input", "spawn_failed", ended.message
    if ended.reason == "not_started":
        return "executor", "executor_failed", ended.message
    if ended.reason == "timeout":
        return "executor", "timed_out", ended.message or "the attempt passed its time limit"
    if not ended.tree_empty:
        return "terminal", "containment_lost", ended.message
    if ended.reason == "keeper_lost":
        return "executor", "executor_failed", ended.message
    if ended.reason != "exited":
        return "executor", "stopped_on_order", ended.message or f"the attempt was stopped ({ended.reason})"
    if ended.signal is not None:
        return "executor", "killed_by_signal", f"ended by signal {ended.signal}"
    claimed = None if told is None else told.failed_as()
    if claimed is not None:
        return claimed
    if spec.python is not None and told is None and ended.exit_code == 0:
        # Whoever leaves by the back door (os._exit, in whatever thread) has claimed nothing.
        return "executor", "callable_raised", "its process ended by itself: the callable neither returned nor raised"
    if ended.exit_code != spec.accept.exit_code:
        return "executor", "exit_code_unexpected", f"exit code {ended.exit_code}, not {spec.accept.exit_code}"
    if problems:
        shown = "; ".join(f"{problem.path or 'outputs'}: {problem.message}" for problem in problems)
        return "validation", "outputs_refused", shown
    return None, "", ""
