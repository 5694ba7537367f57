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
from fencepost.core.records.attempt import AttemptYielded
from fencepost.core.records.budget import HoldSettled, UsageCharged
from fencepost.core.records.common import LogRef
from fencepost.core.records.plan import PythonCall, Wait, WorkOrderMoved, WorkOrderSpec
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
    world = world_in("active/running")
    world.ok(world.yielding(world.attempt_of(world.order(TASK)), question="go", prompt="Which way?"))
    wait = world.order(TASK).wait
    assert wait is not None and (wait.question, wait.prompt) == ("go", "Which way?")


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


def test_w5_both_streams_of_an_attempt_that_yields_stand_in_the_record_of_its_end() -> None:
    world = world_in("active/running")
    out, err = (LogRef(digest="sha256:" + digit * 64, bytes_total=9, bytes_kept=3) for digit in "12")
    world.ok(world.yielding(world.attempt_of(world.order(TASK)), question="go", stdout=out, stderr=err))
    (body,) = (fact.body for fact in world.facts if isinstance(fact.body, AttemptYielded))
    assert (body.stdout, body.stderr) == (out, err)


def test_lifecycle_9_who_yields_without_an_attempt_left_is_told_so_and_the_attempt_is_the_cause() -> None:
    world = World()
    world.submit(draft(TASK, attempts=1))
    world.ok(world.event(world.activate(TASK)))
    order = world.order(TASK)
    told = world.ok(world.yielding(world.attempt_of(order), after_us=SECOND))
    assert told == {"order": order.order, "state": "budget_exhausted"}
    assert (last_move(world).reason, last_move(world).cause) == ("budget_exhausted", order.attempt)


def test_lifecycle_9_a_question_that_was_answered_before_is_answered_because_of_the_attempt_that_asks() -> None:
    world = world_in("waiting")
    world.ok(c.AnswerOrder(order=world.order(TASK).order, question="go", value="yes"))
    again = world.activate(TASK)
    world.ok(world.event(again))
    world.ok(world.yielding(again, question="go"))
    assert (last_move(world).reason, last_move(world).cause) == ("answered", again.attempt)


def test_w18_the_currencies_that_a_receipt_calls_unknown_are_counted_too() -> None:
    world = world_in("active/running")
    names = [f"money_micros:A{chr(65 + number)}A" for number in range(CURRENCIES_MAX + 1)]
    mine = world.attempt_of(world.order(TASK))
    detail = {"subject": "the number of currencies of an attempt", "bound": str(CURRENCIES_MAX)}
    assert refusal(world, world.charge(mine, "r", *names)) == ("too_large", "/usage/amounts", detail)
    first, *others = names
    assert world.do(world.charge(mine, "r", *others)).refusal is None
    assert refusal(world, world.charge(mine, "s", first)) == ("too_large", "/usage/amounts", detail), (
        "over all receipts"
    )


def test_w18_an_order_that_does_not_say_how_often_it_tries_gives_its_child_a_whole_ceiling() -> None:
    world = World()
    order = world.ok(c.SubmitOrder(order=draft("lone", ceilings={"calls": 8})))["order"]
    state = world.live.values[order]
    world.ok(c.Reserve(order=order, expected=state.version, worker=world.worker()))
    reserved = world.attempt_of(world.live.values[order])
    world.ok(world.activation(reserved))
    mine = world.live.values[reserved.attempt]
    world.ok(world.event(mine))
    told = world.do(world.child(mine, draft("part", attempts=1)))
    assert told.refusal is None
    (child,) = (fact.subject for fact in told.facts if isinstance(fact.body, WorkOrderSpec))
    assert world.live.values[child].terms.hold["calls"] == 8


def test_w4_a_name_that_is_shorter_than_a_prefix_is_not_within_it() -> None:
    world = World()
    world.submit(draft(TASK, attempts=9, environment=("SHOP_*",)))
    world.ok(world.event(world.activate(TASK)))
    mine = world.attempt_of(world.order(TASK))
    code, field, _ = refusal(world, world.child(mine, draft("part", attempts=1, environment=("SHOPS",))))
    assert (code, field) == ("child_exceeds", "/order/environment")
    assert world.decide(world.child(mine, draft("part", attempts=1, environment=("SHOP_A",)))).refusal is None


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


USD, EUR = "money_micros:USD", "money_micros:EUR"


def _unbudgeted(world: World, order: OrderState) -> OrderState:
    """Its currency is budgeted by nobody, so that it waits for a person."""
    world.ok(c.SetBudget(account="scope", ceilings={EUR: 5}))
    world.do(c.Reserve(order=order.order, expected=order.version, worker=world.worker()))
    found: OrderState = world.live.values[order.order]
    assert found.reason == "currency_not_budgeted"
    return found


def test_w15_a_block_that_is_out_of_date_is_seen_behind_others_that_wait_for_a_person() -> None:
    world = World()
    plan = world.submit(draft("a", ceilings={"attempts": 2, USD: 10}), draft("b"))
    blocked = _unbudgeted(world, world.order("a"))
    asks = replace(world.order("b"), state="conflict", reason="results_differ")
    assert only_a_person_can_move([asks, blocked], world.clock, world.get)
    world.ok(c.SetBudget(account="scope", ceilings={EUR: 5, USD: 50}))
    assert not only_a_person_can_move([asks, blocked], world.clock, world.get)
    world.ok(c.SetBudget(account="scope", ceilings={EUR: 5}))
    world.ok(c.SetBudget(account=plan, ceilings={"calls": 7}))
    assert only_a_person_can_move([asks, blocked], world.clock, world.get), "whatever else its plan limits since"


def test_w15_what_is_exhausted_meanwhile_ends_by_itself_though_its_currency_is_not_budgeted() -> None:
    world = World()
    plan = world.submit(draft("a", ceilings={"attempts": 2, USD: 10}))
    blocked = _unbudgeted(world, world.order("a"))
    assert only_a_person_can_move([blocked], world.clock, world.get)
    world.ok(c.SetBudget(account=plan, ceilings={"time_us": 1}))
    assert not only_a_person_can_move([blocked], world.clock, world.get)


def test_w15_an_order_outside_a_plan_waits_for_a_person_too() -> None:
    world = World()
    name = world.ok(c.SubmitOrder(order=draft("lone", ceilings={"attempts": 2, USD: 10})))["order"]
    blocked = _unbudgeted(world, world.live.values[name])
    assert only_a_person_can_move([blocked], world.clock, world.get)
