"""Canonical form and strict decoding: each refusal with its code and its place."""

from __future__ import annotations

import enum
import hashlib
import math
from typing import Annotated, Any, Literal

import msgspec
import pytest

from fencepost.core import canonical
from fencepost.core.canonical import (
    BYTES_MAX,
    CODES,
    DEPTH_MAX,
    INT_MAX,
    Undecodable,
    decode,
    decode_canonical,
    digest_of,
    encode,
    encode_trusted,
    parse,
    sanitize,
    slow_path_reason,
)

EMOJI = "\U0001f600"
PRIVATE_USE = "\ue000"  # after the surrogates as a UTF-16 unit, before the emoji as a code point


class Mode(enum.StrEnum):
    READ = "read"
    WRITE = "write"


class Lane(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    name: Annotated[str, msgspec.Meta(pattern="^[a-z]+$")]
    mode: Mode = Mode.READ
    count: Annotated[int, msgspec.Meta(ge=0, le=9)] = 0


class Step(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    omit_defaults=True,
    tag_field="kind",
    tag="step.taken",
):
    at_us: int
    note: str | None = None
    lanes: tuple[Lane, ...] = ()
    labels: dict[str, str] = {}
    amounts: dict[str, dict[str, int]] = {}
    flag: bool = False
    level: Literal["low", "high"] | None = None


class Stop(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    omit_defaults=True,
    tag_field="kind",
    tag="stop",
):
    reason: str = ""
    last: Step | None = None
    numbers: tuple[int, ...] = ()


Record = Step | Stop


class Late(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Its defaults are such that msgspec tells them by identity."""

    priority: str = "normal"
    ttl_us: int = 10_000_000
    lane: Lane = Lane(name="a")
    free: tuple[Any, ...] = (1,)


def refused(data: bytes, into: Any = Record) -> tuple[str, str]:
    with pytest.raises(Undecodable) as caught:
        decode(data, into)
    with pytest.raises(Undecodable) as canonical_too:
        decode_canonical(data, into)
    assert (canonical_too.value.code, canonical_too.value.path) == (caught.value.code, caught.value.path)
    return caught.value.code, caught.value.path


def unwritable(value: object) -> tuple[str, str]:
    with pytest.raises(Undecodable) as caught:
        encode(value)
    return caught.value.code, caught.value.path


REFUSALS: list[tuple[bytes, str, str]] = [
    (b"", "syntax", ""),
    (b"{", "syntax", ""),
    (b'{"kind":"stop",}', "syntax", ""),
    (b'{"kind" "stop"}', "syntax", "/kind"),
    (b'{"kind":"stop","reason":"\\x"}', "syntax", "/reason"),
    (b'{"kind":"stop","reason":"a\x01"}', "syntax", "/reason"),
    (b'{"kind":"stop","numbers":[1,]}', "syntax", "/numbers/1"),
    (b'{"kind":"stop","numbers":[01]}', "syntax", "/numbers/0"),
    (b'{"kind":"stop","numbers":[+1]}', "syntax", "/numbers/0"),
    (b"\xef\xbb\xbf{}", "syntax", ""),
    (b'{"kind":"stop","extra":1}', "unknown_field", "/extra"),
    (b'{"kind":"stop","last":{"kind":"step.taken","at_us":1,"a/b~":1}}', "unknown_field", "/last/a~1b~0"),
    (b'{"kind":"step.taken"}', "missing_field", "/at_us"),
    (b'{"at_us":1}', "missing_field", "/kind"),
    (b'{"kind":"step.taken","at_us":1,"lanes":[{"name":"a"},{}]}', "missing_field", "/lanes/1/name"),
    (b"[]", "wrong_type", ""),
    (b'{"kind":5}', "wrong_type", "/kind"),
    (b'{"kind":"step.taken","at_us":"1"}', "wrong_type", "/at_us"),
    (b'{"kind":"step.taken","at_us":1,"flag":1}', "wrong_type", "/flag"),
    (b'{"kind":"step.taken","at_us":1,"labels":{"a":"x","b":2,"c":"y"}}', "wrong_type", "/labels/b"),
    (
        b'{"kind":"step.taken","at_us":1,"amounts":{"a":{},"b":{"x":1,"y":2},"c":{"x":1,"z":"2"}}}',
        "wrong_type",
        "/amounts/c/z",
    ),
    (b'{"kind":"stop","kind":"stop"}', "duplicate_key", "/kind"),
    (b'{"kind":"step.taken","at_us":1,"labels":{"a":"x","\\u0061":"y"}}', "duplicate_key", "/labels/a"),
    (b'{"kind":"step.taken","at_us":1.0}', "float", "/at_us"),
    (b'{"kind":"step.taken","at_us":1e3}', "float", "/at_us"),
    (b'{"kind":"stop","numbers":[0,-0.5]}', "float", "/numbers/1"),
    (b'{"kind":"step.taken","at_us":NaN}', "not_a_number", "/at_us"),
    (b'{"kind":"step.taken","at_us":-Infinity}', "not_a_number", "/at_us"),
    (b'{"kind":"step.taken","at_us":9007199254740992}', "integer_out_of_range", "/at_us"),
    (b'{"kind":"stop","numbers":[1,-9007199254740992]}', "integer_out_of_range", "/numbers/1"),
    (b'{"kind":"step.taken","at_us":' + b"9" * 6_000 + b"}", "integer_out_of_range", "/at_us"),
    (b'{"kind":"step.taken","at_us":true}', "bool_for_integer", "/at_us"),
    (b'{"kind":"stop","numbers":[1,false]}', "bool_for_integer", "/numbers/1"),
    (b'{"kind":"stop","reason":"a\\u0000b"}', "nul_character", "/reason"),
    (b'{"kind":"stop","reason":"a\x00b"}', "nul_character", "/reason"),
    (b'{"kind":"step.taken","at_us":1,"labels":{"a\\u0000":"x"}}', "nul_character", "/labels/a\ufffd"),
    (b'{"kind":"stop","reason":"\\ud800"}', "lone_surrogate", "/reason"),
    (b'{"kind":"stop","reason":"\\udc88x"}', "lone_surrogate", "/reason"),
    (b'{"kind":"step.taken","at_us":1,"labels":{"\\udc88":"x"}}', "lone_surrogate", "/labels/\ufffd"),
    (b'{"kind":"stop"} ', "trailing_bytes", ""),
    (b'{"kind":"stop"}\n', "trailing_bytes", ""),
    (b'\t{"kind":"stop"}', "trailing_bytes", ""),
    (b'{"kind":"stop"}{}', "trailing_bytes", ""),
    (b'{"kind":"stop"}\x00', "trailing_bytes", ""),
    (b'{"kind":"stop","numbers":' + b"[" * 64 + b"]" * 64 + b"}", "too_deep", "/numbers" + "/0" * 63),
    (b"[" * 200_000, "too_deep", "/0" * 64),
    (b'"' + b"a" * BYTES_MAX + b'"', "too_large", ""),
    (b'{"kind":"stop","reason":"\xff"}', "invalid_utf8", "/reason"),
    (b'{"kind":"stop","reason":"\xed\xa0\x80"}', "invalid_utf8", "/reason"),
    (b'{"kind":"stop","reason":"\xc0\x80"}', "invalid_utf8", "/reason"),
    (b'{"kind":"step.taken","at_us":1,"labels":{"k\xff":"x"}}', "invalid_utf8", "/labels/k\ufffd"),
    (b'{"kind":"stop"\xff}', "invalid_utf8", ""),
    (b'{"kind":"stop"}\xff', "invalid_utf8", ""),
    (b'{"kind":"start"}', "unknown_tag", "/kind"),
    (b'{"kind":"stop","last":{"kind":"stop"}}', "unknown_tag", "/last/kind"),
    (b'{"kind":"step.taken","at_us":1,"lanes":[{"name":"A"}]}', "bad_value", "/lanes/0/name"),
    (b'{"kind":"step.taken","at_us":1,"lanes":[{"name":"a","count":10}]}', "bad_value", "/lanes/0/count"),
    (b'{"kind":"step.taken","at_us":1,"lanes":[{"name":"a","mode":"own"}]}', "bad_value", "/lanes/0/mode"),
    (b'{"kind":"step.taken","at_us":1,"level":"middle"}', "bad_value", "/level"),
]


@pytest.mark.parametrize(("data", "code", "path"), REFUSALS, ids=lambda value: ascii(value)[:60])
def test_every_violation_has_its_code_and_the_path_of_the_field(data: bytes, code: str, path: str) -> None:
    assert refused(data) == (code, path)


def test_every_code_of_decoding_is_reached() -> None:
    assert {code for _, code, _ in REFUSALS} | {"not_canonical"} == CODES


def test_a_constraint_on_a_key_names_the_key() -> None:
    short = dict[Annotated[str, msgspec.Meta(max_length=2)], int]
    with pytest.raises(Undecodable) as caught:
        decode(b'{"ok":1,"long":2,"no":3}', short)
    assert (caught.value.code, caught.value.path) == ("bad_value", "/long")
    at_least_two = Annotated[dict[str, int], msgspec.Meta(min_length=2)]
    with pytest.raises(Undecodable) as caught:
        decode(b'{"a":1,"b":2,"c":"3"}', at_least_two)
    assert (caught.value.code, caught.value.path) == ("wrong_type", "/c")


def test_only_canonical_bytes_are_canonical() -> None:
    good = b'{"at_us":1,"kind":"step.taken","note":"x"}'
    assert decode_canonical(good, Record) == Step(at_us=1, note="x")
    for bad in (
        b'{"kind":"step.taken","at_us":1,"note":"x"}',  # order
        b'{"at_us": 1,"kind":"step.taken","note":"x"}',  # white space
        b'{"at_us":1,"kind":"step.taken","note":"\\u0078"}',  # a longer escape
        b'{"at_us":1,"kind":"step.taken","note":"\\/"}',
        b'{"at_us":-0,"kind":"step.taken","note":"x"}',
        b'{"at_us":1,"flag":false,"kind":"step.taken","note":"x"}',  # a default, written
        b'{"at_us":1,"kind":"step.taken","lanes":[]}',
        b'{"at_us":1,"kind":"step.taken","labels":{}}',
        b'{"at_us":1,"kind":"step.taken","labels":{"\xee\x80\x80":"","\xf0\x9f\x98\x80":""}}',
    ):
        with pytest.raises(Undecodable) as caught:
            decode_canonical(bad, Record)
        assert (caught.value.code, caught.value.path) == ("not_canonical", "")
        assert decode_canonical(encode(decode(bad, Record)), Record) == decode(bad, Record)


def test_decode_leaves_key_order_and_white_space_inside_free() -> None:
    data = b'{ "kind" : "stop",\n\t"numbers" : [ 1 , -0 , 2 ] , "reason":"\\u00e9\\ud83d\\ude00" }'
    assert decode(data, Record) == Stop(numbers=(1, 0, 2), reason="\u00e9" + EMOJI)


def test_bounds_are_inclusive_and_may_be_tightened_only() -> None:
    assert decode(str(INT_MAX).encode(), int) == INT_MAX
    assert decode(str(-INT_MAX).encode(), int) == -INT_MAX
    nested = b"[" * DEPTH_MAX + b"]" * DEPTH_MAX
    assert encode(parse(nested)) == nested
    assert parse(b"1", depth_max=0) == 1
    assert decode(b"[[1]]", list[list[int]], bytes_max=5, depth_max=2) == [[1]]
    for bounds, code in (({"bytes_max": 4}, "too_large"), ({"depth_max": 1}, "too_deep")):
        with pytest.raises(Undecodable) as caught:
            decode(b"[[1]]", list[list[int]], **bounds)
        assert caught.value.code == code
    with pytest.raises(ValueError, match="within"):
        parse(b"1", depth_max=DEPTH_MAX + 1)
    exact = b'"' + b"a" * (BYTES_MAX - 2) + b'"'
    assert decode(exact, str) == exact[1:-1].decode()


def test_parse_reads_the_whole_domain_untyped() -> None:
    assert parse(b'{"b":[null,true,false,-1,"\\u00e9"],"a":{}}') == {
        "b": [None, True, False, -1, "\u00e9"],
        "a": {},
    }


def test_types_outside_the_domain_are_an_error_of_the_program() -> None:
    class Shapeless(msgspec.Struct):
        body: msgspec.Raw

    for foreign in (float, bytes, set[str], dict[int, str], Shapeless, list[float]):
        with pytest.raises(TypeError):
            decode(b"1", foreign)


def test_keys_are_ordered_by_utf16_units() -> None:
    data = encode({PRIVATE_USE: 1, EMOJI: 2, "a": 3})
    assert list(parse(data)) == ["a", EMOJI, PRIVATE_USE]  # type: ignore[call-overload]  # it is a dict
    step = Step(at_us=1, labels={PRIVATE_USE: "", EMOJI: ""})
    assert encode_trusted(step) == encode(step)
    assert decode_canonical(encode(step), Record) == step


@pytest.mark.parametrize(
    ("value", "code", "path"),
    [
        ({"a": [1, 1.5]}, "float", "/a/1"),
        ({"a": math.nan}, "not_a_number", "/a"),
        ([math.inf], "not_a_number", "/0"),
        ({"a": {"b": INT_MAX + 1}}, "integer_out_of_range", "/a/b"),
        ([-INT_MAX - 1], "integer_out_of_range", "/0"),
        ({"a": "\0"}, "nul_character", "/a"),
        ({"a\0": 1}, "nul_character", "/a\ufffd"),
        (["\ud800"], "lone_surrogate", "/0"),
        ({"x": {"\udc88": 1}}, "lone_surrogate", "/x/\ufffd"),
        ({"a": b"bytes"}, "wrong_type", "/a"),
        ({1: 2}, "wrong_type", ""),
        ([{1, 2}], "wrong_type", "/0"),
        ("a" * BYTES_MAX, "too_large", ""),
        (["\x01" * (BYTES_MAX // 3)], "too_large", ""),
        (Step(at_us=2**53), "integer_out_of_range", "/at_us"),
        (Step(at_us=1, lanes=(Lane(name="a"), Lane(name="\0"))), "nul_character", "/lanes/1/name"),
        (Stop(last=Step(at_us=1, labels={"k": "\ud800"})), "lone_surrogate", "/last/labels/k"),
        (Stop(numbers=(1, -(2**53))), "integer_out_of_range", "/numbers/1"),
        (Stop(numbers=(2**53, 1)), "integer_out_of_range", "/numbers/0"),
        (Stop(numbers=(1, 2**70)), "integer_out_of_range", "/numbers/1"),
    ],
    ids=lambda value: ascii(value)[:50],
)
def test_what_cannot_be_written_is_refused_with_its_path(value: object, code: str, path: str) -> None:
    assert unwritable(value) == (code, path)
    if isinstance(value, msgspec.Struct):
        with pytest.raises(Undecodable) as caught:
            encode_trusted(value)
        assert (caught.value.code, caught.value.path) == (code, path)


def test_values_that_contain_themselves_or_share_without_end_are_refused() -> None:
    ring: list[object] = []
    ring.append(ring)
    assert unwritable(ring)[0] == "too_deep"
    laughs: object = "ha" * 1_000
    for _ in range(40):
        laughs = [laughs] * 10
    assert unwritable(laughs)[0] == "too_large"


def test_a_field_is_left_out_when_it_equals_its_default_not_when_it_is_the_same_object() -> None:
    equal = Late(priority="".join(["nor", "mal"]), ttl_us=int("10000000"), lane=Lane(name="a"))
    assert encode(equal) == encode_trusted(equal) == encode(Late()) == b"{}"
    assert "identity" in (slow_path_reason(Late) or "")
    assert encode(Late(free=(True,))) == b'{"free":[true]}'  # equal to the default in Python alone
    assert decode_canonical(b'{"priority":"high"}', Late) == Late(priority="high")
    with pytest.raises(Undecodable) as caught:
        decode_canonical(b'{"priority":"normal"}', Late)
    assert caught.value.code == "not_canonical"


def test_the_fast_path_is_taken_and_its_refusals_are_explained() -> None:
    class Anything(msgspec.Struct):
        body: dict[str, Any]

    class Tree(msgspec.Struct):
        children: tuple[Tree, ...] = ()

    assert [slow_path_reason(each) for each in (Lane, Step, Stop)] == [None, None, None]
    assert "any value" in (slow_path_reason(Anything) or "")
    assert encode_trusted(Anything(body={"b": 1, "a": [None]})) == b'{"body":{"a":[null],"b":1}}'


def test_a_recursive_type_is_bounded() -> None:
    assert slow_path_reason(Nested) is not None
    value = Nested()
    for _ in range(DEPTH_MAX):
        value = Nested(inner=value)
    with pytest.raises(Undecodable) as caught:
        encode_trusted(value)
    assert caught.value.code == "too_deep"
    assert decode_canonical(b'{"inner":{"inner":{}}}', Nested) == Nested(inner=Nested(inner=Nested()))


class Nested(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    inner: Nested | None = None


def test_the_fast_path_does_not_walk(monkeypatch: pytest.MonkeyPatch) -> None:
    struct = Stop(reason="\u00e9\u2028\x7f\n", last=Step(at_us=1_790_000_000_000_000), numbers=(1, -2))
    expected = encode(struct)

    def fail(value: object) -> bytes:
        raise AssertionError(value)

    monkeypatch.setattr(canonical, "encode", fail)
    assert encode_trusted(struct) == expected
    assert decode_canonical(expected, Record) == struct


def test_digest_is_sha256_of_the_canonical_bytes() -> None:
    assert digest_of({"b": 1, "a": ()}) == "sha256:" + hashlib.sha256(b'{"a":[],"b":1}').hexdigest()


def test_case_18_one_accept_set_for_text() -> None:
    accepted = {"emoji": EMOJI, "noncharacter": "\uffff", "escape": "\x1b\x7f", "literal": "\\u0000"}
    assert decode(encode(accepted), dict[str, str]) == accepted
    step = Step(at_us=1, note="\\u0000", labels=accepted)
    assert encode_trusted(step) == encode(step)
    for text in ("\0", "\ud800", "\udc88", "\ud83d\ude00"):
        assert unwritable({"result": text})[1] == "/result"
        assert unwritable({text: 1})[1].startswith("/\ufffd")


def test_case_18_failure_text_can_always_be_recorded() -> None:
    hostile = "tool said \0 and \ud800 and \udc88 and \uffff and " + EMOJI
    kept = sanitize(hostile, 4_096)
    assert kept == "tool said \ufffd and \ufffd and \ufffd and \uffff and " + EMOJI
    assert encode(kept)
    refusal = Undecodable("syntax", hostile, trail=(hostile, 1))
    assert encode([refusal.path, refusal.message, str(refusal)])


def test_case_37_nothing_unknown_maps_to_a_default() -> None:
    assert refused(b'{"kind":"step.taken","at_us":1,"lanes":[{"name":"a","mode":"exclusive"}]}') == (
        "bad_value",
        "/lanes/0/mode",
    )
    assert refused(b'{"kind":"step.planned","at_us":1}') == ("unknown_tag", "/kind")
    assert refused(b'{"kind":"step.taken","at_us":1,"since_a_later_version":1}') == (
        "unknown_field",
        "/since_a_later_version",
    )


def test_case_40_error_text_is_cut_never_refused() -> None:
    for bytes_max in (*range(-1, 40), 4_095, 4_096, 4_097):
        for text in ("a" * 4_096, EMOJI * 2_000, "\0" * 5_000, "", "a\u00e9"):
            kept = sanitize(text, bytes_max)
            assert len(kept.encode()) <= max(bytes_max, 0)
    assert sanitize("a" * 100, 30) == "a" * 16 + "\u2026[truncated]"
    assert sanitize("a" * 30, 30) == "a" * 30
    huge = Undecodable("unknown_field", "x" * 10_000_000, trail=("k" * 10_000_000,))
    assert len(huge.message.encode()) <= 512
    assert len(huge.path.encode()) <= 1_024
    long_key = b'{"kind":"stop","' + b"k" * 1_000_000 + b'":1}'
    assert refused(long_key)[0] == "unknown_field"
