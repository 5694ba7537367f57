"""Canonical bytes against an independent RFC 8785 implementation, round trips, and hostile bytes."""

from __future__ import annotations

import json
import random
from typing import Annotated, Any

import msgspec
import rfc8785
from hypothesis import given, settings
from hypothesis import strategies as st

from fencepost.core.canonical import (
    CODES,
    DEPTH_MAX,
    INT_MAX,
    Undecodable,
    decode,
    decode_canonical,
    encode,
    encode_trusted,
    parse,
    sanitize,
    slow_path_reason,
)

DOCUMENTS = 20_000
MUTATIONS = 20_000

ALPHABETS = (
    "abcdefghijklmnopqrstuvwxyz_",
    '\x01\x02\x07\x08\t\n\x0b\x0c\r\x1f "\\/\x7f\x80\u2028\u2029',
    "\u00e9\u00ff\u0100\u20ac\ud7ff\ue000\ufb33\ufeff\ufffd\uffff",
    "\U00010000\U0001f600\U0002f800\U000fffff\U0010ffff",
    "aB0\n\u00e9\ue000\uffff\U00010000\U0010ffff",
)
INTEGERS = (0, 1, -1, 9, 10, 255, 256, INT_MAX, -INT_MAX, INT_MAX - 1, 10**15, 1_790_000_000_000_000)


class Item(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    name: str
    count: int = 0
    weight: Annotated[int, msgspec.Meta(ge=-5)] | None = None


class Made(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    omit_defaults=True,
    tag_field="kind",
    tag="made",
):
    zeta: str
    alpha: int
    items: tuple[Item, ...] = ()
    labels: dict[str, str] = {}
    amounts: dict[str, int] = {}
    sizes: tuple[int, ...] = ()
    first: Item | None = None
    done: bool = False
    text: str = ""


class Gone(Made, frozen=True, kw_only=True, tag="gone"):
    reason: str | None = None


Record = Made | Gone


def some_text(draw: random.Random) -> str:
    alphabet = draw.choice(ALPHABETS)
    return "".join(draw.choice(alphabet) for _ in range(draw.choice((0, 1, 2, 5, 12))))


def some_integer(draw: random.Random) -> int:
    return draw.choice(INTEGERS) if draw.random() < 0.5 else draw.randint(-INT_MAX, INT_MAX)


def some_document(draw: random.Random, depth_left: int) -> Any:
    choice = draw.randrange(5, 9) if depth_left == 5 else draw.randrange(9 if depth_left else 5)
    if choice == 0:
        return draw.choice((None, True, False))
    if choice in (1, 2):
        return some_integer(draw)
    if choice in (3, 4):
        return some_text(draw)
    if choice == 5:
        return [some_document(draw, depth_left - 1) for _ in range(draw.randrange(4))]
    return {some_text(draw): some_document(draw, depth_left - 1) for _ in range(draw.randrange(5))}


def some_record(draw: random.Random) -> Made:
    def item() -> Item:
        return Item(name=some_text(draw), count=draw.choice((0, 0, 7)), weight=draw.choice((None, -5, 10**15)))

    fields: dict[str, Any] = {
        "zeta": some_text(draw),
        "alpha": some_integer(draw),
        "items": tuple(item() for _ in range(draw.randrange(3))),
        "labels": {some_text(draw): some_text(draw) for _ in range(draw.randrange(4))},
        "amounts": {some_text(draw): some_integer(draw) for _ in range(draw.randrange(3))},
        "sizes": tuple(some_integer(draw) for _ in range(draw.randrange(3))),
        "first": item() if draw.random() < 0.3 else None,
        "done": draw.random() < 0.3,
        "text": some_text(draw),
    }
    return Made(**fields) if draw.random() < 0.5 else Gone(**fields, reason=some_text(draw) or None)


def test_canonical_bytes_are_those_of_an_rfc_8785_library() -> None:
    draw = random.Random(8785)
    for _ in range(DOCUMENTS):
        document = some_document(draw, 5)
        data = encode(document)
        assert data == rfc8785.dumps(document), ascii(document)
        assert parse(data) == document


def test_deep_documents_agree_with_the_library_too() -> None:
    draw = random.Random(64)
    for depth in range(1, DEPTH_MAX):
        document: Any = some_text(draw)
        for _ in range(depth):
            document = [document] if draw.random() < 0.5 else {some_text(draw): document, "k": 1}
        assert encode(document) == rfc8785.dumps(document)
        assert parse(encode(document)) == document


def test_both_ways_of_writing_a_record_agree_with_the_library() -> None:
    assert slow_path_reason(Made) is None
    assert slow_path_reason(Gone) is None
    draw = random.Random(2)
    for _ in range(5_000):
        record = some_record(draw)
        data = encode_trusted(record)
        assert data == encode(record)
        assert data == rfc8785.dumps(json.loads(data))
        assert decode_canonical(data, Record) == record
        assert decode(data, Record) == record


def test_a_document_in_any_order_and_spacing_reads_alike() -> None:
    draw = random.Random(3)
    for _ in range(1_000):
        record = some_record(draw)
        tree = json.loads(encode(record))
        shuffled = dict(draw.sample(list(tree.items()), len(tree)))
        loose = json.dumps(shuffled, indent=draw.choice((None, 1)), ensure_ascii=draw.random() < 0.5).encode()
        assert decode(loose, Record) == record


texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"))
scalars = st.none() | st.booleans() | st.integers(-INT_MAX, INT_MAX) | texts
documents = st.recursive(scalars, lambda inner: st.lists(inner) | st.dictionaries(texts, inner))


@settings(max_examples=200, deadline=None)
@given(documents)
def test_documents_round_trip(document: Any) -> None:
    data = encode(document)
    assert data == rfc8785.dumps(document)
    assert parse(data) == document
    assert decode_canonical(data, Any) == document


@settings(max_examples=200, deadline=None)
@given(st.text(st.characters(exclude_categories=())), st.integers(-2, 200))
def test_case_40_sanitize_is_total_and_bounded(text: str, bytes_max: int) -> None:
    kept = sanitize(text, bytes_max)
    assert len(kept.encode()) <= max(bytes_max, 0)
    assert encode(kept)
    assert sanitize(kept, bytes_max) == kept


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200))
def test_random_bytes_are_read_or_refused(data: bytes) -> None:
    check_hostile(data, Any)


SNIPPETS = (
    *(b"\x00", b"\\u0000", b"\\ud800", b"\xff", b"\xed\xa0\x80", b"1.5", b"1e9", b"NaN", b"-", b"9" * 17),
    *(b" ", b"\n", b"{", b"}", b"[", b"]", b",", b":", b'"', b"\\", b"null", b"true", b"{}", b"[]"),
    *(b'"alpha":1,', b'"x":1,', b"[" * 70),
)


def mutated(draw: random.Random, data: bytes) -> bytes:
    result = bytearray(data)
    for _ in range(draw.choice((1, 1, 1, 2, 5))):
        at = draw.randrange(len(result) + 1)
        match draw.randrange(4):
            case 0:
                result[at : at + 1] = bytes([draw.randrange(256)])
            case 1:
                del result[at : at + draw.choice((1, 1, 4))]
            case 2:
                result[at:at] = draw.choice(SNIPPETS)
            case _:
                start = draw.randrange(len(result) + 1)
                result[at:at] = result[start : start + draw.randrange(20)]
    return bytes(result)


def check_hostile(data: bytes, into: Any) -> bool:
    """Whether `data` is read; whatever is read writes to a fixpoint, whatever is not is refused properly."""
    try:
        value = decode(data, into)
    except Undecodable as refusal:
        assert refusal.code in CODES
        assert refusal.code != "not_canonical"
        assert refusal.path == "" or refusal.path.startswith("/")
        assert encode([refusal.path, refusal.message, str(refusal)])
        return False
    again = encode(value)
    assert decode_canonical(again, into) == value
    assert encode(decode(again, into)) == again
    try:
        assert decode_canonical(data, into) == value
        assert data == again
    except Undecodable as refusal:
        assert refusal.code == "not_canonical"
        assert data != again
    return True


def test_mutated_records_are_read_strictly_or_refused() -> None:
    draw = random.Random(5)
    seeds = [encode(some_record(draw)) for _ in range(200)]
    read = sum(check_hostile(mutated(draw, draw.choice(seeds)), Record) for _ in range(MUTATIONS // 2))
    read += sum(check_hostile(mutated(draw, draw.choice(seeds)), dict[str, Any]) for _ in range(MUTATIONS // 2))
    assert MUTATIONS // 100 < read < MUTATIONS // 2
