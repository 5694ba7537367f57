"""Strict JSON: the one reading of the bytes that arrive from outside.

Two readers that disagree about a document are a hole: one counts the first of two equal keys, the other
the last; one rounds 2^53 + 1, the other keeps it; one store refuses U+0000, the other swallows it. So there
is a *domain*, smaller than JSON, inside which every reader agrees, and this module refuses all else:

* null, true, false, integers within +-(2^53 - 1), strings, arrays and objects; no float in any spelling;
* strings and keys are Unicode scalar values without U+0000, arriving as well-formed UTF-8;
* a key stands once in its object; nothing stands before or after the document, white space included;
* at most `DEPTH_MAX` containers inside each other, at most `BYTES_MAX` bytes.

Every refusal has a code of its own and the JSON pointer of the place, and is bounded and storable whatever
the input was, so that recording a refusal cannot fail. The scanner is written for that answer, not for
speed: `canonical` reaches it only when its fast path could not prove a document good. Types are not known
here; `canonical` checks them afterwards.
"""

from __future__ import annotations

import json
import re
from typing import Final, Literal, NoReturn, TypeAlias, get_args

INT_MAX: Final = 2**53 - 1
"""Largest integer, and negated the smallest, that every JSON reader keeps exactly."""
DEPTH_MAX: Final = 64
"""Containers inside each other, inclusive: a scalar has depth 0, `[]` has depth 1."""
BYTES_MAX: Final = 16 * 2**20
"""Bytes of one document, inclusive."""
PATH_BYTES_MAX: Final = 1_024
MESSAGE_BYTES_MAX: Final = 512

Code: TypeAlias = Literal[
    "syntax",
    "unknown_field",
    "missing_field",
    "wrong_type",
    "duplicate_key",
    "float",
    "not_a_number",
    "integer_out_of_range",
    "bool_for_integer",
    "nul_character",
    "lone_surrogate",
    "trailing_bytes",
    "too_deep",
    "too_large",
    "invalid_utf8",
    "not_canonical",
    "unknown_tag",
    "bad_value",
]
CODES: Final[frozenset[str]] = frozenset(get_args(Code))

_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
_SURROGATE = re.compile("[\ud800-\udfff]")
_UNDECODED = re.compile("[\udc80-\udcff]")
_WHITE_SPACE = re.compile(r"[ \t\n\r]*")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_NOT_A_NUMBER = re.compile(r"NaN|-?Infinity")
_LITERAL = re.compile(r"null|true|false")
_LITERALS: Final = {"null": None, "true": True, "false": False}
_INTEGER_CHARACTERS_MAX: Final = 17
_TRUNCATED: Final = "\u2026[truncated]"
_STRINGS = json.JSONDecoder()


class Undecodable(ValueError):
    """A document, or a value to be written as one, that lies outside the domain or its type.

    `code` is one of `CODES`. `path` is the JSON pointer (RFC 6901) of the offending place: of the field
    itself where a field is unknown, missing or doubled; "" is the whole document. `message` says what is
    wrong there. Path and message are bounded (`PATH_BYTES_MAX`, `MESSAGE_BYTES_MAX`) and storable.
    """

    def __init__(self, code: Code, message: str, *, trail: tuple[str | int, ...] = ()) -> None:
        self.code: Code = code
        self.message: str = sanitize(message, MESSAGE_BYTES_MAX)
        self._innermost_first: list[str | int] = list(reversed(trail))
        super().__init__(code, message)

    def inside(self, step: str | int) -> None:
        """Prefix the path by one step, as the refusal passes outwards through a container."""
        self._innermost_first.append(step)

    @property
    def path(self) -> str:
        return sanitize(pointer(tuple(reversed(self._innermost_first))), PATH_BYTES_MAX)

    def __str__(self) -> str:
        return f"{self.code} at {self.path or 'the document'}: {self.message}"


def pointer(trail: tuple[str | int, ...]) -> str:
    """The JSON pointer of a trail of keys and indices, outermost first."""
    return "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in trail)


def sanitize(text: str, bytes_max: int) -> str:
    """Make any string storable: U+FFFD for U+0000 and for surrogates, at most `bytes_max` bytes of UTF-8.

    What is cut is cut between characters and marked by an ending, where the bound has room for the marker.
    Total: it raises for no string and no bound; a bound below 1 gives "".
    """
    if bytes_max < 1:
        return ""
    # A character takes at least one byte, so what lies past the bound need not be looked at.
    encoded = _UNSTORABLE.sub("\ufffd", text[: bytes_max + 1]).encode()
    if len(encoded) <= bytes_max:
        return encoded.decode()
    marker = _TRUNCATED if len(_TRUNCATED.encode()) < bytes_max else ""
    return encoded[: bytes_max - len(marker.encode())].decode(errors="ignore") + marker


def refuse_text(text: str, trail: tuple[str | int, ...] = ()) -> None:
    """Raise `Undecodable` unless `text` is made of Unicode scalar values without U+0000."""
    found = None if text.isascii() and "\0" not in text else _UNSTORABLE.search(text)
    if found is None:
        return
    if found.group() == "\0":
        raise Undecodable("nul_character", f"U+0000 at character {found.start()}", trail=trail)
    raise Undecodable(
        "lone_surrogate",
        f"U+{ord(found.group()):04X} without its pair at character {found.start()}",
        trail=trail,
    )


def parse(data: bytes, *, bytes_max: int = BYTES_MAX, depth_max: int = DEPTH_MAX) -> object:
    """Read one document of the domain into None, bool, int, str, list and dict.

    `bytes_max` and `depth_max` are inclusive and may only tighten the bounds of the domain. Raises
    `Undecodable` with the first violation in document order, `ValueError` for bounds beyond the domain's.
    """
    if not (0 < bytes_max <= BYTES_MAX and 0 <= depth_max <= DEPTH_MAX):
        raise ValueError(f"bounds must lie within {BYTES_MAX} bytes and depth {DEPTH_MAX}")
    if len(data) > bytes_max:
        raise Undecodable("too_large", f"{len(data)} bytes, at most {bytes_max} are read")
    # Bytes that are no UTF-8 travel as lone surrogates, so that the scanner meets them at their place.
    return _Scanner(data.decode("utf-8", errors="surrogateescape"), depth_max).document()


class _Scanner:
    """Recursive descent over the text; its recursion is bounded by `depth_max`."""

    __slots__ = ("_at", "_depth_max", "_text")

    def __init__(self, text: str, depth_max: int) -> None:
        self._text = text
        self._depth_max = depth_max
        self._at = 0

    def document(self) -> object:
        if self._text[:1] in (" ", "\t", "\n", "\r"):
            raise Undecodable("trailing_bytes", "white space before the document")
        value = self._value(1)
        if self._at != len(self._text):
            self._refuse_undecoded()
            raise Undecodable("trailing_bytes", f"the document ends at character {self._at}, the bytes do not")
        return value

    def _value(self, depth: int) -> object:
        first = self._text[self._at : self._at + 1]
        if first == '"':
            return self._string()
        if first == "{":
            return self._object(depth)
        if first == "[":
            return self._array(depth)
        literal = _LITERAL.match(self._text, self._at)
        if literal is not None:
            self._at = literal.end()
            return _LITERALS[literal.group()]
        if _NOT_A_NUMBER.match(self._text, self._at):
            raise Undecodable("not_a_number", "NaN and Infinity are no JSON")
        return self._integer()

    def _integer(self) -> int:
        number = _NUMBER.match(self._text, self._at)
        if number is None or self._text[number.end() : number.end() + 1].isdigit():
            self._refuse_syntax("a value")
        if number[1] is not None or number[2] is not None:
            raise Undecodable("float", f"{number.group()[:40]} is no integer; write a scaled integer or a string")
        # The length is looked at first: to convert a million digits is work of a stranger's choosing.
        value = int(number.group()) if len(number.group()) <= _INTEGER_CHARACTERS_MAX else INT_MAX + 1
        if not -INT_MAX <= value <= INT_MAX:
            raise Undecodable("integer_out_of_range", f"{number.group()[:40]} is outside +-(2^53 - 1)")
        self._at = number.end()
        return value

    def _string(self, *, is_key: bool = False) -> str:
        start = self._at
        try:
            value, self._at = _STRINGS.raw_decode(self._text, start)
        except json.JSONDecodeError as error:
            self._at = error.pos
            if self._text[error.pos : error.pos + 1] == "\0":
                raise Undecodable("nul_character", "a raw U+0000 in a string") from error
            self._refuse_syntax(f"a well-formed string ({error.msg})")
        if not isinstance(value, str):
            raise TypeError("a quotation mark began something other than a string")
        trail = (value,) if is_key else ()
        if _UNDECODED.search(value) and _SURROGATE.search(self._text, start, self._at):
            raise Undecodable("invalid_utf8", "bytes that are not UTF-8 in a string", trail=trail)
        refuse_text(value, trail)
        return value

    def _array(self, depth: int) -> list[object]:
        self._enter(depth)
        values: list[object] = []
        if self._closes("]"):
            return values
        while True:
            try:
                values.append(self._value(depth + 1))
            except Undecodable as refusal:
                refusal.inside(len(values))
                raise
            if self._closes("]"):
                return values
            self._expect(",")

    def _object(self, depth: int) -> dict[str, object]:
        self._enter(depth)
        fields: dict[str, object] = {}
        if self._closes("}"):
            return fields
        while True:
            if self._text[self._at : self._at + 1] != '"':
                self._refuse_syntax("a key in quotation marks")
            key = self._string(is_key=True)
            if key in fields:
                raise Undecodable("duplicate_key", "the key stands twice in its object", trail=(key,))
            try:
                self._skip_white_space()
                self._expect(":")
                fields[key] = self._value(depth + 1)
            except Undecodable as refusal:
                refusal.inside(key)
                raise
            if self._closes("}"):
                return fields
            self._expect(",")

    def _enter(self, depth: int) -> None:
        if depth > self._depth_max:
            raise Undecodable("too_deep", f"more than {self._depth_max} containers inside each other")
        self._at += 1

    def _closes(self, bracket: str) -> bool:
        self._skip_white_space()
        if self._text[self._at : self._at + 1] != bracket:
            return False
        self._at += 1
        return True

    def _expect(self, character: str) -> None:
        if self._text[self._at : self._at + 1] != character:
            self._refuse_syntax(f"{character!r}")
        self._at += 1
        self._skip_white_space()

    def _skip_white_space(self) -> None:
        space = _WHITE_SPACE.match(self._text, self._at)
        if space is not None:
            self._at = space.end()

    def _refuse_undecoded(self) -> None:
        if _UNDECODED.match(self._text, self._at):
            raise Undecodable("invalid_utf8", f"bytes that are not UTF-8 at character {self._at}")

    def _refuse_syntax(self, expected: str) -> NoReturn:
        self._refuse_undecoded()
        found = ascii(self._text[self._at]) if self._at < len(self._text) else "the end"
        raise Undecodable("syntax", f"expected {expected} at character {self._at}, found {found}")
