"""First values are written out, and the content digest is a function of them."""

from __future__ import annotations

import json
import tomllib
from typing import Any

import pytest

from fencepost.core.planfile import Accept, FilePatterns, FromOrder, Group, Member, Retry, check_text
from tests.unit.planfile.plans import accepted, check, order, plan
from tests.unit.planfile.test_product_example import example_without_what_is_not_built


def digest(value: object, *, stem: str = "plan") -> str:
    checked = check(value, stem=stem)
    assert checked.content_digest is not None, checked.problems
    return checked.content_digest


def test_what_is_left_out_is_written_out() -> None:
    document = accepted(plan(order("a"), budget={"calls": 7}))
    (item,) = document.work
    assert (document.name, document.objective, document.deadline_us) == ("plan", "", None)
    assert document.recovery == "replace"
    assert item.budget == {"attempts": 3}
    assert item.attempt_time_us == 600_000_000
    assert item.environment == ("PATH", "LANG", "LC_*", "TZ")
    assert item.accept == Accept(exit_code=0, files=(), schema=(), verify=())
    assert (item.retry, item.inputs, item.outputs, item.needs) == (None, None, (), ())
    assert (item.priority, item.classification, item.effects) == ("normal", "internal", "declared")
    assert (item.may, item.may_fail, item.params) == (("workspace.write",), False, {})


def test_attempts_are_the_smaller_of_three_and_the_plans() -> None:
    assert accepted(plan(budget={"attempts": 2})).work[0].budget["attempts"] == 2
    assert accepted(plan(budget={"attempts": 9})).work[0].budget["attempts"] == 3
    assert accepted(plan(budget={"calls": 9})).work[0].budget["attempts"] == 3


@pytest.mark.parametrize(
    ("plan_time", "order_time", "expected_us"),
    [
        ("1h", None, 600_000_000),
        ("5m", None, 300_000_000),
        ("5m", "2m", 120_000_000),
        ("1h", "11m", 600_000_000),
    ],
)
def test_attempt_time_is_the_smallest_of_ten_minutes_and_the_ceilings(
    plan_time: str, order_time: str | None, expected_us: int
) -> None:
    own = {} if order_time is None else {"budget": {"time": order_time}}
    assert accepted(plan(order(**own), budget={"time": plan_time})).work[0].attempt_time_us == expected_us


def test_retry_has_first_values_of_its_own() -> None:
    item = accepted(plan(order(retry={"on": ["executor"], "backoff": "2m"}))).work[0]
    assert item.retry == Retry(on=("executor",), backoff_us=120_000_000, backoff_max_us=120_000_000)
    item = accepted(plan(order(retry={"on": ["validation"]}))).work[0]
    assert item.retry == Retry(on=("validation",), backoff_us=1_000_000, backoff_max_us=60_000_000)


def test_w15_needs_become_groups() -> None:
    needs: list[Any] = [
        {"any": ["a", "b"], "outcomes": ["failed", "applied"]},
        "c",
        {"done": ["a"]},
        "b",
        {"all": ["d"]},
    ]
    item = accepted(plan(*(order(name) for name in "abcd"), order("e", needs=needs))).work[4]
    assert item.needs[0] == Group(
        kind="required",
        members=(Member(name="c", outcomes=("applied",)), Member(name="b", outcomes=("applied",))),
    )
    assert item.needs[1].kind == "alternative"
    assert item.needs[1].members[0].outcomes == ("applied", "failed")
    assert item.needs[2].kind == "optional"
    assert len(item.needs[2].members[0].outcomes) == 6
    assert item.needs[3] == Group(kind="required", members=(Member(name="d", outcomes=("applied",)),))


def test_inputs_from_other_orders_stand_beside_patterns() -> None:
    inputs: list[Any] = ["a.txt", {"from": "a", "files": ["out/x.json"]}, "b/**"]
    item = accepted(
        plan(order("a", outputs=["out/*.json"]), order("b", needs=["a"], inputs=inputs)),
        tree=["a.txt", "b/c"],
    ).work[1]
    assert item.inputs == (
        FilePatterns(patterns=("a.txt", "b/**")),
        FromOrder(order="a", patterns=("out/x.json",)),
    )


def test_toml_and_json_of_the_same_content_have_one_digest() -> None:
    value = example_without_what_is_not_built()
    checked = check_text(json.dumps(value), syntax="json", stem="other")
    assert checked.problems == ()
    assert checked.content_digest == digest(value)


def reordered(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: reordered(value[key]) for key in reversed(list(value))}
    return [reordered(item) for item in value] if isinstance(value, list) else value


def test_the_digest_does_not_depend_on_key_order_or_on_written_first_values() -> None:
    value = example_without_what_is_not_built()
    assert digest(reordered(value)) == digest(value)
    written = tomllib.loads('recovery = "replace"\nname = "plan"\n')
    item = {"executor": "command", "accept": {"exit_code": 0}, "attempt_time": "10m", "priority": "normal"}
    assert digest(plan(order(**item), **written)) == digest(plan())


def test_the_digest_does_not_depend_on_the_files_there_are() -> None:
    value = plan(order(inputs=["src/**"]))
    digests = {check(value, tree=tree).content_digest for tree in (None, ["src/a"], ["src/a", "src/b"])}
    assert digests == {digest(value)}


@pytest.mark.parametrize(
    "change",
    [
        {"name": "other"},
        {"objective": "other"},
        {"deadline": "1h"},
        {"budget": {"attempts": 99}},
        {"work": [order("b")]},
        {"work": [order(), order("b")]},
        {"work": [order(run=["false"])]},
        {"work": [order(may_fail=True)]},
        {"work": [order(environment=["PATH"])]},
        {"work": [order(inputs=["**"])]},
        {"work": [order(outputs=["x"])]},
        {"work": [order(attempt_time="9m")]},
        {"work": [order(budget={"attempts": 2})]},
        {"work": [order(budget={"per_attempt": {"calls": 2}})]},
        {"work": [order(retry={"on": ["executor"]})]},
        {"work": [order(accept={"exit_code": 1})]},
        {"work": [order(accept={"verify": ["true"]})]},
        {"work": [order(priority="high")]},
        {"work": [order(classification="public")]},
        {"work": [order(effects="none")]},
        {"work": [order(params={"a": 1})]},
        {"python": "python3.12"},
    ],
)
def test_every_key_counts_for_the_digest(change: dict[str, Any]) -> None:
    assert digest({**plan(), **change}) != digest(plan())


def test_x10_a_callable_and_its_interpreter_are_in_the_document_and_count_for_the_digest() -> None:
    def calling(call: str) -> dict[str, Any]:
        return plan({"name": "a", "executor": "python", "call": call}, python="python3.12")

    document = accepted(calling("work:one"))
    assert (document.python, document.work[0].call, document.work[0].run) == ("python3.12", "work:one", ())
    assert (accepted(plan()).python, accepted(plan()).work[0].call) == ("", "")
    assert digest(calling("work:one")) == digest(calling("work:one")) != digest(calling("work:two"))


def test_a_priority_counts_as_it_was_declared() -> None:
    last = order("b", needs=["a"], priority="high")
    assert digest(plan(order("a"), last)) != digest(plan(order("a", priority="high"), last))


def test_the_name_counts_as_the_file_gives_it() -> None:
    assert digest(plan(), stem="a") == digest(plan(name="a"), stem="b")
    assert digest(plan(), stem="a") != digest(plan(), stem="b")
