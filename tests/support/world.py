"""A world small enough for tests of the pure core: state in dictionaries, a clock that tests turn, fixed ids.

`World.do` decides one command the way a kernel does: what was decided is kept, index rows are found again by what
`index.difference` says, and every record is folded a second time into a replay that must agree.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from fencepost.core import commands as c
from fencepost.core.canonical import encode_trusted
from fencepost.core.decide import Decided, Given, decide
from fencepost.core.decide.dispatch import input_set
from fencepost.core.evolve import Edge, Fact, evolve
from fencepost.core.grants import Caveat, named_digest
from fencepost.core.ids import IdSource, sha256_of
from fencepost.core.index import Row, difference, rows_of
from fencepost.core.limits import Limits
from fencepost.core.machines import ATTEMPT, BUDGET_HOLD, ENDED, LIVE, WORK_ORDER
from fencepost.core.reasons import REASONS, Refusal
from fencepost.core.records.attempt import ResultFacts
from fencepost.core.records.authority import AuthorityDecision
from fencepost.core.records.clock import ExpiryEligibility
from fencepost.core.records.common import ArtifactRef, Usage
from fencepost.core.records.plan import Acceptance, Outcome, Retry
from fencepost.core.state import (
    AttemptState,
    ClockState,
    HoldState,
    OrderState,
    PlanState,
    ScopeState,
    Value,
    encode_value,
    name_subject,
)

SECOND = 1_000_000
DIGEST = "sha256:" + "0" * 64
ME = "principal_" + "1" * 32
START_UTC_US = 1_800_000_000 * SECOND
PAIRS = sorted({pair for pairs in c.PAIRS.values() for pair in pairs})


def grant_of(operations: Iterable[str], name: str = "grant_1") -> str:
    """The chain of a grant of these operations to the world's human."""
    return named_digest(name, (Caveat(audience=ME, operations=tuple(sorted(operations))),))


GRANT = grant_of(PAIRS)


class Refused(AssertionError):
    """A command that the test expected to succeed was refused."""


class Fold:
    """States, edges and index as records lead to them."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.edges: dict[str, list[Edge]] = {}

    def get(self, subject: str) -> Any | None:
        return self.values.get(subject)

    def put(self, subject: str, value: Value) -> None:
        self.values[subject] = value

    def add_edge(self, edge: Edge) -> None:
        self.edges.setdefault(edge.member, []).append(edge)


class World:
    """One scope with one human who may do everything, and as many workers as a test enrols."""

    def __init__(self, limits: Limits | None = None, *, operations: Iterable[str] = PAIRS, opened: bool = True) -> None:
        self.limits = limits or Limits()
        self.live = Fold()
        self.replayed = Fold()
        self.index: dict[str, dict[str, Row]] = {}
        self.facts: list[Fact] = []
        self.denied: set[str] = set()
        self.undecided: set[str] = set()
        self.commands = 0
        self.utc_us = START_UTC_US
        self.tick_us = 1_000 * SECOND
        self.boot = "boot-1"
        self.uncertainty_us = 0
        self.grant = GRANT
        if opened:
            self.open(operations)

    def fork(self) -> World:
        """A copy that goes its own way."""
        other = World(self.limits, opened=False)
        for mine, fold in ((self.live, other.live), (self.replayed, other.replayed)):
            fold.values = dict(mine.values)
            fold.edges = {member: list(edges) for member, edges in mine.edges.items()}
        other.index = {stage: dict(rows) for stage, rows in self.index.items()}
        other.facts = list(self.facts)
        other.denied, other.undecided = set(self.denied), set(self.undecided)
        other.uncertainty_us, other.grant = self.uncertainty_us, self.grant
        other.commands, other.utc_us, other.tick_us, other.boot = self.commands, self.utc_us, self.tick_us, self.boot
        return other

    # What a kernel does

    def get(self, subject: str) -> Any | None:
        return self.live.get(subject)

    def due(
        self, stage: str, now_us: int, limit: int, group: str | None, after: tuple[int, int, str] | None
    ) -> Sequence[Row]:
        rows = [
            row
            for row in self.index.get(stage, {}).values()
            if row.due_us <= now_us
            and (group is None or row.group == group)
            and (after is None or (row.due_us, row.rank, row.subject) > after)
        ]
        return sorted(rows, key=lambda row: (row.due_us, row.rank, row.subject))[:limit]

    def body(self, seq: int) -> Any:
        return self.facts[seq - 1].body

    def edges(self, member: str, after_position: int, limit: int) -> Sequence[Edge]:
        return self.live.edges.get(member, [])[after_position + 1 :][:limit]

    def given(self) -> Given:
        seed = self.commands.to_bytes(16)
        questions = {pair: sha256_of(pair.encode()) for pair in PAIRS}
        rulings = {pair: self._ruling(pair) for pair in PAIRS if pair not in self.undecided}
        return Given(IdSource(seed, START_UTC_US), self.limits, questions, rulings, ME, self.utc_us)

    def _ruling(self, pair: str) -> AuthorityDecision:
        action, resource = pair.split("/")
        return AuthorityDecision(
            decision=sha256_of(pair.encode()),
            principal=ME,
            principal_kind="human",
            action=action,
            resource_kind=resource,
            attributes={},
            allow=pair not in self.denied,
            rule="everything",
            reason="permitted",
            constitution_version=1,
            constitution=DIGEST,
            vocabulary=DIGEST,
        )

    def request(self, command: Any, *, principal: str = ME, grant: str = "") -> c.Request:
        return c.Request(
            command=command,
            key=f"key-{self.commands}",
            principal=principal,
            grant=grant or self.grant,
            assurance="service",
        )

    def decide(self, command: Any, *, principal: str = ME, grant: str = "") -> Decided:
        """Decide without keeping anything."""
        self.commands += 1
        return decide(self, self.request(command, principal=principal, grant=grant), self.given(), len(self.facts) + 1)

    def do(self, command: Any, *, principal: str = ME, grant: str = "") -> Decided:
        """Decide and keep what was decided, durable refusals too."""
        decided = self.decide(command, principal=principal, grant=grant)
        only_rulings = all(isinstance(fact.body, AuthorityDecision) for fact in decided.facts)
        if decided.refusal is not None and not decided.refusal.reason.durable and only_rulings:
            return decided
        self.keep(decided)
        return decided

    def keep(self, decided: Decided) -> None:
        for subject, value in decided.values.items():
            put, delete = difference(self.live.get(subject), value)
            for row in put:
                self.index.setdefault(row.stage, {})[subject] = row
            for stage, name in delete:
                del self.index[stage][name]
            self.live.put(subject, value)
        for edge in decided.edges:
            self.live.add_edge(edge)
        for fact in decided.facts:
            encode_trusted(fact.body)
            evolve(self.replayed, fact)
            self.facts.append(fact)

    def ok(self, command: Any) -> Mapping[str, Any]:
        decided = self.do(command)
        if decided.refusal is not None:
            raise Refused(f"{type(command).__name__}: {decided.refusal.code} {decided.refusal.message}")
        return decided.result

    def refused(self, command: Any, **who: str) -> str:
        """The code of a refusal; "" if the command was accepted."""
        refusal = self.do(command, **who).refusal
        return "" if refusal is None else refusal.code

    # Time

    def reading(self) -> c.Reading:
        return c.Reading(
            source="host-1",
            boot_id=self.boot,
            utc_us=self.utc_us,
            tick_us=self.tick_us,
            uncertainty_us=self.uncertainty_us,
        )

    def observe(self) -> Mapping[str, Any]:
        return self.ok(c.ObserveClock(reading=self.reading()))

    def advance(self, us: int, *, step_us: int = 4 * SECOND) -> None:
        """Let time pass, looked at often enough that no grace begins."""
        while us > 0:
            step = min(us, step_us)
            self.tick_us += step
            self.utc_us += step
            self.observe()
            us -= step

    def restart(self, down_us: int = 0) -> None:
        self.boot = f"boot-{int(self.boot.removeprefix('boot-')) + 1}"
        self.tick_us = SECOND
        self.utc_us += down_us
        self.observe()

    @property
    def clock(self) -> ClockState:
        return self.live.values["clock:main"]

    @property
    def now_us(self) -> int:
        return self.clock.logical_us

    # Shorthand for what most tests need

    def _grant(self, operations: Iterable[str]) -> c.GrantDraft:
        self.grant = grant_of(operations)
        return c.GrantDraft(grant="grant_1", chain=self.grant, audience=ME, operations=tuple(sorted(operations)))

    def open(self, operations: Iterable[str] = PAIRS) -> None:
        self.ok(
            c.OpenScope(
                scope="scope",
                store_id="store",
                schema_registry=DIGEST,
                constitution_version=1,
                constitution=DIGEST,
                vocabulary=DIGEST,
                policies="",
                schema="",
                principals=(
                    c.PrincipalDraft(principal=ME, kind="human", name="me", public_key="00", assurance="service"),
                ),
                grants=(self._grant(operations),),
                reading=self.reading(),
            )
        )

    def submit(self, *orders: c.OrderDraft, name: str = "plan", mode: str = "continue", **more: Any) -> str:
        return str(self.ok(plan_of(*orders, name=name, mode=mode, **more))["plan"])

    def order(self, task: str, plan: str | None = None) -> OrderState:
        """The newest order of that task."""
        if plan is None:
            name = self.live.values.get(name_subject("plan"))
            plan = name.newest if name is not None else None
        found = [
            value
            for value in self.live.values.values()
            if isinstance(value, OrderState) and value.task == task and value.plan == plan
        ]
        return max(found, key=lambda value: value.spec_seq)

    def attempt_of(self, order: OrderState) -> AttemptState:
        return self.live.values[order.attempt or ""]

    def hold_of(self, order: OrderState) -> HoldState:
        return self.live.values[self.attempt_of(order).hold]

    def worker(self, number: int = 1, *, host: str = "host-1", executors: tuple[str, ...] = ("command/1",)) -> str:
        name = f"worker_{number:032x}"
        if name not in self.live.values:
            self.ok(c.EnrolWorker(worker=name, host=host, boot_id=self.boot, pid=number, executors=executors))
        return name

    def reserve(self, task: str, worker: int = 1) -> AttemptState:
        order = self.order(task)
        self.ok(c.Reserve(order=order.order, expected=order.version, worker=self.worker(worker)))
        return self.attempt_of(self.order(task))

    def activate(self, task: str, worker: int = 1) -> AttemptState:
        """Reserve if need be, and activate."""
        order = self.order(task)
        attempt = self.attempt_of(order) if order.state == "reserved" else self.reserve(task, worker)
        self.ok(self.activation(attempt))
        return self.live.values[attempt.attempt]

    def activation(self, attempt: AttemptState, **changes: Any) -> c.Activate:
        order: OrderState = self.live.values[attempt.order]
        handed = changes.pop("handed", ())
        command = c.Activate(
            attempt=attempt.attempt,
            expected=attempt.version,
            fence=attempt.fence,
            worker=attempt.worker,
            executor="command",
            executor_version=1,
            environment=DIGEST,
            input_set=input_set(order.terms.input_set, handed),
            mode="local",
            handed=handed,
        )
        return replace(command, **changes)

    def facts_of(self, attempt: AttemptState, **changes: Any) -> ResultFacts:
        duration_us = changes.pop("duration_us", SECOND)
        facts = ResultFacts(
            outcome="succeeded",
            input_set=attempt.input_set,
            output_kind="files/1",
            duration_us=duration_us,
            classification="internal",
            exit_code=0,
            usage=(used(attempt, time_us=duration_us),),
        )
        return replace(facts, **changes)

    def result(self, attempt: AttemptState, facts: ResultFacts | None = None, **changes: Any) -> c.ReportResult:
        order: OrderState = self.live.values[attempt.order]
        return c.ReportResult(
            attempt=attempt.attempt,
            fence=attempt.fence,
            spec=order.spec,
            facts=facts if facts is not None else self.facts_of(attempt, **changes),
        )

    def event(self, attempt: AttemptState, family: str = "execution_started", **changes: Any) -> c.AppendEvent:
        order: OrderState = self.live.values[attempt.order]
        command = c.AppendEvent(
            attempt=attempt.attempt,
            fence=attempt.fence,
            spec=order.spec,
            input_set=attempt.input_set,
            family=family,  # type: ignore[arg-type]  # tests name the families by their text
        )
        return replace(command, **changes)

    def _bound(self, attempt: AttemptState) -> dict[str, Any]:
        """What everything that a running program says is bound to."""
        order: OrderState = self.live.values[attempt.order]
        return {
            "attempt": attempt.attempt,
            "fence": attempt.fence,
            "spec": order.spec,
            "input_set": attempt.input_set or DIGEST,
        }

    def checkpoint(self, attempt: AttemptState, *, builds_on: int | None = None, **changes: Any) -> c.SaveCheckpoint:
        order: OrderState = self.live.values[attempt.order]
        fields = {
            "kind": "blob/1",
            "builds_on": order.checkpoint_number if builds_on is None else builds_on,
            "payload": DIGEST,
            "bytes": 3,
        }
        return c.SaveCheckpoint(**{**self._bound(attempt), **fields, **changes})

    def charge(self, attempt: AttemptState, receipt: str, *unknown: str, provider: str = "shop", **more: Any) -> Any:
        fence = more.pop("fence", attempt.fence)
        usage = Usage(receipt=receipt, provider=provider, amounts=more, unknown=unknown)
        return c.ChargeUsage(**{**self._bound(attempt), "fence": fence}, usage=usage)

    def kept(self, attempt: AttemptState, path: str = "part.txt", **changes: Any) -> c.RecordArtifact:
        ref = ArtifactRef(path=path, digest=DIGEST, bytes=3, mode=0o644)
        return c.RecordArtifact(**{**self._bound(attempt), "artifact": ref, **changes})

    def child(self, attempt: AttemptState, order: c.OrderDraft, **changes: Any) -> c.SubmitChild:
        return c.SubmitChild(**{**self._bound(attempt), "order": order, **changes})

    def yielding(self, attempt: AttemptState, *, duration_us: int = SECOND, **wait: Any) -> c.ReportYielded:
        bound = {**self._bound(attempt), "fence": wait.pop("fence", attempt.fence)}
        logs = {stream: wait.pop(stream, None) for stream in ("stdout", "stderr")}
        return c.ReportYielded(**bound, duration_us=duration_us, wait=c.WaitDraft(**wait), **logs)

    def renewal(self, attempt: AttemptState, worker: str | None = None) -> c.RenewLeases:
        held = c.Held(attempt=attempt.attempt, fence=attempt.fence)
        return c.RenewLeases(worker=worker or attempt.worker, attempts=(held,))

    def expiry(self, attempt: AttemptState) -> c.ExpireAttempt:
        now: AttemptState = self.live.values[attempt.attempt]
        return c.ExpireAttempt(attempt=now.attempt, expected=now.version)

    def expiry_proof(self, attempt: AttemptState) -> ExpiryEligibility:
        """What a prover would say of a lease now, whether it is over or not."""
        clock = self.clock
        return ExpiryEligibility(
            domain=clock.domain,
            purpose="lease_expiry",
            target=attempt.attempt,
            target_version=attempt.version,
            fence=attempt.fence,
            deadline_us=attempt.lease_us,
            observation=clock.last_seq,
            logical_us=clock.logical_us,
            uncertainty_us=clock.uncertainty_us,
            clock_version=clock.version,
            prover=ME,
            decision="x",
        )

    def finish(self, task: str, worker: int = 1, **changes: Any) -> OrderState:
        """Run one attempt from `ready` to its application."""
        attempt = self.activate(task, worker)
        self.ok(self.result(attempt, **changes))
        self.ok(c.ApplyResult(attempt=attempt.attempt))
        return self.order(task)

    def fail(self, task: str, worker: int = 1, **changes: Any) -> OrderState:
        failing = {"outcome": "failed", "exit_code": 1, "failure": "executor", "message_code": "exit_code_unexpected"}
        return self.finish(task, worker, **{**failing, **changes})

    def settle(self) -> None:
        """Carry out everything that a sweeper would find now."""
        for order in [row.subject for row in self.due("tell", 2**62, 1_000, None, None)]:
            self.ok(c.TellDependents(order=order))
        for plan in [row.subject for row in self.due("revise", 2**62, 1_000, None, None)]:
            self.ok(c.AdvanceCancel(plan=plan))

    # What always holds

    def check(self) -> None:
        """Every invariant of the whole state; raises AssertionError with the one that does not hold."""
        self._check_accounts()
        self._check_subjects()
        self._check_plans()
        expected = {(row.stage, row.subject): row for value in self.live.values.values() for row in rows_of(value)}
        found = {(row.stage, row.subject): row for rows in self.index.values() for row in rows.values()}
        assert found == expected, "index rows are not those of the values"
        assert set(self.replayed.values) == set(self.live.values)
        for subject, value in self.live.values.items():
            assert encode_value(self.replayed.values[subject]) == encode_value(value), f"replay differs at {subject}"
        assert self.replayed.edges == self.live.edges

    def _check_accounts(self) -> None:
        holds = [value for value in self.live.values.values() if isinstance(value, HoldState)]
        for subject, value in self.live.values.items():
            if not isinstance(value, ScopeState | PlanState | OrderState):
                continue
            mine = [hold for hold in holds if subject in hold.accounts]
            assert _nonzero(value.account.held) == _total(hold.held for hold in mine), f"held of {subject}"
            assert _nonzero(value.account.charged) == _total(hold.charged for hold in mine), f"charged of {subject}"

    def _check_subjects(self) -> None:
        live: dict[str, str] = {}
        for value in self.live.values.values():
            if isinstance(value, OrderState):
                allowed = WORK_ORDER.reasons.get(value.state)
                assert value.state in WORK_ORDER.states
                assert allowed is None or value.reason in allowed, f"{value.state} shows {value.reason}"
                assert value.reason in REASONS, f"{value.reason} is not registered"
                told_all = value.state not in ENDED or value.told + 1 >= value.dependents
                assert value.told_done or not told_all, f"{value.task} has told everybody and does not say so"
            elif isinstance(value, AttemptState):
                allowed = ATTEMPT.reasons.get(value.state)
                assert allowed is None or value.reason in allowed, f"attempt {value.state} shows {value.reason}"
                assert value.reason in REASONS, f"{value.reason} is not registered"
                if value.state in LIVE:
                    assert value.order not in live, f"two live fences for {value.order}"
                    live[value.order] = value.attempt
                    order = self.live.values[value.order]
                    assert order.attempt == value.attempt and order.state == "active"
            elif isinstance(value, HoldState):
                assert value.state in BUDGET_HOLD.states
                assert (value.state in ("held", "unsettled")) or not value.held

    def _check_plans(self) -> None:
        for plan in [value for value in self.live.values.values() if isinstance(value, PlanState)]:
            orders = [o for o in self.live.values.values() if isinstance(o, OrderState) and o.plan == plan.plan]
            replaced = {order.replaces for order in orders}
            lost = sum(
                o.state in ENDED and o.state != "applied" and not o.may_fail and o.order not in replaced for o in orders
            )
            found = (plan.orders, plan.open, plan.applied, plan.lost)
            open_now = sum(order.state not in ENDED for order in orders)
            expected = (len(orders), open_now, sum(order.state == "applied" for order in orders), lost)
            assert found == expected, f"{plan.plan} counts {found}, not {expected}"


def _nonzero(amounts: Mapping[str, int]) -> dict[str, int]:
    return {dimension: amount for dimension, amount in amounts.items() if amount}


def _total(parts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    result: dict[str, int] = {}
    for part in parts:
        for dimension, amount in part.items():
            result[dimension] = result.get(dimension, 0) + amount
    return _nonzero(result)


def used(attempt: AttemptState, *, receipt: str = "time", provider: str = "kernel", **amounts: int) -> Usage:
    return Usage(receipt=f"{attempt.attempt}:{receipt}", provider=provider, amounts=amounts)


def group(kind: str, *tasks: str, outcomes: tuple[Outcome, ...] = ("applied",), ids: bool = False) -> c.GroupDraft:
    members = tuple(
        c.MemberDraft(outcomes=outcomes, order=task) if ids else c.MemberDraft(outcomes=outcomes, task=task)
        for task in tasks
    )
    return c.GroupDraft(kind=kind, members=members)  # type: ignore[arg-type]  # tests name the kinds by their text


def draft(task: str, *needs: str | c.GroupDraft, attempts: int = 3, retry: bool | Retry = False, **more: Any) -> Any:
    """An order; a string in `needs` is a required group of its own."""
    if isinstance(retry, bool):
        on = ("executor", "validation", "transient_dependency")
        policy = Retry(on=on, backoff_us=SECOND, backoff_max_us=60 * SECOND) if retry else None
    else:
        policy = retry
    fields: dict[str, Any] = {
        "work_kind": "command/1",
        "priority": "normal",
        "classification": "internal",
        "effects": "none",
        "attempt_time_us": 30 * SECOND,
        "accept": Acceptance(),
        "run": ("true",),
        "groups": tuple(group("required", need) if isinstance(need, str) else need for need in needs),
        "ceilings": {"attempts": attempts},
        "retry": policy,
        "may": ("workspace.write",),
    }
    return c.OrderDraft(task=task, **{**fields, **more})


def plan_of(*orders: c.OrderDraft, name: str = "plan", mode: str = "continue", **more: Any) -> c.SubmitPlan:
    content = more.pop("content", None) or sha256_of(b"".join(encode_trusted(order) for order in orders))
    return c.SubmitPlan(
        name=name,
        objective="an objective",
        content=content,
        orders=tuple(orders),
        recovery="replace",
        mode=mode,  # type: ignore[arg-type]  # tests name the modes by their text
        **more,
    )


def artifact(path: str, content: bytes = b"content") -> ArtifactRef:
    return ArtifactRef(path=path, digest=sha256_of(content), bytes=len(content), mode=0o644)


def code_of(refusal: Refusal | None) -> str:
    return "" if refusal is None else refusal.code
