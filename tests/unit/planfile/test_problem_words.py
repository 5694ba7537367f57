"""The words of problems: how values are quoted and named, where a problem stands, and how many are gathered."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

from fencepost.core.planfile import bounds
from fencepost.core.planfile.problems import Findings, PlanProblem, Spot, kind_of, nearest, printable, quote

MOST = bounds.QUOTE_CHARACTERS_MAX


@pytest.mark.parametrize(
    ("value", "shown", "kind"),
    [
        ("a", '"a"', "a string"),
        ("ä", '"ä"', "a string"),
        ("a\0\ud800", '"a\\\\u0000\\\\ud800"', "a string"),
        ("x" * MOST, f'"{"x" * MOST}"', "a string"),
        ("x" * (MOST + 1), f'"{"x" * MOST}"...', "a string"),
        (True, "true", "a boolean"),
        (False, "false", "a boolean"),
        (7, "7", "an integer"),
        (bounds.INTEGER_MAX, str(bounds.INTEGER_MAX), "an integer"),
        (-bounds.INTEGER_MAX, str(-bounds.INTEGER_MAX), "an integer"),
        (bounds.INTEGER_MAX + 1, "an integer beyond 2^53 - 1", "an integer"),
        (1.5, "a float", "a float"),
        ({}, "a table", "a table"),
        ([], "a list", "a list"),
        (None, "null", "null"),
        (datetime.date(2030, 1, 1), "a date or time", "a date or time"),
    ],
    ids=str,
)
def test_a_value_is_shown_on_one_line_and_named_in_the_words_of_plans(value: Any, shown: str, kind: str) -> None:
    assert (quote(value), kind_of(value)) == (shown, kind)


def test_places_are_json_pointers_below_their_order() -> None:
    findings = Findings()
    root = Spot(findings)
    order = Spot(findings, parent=root.child("work"), key=0, name="tests")
    assert (root.at(), order.at(), order.child("a/b~c").at()) == ("", "/work/0", "/work/0/a~1b~0c")
    assert (root.name, root.child("x").name, order.child("x").child(1).name) == (None, None, "tests")
    order.child("run").refuse("wrong_type", "a message", "a step")
    assert root.refusals() == 1
    assert findings.problems() == (
        PlanProblem(code="wrong_type", message="a message", at="/work/0/run", name="tests", next="a step"),
    )
    order.child("run").refuse("wrong_type", "another message", "another step")
    assert root.refusals() == 2 and len(findings.problems()) == 1, "the first sentence about a place stays"
    assert printable("a\0") == "a\\u0000"


def test_case_40_problems_past_the_bound_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "PROBLEMS_MAX", 2)
    findings = Findings()
    for key in "abcd":
        Spot(findings).child(key).refuse("code", "message", "next")
    assert [problem.at for problem in findings.problems()] == ["/a", "/b"] and findings.left_off == 2


def test_case_40_a_document_gets_only_so_many_suggestions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "SUGGESTIONS_MAX", 2)
    spot = Spot(Findings())
    assert [spot.nearest("tets", ("tests",)) for _ in range(4)] == ["tests", "tests", None, None]


@pytest.mark.parametrize(
    ("word", "known", "like"),
    [
        ("tets", ("lint", "tests"), "tests"),
        ("lint", ("lint", "lint2"), "lint"),
        ("zzz", ("lint", "tests"), None),
        ("abcde", ("abcxy",), "abcxy"),  # six tenths alike
        ("abcdef", ("abcxyz",), None),  # half alike
        ("x" * 63 + "y" * 40, ("x" * 63,), "x" * 63),
        ("", (), None),
    ],
)
def test_the_word_that_was_meant_is_at_least_six_tenths_alike(word: str, known: tuple[str, ...], like: str) -> None:
    assert nearest(word, known) == like
