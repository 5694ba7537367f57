"""One bad document for every code, with the exact place; and all problems at once."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

from tests.unit.planfile.plans import as_json, check, order, places, plan

TREE = ("src/a.py", "schemas/s.json")

BAD: list[tuple[str, str, Any]] = [
    ("unknown_key", "/deadlin", plan(deadlin="1h")),
    ("unknown_key", "/budget/call", plan(budget={"attempts": 9, "call": 1})),
    ("unknown_key", "/budget/tokens/inputs", plan(budget={"tokens": {"inputs": 1}})),
    ("unknown_key", "/budget/money/usd", plan(budget={"money": {"usd": "1"}})),
    ("unknown_key", "/work/0/need", plan(order(need=[]))),
    ("unknown_key", "/work/0/a~1b~0c", plan(order(**{"a/b~c": 1}))),
    ("unknown_key", "/work/0/budget/per_attempt/time", plan(order(budget={"per_attempt": {"time": "1s"}}))),
    (
        "unknown_key",
        "/work/0/budget/per_attempt/attempts",
        plan(order(budget={"per_attempt": {"attempts": 1}})),
    ),
    ("unknown_key", "/work/0/accept/exit", plan(order(accept={"exit": 0}))),
    ("unknown_key", "/work/0/retry/max", plan(order(retry={"on": ["executor"], "max": 2}))),
    (
        "unknown_key",
        "/work/0/inputs/0/path",
        plan(order(inputs=[{"from": "b", "files": ["x"], "path": "x"}])),
    ),
    ("unknown_key", "/work/0/needs/0/outcomes", plan(order(needs=[{"done": ["b"], "outcomes": ["failed"]}]))),
    ("unknown_key", "/work/0/needs/0/outcome", plan(order(needs=[{"all": ["b"], "outcome": ["failed"]}]))),
    ("missing_key", "/work", {"budget": {"attempts": 1}}),
    ("missing_key", "/budget", {"work": [order()]}),
    ("missing_key", "/budget", plan(budget={})),
    ("missing_key", "/budget/tokens", plan(budget={"tokens": {}})),
    ("missing_key", "/budget/money", plan(budget={"money": {}})),
    ("missing_key", "/work/0/name", plan({"run": ["true"]})),
    ("missing_key", "/work/0/run", plan({"name": "a"})),
    ("missing_key", "/work/0/retry/on", plan(order(retry={}))),
    ("missing_key", "/work/0/inputs/0/files", plan(order(inputs=[{"from": "b"}]))),
    ("missing_key", "/work/0/inputs/0/from", plan(order(inputs=[{"files": ["b"]}]))),
    ("missing_key", "/work/0/needs/0", plan(order(needs=[{"outcomes": ["failed"]}]))),
    ("wrong_type", "", []),
    ("wrong_type", "", None),
    ("wrong_type", "/work", plan(work={})),
    ("wrong_type", "/work/0", plan(work=["a"])),
    ("wrong_type", "/objective", plan(objective=1)),
    ("wrong_type", "/objective", plan(objective=None)),
    ("wrong_type", "/deadline", plan(deadline=3600)),
    ("wrong_type", "/deadline", plan(deadline=datetime.date(2030, 1, 1))),
    ("wrong_type", "/budget/attempts", plan(budget={"attempts": True})),
    ("wrong_type", "/budget/calls", plan(budget={"calls": 1.5})),
    ("wrong_type", "/budget/money/USD", plan(budget={"money": {"USD": 2.5}})),
    ("wrong_type", "/work/0/run", plan(order(run="pytest -q"))),
    ("wrong_type", "/work/0/run/1", plan(order(run=["sleep", 5]))),
    ("wrong_type", "/work/0/may_fail", plan(order(may_fail=1))),
    ("wrong_type", "/work/0/params", plan(order(params=[]))),
    ("wrong_type", "/work/0/params/a/1", plan(order(params={"a": [1, float("nan")]}))),
    ("wrong_type", "/work/0/needs", plan(order(needs="b"))),
    ("wrong_type", "/work/0/outputs/0", plan(order(outputs=[{}]))),
    ("wrong_type", "/work/0/accept/schema", plan(order(accept={"schema": ["a"]}))),
    ("bad_name", "/name", plan(name="Nightly")),
    ("bad_name", "/work/0/name", plan(order("x" * 64))),
    ("bad_name", "/work/0/name", plan(order("a\n"))),
    ("bad_name", "/work/0/needs/0", plan(order(needs=["B"]))),
    ("bad_duration", "/deadline", plan(deadline="1s1h")),
    ("bad_duration", "/deadline", plan(deadline="366d")),
    ("bad_duration", "/budget/time", plan(budget={"time": "0s"})),
    ("bad_duration", "/work/0/attempt_time", plan(order(attempt_time="5"))),
    ("bad_duration", "/work/0/retry/backoff", plan(order(retry={"on": ["executor"], "backoff": "-1s"}))),
    ("bad_money", "/budget/money/USD", plan(budget={"money": {"USD": "-1"}})),
    ("bad_money", "/budget/money/USD", plan(budget={"money": {"USD": "1.2345678"}})),
    ("bad_money", "/work/0/budget/money/EUR", plan(order(budget={"money": {"EUR": "1e3"}}))),
    ("out_of_range", "/work", plan(work=[])),
    ("out_of_range", "/objective", plan(objective="x" * 4_097)),
    ("out_of_range", "/objective", plan(objective="a\0b")),
    ("out_of_range", "/objective", plan(objective="a\ud800b")),
    ("out_of_range", "/recovery", plan(recovery="forget")),
    ("out_of_range", "/budget/attempts", plan(budget={"attempts": 0})),
    ("out_of_range", "/budget/calls", plan(budget={"calls": -1})),
    ("out_of_range", "/budget/calls", plan(budget={"calls": 2**53})),
    ("out_of_range", "/work/0/budget/attempts", plan(order(budget={"attempts": -1}))),
    ("out_of_range", "/work/0/budget/attempts", plan(order(budget={"attempts": 2**31}))),
    ("out_of_range", "/work/0/executor", plan(order(executor="shell"))),
    ("out_of_range", "/work/0/run", plan(order(run=[]))),
    ("out_of_range", "/work/0/run", plan(order(run=["", "a"]))),
    ("out_of_range", "/work/0/run", plan(order(run=["true"] * 1_025))),
    ("out_of_range", "/work/0/run", plan(order(run=["true", "x" * 100_000, "x" * 100_000]))),
    ("out_of_range", "/work/0/run/1", plan(order(run=["true", "\0"]))),
    ("out_of_range", "/work/0/environment/0", plan(order(environment=["A=B"]))),
    ("out_of_range", "/work/0/environment/0", plan(order(environment=["*"]))),
    ("out_of_range", "/work/0/environment/0", plan(order(environment=["FENCEPOST_TOKEN"]))),
    ("out_of_range", "/work/0/inputs", plan(order(inputs=[]))),
    ("out_of_range", "/work/0/inputs/0", plan(order(inputs=["src/"]))),
    ("out_of_range", "/work/0/inputs/0", plan(order(inputs=["src\\a"]))),
    ("out_of_range", "/work/0/outputs/0", plan(order(outputs=["a//b"]))),
    ("out_of_range", "/work/0/outputs/0", plan(order(outputs=["./b"]))),
    ("out_of_range", "/work/0/outputs/0", plan(order(outputs=["a**"]))),
    ("out_of_range", "/work/0/outputs", plan(order(outputs=["a"] * 257))),
    ("out_of_range", "/work/0/accept/exit_code", plan(order(accept={"exit_code": 256}))),
    ("out_of_range", "/work/0/retry/on", plan(order(retry={"on": []}))),
    ("out_of_range", "/work/0/retry/on/0", plan(order(retry={"on": ["policy"]}))),
    (
        "out_of_range",
        "/work/0/retry/backoff_max",
        plan(order(retry={"on": ["executor"], "backoff": "2s", "backoff_max": "1s"})),
    ),
    ("out_of_range", "/work/0/priority", plan(order(priority="urgent"))),
    ("out_of_range", "/work/0/classification", plan(order(classification="secret"))),
    ("out_of_range", "/work/0/params", plan(order(params={"a": "x" * 65_536}))),
    ("out_of_range", "/work/0/params/a", plan(order(params={"a": -(2**53)}))),
    ("out_of_range", "/work/0/params/a\\u0000", plan(order(params={"a\0": 1}))),
    ("out_of_range", "/work/0/needs/0", plan(order(needs=[{"all": ["b"], "any": ["b"]}]))),
    ("out_of_range", "/work/0/needs/0/any", plan(order(needs=[{"any": []}]))),
    ("out_of_range", "/work/0/needs/0/outcomes", plan(order(needs=[{"any": ["b"], "outcomes": []}]))),
    (
        "out_of_range",
        "/work/0/needs/0/outcomes/0",
        plan(order(needs=[{"any": ["b"], "outcomes": ["unknown_terminal"]}])),
    ),
    ("duplicate_name", "/work/1/name", plan(order("a"), order("a"))),
    ("duplicate_name", "/work/0/needs/1", plan(order(needs=["b", "b"]), order("b"))),
    ("duplicate_name", "/work/0/needs/0/any", plan(order(needs=[{"any": ["b", "b"]}]), order("b"))),
    ("dependency_missing", "/work/0/needs/0", plan(order(needs=["b"]))),
    ("dependency_missing", "/work/0/needs/0/done/1", plan(order(needs=[{"done": ["b", "c"]}]), order("b"))),
    ("dependency_missing", "/work/0/inputs/0/from", plan(order(inputs=[{"from": "b", "files": ["x"]}]))),
    ("dependency_cycle", "/work/0/needs", plan(order(needs=["a"]))),
    ("dependency_cycle", "/work/0/needs", plan(order(needs=[{"done": ["b"]}]), order("b", needs=["a"]))),
    ("impossible_budget", "/budget/attempts", plan(order("a"), order("b"), budget={"attempts": 1})),
    (
        "incompatible_output",
        "/work/0/inputs/0/from",
        plan(order(inputs=[{"from": "b", "files": ["x"]}]), order("b", outputs=["x"])),
    ),
    (
        "incompatible_output",
        "/work/0/inputs/1/files/0",
        plan(
            order(needs=["b"], inputs=["src/a.py", {"from": "b", "files": ["y", "x"]}]),
            order("b", outputs=["x"]),
        ),
    ),
    ("incompatible_output", "/work/0/accept/files/0", plan(order(accept={"files": ["x"]}))),
    (
        "incompatible_output",
        "/work/0/accept/schema/x.json",
        plan(order(outputs=["y"], accept={"schema": {"x.json": "schemas/s.json"}})),
    ),
    ("no_match", "/work/0/inputs/1", plan(order(inputs=["src/*", "docs/**"]))),
    (
        "no_match",
        "/work/0/accept/schema/x",
        plan(order(outputs=["x"], accept={"schema": {"x": "schemas/t.json"}})),
    ),
    ("path_outside", "/work/0/inputs/0", plan(order(inputs=["/etc/passwd"]))),
    ("path_outside", "/work/0/inputs/0", plan(order(inputs=["src/../../a"]))),
    ("path_outside", "/work/0/outputs/0", plan(order(outputs=[".."]))),
    ("path_outside", "/work/0/accept/schema/x", plan(order(outputs=["x"], accept={"schema": {"x": "../t"}}))),
    ("unsupported_feature", "/recovery", plan(recovery="adopt")),
    ("unsupported_feature", "/reviewers", plan(reviewers={})),
    ("out_of_range", "/python", plan(python="")),
    ("wrong_type", "/python", plan(python=["python3"])),
    ("missing_key", "/work/0/call", plan({"name": "a", "executor": "python"})),
    ("unknown_key", "/work/0/call", plan({"name": "a", "call": "m:f"})),
    ("unknown_key", "/work/0/call", plan(order(call="m:f"))),
    ("unknown_key", "/work/0/run", plan(order(executor="python", call="m:f"))),
    ("bad_name", "/work/0/call", plan({"name": "a", "executor": "python", "call": "m.f"})),
    ("bad_name", "/work/0/call", plan({"name": "a", "executor": "python", "call": "../m:f"})),
    ("out_of_range", "/work/0/call", plan({"name": "a", "executor": "python", "call": f"m:{'f' * 300}"})),
    ("unsupported_feature", "/work/0/effects", plan(order(effects="opaque"))),
    ("unsupported_feature", "/work/0/effect", plan(order(effect=[]))),
    ("unsupported_feature", "/work/0/review", plan(order(review={}))),
    ("unsupported_feature", "/work/0/resources", plan(order(resources=[]))),
    ("unsupported_feature", "/work/0/may/0", plan(order(may=["network.connect"]))),
    ("unsupported_feature", "/work/0/may", plan(order(may=[]))),
]

# Where a document is wrong in two ways.
ALSO: dict[str, list[tuple[str, str]]] = {
    "/work/0/inputs/0/path": [("dependency_missing", "/work/0/inputs/0/from")],
    "/work/0/inputs/0/files": [("dependency_missing", "/work/0/inputs/0/from")],
    "/work/0/needs/0/outcomes": [
        ("dependency_missing", "/work/0/needs/0/done/0"),
        ("dependency_missing", "/work/0/needs/0/any/0"),
    ],
    "/work/0/needs/0/outcomes/0": [("dependency_missing", "/work/0/needs/0/any/0")],
    "/work/0/needs/0": [
        ("dependency_missing", "/work/0/needs/0/all/0"),
        ("dependency_missing", "/work/0/needs/0/any/0"),
    ],
    "/work/0/needs/0/outcome": [("dependency_missing", "/work/0/needs/0/all/0")],
}


@pytest.mark.parametrize(("code", "at", "value"), BAD, ids=[f"{code} {at or '.'}"[:60] for code, at, _ in BAD])
def test_one_bad_document_for_each_code(code: str, at: str, value: Any) -> None:
    checked = check(value, tree=TREE)
    found = places(checked)
    allowed = [(code, at), *ALSO.get(at, [])]
    assert (code, at) in found
    assert [place for place in found if place not in allowed] == []
    assert checked.document is None
    assert checked.content_digest is None
    assert all(problem.message and problem.next and problem.line is None for problem in checked.problems)


def test_every_code_but_syntax_has_a_bad_document() -> None:
    assert {code for code, _, _ in BAD} == {
        "unknown_key",
        "missing_key",
        "wrong_type",
        "bad_name",
        "bad_duration",
        "bad_money",
        "out_of_range",
        "duplicate_name",
        "dependency_missing",
        "dependency_cycle",
        "impossible_budget",
        "incompatible_output",
        "no_match",
        "path_outside",
        "unsupported_feature",
    }


def test_all_problems_come_at_once_and_name_their_order() -> None:
    value = plan(
        order("a", needs=["c"], outputs=["../x"], attempt_time="soon"),
        order("a", run=[]),
        order("b", needs=["b"], params={"x": 1.5}, budget={"attempts": 5}),
        budget={"attempts": 2, "money": {"USD": "x"}},
        deadline="never",
        colour="red",
    )
    checked = check(value)
    assert sorted(places(checked)) == [
        ("bad_duration", "/deadline"),
        ("bad_duration", "/work/0/attempt_time"),
        ("bad_money", "/budget/money/USD"),
        ("dependency_cycle", "/work/2/needs"),
        ("dependency_missing", "/work/0/needs/0"),
        ("duplicate_name", "/work/1/name"),
        ("impossible_budget", "/budget/attempts"),
        ("impossible_budget", "/work/2/budget/attempts"),
        ("out_of_range", "/work/1/run"),
        ("path_outside", "/work/0/outputs/0"),
        ("unknown_key", "/colour"),
        ("wrong_type", "/work/2/params/x"),
    ]
    names = {problem.at: problem.name for problem in checked.problems}
    assert names["/work/0/attempt_time"] == "a"
    assert names["/work/2/params/x"] == "b"
    assert names["/deadline"] is None


def test_a_refused_output_list_does_not_make_its_readers_wrong() -> None:
    value = plan(
        order("a", outputs=["/x"], accept={"files": ["x"]}),
        order("b", needs=["a"], inputs=[{"from": "a", "files": ["x"]}]),
    )
    assert places(check(value)) == [("path_outside", "/work/0/outputs/0")]


def test_members_of_a_refused_group_are_looked_up_all_the_same() -> None:
    assert places(check(plan(order(needs=[{"any": ["b"], "outcomes": "failed"}])))) == [
        ("wrong_type", "/work/0/needs/0/outcomes"),
        ("dependency_missing", "/work/0/needs/0/any/0"),
    ]


def test_unknown_keys_come_with_the_key_that_was_meant() -> None:
    (problem,) = check(plan(order(output=["x"]))).problems
    assert problem.next == 'write "outputs"'
    assert 'did you mean "outputs"?' in problem.message


def test_a_missing_dependency_comes_with_the_order_that_was_meant() -> None:
    (problem,) = check(plan(order("unit-tests"), order("b", needs=["unit-test"]))).problems
    assert problem.next == 'write "unit-tests"'


def test_a_stem_that_is_no_name_asks_for_one() -> None:
    (problem,) = check(plan(), stem="My Plan").problems
    assert (problem.code, problem.at) == ("bad_name", "/name")
    assert '"my-plan"' in problem.next
    assert check(plan(name="mine"), stem="My Plan").problems == ()


def test_problems_past_the_bound_are_counted() -> None:
    checked = check(plan(**{f"key{index}": 1 for index in range(10_003)}))
    assert len(checked.problems) == 10_000
    assert checked.problems_left_off == 3


def test_json_is_refused_at_the_same_places() -> None:
    value = plan(order(run="x", may_fail=None))
    assert places(as_json(value)) == [("wrong_type", "/work/0/may_fail"), ("wrong_type", "/work/0/run")]


def test_nesting_has_a_bound_and_ends_the_check() -> None:
    deep: Any = 1
    for _ in range(200):
        deep = [deep]
    ((code, at),) = places(check(plan(order(params={"a": deep}))))
    assert code == "out_of_range"
    assert at.startswith("/work/0/params/a/0/0")
