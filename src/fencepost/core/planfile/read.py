"""From the text of a plan file to plain values.

Rules: a syntax error comes alone, with its line, since nothing after it can be trusted. JSON carries the same
structure as TOML, and a key written twice is a syntax error in both. Floats, dates and nulls are let through
here and refused by the check, which can name their place and all other problems with them.
"""

from __future__ import annotations

import json
import json.decoder
import json.scanner
import re
import tomllib
from typing import Any, Literal

import msgspec

from fencepost.core.planfile import bounds
from fencepost.core.planfile.problems import PlanProblem, printable, quote

Syntax = Literal["toml", "json"]

_PART = r"""(?:[A-Za-z0-9_-]++|"(?:[^"\\\n]++|\\[^\n])*+"|'[^'\n]*+')"""
_DOT = r"[ \t]*+\.[ \t]*+"
_TOML_TOKEN = re.compile(
    r'''"""(?:[^"\\]++|\\.|"{1,2}(?!"))*+"{3,5}'''
    r"""|'''(?:[^']++|'{1,2}(?!'))*+'{3,5}"""
    r"|#[^\n]*+"
    rf"|(?P<deep>(?!\"\"\"|'''){_PART}(?:{_DOT}{_PART}){{{bounds.DEPTH_MAX},}}+)"
    rf"|(?!\"\"\"|'''){_PART}(?:{_DOT}{_PART})*+"
    r"""|(?P<unfinished>["'])""",
    re.DOTALL,
)
"""What may stand in a TOML text, as far as it takes to tell keys from strings and comments."""
_TOML_LINE = re.compile(r" \(at line (\d+), column (\d+)\)$")


class RawDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The parsed document before any check:

    strings, integers, booleans, lists and tables, and what is refused. `toml` is the text that it was read from,
    "" for any other, for the lines of its problems.
    """

    value: object
    toml: str = ""


class _DoubledKey(Exception):
    def __init__(self, key: str) -> None:
        super().__init__(key)
        self.key = key


def read_document(text: str | bytes, *, syntax: Syntax) -> RawDocument | PlanProblem:
    """Parse the text of a plan file, at most `bounds.DOCUMENT_BYTES_MAX` bytes of UTF-8.

    Never raises for any text: what cannot be parsed is a `syntax` problem with its line.
    """
    size_bytes = len(text) if isinstance(text, bytes) else len(text.encode("utf-8", "surrogatepass"))
    if size_bytes > bounds.DOCUMENT_BYTES_MAX:
        return PlanProblem(
            code="out_of_range",
            message=f"the plan file has {size_bytes} bytes, at most {bounds.DOCUMENT_BYTES_MAX} are read",
            at="",
            next="split the plan",
        )
    if isinstance(text, bytes):
        try:
            text = text.decode("utf-8")
        except UnicodeDecodeError as error:
            line = error.object.count(b"\n", 0, error.start) + 1
            return _syntax("the text is not UTF-8", line, "save the file as UTF-8")
    try:
        return _read_toml(text) if syntax == "toml" else _read_json(text)
    except RecursionError:
        return _syntax(
            "tables or lists are nested too deeply to be read", None, f"nest at most {bounds.DEPTH_MAX} deep"
        )


def _syntax(message: str, line: int | None, next_step: str) -> PlanProblem:
    return PlanProblem(code="syntax", message=printable(message), at="", line=line, next=next_step)


def _line_of_deep_key(text: str) -> int | None:
    """The line of the first key with more than `bounds.DEPTH_MAX` parts.

    The library keeps every beginning of such a key, which takes memory with the square of its length.
    """
    for token in _TOML_TOKEN.finditer(text):
        if token["deep"] is not None:
            return text.count("\n", 0, token.start()) + 1
        if token["unfinished"] is not None:
            return None  # the library says it better
    return None


def _read_toml(text: str) -> RawDocument | PlanProblem:
    line = _line_of_deep_key(text)
    if line is not None:
        most = bounds.DEPTH_MAX
        return _syntax(f"a key has more than {most} parts", line, f"nest at most {most} deep")
    try:
        return RawDocument(value=tomllib.loads(text), toml=text)
    except ValueError as error:
        words = str(error)
        place = _TOML_LINE.search(words)
        if place is not None:
            return _syntax(words[: place.start()], int(place.group(1)), "correct this line; the file is TOML 1.0")
        if words.endswith("(at end of document)"):
            line = text.count("\n") + (0 if text.endswith("\n") else 1)
            return _syntax("the file ends too early", max(line, 1), "complete the last table, list or string")
        return _syntax(f"not TOML: {words}", None, "the file is TOML 1.0; integers have at most 16 digits")


def _pairs(pairs: list[tuple[str, object]]) -> dict[str, object]:
    table = dict(pairs)
    if len(table) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise _DoubledKey(key)
            seen.add(key)
    return table


def _read_json(text: str) -> RawDocument | PlanProblem:
    try:
        return RawDocument(value=json.loads(text, object_pairs_hook=_pairs))
    except json.JSONDecodeError as error:
        return _syntax(error.msg, error.lineno, "correct this line; the file is JSON")
    except _DoubledKey as error:
        return _syntax(
            f"the key {quote(error.key)} is written twice in the object that begins here",
            _line_of_doubled_key(text),
            "write each key once",
        )
    except ValueError as error:
        return _syntax(f"not JSON: {error}", None, "integers have at most 16 digits")


def _line_of_doubled_key(text: str) -> int | None:
    """The line on which the object with the doubled key begins, by a second and slower reading."""
    line: int | None = None

    def read_object(text_and_start: tuple[str, int], *arguments: Any) -> Any:
        nonlocal line
        try:
            return plain_object(text_and_start, *arguments)
        except _DoubledKey:
            if line is None:
                line = text.count("\n", 0, text_and_start[1]) + 1
            raise

    # Only the scanner written in Python tells where an object begins; its parts are known to no type checker.
    scanners: Any = json.scanner
    decoder: Any = json.JSONDecoder(object_pairs_hook=_pairs)
    plain_object = decoder.parse_object
    decoder.parse_object = read_object
    decoder.scan_once = scanners.py_make_scanner(decoder)
    try:
        decoder.decode(text)
    except _DoubledKey:
        return line
    return None
