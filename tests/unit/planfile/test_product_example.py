"""The plan of the product page: what is not built is named, the rest is accepted."""

from __future__ import annotations

import tomllib
from typing import Any

from fencepost.core.planfile import FilePatterns, FromOrder, check_text
from tests.unit.planfile.plans import PRODUCT_EXAMPLE, check, places

TREE = ("pyproject.toml", "src/a.py", "tests/test_a.py", "publish.sh", "check_report.py")


def example_without_what_is_not_built() -> dict[str, Any]:
    value = tomllib.loads(PRODUCT_EXAMPLE)
    del (
        value["reviewers"],
        value["work"][1]["review"],
        value["work"][1]["resources"],
        value["work"][2]["effect"],
    )
    return value


def test_every_key_that_is_not_built_is_refused_by_name() -> None:
    checked = check_text(PRODUCT_EXAMPLE, syntax="toml", stem="other", tree=TREE)
    assert checked.document is None
    assert checked.content_digest is None
    assert places(checked) == [
        ("unsupported_feature", "/reviewers"),
        ("unsupported_feature", "/work/1/review"),
        ("unsupported_feature", "/work/1/resources"),
        ("unsupported_feature", "/work/2/effect"),
    ]
    assert [problem.name for problem in checked.problems] == [None, "tests", "tests", "publish"]
    assert all(problem.next for problem in checked.problems)
    told = [PRODUCT_EXAMPLE.splitlines()[(problem.line or 0) - 1].split() for problem in checked.problems]
    assert [words[0] for words in told] == ["[reviewers.second-look]", "review", "resources", "[[work.effect]]"]


def test_the_rest_of_the_example_is_accepted_with_its_values() -> None:
    checked = check(example_without_what_is_not_built(), tree=TREE)
    assert checked.problems == ()
    document = checked.document
    assert document is not None
    assert checked.order == ("lint", "tests", "publish")
    assert (document.name, document.deadline_us, document.recovery) == ("nightly", 7_200_000_000, "replace")
    assert document.budget == {
        "attempts": 12,
        "time_us": 1_800_000_000,
        "tokens_input": 200_000,
        "tokens_output": 50_000,
        "calls": 40,
        "money_micros:USD": 2_500_000,
    }
    lint, tests, publish = document.work
    assert (lint.may_fail, lint.environment, lint.inputs) == (True, ("PATH",), None)
    assert tests.budget == {"attempts": 3, "time_us": 600_000_000}
    assert tests.hold() == {
        "attempts": 1,
        "time_us": 300_000_000,
        "calls": 5,
        "tokens_input": 16_667,
        "tokens_output": 4_167,
        "money_micros:USD": 208_334,
    }
    assert tests.inputs == (FilePatterns(patterns=("src/**", "tests/**", "pyproject.toml")),)
    assert [(group.kind, group.members[0].name) for group in tests.needs] == [("optional", "lint")]
    assert publish.inputs == (FromOrder(order="tests", patterns=("report.xml",)),)
    assert publish.pins_every_file()
    assert not tests.pins_every_file()
