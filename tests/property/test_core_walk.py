"""Every state of every machine meets every kind of record: the fold accepts it along the table, or refuses it (W13).

The records are those of the histories that tests reach, written anew for the subject that stands in the state: with
its version, its fence and its own state as the origin, so that nothing is refused for a trifle. States that no command
leads to today are put there by hand; a record of a later version may lead to them.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from fencepost.core.evolve import STEPS, Fact, evolve
from fencepost.core.machines import ATTEMPT, BUDGET_HOLD, CLOCK_DOMAIN, MACHINES, WORK_ORDER, CorruptHistory, Machine
from fencepost.core.records import KIND_OF
from fencepost.core.state import CLOCK, AttemptState, ClockState, HoldState, OrderState, encode_value
from tests.support.states import HISTORIES, TASK, world_in
from tests.support.world import Fold, World

MACHINE_OF: dict[type, Machine] = {
    OrderState: WORK_ORDER,
    AttemptState: ATTEMPT,
    HoldState: BUDGET_HOLD,
    ClockState: CLOCK_DOMAIN,
}
BASES = ("result_pending", "cancelled/live")  # with an order, an attempt, a hold that is held, and one that is not
PAIRS = [(machine.name, state) for machine in MACHINES.values() for state in machine.states]


def _samples() -> list[Fact]:
    """One record of each kind and each of its own words, from all histories."""
    found: dict[tuple[Any, ...], Fact] = {}
    for name in HISTORIES:
        for fact in world_in(name).facts:
            words = (
                "target",
                "disposition",
                "what",
                "family",
                "basis",
                "outcome",
                "decision",
                "purpose",
                "done",
                "satisfies",
            )
            found.setdefault((type(fact.body), *(getattr(fact.body, word, None) for word in words)), fact)
    return list(found.values())


SAMPLES = _samples()


def _subjects(world: World) -> dict[str, str]:
    order = world.order(TASK)
    attempt = world.attempt_of(order)
    return {"order": order.order, "attempt": attempt.attempt, "hold": attempt.hold, "clock": CLOCK}


def _readdressed(value: Any, subjects: dict[str, str]) -> Any:
    """Plain data in which every attempt and hold is the world's own."""
    if isinstance(value, str):
        prefix = value.partition("_")[0]
        own = prefix in ("attempt", "hold") and len(value) == len(prefix) + 33
        return subjects[prefix] if own else value
    if isinstance(value, dict):
        return {_readdressed(key, subjects): _readdressed(each, subjects) for key, each in value.items()}
    if isinstance(value, list):
        return [_readdressed(each, subjects) for each in value]
    return value


def _rewritten(fact: Fact, fold: Fold, subjects: dict[str, str], seq: int) -> Fact:
    body = msgspec.convert(_readdressed(msgspec.to_builtins(fact.body), subjects), type(fact.body))
    subject = _readdressed(fact.subject, subjects)
    known = fold.values.get(subject)
    changes: dict[str, Any] = {}
    attempt: AttemptState = fold.values[subjects["attempt"]]
    fields = body.__struct_fields__
    if "origin" in fields and known is not None:
        changes["origin"] = known.state
    if "fence" in fields:
        changes["fence"] = attempt.fence
    if "claim" in fields:
        changes["claim"] = attempt.claim
    if "ready_us" in fields and body.ready_us:
        changes["ready_us"] = fold.values[CLOCK].logical_us
    return Fact(seq, subject, 1 if known is None else known.version + 1, replace(body, **changes))


def _worlds(machine: str, state: str) -> list[tuple[World, dict[str, str]]]:
    """Worlds in which the subject of that machine stands in that state, put there by hand."""
    name = {"work_order": "order", "attempt": "attempt", "budget_hold": "hold", "clock_domain": "clock"}[machine]
    made = []
    for base in BASES:
        world = world_in(base)
        subjects = _subjects(world)
        value = world.replayed.values[subjects[name]]
        changes = {"state": state}
        if hasattr(value, "reason"):
            changes["reason"] = MACHINES[machine].reasons.get(state, ("applied",))[0]
        world.replayed.values[subjects[name]] = replace(value, **changes)
        made.append((world, subjects))
    return made


@pytest.mark.parametrize(("machine", "state"), PAIRS, ids=[f"{machine}-{state}" for machine, state in PAIRS])
def test_w13_every_state_meets_every_kind_of_record(machine: str, state: str) -> None:
    met: set[type] = set()
    for world, subjects in _worlds(machine, state):
        for sample in SAMPLES:
            fold = Fold()
            fold.values = dict(world.replayed.values)
            fold.edges = {member: list(edges) for member, edges in world.replayed.edges.items()}
            fact = _rewritten(sample, fold, subjects, len(world.facts) + 1)
            met.add(type(fact.body))
            before = dict(fold.values)
            try:
                evolve(fold, fact)
            except CorruptHistory as corrupt:
                assert fold.values == before and str(corrupt)
                continue
            for subject, value in fold.values.items():
                known = before.get(subject)
                if known is None or value is known:
                    continue
                assert value.version == known.version + 1
                assert encode_value(value)
                table = MACHINE_OF.get(type(value))
                if table is not None and value.state != known.state:
                    assert table.allows(known.state, value.state), f"{known.state} -> {value.state} by {fact.body}"
    assert met == set(STEPS) == set(KIND_OF), f"never met: {[kind.__name__ for kind in set(STEPS) - met]}"


def test_w13_from_a_terminal_state_no_record_leads_anywhere() -> None:
    moved = []
    for machine in MACHINES.values():
        for state in machine.terminal:
            for world, subjects in _worlds(machine.name, state):
                for sample in SAMPLES:
                    fold = Fold()
                    fold.values = dict(world.replayed.values)
                    fact = _rewritten(sample, fold, subjects, len(world.facts) + 1)
                    before = dict(fold.values)
                    try:
                        evolve(fold, fact)
                    except CorruptHistory:
                        continue
                    moved += [
                        (machine.name, state, value.state)
                        for subject, value in fold.values.items()
                        if MACHINE_OF.get(type(value)) is machine
                        and subject in before
                        and before[subject].state == state
                        and value.state != state
                    ]
    assert not moved
