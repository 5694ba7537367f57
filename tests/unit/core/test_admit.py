"""Admission and readiness: W1, W15, C1, and what the field says about dependencies (06, 26, 28)."""

from __future__ import annotations

from itertools import permutations, product
from typing import Any

import pytest
from msgspec.structs import replace

from fencepost.core import commands as c
from fencepost.core.limits import Limits
from fencepost.core.machines import ENDED
from fencepost.core.records.attempt import AttemptReservation
from fencepost.core.records.plan import DependencyObserved, PlanRevision, WorkOrderMoved, WorkOrderSpec
from tests.support.states import gone
from tests.support.world import SECOND, World, draft, group, plan_of


def spec_of(world: World, task: str) -> WorkOrderSpec:
    body = world.body(world.order(task).spec_seq)
    if not isinstance(body, WorkOrderSpec):
        raise TypeError(body)
    return body


def test_w1_the_spec_carries_what_was_asked_for_and_never_changes() -> None:
    world = World()
    world.submit(draft("a", outputs=("x",), params='{"k":1}', may_fail=True, classification="private"), draft("b", "a"))
    spec = spec_of(world, "a")
    assert (spec.task, spec.outputs, spec.params, spec.may_fail, spec.classification) == (
        "a",
        ("x",),
        '{"k":1}',
        True,
        "private",
    )
    assert spec.spec != spec.contract and spec.lineage == spec.order and spec.replaces is None
    assert spec.accounts == ("scope", world.order("a").plan, spec.order)
    assert spec.policies.cancellation == "fence_at_once" and spec.constitution_version == 1
    world.finish("a")
    assert spec_of(world, "a") == spec and world.order("a").spec == spec.spec


@pytest.mark.parametrize(
    "change",
    [
        {"run": ("false",)},
        {"outputs": ("y",)},
        {"attempt_time_us": 31 * SECOND},
        {"may": ()},
        {"params": "{}"},
        {"manifest": "sha256:" + "4" * 64},
        {"ceilings": {"attempts": 2}},
        {"may_fail": True},
        {"environment": ("PATH",)},
    ],
    ids=lambda change: next(iter(change)),
)
def test_w1_c1_a_changed_order_has_another_contract(change: dict[str, Any]) -> None:
    first, second = World(), World()
    first.submit(draft("a"), draft("b", "a"))
    second.submit(draft("a", **change), draft("b", "a"))
    assert spec_of(first, "a").contract != spec_of(second, "a").contract
    assert spec_of(first, "b").contract != spec_of(second, "b").contract, "needs are named by their contracts"


def test_c1_contracts_do_not_depend_on_ids_and_specs_do() -> None:
    world = World()
    world.submit(draft("a"), draft("b", "a"))
    first = spec_of(world, "b")
    world.submit(draft("a"), draft("b", "a"), mode="new")
    second = spec_of(world, "b")
    assert first.order != second.order
    assert first.contract == second.contract and first.spec != second.spec


def test_c1_definition_order_is_kept_though_orders_are_written_after_their_needs() -> None:
    world = World()
    plan = world.submit(draft("last", "first"), draft("first"))
    body = world.body(world.live.values[plan].record_seq)
    assert isinstance(body, PlanRevision) and [task.name for task in body.tasks] == ["last", "first"]
    assert (world.order("last").position, world.order("first").position) == (0, 1)
    rows = world.due("task", 2**62, 9, plan, None)
    assert [world.live.values[row.subject].task for row in rows] == ["last", "first"]


def test_c1_the_same_plan_is_found_again_and_another_one_is_not_mixed_in() -> None:
    world = World()
    plan = world.submit(draft("a"))
    assert world.ok(plan_of(draft("a"))) == {**world.ok(plan_of(draft("a"), mode="again")), "fresh": False}
    assert world.ok(plan_of(draft("a")))["plan"] == plan
    assert world.refused(plan_of(draft("b"))) == "plan_changed"
    beside = world.submit(draft("b"), mode="new")
    assert beside != plan
    world.ok(c.CancelPlan(plan=beside))
    world.check()


def test_c1_a_finished_plan_is_told_again_and_only_again_makes_a_new_one() -> None:
    world = World()
    plan = world.submit(draft("a"))
    world.finish("a")
    assert world.ok(plan_of(draft("a"))) == {
        "plan": plan,
        "name": "plan",
        "content": world.live.values[plan].content,
        "revision": 1,
        "fresh": False,
    }
    again = world.ok(plan_of(draft("a"), mode="again"))
    assert again["fresh"] and again["plan"] != plan
    other = World()
    other.submit(draft("a"))
    other.finish("a")
    assert other.ok(plan_of(draft("b")))["fresh"], "a finished plan of other content makes room"


def test_w15_an_order_outside_a_plan_waits_for_existing_orders() -> None:
    world = World()
    world.submit(draft("a"), draft("b"))
    ids = [world.order(task).order for task in "ab"]
    world.finish("a")
    made = world.ok(c.SubmitOrder(order=draft("x", group("required", *ids, ids=True))))
    order = world.live.values[made["order"]]
    assert order.state == "blocked_dependency" and order.groups[0].satisfied == 1
    assert order.accounts == ("scope", order.order) and made["version"] == order.version
    world.finish("b")
    assert world.live.values[made["order"]].state == "ready"
    late = world.ok(c.SubmitOrder(order=draft("y", group("required", ids[0], outcomes=("failed",), ids=True))))
    assert world.live.values[late["order"]].state == "dependency_failed"
    world.check()


def test_w15_the_same_member_in_two_groups_counts_in_each() -> None:
    world = World()
    world.submit(draft("a"), draft("b", group("required", "a"), group("optional", "a")))
    assert world.order("a").dependents == 2
    world.finish("a")
    assert world.order("b").state == "ready"


# Verdicts

OUTCOMES = ("applied", "failed", "cancelled", "dependency_failed", "budget_exhausted")


def _end(world: World, task: str, outcome: str) -> None:
    if outcome == "applied":
        world.finish(task)
    elif outcome == "failed":
        world.fail(task)
    elif outcome == "cancelled":
        world.ok(c.CancelOrder(order=world.order(task).order))
    elif outcome == "dependency_failed":
        world.fail("lost" + task)
    elif outcome == "budget_exhausted":
        gone(world, task)


def _verdict(kind: str, wanted: tuple[str, ...], ended: tuple[str, ...], total: int) -> str:
    good = sum(outcome in wanted for outcome in ended)
    if kind == "required":
        return "fails" if good < len(ended) else "holds" if good == total else "open"
    if kind == "optional":
        return "holds" if len(ended) == total else "open"
    return "holds" if good else "fails" if len(ended) == total else "open"


STATES = {"holds": "ready", "fails": "dependency_failed", "open": "blocked_dependency"}


def _parents(outcomes: tuple[str, ...]) -> list[c.OrderDraft]:
    orders = []
    for place, outcome in enumerate(outcomes):
        task = f"p{place}"
        if outcome == "dependency_failed":
            orders += [draft(f"lost{task}"), draft(task, f"lost{task}")]
        else:
            orders.append(draft(task, attempts=1))
    return orders


@pytest.mark.parametrize("kind", ["required", "optional", "alternative"])
@pytest.mark.parametrize("wanted", [("applied",), ("failed", "cancelled")], ids=["applied", "ended-badly"])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_case_28_verdicts_are_a_function_of_the_outcomes_in_every_finishing_order(
    kind: str, wanted: Any, count: int
) -> None:
    choices = OUTCOMES if count < 3 else ("applied", "failed", "cancelled")
    for outcomes in product(choices, repeat=count):
        if list(outcomes) != sorted(outcomes):
            continue  # parents are alike, so that only the multiset matters
        names = [f"p{place}" for place in range(count)]
        start = World()
        start.submit(*_parents(outcomes), draft("child", group(kind, *names, outcomes=wanted)))
        ends = set()
        for finishing in permutations(range(count)):
            world = start.fork()
            ended: tuple[str, ...] = ()
            for place in finishing:
                before = world.order("child").state
                if before in ("ready", "dependency_failed"):
                    assert before == world.order("child").state
                _end(world, names[place], outcomes[place])
                ended = (*ended, outcomes[place])
                assert world.order(names[place]).state == outcomes[place]
                expected = STATES[_verdict(kind, wanted, ended, count)]
                assert world.order("child").state == expected, (kind, outcomes, finishing)
            ends.add(world.order("child").state)
            moves = [
                fact
                for fact in world.facts
                if isinstance(fact.body, WorkOrderMoved) and fact.subject == world.order("child").order
            ]
            assert len(moves) == 2, "placed once, decided once"
        assert len(ends) == 1
        assert world.order("child").state in ("ready", "dependency_failed"), "decided when all have ended"


def test_case_28_a_cleanup_waits_for_a_parent_that_was_asked_to_stop_and_runs_once() -> None:
    world = World()
    world.submit(draft("a"), draft("b"), draft("cleanup", group("optional", "a", "b")))
    world.activate("a")
    world.ok(c.CancelOrder(order=world.order("a").order))
    assert world.order("cleanup").state == "blocked_dependency"
    world.fail("b")
    assert world.order("cleanup").state == "ready"
    ready = [f for f in world.facts if isinstance(f.body, WorkOrderMoved) and f.body.target == "ready"]
    assert sum(fact.subject == world.order("cleanup").order for fact in ready) == 1


def test_case_06_failure_reaches_the_whole_chain_and_nothing_of_it_is_ever_reserved() -> None:
    world = World()
    world.submit(draft("a"), draft("b", "a"), draft("c", "b"), draft("d", "c"))
    world.fail("a")
    assert [world.order(task).state for task in "bcd"] == ["dependency_failed"] * 3
    assert [world.order(task).reason for task in "bcd"] == ["dependency_failed"] * 3
    assert world.refused(c.ReserveNext(worker=world.worker(), count=9)) == "nothing_ready"


def test_case_06_a_cancel_before_it_ran_reaches_those_behind_it() -> None:
    world = World()
    world.submit(
        draft("a"), draft("b", "a"), draft("c", "b"), draft("d", group("required", "b", outcomes=("cancelled",)))
    )
    world.ok(c.CancelOrder(order=world.order("b").order))
    assert (world.order("c").state, world.order("d").state) == ("dependency_failed", "ready")
    assert world.order("a").state == "ready"


def test_case_06_a_chain_of_ten_thousand_ends_in_pages_without_recursion() -> None:
    count = 10_000
    world = World()
    world.submit(draft("t0"), *(draft(f"t{n}", f"t{n - 1}") for n in range(1, count)))
    plan = world.order("t0").plan or ""
    by_task = {value.task: name for name, value in world.live.values.items() if getattr(value, "task", "")}
    before = len(world.facts)
    order = world.live.values[by_task["t0"]]
    world.ok(c.CancelOrder(order=order.order))
    most = world.limits.fanout_per_batch
    assert len(world.facts) - before <= 3 * most + 3, "one batch tells a bounded number"
    rounds = 0
    while rows := world.due("tell", 2**62, 10, None, None):
        assert not world.due("claim", 2**62, 1, None, None), "nobody can be reserved meanwhile"
        for row in rows:
            world.ok(c.TellDependents(order=row.subject))
        rounds += 1
        assert rounds <= count // most + 2
    states = {world.live.values[name].state for task, name in by_task.items() if task != "t0"}
    assert states == {"dependency_failed"} and world.live.values[plan].open == 0


def test_case_06_a_wide_fan_out_is_told_in_pages_each_dependent_once() -> None:
    world = World(Limits(fanout_per_batch=10))
    world.submit(draft("root"), *(draft(f"leaf{n}", "root") for n in range(45)))
    world.finish("root")
    told = 0
    while rows := world.due("tell", 2**62, 10, None, None):
        ready = world.due("claim", 2**62, 100, None, None)
        assert len(ready) == 10 + 10 * told
        for row in rows:
            world.ok(c.TellDependents(order=row.subject))
        told += 1
    assert told == 4 and len(world.due("claim", 2**62, 100, None, None)) == 45
    seen = [fact.subject for fact in world.facts if isinstance(fact.body, DependencyObserved)]
    assert len(seen) == len(set(seen)) == 45
    root = world.order("root")
    assert world.ok(c.TellDependents(order=root.order)) == {"order": root.order, "done": True}
    world.check()


def test_case_06_a_page_of_cancels_tells_a_bounded_number_in_one_batch() -> None:
    world = World(Limits(fanout_per_batch=5, cancel_per_batch=8))
    parents = [f"p{n}" for n in range(8)]
    children = [f"c{n}" for n in range(8)]
    plan = world.submit(*(draft(p) for p in parents), *(draft(n, group("alternative", *parents)) for n in children))
    before = len(world.facts)
    world.ok(c.CancelPlan(plan=plan))
    seen = [fact for fact in world.facts[before:] if isinstance(fact.body, DependencyObserved)]
    assert len(seen) <= 5
    world.settle()
    world.check()
    assert world.live.values[plan].open == 0


def test_case_06_the_child_of_a_diamond_becomes_ready_exactly_once() -> None:
    for first, second in (("b", "c"), ("c", "b")):
        world = World()
        world.submit(draft("a"), draft("b", "a"), draft("c", "a"), draft("d", "b", "c"))
        world.finish("a")
        attempts = [world.activate(first, 1), world.activate(second, 2)]
        for attempt in attempts:
            world.ok(world.result(attempt))
        for attempt in attempts:
            world.ok(c.ApplyResult(attempt=attempt.attempt))
        assert world.order("d").state == "ready"
        ready = [
            fact
            for fact in world.facts
            if isinstance(fact.body, WorkOrderMoved)
            and fact.body.target == "ready"
            and fact.subject == world.order("d").order
        ]
        assert len(ready) == 1


def test_case_06_an_order_that_comes_while_its_member_still_tells_hears_it_once() -> None:
    world = World(Limits(fanout_per_batch=1))
    world.submit(draft("a"), draft("b", "a"), draft("c", "a"))
    world.finish("a")
    assert not world.order("a").told_done
    made = world.ok(c.SubmitOrder(order=draft("x", group("required", world.order("a").order, ids=True))))
    assert world.live.values[made["order"]].state == "blocked_dependency"
    for _ in range(3):
        world.settle()
    assert world.live.values[made["order"]].state == "ready"
    heard = [f for f in world.facts if isinstance(f.body, DependencyObserved) and f.subject == made["order"]]
    assert len(heard) == 1
    world.check()


@pytest.mark.parametrize(
    ("orders", "ring"),
    [
        ([draft("a", "a")], "a"),
        ([draft("a", "b"), draft("b", "a")], "ab"),
        ([draft("a", "c"), draft("b", "a"), draft("c", group("optional", "b")), draft("x", "a")], "abc"),
        ([draft("a", group("alternative", "b", "x")), draft("b", group("optional", "a")), draft("x")], "ab"),
    ],
)
def test_case_26_rings_of_every_kind_of_edge_are_refused_and_named(orders: list[c.OrderDraft], ring: str) -> None:
    decided = World().do(plan_of(*orders))
    assert decided.refusal is not None and decided.refusal.code == "dependency_cycle"
    named = decided.refusal.detail["ring"]
    assert all(name in named for name in ring) and ("x" in ring or "x" not in named)
    assert not [fact for fact in decided.facts if isinstance(fact.body, PlanRevision)]


def test_case_26_no_later_edge_closes_a_ring_since_edges_are_made_with_their_order_alone() -> None:
    world = World()
    world.submit(draft("a"), draft("b", "a"))
    made = world.ok(c.SubmitOrder(order=draft("x", group("required", world.order("b").order, ids=True))))["order"]
    for member, edges in world.live.edges.items():
        for edge in edges:
            dependent, needed = world.live.values[edge.dependent], world.live.values[member]
            assert dependent.spec_seq > needed.spec_seq
    assert world.live.values[made].state == "blocked_dependency"


def test_w15_a_new_edge_never_changes_an_active_order() -> None:
    world = World()
    world.submit(draft("a"))
    world.activate("a")
    before = world.order("a")
    world.ok(c.SubmitOrder(order=draft("x", group("required", before.order, ids=True))))
    after = world.order("a")
    assert replace(after, version=before.version, dependents=before.dependents) == before
    world.ok(world.result(world.attempt_of(after)))
    assert after.groups == ()


def test_w15_the_queue_is_ordered_by_age_class_position_and_sequence() -> None:
    world = World()
    world.submit(draft("low", priority="low"), draft("one"), draft("two"), draft("high", priority="high"))
    world.advance(SECOND)
    world.submit(draft("late"), name="late")
    rows = world.due("claim", world.now_us, 9, None, None)
    assert [world.live.values[row.subject].task for row in rows] == ["high", "one", "two", "late", "low"]
    assert len(world.due("claim", world.now_us, 2, None, None)) == 2
    reserved = world.ok(c.ReserveNext(worker=world.worker(), count=2))["reservations"]
    assert [made["task"] for made in reserved] == ["high", "one"]
    bodies = [fact.body for fact in world.facts if isinstance(fact.body, AttemptReservation)]
    assert len(bodies) == 2


def test_case_17_what_may_not_run_hides_nothing_behind_it() -> None:
    world = World()
    world.submit(*(draft(f"x{n}") for n in range(40)), name="over", deadline_us=SECOND)
    world.submit(
        *(draft(f"y{n}", attempt_time_us=9 * SECOND) for n in range(40)), name="poor", ceilings={"time_us": 9 * SECOND}
    )
    world.advance(SECOND)
    world.submit(draft("runs"))
    poor = world.ok(c.ReserveNext(worker=world.worker(), count=1))["reservations"]
    assert [made["task"] for made in poor] == ["y0"]
    made = world.ok(c.ReserveNext(worker=world.worker(), count=1))["reservations"]
    assert [made["task"] for made in made] == ["runs"]
    world.check()


def test_w15_unknown_terminal_is_no_end_for_those_who_wait() -> None:
    assert "unknown_terminal" not in ENDED
