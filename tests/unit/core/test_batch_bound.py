"""One command's records have a bound: at it everything is written, past it nothing is (C27)."""

from __future__ import annotations

from msgspec.structs import replace

from fencepost.core.limits import Limits
from tests.support.world import World, draft, plan_of


def test_c27_a_batch_may_have_as_many_records_as_the_bound_and_not_one_more() -> None:
    limits = Limits()
    world = World(limits)
    command = plan_of(draft("a"), draft("b", "a"))
    whole = world.decide(command)
    assert whole.refusal is None
    count = len(whole.facts)

    world.limits = replace(limits, batch_records_max=count)
    at_the_bound = world.decide(command)
    assert at_the_bound.refusal is None and len(at_the_bound.facts) == count

    world.limits = replace(limits, batch_records_max=count - 1)
    past = world.decide(command)
    assert past.refusal is not None and past.refusal.code == "too_large"
    assert past.refusal.detail == {"subject": "the batch of this command", "bound": f"{count - 1} records"}
    assert (past.facts, past.values, past.edges, past.result) == ((), {}, (), {})
    assert past.decision == whole.decision != ""
