"""Charges, settlements and children: in whichever order they come, the same accounts stand at the end (W18, W17, W15).

Receipts are charged before, between and after everything that ends their attempt; some of them its result names too.
Children of one parent end in any order, in any way. Ids, sequence numbers and versions may differ; amounts and states
may not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fencepost.core import commands as c
from fencepost.core.limits import Limits
from fencepost.core.machines import ENDED
from fencepost.core.records.common import Usage
from fencepost.core.state import SCOPE, Account, AttemptState, OrderState
from tests.conftest import profile_name
from tests.support.world import SECOND, World, draft, used

TASK = "a"
SPENT = ("calls", "tokens_input", "money_micros:EUR")
EXAMPLES = settings.get_profile(profile_name()).max_examples
pytestmark = pytest.mark.timeout(3_600 if profile_name() == "nightly" else 120)
PAGED = Limits(fanout_per_batch=1, cancel_per_batch=1, page_max=2)

Step = Callable[[World, AttemptState], object]
receipts = st.lists(st.dictionaries(st.sampled_from(SPENT), st.integers(0, 12), max_size=3), min_size=1, max_size=5)


def accounts_of(world: World) -> dict[str, Account]:
    """The accounts of all levels, by what they are of."""
    order = world.order(TASK)
    return {name: world.live.values[subject].account for name, subject in zip("spo", order.accounts, strict=True)}


def running(ceilings: Mapping[str, int]) -> tuple[World, AttemptState]:
    world = World()
    world.submit(draft(TASK, ceilings={"attempts": 2, **ceilings}, retry=False))
    attempt = world.activate(TASK)
    world.ok(world.event(attempt))
    return world, world.live.values[attempt.attempt]


def usage_of(number: int, spent: Mapping[str, int]) -> Usage:
    return Usage(receipt=f"r{number}", provider="shop", amounts=dict(spent))


def charge(number: int, spent: Mapping[str, int]) -> Step:
    return lambda world, attempt: world.do(world.charge(attempt, f"r{number}", **spent))


def ends(how: str, named: Sequence[Usage]) -> list[Step]:
    """What ends an attempt and settles it, step by step; its result names some of the receipts."""

    def report(world: World, attempt: AttemptState) -> None:
        usage = (used(attempt, time_us=4 * SECOND), *named)
        world.do(world.result(attempt, usage=usage, duration_us=4 * SECOND))

    def apply(world: World, attempt: AttemptState) -> None:
        world.do(c.ApplyResult(attempt=attempt.attempt))

    def cancel(world: World, attempt: AttemptState) -> None:
        world.ok(c.CancelOrder(order=attempt.order))

    def stopped(world: World, attempt: AttemptState) -> None:
        world.do(
            c.ReportStopped(reason="drained", attempt=attempt.attempt, fence=attempt.fence, duration_us=4 * SECOND)
        )

    def yielded(world: World, attempt: AttemptState) -> None:
        world.ok(world.yielding(attempt, duration_us=4 * SECOND, question="go"))

    return {
        "result": [report, apply],
        "cancel": [cancel, stopped],
        "result and cancel": [report, cancel],
        "cancel and result": [cancel, report],
        "yield": [yielded],
    }[how]


def shuffled(data: st.DataObject, settling: Sequence[Step], others: Sequence[Step]) -> list[Step]:
    """All of them in any order; those that settle stay in theirs."""
    places = data.draw(st.permutations([None] * len(settling) + list(range(len(others)))))
    left = iter(settling)
    return [next(left) if place is None else others[place] for place in places]


@settings(max_examples=max(EXAMPLES, 60))
@given(
    data=st.data(),
    spent=receipts,
    ceilings=st.dictionaries(st.sampled_from(SPENT), st.integers(0, 40), max_size=3),
    how=st.sampled_from(["result", "cancel", "result and cancel", "cancel and result", "yield"]),
)
def test_w18_any_interleaving_of_charges_and_settlement_gives_the_same_accounts(
    data: st.DataObject, spent: list[dict[str, int]], ceilings: dict[str, int], how: str
) -> None:
    named = [usage_of(number, spent[number]) for number in range(data.draw(st.integers(0, len(spent))))]
    charges = [charge(number, amounts) for number, amounts in enumerate(spent)]
    again = [charge(number, spent[number]) for number in data.draw(st.sets(st.integers(0, len(spent) - 1)))]
    found = []
    for steps in (
        [*charges, *ends(how, named)],
        [*ends(how, named), *charges],
        shuffled(data, ends(how, named), [*charges, *again]),
    ):
        world, attempt = running(ceilings)
        for step in steps:
            step(world, attempt)
            world.check()
        found.append(accounts_of(world))
    assert found[0] == found[1] == found[2]
    total: Counter[str] = Counter()
    for amounts in spent:
        total.update(amounts)
    for account in found[0].values():
        assert not account.held, "nothing is held once it is settled"
        assert {name: account.charged.get(name, 0) for name in SPENT} == {name: total[name] for name in SPENT}
        assert account.charged["time_us"] == 4 * SECOND


ENDINGS = ("applied", "failed", "cancelled")


def family(count: int) -> tuple[World, list[str]]:
    world = World(PAGED)
    world.submit(draft(TASK, attempts=2 * count + 2))
    attempt = world.activate(TASK)
    world.ok(world.event(attempt))
    names = [f"c{number}" for number in range(count)]
    for name in names:
        world.ok(world.child(world.live.values[attempt.attempt], draft(name, attempts=1, retry=False)))
    world.ok(world.checkpoint(world.live.values[attempt.attempt]))
    children = world.order(TASK).children
    world.ok(world.yielding(world.live.values[attempt.attempt], orders=tuple(children[name] for name in names)))
    return world, names


def end(world: World, name: str, how: str) -> None:
    task = f"{TASK}.{name}"
    if how == "applied":
        world.finish(task)
    elif how == "failed":
        world.fail(task)
    else:
        world.ok(c.CancelOrder(order=world.order(task).order))


@settings(max_examples=max(EXAMPLES // 2, 40))
@given(
    data=st.data(),
    hows=st.lists(st.sampled_from(ENDINGS), min_size=1, max_size=4),
)
def test_w15_the_order_in_which_children_finish_never_matters(data: st.DataObject, hows: list[str]) -> None:
    found: list[Any] = []
    line = list(enumerate(hows))
    for turns in (line, data.draw(st.permutations(line))):
        world, names = family(len(hows))
        for place, (number, how) in enumerate(turns):
            parent: OrderState = world.order(TASK)
            assert (parent.state, parent.reason) == ("waiting", "waiting_for_children"), f"woken after {place}"
            end(world, names[number], how)
            if data.draw(st.booleans()):
                tell(world)
            world.check()
        tell(world)
        parent = world.order(TASK)
        assert (parent.state, parent.reason) == ("ready", "children_ended")
        states = {name: world.order(f"{TASK}.{name}").state for name in names}
        found.append((states, accounts_of(world), world.live.values[SCOPE].account))
    assert found[0] == found[1]


@settings(max_examples=max(EXAMPLES // 2, 40))
@given(hows=st.lists(st.sampled_from((*ENDINGS, "")), min_size=1, max_size=4), cancels=st.booleans())
def test_w15_no_child_outlives_its_parent(hows: list[str], cancels: bool) -> None:
    """Whatever became of some of them, and however its parent ends."""
    world, names = family(len(hows))
    for name, how in zip(names, hows, strict=True):
        if how:
            end(world, name, how)
    tell(world)
    if world.order(TASK).state == "ready" and not cancels:
        world.finish(TASK)
    else:
        world.ok(c.CancelOrder(order=world.order(TASK).order))
    tell(world)
    for name, how in zip(names, hows, strict=True):
        child: OrderState = world.order(f"{TASK}.{name}")
        assert child.state == (how or "cancelled") and (how or child.reason == "parent_ended")
    world.check()


def tell(world: World) -> None:
    """Carry all ends on, page by page."""
    while rows := world.due("tell", world.now_us, 9, None, None):
        for row in rows:
            world.ok(c.TellDependents(order=row.subject))
    assert all(order.told_done for order in world.live.values.values() if _has_ended(order))


def _has_ended(value: Any) -> bool:
    return isinstance(value, OrderState) and value.state in ENDED
