"""Whatever is charged in whatever currency, nothing starts beside money that a level refuses (W18).

A level that names a currency refuses all others. Ceilings on every level, charges before and after the end of their
attempt, amounts that are not said and ceilings that a person sets are drawn; after each of them whoever could start is
asked to. It starts only where no account of its path names money and has, holds or would hold any that it does not
name; and where that is what it is refused for, some account is such a one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fencepost.core import commands as c
from fencepost.core.state import SCOPE, Account, HoldState, OrderState
from tests.conftest import profile_name
from tests.support.world import World, draft

MONEY = tuple(f"money_micros:{code}" for code in ("EUR", "GBP", "USD"))
EXAMPLES = settings.get_profile(profile_name()).max_examples
pytestmark = pytest.mark.timeout(3_600 if profile_name() == "nightly" else 120)

ceilings = st.dictionaries(st.sampled_from(MONEY), st.integers(1, 40), max_size=2)
wide = st.dictionaries(st.sampled_from(MONEY), st.integers(20, 40), max_size=2)  # for three attempts beside each other
charges = st.tuples(
    st.just("charge"),
    st.dictionaries(st.sampled_from(MONEY), st.integers(0, 9), max_size=2),
    st.lists(st.sampled_from(MONEY), max_size=1),
)
raises = st.tuples(st.just("set"), st.sampled_from("spo"), ceilings)
steps = st.lists(st.one_of(charges, raises), min_size=1, max_size=5)


def is_refused(account: Account, hold: Mapping[str, int]) -> bool:
    named = {name for name in account.ceiling if name in MONEY}
    booked = [*account.charged.items(), *account.unknown.items(), *hold.items()]
    return bool(named) and bool({name for name, amount in booked if name in MONEY and amount} - named)


def path_is_refused(world: World, order: OrderState, hold: Mapping[str, int]) -> bool:
    return any(is_refused(world.live.values[subject].account, hold) for subject in order.accounts)


def try_to_start(world: World, task: str) -> None:
    """Ask for a reservation and its start, whatever the state of the order, and give back what was not started."""
    order = world.order(task)
    if order.state == "blocked_budget":
        world.do(c.Reexamine(order=order.order, expected=order.version))
        order = world.order(task)
    if order.state == "ready":
        world.do(c.Reserve(order=order.order, expected=order.version, worker=world.worker()))
        order = world.order(task)
    if order.state == "reserved":
        attempt = world.live.values[order.attempt or ""]
        hold = world.live.values[attempt.hold]
        assert isinstance(hold, HoldState)
        assert not path_is_refused(world, order, hold.held), "it was reserved beside money that a level refuses"
    elif order.reason == "currency_not_budgeted":
        held = {name: 1 for name in MONEY if name in order.terms.hold} | later(world, order)
        assert path_is_refused(world, order, held), "no level refuses anything, and it is held up by that"


def later(world: World, order: OrderState) -> dict[str, int]:
    """Currencies that the levels of an order have come to budget, so that it holds in them."""
    return {name: 1 for subject in order.accounts[1:] for name in world.live.values[subject].account.ceiling}


@settings(max_examples=max(EXAMPLES, 100))
@given(plan=wide, own=ceilings, taken=steps, ends=st.booleans())
def test_w18_nothing_starts_beside_money_that_a_level_refuses(
    plan: dict[str, int], own: dict[str, int], taken: list[Any], ends: bool
) -> None:
    own = {name: min(most, plan.get(name, most)) for name, most in own.items() if name in plan or not plan}
    world = World()
    above = world.submit(
        draft("a", ceilings={"attempts": 2}),
        draft("b", ceilings={"attempts": 3, **own}),
        draft("c", ceilings={"attempts": 3}),
        ceilings=plan,
    )
    running, reserved = world.activate("a"), world.reserve("c")
    subjects = {"s": SCOPE, "p": above, "o": world.order("b").order}
    for number, (what, first, second) in enumerate(taken):
        if what == "charge":
            world.do(world.charge(running, f"r{number}", *second, **first))
        else:
            world.ok(c.SetBudget(account=subjects[first], ceilings=second))
        if ends and number == 0:
            world.do(world.result(running))
            world.do(c.ApplyResult(attempt=running.attempt))
        try_to_start(world, "b")
        if world.order("b").state == "reserved":
            attempt = world.live.values[world.order("b").attempt or ""]
            world.ok(c.ReleaseReservation(attempt=attempt.attempt, fence=attempt.fence))
    waiting = world.order("c")
    refused = path_is_refused(world, waiting, world.live.values[reserved.hold].held)
    refusal = world.do(world.activation(reserved)).refusal
    assert refusal is not None or not refused, "it started beside money that a level refuses"
    assert refusal is None or refusal.code != "currency_not_budgeted" or refused
    world.check()
