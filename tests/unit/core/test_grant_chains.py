"""Grants at their exact bounds: what is well formed, what a chain permits, what an objection names (W4, W23)."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from fencepost.core.grants import (
    CAVEATS_MAX,
    NAME_LENGTH_MAX,
    OPERATIONS_MAX,
    Caveat,
    GrantRefusal,
    GrantToken,
    attenuate,
    caveat_problem,
    issue,
    objection,
    verify,
)

KEY = b"k" * 32
WHO = Caveat(audience="me", operations=("a", "b"))
INTEGER_MAX = 2**53 - 1


@pytest.mark.parametrize("name", ["audience", "work_order", "attempt"])
@pytest.mark.parametrize(
    ("length", "fits"), [(0, False), (1, True), (NAME_LENGTH_MAX, True), (NAME_LENGTH_MAX + 1, False)]
)
def test_w4_names_have_a_length(name: str, length: int, fits: bool) -> None:
    assert caveat_problem(replace(Caveat(), **{name: "x" * length})) == (None if fits else name)


@pytest.mark.parametrize(
    ("operations", "fits"),
    [
        ((), True),
        (("a",), True),
        (("",), False),
        (("x" * NAME_LENGTH_MAX,), True),
        (("x" * (NAME_LENGTH_MAX + 1),), False),
        (("a", "b"), True),
        (("b", "a"), False),
        (("a", "a"), False),
        (tuple(f"{number:03}" for number in range(OPERATIONS_MAX)), True),
        (tuple(f"{number:03}" for number in range(OPERATIONS_MAX + 1)), False),
    ],
)
def test_w4_operations_are_named_once_in_order_and_there_is_a_bound(operations: tuple[str, ...], fits: bool) -> None:
    assert caveat_problem(Caveat(operations=operations)) == (None if fits else "operations")


@pytest.mark.parametrize("name", ["fence", "expires_us"])
@pytest.mark.parametrize(("value", "fits"), [(-1, False), (0, True), (INTEGER_MAX, True), (INTEGER_MAX + 1, False)])
def test_w4_numbers_are_those_of_documents(name: str, value: int, fits: bool) -> None:
    assert caveat_problem(replace(Caveat(), **{name: value})) == (None if fits else name)


def test_w4_a_caveat_narrows_something() -> None:
    assert caveat_problem(Caveat()) == "caveat"


@pytest.mark.parametrize(
    ("length", "fits"), [(0, False), (1, True), (NAME_LENGTH_MAX, True), (NAME_LENGTH_MAX + 1, False)]
)
def test_w4_a_grants_id_has_a_length_for_whoever_issues_and_whoever_verifies(length: int, fits: bool) -> None:
    name = "g" * length
    if fits:
        assert verify(KEY, issue(KEY, name, (WHO,))) == WHO
        return
    with pytest.raises(ValueError, match="id is empty or too long"):
        issue(KEY, name, (WHO,))
    forged = GrantToken(grant_id=name, caveats=(WHO,), signature="0" * 64)
    assert verify(KEY, forged) == GrantRefusal(code="grant_malformed")


def test_w4_a_chain_has_as_many_links_as_the_bound() -> None:
    token = issue(KEY, "g", (WHO,) * CAVEATS_MAX)
    assert verify(KEY, token) == WHO
    with pytest.raises(ValueError, match="at most"):
        attenuate(token, WHO)
    longer = replace(token, caveats=(*token.caveats, WHO))
    assert verify(KEY, longer) == GrantRefusal(code="grant_malformed")


@pytest.mark.parametrize("field", ["fence", "audience", "operations"])
def test_w4_a_malformed_link_is_named_before_any_signature_is_looked_at(field: str) -> None:
    wrong: dict[str, Any] = {"fence": -1, "audience": "", "operations": ("",)}
    token = GrantToken(grant_id="g", caveats=(WHO, Caveat(**{field: wrong[field]})), signature="0" * 64)
    assert verify(KEY, token) == GrantRefusal(code="grant_malformed", field=field)
    assert verify(KEY, replace(token, caveats=(WHO,))) == GrantRefusal(code="grant_forged")


USE: dict[str, Any] = {
    "audience": "me",
    "operation": "a",
    "work_order": "o",
    "attempt": "t",
    "fence": 3,
    "now_us": 9,
}
BOUND = Caveat(audience="me", operations=("a",), work_order="o", attempt="t", fence=3, expires_us=10)


@pytest.mark.parametrize(
    ("change", "refusal"),
    [
        ({}, None),
        ({"audience": "you"}, ("grant_audience", "audience")),
        ({"operation": "b"}, ("grant_operation", "operations")),
        ({"work_order": "p"}, ("grant_work_order", "work_order")),
        ({"work_order": None}, ("grant_work_order", "work_order")),
        ({"attempt": "u"}, ("grant_attempt", "attempt")),
        ({"attempt": None}, ("grant_attempt", "attempt")),
        ({"fence": 4}, ("grant_fence", "fence")),
        ({"fence": None}, ("grant_fence", "fence")),
        ({"now_us": 10}, ("grant_expired", "expires_us")),
    ],
)
def test_w4_a_use_that_a_grant_does_not_cover_is_told_by_what_does_not_match(
    change: dict[str, Any], refusal: tuple[str, str] | None
) -> None:
    expected = None if refusal is None else GrantRefusal(code=refusal[0], field=refusal[1])
    assert objection(BOUND, **{**USE, **change}) == expected


@pytest.mark.parametrize("name", ["work_order", "attempt", "fence"])
def test_w4_what_a_grant_is_not_bound_to_may_be_anything(name: str) -> None:
    free = replace(BOUND, **{name: None})
    for value in (USE[name], "other", None):
        assert objection(free, **{**USE, name: value}) is None


def test_w4_a_grant_of_no_operation_covers_none() -> None:
    assert objection(Caveat(audience="me"), **USE) == GrantRefusal(code="grant_operation", field="operations")
