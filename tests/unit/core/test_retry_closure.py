"""A person's retry: what is written anew with it, in which order, and what refuses it (W16; lifecycle, decision 12)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from fencepost.core import commands as c
from fencepost.core.evolve import Edge
from fencepost.core.ids import sha256_of
from fencepost.core.limits import Limits
from fencepost.core.records.plan import WorkOrderSpec
from fencepost.core.state import AUTHORITY, SCOPE, OrderState
from tests.support.world import World, artifact, draft, group


def spec_of(world: World, order: OrderState) -> WorkOrderSpec:
    body = world.body(order.spec_seq)
    assert isinstance(body, WorkOrderSpec)
    return body


def retry(world: World, task: str, **more: Any) -> Any:
    return world.ok(c.RetryOrder(order=world.order(task).order, **more))


def told(world: World, command: Any) -> tuple[str, str, dict[str, str]]:
    refusal = world.decide(command).refusal
    return ("", "", {}) if refusal is None else (refusal.code, refusal.field, refusal.detail)


def test_w16_whatever_ended_because_of_an_order_is_written_anew_once_each_behind_its_needs() -> None:
    """A diamond, defined backwards, so that ids and the order of writing run against each other."""
    world = World(replace(Limits(), page_max=1))
    world.submit(draft("end", "left", "right"), draft("right", "root"), draft("left", "root"), draft("root"))
    world.fail("root")
    old = {task: world.order(task) for task in ("root", "left", "right", "end")}
    assert {task: order.state for task, order in old.items()} == {
        "root": "failed",
        "left": "dependency_failed",
        "right": "dependency_failed",
        "end": "dependency_failed",
    }
    records = len(world.facts)
    retry(world, "root", with_dependents=True)
    written = [fact.body.task for fact in world.facts[records:] if isinstance(fact.body, WorkOrderSpec)]
    assert sorted(written) == ["end", "left", "right", "root"]
    assert written[0] == "root" and written[-1] == "end"
    new = {task: world.order(task) for task in old}
    assert all(new[task].replaces == old[task].order for task in old)
    members = {member.order for one in spec_of(world, new["end"]).groups for member in one.members}
    assert members == {new["left"].order, new["right"].order}
    for task in ("root", "left", "right", "end"):
        world.finish(task)
    world.check()


def test_w16_a_retry_writes_as_many_orders_as_a_plan_may_have() -> None:
    world = World()
    world.submit(draft("a"), draft("b", "a"), draft("c", "a"))
    world.fail("a")
    command = c.RetryOrder(order=world.order("a").order, with_dependents=True)
    world.limits = replace(Limits(), plan_orders_max=2)
    assert told(world, command) == ("too_large", "", {"subject": "the retry", "bound": "2"})
    world.limits = replace(Limits(), plan_orders_max=3)
    assert told(world, command) == ("", "", {})


def test_w16_dependents_are_looked_up_in_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    world.submit(draft("a"), draft("b", "a"), draft("c", "a"))
    world.fail("a")
    world.limits = replace(Limits(), page_max=2)
    asked: list[int] = []
    edges = world.edges

    def watched(member: str, after_position: int, limit: int) -> Sequence[Edge]:
        asked.append(limit)
        return edges(member, after_position, limit)

    monkeypatch.setattr(world, "edges", watched)
    world.decide(c.RetryOrder(order=world.order("a").order, with_dependents=True))
    assert set(asked) == {2}


def test_w16_what_is_handed_over_comes_from_the_new_order() -> None:
    world = World()
    use = draft("use", "make", handed=(c.FromDraft(task="make", files=("out/*",)),))
    world.submit(draft("make", outputs=("out/*",)), use)
    world.fail("make")
    retry(world, "make", with_dependents=True)
    handed = spec_of(world, world.order("use")).inputs.orders
    assert [(source.order, source.files) for source in handed] == [(world.order("make").order, ("out/*",))]
    world.finish("make", artifacts=(artifact("out/a"),))
    assert world.refused(world.activation(world.reserve("use"))) == "spec_mismatch", "the file is handed over"


def test_w16_an_order_outside_a_plan_is_retried_where_it_stands() -> None:
    world = World()
    name = world.ok(c.SubmitOrder(order=draft("x")))["order"]
    attempt = world.live.values[world.ok(c.ReserveNext(worker=world.worker(), count=1))["reservations"][0]["attempt"]]
    world.ok(world.activation(attempt))
    live = world.live.values[attempt.attempt]
    world.ok(world.result(live, outcome="failed", failure="executor", message_code="timed_out"))
    world.ok(c.ApplyResult(attempt=live.attempt))
    world.ok(c.RetryOrder(order=name))
    new = world.live.values[world.live.values[name].replaced_by]
    assert (new.position, new.accounts, new.plan) == (0, (SCOPE, new.order), None)
    assert spec_of(world, new).accounts == (SCOPE, new.order)


def test_w16_a_retry_in_a_plan_stands_behind_all_its_orders() -> None:
    world = World()
    plan = world.submit(draft("a"), draft("b"))
    world.fail("a")
    retry(world, "a")
    new = world.order("a")
    assert (new.position, new.accounts) == (2, (SCOPE, plan, new.order))


def test_w16_a_retry_is_under_the_constitution_of_its_own_day() -> None:
    world = World()
    world.submit(draft("a"))
    world.fail("a")
    authority = world.live.values[AUTHORITY]
    other = "sha256:" + "7" * 64
    for fold in (world.live, world.replayed):
        fold.values[AUTHORITY] = replace(authority, constitution_version=2, constitution=other)
    retry(world, "a")
    spec = spec_of(world, world.order("a"))
    assert spec.constitution_version == 2
    assert spec.policy_context == sha256_of(f"{other}|{authority.vocabulary}".encode())


@pytest.mark.parametrize("state", ["applied", "unknown_terminal", "ready"])
def test_w16_nothing_is_retried_that_has_not_failed_or_of_which_nobody_knows(state: str) -> None:
    world = World()
    world.submit(draft("a"))
    order = world.order("a")
    world.live.values[order.order] = replace(order, state=state)
    assert told(world, c.RetryOrder(order=order.order)) == (
        "retry_refused",
        "/order",
        {"subject": order.order, "state": state},
    )


def test_w15_a_retry_whose_needs_are_still_lost_names_the_first_of_them() -> None:
    world = World()
    world.submit(draft("a"), draft("b"), draft("c", group("alternative", "a", "b")), draft("d", "a"))
    world.fail("a")
    assert world.order("c").state == "blocked_dependency" and world.order("d").state == "dependency_failed"
    refusal = told(world, c.RetryOrder(order=world.order("d").order))
    a = world.order("a").order
    assert refusal[0] == "retry_refused" and refusal[2]["state"] == f"dependency_failed because of {a}"
    world.fail("b")
    assert world.order("c").state == "dependency_failed"
    command = c.RetryOrder(order=world.order("c").order)
    assert told(world, command)[2]["state"] == f"dependency_failed because of {a}", "all of them are lost"
    retry(world, "b")
    assert told(world, command) == ("", "", {}), "one that may still be applied is enough"


def test_w15_lost_members_of_optional_groups_are_in_nobodys_way() -> None:
    world = World()
    world.submit(draft("a"), draft("b", group("optional", "a")), draft("c", group("optional", "a"), "b"))
    world.fail("a")
    world.fail("b")
    retry(world, "b")
    world.fail("b")
    retry(world, "b", with_dependents=True)
    assert world.order("b").state == "ready" and world.order("c").state == "blocked_dependency"
