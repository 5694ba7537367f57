"""Bounds and budgets of what is submitted: at a bound it is taken, past it refused with its place (W1, W18)."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from fencepost.core import commands as c
from fencepost.core.limits import Limits
from fencepost.core.reasons import Refusal
from fencepost.core.records.plan import Acceptance, PlanRevision, Retry
from fencepost.core.state import SCOPE
from tests.support.world import SECOND, World, draft, group, plan_of

USD, EUR = "money_micros:USD", "money_micros:EUR"


def refusal_of(world: World, command: Any) -> Refusal:
    refusal = world.decide(command).refusal
    assert refusal is not None
    return refusal


def told(world: World, command: Any) -> tuple[str, str, dict[str, str]]:
    refusal = refusal_of(world, command)
    return refusal.code, refusal.field, refusal.detail


def test_w1_a_plan_may_have_as_many_orders_and_dependencies_as_the_bounds() -> None:
    world = World(replace(Limits(), plan_orders_max=2, plan_edges_max=1))
    assert world.decide(plan_of(draft("a"), draft("b", "a"))).refusal is None
    assert told(world, plan_of(draft("a"), draft("b"), draft("c"))) == (
        "too_large",
        "/orders",
        {"subject": "orders", "bound": "2"},
    )
    assert told(world, plan_of(draft("a"), draft("b", group("required", "a"), group("optional", "a")))) == (
        "too_large",
        "/orders",
        {"subject": "dependencies", "bound": "1"},
    )


def test_w1_a_deadline_may_be_as_far_as_the_longest_duration() -> None:
    world = World()
    most = world.limits.duration_max_us
    plan = world.submit(draft("a"), deadline_us=most)
    assert world.live.values[plan].deadline_us == world.now_us + most
    assert told(world, plan_of(draft("a"), name="other", deadline_us=most + 1)) == (
        "out_of_range",
        "/deadline_us",
        {"subject": "the deadline", "needed": f"at most {most} us from now"},
    )


def test_w18_ceilings_name_registered_dimensions_and_one_attempt_at_least() -> None:
    world = World()
    assert told(world, plan_of(draft("a"), ceilings={"kisses": 1, "hugs": 1})) == (
        "out_of_range",
        "/ceilings",
        {"subject": "the dimension 'hugs'", "needed": "a registered one"},
    )
    assert told(world, plan_of(draft("a"), ceilings={"attempts": 0})) == (
        "out_of_range",
        "/ceilings",
        {"subject": "attempts", "needed": "at least 1"},
    )
    assert world.decide(plan_of(draft("a", attempts=1), ceilings={"attempts": 1})).refusal is None


def test_w18_a_plans_ceiling_is_shared_by_its_attempts_or_by_those_of_its_orders() -> None:
    def calls(**more: Any) -> int:
        world = World()
        world.submit(draft("a", attempts=3), draft("b", ceilings={}), **more)
        assert world.order("a").terms.hold_least["calls"] == 1
        return int(world.order("a").terms.hold["calls"])

    assert calls(ceilings={"calls": 20}) == 5, "three attempts of one order, one of the other"
    assert calls(ceilings={"calls": 20, "attempts": 10}) == 2


def test_w18_a_plan_must_afford_one_attempt_of_each_order_that_must_succeed() -> None:
    world = World()
    orders = (draft("a", attempts=1), draft("b", attempts=1), draft("c", attempts=1, may_fail=True))
    assert world.decide(plan_of(*orders, ceilings={"attempts": 2})).refusal is None
    assert told(world, plan_of(*orders, ceilings={"attempts": 1})) == (
        "impossible_budget",
        "/ceilings/attempts",
        {"subject": "plan", "dimension": "attempts"},
    )


@pytest.mark.parametrize(
    ("change", "subject", "needed"),
    [
        ({"per_attempt": {"time_us": 1}}, "per_attempt of b", "without time_us"),
        ({"per_attempt": {"attempts": 1, "time_us": 1}}, "per_attempt of b", "without attempts"),
        ({"per_attempt": {"kisses": 1}}, "the dimension 'kisses'", "a registered one"),
        ({"ceilings": {"attempts": 0}}, "attempts", "at least 1"),
        ({"ceilings": {"hugs": 1}}, "the dimension 'hugs'", "a registered one"),
        ({"groups": (c.GroupDraft(kind="required", members=()),)}, "each group of b", "one with members and outcomes"),
        ({"groups": (group("required", "a", outcomes=()),)}, "each group of b", "one with members and outcomes"),
        ({"outputs": ("a//b",)}, "the pattern 'a//b' of b", "a readable pattern"),
        ({"accept": Acceptance(files=("/x",))}, "the pattern '/x' of b", "a readable pattern"),
        ({"accept": Acceptance(schemas={"/y": "sha256:" + "0" * 64})}, "the pattern '/y' of b", "a readable pattern"),
        (
            {"retry": Retry(on=(), backoff_us=1, backoff_max_us=1)},
            "retry.on of b",
            "some of executor, transient_dependency, validation",
        ),
        (
            {"retry": Retry(on=("policy",), backoff_us=1, backoff_max_us=1)},
            "retry.on of b",
            "some of executor, transient_dependency, validation",
        ),
    ],
    ids=lambda value: str(value)[:40] if isinstance(value, dict) else "",
)
def test_w1_every_rule_of_a_draft_names_its_order(change: dict[str, Any], subject: str, needed: str) -> None:
    expected = ("out_of_range", {"subject": subject, "needed": needed})
    refusal = refusal_of(World(), plan_of(draft("a"), draft("b", **change)))
    assert (refusal.code, refusal.detail, refusal.field) == (*expected, "/orders/1")
    if "groups" not in change:
        alone = refusal_of(World(), c.SubmitOrder(order=draft("b", **change)))
        assert (alone.code, alone.detail, alone.field) == (*expected, "/order")


def test_w16_backoffs_stand_in_their_order_up_to_their_bound() -> None:
    most = Limits().backoff_max_us

    def code(first: int, last: int) -> str:
        retry = Retry(on=("executor",), backoff_us=first, backoff_max_us=last)
        refusal = World().decide(plan_of(draft("a", retry=retry))).refusal
        if refusal is None:
            return ""
        assert refusal.detail == {"subject": "backoff_max of a", "needed": f"from backoff to {most} us"}
        return refusal.field

    assert code(5, 5) == code(most, most) == code(0, most) == ""
    assert code(6, 5) == code(5, most + 1) == "/orders/0"


def test_w1_an_attempt_may_last_as_long_as_the_longest_duration() -> None:
    most = Limits().duration_max_us
    assert World().decide(plan_of(draft("a", attempt_time_us=most))).refusal is None
    assert told(World(), plan_of(draft("a", attempt_time_us=most + 1))) == (
        "out_of_range",
        "/orders/0",
        {"subject": "attempt_time of a", "needed": f"at most {most} us"},
    )


def test_w1_a_kind_that_no_executor_has_is_named() -> None:
    expected = ("executor_unsupported", {"subject": "b", "executor": "model/1"})
    refusal = refusal_of(World(), plan_of(draft("a"), draft("b", work_kind="model/1")))
    assert (refusal.code, refusal.detail, refusal.field) == (*expected, "/orders/1")


def test_w18_what_cannot_fit_under_any_level_names_order_and_dimension() -> None:
    world = World()
    world.ok(c.SetBudget(account=SCOPE, ceilings={"calls": 3, "time_us": 60 * SECOND, USD: 9}))

    def of(*, plan: dict[str, int], **order: Any) -> tuple[str, str, dict[str, str]]:
        refusal = world.decide(plan_of(draft("a"), draft("b", **order), ceilings=plan)).refusal
        return ("", "", {}) if refusal is None else (refusal.code, refusal.field, refusal.detail)

    fits = {"subject": "b", "dimension": "calls"}
    assert of(plan={"calls": 3}, per_attempt={"calls": 3})[0] == ""
    assert of(plan={}, per_attempt={"calls": 4}) == ("impossible_budget", "/orders/1", fits), "past the scope"
    assert of(plan={"calls": 2}, per_attempt={"calls": 3}) == ("impossible_budget", "/orders/1", fits)
    assert of(plan={}, ceilings={"attempts": 1, "calls": 4}) == ("impossible_budget", "/orders/1", fits)
    assert of(plan={}, ceilings={"attempts": 1, "calls": 3})[0] == ""
    assert of(plan={}, per_attempt={"calls": 2}, ceilings={"attempts": 1, "calls": 1}) == (
        "impossible_budget",
        "/orders/1",
        fits,
    ), "past its own"
    long = {"subject": "b", "dimension": "time_us"}
    assert of(plan={}, attempt_time_us=61 * SECOND) == ("impossible_budget", "/orders/1", long)
    assert of(plan={}, per_attempt={EUR: 1}) == (
        "currency_not_budgeted",
        "/orders/1",
        {"account": SCOPE, "currency": "EUR"},
    )
    assert of(plan={USD: 1}, per_attempt={EUR: 1}) == (
        "currency_not_budgeted",
        "/orders/1",
        {"account": "plan", "currency": "EUR"},
    )
    alone = refusal_of(world, c.SubmitOrder(order=draft("b", per_attempt={"calls": 4})))
    assert (alone.code, alone.field, alone.detail) == ("impossible_budget", "/order", fits)


def test_w1_files_are_handed_and_accepted_from_outputs_only() -> None:
    world = World()
    maker = draft("a", outputs=("out/**", "log"))
    good = draft("b", "a", handed=(c.FromDraft(task="a", files=("log", "out/x")),))
    assert world.decide(plan_of(maker, good)).refusal is None
    bad = draft("b", "a", handed=(c.FromDraft(task="a", files=("log", "other")),))
    assert told(world, plan_of(maker, bad)) == (
        "incompatible_output",
        "/orders/1",
        {"subject": "b", "file": "other"},
    )
    for accept in (Acceptance(files=("log", "x")), Acceptance(schemas={"x": "sha256:" + "0" * 64})):
        assert told(world, plan_of(draft("a", outputs=("log",), accept=accept))) == (
            "incompatible_output",
            "/orders/0",
            {"subject": "a", "file": "x"},
        )


def test_w1_missing_members_and_rings_are_named() -> None:
    world = World()
    assert told(world, plan_of(draft("a"), draft("b", "c"))) == (
        "dependency_missing",
        "/orders/1",
        {"subject": "b", "member": "c"},
    )
    by_id = draft("b", group("required", "order_x", ids=True))
    assert told(world, plan_of(draft("a"), by_id))[2] == {"subject": "b", "member": "order_x"}
    unasked = draft("b", handed=(c.FromDraft(task="a", files=("x",)),))
    assert told(world, plan_of(draft("a", outputs=("x",)), unasked)) == (
        "dependency_missing",
        "/orders/1",
        {"subject": "b", "member": "a"},
    )
    ring = told(world, plan_of(draft("a", "b"), draft("b", "a")))
    assert ring[:2] == ("dependency_cycle", "/orders") and ring[2]["ring"] == "a -> b -> a"
    alone = told(world, c.SubmitOrder(order=draft("b", group("required", "c"))))
    assert alone == ("dependency_missing", "/order/groups", {"subject": "b", "member": "c"})
    handed = draft("b", handed=(c.FromDraft(task="a", files=("x",)),))
    assert told(world, c.SubmitOrder(order=handed)) == (
        "out_of_range",
        "/order/handed",
        {"subject": "handed files", "needed": "part of a plan"},
    )


def test_w1_the_plans_record_keeps_where_it_came_from() -> None:
    world = World()
    plan = world.submit(draft("a"), provenance={"tool": "hand"}, predecessor="plan_before")
    body = world.body(world.live.values[plan].record_seq)
    assert isinstance(body, PlanRevision)
    assert (body.provenance, body.predecessor) == ({"tool": "hand"}, "plan_before")
    plain = world.body(world.live.values[world.submit(draft("b"), name="other")].record_seq)
    assert isinstance(plain, PlanRevision) and plain.predecessor is None
