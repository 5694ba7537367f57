"""Budgets under concurrency: never past a ceiling, woken when budget comes free, ended when it never can (W18)."""

from __future__ import annotations

import time

from fencepost.core.commands import CancelOrder, GroupDraft, MemberDraft, SetBudget
from fencepost.core.records.plan import Retry
from tests.services.world import World, draft

SECOND = 1_000_000


def if_failed(task: str) -> tuple[GroupDraft, ...]:
    return (GroupDraft(kind="required", members=(MemberDraft(task=task, outcomes=("failed",)),)),)


def most_at_once(world: World) -> int:
    """The most attempts that were between their activation and their end, by the records."""
    running: set[str] = set()
    most = 0
    for kind, subject in world.kinds():
        if kind == "attempt_descriptor":
            running.add(subject)
        elif kind in ("attempt_result", "attempt_moved", "late_record"):
            running.discard(subject)
        most = max(most, len(running))
    return most


def test_concurrent_orders_stay_within_a_small_plan_budget(world: World) -> None:
    """Time for two attempts at once, and slots for six: blocked orders are woken as time comes free."""
    orders = [draft(f"n{n}", *world.say(f"n{n}", "sleep 0.05"), attempt_time_us=10 * SECOND) for n in range(20)]
    plan = world.submit(*orders, ceilings={"time_us": 25 * SECOND, "attempts": 60})
    world.worker(jobs=6)
    world.until_ended(plan, 20)
    assert world.plan(plan).applied == 20
    assert most_at_once(world) == 2
    moves = [kind for kind, _ in world.kinds() if kind == "work_order_moved"]
    assert len(moves) < 20 * 8, "freed budget wakes no more orders than fit"
    world.check()


def test_many_blocked_orders_hide_no_other_plan(world: World) -> None:
    """A page full of orders that cannot go on does not keep the next plan's order from being looked at."""
    first = world.submit(
        *(draft(f"n{n}", "sleep", "60", attempt_time_us=20 * SECOND) for n in range(400)),
        name="first",
        ceilings={"time_us": 30 * SECOND, "attempts": 1200},
    )
    world.worker(jobs=3)
    world.until(lambda: sum(order.state == "blocked_budget" for order in world.orders(first).values()) == 399, 20)
    second = world.submit(
        draft("a", *world.say("a", "sleep 0.3"), attempt_time_us=20 * SECOND),
        *(draft(f"n{n}", attempt_time_us=20 * SECOND, groups=if_failed("b")) for n in range(260)),
        draft("b", *world.say("b", "sleep 0.3"), attempt_time_us=20 * SECOND),
        name="second",
        ceilings={"time_us": 30 * SECOND, "attempts": 1200},
    )
    world.until_ended(second, 20)
    assert sorted(world.ran()) == ["a", "b"]


def test_budget_exhausted_when_it_can_never_fit(world: World) -> None:
    retry = Retry(on=("executor",), backoff_us=1_000, backoff_max_us=1_000)
    plan = world.submit(
        draft("spends", "sh", "-c", "sleep 1.2; false", retry=retry, attempt_time_us=2 * SECOND),
        draft("waits", attempt_time_us=2 * SECOND),
        draft("late", attempt_time_us=2 * SECOND),
        ceilings={"time_us": 2 * SECOND, "attempts": 9},
    )
    world.worker(jobs=2)
    world.until_ended(plan, 20)
    states = {task: order.state for task, order in world.orders(plan).items()}
    assert states["spends"] in ("failed", "budget_exhausted")
    assert "budget_exhausted" in states.values()
    world.check()


def test_a_budget_set_by_another_process_wakes_what_waits(world: World) -> None:
    plan = world.submit(
        draft("a", *world.say("a", "sleep 60"), attempt_time_us=20 * SECOND),
        draft("b", *world.say("b"), attempt_time_us=20 * SECOND),
        ceilings={"time_us": 30 * SECOND, "attempts": 6},
    )
    world.worker(jobs=2)
    world.until_ran("a")
    world.until_state(plan, "b", "blocked_budget")
    other = world.open()
    ceilings = {"time_us": 60 * SECOND, "attempts": 6}
    other.kernel.write(other.kernel.request("human", SetBudget(account=plan, ceilings=ceilings))).required()
    assert world.until(lambda: "b" in world.ran(), 5) < 2
    other.close()


def test_case_16_a_killed_or_cancelled_attempt_does_not_wedge_the_next(world: World) -> None:
    """The plan's time holds one attempt at a time: what a lost one held comes free, by proof and by cancel."""
    plan = world.submit(
        draft("a", *world.say("a", "sleep 60"), attempt_time_us=50 * SECOND),
        draft("b", *world.say("b", "sleep 60"), attempt_time_us=50 * SECOND),
        draft("c", *world.say("c", "sleep 0.1"), attempt_time_us=50 * SECOND),
        ceilings={"time_us": 70 * SECOND, "attempts": 9},
    )
    other = world.other_worker(jobs=1)
    world.until_ran("a")
    other.kill()
    world.worker(jobs=2)
    world.until(lambda: world.ran().count("a") == 2, 10, "the killed attempt's hold was not freed")
    world.write("human", CancelOrder(order=world.order(plan, "a").order))
    world.until_ran("b", 5)
    began = time.monotonic()
    world.write("human", CancelOrder(order=world.order(plan, "b").order))
    world.until_state(plan, "c", "applied", seconds=5)
    assert time.monotonic() - began < 3
    world.check()
