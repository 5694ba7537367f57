"""Commands under fuzzing: any bytes as a request, asked of worlds in several states.

The deciders get what a strict reading lets pass, and a strict reading lets a lot pass: fences of others, counts at
their bounds, versions from nowhere. They answer with records that fold, or with a registered refusal, and raise
nothing.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final

from fencepost.core import commands as c
from fencepost.core.canonical import Undecodable, decode, encode, encode_trusted
from fencepost.core.chain import Link, Where, fact_of, open_record, seal
from fencepost.core.decide import decide
from fencepost.core.reasons import REASONS
from fencepost.core.records import Stamp
from fencepost.core.records.attempt import ResultFacts
from tests.fuzz.promises import fields_of, require
from tests.support.states import PRINTED, world_in
from tests.support.world import DIGEST, SECOND, World, draft, group, plan_of

WHERE: Final = Where("scope", "main", 0)
STAMP: Final = Stamp(key="k", digest=DIGEST, principal="p", assurance="service", decision="", grant=DIGEST)

COMMAND_WORLDS: Final = (
    "reserved",
    "active/running",
    "result_pending/unverified",
    "cancelled/late",
    "retry_wait",
    "waiting",
)


def check_command(data: bytes) -> str:
    """Any bytes as a request: refused in form, or decided in worlds of several states without an exception."""
    try:
        request = decode(data, c.Request)
    except Undecodable as refusal:
        return refusal.code
    words = [_decided(world_in(name), request) for name in COMMAND_WORLDS]
    return "read" if "" in words else words[0]


def _decided(world: World, request: c.Request) -> str:
    seq = len(world.facts) + 1
    world.commands += 1  # its seed of names
    decided = decide(world, request, world.given(), seq)
    word = ""
    if decided.refusal is not None:
        word = decided.refusal.code
        require(word in REASONS, f"{word} is not registered")
        require(decided.refusal.message, f"{word} says nothing")
        require(encode([decided.refusal.field, dict(decided.refusal.detail)]), "a refusal that cannot be written down")
    try:
        sealed = seal(WHERE, Link(seq - 1, ""), decided.facts, STAMP)
    except Undecodable as refusal:
        # The kernel tells it as a refusal of the command; what it was is in the code.
        return refusal.code
    for record, fact in zip(sealed, decided.facts, strict=True):
        require(fact_of(open_record(record.seq, record.data)) == fact, "a record is not opened as it was sealed")
    if word == "":
        world.keep(decided)
        world.check()
    return word


def command_seeds() -> dict[str, bytes]:
    """A command of every kind about what stands in those worlds, one that is accepted where there is one."""
    seeds: dict[str, bytes] = {}
    accepted: set[str] = set()
    for name in COMMAND_WORLDS:
        world = world_in(name)
        order = world.order("a")
        attempt = world.attempt_of(order)
        about: dict[str, Any] = {"attempt": attempt.attempt, "fence": attempt.fence}
        plan = order.plan or ""
        asked: list[c.Command] = [
            world.activation(attempt),
            world.event(attempt),
            world.result(attempt),
            world.checkpoint(attempt),
            world.kept(attempt),
            world.charge(attempt, "r-9", "tokens_input", calls=2),
            world.child(attempt, draft("piece", attempts=1)),
            world.yielding(attempt, question="go", after_us=SECOND),
            c.AnswerOrder(order=order.order, value="yes", question="go"),
            c.EndWait(order=order.order, expected=order.version),
            world.renewal(attempt),
            world.expiry(attempt),
            c.ReleaseReservation(**about),
            c.ReportStopped(reason="keeper_lost", duration_us=SECOND, note="gone", stdout=PRINTED, **about),
            c.ApplyResult(attempt=attempt.attempt),
            c.RecordVerification(
                attempt=attempt.attempt, result=attempt.result or DIGEST, outcome="passed", duration_us=1
            ),
            c.ProveHolderGone(
                host=attempt.host, boot_id=attempt.boot_id, basis="locks_free", evidence="locks", **about
            ),
            c.SettleHold(hold=attempt.hold, expected=world.live.values[attempt.hold].version),
            c.EndBackoff(order=order.order, expected=order.version),
            c.Reexamine(order=order.order, expected=order.version),
            c.Reserve(order=order.order, expected=order.version, worker=attempt.worker),
            c.ReserveNext(worker=attempt.worker, count=2, plan=plan),
            c.CancelOrder(order=order.order, note="enough"),
            c.CancelPlan(plan=plan),
            c.RetryOrder(order=order.order, with_dependents=True),
            c.RetryOrder(order=order.order, from_start=True),
            c.SetBudget(account=plan, ceilings={"calls": 3, "money_micros:USD": 5}, expected=1),
            c.TellDependents(order=order.order),
            c.AdvanceCancel(plan=plan),
            c.EnforceDeadline(plan=plan, expected=1),
            c.EnrolWorker(worker="worker_" + "e" * 32, host="h", boot_id="b", pid=1, executors=("command/1",)),
            c.ObserveClock(reading=world.reading()),
            c.SubmitOrder(order=draft("lone", group("optional", order.order, ids=True), ceilings={"calls": 2})),
            plan_of(draft("x"), draft("y", group("alternative", "x", outcomes=("failed",)), retry=True), name="other"),
        ]
        for command in asked:
            kind = str(type(command).__struct_config__.tag)
            data = encode_trusted(world.request(command))
            if kind not in accepted:
                word = check_command(data)
                seeds[kind] = data if word == "read" else seeds.get(kind, data)
                accepted |= {kind} if word == "read" else set()
    return seeds


@cache
def command_words() -> tuple[str, ...]:
    """Fields, tags and words of commands, and what stands in the worlds that they are about."""
    fields = fields_of([*c.PAIRS, c.OrderDraft, c.GroupDraft, c.MemberDraft, c.Held, c.Reading, ResultFacts])
    subjects = {subject for name in COMMAND_WORLDS for subject in world_in(name).live.values}
    tags = {str(command.__struct_config__.tag) for command in c.PAIRS}
    words = {"applied", "failed", "required", "optional", "executor", "kernel", "attempts", "time_us", "calls"}
    return tuple(sorted(fields | tags | words | {each for each in subjects if not each.startswith("sha256:")}))
