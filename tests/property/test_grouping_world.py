"""Group commit: any grouping of the same commands gives the same records as one at a time (architecture, The write
path).

A first kernel is asked one command at a time, of every kind and in every mood: from those that may do it and from
those that may not, well and badly formed, stale, repeated under the same key, under a key that is taken, and some
whose decider breaks down. Between them the clock moves, or stands still. What was asked is then asked again of fresh
kernels, cut into groups of any size, with other bounds of a group, and with a store that fails before some commits.
Records, answers and projection must be the same, byte for byte.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple
from unittest import mock

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fencepost.core import commands as c
from fencepost.core.decide import decide as decide_command
from fencepost.core.limits import FIRST_VALUES, Limits
from fencepost.core.machines import ENDED
from fencepost.core.records.common import ArtifactRef, Usage
from fencepost.core.records.plan import Retry
from fencepost.core.state import SCOPE, AttemptState, HoldState, OrderState
from fencepost.kernel import group as group_module
from fencepost.kernel import replay
from fencepost.kernel.kernel import Kernel
from fencepost.kernel.receipts import Receipt
from fencepost.ports.errors import StorageError
from fencepost.testing.fakes import FakeClock
from tests.conftest import profile_name
from tests.kernel.support import WORKER, Trouble, draft, enrol, kernel_over, memory, raising, report

EXAMPLES = settings.get_profile(profile_name()).max_examples
pytestmark = pytest.mark.timeout(3_600 if profile_name() == "nightly" else 120)
COMMANDS = 40
COMMANDS_MANY = 260  # at one time, so that what they write does not fit into one group
PAUSES_US = (1, 100_000, 300_000, 3_000_000, 12_000_000)
LIMITS = msgspec.structs.replace(
    FIRST_VALUES,
    plan_orders_max=3,
    batch_records_max=112,
    group_records_max=112,
    cancel_per_batch=1,
    fanout_per_batch=1,
    late_records_per_attempt=2,
)
NOBODY = "order_" + "f" * 32
NO_INPUTS = "sha256:" + "0" * 64


class BrokenDecider(Exception):
    """What a programming error in a decider would raise."""


class Asked(NamedTuple):
    """One command, and how far the clock moves before it. A decider breaks down over it where `breaks`."""

    request: c.Request
    pause_us: int
    breaks: bool


class Ran(NamedTuple):
    """What came out: records, answers in the order of asking (None for lost ones), and the projection's digest."""

    records: list[bytes]
    answers: list[tuple[Any, ...] | None]
    projection: str


@contextmanager
def deciders_break_over(keys: set[str]) -> Iterator[None]:
    def decide(view: Any, request: c.Request, given: Any, next_seq: int) -> Any:
        if request.key in keys:
            raise BrokenDecider(request.key)
        return decide_command(view, request, given, next_seq)

    with mock.patch.object(group_module, "decide", decide):
        yield


class Story:
    """Asks a kernel one command at a time and remembers them."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.pauses = self.draw.choice((0.0, 0.01, 0.05, 0.15))  # how often the clock moves
        self.clock = FakeClock()
        self.kernel = kernel_over(memory(), clock=self.clock, limits=LIMITS)
        self.asked: list[Asked] = []
        self.answers: list[tuple[Any, ...] | None] = []
        self.orders: list[str] = []
        self.plans: list[str] = []
        self.attempts: list[dict[str, Any]] = []
        self.broken: set[str] = set()

    def tell(self) -> None:
        self.ask("dispatcher", enrol(), key="enrol")
        with deciders_break_over(self.broken):
            for number in range(COMMANDS if self.pauses else COMMANDS_MANY):
                if self.draw.random() < 0.06 and self.asked:
                    self._ask(self.draw.choice(self.asked).request)  # the same once more
                    continue
                name, command = self.draw.choice(KINDS)(self)
                who = self.draw.choice((name, name, name, "human", "executor"))
                taken = self.draw.random() < 0.04 and bool(self.asked)
                key = self.draw.choice(self.asked).request.key if taken else f"key-{number}"
                if self.draw.random() < 0.04 and not taken:
                    self.broken.add(key)
                self.ask(who, command, key=key)

    def ask(self, name: str, command: Any, *, key: str) -> None:
        self._ask(self.kernel.request(name, command, key))

    def _ask(self, request: c.Request) -> None:
        pause_us = self.draw.choice(PAUSES_US) if self.draw.random() < self.pauses else 0
        self.clock.advance(pause_us)
        breaks = request.key in self.broken
        self.asked.append(Asked(request, pause_us, breaks))
        try:
            receipt = self.kernel.write(request)
        except BrokenDecider:
            self.answers.append(None)
            return
        self.answers.append(answer_of(receipt))
        if receipt.ok and receipt.fresh:
            self.orders += [receipt.result["order"]] if "task" in receipt.result else []
            self.plans += [receipt.result["plan"]] if receipt.result.get("fresh") and "plan" in receipt.result else []
            self.attempts += receipt.result.get("reservations", [])

    def look(self, subject: str, kind: type[Any]) -> Any:
        with self.kernel.reader.look() as look:
            return look.find(subject, kind)

    def order(self) -> OrderState | None:
        if self.plans and self.draw.random() < 0.4:
            with self.kernel.reader.look() as look:
                rows = [row for page in look.pages("task") for row in page]
            self.orders = sorted({*self.orders, *(row.subject for row in rows)})
        return self.look(self.draw.choice(self.orders), OrderState) if self.orders else None

    def attempt(self) -> AttemptState | None:
        if not self.attempts:
            return None
        recent = self.attempts[-4:] if self.draw.random() < 0.7 else self.attempts
        found: AttemptState | None = self.look(self.draw.choice(recent)["attempt"], AttemptState)
        return found

    def ran(self) -> Ran:
        return ran(self.kernel, self.answers)


def answer_of(receipt: Receipt) -> tuple[Any, ...]:
    """All of an answer but how far the journal had come, which for a refusal is the head of its group."""
    refusal = receipt.refusal
    said = None if refusal is None else (refusal.code, refusal.field, dict(refusal.detail))
    return receipt.key, receipt.first_seq, receipt.count, dict(receipt.result), said


def ran(kernel: Kernel, answers: list[tuple[Any, ...] | None]) -> Ran:
    compared = replay.compare(kernel.journal, kernel.stream)
    assert compared.match and kernel.verify().ok
    with kernel.reader.look() as look:
        return Ran([data for _, data in look.records(0, 100_000)], answers, compared.projection_digest)


# Commands of every kind, with the name of whoever usually asks for them


def submit_order(story: Story) -> tuple[str, Any]:
    draw = story.draw
    ceilings = {"attempts": draw.choice((1, 3))} | ({"calls": 2} if draw.random() < 0.3 else {})
    retry = Retry(on=("executor",), backoff_us=1_000, backoff_max_us=2_000) if draw.random() < 0.4 else None
    kind = draw.choice(("internal", "internal", "public"))
    return "human", c.SubmitOrder(
        order=draft(f"t{draw.randrange(99)}", ceilings=ceilings, retry=retry, classification=kind)
    )


def submit_plan(story: Story) -> tuple[str, Any]:
    draw = story.draw
    number = draw.randrange(6)
    after = c.GroupDraft(kind="optional", members=(c.MemberDraft(outcomes=("applied",), task="a"),))
    needs = (c.GroupDraft(kind="required", members=(c.MemberDraft(outcomes=("applied",), task="a"),)),)
    orders = (draft("a"), draft("b", groups=needs), draft("c", groups=(after,)))
    return "human", c.SubmitPlan(
        name=f"plan-{number % 3}",
        objective="",
        content="sha256:" + f"{number:064x}",
        orders=orders[: draw.choice((1, 3, 3))],
        recovery="replace",
        mode=draw.choice(("continue", "again", "new")),
        deadline_us=draw.choice((None, None, 5_000_000)),
    )


def wrong(story: Story) -> tuple[str, Any]:
    return "human", story.draw.choice(
        (
            c.SubmitOrder(order=draft("")),
            c.SubmitOrder(order=draft(ceilings={"nothing": 1})),
            c.SubmitOrder(order=draft(params="x" * 5_000_000)),
            c.CancelOrder(order=NOBODY),
            c.CancelPlan(plan="plan_" + "f" * 32),
            c.Reserve(order=NOBODY, expected=1, worker=WORKER),
            c.Reserve(order=7, expected=1, worker=WORKER),  # type: ignore[arg-type]  # what an untyped caller may do
        )
    )


def reserve(story: Story) -> tuple[str, Any]:
    order = story.order()
    if order is None or story.draw.random() < 0.5:
        return "dispatcher", c.ReserveNext(worker=WORKER, count=story.draw.choice((1, 1, 3)))
    expected = max(order.version + story.draw.choice((0, 0, -1)), 1)
    return "dispatcher", c.Reserve(order=order.order, expected=expected, worker=WORKER)


def activate(story: Story) -> tuple[str, Any]:
    attempt = story.attempt()
    order = None if attempt is None else story.look(attempt.order, OrderState)
    if attempt is None or order is None:
        return reserve(story)
    return "dispatcher", c.Activate(
        attempt=attempt.attempt,
        expected=attempt.version,
        fence=attempt.fence + (story.draw.random() < 0.1),
        worker=WORKER,
        executor="command",
        executor_version=1,
        environment="sha256:" + "0" * 64,
        input_set=order.terms.input_set,
        mode="local",
    )


def results(story: Story) -> tuple[str, Any]:
    attempt = story.attempt()
    if attempt is None:
        return reserve(story)
    order = story.look(attempt.order, OrderState)
    command = report({"attempt": attempt.attempt, "fence": attempt.fence, "spec": order.spec})
    if story.draw.random() < 0.3:
        facts = msgspec.structs.replace(
            command.facts, outcome="failed", failure="executor", message_code="timed_out", exit_code=1
        )
        command = msgspec.structs.replace(command, facts=facts)
    return "executor", command


def apply(story: Story) -> tuple[str, Any]:
    attempt = story.attempt()
    return reserve(story) if attempt is None else ("reducer", c.ApplyResult(attempt=attempt.attempt))


def leases(story: Story) -> tuple[str, Any]:
    attempt = story.attempt()
    if attempt is None:
        return submit_order(story)
    match story.draw.randrange(5):
        case 0:
            held = c.Held(attempt=attempt.attempt, fence=attempt.fence)
            return "dispatcher", c.RenewLeases(worker=WORKER, attempts=(held,))
        case 1:
            return "dispatcher", c.ReleaseReservation(attempt=attempt.attempt, fence=attempt.fence)
        case 2:
            return "executor", c.ReportStopped(
                reason="drained", attempt=attempt.attempt, fence=attempt.fence, duration_us=1
            )
        case 3:
            return "dispatcher", c.ExpireAttempt(attempt=attempt.attempt, expected=attempt.version)
        case _:
            return "dispatcher", c.ProveHolderGone(
                attempt=attempt.attempt,
                fence=attempt.fence,
                host=enrol().host,
                boot_id=enrol().boot_id,
                basis="locks_free",
                evidence="free",
            )


def inside(story: Story) -> tuple[str, Any]:
    """What a running program says."""
    draw = story.draw
    attempt = story.attempt()
    order = None if attempt is None else story.look(attempt.order, OrderState)
    if attempt is None or order is None:
        return reserve(story)
    bound = {"attempt": attempt.attempt, "fence": attempt.fence + (draw.random() < 0.1), "spec": order.spec}
    bound["input_set"] = attempt.input_set or NO_INPUTS
    match draw.randrange(7):
        case 0:
            number = max(order.checkpoint_number - (draw.random() < 0.2), 0)
            state = {"kind": "blob/1", "payload": NO_INPUTS, "bytes": draw.randrange(9)}
            return "executor", c.SaveCheckpoint(**bound, builds_on=number, **state)
        case 1:
            usage = Usage(receipt=f"r-{draw.randrange(5)}", provider="shop", amounts={"calls": draw.randrange(3)})
            return "executor", c.ChargeUsage(**bound, usage=usage)
        case 2:
            kept = ArtifactRef(path="part", digest=NO_INPUTS, bytes=1, mode=0o644)
            return "executor", c.RecordArtifact(**bound, artifact=kept)
        case 3:
            return "executor", c.SubmitChild(**bound, order=draft(draw.choice(("part", "rest", "A"))))
        case 4:
            return "executor", c.AppendEvent(**bound, family="execution_started")
        case _:
            wait = c.WaitDraft(
                question=draw.choice(("", "go")),
                orders=tuple(order.children.values()) if draw.random() < 0.5 else (),
                after_us=draw.choice((0, 1, 2_000_000)),
            )
            return "executor", c.ReportYielded(**bound, duration_us=1, wait=wait)


def waits(story: Story) -> tuple[str, Any]:
    """Ends of waits: by an answer, by a time, or not at all."""
    order = story.order()
    if order is None:
        return submit_order(story)
    if order.state != "waiting" and story.draw.random() < 0.8:
        return inside(story)
    if story.draw.random() < 0.5:
        return "human", c.AnswerOrder(order=order.order, value="yes", question=story.draw.choice(("", "go", "other")))
    return "reducer", c.EndWait(order=order.order, expected=order.version)


def upkeep(story: Story) -> tuple[str, Any]:
    order, attempt = story.order(), story.attempt()
    if order is None:
        return submit_plan(story)
    hold = None if attempt is None else story.look(attempt.hold, HoldState)
    if hold is not None and story.draw.random() < 0.3:
        return "dispatcher", c.SettleHold(hold=hold.hold, expected=hold.version)
    if order.state in ENDED:
        return "scheduler", c.TellDependents(order=order.order)
    if order.state == "retry_wait":
        return "scheduler", c.EndBackoff(order=order.order, expected=order.version)
    if order.plan is not None and story.draw.random() < 0.5:
        return "scheduler", c.AdvanceCancel(plan=order.plan)
    return "scheduler", c.Reexamine(order=order.order, expected=order.version)


def people(story: Story) -> tuple[str, Any]:
    order = story.order()
    if order is None:
        return submit_order(story)
    match story.draw.randrange(5):
        case 0:
            return "human", c.CancelOrder(order=order.order)
        case 1 if story.plans:
            return "human", c.CancelPlan(plan=story.draw.choice(story.plans))
        case 2:
            account = story.draw.choice((SCOPE, order.order))
            return "human", c.SetBudget(
                account=account, ceilings=story.draw.choice(({}, {"calls": 1}, {"attempts": 9}))
            )
        case _:
            return "human", c.RetryOrder(order=order.order, with_dependents=story.draw.random() < 0.5)


def observe(story: Story) -> tuple[str, Any]:
    now = story.clock.read()
    return "sampler", c.ObserveClock(
        reading=c.Reading(
            source=now.source,
            boot_id=now.boot_id,
            utc_us=now.utc_us,
            tick_us=now.tick_us,
            uncertainty_us=now.uncertainty_us,
        )
    )


KINDS = (
    *(submit_order, submit_plan, reserve, reserve, activate, activate, results, apply, leases, people, upkeep),
    *(wrong, observe, inside, inside, waits),
)


# Asking again


def asked_again(story: Story, cuts: Sequence[int], limits: Limits, failing: set[int]) -> Ran:
    """The same commands in groups of these sizes; the clock moves between groups, as it did between commands."""
    clock = FakeClock()
    trouble = Trouble(memory())
    kernel = kernel_over(trouble, clock=clock, limits=limits)
    answers: list[tuple[Any, ...] | None] = []
    left = list(story.asked)
    turn = 0
    with deciders_break_over(story.broken):
        while left:
            clock.advance(left[0].pause_us)
            size = 1
            while size < min(cuts[turn % len(cuts)], len(left)) and not left[size].pause_us:
                size += 1
            together, left = left[:size], left[size:]
            trouble.before_commit = raising(StorageError("hiccup"), times=1 + turn % 2) if turn in failing else None
            try:
                answers += map(answer_of, kernel.write_many([each.request for each in together]))
            except BrokenDecider:
                answers += [None] * len(together)
            turn += 1
    return ran(kernel, answers)


def require_same(one: Ran, other: Ran) -> None:
    for place, (first, second) in enumerate(zip(one.answers, other.answers, strict=True)):
        assert first is None or second is None or first == second, f"command {place}: {first} and {second}"
    assert one.records == other.records
    assert one.projection == other.projection


@settings(max_examples=max(EXAMPLES // 4, 10))
@given(
    seed=st.integers(0, 2**32),
    cuts=st.lists(st.integers(1, 30), min_size=1, max_size=6),
    commands_max=st.sampled_from((2, 7, 256)),
    failing=st.sets(st.integers(0, 20), max_size=3),
)
def test_any_grouping_of_any_commands_gives_the_same_records(
    seed: int, cuts: list[int], commands_max: int, failing: set[int]
) -> None:
    story = Story(seed)
    story.tell()
    limits = msgspec.structs.replace(LIMITS, group_commands_max=commands_max)
    again = partial(asked_again, story)
    require_same(story.ran(), again(cuts, limits, failing))
    require_same(story.ran(), again([COMMANDS_MANY], LIMITS, set()))


def test_the_stories_have_something_of_everything() -> None:
    """Else the property above would hold for want of anything to group."""
    said: set[str] = set()
    kinds: set[str] = set()
    asked: set[str] = set()
    breaks = 0
    for seed in range(12):
        story = Story(seed)
        story.tell()
        said |= {answer[4][0] for answer in story.answers if answer is not None and answer[4] is not None}
        asked |= {type(each.request.command).__name__ for each in story.asked}
        breaks += len(story.broken)
        with story.kernel.reader.look() as look:
            kinds |= {look.record(seq).kind for seq, _ in look.records(0, 100_000)}
    assert {"bad_command", "too_large", "not_found", "version_moved", "operation_collision", "stale_fence"} <= said
    assert {"attempt_descriptor", "result_application", "hold_settled", "logical_clock_observation"} <= kinds
    assert {"checkpoint_envelope", "usage_charged", "attempt_artifact", "work_order_waits"} <= kinds
    assert breaks and len(asked) >= 25
