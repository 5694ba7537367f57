"""What people are shown of every state: each document of `core/views.py`, as text that is reviewed as a diff (W13, X3).

After a wanted change, run this file with FENCEPOST_WRITE_DOWN=1 and read the diff.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from fencepost.core import views
from fencepost.core.records.attempt import AttemptResult
from fencepost.core.state import AttemptState, HoldState, OrderState, PlanState
from tests.support.states import HISTORIES, world_in
from tests.support.world import SECOND, World
from tests.tables.lives import LIVES
from tests.tables.scribe import Scribe

WRITTEN = Path(__file__).resolve().parent / "written"
REWRITE = "FENCEPOST_WRITE_DOWN"


def documents(world: World, *, about: str = "") -> list[str]:
    """Every document of a world, one a line; of the orders only that of the task that it is about, if it is named."""
    lines = []
    scribe = Scribe(world)

    def tell(kind: str, document: Any) -> None:
        lines.append(scribe.plain(f"{kind} {json.dumps(document, ensure_ascii=False, separators=(',', ':'))}"))

    values = world.live.values
    for subject in sorted(values):
        value = values[subject]
        if isinstance(value, OrderState) and about in ("", value.task):
            facts = world.body(value.result_seq).facts if value.result_seq else None
            tell("order", views.order_document(value, facts))
            tell("why", views.why(value, ready_behind=len(lines)))
            if value.state == "blocked_dependency":
                tell("why", views.why(value, undecided=True))
            tell("account", views.account_document(value.task, value.account))
        elif isinstance(value, AttemptState):
            tell("attempt", views.attempt_document(value))
        elif isinstance(value, HoldState):
            tell("hold", views.hold_document(value))
        elif isinstance(value, PlanState):
            orders = [one for one in values.values() if isinstance(one, OrderState) and one.plan == subject]
            outcomes = [views.plan_outcome(value, orders, clock, world.get) for clock in (world.clock, None)]
            tell("plan", views.plan_document(value, outcomes[0]))
            tell("outcome", outcomes)
            tell("account", views.account_document(value.name, value.account))
    tell("clock", views.clock_document(world.clock, world.utc_us + 7))
    return lines


def compare(name: str, lines: list[str]) -> None:
    file = WRITTEN / f"documents_of_{name.replace('/', '_').replace(' ', '_')}.txt"
    told = "\n".join(lines) + "\n"
    if os.environ.get(REWRITE):
        file.write_text(told, encoding="utf-8")
    assert told == file.read_text(encoding="utf-8"), f"if that is wanted: {REWRITE}=1"


@pytest.mark.parametrize("state", HISTORIES)
def test_the_documents_of_every_state_are_those_that_are_written_down(state: str) -> None:
    compare(state, documents(world_in(state), about="a"))


@pytest.mark.parametrize("life", ["everything_an_order_may_say", "budgets_that_run_short", "clocks_that_jump"])
def test_the_documents_of_a_life_are_those_that_are_written_down(life: str) -> None:
    compare(life, documents(LIVES[life]()))


def test_results_are_shown_of_applied_orders_only() -> None:
    world = world_in("failed")
    order = world.order("a")
    body = world.body(world.attempt_of(order).result_seq)
    assert isinstance(body, AttemptResult)
    assert views.order_document(order, body.facts)["artifacts"] == []


@pytest.mark.parametrize(
    "state", ["ready", "reserved", "retry_wait", "active/running", "blocked_dependency", "applied"]
)
def test_a_blocked_clock_holds_up_what_needs_time_and_nothing_else(state: str) -> None:
    world = world_in(state)
    order = world.order("a")
    assert not views.held_up_by_clock(order, world.clock, world.get)
    assert not views.held_up_by_clock(order, None, world.get)
    assert not views.is_blocked(world.clock) and not views.is_blocked(None)
    world.tick_us += SECOND
    world.utc_us += 3_600 * SECOND
    world.observe()
    assert views.is_blocked(world.clock)
    assert views.held_up_by_clock(order, world.clock, world.get) == (state in ("ready", "reserved", "retry_wait"))
    alone = [order]
    running = state in ("reserved", "active/running")
    assert views.only_a_person_can_move(alone, world.clock, world.get) == (not running and state != "applied")
    assert not views.only_a_person_can_move(alone, None, world.get)


def test_a_reason_that_nobody_registered_is_told_by_the_state() -> None:
    order = replace(world_in("ready").order("a"), reason="whatever")
    told = views.why(order)
    assert (told["message"], told["next"]) == ("It is ready.", "fencepost order show")
    assert not views.waits_for_person(order)


def test_while_the_clock_waits_a_plan_waits_as_well() -> None:
    world = world_in("ready")
    plan = world.live.values[world.order("a").plan or ""]
    orders = [world.order(task) for task in ("first", "a", "after", "cleanup")]
    assert views.plan_outcome(plan, orders, world.clock, world.get) == "open"
    world.tick_us += SECOND
    world.utc_us += 3_600 * SECOND
    world.observe()
    assert views.plan_outcome(plan, orders, world.clock, world.get) == "waiting"
    assert views.plan_outcome(plan, orders, None, world.get) == "open"


def test_a_clock_shows_a_grace_while_it_lasts_and_is_never_ahead() -> None:
    world = world_in("ready")
    clock = world.clock
    for grace_until_us, shown in (
        (clock.logical_us + 1, clock.logical_us + 1),
        (clock.logical_us, None),
        (0, None),
    ):
        graced = replace(clock, grace_until_us=grace_until_us)
        assert views.clock_document(graced, 0)["grace_until_us"] == shown
    for utc_us, behind_us in ((clock.logical_us + 5, 5), (clock.logical_us, 0), (clock.logical_us - 5, 0)):
        assert views.clock_document(clock, utc_us)["behind_us"] == behind_us


def test_a_plan_waits_for_the_clocks_person_as_soon_as_its_last_lease_is_over() -> None:
    world = world_in("active/running")
    order = world.order("a")
    plan = world.live.values[order.plan or ""]
    world.advance(12 * SECOND)
    world.tick_us += SECOND
    world.utc_us += 3_600 * SECOND
    world.observe()
    assert views.plan_outcome(plan, [order], world.clock, world.get) == "waiting"
