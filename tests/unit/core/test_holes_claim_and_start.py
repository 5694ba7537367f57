"""Reserving, releasing and activating: comparisons that no other test could tell from slightly weaker ones."""

from __future__ import annotations

import pytest

from fencepost.core import commands as c
from fencepost.core.decide import dispatch, specs
from fencepost.core.records.attempt import AttemptDescriptor
from fencepost.core.state import AttemptState
from tests.support.states import world_in
from tests.support.world import World, draft


def attempt(world: World) -> AttemptState:
    return world.attempt_of(world.order("a"))


@pytest.mark.parametrize("off_by", [-1, 1])
def test_w3_a_reservation_is_activated_under_its_own_fence_alone(off_by: int) -> None:
    world = world_in("reserved")
    known = attempt(world)
    assert world.refused(world.activation(known, fence=known.fence + off_by)) == "stale_fence"
    assert attempt(world) == known


@pytest.mark.parametrize("off_by", [-1, 1])
def test_w2_a_reservation_is_given_back_under_its_own_fence_alone(off_by: int) -> None:
    world = world_in("reserved")
    known = attempt(world)
    assert world.refused(c.ReleaseReservation(attempt=known.attempt, fence=known.fence + off_by)) == "stale_fence"
    assert attempt(world) == known and world.order("a").state == "reserved"
    world.ok(c.ReleaseReservation(attempt=known.attempt, fence=known.fence))


def test_c3_an_order_that_changed_while_it_is_ready_is_not_reserved_by_who_saw_it_before() -> None:
    world = World()
    world.submit(draft("a"))
    seen = world.order("a")
    world.ok(c.SetBudget(account=seen.order, ceilings={"attempts": 2}))
    now = world.order("a")
    assert (now.state, now.version) == ("ready", seen.version + 1)
    command = c.Reserve(order=seen.order, expected=seen.version, worker=world.worker())
    assert world.refused(command) == "version_moved"
    assert world.order("a") == now, "a refusal leaves nothing behind"


@pytest.mark.parametrize("wide", ["mode", "executor"])
def test_w4_neither_mode_nor_executor_grants_what_the_other_forbids(wide: str, monkeypatch: pytest.MonkeyPatch) -> None:
    both = ("network.reach", "workspace.write")
    if wide == "mode":
        monkeypatch.setitem(dispatch.MODE_CEILINGS, "local", both)
    else:
        monkeypatch.setitem(specs.EXECUTOR_CEILINGS, ("command", 1), both)
    world = World()
    world.submit(draft("a", may=both))
    world.activate("a")
    granted = [fact.body.granted for fact in world.facts if isinstance(fact.body, AttemptDescriptor)]
    assert granted == [("workspace.write",)]
