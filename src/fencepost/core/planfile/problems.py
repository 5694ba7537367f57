"""What is wrong with a plan file, where, and what to write instead.

A problem is a value. All problems of a document are gathered in one `Findings`, in the order in which the
checks meet them; the same code at the same place is kept once, the first sentence wins. Places are JSON
pointers, built only when something is refused there: a `Spot` is a link to its parent and a key.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable

import msgspec

from fencepost.core.planfile import bounds


class PlanProblem(msgspec.Struct, frozen=True, kw_only=True):
    """One refusal.

    `at` is a JSON pointer into the document ("" is the document itself); a missing key is named as if it were
    there. `name` is the name of the work order concerned, `line` (from 1) is the one of the place, or of the
    key or table that it lies in, None where that is not known, and `next` says what to write instead.
    """

    code: str
    message: str
    at: str
    name: str | None = None
    line: int | None = None
    next: str


class Findings:
    """Gathers problems, at most `bounds.PROBLEMS_MAX`; `left_off` counts those past it."""

    def __init__(self) -> None:
        self.refusals = 0
        self.left_off = 0
        self.suggestions_left = bounds.SUGGESTIONS_MAX
        self._problems: dict[tuple[str, str], PlanProblem] = {}

    def add(self, problem: PlanProblem) -> None:
        self.refusals += 1
        key = (problem.code, problem.at)
        if key in self._problems:
            return
        if len(self._problems) >= bounds.PROBLEMS_MAX:
            self.left_off += 1
            return
        self._problems[key] = problem

    def problems(self) -> tuple[PlanProblem, ...]:
        return tuple(self._problems.values())


class Spot:
    """A place in the document, and where refusals about it go."""

    __slots__ = ("_findings", "_key", "_parent", "name")

    def __init__(
        self, findings: Findings, *, parent: Spot | None = None, key: str | int = "", name: str | None = None
    ) -> None:
        self._findings = findings
        self._parent = parent
        self._key = key
        self.name = name

    def child(self, key: str | int) -> Spot:
        return Spot(self._findings, parent=self, key=key, name=self.name)

    def at(self) -> str:
        """The JSON pointer (RFC 6901) of this place."""
        keys: list[str] = []
        spot = self
        while spot._parent is not None:
            keys.append(str(spot._key).replace("~", "~0").replace("/", "~1"))
            spot = spot._parent
        keys.reverse()
        return printable("".join(f"/{key}" for key in keys))

    def refusals(self) -> int:
        """How often anything was refused so far, anywhere in the document."""
        return self._findings.refusals

    def nearest(self, word: str, known: Iterable[str]) -> str | None:
        """The known word that is most like the given one; to find it is dear, so that a document gets only so many."""
        if not self._findings.suggestions_left:
            return None
        self._findings.suggestions_left -= 1
        return nearest(word, known)

    def refuse(self, code: str, message: str, next_step: str) -> None:
        self._findings.add(PlanProblem(code=code, message=message, at=self.at(), name=self.name, next=next_step))


def printable(text: str) -> str:
    """The text with lone surrogates and NUL written as escapes, so that it can be stored and shown."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8").replace("\0", "\\u0000")


def quote(value: object) -> str:
    """A value of the document for use in a message: one line, bounded, printable."""
    if isinstance(value, str):
        shown = json.dumps(printable(value[: bounds.QUOTE_CHARACTERS_MAX]), ensure_ascii=False)
        return shown if len(value) <= bounds.QUOTE_CHARACTERS_MAX else f"{shown}..."
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value) if abs(value) <= bounds.INTEGER_MAX else "an integer beyond 2^53 - 1"
    return kind_of(value)


def kind_of(value: object) -> str:
    """What a value is, in the words of the plan file."""
    if isinstance(value, str):
        return "a string"
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, int):
        return "an integer"
    if isinstance(value, float):
        return "a float"
    if isinstance(value, dict):
        return "a table"
    if isinstance(value, list):
        return "a list"
    if value is None:
        return "null"
    return "a date or time"


def one_of(choices: Iterable[str]) -> str:
    return "write one of " + ", ".join(f'"{choice}"' for choice in choices)


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word that is most like the given one, if any is like it."""
    found = difflib.get_close_matches(word[: bounds.NAME_CHARACTERS_MAX], list(known), n=1, cutoff=0.6)
    return found[0] if found else None
