"""What a decider works with: the state under the lock, with what its own batch has added (W18, W23)."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from fencepost.core import commands as c
from fencepost.core.decide import Batch
from fencepost.core.decide.authority import authorize
from fencepost.core.evolve import Edge
from fencepost.core.machines import CorruptHistory
from fencepost.core.records.attempt import AttemptReservation
from fencepost.core.records.plan import WorkOrderSpec
from fencepost.core.state import AUTHORITY, OrderState, PlanState
from tests.support.world import DIGEST, World, draft


def batch_of(world: World) -> Batch:
    return Batch(world, world.given(), len(world.facts) + 1)


def edge(member: str, position: int) -> Edge:
    return Edge(member, position, f"order_{member}_{position}", 0, "applied")


def test_dependents_are_those_of_the_store_and_then_those_of_this_batch() -> None:
    world = World()
    world.live.edges = {"a": [edge("a", 0), edge("a", 1)]}
    batch = batch_of(world)
    assert list(batch.dependents("a", -1, 9)) == [edge("a", 0), edge("a", 1)]
    for each in (edge("b", 0), edge("a", 2), edge("b", 5), edge("a", 3)):
        batch.add_edge(each)
    assert list(batch.dependents("a", -1, 9)) == [edge("a", position) for position in range(4)]
    assert list(batch.dependents("a", 2, 9)) == [edge("a", 3)], "behind a position, which is not among them"
    assert list(batch.dependents("a", 0, 2)) == [edge("a", 1), edge("a", 2)], "at most as many as were asked for"
    assert list(batch.dependents("a", 3, 9)) == []
    assert list(batch.dependents("b", 0, 9)) == [edge("b", 5)]
    assert list(batch.dependents("b", -1, 1)) == [edge("b", 0)]


def test_a_subject_of_another_kind_is_as_good_as_none() -> None:
    world = World()
    plan = world.submit(draft("a"))
    batch = batch_of(world)
    order = world.order("a")
    assert batch.find(order.order, OrderState) == order
    assert batch.find(order.order, PlanState) is None and batch.find("order_x", OrderState) is None
    assert batch.find(plan, PlanState) is not None


def test_a_state_that_names_a_record_of_another_kind_is_corrupt() -> None:
    world = World()
    world.submit(draft("a"))
    batch = batch_of(world)
    seq = world.order("a").spec_seq
    assert batch.body(seq, WorkOrderSpec).task == "a"
    with pytest.raises(CorruptHistory, match=rf"record {seq} is no AttemptReservation"):
        batch.body(seq, AttemptReservation)


def test_w23_what_was_decided_names_the_decision_of_its_own_pair_and_before_one_there_is_none() -> None:
    world = World()
    world.submit(draft("a"))
    command = c.CancelOrder(order=world.order("a").order)
    batch = batch_of(world)
    assert batch.decided({}).decision == ""
    request = world.request(command)
    own = world.given().questions["cancel_work/work_order"]
    assert authorize(batch, request) == (own, None)
    assert world.decide(command).decision == own
    unknown = world.request(command, principal="principal_" + "2" * 32)
    assert authorize(batch, unknown)[0] == "" == world.decide(command, grant=DIGEST).decision
    assert authorize(batch, world.request(command, grant=DIGEST))[0] == ""
    closed = World(opened=False)
    assert authorize(batch_of(closed), request)[0] == ""
    world.denied.add("cancel_work/work_order")
    fresh = World()
    fresh.denied.add("cancel_work/work_order")
    decided = fresh.decide(c.CancelOrder(order="order_x"))
    assert decided.decision == own and decided.refusal is not None and decided.refusal.code == "denied"
    assert decided.result == {}


def test_w23_nobodys_decision_is_a_denial_and_says_so() -> None:
    world = World()
    world.undecided.add("cancel_work/work_order")
    refusal = world.decide(c.CancelOrder(order="order_x")).refusal
    assert refusal is not None and refusal.code == "denied"
    assert refusal.detail == {"operation": "cancel_work/work_order", "rule": "no decision"}


@pytest.mark.parametrize(
    ("operations", "principal", "code"),
    [
        (("cancel_work/plan",), "", "grant_operation"),
        (("cancel_work/work_order",), "principal_" + "3" * 32, "grant_audience"),
    ],
)
def test_w23_a_grant_that_does_not_cover_a_use_names_the_operation(
    operations: tuple[str, ...], principal: str, code: str
) -> None:
    world = World(operations=operations)
    if principal:
        authority = world.live.values[AUTHORITY]
        known = dict(authority.principals)
        world.live.values[AUTHORITY] = replace(authority, principals={**known, principal: next(iter(known.values()))})
    who = {"principal": principal} if principal else {}
    refusal = world.decide(c.CancelOrder(order="order_x"), **who).refusal
    assert refusal is not None
    assert (refusal.code, refusal.field, refusal.detail) == (code, "/grant", {"operation": "cancel_work/work_order"})
