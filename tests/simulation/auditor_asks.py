"""Every command that there is, asked at random: as services ask it, and spoiled in one way or another."""

from __future__ import annotations

from typing import Any

import msgspec

from fencepost.core import commands as c
from fencepost.core.decide.dispatch import input_set
from fencepost.core.ids import sha256_of
from fencepost.core.matching import handed_files
from fencepost.core.records.common import ArtifactRef, LogRef, StoppedFor
from fencepost.core.state import OrderState
from fencepost.kernel.kernel import Kernel
from fencepost.kernel.read import Look
from fencepost.testing.fakes import FakeClock
from tests.kernel.support import ENVIRONMENT, INPUTS
from tests.simulation.auditor_drafts import SECOND_US
from tests.simulation.auditor_inside import Inside


class Asks(Inside):
    """Asks a kernel. `ids` are the subjects that have been seen, by prefix."""

    kernel: Kernel
    clock: FakeClock
    other_clock: FakeClock
    ids: dict[str, list[str]]
    requests: list[c.Request]
    genesis: c.Request
    may_be_wrong: bool  # whether the clock may contradict itself, after which nothing new starts

    def send(self, request: c.Request) -> None:
        raise NotImplementedError

    def ask(self, who: str, command: c.AnyCommand) -> None:
        """A command as its usual principal asks it, now and then spoiled in one way."""
        roll = self.random.random()
        if roll < 0.08:
            command = self._spoiled(command)
        if self.random.random() < 0.02:
            who = self.random.choice(("human", "human", "executor", "reducer", "verifier", "prover"))
        request = self.kernel.request(who, command)
        if 0.08 <= roll < 0.1:
            changes: dict[str, Any] = self.random.choice(
                (
                    {"principal": "principal_" + "f" * 32},
                    {"grant": sha256_of(b"none")},
                    {"grant": self.kernel.identity(self.random.choice(("executor", "reducer", "human"))).grant},
                    {"principal": self.kernel.identity("scheduler").principal},
                )
            )
            request = msgspec.structs.replace(request, **changes)
        elif 0.1 <= roll < 0.13 and self.requests:
            request = msgspec.structs.replace(request, key=self.random.choice(self.requests).key)
        self.requests.append(request)
        self.send(request)

    def _spoiled(self, command: c.AnyCommand) -> c.AnyCommand:
        """The same with one field that does not fit."""
        changes: dict[str, Any] = {}
        for name in command.__struct_fields__:
            value = getattr(command, name)
            if name in ("fence", "expected") and isinstance(value, int):
                changes[name] = max(value + self.random.choice((-1, 1)), 1)
            elif name == "worker":
                changes[name] = self.any("worker")
            elif name in ("order", "attempt", "plan", "hold") and isinstance(value, str):
                changes[name] = self.random.choice((self.any(name), f"{name}_" + "e" * 32, self.any("order")))
            elif name in ("spec", "input_set", "result", "environment"):
                changes[name] = sha256_of(b"other")
            elif name in ("executor", "mode", "host", "boot_id", "account"):
                changes[name] = "other"
            elif name in ("duration_us",):
                changes[name] = 2**50
        if not changes:
            return command
        name = self.random.choice(sorted(changes))
        return msgspec.structs.replace(command, **{name: changes[name]})

    def any(self, prefix: str) -> str:
        known = self.ids[prefix]
        return self.random.choice(known[-40:] if self.random.random() < 0.8 else known) if known else f"{prefix}_none"

    def value(self, subject: str) -> Any:
        with self.kernel.reader.look() as look:
            return look.get(subject)

    def pick(self, prefix: str, *stages: str) -> Any | None:
        """Some subject's value: mostly one that a service would find by one of these stages, else anyone's."""
        with self.kernel.reader.look() as look:
            if stages and self.random.random() < 0.85:
                found = look.due(self.random.choice(stages), limit=30)
                if found:
                    value: Any = look.get(self.random.choice(found).subject)
                    if prefix == "attempt" and hasattr(value, "settle_by_us"):
                        value = look.get(value.attempt)
                    if prefix == "attempt" and not hasattr(value, "fence"):
                        value = look.get(value.attempt)
                    return value
            return look.get(self.any(prefix))

    def enrol(self) -> None:
        worker = f"worker_{self.random.getrandbits(128):032x}" if self.random.random() < 0.95 else self.any("worker")
        executors = ("command/1",) if self.random.random() < 0.8 else ("other/1",)
        host = self.random.choice(("host-a", "host-b"))
        if self.random.random() < 0.04:
            strange = (f"name:plan-{self.random.randint(0, 6)}", self.any("order"), "scope", "worker_" + "a" * 31)
            worker = self.random.choice(strange)
        self.ask("dispatcher", c.EnrolWorker(worker=worker, host=host, boot_id="boot", pid=1, executors=executors))

    def submit_plan(self) -> None:
        self.sound = self.random.random() < 0.7
        name = f"plan-{self.random.randint(0, 6)}"
        content = sha256_of(str(self.random.randint(0, 3)).encode())
        count = self.random.choice((1, 2, 4, 8, 8, 24))
        tasks = [f"t{number}" for number in range(count)]
        drafts: list[c.OrderDraft] = []
        for number, task in enumerate(tasks):
            known = tasks if self.slips(0.06) else tasks[:number]
            groups = self.groups(known, [self.any("order")] if self.slips(0.04) else [])
            needed = [member.task for group in groups for member in group.members]
            handed = []
            if needed and self.random.random() < 0.6:
                source = self.random.choice(needed)
                outputs = next((d.outputs for d in drafts if d.task == source), ())
                files = (self.random.choice(outputs),) if outputs else ("report.xml",)
                if outputs or self.slips(0.2):
                    handed.append(c.FromDraft(task=source, files=files))
            drafts.append(self.draft(task, groups, handed))
        self.random.shuffle(drafts)
        ceilings = self.amounts(40, 0.3)
        if self.sound:
            ceilings = (
                {"time_us": 60 * SECOND_US} if self.random.random() < 0.5 else {"calls": 40, "time_us": 9 * SECOND_US}
            )
        if "attempts" in ceilings:
            ceilings["attempts"] += count
        if any(name.startswith("money") for name in ceilings) and self.random.random() < 0.8:
            ceilings |= {"money_micros:EUR": 30, "money_micros:USD": 30}
        mode: Any = self.random.choice(("continue", "again", "new", "new"))
        self.ask(
            "human",
            c.SubmitPlan(
                name=name,
                objective="",
                content=content,
                orders=tuple(drafts),
                recovery="replace",
                mode=mode,
                ceilings=ceilings,
                deadline_us=self.random.choice((None, None, 20 * SECOND_US, 100 * SECOND_US))
                if not self.slips(0.02)
                else 2**50,
                provenance={"commit": "1"} if self.random.random() < 0.2 else {},
                predecessor="",
            ),
        )

    def submit_order(self) -> None:
        self.sound = self.random.random() < 0.7
        orders = [self.any("order") for _ in range(2)] if self.ids["order"] else []
        handed = [c.FromDraft(task="t0", files=("report.xml",))] if self.slips(0.03) else []
        self.ask("human", c.SubmitOrder(order=self.draft("alone", self.groups((), orders), handed)))

    def reserve(self) -> None:
        order = self.pick("order", "claim")
        if order is not None:
            command = c.Reserve(order=order.order, expected=order.version, worker=self.any("worker"))
            self.ask("dispatcher", command)

    def reserve_next(self) -> None:
        plan = self.any("plan") if self.ids["plan"] and self.random.random() < 0.3 else None
        if self.random.random() < 0.02:
            plan = self.random.choice(("", "plan_" + "e" * 32))
        count = self.random.choice((1, 1, 2, 5))
        self.ask("dispatcher", c.ReserveNext(worker=self.any("worker"), count=count, plan=plan))

    def release_reservation(self) -> None:
        attempt = self.pick("attempt", "reservation")
        if attempt is not None:
            self.ask("dispatcher", c.ReleaseReservation(attempt=attempt.attempt, fence=attempt.fence))

    def hurry(self) -> None:
        """One order's whole life in one go, so that those who wait for it get their turn."""
        known = len(self.ids["attempt"])
        self.reserve_next()
        for name in self.ids["attempt"][known:]:
            self.activate(name)
            attempt = self.value(name)
            if attempt.state != "leased":
                continue
            order = self.value(attempt.order)
            facts = self.good(self.facts(attempt, order), order)
            if self.random.random() < 0.4:
                facts = msgspec.structs.replace(facts, outcome="failed", failure="executor")
            command = c.ReportResult(attempt=name, fence=attempt.fence, spec=order.spec, facts=facts)
            self.ask("executor", command)
            if order.terms.accept.verify:
                self.verify(name)
            self.ask("reducer", c.ApplyResult(attempt=name))

    def activate(self, name: str = "") -> None:
        attempt = self.value(name) if name else self.pick("attempt", "reservation")
        if attempt is None:
            return
        with self.kernel.reader.look() as look:
            order = look.order(attempt.order)
            handed = handed_to(look, order) if self.random.random() < 0.95 else ()
        inputs = input_set(order.terms.input_set, handed) if order is not None else INPUTS
        command = c.Activate(
            attempt=attempt.attempt,
            expected=attempt.version,
            fence=attempt.fence,
            worker=attempt.worker,
            executor="command",
            executor_version=1,
            environment=ENVIRONMENT,
            input_set=inputs,
            mode="local",
            handed=handed,
            extensions={"x": "y"} if self.random.random() < 0.01 else {},
        )
        self.ask("dispatcher", command)

    def renew(self) -> None:
        attempts = [attempt for attempt in (self.pick("attempt", "lease") for _ in range(2)) if attempt]
        if attempts:
            held = tuple(c.Held(attempt=each.attempt, fence=each.fence) for each in attempts)
            if self.random.random() < 0.1:
                held = (*held, held[0], c.Held(attempt=self.any("attempt"), fence=self.random.randint(1, 3)))
            self.ask("dispatcher", c.RenewLeases(worker=attempts[0].worker, attempts=held))

    def event(self) -> None:
        attempt = self.pick("attempt", "lease")
        if attempt is None:
            return
        family: Any = self.random.choice(("execution_started",) * 4 + ("heartbeat_observed", "execution_stopped"))
        command = c.AppendEvent(
            attempt=attempt.attempt,
            fence=attempt.fence,
            spec=self.value(attempt.order).spec,
            input_set=attempt.input_set or INPUTS,
            family=family,
            pid=self.random.choice((0, 7)),
            note=self.random.choice(("", "so", "é\n")),
        )
        self.ask("executor", command)

    def report(self) -> None:
        attempt = self.pick("attempt", *["lease"] * 12, "finish", "retry", "unsettled")
        if attempt is not None:
            order = self.value(attempt.order)
            facts = self.facts(attempt, order)
            self.ask(
                "executor",
                c.ReportResult(attempt=attempt.attempt, fence=attempt.fence, spec=order.spec, facts=facts),
            )

    def stopped(self) -> None:
        attempt = self.pick("attempt", "lease", "lease", "unsettled")
        if attempt is not None:
            time_us = self.random.choice((0, SECOND_US))
            note = self.random.choice(("", "drain"))
            reasons: tuple[StoppedFor, ...] = ("drained", "lease_expired", "keeper_lost", "drained")
            printed = LogRef(digest=sha256_of(b"out"), bytes_total=9, bytes_kept=3)
            self.ask(
                "executor",
                c.ReportStopped(
                    attempt=attempt.attempt,
                    fence=attempt.fence,
                    duration_us=time_us,
                    note=note,
                    reason=self.random.choice(reasons),
                    stdout=self.random.choice((None, printed)),
                    stderr=self.random.choice((None, printed)),
                ),
            )

    def verify(self, name: str = "") -> None:
        attempt = self.value(name) if name else self.pick("attempt", "finish")
        if attempt is not None:
            outcome: Any = self.random.choice(("passed", "passed", "failed", "error"))
            command = c.RecordVerification(
                attempt=attempt.attempt,
                result=attempt.result or sha256_of(b"x"),
                outcome=outcome,
                duration_us=self.random.randint(0, SECOND_US),
                exit_code=self.random.choice((0, 1, None)),
                message=self.random.choice(("", "seen")),
            )
            self.ask("verifier", command)

    def apply(self) -> None:
        attempt = self.pick("attempt", "finish")
        if attempt is not None:
            self.ask("reducer", c.ApplyResult(attempt=attempt.attempt))

    def expire(self) -> None:
        attempt = self.pick("attempt", "lease", "reservation")
        if attempt is not None:
            self.ask("dispatcher", c.ExpireAttempt(attempt=attempt.attempt, expected=attempt.version))

    def holder_gone(self) -> None:
        attempt = self.pick("attempt", "lease", "reservation", "unsettled")
        if attempt is None:
            return
        basis: Any = self.random.choice(("locks_free", "locks_free", "later_boot"))
        boot_id = attempt.boot_id if (basis == "locks_free") == (self.random.random() < 0.9) else "boot-2"
        command = c.ProveHolderGone(
            attempt=attempt.attempt,
            fence=attempt.fence,
            host=attempt.host,
            boot_id=boot_id,
            basis=basis,
            evidence="seen",
        )
        self.ask("dispatcher", command)

    def settle_hold(self) -> None:
        hold = self.pick("hold", "unsettled")
        if hold is not None:
            self.ask("dispatcher", c.SettleHold(hold=hold.hold, expected=hold.version))

    def end_backoff(self) -> None:
        order = self.pick("order", "retry")
        if order is not None:
            self.ask("reducer", c.EndBackoff(order=order.order, expected=order.version))

    def reexamine(self) -> None:
        order = self.pick("order", "budget")
        if order is not None:
            self.ask("reducer", c.Reexamine(order=order.order, expected=order.version))

    def tell(self) -> None:
        order = self.pick("order", "tell")
        if order is not None:
            self.ask("reducer", c.TellDependents(order=order.order))

    def advance_cancel(self) -> None:
        self.ask("reducer", c.AdvanceCancel(plan=self.any("plan")))

    def deadline(self) -> None:
        plan = self.value(self.any("plan"))
        if plan is not None:
            self.ask("reducer", c.EnforceDeadline(plan=plan.plan, expected=plan.version))

    def cancel_order(self) -> None:
        found = self.pick("attempt", "lease", "reservation", "finish", "retry")
        order = None if found is None else self.value(found.order)
        if order is not None:
            self.ask("human", c.CancelOrder(order=order.order, note="enough"))

    def cancel_plan(self) -> None:
        self.ask("human", c.CancelPlan(plan=self.any("plan"), note=self.random.choice(("", "enough"))))

    def retry(self) -> None:
        order = self.pick("order", *(("retry",) if self.random.random() < 0.1 else ()))
        if order is not None:
            dependents = self.random.random() < 0.4
            self.ask("human", c.RetryOrder(order=order.order, with_dependents=dependents))

    def set_budget(self) -> None:
        account = self.random.choice(("scope", self.any("plan"), self.any("order")))
        value = self.value(account)
        expected = self.random.choice((0, 0, value.version if value is not None else 3))
        ceilings = self.amounts(40, 0.2)
        if account == "scope":
            ceilings = {name: amount * 1_000 for name, amount in ceilings.items() if self.random.random() < 0.3}
        note = self.random.choice(("", "more"))
        self.ask("human", c.SetBudget(account=account, ceilings=ceilings, expected=expected, note=note))

    def let_time_pass(self) -> None:
        self.clock.advance(self.random.choice((1, 1_000, 100_000, 300_000, 1_000_000, 3_000_000, 11_000_000)))

    def march(self) -> None:
        """Time passes and is looked at, so that what is not renewed expires."""
        for _ in range(self.random.randint(3, 12)):
            self.clock.advance(1_500_000)
            self.observe()

    def oversleep(self) -> None:
        self.clock.advance(self.random.choice((5_000_001, 30_000_000, 400_000_000)))

    def wrong_clock(self) -> None:
        roll = self.random.random()
        if roll < 0.5:
            self.clock.jump_utc(self.random.choice((-400_000, 400_000)))
        elif roll < 0.8:
            self.clock.restart(downtime_us=self.random.choice((0, 5_000_000)))
        elif self.may_be_wrong:
            self.clock.jump_utc(self.random.choice((-5_000_000, 5_000_000)))

    def observe(self) -> None:
        clock = self.clock if self.random.random() < 0.9 else self.other_clock
        if clock is self.other_clock:
            clock.advance(self.random.choice((0, 1_000, 9_000_000)))
        now = clock.read()
        reading = c.Reading(**{name: getattr(now, name) for name in c.Reading.__struct_fields__})
        self.ask("sampler", c.ObserveClock(reading=reading))

    def repeat(self) -> None:
        """Something that was asked before, under its own key or a fresh one."""
        if self.requests:
            request = self.random.choice(self.requests[-50:])
            if self.random.random() < 0.5:
                request = msgspec.structs.replace(request, key=f"again:{self.random.getrandbits(64):x}")
            self.send(request)

    def reopen(self) -> None:
        """The first command once more, or another one under its key."""
        if self.random.random() < 0.3 and self.requests:
            self.send(msgspec.structs.replace(self.random.choice(self.requests), key=self.genesis.key))
        elif self.random.random() < 0.5:
            self.send(self.genesis)
        else:
            self.send(msgspec.structs.replace(self.genesis, key=f"open:{self.random.getrandbits(64):x}"))


ACTIONS = {
    "submit_plan": 5,
    "submit_order": 4,
    "reserve_next": 16,
    "reserve": 4,
    "release_reservation": 1.5,
    "hurry": 4,
    "activate": 14,
    "renew": 5,
    "event": 8,
    "checkpoint": 6,
    "keep": 2,
    "charge": 8,
    "child": 6,
    "yields": 5,
    "answer": 4,
    "end_wait": 4,
    "report": 13,
    "stopped": 2,
    "verify": 6,
    "apply": 14,
    "expire": 5,
    "holder_gone": 2.5,
    "settle_hold": 2.5,
    "end_backoff": 8,
    "reexamine": 4,
    "tell": 2,
    "advance_cancel": 1.5,
    "deadline": 2.5,
    "cancel_order": 2.5,
    "cancel_plan": 0.7,
    "retry": 4,
    "set_budget": 2,
    "enrol": 0.3,
    "let_time_pass": 14,
    "march": 1,
    "oversleep": 0.7,
    "wrong_clock": 0.7,
    "observe": 0.7,
    "repeat": 4,
    "reopen": 0.3,
}


def handed_to(look: Look, order: OrderState | None) -> tuple[ArtifactRef, ...]:
    """The files that a worker would lay out of other orders' results."""

    def applied(name: str) -> tuple[ArtifactRef, ...]:
        producer = look.order(name)
        if producer is None or producer.state != "applied":
            return ()
        artifacts: tuple[ArtifactRef, ...] = look.record(producer.result_seq).body.facts.artifacts
        return artifacts

    return () if order is None else handed_files(look.record(order.spec_seq).body, applied)
