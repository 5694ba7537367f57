"""On which line of a TOML text a place of its document stands.

The library that reads TOML gives no positions, so the text is gone through once more, and only for a plan that has
problems: headers of tables, and the keys at the beginning of statements. What lies inside a value has the line of its
key. Nothing here is trusted: unless each place that was found is one of the document, no line is told at all.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import msgspec

from fencepost.core.planfile.problems import PlanProblem
from fencepost.core.planfile.read import RawDocument

Place = tuple[str | int, ...]

_PART = r"""(?:[A-Za-z0-9_-]++|"[^"\\\n]*+"|'[^'\n]*+')"""
_KEY = rf"{_PART}(?:[ \t]*+\.[ \t]*+{_PART})*+"
_HEADER = re.compile(rf"\[(?P<many>\[)?[ \t]*+(?P<key>{_KEY})[ \t]*+\](?(many)\])")
_ASSIGNED = re.compile(rf"(?P<key>{_KEY})[ \t]*+=")
_PARTS = re.compile(_PART)
_SPACE = re.compile(r"(?:[ \t\r\n]++|#[^\n]*+)*+")
_VALUE = re.compile(
    r'''"""(?:[^"\\]++|\\.|"{1,2}(?!"))*+"{3,5}'''
    r"""|'''(?:[^']++|'{1,2}(?!'))*+'{3,5}"""
    r"""|"(?:[^"\\\n]++|\\[^\n])*+"|'[^'\n]*+'"""
    r"|#[^\n]*+|[^\"'#\[\]{}\n]++|[\[\]{}\n]",
    re.DOTALL,
)


def lines_of(text: str, document: object) -> Mapping[str, int]:
    """Lines from 1 by JSON pointer; empty where the text is not understood. `document` is what it was read as."""
    lines: dict[Place, int] = {}
    counts: dict[Place, int] = {}
    table: Place = ()
    at, line, counted = 0, 1, 0
    while True:
        at = _end(_SPACE, text, at)
        line, counted = line + text.count("\n", counted, at), at
        if at == len(text):
            break
        header, assigned = _HEADER.match(text, at), _ASSIGNED.match(text, at)
        if header is not None:
            table = _table(_parts(header["key"]), counts, many=header["many"] is not None)
            _put(lines, table, line)
            at = header.end()
        elif assigned is not None:
            _put(lines, table + tuple(_parts(assigned["key"])), line)
            at = _past_value(text, assigned.end())
        else:
            return {}
    if not all(_is_there(place, document) for place in lines):
        return {}
    return {_pointer(place): found for place, found in lines.items()}


def line_at(lines: Mapping[str, int], at: str) -> int | None:
    """The line of a place, or of the key or table that it lies in; None for the document itself."""
    while at:
        if at in lines:
            return lines[at]
        at = at.rpartition("/")[0]
    return None


def with_lines(raw: RawDocument, problems: Sequence[PlanProblem]) -> tuple[PlanProblem, ...]:
    """The problems of a document, each with its line where that is known."""
    if not problems or not raw.toml:
        return tuple(problems)
    lines = lines_of(raw.toml, raw.value)
    return tuple(
        problem if problem.line is not None else msgspec.structs.replace(problem, line=line_at(lines, problem.at))
        for problem in problems
    )


def _end(rule: re.Pattern[str], text: str, at: int) -> int:
    found = rule.match(text, at)
    return at if found is None else found.end()


def _parts(key: str) -> list[str]:
    return [part[1:-1] if part[0] in "\"'" else part for part in _PARTS.findall(key)]


def _table(parts: list[str], counts: dict[Place, int], *, many: bool) -> Place:
    """The place that a header opens. A list of tables on the way means its last one."""
    place: Place = ()
    for part in parts[:-1]:
        place += (part,)
        if place in counts:
            place += (counts[place] - 1,)
    place += (parts[-1],)
    if many:
        counts[place] = counts.get(place, 0) + 1
        return (*place, counts[place] - 1)
    return place


def _put(lines: dict[Place, int], place: Place, line: int) -> None:
    for length in range(1, len(place) + 1):
        lines.setdefault(place[:length], line)


def _past_value(text: str, at: int) -> int:
    """The end of the statement whose value begins here: a line's end outside of every bracket and string."""
    depth = 0
    while at < len(text):
        found = _VALUE.match(text, at)
        if found is None:
            return at + 1
        token = found.group()
        depth += (token in ("[", "{")) - (token in ("]", "}"))
        at = found.end()
        if token == "\n" and depth == 0:
            break
    return at


def _is_there(place: Place, document: object) -> bool:
    for step in place:
        if isinstance(step, int):
            if not isinstance(document, list) or step >= len(document):
                return False
            document = document[step]
        else:
            if not isinstance(document, dict) or step not in document:
                return False
            document = document[step]
    return True


def _pointer(place: Place) -> str:
    return "".join(f"/{str(step).replace('~', '~0').replace('/', '~1')}" for step in place)
