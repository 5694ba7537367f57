"""What is looked at after every step of a run: the auditor's prediction, the fold, and what really runs.

Nothing here helps the run along. A problem is a sentence; the first one ends the run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any

import msgspec

from fencepost.core import index
from fencepost.core.chain import Link, Sealed, fact_of, read_record
from fencepost.core.commands import ProveHolderGone, Request
from fencepost.core.evolve import evolve
from fencepost.core.index import rows_of
from fencepost.core.state import Account, AttemptState, Value, encode_value
from fencepost.kernel.receipts import Receipt
from fencepost.kernel.replay import Replayed
from fencepost.ports.journal import Append
from fencepost.testing.simulator.auditor import Auditor, Reply
from fencepost.testing.simulator.executor import Tree, Trees
from fencepost.testing.simulator.loop import Loop, Process
from fencepost.testing.simulator.speech import Said

STRANGER = "stranger"  # the process of those who repeat and lie
REQUESTS_KEPT = 400  # of which those who repeat choose

Witnessed = tuple[Request, Receipt, Sequence[Sealed]]
Story = Callable[[str, str], None]


class Shadow(Replayed):
    """A fold beside the store, record by record, that knows what the last records touched."""

    def __init__(self) -> None:
        super().__init__()
        self.touched: set[str] = set()
        self.transitions: Counter[str] = Counter()
        self.put = self._put

    def _put(self, subject: str, value: Value) -> None:
        self.touched.add(subject)
        after = getattr(value, "state", None)
        if after is not None:
            before = getattr(self.values.get(subject), "state", "")
            if before != after:
                self.transitions[f"{type(value).__name__.removesuffix('State')}: {before or 'new'} -> {after}"] += 1
        self.values[subject] = value


class Checks:
    """Everything that must hold, told of each decision in its order. `problems` is empty while all is well."""

    def __init__(self, loop: Loop, trees: Trees, limits: Mapping[str, int], story: Story, *, told: bool) -> None:
        """`told` is whether anybody listens to the story."""
        self.loop = loop
        self.told = told
        self.trees = trees
        self.auditor = Auditor(limits)
        self.shadow = Shadow()
        self.problems: list[str] = []
        self.commands: Counter[str] = Counter()
        self.refusals: Counter[str] = Counter()
        self.records: Counter[str] = Counter()
        self.requests: list[Request] = []  # what was asked lately, for those who repeat it
        self._story = story
        self._witnessed: dict[Process, list[Witnessed]] = {}
        self._rows: dict[tuple[str, str], Any] = {}  # index rows as the store was told
        self._starts: Counter[str] = Counter()
        self.meddled: Callable[[str], None] = lambda attempt: None
        self.is_there: Callable[[str], bool] = lambda worker: False
        self._chance = Random("requests")  # its own, so that looking on changes no turn
        trees.began.append(self._began)
        self.said = Said(self.problem)
        self.asked: Callable[[str, str], None] = lambda order, question: None
        self._charged: Counter[str] = Counter()
        self._unknown: Counter[str] = Counter()
        self._booked: set[str] = set()

    def witness(self, process: Process) -> Callable[[Request, Receipt, Sequence[Sealed]], None]:
        """The witness of one process's kernel."""
        heard = self._witnessed.setdefault(process, [])

        def hear(request: Request, receipt: Receipt, sealed: Sequence[Sealed]) -> None:
            heard.append((request, receipt, sealed))

        return hear

    def begun(self, process: Process) -> None:
        """A transaction begins: what an earlier one of this process decided and did not commit never was."""
        self._witnessed[process].clear()

    def committed(self, process: Process, append: Append | None) -> None:
        heard = self._witnessed[process]
        told, heard[:] = list(heard), []
        for request, receipt, sealed in told:
            self._audit(process, request, receipt, sealed)
        if append is not None:
            self._compare(append)

    def _audit(self, process: Process, request: Request, receipt: Receipt, sealed: Sequence[Sealed]) -> None:
        name = type(request.command).__name__
        refusal = "" if receipt.refusal is None else receipt.refusal.code
        self.commands[name] += 1
        if refusal:
            self.refusals[refusal] += 1
        if len(self.requests) < REQUESTS_KEPT:
            self.requests.append(request)
        else:
            self.requests[int(self._chance.random() * REQUESTS_KEPT)] = request
        if self.told:
            self._story(process.name, f"{told_of(request)}{f': refused, {refusal}' if refusal else ''}")
        stored = [record.data for record in sealed]
        records = [msgspec.json.decode(data) for data in stored]
        for record in records:
            self.records[record["kind"]] += 1
            if record["kind"] in _LOOKED_AT:
                self._look_at(record["kind"], record["subject"], record["body"])
        if process.name == STRANGER:
            for touched in _attempts_of(request, receipt):
                self.meddled(touched)
        reply = Reply(refusal=refusal, result=receipt.result, fresh=receipt.fresh)
        for problem in self.auditor.decided(msgspec.to_builtins(request), reply, records, stored):
            self.problem(f"{name}: {problem}")
        if type(request.command) is ProveHolderGone and sealed and not refusal:
            attempt = self.auditor.world.attempts[request.command.attempt]
            if self.is_there(attempt.worker) and attempt.boot_id == request.command.boot_id:
                self.problem(f"{attempt.attempt} was ended as that of a worker which is gone, and it lives")
        for record in sealed:
            evolve(self.shadow, fact_of(read_record(record.seq, record.data)))
            self.shadow.link = Link(record.seq, record.digest)

    def _look_at(self, kind: str, subject: str, body: Mapping[str, Any]) -> None:
        """Charges are what providers gave out, once each; and who waits runs nothing."""
        if kind == "work_order_waits":
            if any(tree.job.attempt == body["attempt"] and not tree.host.asleep for tree in self.trees.alive):
                self.problem(f"{subject} waits while its attempt {short(body['attempt'])} runs")
            if body["wait"].get("question"):
                self.asked(subject, body["wait"]["question"])
            return
        if kind == "attempt_result":
            if subject in self.said.waits and body["facts"]["outcome"] == "succeeded":
                self.problem(f"{subject} was told that it waits, and is reported as one that is done")
            return
        usage = body["usage"]
        name = f"{usage['provider']}:{usage['receipt']}"
        booked = {each: usage[each] for each in ("amounts", "unknown") if each in usage}
        if self.said.given.get(name) != booked:
            self.problem(f"{name} is booked with {booked}; its provider gave {self.said.given.get(name)}")
        if name in self._booked:
            self.problem(f"the receipt {name} is booked twice")
        self._booked.add(name)
        self._charged.update(usage["amounts"])
        for each in usage.get("unknown", ()):
            least = usage["amounts"].get(each, 0)
            self._charged[each] += max(body["freed"].get(each, 0) - least, 0)  # all that was held of it
            self._unknown[each] += 1

    def receipts_problem(self) -> str:
        """Everything that a program was told to be booked is, once; and the scope is charged with just that."""
        lost = self.said.charged - self._booked
        if lost:
            return f"the receipt {min(lost)} was told to be booked, and is not"
        scope = self.shadow.values.get("scope")
        account = Account() if scope is None else scope.account
        for name in ("calls", "tokens_input"):
            if account.charged.get(name, 0) != self._charged[name]:
                return f"the scope is charged {account.charged.get(name, 0)} {name}; receipts say {self._charged[name]}"
        if account.unknown != self._unknown:
            return f"the scope shows {account.unknown} as unknown; receipts say {dict(self._unknown)}"
        return ""

    def _compare(self, append: Append) -> None:
        """What the store was given beside the records is what the records lead to (check 6)."""
        touched = self.shadow.touched
        subjects = {row.subject for row in append.states}
        for row in append.states:
            value = self.shadow.values.get(row.subject)
            if value is None or row.data != encode_value(value) or row.version != value.version:
                self.problem(f"the state of {row.subject} is not what its records lead to")
            touched.discard(row.subject)
        if "scope" in subjects:
            problem = self.receipts_problem()
            if problem:
                self.problem(problem)
        if touched:
            self.problem(f"the store was not given the state of {min(touched)}")
            touched.clear()
        for stage, subject in append.index_delete:
            self._rows.pop((stage, subject), None)
        for put in append.index_put:
            self._rows[put.stage, put.subject] = tuple(put)
        for subject in subjects:
            self._compare_rows(subject)

    def _compare_rows(self, subject: str) -> None:
        expected = {row.stage: tuple(row) for row in rows_of(self.shadow.values[subject])}
        for stage in _STAGES:
            if self._rows.get((stage, subject)) != expected.get(stage):
                self.problem(f"the index row {stage} of {subject} is not what its state says")

    def _began(self, tree: Tree) -> None:
        """Only what was activated runs, once, and nothing of its order beside it (checks 2 and 3)."""
        job = tree.job
        if job.lock_path.endswith(".verify.lock"):
            twins = [other for other in self.trees.alive if other.job.lock_path == job.lock_path]
            if len(twins) > 1:
                self.problem(f"two verifiers of {job.attempt} run at once")
            return
        self._story(tree.process.name, f"starts {short(job.attempt)} of {short(job.order)} on {tree.host.number}")
        attempt = self.shadow.values.get(job.attempt)
        if not isinstance(attempt, AttemptState) or not attempt.descriptor_seq or attempt.fence != job.fence:
            self.problem(f"{job.attempt} runs without an activation")
        self._starts[job.attempt] += 1
        if self._starts[job.attempt] > 1:
            self.problem(f"{job.attempt} was started twice")
        for other in self.trees.alive:
            beside = other is not tree and other.job.order == job.order and not other.host.asleep
            # A tree whose keeper is gone ends by its own host; another host waits for nothing but the clock.
            # And one whose clock has stood sees the end of its lease later than others do: only its fence is over.
            alone = (not other.keeper or other.host.stood_us > 0) and other.host is not tree.host
            if beside and not alone and not other.job.lock_path.endswith(".verify.lock"):
                self.problem(f"{job.attempt} runs beside {other.job.attempt} of the same order")

    def problem(self, text: str) -> None:
        self._story("check", text)
        self.problems.append(text)


def _attempts_of(request: Request, receipt: Receipt) -> list[str]:
    """Attempts that a command names, or that it reserved."""
    command: Any = request.command
    named = [getattr(command, "attempt", ""), *(held.attempt for held in getattr(command, "attempts", ()))]
    return [*named, *(each["attempt"] for each in receipt.result.get("reservations", ()))]


_LOOKED_AT = frozenset({"attempt_result", "usage_charged", "work_order_waits"})
_STAGES = (
    index.CLAIM,
    index.WAIT,
    index.RETRY,
    index.BUDGET,
    index.FINISH,
    index.TELL,
    index.TASK,
    index.RESERVATION,
    index.LEASE,
    index.UNSETTLED,
    index.PLAN,
    index.DEADLINE,
    index.REVISE,
    index.WORKER,
    index.ATTEMPT,
)


def short(name: str) -> str:
    """An id as a story tells it."""
    prefix, _, rest = name.partition("_")
    return f"{prefix}_{rest[-6:]}" if rest else name


_TOLD = ("plan", "order", "attempt", "fence", "expected", "worker", "count", "account", "ceilings", "outcome", "hold")


def told_of(request: Request) -> str:
    """A command in a few words."""
    command = request.command
    words = [type(command).__name__]
    for name in _TOLD:
        value = getattr(command, name, None)
        if value not in (None, "", 0, {}) and not isinstance(value, msgspec.Struct):
            words.append(f"{name} {short(value) if isinstance(value, str) else value}")
    facts = getattr(command, "facts", None)
    if facts is not None:
        words.append(f"{facts.outcome} {facts.message_code}".strip())
    reading = getattr(command, "reading", None)
    if reading is not None:
        words.append(f"{reading.source[-1:]} boot {reading.boot_id[-2:]} tick {reading.tick_us / 1_000_000:.3f} s")
    return " ".join(words)
