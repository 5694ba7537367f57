"""What programs say inside their orders, and what is shown of waits: details that other tests leave open."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from fencepost.core import commands as c
from fencepost.core.amounts import DIMENSIONS
from fencepost.core.evolve import evolve
from fencepost.core.limits import Limits
from fencepost.core.machines import CorruptHistory
from fencepost.core.planfile.bounds import CURRENCIES_MAX
from fencepost.core.records.budget import HoldSettled, UsageCharged
from fencepost.core.records.plan import PythonCall, Wait, WorkOrderMoved
from fencepost.core.state import OrderState, decode_value, encode_value
from fencepost.core.views import only_a_person_can_move
from tests.support.states import TASK, world_in
from tests.support.world import SECOND, World, draft, plan_of
from tests.unit.core.test_folding_plans import corrupt

CALLABLE = PythonCall(call="work:work", name="work", version=1, interpreter="/usr/bin/python3")


def refusal(world: World, command: Any) -> tuple[str, str, dict[str, str]]:
    found = world.decide(command).refusal
    assert found is not None
    return found.code, found.field, found.detail


def last_move(world: World, task: str = TASK) -> WorkOrderMoved:
    order = world.order(task).order
    return [fact.body for fact in world.facts if fact.subject == order and isinstance(fact.body, WorkOrderMoved)][-1]


def test_w18_a_receipt_that_is_charged_again_is_named_and_what_is_left_has_no_attempts_and_no_time() -> None:
    world = world_in("active/running")
    mine = world.attempt_of(world.order(TASK))
    first = world.ok(world.charge(mine, "r", calls=1))
    again = world.ok(world.charge(mine, "r", calls=1))
    assert first["receipt"] == again["receipt"] == "shop:r"
    assert not {"attempts", "time_us"} & {*first["left"], *again["left"]}
    assert "time_us" in world.hold_of(world.order(TASK)).held


def test_c25_a_child_is_never_retried_by_others_and_the_refusal_names_its_parent() -> None:
    world = world_in("active/with a child")
    parent = world.order(TASK)
    world.fail(f"{TASK}.part", failure="policy")
    child = parent.children["part"]
    code, field, detail = refusal(world, c.RetryOrder(order=child))
    state = f"a child of {parent.order}, which may ask for another one, or be retried itself"
    assert (code, field, detail) == ("retry_refused", "/order", {"subject": child, "state": state})


def test_lifecycle_9_the_prompt_of_a_wait_is_kept() -> None:
    wait = world_in("waiting").order(TASK).wait
    assert wait is not None and (wait.question, wait.prompt) == ("go", "Shall it go on?")


def test_lifecycle_9_what_has_come_already_names_the_attempt_that_yielded_as_the_cause() -> None:
    world = world_in("active/with a child")
    world.fail(f"{TASK}.part", failure="policy")
    order = world.order(TASK)
    world.ok(world.yielding(world.attempt_of(order), orders=(order.children["part"],)))
    moved = last_move(world)
    assert (moved.reason, moved.cause) == ("children_ended", order.attempt)


def test_lifecycle_9_the_last_child_that_ends_is_the_cause_of_going_on() -> None:
    world = world_in("waiting/children")
    child = world.order(TASK).children["part"]
    world.fail(f"{TASK}.part", failure="policy")
    moved = last_move(world)
    assert (moved.reason, moved.cause) == ("children_ended", child)


@pytest.mark.parametrize(
    ("wait", "stuck"),
    [
        (Wait(orders=("order_x",)), True),
        (Wait(orders=("order_x",), until_us=SECOND), False),
        (Wait(until_us=SECOND), False),
    ],
)
def test_w15_who_waits_for_children_alone_waits_for_whoever_its_children_wait_for(wait: Wait, stuck: bool) -> None:
    """A child asks a person; its parent goes on by itself only if a time is named too."""
    world = world_in("waiting")
    asks = world.order(TASK)
    parent = replace(asks, order="order_y", reason="waiting_for_children", wait=wait)
    told: list[OrderState] = [asks, parent]
    assert only_a_person_can_move([asks], None, world.get)
    assert only_a_person_can_move(told, None, world.get) == stuck


@pytest.mark.parametrize(("until_us", "sound"), [(0, False), (1, True)])
def test_lifecycle_9_a_proof_ends_no_wait_that_names_no_time(until_us: int, sound: bool) -> None:
    world = world_in("waiting/time")
    world.advance(SECOND + world.uncertainty_us)
    order = world.order(TASK)
    facts = world.decide(c.EndWait(order=order.order, expected=order.version)).facts
    place = next(at for at, fact in enumerate(facts) if isinstance(fact.body, WorkOrderMoved))
    for fact in facts[:place]:
        evolve(world.live, fact)
    assert order.wait is not None
    world.live.values[order.order] = replace(order, wait=replace(order.wait, until_us=until_us))
    if sound:
        evolve(world.live, facts[place])
        assert world.order(TASK).reason == "time_passed"
    else:
        with pytest.raises(CorruptHistory):
            evolve(world.live, facts[place])


def test_lifecycle_9_a_yield_that_took_no_time_charges_none() -> None:
    world = world_in("active/running")
    world.ok(world.yielding(world.attempt_of(world.order(TASK)), duration_us=0, question="go"))
    (settled,) = (fact.body for fact in world.facts if isinstance(fact.body, HoldSettled))
    assert (settled.basis, settled.charged) == ("yielded", {})


def test_w17_nothing_is_charged_on_a_hold_that_was_given_back() -> None:
    world = world_in("active/running")
    mine = world.attempt_of(world.order(TASK))
    facts = world.decide(world.charge(mine, "r", calls=1)).facts
    body = next(fact.body for fact in facts if isinstance(fact.body, UsageCharged))
    assert corrupt(world.fork(), mine.hold, body, state="released")
    assert not corrupt(world.fork(), mine.hold, body)


def test_g2_an_end_after_an_effect_names_what_brought_it_about() -> None:
    world = world_in("waiting")
    order = replace(world.order(TASK), effect_applied=True)
    for fold in (world.live, world.replayed):
        fold.values[order.order] = order
    world.ok(c.CancelPlan(plan=order.plan or ""))
    moved = last_move(world)
    assert (moved.reason, moved.cause) == ("cancelled_after_effect", "plan_cancelled")


def test_w18_the_orders_of_a_plan_with_their_children_are_twice_as_many_as_it_may_name_at_most() -> None:
    world = world_in("active/running")
    plan = world.live.values[world.order(TASK).plan]
    for orders, refused in ((5, False), (6, True)):
        after = world.fork()
        after.limits = Limits(plan_orders_max=3)
        for fold in (after.live, after.replayed):
            fold.values[plan.plan] = replace(plan, orders=orders)
        found = after.decide(after.child(after.attempt_of(after.order(TASK)), draft("part", attempts=1))).refusal
        assert (found is not None) == refused
        if found is not None:
            detail = {"subject": "the number of orders of a plan", "bound": "6"}
            assert (found.code, found.field, found.detail) == ("too_large", "/order", detail)


def test_w18_a_budget_may_name_all_dimensions_and_as_many_currencies_as_are_allowed() -> None:
    names = [f"money_micros:{chr(65 + n // 26)}{chr(65 + n % 26)}X" for n in range(CURRENCIES_MAX)]
    every = {name: 2 for name in (*DIMENSIONS, *names)}
    world = World()
    refused = world.decide(plan_of(draft("a", ceilings=every))).refusal
    assert refused is None or refused.code != "too_large"


def test_w1_an_attempt_may_last_as_long_as_the_bound_and_not_longer() -> None:
    most = Limits().duration_max_us
    assert World().decide(plan_of(draft("a", attempt_time_us=most))).refusal is None
    code, _, _ = refusal(World(), plan_of(draft("a", attempt_time_us=most + 1)))
    assert code == "out_of_range"


@pytest.mark.parametrize(
    "changes",
    [
        {"python": CALLABLE},
        {"work_kind": "python/1", "run": ()},
        {"work_kind": "python/1", "python": CALLABLE, "run": ("true",)},
    ],
)
def test_w1_a_callable_and_a_command_are_never_named_together_nor_is_either_missing(changes: dict[str, Any]) -> None:
    code, field, detail = refusal(World(), plan_of(draft("a", **changes)))
    needed = f"what {changes.get('work_kind', 'command/1')} runs, and nothing else"
    assert (code, detail) == ("out_of_range", {"subject": "the program of a", "needed": needed})
    assert field.startswith("/orders")


def test_c1_the_callable_of_an_order_is_part_of_its_spec_and_of_its_contract() -> None:
    def spec(call: PythonCall) -> OrderState:
        world = World()
        world.submit(draft("a", work_kind="python/1", run=(), python=call))
        assert world.body(world.order("a").spec_seq).python == call
        return world.order("a")

    one, other = spec(CALLABLE), spec(replace(CALLABLE, version=2))
    assert one.contract != other.contract


def test_every_value_is_read_back_as_it_was_written() -> None:
    for value in world_in("waiting").live.values.values():
        assert decode_value(encode_value(value)) == value
