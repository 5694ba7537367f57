"""Budget arithmetic against a second set of books (W18, C21).

Random ceilings on every level (scope, plan, order), in every dimension and in two currencies; several plans and lone
orders; workers whose reservations, activations, results, late results, releases, expiries, losses, cancels and
settlements interleave in any way, while ceilings change under them. The books below are kept from the records alone
and by the words of the lifecycle page; they share no arithmetic with the kernel. After every step:

- the kernel's accounts are those of the books, on every level, and every level is the sum of what lies below it;
- no hold was granted past what a ceiling left at that moment, and only a grant ever makes more stand held;
- nothing was granted or started below a level that names money while money of another currency was charged there;
- each hold ends once, a receipt is booked once in its hold, and what a hold gives back and charges is what it held;
- once everything has ended and every settlement is due, nothing is held anywhere.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from fencepost.core import commands as c
from fencepost.core.evolve import Fact
from fencepost.core.limits import Limits
from fencepost.core.machines import ENDED, LIVE
from fencepost.core.records import attempt as a
from fencepost.core.records import budget as b
from fencepost.core.records import plan as p
from fencepost.core.records.common import Usage
from fencepost.core.state import SCOPE, AttemptState, HoldState, OrderState, PlanState
from tests.conftest import profile_name
from tests.support.world import SECOND, World, draft, used

EUR, USD = "money_micros:EUR", "money_micros:USD"
SPENT = ("calls", "tokens_input", EUR, USD)
SMALL = Limits(page_max=4, late_records_per_attempt=4)
EXAMPLES = settings.get_profile(profile_name()).max_examples
pytestmark = pytest.mark.timeout(3_600 if profile_name() == "nightly" else 120)
NOTHING: Mapping[str, int] = {}

amounts = st.dictionaries(st.sampled_from(SPENT), st.integers(0, 20), max_size=3)


class Books:
    """Ceilings, holds and charges as the records say, by plain addition."""

    def __init__(self) -> None:
        self.ceilings: dict[str, dict[str, int]] = {SCOPE: {}}
        self.held: dict[str, Counter[str]] = {}  # hold -> what it holds
        self.charged: dict[str, Counter[str]] = {}  # hold -> what it was charged
        self.untold: dict[str, Counter[str]] = {}  # hold -> what was charged without saying how much
        self.accounts: dict[str, tuple[str, ...]] = {}  # hold -> its path
        self.hold_of: dict[str, str] = {}  # attempt -> hold
        self.endings: Counter[str] = Counter()
        self.receipts: dict[str, list[str]] = {}

    def of(self, account: str, kept: dict[str, Counter[str]]) -> Counter[str]:
        total: Counter[str] = Counter()
        for hold, amounts in kept.items():
            if account in self.accounts[hold]:
                total.update(amounts)
        return +total

    def book(self, fact: Fact) -> None:
        body: Any = fact.body
        before = {hold: Counter(held) for hold, held in self.held.items()}
        match body:
            case p.PlanRevision() | p.WorkOrderSpec():
                self.ceilings[fact.subject] = dict(body.ceilings)
            case b.BudgetCeilingSet():
                self.ceilings[fact.subject] = dict(body.ceilings)
            case a.AttemptReservation():
                self._grant(fact.subject, body)
                return
            case a.AttemptDescriptor():
                hold = self.hold_of[fact.subject]
                for account in self.accounts[hold]:
                    self._budgets_its_money(account, self.held[hold])
                self.held[hold]["attempts"] -= 1
                self.charged[hold]["attempts"] += 1
            case b.HoldReleased():
                self._end(fact.subject)
                assert not +self.charged[fact.subject], "what was never activated is charged"
            case b.UsageCharged():
                held = self.held[fact.subject]
                assert all(amount <= held[name] for name, amount in body.freed.items()), "more than it held is freed"
                held.subtract(body.freed)
                unknown = {name: before[fact.subject][name] for name in body.usage.unknown}
                self.charged[fact.subject].update(
                    {
                        name: max(body.usage.amounts.get(name, 0), unknown.get(name, 0))
                        for name in {*body.usage.amounts, *unknown}
                    }
                )
                self.untold[fact.subject].update(body.usage.unknown)
                self._take("the scope", (f"{body.usage.provider}:{body.usage.receipt}",))
            case b.HoldSettled():
                self._end(fact.subject)
                self.charged[fact.subject].update(body.charged)
                self.charged[fact.subject].subtract(body.credited)
                self._take(fact.subject, body.receipts)
            case b.HoldUnsettled():
                assert self.held[fact.subject].keys() >= set(body.dimensions) | set(body.freed)
                for dimension in body.freed:
                    self.held[fact.subject][dimension] = 0
            case b.HoldAdjusted():
                assert self.endings[fact.subject] == 1, "adjusted before its end"
                self.charged[fact.subject].update(body.charged)
                self._take(fact.subject, body.receipts)
        for hold, held in self.held.items():
            assert all(0 <= held[dimension] <= before[hold][dimension] for dimension in held), "held without a grant"

    def _grant(self, attempt: str, body: a.AttemptReservation) -> None:
        assert body.hold not in self.held, "a hold of that name exists"
        for account in body.accounts:
            ceiling, held, charged = self.ceilings[account], self.of(account, self.held), self.of(account, self.charged)
            for dimension, amount in body.amounts.items():
                if dimension in ceiling:
                    taken = held[dimension] + charged[dimension] + amount
                    assert taken <= ceiling[dimension] or not amount, f"{dimension} of {account} is passed"
            self._budgets_its_money(account, Counter(body.amounts))
        assert body.amounts["attempts"] == 1
        self.held[body.hold] = Counter(body.amounts)
        self.charged[body.hold] = Counter()
        self.untold[body.hold] = Counter()
        self.accounts[body.hold] = body.accounts
        self.hold_of[attempt] = body.hold

    def _budgets_its_money(self, account: str, hold: Counter[str]) -> None:
        """No attempt is granted or starts below a level that names money, with money or beside money that it refuses.

        Whatever has been charged there, in whatever currency: a level that names one refuses all others.
        """
        named = {dimension for dimension in self.ceilings[account] if dimension.startswith("money_micros:")}
        booked = hold + self.of(account, self.charged) + self.of(account, self.untold)
        spent = {name for name in booked if name.startswith("money_micros:")}
        assert not named or spent <= named, f"{sorted(spent - named)} is not budgeted in {account}"

    def _end(self, hold: str) -> None:
        self.endings[hold] += 1
        assert self.endings[hold] == 1, f"{hold} ends twice"
        self.held[hold].clear()

    def _take(self, hold: str, receipts: tuple[str, ...]) -> None:
        known = self.receipts.setdefault(hold, [])
        known += receipts
        assert len(known) == len(set(known)), f"a receipt is booked twice in {hold}"


class Budgets(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.world = World(SMALL)
        self.books = Books()
        self.booked = 0

    @initialize(
        scope=st.dictionaries(st.sampled_from(("attempts", *SPENT)), st.integers(1, 12), max_size=3),
        plans=st.lists(amounts, min_size=1, max_size=2),
        data=st.data(),
    )
    def begin(self, scope: dict[str, int], plans: list[dict[str, int]], data: st.DataObject) -> None:
        for number in (1, 2, 3):
            self.world.worker(number, host=f"host-{number}")
        for number, ceilings in enumerate(plans):
            drafts = [self._draft(data, task, ceilings) for task in ("a", "b", "c")]
            plan = {**ceilings, **({"attempts": 7} if data.draw(st.booleans()) else {})}
            command = c.SubmitPlan(
                name=f"plan-{number}",
                objective="",
                content="sha256:" + f"{number:064x}",
                orders=tuple(drafts),
                recovery="replace",
                mode="new",
                ceilings=plan,
            )
            self.do(command)
        self.do(c.SubmitOrder(order=self._draft(data, "alone", NOTHING)))
        if scope:  # what is there already need not fit into it
            self.do(c.SetBudget(account=SCOPE, ceilings=scope))

    def _draft(self, data: st.DataObject, task: str, plan: Mapping[str, int]) -> c.OrderDraft:
        ceilings = {name: min(amount, plan.get(name, amount)) for name, amount in data.draw(amounts).items()}
        named = {name for name in plan if name.startswith("money_micros:")}
        if named:
            ceilings = {name: each for name, each in ceilings.items() if name in named or name[0] != "m"}
        ceilings["attempts"] = data.draw(st.integers(1, 3))
        if data.draw(st.integers(0, 3)) == 0:
            ceilings["time_us"] = data.draw(st.integers(30, 100)) * SECOND
        order: c.OrderDraft = draft(task, retry=data.draw(st.booleans()), ceilings=ceilings)
        return order

    def do(self, command: Any) -> str:
        decided = self.world.do(command)
        for fact in self.world.facts[self.booked :]:
            self.books.book(fact)
        self.booked = len(self.world.facts)
        return "" if decided.refusal is None else decided.refusal.code

    def _all(self, kind: type[Any], *states: str) -> list[Any]:
        values = [value for value in self.world.live.values.values() if isinstance(value, kind)]
        return [value for value in values if not states or value.state in states]

    def attempts(self, *states: str) -> list[AttemptState]:
        return self._all(AttemptState, *states)

    def orders(self, *states: str) -> list[OrderState]:
        return self._all(OrderState, *states)

    # What workers do

    @rule(worker=st.sampled_from((1, 2, 3)), count=st.integers(1, 4))
    def reserve(self, worker: int, count: int) -> None:
        self.do(c.ReserveNext(worker=self.world.worker(worker), count=count))

    @precondition(lambda self: self.orders("ready"))
    @rule(data=st.data(), worker=st.sampled_from((1, 2, 3)))
    def reserve_one(self, data: st.DataObject, worker: int) -> None:
        order = data.draw(st.sampled_from(self.orders("ready")))
        self.do(c.Reserve(order=order.order, expected=order.version, worker=self.world.worker(worker)))

    @rule(worker=st.sampled_from((1, 2, 3)), count=st.integers(1, 3))
    def begin_work(self, worker: int, count: int) -> None:
        self.do(c.ReserveNext(worker=self.world.worker(worker), count=count))
        for attempt in self.attempts("reserved"):
            if attempt.worker == self.world.worker(worker):
                self.do(self.world.activation(attempt))

    @precondition(lambda self: self.attempts("reserved"))
    @rule(data=st.data(), releases=st.integers(0, 4))
    def activate(self, data: st.DataObject, releases: int) -> None:
        attempt = data.draw(st.sampled_from(self.attempts("reserved")))
        if releases == 0:
            self.do(c.ReleaseReservation(attempt=attempt.attempt, fence=attempt.fence))
        else:
            self.do(self.world.activation(attempt))

    @precondition(lambda self: any(each.input_set for each in self.attempts()))
    @rule(
        data=st.data(),
        outcome=st.sampled_from(["ok", "executor", "policy"]),
        spent=st.lists(amounts, max_size=3),
        unknown=st.lists(st.sampled_from(("time_us", *SPENT)), max_size=2, unique=True),
        seconds=st.integers(0, 40),
        applies=st.booleans(),
    )
    def report(
        self,
        data: st.DataObject,
        outcome: str,
        spent: list[dict[str, int]],
        unknown: list[str],
        seconds: int,
        applies: bool,
    ) -> None:
        """Of any attempt that was ever activated: in time, too late, or once more."""
        late = data.draw(st.integers(0, 3)) == 0
        known = [each for each in self.attempts() if each.input_set]
        attempt = data.draw(st.sampled_from(known if late else self.attempts(*LIVE) or known))
        usage = [used(attempt, time_us=seconds * SECOND)]
        first = data.draw(st.integers(0, 2))  # so that later results bring some of the same receipts again
        usage += [used(attempt, receipt=f"r{first + n}", provider="p", **each) for n, each in enumerate(spent)]
        if unknown:
            receipt = f"{attempt.attempt}:unknown"
            usage.append(Usage(receipt=receipt, provider="q", amounts={}, unknown=tuple(unknown)))
        changes: dict[str, Any] = {"usage": tuple(usage), "duration_us": seconds * SECOND}
        if outcome != "ok":
            changes |= {"outcome": "failed", "failure": outcome, "message_code": "timed_out"}
        self.do(self.world.result(attempt, **changes))
        if applies:
            self.do(c.ApplyResult(attempt=attempt.attempt))

    @precondition(lambda self: any(each.input_set for each in self.attempts()))
    @rule(
        data=st.data(),
        receipt=st.integers(0, 5),
        spent=amounts,
        unknown=st.lists(st.sampled_from(SPENT), max_size=1),
    )
    def charge(self, data: st.DataObject, receipt: int, spent: dict[str, int], unknown: list[str]) -> None:
        """While it runs, after its lease, after its end; some of the receipts are those of results."""
        attempt = data.draw(st.sampled_from([each for each in self.attempts() if each.input_set]))
        name = f"r{receipt}" if data.draw(st.booleans()) else f"{attempt.attempt}:{receipt}"
        self.do(self.world.charge(attempt, name, *unknown, provider="p", **spent))

    @precondition(lambda self: self.attempts("result_reported"))
    @rule(data=st.data())
    def apply(self, data: st.DataObject) -> None:
        self.do(c.ApplyResult(attempt=data.draw(st.sampled_from(self.attempts("result_reported"))).attempt))

    @precondition(lambda self: self.attempts(*LIVE, "reserved"))
    @rule(data=st.data(), stops=st.booleans(), seconds=st.integers(0, 9))
    def lose(self, data: st.DataObject, stops: bool, seconds: int) -> None:
        attempt = data.draw(st.sampled_from(self.attempts(*LIVE, "reserved")))
        if stops:
            self.do(
                c.ReportStopped(
                    reason="drained", attempt=attempt.attempt, fence=attempt.fence, duration_us=seconds * SECOND
                )
            )
            return
        proof = c.ProveHolderGone(
            attempt=attempt.attempt,
            fence=attempt.fence,
            host=attempt.host,
            boot_id=attempt.boot_id,
            basis="locks_free",
            evidence="free",
        )
        self.do(proof)

    # What people and sweepers do

    @rule(data=st.data(), ceilings=st.dictionaries(st.sampled_from(SPENT), st.integers(0, 40), max_size=3))
    def set_budget(self, data: st.DataObject, ceilings: dict[str, int]) -> None:
        if data.draw(st.integers(0, 3)):
            return  # not all the time
        accounts = [SCOPE, *(each.plan for each in self._all(PlanState)), *(each.order for each in self.orders())]
        self.do(c.SetBudget(account=data.draw(st.sampled_from(accounts)), ceilings=ceilings))

    @precondition(lambda self: any(each.state not in ENDED for each in self.orders()))
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        if data.draw(st.integers(0, 2)):
            return
        order = data.draw(st.sampled_from([each for each in self.orders() if each.state not in ENDED]))
        self.do(c.CancelOrder(order=order.order))

    def _lost(self) -> list[OrderState]:
        lost = self.orders("failed", "cancelled", "budget_exhausted")
        return [order for order in lost if order.replaced_by is None]

    @precondition(lambda self: self._lost() != [])
    @rule(data=st.data())
    def retry(self, data: st.DataObject) -> None:
        order = data.draw(st.sampled_from(self._lost()))
        self.do(c.RetryOrder(order=order.order))

    @rule(seconds=st.sampled_from((0, 1, 3, 3, 15)))
    def sweep(self, seconds: int) -> None:
        """Time passes, and whatever is due is done."""
        self._advance(seconds)
        self._sweep()

    def _advance(self, seconds: int) -> None:
        self.world.advance(seconds * SECOND)
        self.booked_observations()

    def booked_observations(self) -> None:
        for fact in self.world.facts[self.booked :]:
            self.books.book(fact)
        self.booked = len(self.world.facts)

    def _sweep(self) -> None:
        world, now_us = self.world, self.world.now_us
        values = world.live.values
        for row in world.due("reservation", now_us, 50, None, None):
            self.do(world.expiry(values[row.subject]))
        for row in world.due("lease", now_us, 50, None, None):
            self.do(world.expiry(values[row.subject]))
        for row in world.due("retry", now_us, 50, None, None):
            self.do(c.EndBackoff(order=row.subject, expected=values[row.subject].version))
        for row in world.due("budget", now_us, 50, None, None):
            self.do(c.Reexamine(order=row.subject, expected=values[row.subject].version))
        for row in world.due("unsettled", now_us, 50, None, None):
            self.do(c.SettleHold(hold=row.subject, expected=values[row.subject].version))

    # What always holds

    @invariant()
    def the_accounts_are_those_of_the_books(self) -> None:
        values, books = self.world.live.values, self.books
        for account, ceiling in books.ceilings.items():
            known = values[account].account
            assert known.ceiling == ceiling, account
            assert +Counter(known.held) == books.of(account, books.held), f"held of {account}"
            assert +Counter(known.charged) == books.of(account, books.charged), f"charged of {account}"
            assert min([0, *known.held.values(), *known.charged.values()]) == 0, f"below zero in {account}"

    @invariant()
    def every_level_is_the_sum_of_what_lies_below(self) -> None:
        orders = self.orders()
        for kept in (self.books.held, self.books.charged):
            total: Counter[str] = Counter()
            for order in orders:
                total.update(self.books.of(order.order, kept))
            assert self.books.of(SCOPE, kept) == +total
            for plan in self._all(PlanState):
                mine: Counter[str] = Counter()
                for order in orders:
                    mine.update(self.books.of(order.order, kept) if order.plan == plan.plan else {})
                assert self.books.of(plan.plan, kept) == +mine

    @invariant()
    def a_hold_stands_open_exactly_until_its_end(self) -> None:
        for hold in self._all(HoldState):
            over = hold.state not in ("held", "unsettled")
            assert over == (self.books.endings[hold.hold] == 1), f"{hold.hold} is {hold.state}"
            assert not over or not hold.held

    def teardown(self) -> None:
        """Everybody goes home: whatever is still open is reported, cancelled or proved, and nothing stays held."""
        for attempt in self.attempts("result_reported"):
            self.do(c.ApplyResult(attempt=attempt.attempt))
        for order in self.orders():
            if order.state not in ENDED:
                self.do(c.CancelOrder(order=order.order))
        for _ in range(4):
            self._advance(40)
            self._sweep()
        assert not self.books.of(SCOPE, self.books.held), "something is held and nobody will ever end it"
        self.world.check()


TestBudgets = Budgets.TestCase
TestBudgets.settings = settings(max_examples=max(EXAMPLES // 2, 10), stateful_step_count=30)
