"""What follows from one mistake alone is not told as another one, and what stands beside it is still looked at."""

from __future__ import annotations

from typing import Any

import pytest

from fencepost.core.planfile import PlanProblem, bounds, check_text, read_document
from tests.unit.planfile.plans import as_json, check, order, places, plan


def test_the_currencies_that_are_handed_in_are_the_ones_taken() -> None:
    text = '[budget]\nmoney = { USD = "1" }\n[[work]]\nname = "a"\nrun = ["true"]\n'
    assert places(check_text(text, syntax="toml", stem="plan", currencies={"USD"})) == []
    (problem,) = check_text(text, syntax="toml", stem="plan", currencies={"EUR"}).problems
    assert problem.at == "/budget/money/USD"


def test_case_40_in_a_document_that_is_too_deep_nothing_else_is_looked_at() -> None:
    value: Any = 1
    for _ in range(bounds.DEPTH_MAX + 1):
        value = [value]
    (problem,) = check(plan(order(colour=value), flavour=1)).problems
    assert problem.message == f"more than {bounds.DEPTH_MAX} tables and lists inside one another"


def test_orders_after_one_without_a_name_can_be_needed() -> None:
    nameless = {"run": ["true"]}
    assert places(check(plan(nameless, order("b"), order("c", needs=["b"])))) == [("missing_key", "/work/0/name")]


def test_x10_an_executor_that_is_not_known_says_nothing_of_the_program_beside_it() -> None:
    found = check(plan({"name": "a", "executor": "docker", "call": "work:work"}))
    assert [problem.at for problem in found.problems] == ["/work/0/executor"]


def test_x10_a_call_that_is_no_text_is_told_with_an_example() -> None:
    (problem,) = check(plan({"name": "a", "executor": "python", "call": 5})).problems
    assert (problem.at, problem.next) == ("/work/0/call", 'write a text such as "pipeline:summarize"')


def test_inputs_of_an_order_whose_needs_were_refused_are_not_missed_among_them() -> None:
    reader = order("b", needs=[5], inputs=[{"from": "a", "files": ["x"]}])
    assert places(check(plan(order("a", outputs=["x"]), reader))) == [("wrong_type", "/work/1/needs/0")]


def test_a_file_of_another_order_that_is_no_text_is_named_once() -> None:
    reader = order("b", needs=["a"], inputs=[{"from": "a", "files": [5]}])
    assert places(check(plan(order("a", outputs=["x"]), reader))) == [("wrong_type", "/work/1/inputs/0/files/0")]


def test_the_line_of_a_key_that_is_too_deep_does_not_depend_on_what_follows() -> None:
    key = ".".join("a" for _ in range(bounds.DEPTH_MAX + 1))
    found = read_document(f"x = 1\n{key} = 1\ny = 2\nz = 3\n", syntax="toml")
    assert isinstance(found, PlanProblem) and found.line == 2


def test_the_key_that_is_written_twice_is_the_one_named() -> None:
    found = read_document('{"a": 1, "b": 1, "c": 1, "b": 2}', syntax="json")
    assert isinstance(found, PlanProblem)
    assert found.message == 'the key "b" is written twice in the object that begins here'


@pytest.mark.parametrize(
    ("budget", "place"),
    [
        ({"colour": 1}, "/work/0/budget/colour"),
        ({"per_attempt": {"colour": 1}}, "/work/0/budget/per_attempt/colour"),
        ({"per_attempt": {"attempts": 1}}, "/work/0/budget/per_attempt/attempts"),
        ({"per_attempt": {"time": "1m"}}, "/work/0/budget/per_attempt/time"),
    ],
)
def test_a_ceiling_that_an_order_cannot_have_is_refused_once(budget: dict[str, Any], place: str) -> None:
    assert places(as_json(plan(order(budget=budget)))) == [("unknown_key", place)]


def test_a_key_that_is_refused_with_words_of_its_own_takes_no_suggestion_from_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bounds, "SUGGESTIONS_MAX", 1)
    checked = check(plan(order(budget={"per_attempt": {"attempts": 1, "cals": 2}})))
    (problem,) = [problem for problem in checked.problems if problem.at == "/work/0/budget/per_attempt/cals"]
    assert problem.next == 'write "calls"'


TOO_LONG, SHORTER, NO_TIME = "is longer than 1h", "backoff_max is shorter than backoff", "is not a duration"


@pytest.mark.parametrize(
    ("retry", "told"),
    [
        ({"backoff": "1h", "backoff_max": "1h"}, {}),
        ({"backoff": "2h"}, {"backoff": TOO_LONG}),
        ({"backoff": "2h", "backoff_max": "3h"}, {"backoff": TOO_LONG, "backoff_max": TOO_LONG}),
        ({"backoff": "2h", "backoff_max": "1m"}, {"backoff": TOO_LONG}),
        ({"backoff": "2h", "backoff_max": "soon"}, {"backoff_max": NO_TIME, "backoff": TOO_LONG}),
        ({"backoff": "soon", "backoff_max": "3h"}, {"backoff": NO_TIME, "backoff_max": TOO_LONG}),
        ({"backoff": "soon", "backoff_max": "1ms"}, {"backoff": NO_TIME}),
        ({"backoff": "2m", "backoff_max": "1m"}, {"backoff_max": SHORTER}),
        ({"on": ["never"], "backoff": "2m", "backoff_max": "1m"}, {"on/0": "", "backoff_max": SHORTER}),
    ],
)
def test_each_backoff_is_told_what_is_wrong_with_it_at_once(retry: dict[str, Any], told: dict[str, str]) -> None:
    problems = check(plan(order(retry={"on": ["executor"], **retry}))).problems
    assert [problem.at.removeprefix("/work/0/retry/") for problem in problems] == list(told)
    assert all(words in problem.message for problem, words in zip(problems, told.values(), strict=True))


@pytest.mark.parametrize(("more", "fits"), [(0, True), (1, False)])
def test_case_40_an_order_has_as_many_schemas_as_the_bound_and_no_more(more: int, fits: bool) -> None:
    schemas = {f"out/{number}.json": "schema.json" for number in range(bounds.PATTERNS_MAX + more)}
    found = places(check(plan(order(outputs=["out/*"], accept={"schema": schemas}))))
    assert found == ([] if fits else [("out_of_range", "/work/0/accept/schema")])
