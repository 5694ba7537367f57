"""The one registry of reason codes: what a code means, what to do next, and how each surface says it.

Three groups share it. *Waits* are shown by nonterminal subjects (W13). *Ends* explain a terminal state. *Refusals*
answer commands: values in order of precedence, each transient (the same command may succeed later) or final, each
naming a field or a cause. A durable refusal is a record as well. `docs/REASONS.md` is generated from here.

`sentence` and `next_step` may name fields of a refusal's `detail` in braces.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

import msgspec

from fencepost.core.reasons_of_parts import PARTS

Sort = Literal["wait", "end", "refusal", "plan", "failure"]

EXIT_WELL = 0
EXIT_UNEXPECTED = 1
EXIT_INPUT = 2
EXIT_NOT_FOUND = 3
EXIT_DENIED = 4
EXIT_CONFLICT = 5
EXIT_TIMEOUT = 6
EXIT_NOT_APPLIED = 7
EXIT_INTEGRITY = 8
EXIT_PERSON = 9

EXIT_MEANINGS: Mapping[int, str] = MappingProxyType(
    {
        EXIT_WELL: "well",
        EXIT_UNEXPECTED: "unexpected failure, storage trouble included",
        EXIT_INPUT: "usage or invalid input",
        EXIT_NOT_FOUND: "not found",
        EXIT_DENIED: "denied",
        EXIT_CONFLICT: "conflict or stale",
        EXIT_TIMEOUT: "waited too long",
        EXIT_NOT_APPLIED: "ended, and an order that may not fail is not applied",
        EXIT_INTEGRITY: "journal integrity",
        EXIT_PERSON: "waiting for a person",
    }
)
"""What each exit code of the command line says."""

_HTTP = {
    EXIT_WELL: 200,
    EXIT_UNEXPECTED: 500,
    EXIT_INPUT: 422,
    EXIT_NOT_FOUND: 404,
    EXIT_DENIED: 403,
    EXIT_CONFLICT: 409,
    EXIT_TIMEOUT: 504,
    EXIT_NOT_APPLIED: 200,
    EXIT_INTEGRITY: 500,
    EXIT_PERSON: 409,
}


class Reason(msgspec.Struct, frozen=True, kw_only=True):
    """One row. `transient` and `durable` matter for refusals only."""

    code: str
    sort: Sort
    sentence: str
    next_step: str
    exit_code: int
    transient: bool = False
    durable: bool = False

    @property
    def http_status(self) -> int:
        return _HTTP[self.exit_code]


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """Why a command changed nothing. `detail` fills the sentence; `field` is a JSON pointer into the command."""

    code: str
    field: str = ""
    detail: dict[str, str] = {}

    @property
    def reason(self) -> Reason:
        return REASONS[self.code]

    @property
    def message(self) -> str:
        return fill(self.reason.sentence, self.detail)

    @property
    def next_step(self) -> str:
        return fill(self.reason.next_step, self.detail)


class _Blank(dict[str, str]):
    def __missing__(self, key: str) -> str:
        return "it"


def fill(text: str, detail: Mapping[str, str]) -> str:
    """Put the details into a sentence; a name that is not given reads as `it`."""
    return text.format_map(_Blank(detail))


def _wait(code: str, sentence: str, next_step: str, exit_code: int = EXIT_WELL) -> Reason:
    return Reason(code=code, sort="wait", sentence=sentence, next_step=next_step, exit_code=exit_code)


def _end(code: str, sentence: str, next_step: str, exit_code: int = EXIT_NOT_APPLIED) -> Reason:
    return Reason(code=code, sort="end", sentence=sentence, next_step=next_step, exit_code=exit_code)


def _failure(code: str, sentence: str, next_step: str) -> Reason:
    return Reason(code=code, sort="failure", sentence=sentence, next_step=next_step, exit_code=EXIT_NOT_APPLIED)


def _refusal(
    code: str,
    exit_code: int,
    sentence: str,
    next_step: str,
    *,
    transient: bool = False,
    durable: bool = False,
) -> Reason:
    return Reason(
        code=code,
        sort="refusal",
        sentence=sentence,
        next_step=next_step,
        exit_code=exit_code,
        transient=transient,
        durable=durable,
    )


def _plan(code: str, sentence: str, next_step: str) -> Reason:
    return Reason(code=code, sort="plan", sentence=sentence, next_step=next_step, exit_code=EXIT_INPUT)


_RUN = "fencepost run PLAN"
CLOCK_STEP = (
    "set the host's clock right, then fencepost run PLAN --home DIR, with DIR a new home; nothing of this one is lost"
)
_WAITS = (
    _wait("just_submitted", "It has been submitted and is not placed yet.", "nothing: it moves by itself"),
    _wait(
        "waiting_for_dependencies",
        "Orders that it needs have not ended yet.",
        "fencepost order graph",
    ),
    _wait(
        "dependency_undecided",
        "An order that it needs waits for a person, so the verdict is open.",
        "fencepost order graph",
    ),
    _wait("policy_denied", "The constitution in force does not permit it.", "a new constitution version"),
    _wait(
        "budget_held",
        "Other attempts hold the budget that it needs; it is tried again when some comes free.",
        "wait, or raise the ceiling: fencepost budget set",
    ),
    _wait(
        "currency_not_budgeted",
        "A level above it budgets money, and not in a currency that it needs or that has been charged there.",
        "name a ceiling in that currency: fencepost budget set",
        EXIT_PERSON,
    ),
    _wait("waiting_for_worker", "It may run; no worker has taken it yet.", f"{_RUN}, or fencepost worker start"),
    _wait(
        "lease_expired",
        "Its worker's lease ended without a report; it may run again.",
        "fencepost worker start",
    ),
    _wait(
        "holder_gone",
        "Its worker was proved gone with everything it had started; it may run again.",
        f"{_RUN}, or fencepost worker start",
    ),
    _wait(
        "keeper_lost",
        "The process that watched over its program was lost; nothing of that runs any more, and it may run again.",
        f"{_RUN}, or fencepost worker start",
    ),
    _wait(
        "drained",
        "Its worker was told to stop and stopped it cleanly; no attempt was charged.",
        f"{_RUN}, or fencepost worker start",
    ),
    _wait("reservation_expired", "A worker reserved it and did not activate in time.", "fencepost worker start"),
    _wait("reservation_released", "A worker gave its reservation back unused.", "fencepost worker start"),
    _wait("budget_freed", "Budget came free; it may run.", f"{_RUN}, or fencepost worker start"),
    _wait("backoff_over", "Its backoff has ended; it may run again.", f"{_RUN}, or fencepost worker start"),
    _wait("retry_requested", "A retry was asked for; it may run.", f"{_RUN}, or fencepost worker start"),
    _wait(
        "containment_lost",
        "The end of an earlier attempt's processes could not be confirmed.",
        "stop these processes, which are named by fencepost doctor",
    ),
    _wait(
        "waiting_for_activation",
        "A worker has reserved it and prepares to start.",
        "nothing: seconds at most",
    ),
    _wait("waiting_for_start", "Its lease has begun; its program is being started.", "nothing: seconds at most"),
    _wait("attempt_running", "An attempt is running.", "fencepost order log NAME --follow"),
    _wait("cancel_requested", "A cancel was accepted and is being carried out.", "nothing: it moves by itself"),
    _wait(
        "effect_unresolved",
        "An outside effect may have happened and is not resolved.",
        "fencepost order show NAME",
        EXIT_PERSON,
    ),
    _wait(
        "waiting_for_verification",
        "Its result was reported; its verifier has not spoken yet.",
        f"{_RUN}, or fencepost worker start",
    ),
    _wait(
        "waiting_for_reduction",
        "Its result was reported; it has not been applied yet.",
        f"{_RUN}, or fencepost worker start",
    ),
    _wait("backoff", "It failed in a way that may pass and waits for its backoff.", "fencepost order retry NAME"),
    _wait(
        "waiting_for_answer",
        "It asks a question that a person has to answer.",
        "fencepost order answer NAME VALUE",
        EXIT_PERSON,
    ),
    _wait(
        "waiting_for_answer_or_time",
        "It asks a question, and goes on by itself when the time that it gave is over.",
        "fencepost order answer NAME VALUE, or wait until it goes on",
    ),
    _wait(
        "waiting_for_children",
        "It waits for the orders that it has submitted itself.",
        "fencepost order show NAME",
    ),
    _wait("waiting_for_time", "It waits until a time that it named.", "nothing: it goes on by itself"),
    _wait("answered", "Its question is answered; it may go on.", f"{_RUN}, or fencepost worker start"),
    _wait("children_ended", "Its children have ended; it may go on.", f"{_RUN}, or fencepost worker start"),
    _wait("time_passed", "The time that it waited for is over; it may go on.", f"{_RUN}, or fencepost worker start"),
    _wait(
        "results_differ",
        "Two different results were reported for one attempt; a person must say which counts.",
        "fencepost order cancel NAME, until a result can be chosen",
        EXIT_PERSON,
    ),
    _wait("cannot_be_evaluated", "It holds something that this program cannot evaluate.", "upgrade fencepost", 9),
    _wait(
        "effect_unknown",
        "Nobody could find out whether its effect happened.",
        "fencepost order show NAME",
        9,
    ),
    _wait("usage_unknown", "What its attempt used is not known yet.", "nothing: a deadline settles it"),
    _wait("clock_running", "The clock domain runs.", "nothing"),
    _wait(
        "clock_reconciliation_required",
        "A clock reading contradicted the accepted time: nothing expires and nothing new starts until a person has "
        "said which time holds. This version has no command for that, so that this scope stays as it is.",
        CLOCK_STEP,
        EXIT_PERSON,
    ),
)

_ENDS = (
    _end("applied", "Its result met the acceptance contract and was applied.", "nothing", EXIT_WELL),
    _end("cancelled_by_request", "It was cancelled on request.", "fencepost order retry NAME"),
    _end("yielded", "It ended by itself, to wait without holding anything.", "fencepost order show NAME", EXIT_WELL),
    _end("parent_ended", "The order that had submitted it has ended.", "fencepost order show NAME"),
    _end("plan_cancelled", "Its plan was cancelled.", "fencepost run PLAN --again"),
    _end("deadline_passed", "The plan's deadline passed before it was done.", "fencepost run PLAN --again"),
    _end(
        "dependency_failed",
        "An order that it needs ended without the outcome that it asks for.",
        "fencepost order retry OTHER --with-dependents",
    ),
    _end(
        "budget_exhausted",
        "What is left of a ceiling cannot carry another attempt.",
        "fencepost budget set, then fencepost order retry NAME",
    ),
    _end(
        "cancelled_after_effect",
        "It was cancelled after its effect had been applied.",
        "fencepost order show NAME",
    ),
)

_FAILURES = (
    _failure("exit_code_unexpected", "The command ended with another exit code.", "fencepost order log NAME"),
    _failure("killed_by_signal", "The command was ended by a signal.", "fencepost order log NAME"),
    _failure(
        "timed_out",
        "The attempt passed its time limit and was stopped.",
        "raise attempt_time in the plan, then fencepost run PLAN --again",
    ),
    _failure(
        "spawn_failed",
        "The command could not be started.",
        "correct run or environment in the plan, then fencepost run PLAN --again",
    ),
    _failure("callable_raised", "The callable raised an exception.", "fencepost order log NAME"),
    _failure("callable_failed", "The callable says that it failed.", "fencepost order log NAME"),
    _failure(
        "import_failed",
        "The module of the callable cannot be imported.",
        "correct it, inputs or python in the plan, then fencepost run PLAN --again",
    ),
    _failure(
        "executor_changed",
        "The loaded callable is not the one that the order names.",
        "write its decorator once, with literals, then fencepost run PLAN --again",
    ),
    _failure(
        "step_changed",
        "A recorded step was asked for with other arguments.",
        "give it another name, then fencepost run PLAN --again",
    ),
    _failure("step_refused", "A step cannot be recorded as it is.", "correct it, then fencepost run PLAN --again"),
    _failure("outputs_missing", "A file that acceptance asks for was not written.", "fencepost order log NAME"),
    _failure("outputs_refused", "Outputs pass a bound or leave the workspace.", "narrow outputs in the plan"),
    _failure("schema_failed", "An output does not follow its schema.", "fencepost order files NAME --attempt N"),
    _failure("verifier_failed", "The verifier did not accept the result.", "fencepost order log NAME --verifier"),
    _failure(
        "verifier_error",
        "The verifier itself could not run to its end.",
        "correct accept.verify in the plan, then fencepost run PLAN --again",
    ),
    _failure("inputs_unavailable", "A pinned input could not be laid out.", "fencepost doctor"),
    _failure("executor_failed", "The executor failed before the command could end.", "fencepost attempt show NAME"),
    _failure("result_invalid", "The result could not be kept as it was reported.", "fencepost attempt show NAME"),
    _failure("stopped_on_order", "The attempt was stopped on order.", "fencepost order retry NAME"),
)

_REFUSALS = (
    _refusal("operation_collision", 5, "The command key was used for another command.", "use a fresh command key"),
    _refusal("scope_not_open", 3, "The scope {scope} has not been opened.", "fencepost init"),
    _refusal("scope_open", 5, "The scope is open already.", "nothing: use it"),
    _refusal("unauthenticated", 4, "{principal} is not enrolled in this scope.", "fencepost doctor"),
    _refusal("grant_missing", 4, "The grant is not one that was issued in this scope.", "fencepost doctor"),
    _refusal("grant_audience", 4, "The grant was issued to somebody else.", "use a grant of your own"),
    _refusal("grant_operation", 4, "The grant does not name {operation}.", "use a grant that does"),
    _refusal("grant_expired", 4, "The grant has expired.", "use a fresh grant"),
    _refusal("grant_revoked", 4, "The grant was revoked.", "use a fresh grant"),
    _refusal("denied", 4, "The constitution denies {operation}: {rule}.", "ask someone it permits", durable=True),
    _refusal("not_found", 3, "{subject} is not known in this scope.", "fencepost plan list, fencepost order list"),
    _refusal(
        "version_moved",
        5,
        "{subject} is at version {found}, not {expected}.",
        "read it again",
        transient=True,
    ),
    _refusal(
        "clock_blocked",
        9,
        "A clock reading contradicted the accepted time, so nothing new starts and nothing expires; this version has "
        "no command that lifts this.",
        CLOCK_STEP,
        transient=True,
    ),
    _refusal(
        "clock_grace",
        5,
        "Nobody looked at the clock for a while; its holder may still renew.",
        "wait",
        transient=True,
    ),
    _refusal("not_due", 5, "The deadline of {subject} has not passed.", "wait", transient=True),
    _refusal(
        "plan_changed",
        5,
        "An open plan named {name} has other content.",
        "see where: fencepost plan diff PLAN; submit it beside the open one: fencepost run PLAN --new",
    ),
    _refusal("plan_ended", 5, "Plan {name} has ended already.", "fencepost plan show {name}"),
    _refusal("plan_cancelled", 5, "Plan {name} is being cancelled.", "fencepost run PLAN --again"),
    _refusal("deadline_passed", 5, "The deadline of plan {name} has passed.", "fencepost run PLAN --again"),
    _refusal("dependency_missing", 2, "{subject} needs {member}, which is not there.", "name an existing order"),
    _refusal("dependency_cycle", 2, "The orders {ring} wait for each other.", "take one need out"),
    _refusal(
        "impossible_budget",
        2,
        "{subject} cannot fit into the budget above it ({dimension}).",
        "raise the ceiling",
    ),
    _refusal(
        "currency_not_budgeted",
        2,
        "{currency} is not budgeted in {account}.",
        "name a ceiling for it",
        durable=True,
    ),
    _refusal("order_state", 5, "{subject} is {state}; this needs {needed}.", "fencepost order why {subject}"),
    _refusal("attempt_state", 5, "{subject} is {state}; this needs {needed}.", "fencepost attempt show {subject}"),
    _refusal("hold_state", 5, "{subject} is {state}; this needs {needed}.", "fencepost budget show"),
    _refusal("order_ended", 5, "{subject} has ended as {state}.", "fencepost order show {subject}"),
    _refusal("already_replaced", 5, "{subject} was replaced by {other}.", "fencepost order retry {other}"),
    _refusal(
        "retry_refused",
        5,
        "{subject} is {state}: there is nothing to retry.",
        "fencepost order why {subject}",
    ),
    _refusal("nothing_ready", 3, "No order may run now.", "wait", transient=True),
    _refusal(
        "budget_held",
        5,
        "The budget of {account} is held by others ({dimension}).",
        "wait",
        transient=True,
        durable=True,
    ),
    _refusal(
        "budget_exhausted",
        5,
        "What is left of {account} is too little ({dimension}).",
        "raise it",
        durable=True,
    ),
    _refusal("lost_race", 5, "Another worker activated or took {subject}.", "nothing for you", transient=True),
    _refusal("stale_fence", 5, "The fence of {subject} is no longer live.", "stop: others have it", durable=True),
    _refusal(
        "rejected_stale",
        5,
        "The fact about {subject} came late; it is kept and changes nothing.",
        "stop",
        durable=True,
    ),
    _refusal(
        "rejected_conflict",
        5,
        "{subject} has reported another result before.",
        "a person decides",
        durable=True,
    ),
    _refusal(
        "checkpoint_moved",
        5,
        "{subject} has {found} checkpoints; this one builds on {expected}.",
        "build on the last checkpoint of the order",
    ),
    _refusal(
        "receipt_differs",
        5,
        "The receipt {subject} was booked with other amounts.",
        "charge each receipt of the provider once, as it was given",
    ),
    _refusal("child_changed", 5, "{subject} has another child named {member}.", "choose another name"),
    _refusal(
        "child_exceeds",
        4,
        "{subject} asks for {what}, which the order that it is part of does not have.",
        "leave it out: a child has what its parent has",
    ),
    _refusal("not_asked", 5, "{subject} does not ask {question} now.", "fencepost order why {subject}"),
    _refusal("already_answered", 5, "{subject} has an answer to {question}.", "nothing: an answer stays as it is"),
    _refusal("wrong_holder", 4, "{subject} belongs to another worker.", "use your own attempt"),
    _refusal(
        "spec_mismatch",
        5,
        "The record names another spec, input set or claim than {subject}.",
        "read it again",
    ),
    _refusal("extension_unregistered", 2, "Extension {extension} is not registered.", "leave it out"),
    _refusal("executor_unsupported", 5, "{subject} needs executor {executor}.", "a worker that has it"),
    _refusal("verification_missing", 5, "{subject} has not been verified yet.", "wait", transient=True),
    _refusal("verification_known", 5, "{subject} has been verified already.", "nothing"),
    _refusal("holder_alive", 5, "The holder of {subject} is not proved gone.", "wait for its lease", transient=True),
    _refusal("too_large", 2, "{subject} passes the bound of {bound}.", "make it smaller"),
    _refusal("out_of_range", 2, "{subject} must be {needed}.", "correct it"),
    _refusal("bad_command", 2, "The command cannot be read: {problem}.", "correct it"),
    _refusal("head_moved", 5, "The stream's head moved.", "try again", transient=True),
    _refusal("storage_error", 1, "The store failed: {problem}.", "fencepost doctor", transient=True),
    _refusal("storage_full", 1, "There is no space left: {problem}.", "free space and run again", transient=True),
    _refusal(
        "storage_unavailable",
        1,
        "The store cannot be reached: {problem}.",
        "fencepost doctor",
        transient=True,
    ),
    _refusal(
        "storage_read_only",
        1,
        "The store can be read and not written: {problem}.",
        "mount it for writing, or name another home with --home; whatever only reads works as it is",
    ),
    _refusal(
        "storage_log_unread",
        1,
        "The newest records cannot be read where nothing may be written: {problem}.",
        "copy the home to a folder that can be written, and read the copy with --home",
    ),
    _refusal("storage_mismatch", 1, "The store was written by another version: {problem}.", "use that version"),
    _refusal("journal_integrity", 8, "The journal is not what was written: {problem}.", "fencepost journal verify"),
    _refusal("corrupt_history", 8, "The journal holds an impossible record: {problem}.", "fencepost journal verify"),
    _refusal(
        "no_home",
        3,
        "There is no .fencepost folder here or above.",
        "go to the folder of the plan, or name its home: --home DIR; to begin anew here: fencepost init",
    ),
    _refusal("plan_missing", 3, "There is no plan file at {path}.", "name an existing file"),
    _refusal("usage", 2, "{problem}", "fencepost --help"),
    _refusal("ambiguous", 2, "More than one order or plan may be meant: {subject}.", "name it PLAN/NAME, or by its id"),
    _refusal("output_failed", 1, "The output cannot be written: {problem}.", "write it to another place"),
    _refusal("unsupported_platform", 1, "This system is not supported: {problem}.", "use Linux or macOS"),
    _refusal("waited_too_long", 6, "The time given ran out before everything had ended.", "run again: it continues"),
    _refusal("internal_error", 1, "Something unexpected went wrong: {problem}.", "fencepost doctor"),
)

_PLANS = (
    _plan("syntax", "The file cannot be parsed.", "correct the line"),
    _plan("unknown_key", "The key is not known here.", "take it out or correct its spelling"),
    _plan("missing_key", "A required key is missing.", "add it"),
    _plan("wrong_type", "The value has the wrong type.", "write the type that is asked for"),
    _plan("bad_name", "The name is not [a-z][a-z0-9-]{{0,62}}.", "choose such a name"),
    _plan("bad_duration", "The duration is not like 1h30m.", "write units d, h, m, s, ms in this order"),
    _plan("bad_money", "The amount is not a decimal string with at most six places.", 'write it like "2.50"'),
    _plan("duplicate_name", "Two orders have one name.", "rename one"),
    _plan("incompatible_output", "The files asked for are not among the outputs.", "add them to outputs"),
    _plan("no_match", "The pattern matches no file.", "correct it"),
    _plan("path_outside", "The path leaves the tree.", "stay inside"),
    _plan("module_missing", "There is no such module in the source tree.", "correct the call"),
    _plan("module_not_pinned", "The module is not among the order's inputs.", "add it to the inputs"),
    _plan("module_unreadable", "The module cannot be read.", "correct the module"),
    _plan("function_missing", "The module has no such function at its top level.", "correct the call"),
    _plan("not_an_executor", "The function is not decorated as an executor.", "decorate it"),
    _plan("not_literal", "The decorator's name and version are not literals.", "write them out"),
    _plan("python_missing", "The interpreter cannot be found.", "name one that is installed"),
    _plan("python_unsuited", "The interpreter cannot run callables.", "name Python 3.11 or later"),
    _plan("unsupported_feature", "This key's behaviour is not built yet.", "take it out"),
)

_PARTS = tuple(_refusal(*row) for row in PARTS)

FAILURES: frozenset[str] = frozenset(row.code for row in _FAILURES)
"""What a failed result may name as its cause; anything else a worker says is `executor_failed`."""

REASONS: Mapping[str, Reason] = MappingProxyType(
    {
        row.code: row
        for row in sorted((*_WAITS, *_ENDS, *_FAILURES, *_PLANS, *_PARTS, *_REFUSALS), key=lambda reason: reason.code)
    }
)
"""Code -> row, in byte order. A code that is both a refusal and a wait or an end stands here as the refusal."""
WAITS_AND_ENDS: Mapping[str, Reason] = MappingProxyType({row.code: row for row in (*_WAITS, *_ENDS, *_FAILURES)})
"""What `why` reads for a subject's own reason."""
