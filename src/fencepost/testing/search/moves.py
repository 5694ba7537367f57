"""Everything that somebody could send at a place: well-formed commands, and those of people who are out of date.

Each move has a sentence that names it, unique among the moves of its place, so that a path of sentences can be walked
again. Every fence that an order ever gave out is tried with each of its attempts, each version that a caller could have
seen last, each worker. Workers that hold nothing, on one host and of one boot, are interchangeable: one speaks for all.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from msgspec.structs import replace

from fencepost.core import commands as c
from fencepost.core.records.attempt import ResultFacts
from fencepost.core.records.common import Usage
from fencepost.core.state import CLOCK, AttemptState, HoldState, OrderState, PlanState, WorkerState
from fencepost.testing.search import inside
from fencepost.testing.search.place import Place, account_name, boot_name, enrolment, intent
from fencepost.testing.search.worlds import DIGEST, GAP_US, OTHER_DIGEST, RECEIPTS, SKEW_US, UNIT_US, World

SYSTEM = ("worker", "service", "time")
"""Who moves things on without a person and without a fault."""


class Move(NamedTuple):
    """One command with who sends it. `spends` is the act of the surroundings that it is, "" for none."""

    who: str  # "worker", "service", "time", "person" or "fault"
    says: str
    command: Any
    spends: str = ""
    boot: int = 0  # the host's boot from now on, 0 for the same


class Cast:
    """The subjects of a place by kind, and what stories call them."""

    __slots__ = ("attempts", "holds", "names", "orders", "plans", "workers")

    def __init__(self, place: Place) -> None:
        self.orders: list[OrderState] = []
        self.attempts: list[AttemptState] = []
        self.holds: list[HoldState] = []
        self.plans: list[PlanState] = []
        self.workers: list[WorkerState] = []
        kinds: dict[type, list[Any]] = {
            OrderState: self.orders,
            AttemptState: self.attempts,
            HoldState: self.holds,
            PlanState: self.plans,
            WorkerState: self.workers,
        }
        for value in place.values.values():
            found = kinds.get(type(value))
            if found is not None:
                found.append(value)
        self.names: dict[str, str] = {CLOCK: "the clock", "scope": "the scope"}
        names = self.names
        for number, plan in enumerate(self.plans, 1):
            names[plan.plan] = "the plan" if number == 1 else f"plan {number}"
        for order in self.orders:  # in the order of their making, so that what is replaced has its name already
            plan_name = names.get(order.plan or "", "the plan")
            own = order.task if plan_name == "the plan" else f"{order.task} of {plan_name}"
            if order.parent is not None:
                own = f"{names[order.parent]}'s {order.task.rpartition('.')[2]}"
            names[order.order] = own if order.replaces is None else f"the new {names[order.replaces]}"
        for attempt in self.attempts:
            names[attempt.attempt] = f"attempt {attempt.ordinal} of {names[attempt.order]}"
            names[attempt.hold] = f"the hold of {names[attempt.attempt]}"
        for worker in self.workers:
            names[worker.worker] = f"worker {worker.pid}"


def moves_of(place: Place, cast: Cast) -> Iterator[Move]:
    """Every move of a place, the system's own first."""
    workers = _speakers(cast)
    yield from _of_orders(place, cast, workers)
    fences: dict[str, set[int]] = {}
    for attempt in cast.attempts:
        fences.setdefault(attempt.order, set()).add(attempt.fence)
    for attempt in cast.attempts:
        others = sorted(fences[attempt.order] - {attempt.fence}) or [attempt.fence + 1]
        yield from _of_attempt(place, cast, attempt, workers, others)
    if place.shared.world.renews:
        yield from _of_holders(cast, workers)
    for hold in cast.holds:
        for expected, when in versions(hold):
            says = f"{cast.names[hold.hold]} is settled by its deadline{when}"
            yield Move("service", says, c.SettleHold(hold=hold.hold, expected=expected))
    yield from _of_plans(place, cast)
    yield from _of_surroundings(place, cast)


def versions(value: Any) -> list[tuple[int, str]]:
    """The version that stands, and the one before, which a slow caller saw."""
    now = value.version
    return [(now, "")] if now == 1 else [(now, ""), (now - 1, ", as of a version ago")]


def _speakers(cast: Cast) -> list[WorkerState]:
    """Workers, of those that hold nothing one for each host and boot."""
    busy = {attempt.worker for attempt in cast.attempts if not attempt.ended_us}
    found: list[WorkerState] = []
    seen: set[tuple[str, str]] = set()
    for worker in cast.workers:
        kind = (worker.host, worker.boot_id)
        if worker.worker not in busy:
            if kind in seen:
                continue
            seen.add(kind)
        found.append(worker)
    return found


def _of_orders(place: Place, cast: Cast, workers: list[WorkerState]) -> Iterator[Move]:
    names, left = cast.names, place.left
    for order in cast.orders:
        name = names[order.order]
        for worker in workers:
            for expected, when in versions(order):
                command = c.Reserve(order=order.order, expected=expected, worker=worker.worker)
                yield Move("worker", f"{names[worker.worker]} reserves {name}{when}", command)
        for expected, when in versions(order):
            yield Move(
                "service", f"the backoff of {name} is ended{when}", c.EndBackoff(order=order.order, expected=expected)
            )
            yield Move("service", f"{name} is examined again{when}", c.Reexamine(order=order.order, expected=expected))
            if place.shared.world.waits:
                ended = c.EndWait(order=order.order, expected=expected)
                yield Move("service", f"the wait of {name} is ended by its time{when}", ended)
        for said in inside.of_order(place, order, name):
            yield Move("person", *said)
        yield Move("service", f"the end of {name} is told", c.TellDependents(order=order.order))
        if left.get("cancel"):
            yield Move("person", f"a person cancels {name}", c.CancelOrder(order=order.order), "cancel")
        if left.get("retry"):
            yield Move("person", f"a person retries {name}", c.RetryOrder(order=order.order), "retry")
            command_all = c.RetryOrder(order=order.order, with_dependents=True)
            yield Move("person", f"a person retries {name} with its dependents", command_all, "retry")
            anew = c.RetryOrder(order=order.order, from_start=True)
            yield Move("person", f"a person retries {name} from the start", anew, "retry")
    for worker in workers:
        for count in (1, 2):
            says = f"{names[worker.worker]} reserves up to {count} from the queue"
            yield Move("worker", says, c.ReserveNext(worker=worker.worker, count=count))


def _of_attempt(
    place: Place, cast: Cast, attempt: AttemptState, workers: list[WorkerState], others: list[int]
) -> Iterator[Move]:
    name, fence = cast.names[attempt.attempt], attempt.fence
    order: OrderState = place.values[attempt.order]
    own = c.Activate(
        attempt=attempt.attempt,
        expected=attempt.version,
        fence=fence,
        worker=attempt.worker,
        executor="command",
        executor_version=1,
        environment=DIGEST,
        input_set=order.terms.input_set,
        mode="local",
    )
    holder = cast.names[attempt.worker]
    yield Move("worker", f"{holder} starts {name}", own)
    if attempt.version > 1:
        late = replace(own, expected=attempt.version - 1)
        yield Move("worker", f"{holder} starts {name}, as of a version ago", late)
    for worker in workers:
        if worker.worker != attempt.worker:
            yield Move("worker", f"{cast.names[worker.worker]} starts {name}", replace(own, worker=worker.worker))
    for other in others:
        yield Move("worker", f"{holder} starts {name} under fence {other}", replace(own, fence=other))
    input_set = attempt.input_set or order.terms.input_set
    for number, under in [(fence, ""), *((other, f" under fence {other}") for other in others)]:
        yield from _said(place, attempt, f"{name}{under}", number, order.spec, input_set)
    yield from _judged(place, cast, attempt)


def _said(place: Place, attempt: AttemptState, name: str, fence: int, spec: str, input_set: str) -> Iterator[Move]:
    """What a holder, or somebody who takes itself for one, says of an attempt."""
    world, left = place.shared.world, place.left
    subject = attempt.attempt
    if "release" in left:
        yield Move("worker", f"{name} is given back", c.ReleaseReservation(attempt=subject, fence=fence), "release")
    event = c.AppendEvent(attempt=subject, fence=fence, spec=spec, input_set=input_set, family="execution_started")
    yield Move("worker", f"{name} says that it runs", event)
    for variant in world.results:
        facts = facts_of(attempt, variant, input_set)
        report = c.ReportResult(attempt=subject, fence=fence, spec=spec, facts=facts)
        yield Move("worker", f"{name} reports that it {variant}", report)
    if left.get("stop"):
        stopped = c.ReportStopped(reason="drained", attempt=subject, fence=fence, duration_us=UNIT_US)
        yield Move("worker", f"{name} reports that it was stopped", stopped, "stop")
    for said in inside.of_attempt(place, attempt, name, fence, spec, input_set):
        yield Move("worker", *said)


def _judged(place: Place, cast: Cast, attempt: AttemptState) -> Iterator[Move]:
    """What verifier, reducer, prover and supervisor say of an attempt."""
    name, subject = cast.names[attempt.attempt], attempt.attempt
    order: OrderState = place.values[attempt.order]
    verdicts = ("passed", "failed", "error") if order.terms.accept.verify else ()
    for verdict in verdicts:
        command = c.RecordVerification(
            attempt=subject,
            result=attempt.result or DIGEST,
            outcome=verdict,  # type: ignore[arg-type]  # these are the outcomes
            duration_us=UNIT_US,
        )
        yield Move("service", f"the verifier of {name} says {verdict}", command)
        if verdict == "passed" and attempt.result:
            wrong = replace(command, result=DIGEST)
            yield Move("service", f"the verifier of {name} says passed of another result", wrong)
    yield Move("service", f"the result of {name} is applied", c.ApplyResult(attempt=subject))
    for expected, when in versions(attempt):
        command_expire = c.ExpireAttempt(attempt=subject, expected=expected)
        yield Move("service", f"the expiry of {name} is proved{when}", command_expire)
    if place.left.get("gone"):
        yield from _proofs_of_absence(place, attempt, name)


def _proofs_of_absence(place: Place, attempt: AttemptState, name: str) -> Iterator[Move]:
    free = c.ProveHolderGone(
        attempt=attempt.attempt,
        fence=attempt.fence,
        host=attempt.host,
        boot_id=attempt.boot_id,
        basis="locks_free",
        evidence="free",
    )
    yield Move("service", f"the holder of {name} is proved gone by its locks", free, "gone")
    yield Move(
        "service",
        f"the holder of {name} is proved gone under fence {attempt.fence + 1}",
        replace(free, fence=attempt.fence + 1),
        "gone",
    )
    elsewhere = replace(free, host=f"{attempt.host}-else")
    yield Move("service", f"the holder of {name} is proved gone by locks of another host", elsewhere, "gone")
    for boot in range(1, place.boot + 1):
        later = replace(free, basis="later_boot", boot_id=boot_name(boot))
        yield Move("service", f"the holder of {name} is proved gone by boot {boot}", later, "gone")
        if boot_name(boot) != attempt.boot_id:
            locks = replace(free, boot_id=boot_name(boot))
            yield Move("service", f"the holder of {name} is proved gone by locks of boot {boot}", locks, "gone")


def _of_holders(cast: Cast, workers: list[WorkerState]) -> Iterator[Move]:
    """Renewals: of each attempt ever had by each worker, and of all that a worker has at once."""
    names = cast.names
    for attempt in cast.attempts:
        for fence in (attempt.fence, attempt.fence + 1):
            held = (c.Held(attempt=attempt.attempt, fence=fence),)
            under = "" if fence == attempt.fence else f" under fence {fence}"
            says = f"{names[attempt.worker]} renews {names[attempt.attempt]}{under}"
            yield Move("worker", says, c.RenewLeases(worker=attempt.worker, attempts=held))
        for worker in workers:
            if worker.worker != attempt.worker:
                held = (c.Held(attempt=attempt.attempt, fence=attempt.fence),)
                says = f"{names[worker.worker]} renews {names[attempt.attempt]}"
                yield Move("worker", says, c.RenewLeases(worker=worker.worker, attempts=held))
    for worker in workers:
        mine = tuple(
            c.Held(attempt=attempt.attempt, fence=attempt.fence)
            for attempt in cast.attempts
            if attempt.worker == worker.worker
        )
        if len(mine) > 1:
            says = f"{names[worker.worker]} renews everything it ever had"
            yield Move("worker", says, c.RenewLeases(worker=worker.worker, attempts=mine))


def _of_plans(place: Place, cast: Cast) -> Iterator[Move]:
    for plan in cast.plans:
        name = cast.names[plan.plan]
        yield Move("service", f"the cancel of {name} goes on", c.AdvanceCancel(plan=plan.plan))
        for expected, when in versions(plan):
            says = f"the deadline of {name} is proved{when}"
            yield Move("service", says, c.EnforceDeadline(plan=plan.plan, expected=expected))
        if place.left.get("cancel_plan"):
            yield Move("person", f"a person cancels {name}", c.CancelPlan(plan=plan.plan), "cancel_plan")
    if place.left.get("submit"):
        again = intent(place.shared.world)
        yield Move("person", "a person submits the plan and means the one that is there", again, "submit")
        yield Move("person", "a person submits the plan anew when it has ended", replace(again, mode="again"), "submit")
        yield Move(
            "person", "a person submits the plan beside the one that is there", replace(again, mode="new"), "submit"
        )
        other = replace(again, content=OTHER_DIGEST)
        yield Move("person", "a person submits a changed plan", other, "submit")


def _of_surroundings(place: Place, cast: Cast) -> Iterator[Move]:
    world, left = place.shared.world, place.left
    yield Move("time", "a unit of time passes", c.ObserveClock(reading=place.reading(elapsed_us=UNIT_US)))
    yield Move("time", "the clock is read again at once", c.ObserveClock(reading=place.reading(elapsed_us=0)))
    if left.get("gap"):
        gap = c.ObserveClock(reading=place.reading(elapsed_us=GAP_US))
        yield Move("fault", "three units pass and nobody looks", gap, "gap")
    if left.get("restart"):
        boot = place.boot + 1
        again = c.ObserveClock(reading=place.reading(elapsed_us=0, boot=boot))
        yield Move("fault", "the host restarts", again, "restart", boot)
    if left.get("skew"):
        wrong = c.ObserveClock(reading=place.reading(elapsed_us=1, skew_us=SKEW_US))
        yield Move("fault", "a reading contradicts the accepted time", wrong, "skew")
    if left.get("enrol"):
        command = enrolment(world, len(cast.workers) + 1, place.boot)
        yield Move("fault", f"worker {len(cast.workers) + 1} starts", command, "enrol")
    if left.get("budget"):
        for name, ceilings in world.set_to:
            for subject in (*place.values,):
                if account_name(place, subject) == name:
                    amounts = ", ".join(f"{amount} {dimension}" for dimension, amount in ceilings.items()) or "nothing"
                    says = f"a person limits {cast.names[subject]} to {amounts}"
                    yield Move("person", says, c.SetBudget(account=subject, ceilings=ceilings), "budget")
    if left.get("join") and world.join is not None:
        yield Move("person", f"a person submits {world.join.task}", _joining(cast, world), "join")


def _joining(cast: Cast, world: World) -> c.SubmitOrder:
    """The order that joins, its members named by the orders that stand for their tasks first."""
    draft = world.join
    if draft is None:
        raise LookupError(f"nothing joins the world {world.name}")
    first = {order.task: order.order for order in reversed(cast.orders)}
    groups = tuple(
        c.GroupDraft(
            kind=group.kind,
            members=tuple(
                c.MemberDraft(outcomes=member.outcomes, order=first[member.task]) for member in group.members
            ),
        )
        for group in draft.groups
    )
    return c.SubmitOrder(order=replace(draft, groups=groups))


_VARIANTS: dict[str, dict[str, Any]] = {
    "succeeds": {},
    "fails": {"outcome": "failed", "exit_code": 1, "failure": "executor", "message_code": "exit_code_unexpected"},
    "refuses": {"outcome": "failed", "exit_code": 1, "failure": "deterministic_input"},
    "escapes": {"tree_empty": False},
    "spends": {},
    "repeats": {},
    "unknown": {},
}
"""How a result differs from one that succeeds. `spends` uses more than it holds, `unknown` cannot tell its time, and
`repeats` names a receipt that was charged while it ran, or would have been."""


def facts_of(attempt: AttemptState, variant: str, input_set: str) -> ResultFacts:
    """A result; its message is the variant, by which results of different attempts are told alike."""
    name = attempt.attempt
    usage = Usage(receipt=f"{name}:time", provider="kernel", amounts={"time_us": UNIT_US})
    if variant == "unknown":
        usage = Usage(receipt=f"{name}:guess", provider="kernel", amounts={}, unknown=("time_us",))
    usages: tuple[Usage, ...] = (usage,)
    if variant == "spends":
        usages = (usage, Usage(receipt=f"{name}:calls", provider="gateway", amounts={"calls": 3}))
    if variant == "repeats":
        usages = (usage, RECEIPTS["one call"])
    fields: dict[str, Any] = {"outcome": "succeeded", "exit_code": 0, **_VARIANTS[variant]}
    return ResultFacts(
        input_set=input_set,
        output_kind="files/1",
        duration_us=UNIT_US,
        classification="internal",
        message=variant,
        usage=usages,
        **fields,
    )
