"""Order and rings of a plan's dependencies."""

from __future__ import annotations

import pytest

from fencepost.core.planfile.graph import sort_graph
from tests.unit.planfile.plans import accepted, check, order, places, plan


def test_the_order_is_topological_with_ties_in_definition_order() -> None:
    value = plan(order("c", needs=["a"]), order("b"), order("a"), order("d", needs=[{"done": ["b", "c"]}]))
    assert check(value).order == ("b", "a", "c", "d")


def test_w15_forward_references_are_fine() -> None:
    assert check(plan(order("a", needs=["b"]), order("b"))).order == ("b", "a")


@pytest.mark.parametrize("kind", ["all", "any", "done"])
def test_case_26_every_kind_of_edge_counts_for_a_ring(kind: str) -> None:
    value = plan(order("a", needs=["c"]), order("b", needs=[{kind: ["a"]}]), order("c", needs=["b"]), order("d"))
    checked = check(value)
    assert places(checked) == [("dependency_cycle", "/work/0/needs")]
    assert "a -> c -> b -> a" in checked.problems[0].message
    assert checked.problems[0].name == "a"
    assert checked.order == ()


def test_case_26_an_order_that_needs_itself_is_a_ring() -> None:
    (problem,) = check(plan(order("a"), order("b", needs=["a", "b"]))).problems
    assert (problem.code, problem.at) == ("dependency_cycle", "/work/1/needs")
    assert "b -> b" in problem.message


def test_every_ring_without_a_common_member_is_named() -> None:
    value = plan(
        order("a", needs=["b"]),
        order("b", needs=["a"]),
        order("c", needs=["d", "a"]),
        order("d", needs=["c"]),
        order("e", needs=["c"]),
    )
    messages = [problem.message for problem in check(value).problems]
    assert [message.split(": ")[1] for message in messages] == ["a -> b -> a", "c -> d -> c"]


def chain(length: int) -> list[dict[str, object]]:
    return [order(f"w{index}", needs=[f"w{index + 1}"] if index + 1 < length else []) for index in range(length)]


def test_case_06_a_chain_of_ten_thousand_is_sorted_without_recursion() -> None:
    checked = check(plan(*chain(10_000), budget={"attempts": 10_000}))
    assert checked.problems == ()
    assert checked.order[0] == "w9999"
    assert checked.order[-1] == "w0"


def test_case_26_a_ring_of_ten_thousand_is_named_in_bounded_words() -> None:
    work = chain(10_000)
    work[-1]["needs"] = ["w0"]
    checked = check(plan(*work, budget={"attempts": 10_000}))
    assert places(checked) == [("dependency_cycle", "/work/0/needs")]
    message = checked.problems[0].message
    assert len(message) < 1_000
    assert "w0 -> w1 ->" in message
    assert "9968 more" in message
    assert message.endswith("w9999 -> w0")


def test_rings_are_reported_up_to_a_bound() -> None:
    pairs = [[node ^ 1] for node in range(1_000)]
    assert len(sort_graph(pairs).rings) == 16


def test_a_fan_in_of_the_whole_plan_is_accepted() -> None:
    work = [order(f"w{index}") for index in range(9_999)]
    last = order("last", needs=[item["name"] for item in work])
    assert len(accepted(plan(*work, last, budget={"attempts": 10_000})).work[-1].needs[0].members) == 9_999


def test_case_40_more_orders_or_dependencies_than_the_bound_are_refused() -> None:
    work = [order(f"w{index}") for index in range(10_001)]
    assert places(check(plan(*work, budget={"attempts": 20_000}))) == [("out_of_range", "/work")]
    names = [f"w{index}" for index in range(2_000)]
    dense = [order(name) for name in names] + [order(f"x{index}", needs=names) for index in range(101)]
    assert places(check(plan(*dense, budget={"attempts": 20_000}))) == [("out_of_range", "/work")]


def test_a_dependency_is_raised_to_the_class_of_its_dependents() -> None:
    value = plan(
        order("a", priority="low"),
        order("b", needs=["a"], priority="low"),
        order("c", needs=[{"done": ["b"]}], priority="high"),
        order("d", needs=["a"]),
        order("e", priority="low"),
        order("f", priority="high"),
        order("g", needs=["f"], priority="low"),
    )
    work = accepted(value).work
    assert [item.priority for item in work] == ["high", "high", "high", "normal", "low", "high", "low"]
    assert [item.priority_declared for item in work] == ["low", "low", "high", "normal", "low", "high", "low"]
