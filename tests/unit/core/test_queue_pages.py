"""How the queue is looked through: in pages, each behind the last row of the one before, within bounds (W15, C27)."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from fencepost.core import commands as c
from fencepost.core.index import Row
from fencepost.core.limits import Limits
from tests.support.world import SECOND, World, draft

Key = tuple[int, int, str]


class Watched:
    """Notes every question about the queue: how many rows, of which plan, behind which row, and what was found."""

    def __init__(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[tuple[int, str | None, Key | None, Sequence[Row]]] = []
        due = world.due

        def watched(stage: str, now_us: int, limit: int, group: str | None, after: Key | None) -> Sequence[Row]:
            rows = due(stage, now_us, limit, group, after)
            self.asked.append((limit, group, after, rows))
            return rows

        monkeypatch.setattr(world, "due", watched)


def others(world: World, count: int) -> None:
    """Orders outside plans, one each second, so that no two rows have one time."""
    for number in range(count):
        world.ok(c.SubmitOrder(order=draft(f"t{number:02}")))
        world.advance(SECOND)


def idle(world: World) -> str:
    """A worker that may run nothing of what is there, so that a search looks at everything it may."""
    return world.worker(7, executors=("other/1",))


def key(row: Row) -> Key:
    return row.due_us, row.rank, row.subject


@pytest.mark.parametrize(("page_max", "pages"), [(1, 1), (10, 1), (11, 2), (20, 2), (21, 3), (99, 3)])
def test_c27_a_search_ends_behind_the_page_that_reaches_the_bound(
    page_max: int, pages: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(replace(Limits(), page_max=page_max, plan_orders_max=99))
    others(world, 24)
    worker = idle(world)
    watched = Watched(world, monkeypatch)
    assert world.refused(c.ReserveNext(worker=worker, count=1)) == "nothing_ready"
    assert [limit for limit, _, _, _ in watched.asked] == [10] * pages
    rows = [row for _, _, _, found in watched.asked for row in found]
    assert rows == sorted(rows, key=key) and len(set(rows)) == len(rows) == min(10 * pages, 24)
    expected = [None, *(key(found[-1]) for _, _, _, found in watched.asked[:-1])]
    assert [after for _, _, after, _ in watched.asked] == expected


def test_w15_more_orders_are_asked_for_in_larger_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    others(world, 3)
    worker = idle(world)
    watched = Watched(world, monkeypatch)
    world.refused(c.ReserveNext(worker=worker, count=5))
    assert [limit for limit, _, _, _ in watched.asked] == [18]


def test_w15_whoever_asks_for_one_plan_is_given_that_plans_orders_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    world.submit(draft("first", priority="high"), name="other")
    plan = world.submit(draft("a"), draft("b"))
    worker = world.worker()
    watched = Watched(world, monkeypatch)
    made = world.ok(c.ReserveNext(worker=worker, count=5, plan=plan))["reservations"]
    assert [one["task"] for one in made] == ["a", "b"]
    assert {group for _, group, _, _ in watched.asked} == {plan}


def over(world: World, count: int, name: str) -> None:
    """A plan whose deadline is over and whose orders still stand in the queue."""
    world.submit(*(draft(f"{name}{number:02}") for number in range(count)), name=name, deadline_us=SECOND)


@pytest.mark.parametrize(("plan_orders_max", "pages"), [(4, 1), (5, 2), (9, 2), (10, 3)])
def test_c27_orders_of_plans_that_are_over_have_a_bound_of_their_own(
    plan_orders_max: int, pages: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pages of ten rows, all of plans that are over: a search goes on while at most two largest plans are passed."""
    world = World(replace(Limits(), page_max=2))
    for plan in range(4):
        over(world, 9, f"p{plan}")
    world.advance(2 * SECOND)
    world.limits = replace(world.limits, plan_orders_max=plan_orders_max)
    worker = idle(world)
    watched = Watched(world, monkeypatch)
    assert world.refused(c.ReserveNext(worker=worker, count=1)) == "nothing_ready"
    assert [limit for limit, _, _, _ in watched.asked] == [10] * pages


def test_c27_a_page_of_nothing_but_what_is_over_is_followed_by_the_largest(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(replace(Limits(), page_max=15))
    over(world, 13, "gone")
    world.advance(2 * SECOND)
    others(world, 20)
    worker = idle(world)
    watched = Watched(world, monkeypatch)
    assert world.refused(c.ReserveNext(worker=worker, count=1)) == "nothing_ready"
    # Ten that are over, then fifteen of which three are, so that twelve were looked at, then fifteen once more.
    assert [(limit, len(found)) for limit, _, _, found in watched.asked] == [(10, 10), (15, 15), (15, 8)]


def test_c27_what_is_passed_does_not_count_as_looked_at_nor_the_other_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of both kinds in one page: the next one is asked for while at most ten rows were passed."""
    world = World(replace(Limits(), page_max=99))
    for number in range(4):
        over(world, 5, f"gone{number}")
        for place in range(5):
            world.ok(c.SubmitOrder(order=draft(f"free{number}{place}")))
    world.advance(2 * SECOND)
    world.limits = replace(world.limits, plan_orders_max=5)
    worker = idle(world)
    watched = Watched(world, monkeypatch)
    assert world.refused(c.ReserveNext(worker=worker, count=1)) == "nothing_ready"
    found = [(sum(bool(row.group) for row in rows), len(rows)) for _, _, _, rows in watched.asked]
    assert found == [(2, 10), (2, 10), (6, 10), (10, 10)], "ten had been passed before the last page, not one more"


def test_w2_an_order_of_a_plan_that_is_over_is_not_reserved_by_name_either() -> None:
    world = World()
    over(world, 1, "plan")
    world.advance(2 * SECOND)
    order = next(value for value in world.live.values.values() if getattr(value, "task", "") == "plan00")
    refusal = world.decide(c.Reserve(order=order.order, expected=order.version, worker=world.worker())).refusal
    assert refusal is not None and refusal.code == "deadline_passed" and refusal.detail == {"name": "plan"}


def test_w18_a_look_that_only_blocked_an_order_is_an_answer_and_one_that_moved_nothing_is_none() -> None:
    world = World()
    plan = world.submit(
        draft("a", per_attempt={"calls": 3}), draft("b", per_attempt={"calls": 3}), ceilings={"calls": 4}
    )
    world.reserve("a")
    assert world.ok(c.ReserveNext(worker=world.worker(), count=1, plan=plan)) == {"reservations": []}
    assert world.order("b").state == "blocked_budget"
    assert world.refused(c.ReserveNext(worker=world.worker(), count=1, plan=plan)) == "nothing_ready"
