"""Values at their exact bounds: nesting, bytes of arguments, amounts of money, and the names that are suggested."""

from __future__ import annotations

from typing import Any

import pytest

from fencepost.core.canonical import Undecodable
from fencepost.core.planfile import bounds
from fencepost.core.planfile.problems import Findings, Spot
from fencepost.core.planfile.values import fits_bytes, read_arguments, read_money, suggested_name, walk_document
from tests.unit.planfile.plans import check, order, places, plan

DEEP = bounds.DEPTH_MAX


def nested(depth: int, inside: Any = 1) -> Any:
    value = inside
    for place in range(depth):
        value = [value] if place % 2 else {"a": value}
    return value


def refusals(value: Any) -> tuple[bool, list[tuple[str, str]]]:
    findings = Findings()
    fits = walk_document(Spot(findings), value)
    return fits, [(problem.code, problem.at) for problem in findings.problems()]


def test_case_40_a_document_is_as_deep_as_the_bound_and_no_deeper() -> None:
    assert refusals(nested(DEEP)) == (True, [])
    fits, found = refusals(nested(DEEP + 1))
    assert not fits and [code for code, _ in found] == ["out_of_range"]
    fits, found = refusals([nested(DEEP), 1.5, nested(DEEP), None])
    assert not fits
    assert [code for code, _ in found] == ["wrong_type", "wrong_type", "out_of_range", "out_of_range"], "each is named"
    problem = check(plan(order(params={"a": nested(DEEP)}))).problems[-1]
    assert problem.message == f"more than {DEEP} tables and lists inside one another"
    assert problem.next == "flatten the document"


def test_what_no_value_may_be_is_found_wherever_it_stands() -> None:
    assert refusals(1.5) == (True, [("wrong_type", "")])
    assert refusals(None) == (True, [("wrong_type", "")])
    assert refusals("a") == (True, [])
    assert refusals({"a\0": {"b": [1, "\ud800"]}, "c": 2**60}) == (
        True,
        [("out_of_range", "/a\\u0000"), ("out_of_range", "/c"), ("out_of_range", "/a\\u0000/b/1")],
    )


@pytest.mark.parametrize(
    ("text", "bytes_max", "fits"),
    [("abcd", 4, True), ("abcde", 4, False), ("ää", 4, True), ("äää", 5, False), ("", 0, True), ("\ud800", 3, True)],
)
def test_texts_are_measured_in_bytes(text: str, bytes_max: int, fits: bool) -> None:
    assert fits_bytes(text, bytes_max) is fits


@pytest.mark.parametrize(("more", "fits"), [(0, True), (1, False)])
def test_case_40_arguments_are_measured_with_what_stands_between_them(more: int, fits: bool) -> None:
    """As the system counts them: each argument with the NUL that ends it."""
    half = bounds.ARGUMENTS_BYTES_MAX // 2
    found = places(check(plan(order(run=["x" * (half - 1), "y" * (half - 1 + more)]))))
    assert found == ([] if fits else [("out_of_range", "/work/0/run")])
    findings = Findings()
    read = read_arguments(Spot(findings), ["a", "b"])
    assert read == ("a", "b") and not findings.problems()


def test_money_is_counted_in_micros_up_to_what_a_document_can_say() -> None:
    findings = Findings()
    most = bounds.INTEGER_MAX
    text = f"{most // 1_000_000}.{most % 1_000_000:06d}"
    assert read_money(Spot(findings), text) == most
    past = f"{most // 1_000_000}.{most % 1_000_000 + 1:06d}"
    assert read_money(Spot(findings), past) is None and findings.problems()


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Unit Tests", "unit-tests"),
        ("9 lives", "work-9-lives"),
        ("--x--", "x"),
        ("", "work"),
        ("!!", "work"),
        ("ünit", "nit"),
        ("a" * 62 + "-bcd", "a" * 62),
        ("a" * 70, "a" * 63),
        ("!" * 512 + "a", "work"),
        ("!" * 511 + "a", "a"),
        ("-a b-", "a-b"),
    ],
)
def test_a_name_is_suggested_that_is_like_the_text(text: str, name: str) -> None:
    assert suggested_name(text) == name


def test_a_plan_that_cannot_be_named_is_refused_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    def too_large(_: object) -> str:
        raise Undecodable("too_large", "too many bytes")

    monkeypatch.setattr("fencepost.core.planfile.check.content_digest", too_large)
    checked = check(plan())
    assert checked.document is None and checked.content_digest is None
    (problem,) = checked.problems
    assert (problem.code, problem.at, problem.next) == ("out_of_range", "", "make the plan smaller, or split it")
    assert problem.message == "the plan has no canonical form: too_large at the document: too many bytes"


@pytest.mark.parametrize(("edges_max", "fits"), [(3, True), (2, False)])
def test_case_40_dependencies_are_counted_over_all_orders(
    edges_max: int, fits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "EDGES_MAX", edges_max)
    checked = check(plan(order("a"), order("b", needs=["a"]), order("c", needs=["a", {"any": ["b"]}])))
    told = [(problem.code, problem.at, problem.message, problem.next) for problem in checked.problems]
    words = f"the plan has 3 dependencies, at most {edges_max} are taken"
    following = "put orders in between that gather some of them"
    assert told == ([] if fits else [("out_of_range", "/work", words, following)])
