"""Random lives: several workers, budgets on three levels, a clock that jumps, cancels and retries; what always holds.

After every step the whole state is checked (`World.check`): accounts balance with their holds, at most one fence of an
order is live, reasons are of the table, plans count right, index rows are those of the values, and every record folded
a second time from nothing gives the same state.
"""

from __future__ import annotations

from typing import Any, get_args

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from fencepost.core import commands as c
from fencepost.core.limits import Limits
from fencepost.core.machines import ENDED, LIVE
from fencepost.core.reasons import REASONS
from fencepost.core.records.attempt import AttemptReservation
from fencepost.core.records.common import StoppedFor, Usage
from fencepost.core.records.plan import Acceptance
from fencepost.core.state import SCOPE, AttemptState, HoldState, OrderState, PlanState
from tests.support.world import SECOND, World, draft, group, used

TASKS = ("a", "b", "c", "d", "e")
WORKERS = (1, 2, 3)
STOPS: tuple[StoppedFor, ...] = get_args(StoppedFor)
SMALL = Limits(fanout_per_batch=2, cancel_per_batch=2, page_max=3, late_records_per_attempt=3, yields_max=2)


@st.composite
def plans(draw: st.DrawFn) -> tuple[list[c.OrderDraft], dict[str, int]]:
    orders = []
    for place, task in enumerate(TASKS[: draw(st.integers(2, 5))]):
        needs = []
        if place:
            for _ in range(draw(st.integers(0, 2))):
                members = draw(st.lists(st.sampled_from(TASKS[:place]), min_size=1, max_size=3, unique=True))
                kind = draw(st.sampled_from(["required", "optional", "alternative"]))
                outcomes = draw(st.sampled_from([("applied",), ("applied", "failed"), ("failed", "cancelled")]))
                needs.append(group(kind, *members, outcomes=outcomes))
        ceilings = {"attempts": draw(st.integers(1, 3))}
        if draw(st.booleans()):
            ceilings["calls"] = draw(st.integers(0, 5))
        if draw(st.booleans()):
            ceilings["time_us"] = draw(st.integers(30, 90)) * SECOND
        verify = ("check",) if draw(st.integers(0, 3)) == 0 else ()
        orders.append(
            draft(
                task,
                *needs,
                ceilings=ceilings,
                retry=draw(st.booleans()),
                accept=Acceptance(verify=verify),
                may_fail=draw(st.booleans()),
            )
        )
    plan: dict[str, int] = {}
    if draw(st.booleans()):
        plan["attempts"] = draw(st.integers(len(orders), 8))
        for place, order in enumerate(orders):
            ceilings = {**order.ceilings, "attempts": min(order.ceilings["attempts"], plan["attempts"])}
            orders[place] = draft(
                order.task,
                *order.groups,
                **{"ceilings": ceilings, "retry": order.retry, "accept": order.accept, "may_fail": order.may_fail},
            )
    if draw(st.booleans()):
        plan["time_us"] = draw(st.integers(100, 200)) * SECOND
    if draw(st.booleans()):
        plan["calls"] = draw(st.integers(5, 9))
    return orders, plan


class Lives(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.world = World(SMALL)
        self.ended: dict[str, tuple[str, str]] = {}
        self.seen = 0
        self.booked: set[int] = set()  # receipts of the shop

    @initialize(plan=plans(), scope=st.sampled_from([{}, {"time_us": 150 * SECOND}, {"calls": 6, "attempts": 6}]))
    def begin(self, plan: tuple[list[c.OrderDraft], dict[str, int]], scope: dict[str, int]) -> None:
        orders, ceilings = plan
        self.world.submit(*orders, ceilings=ceilings, deadline_us=300 * SECOND)
        if scope:
            self.world.ok(c.SetBudget(account=SCOPE, ceilings=scope))
        for number in WORKERS:
            self.world.worker(number, host=f"host-{number}")

    def orders(self, *states: str) -> list[OrderState]:
        found = [value for value in self.world.live.values.values() if isinstance(value, OrderState)]
        return [order for order in found if not states or order.state in states]

    def attempts(self, *states: str) -> list[AttemptState]:
        found = [value for value in self.world.live.values.values() if isinstance(value, AttemptState)]
        return [attempt for attempt in found if not states or attempt.state in states]

    def do(self, command: Any) -> str:
        decided = self.world.do(command)
        code = "" if decided.refusal is None else decided.refusal.code
        if code and code not in REASONS:
            raise AssertionError(f"{code} is not registered")
        return code

    def pick(self, data: st.DataObject, found: list[Any]) -> Any:
        return data.draw(st.sampled_from(found))

    # Workers

    @rule(data=st.data(), worker=st.sampled_from(WORKERS))
    def reserve(self, data: st.DataObject, worker: int) -> None:
        order = self.pick(data, self.orders())
        self.do(c.Reserve(order=order.order, expected=order.version, worker=self.world.worker(worker)))

    @rule(worker=st.sampled_from(WORKERS), count=st.integers(1, 3))
    def reserve_next(self, worker: int, count: int) -> None:
        self.do(c.ReserveNext(worker=self.world.worker(worker), count=count))

    @precondition(lambda self: self.attempts("reserved"))
    @rule(data=st.data(), starts=st.booleans())
    def activate(self, data: st.DataObject, starts: bool) -> None:
        attempt = self.pick(data, self.attempts("reserved"))
        code = self.do(self.world.activation(attempt))
        if not code and starts:
            self.do(self.world.event(self.world.live.values[attempt.attempt]))

    @precondition(lambda self: self.attempts())
    @rule(data=st.data())
    def activate_again_or_release(self, data: st.DataObject) -> None:
        attempt = self.pick(data, self.attempts())
        if data.draw(st.booleans()):
            self.do(self.world.activation(attempt))
        else:
            self.do(c.ReleaseReservation(attempt=attempt.attempt, fence=attempt.fence))

    @precondition(lambda self: self.attempts())
    @rule(data=st.data(), worker=st.sampled_from(WORKERS))
    def renew(self, data: st.DataObject, worker: int) -> None:
        found = data.draw(st.lists(st.sampled_from(self.attempts()), max_size=3))
        held = tuple(c.Held(attempt=attempt.attempt, fence=attempt.fence) for attempt in found)
        self.do(c.RenewLeases(worker=self.world.worker(worker), attempts=held))

    @precondition(lambda self: self.attempts())
    @rule(
        data=st.data(),
        outcome=st.sampled_from(["ok", "executor", "validation", "policy", "exit"]),
        seconds=st.integers(0, 70),
        calls=st.integers(0, 9),
        unknown=st.booleans(),
    )
    def report(self, data: st.DataObject, outcome: str, seconds: int, calls: int, unknown: bool) -> None:
        attempt = self.pick(data, [a for a in self.attempts() if a.input_set] or self.attempts())
        usage = [used(attempt, time_us=seconds * SECOND)] if seconds else []
        if calls:
            usage.append(used(attempt, receipt=f"calls-{calls}", provider="gateway", calls=calls))
        changes: dict[str, Any] = {"usage": tuple(usage)}
        if outcome in ("executor", "validation", "policy"):
            changes |= {"outcome": "failed", "failure": outcome, "message_code": "timed_out"}
        if outcome == "exit":
            changes |= {"exit_code": 4}
        if unknown and usage:
            changes["usage"] = (*usage[:-1], _unknown(usage[-1]))
        self.do(self.world.result(attempt, self.world.facts_of(attempt, duration_us=seconds * SECOND, **changes)))

    # What programs say while they run, and what they wait for

    def speaker(self, data: st.DataObject) -> AttemptState:
        found: AttemptState = self.pick(data, self.attempts("running") or self.attempts(*LIVE) or self.attempts())
        return found

    @precondition(lambda self: self.attempts())
    @rule(data=st.data(), behind=st.sampled_from([0, 0, 0, 1]), kind=st.sampled_from(["blob/1", "steps/1"]))
    def checkpoint(self, data: st.DataObject, behind: int, kind: str) -> None:
        attempt = self.speaker(data)
        before: OrderState = self.world.live.values[attempt.order]
        builds_on = max(before.checkpoint_number - behind, 0)
        code = self.do(self.world.checkpoint(attempt, builds_on=builds_on, kind=kind))
        after: OrderState = self.world.live.values[attempt.order]
        assert after.checkpoint_number == before.checkpoint_number + (not code), "none is lost, none overtakes"

    @precondition(lambda self: self.attempts())
    @rule(data=st.data())
    def keep(self, data: st.DataObject) -> None:
        self.do(self.world.kept(self.speaker(data)))

    @precondition(lambda self: self.attempts())
    @rule(data=st.data(), receipt=st.integers(0, 4), calls=st.integers(1, 2), unknown=st.sampled_from([(), ("calls",)]))
    def charge(self, data: st.DataObject, receipt: int, calls: int, unknown: tuple[str, ...]) -> None:
        attempt = self.pick(data, self.attempts())
        before = self.world.live.values[SCOPE].account.charged.get("calls", 0)
        self.do(self.world.charge(attempt, f"r-{receipt}", *unknown, calls=calls))
        charged = self.world.live.values[SCOPE].account.charged.get("calls", 0) - before
        assert not charged or receipt not in self.booked, "a receipt is booked once"
        if charged:
            self.booked.add(receipt)

    @precondition(lambda self: self.attempts("running"))
    @rule(
        data=st.data(), name=st.sampled_from(["part", "rest"]), run=st.sampled_from([("true",), ("true",), ("false",)])
    )
    def child(self, data: st.DataObject, name: str, run: tuple[str, ...]) -> None:
        attempt = self.speaker(data)
        before: OrderState = self.world.live.values[attempt.order]
        code = self.do(self.world.child(attempt, draft(name, attempts=1, retry=False, run=run)))
        after: OrderState = self.world.live.values[attempt.order]
        assert name not in before.children or after.children == before.children
        if not code:
            child: OrderState = self.world.live.values[after.children[name]]
            assert child.accounts == (*after.accounts, child.order) and child.plan == after.plan

    @precondition(lambda self: self.attempts("running"))
    @rule(data=st.data(), question=st.sampled_from(["", "go", "size"]), after=st.integers(0, 9), all_of=st.booleans())
    def yields(self, data: st.DataObject, question: str, after: int, all_of: bool) -> None:
        attempt = self.speaker(data)
        order: OrderState = self.world.live.values[attempt.order]
        orders = tuple(order.children.values()) if all_of else ()
        wait = {"question": question, "orders": orders, "after_us": after * SECOND}
        code = self.do(self.world.yielding(attempt, **wait))
        if not code:
            assert not self.world.live.values[attempt.hold].held, "who waits holds nothing"

    @precondition(lambda self: self.orders("waiting"))
    @rule(data=st.data(), question=st.sampled_from(["", "go", "size"]))
    def answer(self, data: st.DataObject, question: str) -> None:
        order = self.pick(data, self.orders("waiting"))
        code = self.do(c.AnswerOrder(order=order.order, value="yes", question=question))
        assert (self.world.live.values[order.order].state == "ready") == (not code)

    @precondition(lambda self: self.attempts("result_reported"))
    @rule(data=st.data(), outcome=st.sampled_from(["passed", "failed", "error"]))
    def verify(self, data: st.DataObject, outcome: Any) -> None:
        attempt = self.pick(data, self.attempts("result_reported"))
        self.do(
            c.RecordVerification(attempt=attempt.attempt, result=attempt.result, outcome=outcome, duration_us=SECOND)
        )

    @precondition(lambda self: self.attempts("result_reported"))
    @rule(data=st.data())
    def apply(self, data: st.DataObject) -> None:
        self.do(c.ApplyResult(attempt=self.pick(data, self.attempts("result_reported")).attempt))

    @precondition(lambda self: self.attempts())
    @rule(data=st.data(), seconds=st.integers(0, 20), reason=st.sampled_from(STOPS))
    def stop(self, data: st.DataObject, seconds: int, reason: StoppedFor) -> None:
        attempt = self.pick(data, self.attempts(*LIVE) or self.attempts())
        self.do(
            c.ReportStopped(reason=reason, attempt=attempt.attempt, fence=attempt.fence, duration_us=seconds * SECOND)
        )

    @precondition(lambda self: self.attempts(*LIVE, "reserved"))
    @rule(data=st.data())
    def holder_gone(self, data: st.DataObject) -> None:
        attempt = self.pick(data, self.attempts(*LIVE, "reserved"))
        code = self.do(
            c.ProveHolderGone(
                attempt=attempt.attempt,
                fence=attempt.fence,
                host=attempt.host,
                boot_id=attempt.boot_id,
                basis="locks_free",
                evidence="free",
            )
        )
        order = self.world.live.values[attempt.order]
        assert code == "" and order.state in ("ready", "budget_exhausted"), "a killed attempt wedges nothing"
        assert not self.world.live.values[attempt.hold].held, "its hold is over"

    # Time

    @rule(seconds=st.integers(1, 12))
    def time_passes(self, seconds: int) -> None:
        if self.world.clock.state == "running":
            self.world.advance(seconds * SECOND)

    @rule(seconds=st.integers(6, 60))
    def nobody_looks(self, seconds: int) -> None:
        if self.world.clock.state == "running":
            self.world.advance(seconds * SECOND, step_us=60 * SECOND)

    @rule(down=st.integers(0, 300_000))
    def restart(self, down: int) -> None:
        before = self.world.now_us
        self.world.restart(down * SECOND)
        assert self.world.now_us == before, "a restart never advances time"

    @rule(step=st.integers(-90, 90), stays=st.integers(0, 5))
    def utc_steps(self, step: int, stays: int) -> None:
        """Small steps are absorbed; a greater one is quarantined, and mostly the test goes on as if it had not been."""
        before = self.world.now_us
        other = self.world.fork()
        self.world.utc_us += step * SECOND
        self.world.tick_us += 1
        self.world.observe()
        assert 0 <= self.world.now_us - before <= 1
        if self.world.clock.state != "running":
            self.world.check()
            assert self.world.now_us == before
            self.world = self.world if stays == 0 else other

    # Sweepers and people

    @rule()
    def sweep(self) -> None:
        world = self.world
        now_us = world.now_us
        for stage, make in (
            ("reservation", lambda row: world.expiry(world.live.values[row.subject])),
            ("lease", lambda row: world.expiry(world.live.values[row.subject])),
            ("wait", lambda row: c.EndWait(order=row.subject, expected=world.live.values[row.subject].version)),
            ("retry", lambda row: c.EndBackoff(order=row.subject, expected=world.live.values[row.subject].version)),
            ("budget", lambda row: c.Reexamine(order=row.subject, expected=world.live.values[row.subject].version)),
            ("unsettled", lambda row: c.SettleHold(hold=row.subject, expected=world.live.values[row.subject].version)),
            (
                "deadline",
                lambda row: c.EnforceDeadline(plan=row.subject, expected=world.live.values[row.subject].version),
            ),
            ("tell", lambda row: c.TellDependents(order=row.subject)),
            ("revise", lambda row: c.AdvanceCancel(plan=row.subject)),
        ):
            for row in world.due(stage, now_us, 3, None, None):
                self.do(make(row))

    @rule(data=st.data())
    def cancel_order(self, data: st.DataObject) -> None:
        order = self.pick(data, self.orders())
        code = self.do(c.CancelOrder(order=order.order))
        after = self.world.live.values[order.order]
        assert code == ("order_ended" if order.state in ENDED else "")
        assert code or after.state == "cancelled"

    @rule(odds=st.integers(0, 9))
    def cancel_plan(self, odds: int) -> None:
        plan = next(value for value in self.world.live.values.values() if isinstance(value, PlanState))
        if odds == 0:
            self.do(c.CancelPlan(plan=plan.plan))

    @rule(data=st.data(), dependents=st.booleans())
    def retry(self, data: st.DataObject, dependents: bool) -> None:
        order = self.pick(data, self.orders())
        self.do(c.RetryOrder(order=order.order, with_dependents=dependents))

    @rule(data=st.data(), ceilings=st.sampled_from([{}, {"attempts": 2}, {"calls": 3}, {"time_us": 90 * SECOND}]))
    def set_budget(self, data: st.DataObject, ceilings: dict[str, int]) -> None:
        accounts = [SCOPE, *(order.order for order in self.orders())]
        self.do(c.SetBudget(account=self.pick(data, accounts), ceilings=ceilings))

    # What always holds

    @invariant()
    def the_state_is_sound(self) -> None:
        self.world.check()

    @invariant()
    def nobody_waits_for_what_has_come(self) -> None:
        for order in self.orders("waiting"):
            wait = order.wait
            assert wait is not None and wait.question not in order.answers
            ended = [self.world.live.values[name].state in ENDED for name in wait.orders]
            assert not ended or not all(ended) or self.world.due("tell", self.world.now_us, 99, None, None)

    @invariant()
    def ended_orders_never_move(self) -> None:
        for order in self.orders(*ENDED):
            known = self.ended.setdefault(order.order, (order.state, order.reason))
            assert known == (order.state, order.reason)

    @invariant()
    def no_hold_was_granted_past_a_ceiling(self) -> None:
        """Told from the account's own figures right behind a reservation, whoever granted it."""
        fresh = self.world.facts[min(self.seen, len(self.world.facts)) :]
        self.seen = len(self.world.facts)
        if not fresh or not isinstance(fresh[-1].body, AttemptReservation):
            return
        for subject in fresh[-1].body.accounts:
            account = self.world.live.values[subject].account
            for dimension in fresh[-1].body.amounts:
                ceiling = account.ceiling.get(dimension)
                taken = account.held.get(dimension, 0) + account.charged.get(dimension, 0)
                assert ceiling is None or taken <= ceiling, f"{dimension} of {subject}"

    @invariant()
    def fences_are_never_reused(self) -> None:
        fences = [(attempt.order, attempt.fence) for attempt in self.attempts()]
        assert len(fences) == len(set(fences))
        holds = [value for value in self.world.live.values.values() if isinstance(value, HoldState)]
        assert len(holds) == len(fences), "one hold for each attempt"


def _unknown(usage: Usage) -> Usage:
    return Usage(receipt=usage.receipt, provider=usage.provider, amounts={}, unknown=("time_us", "calls"))


TestLives = Lives.TestCase
TestLives.settings = settings(stateful_step_count=40)
