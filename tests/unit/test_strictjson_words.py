"""What the strict reader says of each document that it refuses, and its bounds to the character (case 18, case 40)."""

from __future__ import annotations

import pytest

from fencepost.core.strictjson import BYTES_MAX, DEPTH_MAX, INT_MAX, Undecodable, parse, pointer, sanitize

REFUSED: list[tuple[bytes, str, str]] = [
    (b"", "", "expected a value at character 0, found the end"),
    (b"x", "", "expected a value at character 0, found 'x'"),
    (b"[1,\xc3\xa4]", "/1", "expected a value at character 3, found '\\xe4'"),
    (b"[1 2]", "", "expected ',' at character 3, found '2'"),
    (b'{"a" 1}', "/a", "expected ':' at character 5, found '1'"),
    (b"{1:2}", "", "expected a key in quotation marks at character 1, found '1'"),
    (b'"a', "", "expected a well-formed string (Unterminated string starting at) at character 0, found '\"'"),
    (b'["\\x"]', "/0", "expected a well-formed string (Invalid \\escape) at character 2, found '\\\\'"),
    (b"12a", "", "the document ends at character 2, the bytes do not"),
    (b"\n1", "", "white space before the document"),
    (b"\r1", "", "white space before the document"),
    (b"\t1", "", "white space before the document"),
    (b" 1", "", "white space before the document"),
    (b"1 ", "", "the document ends at character 1, the bytes do not"),
    (b"1.5", "", "1.5 is no integer; write a scaled integer or a string"),
    (b"1." + b"5" * 50, "", f"1.{'5' * 38} is no integer; write a scaled integer or a string"),
    (b"9" * 50, "", f"{'9' * 40} is outside +-(2^53 - 1)"),
    (b"[9007199254740992]", "/0", "9007199254740992 is outside +-(2^53 - 1)"),
    (b"[-9007199254740992]", "/0", "-9007199254740992 is outside +-(2^53 - 1)"),
    (b"[NaN]", "/0", "NaN and Infinity are no JSON"),
    (b'["a\x00"]', "/0", "a raw U+0000 in a string"),
    (b'["ab\\u0000"]', "/0", "U+0000 at character 2"),
    (b'["a\\ud800b"]', "/0", "U+D800 without its pair at character 1"),
    (b'["a\xff"]', "/0", "bytes that are not UTF-8 in a string"),
    (b"[1]\xff", "", "bytes that are not UTF-8 at character 3"),
    (b'{"a":1,"a":2}', "/a", "the key stands twice in its object"),
]


@pytest.mark.parametrize(("data", "path", "message"), REFUSED, ids=[str(place) for place in range(len(REFUSED))])
def test_case_18_a_refusal_says_what_was_expected_and_where(data: bytes, path: str, message: str) -> None:
    with pytest.raises(Undecodable) as caught:
        parse(data)
    assert (caught.value.path, caught.value.message) == (path, message)
    assert str(caught.value) == f"{caught.value.code} at {path or 'the document'}: {message}"


@pytest.mark.parametrize("number", [0, 1, -1, INT_MAX, -INT_MAX])
def test_case_18_integers_are_read_to_the_end_of_the_domain(number: int) -> None:
    assert parse(str(number).encode()) == number


def test_case_18_a_pair_of_escapes_is_one_character_and_bad_bytes_behind_a_string_are_not_in_it() -> None:
    assert parse(b'["\\ud83d\\ude00"]') == ["\U0001f600"]
    with pytest.raises(Undecodable) as caught:
        parse(b'["\\udcff",\xff]')
    assert (caught.value.code, caught.value.path) == ("lone_surrogate", "/0")


def test_case_40_bounds_may_be_tightened_to_one_byte_and_no_depth() -> None:
    assert parse(b"1", bytes_max=1, depth_max=0) == 1
    assert parse(b"[]", bytes_max=BYTES_MAX, depth_max=DEPTH_MAX) == []
    for bounds in ({"bytes_max": 0}, {"bytes_max": BYTES_MAX + 1}, {"depth_max": -1}, {"depth_max": DEPTH_MAX + 1}):
        with pytest.raises(ValueError, match="bounds must lie within"):
            parse(b"1", **bounds)
    with pytest.raises(Undecodable, match="2 bytes, at most 1 are read"):
        parse(b"12", bytes_max=1)
    with pytest.raises(Undecodable, match="more than 0 containers"):
        parse(b"[]", depth_max=0)


MARK = "\u2026[truncated]"
ROOM = len(MARK.encode())


@pytest.mark.parametrize(
    ("text", "bytes_max", "kept"),
    [
        ("abc", 0, ""),
        ("abc", -1, ""),
        ("abc", 1, "a"),
        ("a", 1, "a"),
        ("abc", 3, "abc"),
        ("abc", 2, "ab"),
        ("\0", 3, "\ufffd"),
        ("\0", 2, ""),
        ("\ud800x", 4, "\ufffdx"),
        ("ä" * 3, 6, "äää"),
        ("ä" * 3, 5, "ää"),
        ("x" * 99, ROOM, "x" * ROOM),
        ("x" * 99, ROOM + 1, "x" + MARK),
        ("x" * 99, ROOM + 9, "x" * 9 + MARK),
        ("x" * (ROOM + 9), ROOM + 9, "x" * (ROOM + 9)),
        ("ä" * 99, ROOM + 3, "ä" + MARK),
    ],
)
def test_case_40_text_is_cut_between_characters_and_marked_where_there_is_room(
    text: str, bytes_max: int, kept: str
) -> None:
    assert sanitize(text, bytes_max) == kept


def test_a_pointer_escapes_what_it_is_made_of() -> None:
    assert pointer(("a/b", 0, "~1")) == "/a~1b/0/~01"
