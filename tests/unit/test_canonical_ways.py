"""The short ways of writing and reading canonical bytes give what the long ones give, at every edge (case 18, W24)."""

from __future__ import annotations

import enum
from typing import Annotated, Any, Literal

import msgspec
import pytest

from fencepost.core.canonical import (
    BYTES_MAX,
    DEPTH_MAX,
    INT_MAX,
    Undecodable,
    decode,
    decode_canonical,
    encode,
    encode_trusted,
    slow_path_reason,
)

EMOJI, PRIVATE_USE = "\U0001f600", "\ue000"  # as UTF-16 units the emoji comes first, as a code point last


class Level(enum.IntEnum):
    LOW = 1
    PAST = 2**53


class Base(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    pass


class Texts(Base, frozen=True):
    text: str = ""


class Member(Base, frozen=True):
    number: int = 0


class Elements(Base, frozen=True):
    numbers: tuple[int, ...] = ()


class Unions(Base, frozen=True):
    mixed: tuple[str | int, ...] = ()


class Meta(Base, frozen=True):
    counts: tuple[Annotated[int, msgspec.Meta(ge=0)], ...] = ()


class Titled(Base, frozen=True):
    counts: tuple[Annotated[int, msgspec.Meta(title="how many")], ...] = ()


class Literals(Base, frozen=True):
    words: tuple[Literal["a", 9007199254740992], ...] = ()


class Enums(Base, frozen=True):
    levels: tuple[Level, ...] = ()


class Pair(Base, frozen=True):
    pair: tuple[str, int] = ("", 0)


class Keys(Base, frozen=True):
    labels: dict[str, str] = {}


class Nested(Base, frozen=True):
    inner: tuple[dict[str, tuple[int, ...]], ...] = ()


def outcome(write: Any, value: object) -> bytes | tuple[str, str]:
    try:
        return bytes(write(value))
    except Undecodable as refusal:
        return refusal.code, refusal.path


PAST, FAR = INT_MAX + 1, -INT_MAX - 1
VALUES: list[tuple[msgspec.Struct, bytes | tuple[str, str]]] = [
    (Texts(text="a\\b"), b'{"text":"a\\\\b"}'),
    (Texts(text="\\u0000"), b'{"text":"\\\\u0000"}'),
    (Texts(text="a\0b"), ("nul_character", "/text")),
    (Texts(text="\ud800"), ("lone_surrogate", "/text")),
    (Member(number=INT_MAX), b'{"number":9007199254740991}'),
    (Member(number=-INT_MAX), b'{"number":-9007199254740991}'),
    (Member(number=PAST), ("integer_out_of_range", "/number")),
    (Member(number=FAR), ("integer_out_of_range", "/number")),
    (Member(number=10**17), ("integer_out_of_range", "/number")),
    (Elements(numbers=(INT_MAX, -INT_MAX)), b'{"numbers":[9007199254740991,-9007199254740991]}'),
    (Elements(numbers=(PAST, 1)), ("integer_out_of_range", "/numbers/0")),
    (Elements(numbers=(1, FAR)), ("integer_out_of_range", "/numbers/1")),
    (Elements(numbers=(1, 2, 10**17)), ("integer_out_of_range", "/numbers/2")),
    (Unions(mixed=("a", PAST)), ("integer_out_of_range", "/mixed/1")),
    (Unions(mixed=(PAST, "a")), ("integer_out_of_range", "/mixed/0")),
    (Meta(counts=(PAST,)), ("integer_out_of_range", "/counts/0")),
    (Titled(counts=(PAST,)), ("integer_out_of_range", "/counts/0")),
    (Titled(counts=(1, 2)), b'{"counts":[1,2]}'),
    (Literals(words=(9007199254740992,)), ("integer_out_of_range", "/words/0")),
    (Enums(levels=(Level.LOW,)), b'{"levels":[1]}'),
    (Enums(levels=(Level.PAST,)), ("integer_out_of_range", "/levels/0")),
    (Pair(pair=("a", PAST)), ("integer_out_of_range", "/pair/1")),
    (
        Keys(labels={EMOJI: "1", PRIVATE_USE: "2"}),
        f'{{"labels":{{"{EMOJI}":"1","{PRIVATE_USE}":"2"}}}}'.encode(),
    ),
    (Keys(labels={"b": EMOJI, "a": "1"}), f'{{"labels":{{"a":"1","b":"{EMOJI}"}}}}'.encode()),
    (Keys(labels={"\uffff": "1", PRIVATE_USE: "2"}), f'{{"labels":{{"{PRIVATE_USE}":"2","\uffff":"1"}}}}'.encode()),
    (Nested(inner=({"a": (PAST,)},)), ("integer_out_of_range", "/inner/0/a/0")),
    (
        Nested(inner=({PRIVATE_USE: (1,), EMOJI: (2,)},)),
        f'{{"inner":[{{"{EMOJI}":[2],"{PRIVATE_USE}":[1]}}]}}'.encode(),
    ),
]


@pytest.mark.parametrize(("value", "expected"), VALUES, ids=[str(place) for place in range(len(VALUES))])
def test_case_18_both_ways_of_writing_check_the_same(value: msgspec.Struct, expected: object) -> None:
    assert slow_path_reason(type(value)) is None or isinstance(value, Pair)
    assert outcome(encode, value) == expected
    assert outcome(encode_trusted, value) == expected


@pytest.mark.parametrize(("more", "fits"), [(0, True), (1, False)])
@pytest.mark.parametrize("write", [encode, encode_trusted])
def test_case_40_a_document_may_be_as_large_as_the_bound(more: int, fits: bool, write: Any) -> None:
    text = "x" * (BYTES_MAX - len(b'{"text":""}') + more)
    found = outcome(write, Texts(text=text))
    if not fits:
        assert found == ("too_large", "")
        return
    assert isinstance(found, bytes) and len(found) == BYTES_MAX
    assert decode(found, Texts) == decode_canonical(found, Texts) == Texts(text=text)


def test_case_40_bytes_past_the_bound_are_not_read() -> None:
    data = b'{"text":"' + b"x" * (BYTES_MAX - 10) + b'"}'
    assert len(data) == BYTES_MAX + 1
    for read in (decode, decode_canonical):
        with pytest.raises(Undecodable) as caught:
            read(data, Texts)
        assert caught.value.code == "too_large"


@pytest.mark.parametrize("kind", ["lists", "tables"])
@pytest.mark.parametrize(("depth", "fits"), [(DEPTH_MAX, True), (DEPTH_MAX + 1, False)])
def test_case_40_containers_stand_inside_each_other_as_deep_as_the_bound(kind: str, depth: int, fits: bool) -> None:
    value: Any = 1
    for _ in range(depth):
        value = [value] if kind == "lists" else {"a": value}
    found = outcome(encode, value)
    assert isinstance(found, bytes) == fits
    if not fits:
        assert found[0] == "too_deep"


def test_a_tightened_bound_is_kept_whichever_bound_it_is() -> None:
    data = b"[[1]]"
    read: Any = decode(data, list[list[int]], bytes_max=5, depth_max=2)
    assert read == [[1]]
    for bounds, code in (({"bytes_max": 4}, "too_large"), ({"depth_max": 1}, "too_deep")):
        with pytest.raises(Undecodable) as caught:
            decode(data, Any, **bounds)
        assert caught.value.code == code


@pytest.mark.parametrize(
    ("data", "at"),
    [(b'{"text": "a"}', 8), (b' {"text":"a"}', None), (b'{"text":"\\u0061"}', 9), (b'{"text":"a","text":"b"}', None)],
)
def test_w24_bytes_that_are_not_canonical_say_where_they_begin_to_differ(data: bytes, at: int | None) -> None:
    with pytest.raises(Undecodable) as caught:
        decode_canonical(data, Texts)
    assert (caught.value.code == "not_canonical") == (at is not None)
    if at is not None:
        assert caught.value.message == f"the bytes differ from the canonical ones from byte {at} on"


def test_members_of_enumerations_stand_for_their_values() -> None:
    class Colour(enum.Enum):
        RED = "red"
        FIRST = 1

    assert encode([Colour.RED, Colour.FIRST, Level.LOW]) == b'["red",1,1]'


def test_what_is_written_as_an_array_has_no_canonical_form() -> None:
    class Row(msgspec.Struct, array_like=True):
        a: int

    assert outcome(encode, Row(1)) == ("wrong_type", "")
    assert outcome(encode, {"row": Row(1)}) == ("wrong_type", "/row")
    with pytest.raises(TypeError, match="Row"):
        decode(b"[1]", Row)


@pytest.mark.parametrize(
    ("value", "message"),
    [(b"x", "bytes has no canonical form"), ({1: 2}, "a key that is int, not a string")],
)
def test_foreign_values_are_named_by_their_type(value: object, message: str) -> None:
    with pytest.raises(Undecodable) as caught:
        encode(value)
    assert (caught.value.code, caught.value.message) == ("wrong_type", message)


def test_the_type_that_stands_in_the_way_is_named() -> None:
    class Any_(Base, frozen=True):
        free: Any = None

    class Wire(Base, frozen=True):
        name: str = msgspec.field(name="ä", default="")

    class Number(Base, frozen=True):
        edge: int = 257

    class Inner(Base, frozen=True):
        many: dict[str, tuple[Any, ...]] = {}

    class Numbers(Base, frozen=True):
        keys: dict[int, str] = {}

    class Sets(Base, frozen=True):
        some: set[str] = set()

    assert slow_path_reason(Any_) == "Any_.free admits any value"
    assert slow_path_reason(Wire) == "Wire.name has a wire name outside ASCII"
    assert slow_path_reason(Number) == "Number.edge has a default that msgspec tells by identity"
    assert slow_path_reason(Inner) == "Inner.many admits any value"
    for kind, reason in (
        (Numbers, "Numbers.keys has keys that are no plain strings"),
        (Sets, "Sets.some is a SetType"),
    ):
        with pytest.raises(TypeError, match=reason):
            decode(b"{}", kind)


@pytest.mark.parametrize(("default", "same"), [(-6, False), (-5, True), (0, True), (256, True), (257, False)])
def test_defaults_that_msgspec_tells_by_identity_take_the_long_way(default: int, same: bool) -> None:
    kind = msgspec.defstruct("Kind", [("edge", int, default)], frozen=True, kw_only=True, omit_defaults=True)
    assert (slow_path_reason(kind) is None) == same
    equal = kind(edge=int(str(default)))
    assert encode(equal) == encode_trusted(equal) == b"{}"
