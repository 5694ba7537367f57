"""Grants in time, and grants by their digest (W23, C26)."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from fencepost.core import commands as c
from fencepost.core.evolve import evolve
from fencepost.core.machines import CorruptHistory
from fencepost.core.records.authority import GrantIssued
from fencepost.core.state import AUTHORITY
from tests.support.world import SECOND, Fold, World, draft


def until(world: World, us: int) -> None:
    """Let the world's grant end."""
    for fold in (world.live, world.replayed):
        state = fold.values[AUTHORITY]
        grants = {chain: replace(grant, expires_us=us) for chain, grant in state.grants.items()}
        fold.values[AUTHORITY] = replace(state, grants=grants)


NOTHING = c.CancelOrder(order="order_x")


def test_c26_a_grant_ends_by_the_accepted_time_even_if_the_host_is_behind() -> None:
    world = World()
    world.advance(5 * SECOND)
    world.utc_us -= 3 * SECOND
    until(world, world.now_us + 1)
    assert world.refused(NOTHING) == "not_found"
    until(world, world.now_us)
    assert world.refused(NOTHING) == "grant_expired"


def test_c26_a_grant_ends_by_the_hosts_time_even_if_the_accepted_one_stands_still() -> None:
    world = World()
    until(world, world.now_us + 5 * SECOND)
    world.utc_us += 4 * SECOND
    assert world.refused(NOTHING) == "not_found"
    world.utc_us += SECOND
    assert world.refused(NOTHING) == "grant_expired"


@pytest.mark.parametrize(
    "command",
    [c.SetBudget, c.RecordVerification, c.Reexamine, c.TellDependents, c.AdvanceCancel, c.ReleaseReservation],
)
def test_w8_whatever_stamps_a_time_or_rests_on_a_grant_is_decided_under_a_fresh_observation(command: type) -> None:
    assert command in c.NEEDS_CLOCK
    assert set(c.PAIRS) - c.NEEDS_CLOCK == {c.OpenScope, c.ObserveClock}


def test_w23_the_chain_that_names_a_grant_is_the_digest_of_what_was_issued() -> None:
    world = World()
    world.submit(draft("a"))
    fold = Fold()
    for fact in world.facts:
        if isinstance(fact.body, GrantIssued):
            wider = replace(fact.body, expires_us=1)
            with pytest.raises(CorruptHistory, match="not its digest"):
                evolve(fold, fact._replace(body=wider))
        evolve(fold, fact)
    assert fold.values == world.live.values
