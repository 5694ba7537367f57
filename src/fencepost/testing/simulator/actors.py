"""Who takes part in a run: clients with what they want, and somebody who repeats, reorders and lies."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from random import Random
from typing import Any

import msgspec

from fencepost.core.commands import (
    AnswerOrder,
    AnyCommand,
    ApplyResult,
    CancelOrder,
    CancelPlan,
    ExpireAttempt,
    ObserveClock,
    ReportResult,
    Request,
    RetryOrder,
    SetBudget,
)
from fencepost.core.index import ATTEMPT, LEASE, PLAN, RESERVATION
from fencepost.core.machines import ENDED
from fencepost.core.state import AttemptState, OrderState, PlanState
from fencepost.kernel.kernel import Kernel
from fencepost.ports.errors import StorageError
from fencepost.testing.simulator.checks import Checks
from fencepost.testing.simulator.faults import PER_MILLION, STRANGER, Faults
from fencepost.testing.simulator.loop import Loop
from fencepost.testing.simulator.scenario import Action, Scenario, plan_of, single_of
from fencepost.testing.simulator.speech import Said

AGAIN_US = 300_000
ANSWER_US = 2_000_000
ANSWER_SLOW_US = 30_000_000


class Wants:
    """What one client asks for, in order. It outlives the client's process: a user tries again."""

    def __init__(self, client: int, scenario: Scenario, faults: Faults) -> None:
        self.client = client
        self._faults = faults
        self.actions = [action for action in scenario.actions if action.client == client]
        self._submissions = {action.plan: action for action in scenario.actions if action.kind == "submit"}
        self.done = 0
        self._asked: AnyCommand | None = None  # what the next action came to: a repetition is the same, to the byte

    @property
    def finished(self) -> bool:
        return self.done == len(self.actions)

    def run(self, kernel: Kernel, loop: Loop) -> None:
        """Ask for what is left, each under a key of its own, until it is answered."""
        while not self.finished:
            action = self.actions[self.done]
            if action.at_us > loop.now_us:
                loop.wait(action.at_us)
            try:
                self._asked = self._asked or self._command(kernel, action)
                if self._asked is not None:
                    request = kernel.request("human", self._asked, f"client {self.client} action {self.done}")
                    if self._faults.hits("request_doubled"):
                        loop.spawn(loop.me().process, partial(_send, kernel, request), "double")
                    kernel.write(request)
            except StorageError:
                loop.wait(loop.now_us + AGAIN_US)
                continue
            if self._asked is not None and self._faults.hits("answer_lost"):
                loop.wait(loop.now_us + AGAIN_US)
                continue
            self.done += 1
            self._asked = None

    def _command(self, kernel: Kernel, action: Action) -> AnyCommand | None:
        """The command, None when what it is about is not there."""
        if action.kind == "submit":
            return plan_of(action)
        if action.kind == "single":
            return single_of(action)
        if action.kind in ("continue", "again"):
            # The same plan once more, from somebody else: another process, or a user who tries again.
            submission = self._submissions.get(action.plan)
            return None if submission is None else plan_of(submission, action.kind)
        if action.kind == "scope_budget":
            return SetBudget(account="scope", ceilings={name: amount * 4 for name, amount in action.ceilings})
        with kernel.reader.look() as look:
            plan = look.name(f"plan-{action.plan}")
            if plan is None:
                return None
            orders = look.orders(plan.newest)
        order = orders[action.order % len(orders)]
        match action.kind:
            case "cancel_plan":
                return CancelPlan(plan=plan.newest)
            case "cancel_order":
                return CancelOrder(order=order.order, note="no more of it" if action.order % 2 else "")
            case "retry":
                order = next(filter(_left_something, orders), order)
                anew = action.order % 4 == 3
                return RetryOrder(order=order.order, with_dependents=action.with_dependents, from_start=anew)
            case "set_budget":
                account = plan.newest if action.order % 2 else order.order
                return SetBudget(account=account, ceilings=dict(action.ceilings))
            case _:
                raise ValueError(f"nobody knows how to ask for {action.kind}")


def _left_something(order: OrderState) -> bool:
    """Whether a replacement could go on from what the order has saved; few have, so that a person looks for them."""
    ended = order.state in ENDED and order.state != "applied"
    return ended and order.checkpoint_number > 0 and order.replaced_by is None and order.parent is None


def _send(kernel: Kernel, request: Request) -> None:
    """The same request once more, of which nobody waits for the answer."""
    with suppress(StorageError):
        kernel.write(request)


class People:
    """Whoever answers what orders ask. `asked` is told of every question, as a person would be."""

    def __init__(self, loop: Loop, faults: Faults, said: Said) -> None:
        self._loop = loop
        self._faults = faults
        self._said = said
        self._open: dict[tuple[str, str], int] = {}  # (order, question) -> when it is answered

    def asked(self, order: str, question: str) -> None:
        slow_us = ANSWER_SLOW_US if self._faults.hits("answer_slow") else ANSWER_US
        due_us = self._loop.now_us + int(self._loop.chance.random() * slow_us)
        self._open.setdefault((order, question), due_us)

    def run(self, kernel: Kernel) -> None:
        while True:
            now_us = self._loop.now_us
            for (order, question), due_us in list(self._open.items()):
                if due_us <= now_us:
                    self._answer(kernel, order, question)
            self._loop.wait(now_us + ANSWER_US // 2)

    def _answer(self, kernel: Kernel, order: str, question: str) -> None:
        value = f"answer to {question}"
        with suppress(StorageError):
            if self._faults.hits("answer_to_another"):
                kernel.write(kernel.request("human", AnswerOrder(order=order, value="?", question="other")))
            receipt = kernel.write(kernel.request("human", AnswerOrder(order=order, value=value, question=question)))
            if receipt.ok:
                self._said.answered(order, question, value)
            self._open.pop((order, question), None)
            if self._faults.hits("answer_doubled"):
                kernel.write(kernel.request("human", AnswerOrder(order=order, value="second", question=question)))


class Stranger:
    """Sends what others have sent, again, late and changed, and what nobody should believe."""

    def __init__(self, checks: Checks, chance: Random, faults: Faults) -> None:
        self._checks = checks
        self._chance = chance
        self._faults = faults
        ways: dict[str, Callable[[Kernel], Request | None]] = {
            "message_repeated": self._again,
            "key_used_twice": self._collide,
            "command_doubled": self._fresh,
            "report_doubled": self._report,
            "lie_about_a_fence": self._stale,
            "lie_about_a_worker": self._foreign,
            "lie_about_a_result": self._other_result,
            "expiry_too_early": self._expire,
            "result_applied_again": self._apply,
            "principal_not_permitted": self._denied,
            "old_reading": self._old_reading,
        }
        self._ways = [(name, getattr(faults.rates, name), ways[name]) for name in STRANGER]
        self._whole = max(sum(rate for _, rate, _ in self._ways), PER_MILLION)

    def run(self, kernel: Kernel, loop: Loop, every_us: int, over: Callable[[], bool]) -> None:
        while not over():
            loop.wait(loop.now_us + int(self._chance.random() * 2 * every_us))
            left = self._chance.random() * self._whole
            for name, rate, way in self._ways:
                left -= rate
                if left < 0:
                    self._send(kernel, name, way)
                    break

    def _send(self, kernel: Kernel, name: str, way: Callable[[Kernel], Request | None]) -> None:
        with suppress(StorageError):
            request = way(kernel)
            if request is not None:
                kernel.write(request)
                self._faults.counts[name] += 1

    def _any(self, field: str = "", tries: int = 8) -> Request | None:
        requests = self._checks.requests
        for _ in range(tries):
            if not requests:
                return None
            request = requests[int(self._chance.random() * len(requests))]
            if not field or hasattr(request.command, field):
                return request
        return None

    def _key(self) -> str:
        return f"stranger {self._chance.getrandbits(60)}"

    def _again(self, kernel: Kernel) -> Request | None:
        return self._any()

    def _collide(self, kernel: Kernel) -> Request | None:
        one, other = self._any(), self._any()
        return None if one is None or other is None else msgspec.structs.replace(one, key=other.key)

    def _fresh(self, kernel: Kernel) -> Request | None:
        request = self._any()
        return None if request is None else msgspec.structs.replace(request, key=self._key())

    def _report(self, kernel: Kernel) -> Request | None:
        requests = [request for request in self._checks.requests if isinstance(request.command, ReportResult)]
        if not requests:
            return None
        return msgspec.structs.replace(self._chance.choice(requests), key=self._key())

    def _changed(self, field: str, change: Callable[[Any], Any]) -> Request | None:
        request = self._any(field, tries=40)
        if request is None:
            return None
        command: Any = request.command
        changed = msgspec.structs.replace(command, **{field: change(getattr(command, field))})
        return msgspec.structs.replace(request, command=changed, key=self._key())

    def _stale(self, kernel: Kernel) -> Request | None:
        return self._changed("fence", lambda fence: max(fence + self._chance.choice((-1, 1, 2)), 1))

    def _foreign(self, kernel: Kernel) -> Request | None:
        other = self._any("worker")
        worker = "worker_" + "f" * 32 if other is None else getattr(other.command, "worker", "")
        return self._changed("worker", lambda _: worker)

    def _other_result(self, kernel: Kernel) -> Request | None:
        def lie(facts: Any) -> Any:
            if facts.outcome == "failed":
                return msgspec.structs.replace(facts, outcome="succeeded", failure=None, exit_code=0, message_code="")
            return msgspec.structs.replace(
                facts, outcome="failed", failure="executor", exit_code=1, message_code="exit_code_unexpected"
            )

        return self._changed("facts", lie)

    def _live(self, kernel: Kernel) -> AttemptState | None:
        with kernel.reader.look() as look:
            rows = [*look.due(LEASE, limit=20), *look.due(RESERVATION, limit=20)]
            if not rows:
                return None
            value = look.get(self._chance.choice(rows).subject)
        return value if isinstance(value, AttemptState) else None

    def _expire(self, kernel: Kernel) -> Request | None:
        attempt = self._live(kernel)
        if attempt is None:
            return None
        return kernel.request("dispatcher", ExpireAttempt(attempt=attempt.attempt, expected=attempt.version))

    def _apply(self, kernel: Kernel) -> Request | None:
        with kernel.reader.look() as look:
            plans = look.due(PLAN, limit=20)
            orders: list[OrderState] = []
            if plans:
                plan = look.get(self._chance.choice(plans).subject)
                orders = look.orders(plan.plan) if isinstance(plan, PlanState) else []
            rows = look.due(ATTEMPT, limit=20, group=self._chance.choice(orders).order) if orders else []
        if not rows:
            return None
        return kernel.request("reducer", ApplyResult(attempt=self._chance.choice(rows).subject))

    def _denied(self, kernel: Kernel) -> Request | None:
        request = self._any()
        if request is None or isinstance(request.command, ObserveClock):
            return None
        other = kernel.identity(self._chance.choice(("verifier", "sampler", "scheduler", "executor")))
        return msgspec.structs.replace(request, key=self._key(), principal=other.principal, grant=other.grant)

    def _old_reading(self, kernel: Kernel) -> Request | None:
        return self._changed("reading", lambda reading: reading)
