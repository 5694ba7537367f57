"""One place of a small world: the state that a history leads to, and how a command leads on from it.

A place is what a kernel has under its lock: values, edges, and the bodies of those records that the state names. The
constitution, its decisions and its principals never change in a small world, so that all places share them. Nothing
here has an opinion: `ask` calls the real `decide`, `follow` takes what was decided, and `Refold` folds the records a
second time with the real `evolve`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from fencepost.core import commands as c
from fencepost.core.decide import Decided, Given, decide
from fencepost.core.evolve import Edge, Fact, evolve
from fencepost.core.grants import Caveat, named_digest
from fencepost.core.ids import IdSource, sha256_of
from fencepost.core.index import Row, rows_of
from fencepost.core.machines import ATTEMPT, BUDGET_HOLD, CLOCK_DOMAIN, WORK_ORDER
from fencepost.core.records.attempt import AttemptResult, LateRecord, VerificationReceipt
from fencepost.core.records.authority import AuthorityDecision
from fencepost.core.records.envelope import Body
from fencepost.core.records.plan import WorkOrderSpec
from fencepost.core.state import AUTHORITY, CLOCK, AttemptState, ClockState, HoldState, OrderState
from fencepost.testing.search.worlds import DIGEST, START_US, TICK_US, World

PERSON = "principal_" + "1" * 32
PAIRS = tuple(sorted({pair for pairs in c.PAIRS.values() for pair in pairs}))
GRANT = named_digest("grant_1", (Caveat(audience=PERSON, operations=PAIRS),))
QUESTIONS: Mapping[str, str] = {pair: sha256_of(pair.encode()) for pair in PAIRS}
SOURCE = "host-1"
MACHINE_OF: Mapping[type, str] = {
    OrderState: WORK_ORDER.name,
    AttemptState: ATTEMPT.name,
    HoldState: BUDGET_HOLD.name,
    ClockState: CLOCK_DOMAIN.name,
}
_NAMED = frozenset({AttemptResult, LateRecord, VerificationReceipt, WorkOrderSpec})
"""Kinds of records that states name, so that deciders read their bodies again."""


class MachineRow(NamedTuple):
    """One entry of one machine's table; a birth comes from ""."""

    machine: str
    origin: str
    target: str


class Shared(NamedTuple):
    """What no command of a small world changes."""

    world: World
    values: dict[str, Any]


class Place:
    """A state as deciders see it (`core.decide.View`), and what the world may still do to it."""

    __slots__ = ("boot", "edge_map", "left", "next_seq", "record_bodies", "shared", "values")

    def __init__(
        self,
        shared: Shared,
        values: dict[str, Any],
        edge_map: dict[str, tuple[Edge, ...]],
        record_bodies: dict[int, Body],
        next_seq: int,
        left: dict[str, int],
        boot: int,
    ) -> None:
        self.shared = shared
        self.values = values
        self.edge_map = edge_map
        self.record_bodies = record_bodies
        self.next_seq = next_seq
        self.left = left  # act of the surroundings -> how often it may still happen, -1 for always
        self.boot = boot  # number of the host's present boot

    @property
    def clock(self) -> ClockState:
        clock: ClockState = self.values[CLOCK]
        return clock

    @property
    def now_us(self) -> int:
        return self.clock.logical_us

    def get(self, subject: str) -> Any | None:
        value = self.values.get(subject)
        return self.shared.values.get(subject) if value is None else value

    def due(
        self, stage: str, now_us: int, limit: int, group: str | None, after: tuple[int, int, str] | None
    ) -> Sequence[Row]:
        rows = [
            row
            for value in self.values.values()
            for row in rows_of(value)
            if row.stage == stage
            and row.due_us <= now_us
            and (group is None or row.group == group)
            and (after is None or (row.due_us, row.rank, row.subject) > after)
        ]
        rows.sort(key=_place_in_queue)
        return rows[:limit]

    def body(self, seq: int) -> Body:
        return self.record_bodies[seq]

    def edges(self, member: str, after_position: int, limit: int) -> Sequence[Edge]:
        return self.edge_map.get(member, ())[after_position + 1 :][:limit]

    def reading(self, *, elapsed_us: int, skew_us: int = 0, boot: int = 0) -> c.Reading:
        """The next reading of the world's one source, so much later than its last one."""
        source = self.clock.sources[SOURCE]
        if boot and boot_name(boot) != source.boot_id:
            return c.Reading(
                source=SOURCE,
                boot_id=boot_name(boot),
                utc_us=source.anchor_utc_us,
                tick_us=TICK_US,
                uncertainty_us=self.shared.world.uncertainty_us,
            )
        tick_us = source.last_tick + elapsed_us
        return c.Reading(
            source=SOURCE,
            boot_id=source.boot_id,
            utc_us=source.anchor_utc_us + tick_us - source.anchor_tick + skew_us,
            tick_us=tick_us,
            uncertainty_us=self.shared.world.uncertainty_us,
        )


def _place_in_queue(row: Row) -> tuple[int, int, str]:
    return row.due_us, row.rank, row.subject


def boot_name(boot: int) -> str:
    return f"boot-{boot}"


def ask(place: Place, command: Any) -> Decided:
    """What the real `decide` says. The same place and command give the same answer, identifiers included."""
    given = Given(
        IdSource(place.next_seq.to_bytes(16), START_US), place.shared.world.limits, QUESTIONS, {}, PERSON, START_US
    )
    request = c.Request(command=command, key="k", principal=PERSON, grant=GRANT, assurance="service")
    return decide(place, request, given, place.next_seq)


def follow(place: Place, decided: Decided, spends: str = "", boot: int = 0) -> Place:
    """The place that the decision leads to. `spends` names the act of the surroundings that it was."""
    edge_map, bodies, left = place.edge_map, place.record_bodies, place.left
    if decided.edges:
        edge_map = dict(edge_map)
        for edge in decided.edges:
            edge_map[edge.member] = (*edge_map.get(edge.member, ()), edge)
    named = {fact.seq: fact.body for fact in decided.facts if type(fact.body) in _NAMED}
    if named:
        bodies = {**bodies, **named}
    if spends and left[spends] > 0:
        left = {**left, spends: left[spends] - 1}
    values = {**place.values, **decided.values}
    return Place(place.shared, values, edge_map, bodies, place.next_seq + len(decided.facts), left, boot or place.boot)


class Refold:
    """The records of one batch folded again, from the place before it; it notes every row of a machine on the way."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self.values: dict[str, Any] = {}
        self.edges: list[Edge] = []
        self.moves: list[tuple[str, MachineRow]] = []  # subject and the row that it took
        self.jumps: list[str] = []  # subjects whose version did not go up by one

    def get(self, subject: str) -> Any | None:
        value = self.values.get(subject)
        return self._place.get(subject) if value is None else value

    def put(self, subject: str, value: Any) -> None:
        before = self.get(subject)
        machine = MACHINE_OF.get(type(value))
        if machine is not None:
            origin = "" if before is None else before.state
            if origin != value.state:
                self.moves.append((subject, MachineRow(machine, origin, value.state)))
        if value.version != (0 if before is None else before.version) + 1:
            self.jumps.append(subject)
        self.values[subject] = value

    def add_edge(self, edge: Edge) -> None:
        self.edges.append(edge)

    def fold(self, facts: Sequence[Fact]) -> Refold:
        for fact in facts:
            evolve(self, fact)
        return self


class RootRefused(Exception):
    """A world cannot be built: one of its first commands was refused."""


def root_of(world: World) -> Place:
    """The place where a world begins: scope open, workers enrolled, plan submitted. Raises RootRefused."""
    shared = Shared(world, {})
    place = Place(shared, {}, {}, {}, 1, dict(world.may), 1)
    reading = c.Reading(
        source=SOURCE, boot_id=boot_name(1), utc_us=START_US, tick_us=TICK_US, uncertainty_us=world.uncertainty_us
    )
    for command in (_opening(reading), *_enrolments(world), intent(world)):
        decided = ask(place, command)
        if decided.refusal is not None:
            raise RootRefused(f"{world.name}: {decided.refusal.code}, {decided.refusal.message}")
        place = follow(place, decided)
        if not shared.values:
            place = _with_decisions(place)
    shared.values[AUTHORITY] = place.values.pop(AUTHORITY)
    return place


def account_name(place: Place, subject: str) -> str:
    """How a world names an account: `scope`, `plan`, or a task."""
    value = place.values.get(subject)
    if isinstance(value, OrderState):
        return value.task
    return subject if subject == "scope" else "plan" if subject.startswith("plan_") else ""


def _with_decisions(place: Place) -> Place:
    """Record every decision of the constitution once, so that no later command adds one."""
    refold = Refold(place)
    facts = [
        Fact(place.next_seq + number, f"decision:{QUESTIONS[pair]}", 1, _ruling(pair))
        for number, pair in enumerate(PAIRS)
    ]
    refold.fold(facts)
    place.shared.values.update(refold.values)
    return Place(
        place.shared, place.values, place.edge_map, place.record_bodies, place.next_seq + len(facts), place.left, 1
    )


def _ruling(pair: str) -> AuthorityDecision:
    action, resource = pair.split("/")
    return AuthorityDecision(
        decision=QUESTIONS[pair],
        principal=PERSON,
        principal_kind="human",
        action=action,
        resource_kind=resource,
        attributes={},
        allow=True,
        rule="everything",
        reason="permitted",
        constitution_version=1,
        constitution=DIGEST,
        vocabulary=DIGEST,
    )


def _opening(reading: c.Reading) -> c.OpenScope:
    person = c.PrincipalDraft(principal=PERSON, kind="human", name="person", public_key="00", assurance="service")
    return c.OpenScope(
        scope="scope",
        store_id="store",
        schema_registry=DIGEST,
        constitution_version=1,
        constitution=DIGEST,
        vocabulary=DIGEST,
        policies="",
        schema="",
        principals=(person,),
        grants=(c.GrantDraft(grant="grant_1", chain=GRANT, audience=PERSON, operations=PAIRS),),
        reading=reading,
    )


def worker_name(number: int) -> str:
    return f"worker_{number:032x}"


def enrolment(world: World, number: int, boot: int) -> c.EnrolWorker:
    """Workers are dealt to the world's hosts in turn."""
    host = f"host-{1 + (number - 1) % world.hosts}"
    return c.EnrolWorker(
        worker=worker_name(number), host=host, boot_id=boot_name(boot), pid=number, executors=("command/1",)
    )


def _enrolments(world: World) -> list[c.EnrolWorker]:
    return [enrolment(world, number, 1) for number in range(1, world.workers + 1)]


def intent(world: World) -> c.SubmitPlan:
    """The world's plan as a person submits it."""
    return c.SubmitPlan(
        name="plan",
        objective="a small world",
        content=DIGEST,
        orders=world.orders,
        recovery="replace",
        mode="continue",
        ceilings=world.ceilings,
        deadline_us=world.deadline_us,
    )
