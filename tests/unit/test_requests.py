"""Requests of running programs are read strictly: whatever the bytes, one form or one refusal with a known code."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.core.reasons import REASONS
from fencepost.sdk import wire
from fencepost.services import requests as ask
from fencepost.services.requests import Declined, read_form, refused

TOKEN = "ab" * 32
GOOD: list[tuple[dict[str, Any], type[ask.Form]]] = [
    ({"op": "hello"}, ask.Hello),
    ({"op": "status"}, ask.Status),
    ({"op": "heartbeat"}, ask.Heartbeat),
    ({"op": "heartbeat", "note": "é"}, ask.Heartbeat),
    ({"op": "checkpoint", "bytes": 0}, ask.Checkpoint),
    ({"op": "checkpoint", "bytes": 5, "kind": "steps/1", "builds_on": 3}, ask.Checkpoint),
    ({"op": "resume"}, ask.Resume),
    ({"op": "charge", "receipt": "r", "amounts": {"calls": 1, "money": {"USD": "1"}}}, ask.Charge),
    ({"op": "charge", "receipt": "r", "amounts": {}, "unknown": ["calls", "money:USD"]}, ask.Charge),
    ({"op": "artifact", "path": "a"}, ask.Artifact),
    ({"op": "yield", "children": ["a"], "after": "1s"}, ask.Yield),
    ({"op": "child", "order": {"name": "a", "run": ["x"]}}, ask.Child),
    ({"op": "output", "child": "a", "path": "b"}, ask.Output),
    ({"op": "answer", "question": "q"}, ask.AnswerTo),
]


def line(**fields: Any) -> bytes:
    return json.dumps({"v": 1, "token": TOKEN, **fields}).encode()


@pytest.mark.parametrize(("fields", "form"), GOOD)
def test_every_operation_has_a_form(fields: dict[str, Any], form: type[ask.Form]) -> None:
    assert type(read_form(line(**fields))) is form
    assert type(read_form(wire.encode({"v": 1, "token": TOKEN, **fields}))) is form


def test_an_operation_that_is_none_is_told_which_there_are() -> None:
    with pytest.raises(Declined) as declined:
        read_form(line(op="frobnicate"))
    known = ", ".join(form["op"] for form in {str(each["op"]): each for each, _ in GOOD}.values())
    assert refused(declined.value)["error"]["next"] == f"name one of {known}"
    assert (declined.value.code, declined.value.where) == ("unknown_tag", "/op")


def test_every_form_is_tried_here() -> None:
    assert {form for _, form in GOOD} == set(ask.AnyForm.__args__)


@pytest.mark.parametrize(("fields", "form"), GOOD)
def test_no_form_takes_a_field_that_it_does_not_know(fields: dict[str, Any], form: type[ask.Form]) -> None:
    with pytest.raises(Declined) as declined:
        read_form(line(**fields, surplus=1))
    assert (declined.value.code, declined.value.where) == ("unknown_field", "/surplus")


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (b"", "syntax"),
        (b"hello", "syntax"),
        (b"null", "wrong_type"),
        (b'"hello"', "wrong_type"),
        (b"{}", "missing_field"),
        (b'{"op":"hello","v":1}', "missing_field"),
        (line(op="nothing"), "unknown_tag"),
        (line(op="hello") + b" ", "trailing_bytes"),
        (line(op="hello") + b"\r", "trailing_bytes"),
        (b" " + line(op="hello"), "trailing_bytes"),
        (line(op="hello", v=2), "unsupported_protocol"),
        (line(op="hello", v=0), "unsupported_protocol"),
        (line(op="hello", v="1"), "wrong_type"),
        (line(op="hello", v=True), "bool_for_integer"),
        (line(op="hello", v=1.0), "float"),
        (line(op="hello", token=1), "wrong_type"),
        (line(op="hello", token="x" * 257), "bad_value"),
        (b'{"v":1,"v":1,"op":"hello","token":"x"}', "duplicate_key"),
        (b'{"v":1,"op":"hello","token":"\xff"}', "invalid_utf8"),
        (b'{"v":1,"op":"hello","token":"\\ud800"}', "lone_surrogate"),
        (b'{"v":1,"op":"hello","token":"\\u0000"}', "nul_character"),
        (b'{"v":1,"op":"hello","token":NaN}', "not_a_number"),
        (line(op="child", order=json.loads("[" * 40 + "]" * 40)), "too_deep"),
        (line(op="child", order=[]), "wrong_type"),
        (line(op="heartbeat", note="x" * wire.LINE_BYTES_MAX), "too_large"),
        (line(op="checkpoint", bytes=-1), "bad_value"),
        (line(op="checkpoint", bytes=2**53), "integer_out_of_range"),
        (line(op="checkpoint", bytes=None), "wrong_type"),
    ],
)
def test_what_is_no_request_is_refused_under_its_own_code(text: bytes, code: str) -> None:
    with pytest.raises(Declined) as declined:
        read_form(text)
    assert declined.value.code == code
    assert TOKEN not in declined.value.message + declined.value.where


_JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=6), inner, max_size=3)),
    max_leaves=8,
)
_FIELDS = st.dictionaries(
    st.one_of(
        st.sampled_from(["op", "v", "token", "bytes", "note", "kind", "order", "amounts", "children", "path", TOKEN]),
        st.text(max_size=5),
    ),
    st.one_of(_JSON, st.sampled_from([form["op"] for form, _ in GOOD]), st.just(1), st.just(TOKEN)),
    max_size=8,
)


@given(st.one_of(st.binary(max_size=200), _FIELDS.map(lambda fields: json.dumps(fields).encode())))
def test_whatever_comes_there_is_one_answer(text: bytes) -> None:
    try:
        form = read_form(text)
    except Declined as declined:
        reply = refused(declined)
        assert declined.code in REASONS
        assert reply["exit"] in (1, 2)
        assert TOKEN not in reply["error"]["message"]
        assert len(wire.encode(reply)) < 8_192
        return
    assert isinstance(form, ask.Form) and form.v == 1


@pytest.mark.parametrize(
    "fields",
    [
        {"op": "heartbeat", "note": "my TOKEN"},
        {"op": "yield", "question": "go", "prompt": "TOKEN?"},
        {"op": "child", "order": {"name": "a", "run": ["echo", "x-TOKEN"]}},
        {"op": "child", "order": {"name": "a", "params": {"TOKEN": 1}}},
        {"op": "charge", "receipt": "TOKEN", "amounts": {"calls": 1}},
    ],
)
@pytest.mark.parametrize("way", ["plain", "escaped"])
def test_x10_a_request_holds_its_token_once_however_it_is_written(fields: dict[str, Any], way: str) -> None:
    token = "c4" * 32
    said = token if way == "plain" else "\\u0063" + token[1:]
    rest = json.dumps(fields).replace("TOKEN", said)[1:]
    with pytest.raises(Declined) as declined:
        read_form(f'{{"v": 1, "token": "{token}", {rest}'.encode())
    assert (declined.value.code, declined.value.where) == ("bad_value", "/token")
