"""Where each state of an order is found: written down a second time, since the checks of every world use the rows
themselves."""

from __future__ import annotations

import pytest

from tests.support.states import world_in
from tests.support.world import World

FOUND = {
    "blocked_dependency": set(),
    "blocked_budget": {"budget"},
    "ready": {"claim"},
    "reserved": {"reservation"},
    "active/leased": {"lease"},
    "active/running": {"lease"},
    "active/renewed": {"lease"},
    "result_pending": {"finish"},
    "result_pending/verified": {"finish"},
    "conflict": set(),
    "retry_wait": {"retry"},
    "cancelled/live": {"unsettled"},
    "cancelled/late": set(),
    "ready/released": {"claim"},
    "ready/expired": {"claim"},
    "applied": set(),
    "failed": set(),
    "budget_exhausted": set(),
}
ALWAYS = {"task", "attempt", "plan", "worker"}


def rows_about(world: World, task: str) -> dict[str, int]:
    """Stage -> due of the rows that find an order, its attempts and their holds."""
    order = world.order(task).order
    mine = {name for name, value in world.live.values.items() if getattr(value, "order", "") == order}
    return {
        stage: row.due_us
        for stage, rows in world.index.items()
        for row in rows.values()
        if row.subject in mine and stage not in ALWAYS
    }


@pytest.mark.parametrize("name", sorted(FOUND))
def test_whoever_looks_after_a_state_finds_it_and_nobody_else_does(name: str) -> None:
    assert set(rows_about(world_in(name), "a")) == FOUND[name]


def test_what_waits_for_time_is_found_at_its_time() -> None:
    leased, waiting = world_in("active/leased"), world_in("retry_wait")
    assert rows_about(leased, "a") == {"lease": leased.attempt_of(leased.order("a")).lease_us}
    assert rows_about(waiting, "a") == {"retry": waiting.order("a").retry_due_us}
