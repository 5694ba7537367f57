"""Short lives of scopes that between them use every field of every command, for the pages in `written/`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fencepost.core import commands as c
from fencepost.core.decide import Decided
from fencepost.core.limits import Limits
from fencepost.core.records.attempt import ValidationReceipt
from fencepost.core.records.common import LogRef, Usage
from fencepost.core.records.plan import Acceptance, Retry
from fencepost.core.state import AttemptState, HoldState, PlanState
from tests.support.world import DIGEST, SECOND, World, artifact, draft, group, used
from tests.tables.scribe import Scribe

LOG = LogRef(digest=DIGEST, bytes_total=10, bytes_kept=5)
USD, EUR = "money_micros:USD", "money_micros:EUR"


class Told(World):
    """A world that writes down what it is told and what follows."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.told: list[str] = []
        super().__init__(limits)

    def do(self, command: Any, *, principal: str = "", grant: str = "") -> Decided:
        who = {name: value for name, value in (("principal", principal), ("grant", grant)) if value}
        scribe = Scribe(self)
        decided = super().do(command, **who)
        if decided.facts or not isinstance(command, c.ObserveClock):
            self.told += ["", type(command).__name__, *(f"  {line}" for line in scribe.lines(decided))]
        return decided

    def refuse(self, command: Any) -> str:
        refusal = self.do(command).refusal
        return "" if refusal is None else refusal.code


def everything_an_order_may_say() -> Told:
    """Two full drafts, one handed to the other, in a plan with everything; then the second run."""
    world = Told()
    first = draft(
        "make",
        priority="high",
        classification="public",
        environment=("PATH", "HOME"),
        attempt_time_least_us=5 * SECOND,
        manifest="sha256:" + "4" * 64,
        manifest_content="sha256:" + "5" * 64,
        manifest_files=3,
        manifest_bytes=99,
        outputs=("out/*.txt", "log"),
        ceilings={"attempts": 2, "calls": 7, USD: 9},
        per_attempt={"calls": 3},
        retry=Retry(on=("executor",), backoff_us=SECOND, backoff_max_us=2 * SECOND),
        may=("workspace.write", "net"),
        params='{"k":1}',
    )
    second = draft(
        "use",
        group("required", "make"),
        group("alternative", "make", outcomes=("failed", "applied")),
        handed=(c.FromDraft(task="make", files=("out/*.txt",)),),
        accept=Acceptance(exit_code=3, files=("answer",), schemas={"answer": DIGEST}, verify=("check", "it")),
        outputs=("answer",),
        priority="low",
        may_fail=True,
        effects="declared",
    )
    world.submit(
        first,
        second,
        ceilings={"attempts": 8, "calls": 20, USD: 30},
        deadline_us=600 * SECOND,
        provenance={"tool": "hand"},
        predecessor="plan_before",
    )
    attempt = world.activate("make")
    kept = artifact("out/a.txt")
    usage = (
        used(attempt, time_us=2 * SECOND),
        used(attempt, receipt="r1", provider="shop", calls=2, **{USD: 4}),
        Usage(receipt="r2", provider="shop", amounts={"tokens_input": 5}, unknown=("calls",)),
    )
    world.ok(world.event(attempt, pid=7, note="begun"))
    world.ok(
        world.result(
            attempt,
            duration_us=2 * SECOND,
            artifacts=(kept, artifact("log")),
            stdout=LOG,
            stderr=LOG,
            usage=usage,
            validation=(ValidationReceipt(check="files", subject="out/a.txt", passed=True, message="m"),),
            message="done",
            signal=2,
            completed_us=5,
        )
    )
    world.ok(c.ApplyResult(attempt=attempt.attempt))
    held = world.reserve("use")
    world.refuse(world.activation(held))
    world.ok(world.activation(held, handed=(kept,)))
    live: AttemptState = world.live.values[held.attempt]
    schema = ValidationReceipt(check="schema", subject="answer", passed=True)
    world.ok(world.result(live, exit_code=3, artifacts=(artifact("answer"),), validation=(schema,)))
    world.refuse(c.ApplyResult(attempt=live.attempt))
    seen: AttemptState = world.live.values[live.attempt]
    receipt = c.RecordVerification(
        attempt=live.attempt,
        result=seen.result or "",
        outcome="passed",
        duration_us=SECOND,
        exit_code=0,
        signal=1,
        stdout=LOG,
        stderr=LOG,
        message="fine",
    )
    world.ok(receipt)
    world.refuse(receipt)
    world.ok(c.ApplyResult(attempt=live.attempt))
    return world


def failures_and_their_retries() -> Told:
    """A backoff that doubles, its end, the last failure, and a person who tries it again with what waited."""
    world = Told()
    retry = Retry(on=("executor", "validation"), backoff_us=SECOND, backoff_max_us=3 * SECOND)
    world.submit(draft("a", retry=retry, attempts=3), draft("b", "a"), draft("c", group("optional", "b")))
    for _ in range(2):
        world.fail("a")
        order = world.order("a")
        world.refuse(c.EndBackoff(order=order.order, expected=order.version))
        world.advance(4 * SECOND)
        world.ok(c.EndBackoff(order=order.order, expected=order.version))
    world.fail("a")
    world.ok(c.RetryOrder(order=world.order("a").order, with_dependents=True))
    world.finish("a")
    world.fail("b", outcome="succeeded", exit_code=1, failure=None, message_code="")
    world.ok(c.RetryOrder(order=world.order("b").order))
    world.refuse(c.RetryOrder(order=world.order("c").order))
    return world


def holders_that_go_silent() -> Told:
    """Every way in which a reservation or a lease ends without a report, and what comes after it."""
    world = Told(Limits(late_records_per_attempt=2))
    world.submit(*(draft(task) for task in ("expired", "gone", "stopped", "unused", "handed_back", "left")))
    silent = world.reserve("unused")
    back = world.reserve("handed_back")
    world.ok(c.ReleaseReservation(attempt=back.attempt, fence=back.fence))
    left = world.reserve("left")
    world.ok(_gone(left, "locks_free"))
    attempt, other, third = (world.activate(task) for task in ("expired", "gone", "stopped"))
    world.ok(world.event(attempt))
    world.ok(
        c.ReportStopped(reason="drained", attempt=third.attempt, fence=third.fence, duration_us=SECOND, note="drained")
    )
    world.advance(3 * SECOND)
    world.refuse(world.expiry(silent))
    world.ok(world.renewal(attempt))
    world.ok(_gone(other, "locks_free"))
    world.advance(4 * SECOND)
    world.ok(world.expiry(silent))
    world.advance(8 * SECOND)
    world.do(world.result(attempt, duration_us=9 * SECOND))
    world.ok(world.expiry(attempt))
    world.do(world.result(attempt, duration_us=14 * SECOND))
    world.do(world.event(attempt, "heartbeat_observed"))
    late = (used(attempt, receipt="late", provider="shop", calls=3),)
    world.do(world.result(attempt, usage=late))
    world.do(world.result(attempt, usage=late))
    again = world.activate("expired")
    world.restart(SECOND)
    world.ok(_gone(again, "later_boot", boot=world.boot))
    return world


def _gone(attempt: AttemptState, basis: Any, boot: str = "") -> c.ProveHolderGone:
    return c.ProveHolderGone(
        attempt=attempt.attempt,
        fence=attempt.fence,
        host=attempt.host,
        boot_id=boot or attempt.boot_id,
        basis=basis,
        evidence="seen",
    )


def cancels_in_pages() -> Told:
    """Cancels of one order and of a plan, page by page, with holds that wait for their facts."""
    world = Told(Limits(fanout_per_batch=2, cancel_per_batch=2))
    world.submit(draft("root"), *(draft(f"leaf{n}", "root") for n in range(4)), draft("last", "leaf0", "leaf3"))
    first = world.activate("root")
    world.ok(c.CancelOrder(order=world.order("root").order, note="no more"))
    world.settle()
    world.do(world.event(first, "execution_stopped"))
    world.do(world.result(first, duration_us=3 * SECOND))
    plan = world.submit(*(draft(f"t{n}", attempts=2) for n in range(5)), mode="new")
    world.reserve("t1")
    one, two = world.activate("t2"), world.activate("t3")
    world.ok(world.result(two))
    world.ok(c.CancelPlan(plan=plan, note="stop"))
    world.settle()
    world.ok(c.CancelPlan(plan=plan))
    world.do(c.ReportStopped(reason="drained", attempt=one.attempt, fence=one.fence, duration_us=2 * SECOND))
    world.advance(24 * SECOND)
    for hold in [held for held in world.live.values.values() if isinstance(held, HoldState)]:
        if hold.state == "unsettled":
            world.ok(c.SettleHold(hold=hold.hold, expected=hold.version))
    return world


def budgets_that_run_short() -> Told:
    """Ceilings set before and after, shares of later ones, what is blocked, freed, exhausted or not budgeted."""
    world = Told()
    many = draft("many", attempts=3, ceilings={"attempts": 3, "calls": 4})
    plan = world.submit(many, draft("one"), draft("euros", ceilings={"attempts": 1, EUR: 5}))
    world.ok(c.SetBudget(account=plan, ceilings={"attempts": 9, "calls": 3, USD: 6}, note="less"))
    world.ok(c.SetBudget(account=world.order("one").order, ceilings={"attempts": 2, "calls": 3}))
    world.refuse(c.SetBudget(account=plan, ceilings={"attempts": 9}, expected=1))
    world.refuse(c.SetBudget(account=plan, ceilings={"kisses": 9}))
    world.reserve("many")
    _try(world, "one")
    _try(world, "euros")
    _look(world, "one")
    world.ok(c.SetBudget(account=plan, ceilings={"attempts": 9, "calls": 9, USD: 6, EUR: 9}))
    _look(world, "one")
    _look(world, "euros")
    world.finish("many", usage=(Usage(receipt="r", provider="shop", amounts={"calls": 9}),))
    _try(world, "one")
    _try(world, "euros")
    world.ok(c.SetBudget(account="scope", ceilings={"attempts": 2}))
    return world


def _try(world: Told, task: str) -> None:
    order = world.order(task)
    world.do(c.Reserve(order=order.order, expected=order.version, worker=world.worker()))


def _look(world: Told, task: str) -> None:
    order = world.order(task)
    world.do(c.Reexamine(order=order.order, expected=order.version))


def clocks_that_jump() -> Told:
    """Readings that are old, uncertain, late or wrong, a second source, a restart, and a deadline that passes."""
    world = Told()
    plan = world.submit(draft("a"), draft("b", "a"), deadline_us=30 * SECOND)
    attempt = world.activate("a")
    world.uncertainty_us = 5
    world.advance(3 * SECOND)
    old = world.reading()
    world.advance(8 * SECOND, step_us=8 * SECOND)
    world.do(c.ObserveClock(reading=old))
    world.refuse(world.expiry(attempt))
    world.restart(2 * SECOND)
    world.advance(4 * SECOND)
    found: PlanState = world.live.values[plan]
    world.refuse(c.EnforceDeadline(plan=plan, expected=found.version))
    world.advance(20 * SECOND)
    found = world.live.values[plan]
    world.refuse(world.renewal(attempt))
    _try(world, "b")
    world.ok(c.EnforceDeadline(plan=plan, expected=found.version))
    world.utc_us += 60 * SECOND
    world.tick_us += SECOND
    world.observe()
    world.restart()
    world.refuse(c.ReserveNext(worker=world.worker(), count=1))
    return world


def results_that_differ() -> Told:
    """Two results of one attempt, once before it is applied and once after; and results nobody can accept."""
    world = Told()
    world.submit(draft("a"), draft("b"), draft("bad", outputs=("x",), retry=True))
    first = world.activate("a")
    world.ok(world.result(first))
    world.ok(world.result(first))
    more = (used(first, receipt="more", provider="shop", calls=2),)
    world.do(world.result(first, outcome="failed", failure="executor", message_code="timed_out", usage=more))
    world.do(c.ApplyResult(attempt=first.attempt))
    world.finish("b")
    world.do(world.result(world.attempt_of(world.order("b")), duration_us=9))
    world.finish("bad", artifacts=(artifact("y"),))
    world.advance(3 * SECOND)
    order = world.order("bad")
    world.ok(c.EndBackoff(order=order.order, expected=order.version))
    world.finish("bad", tree_empty=False)
    return world


def names_and_their_plans() -> Told:
    """One name with plans of one content and of others, orders outside plans, and a queue with priorities."""
    world = Told(Limits(name_open_plans_max=2))
    world.submit(draft("a"))
    world.submit(draft("a"))
    world.submit(draft("b", priority="high"), mode="new")
    world.do(c.SubmitPlan(**_again(draft("z"))))
    made = world.ok(c.SubmitOrder(order=draft("lone", priority="low", ceilings={"attempts": 1})))["order"]
    member = c.MemberDraft(outcomes=("applied", "failed"), order=made)
    world.ok(c.SubmitOrder(order=draft("behind", c.GroupDraft(kind="optional", members=(member,)))))
    world.ok(c.ReserveNext(worker=world.worker(), count=2))
    world.ok(c.ReserveNext(worker=world.worker(), count=9))
    return world


def _again(order: c.OrderDraft) -> dict[str, Any]:
    fields = {"name": "plan", "objective": "o", "content": DIGEST, "orders": (order,), "recovery": "replace"}
    return {**fields, "mode": "new"}


LIVES: dict[str, Callable[[], Told]] = {
    function.__name__: function
    for function in (
        everything_an_order_may_say,
        failures_and_their_retries,
        holders_that_go_silent,
        cancels_in_pages,
        budgets_that_run_short,
        clocks_that_jump,
        results_that_differ,
        names_and_their_plans,
    )
}
