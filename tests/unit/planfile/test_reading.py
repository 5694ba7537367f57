"""From text to values: a syntax error comes alone, with its line."""

from __future__ import annotations

from typing import Literal

import pytest

from fencepost.core.planfile import PlanProblem, RawDocument, check_text, read_document
from fencepost.core.planfile.bounds import DOCUMENT_BYTES_MAX
from tests.unit.planfile.plans import PRODUCT_EXAMPLE

Syntax = Literal["toml", "json"]


@pytest.mark.parametrize(
    ("syntax", "text", "line"),
    [
        ("toml", "a = 1\nb = \n", 2),
        ("toml", 'a = 1\nb = "x', 2),
        ("toml", "a = 1\na = 2\n", 2),
        ("toml", "[a]\nb = 1\n[a]\n", 3),
        ("toml", '\n\nb = "\\ud800"\n', 3),
        ("json", '{"a": 1,\n"b": }', 2),
        ("json", '{"a": 1', 1),
        ("json", '{"a": 1}\n{}', 2),
        ("json", '{"a": 1,\n"b": [1,\n{"c": 1, "c": 2}]}', 3),
        ("json", '\n{"a": 1, "b": {"a": 1}, "a": 2}', 2),
        ("json", "\ufeff{}", 1),
    ],
)
def test_a_syntax_error_has_its_line(syntax: Syntax, text: str, line: int) -> None:
    for form in (text, text.encode("utf-8")):
        problem = read_document(form, syntax=syntax)
        assert isinstance(problem, PlanProblem)
        assert (problem.code, problem.at, problem.line) == ("syntax", "", line)
        assert problem.next


def test_a_syntax_error_comes_alone() -> None:
    checked = check_text(PRODUCT_EXAMPLE + "colour = \n", syntax="toml", stem="Bad Stem")
    (problem,) = checked.problems
    assert (problem.code, problem.line) == ("syntax", PRODUCT_EXAMPLE.count("\n") + 1)


@pytest.mark.parametrize("syntax", ["toml", "json"])
def test_text_that_is_not_utf_8_names_the_line(syntax: Syntax) -> None:
    problem = read_document(b"a = 1\nb = '\xff'\n", syntax=syntax)
    assert isinstance(problem, PlanProblem)
    assert (problem.code, problem.line) == ("syntax", 2)


@pytest.mark.parametrize(
    ("syntax", "text"),
    [
        ("toml", "a = " + "[" * 100_000),
        ("json", "[" * 100_000),
        ("toml", "a = " + "9" * 5_000),
        ("json", "9" * 5_000),
    ],
)
def test_hostile_text_is_a_syntax_problem(syntax: Syntax, text: str) -> None:
    problem = read_document(text, syntax=syntax)
    assert isinstance(problem, PlanProblem)
    assert problem.code == "syntax"


@pytest.mark.parametrize("excess", [0, 1])
def test_case_40_the_text_has_a_bound(excess: int) -> None:
    text = '"' + "x" * (DOCUMENT_BYTES_MAX - 2 + excess) + '"'
    answer = read_document(text, syntax="json")
    assert isinstance(answer, PlanProblem if excess else RawDocument)
