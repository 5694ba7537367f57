"""Every setting there is: one registry, from which files, environment, `config view` and docs/CONFIGURATION.md come.

A setting is read somewhere in the program, or it is not here: what is accepted is never ignored. A value that cannot
be used is a `Problem` with the code that plan files have for the same fault, its place, and what to write instead.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal

import msgspec

from fencepost.core.instant import parse_duration
from fencepost.core.limits import FIRST_VALUES
from fencepost.core.planfile.values import NAME_RULE
from fencepost.ports.errors import FencepostError

SCOPE_FIRST: Final = "default"
SCOPE_NAME: Final = NAME_RULE
PREFIX: Final = "FENCEPOST_"
JOBS_MAX: Final = FIRST_VALUES.renewal_attempts_max
TEXT_CHARACTERS_MAX: Final = 4_096
DIGITS_MAX: Final = 18
WORD_SHOWN_MAX: Final = 80
STORE_KINDS: Final = ("sqlite", "postgresql")

Kind = Literal["name", "number", "duration", "path", "url"]


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """One key. `first` says its first value in words, `example` is a TOML value, `flag_of` who takes the flag."""

    key: str
    kind: Kind
    about: str
    first: str
    example: str
    flag_of: str
    least: int = 0  # of a number, inclusive
    most: int = 0  # of a number, inclusive

    @property
    def variable(self) -> str:
        return PREFIX + self.key.upper()

    @property
    def flag(self) -> str:
        """The option of the command line, empty where there is none."""
        return "--" + self.key.replace("_", "-") if self.flag_of else ""


SETTINGS: Final = (
    Setting(
        key="home",
        kind="path",
        about="The home: the folder with store, keys, artifacts and workspaces. In a file it is taken from that "
        "file's folder, and may begin with ~/.",
        first="the nearest `.fencepost` upwards, not above the git root",
        example='"/srv/fencepost/.fencepost"',
        flag_of="every command",
    ),
    Setting(
        key="store",
        kind="url",
        about="The store. This version has no other than the home's own, so that it only says which one is meant: "
        "another one is refused.",
        first="the home's own `store.db`",
        example='"sqlite:.fencepost/store.db"',
        flag_of="every command",
    ),
    Setting(
        key="scope",
        kind="name",
        about="The scope within the store: plans, budgets and time of their own.",
        first=f"`{SCOPE_FIRST}`",
        example='"team"',
        flag_of="every command",
    ),
    Setting(
        key="jobs",
        kind="number",
        about="How many attempts one worker runs at once.",
        first="the processors that this process may use",
        example="4",
        flag_of="`run`, `worker start`",
        least=1,
        most=JOBS_MAX,
    ),
    Setting(
        key="timeout",
        kind="duration",
        about="How long `run` waits for a plan to end; then it drains its own attempts and exits with 6.",
        first="no limit",
        example='"2h"',
        flag_of="`run`",
    ),
    Setting(
        key="keep_failed",
        kind="duration",
        about="How long after the end of its plan the folder of an order's last failed attempt stays, to be looked at.",
        first="`7d`",
        example='"2d"',
        flag_of="",
    ),
)
"""Every setting, in the order in which it is shown."""

BY_KEY: Final[Mapping[str, Setting]] = {setting.key: setting for setting in SETTINGS}

OTHER_VARIABLES: Final = frozenset(
    {
        # What an attempt's program is told: never a setting, so that no attempt's own value can be taken for one.
        *("FENCEPOST_WORK_ORDER", "FENCEPOST_ATTEMPT", "FENCEPOST_FENCE", "FENCEPOST_WORKSPACE", "FENCEPOST_REPO"),
        *("FENCEPOST_SOCKET", "FENCEPOST_TOKEN", "FENCEPOST_PARAMS", "FENCEPOST_CHECKPOINT"),
        "FENCEPOST_DEBUG",  # shows where an unexpected failure happened
        # The project's own tests.
        *("FENCEPOST_TEST_PROFILE", "FENCEPOST_STORIES", "FENCEPOST_WRITE_DOWN"),
    }
)
"""Variables with our prefix that are no settings."""


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """Why a value cannot be used. `file` is a path, a variable or an option; `line` counts from 1, None if unknown."""

    code: str
    message: str
    next: str
    file: str
    at: str = ""
    name: str = ""
    line: int | None = None

    def where(self) -> dict[str, Any]:
        return {"file": self.file, "at": self.at, "name": self.name or None, "line": self.line}

    def document(self) -> dict[str, Any]:
        return {"code": self.code, "message": self.message, "where": self.where(), "next": self.next}


class ConfigError(FencepostError):
    """A configuration cannot be used. The caller's fault. It stands for the first problem; `others` has the rest."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        first = problems[0]
        super().__init__(first.message, next_step=first.next)
        self.code = first.code
        self.where = first.where()
        self.problems = problems
        self.others = [problem.document() for problem in problems[1:]]


class Refused(Exception):
    """A value cannot be used: the code, what is wrong with it in words, and what to write instead."""

    def __init__(self, code: str, wrong: str, following: str) -> None:
        super().__init__(wrong)
        self.code = code
        self.wrong = wrong
        self.following = following


def shown(value: object) -> str:
    """A foreign value in a message: one line, and not a long one."""
    text = repr(value)
    return text if len(text) <= WORD_SHOWN_MAX else text[: WORD_SHOWN_MAX - 3] + "..."


def read_value(setting: Setting, value: object) -> Any:
    """A value of a file or an option, as the program uses it: durations are microseconds. Raises Refused."""
    if setting.kind == "number":
        if type(value) is not int:
            raise Refused("wrong_type", f"is {shown(value)}, which is no whole number", _write(setting))
        return _in_range(setting, value)
    if type(value) is not str:
        raise Refused("wrong_type", f"is {shown(value)}, which is no text in quotes", _write(setting))
    return _read_text(setting, value)


def read_text(setting: Setting, text: str) -> Any:
    """A value of a variable, which is always text. Raises Refused."""
    if setting.kind != "number":
        return _read_text(setting, text)
    if not re.fullmatch(rf"-?[0-9]{{1,{DIGITS_MAX}}}", text):
        raise Refused("wrong_type", f"is {shown(text)}, which is no whole number", _write(setting))
    return _in_range(setting, int(text))


def _in_range(setting: Setting, value: int) -> int:
    if not setting.least <= value <= setting.most:
        wrong = f"is {value}, which is not between {setting.least} and {setting.most}"
        raise Refused("out_of_range", wrong, f"write a number from {setting.least} to {setting.most}")
    return value


def _read_text(setting: Setting, text: str) -> Any:
    if not text or len(text) > TEXT_CHARACTERS_MAX or "\0" in text:
        wrong = f"is {shown(text)}, which is empty, too long or no text"
        raise Refused("out_of_range", wrong, _write(setting))
    if setting.kind == "name" and not SCOPE_NAME.fullmatch(text):
        raise Refused("bad_name", f"is {shown(text)}, which is no name", "use [a-z][a-z0-9-]{0,62}")
    if setting.kind == "duration":
        try:
            return parse_duration(text)
        except ValueError as error:
            raise Refused("bad_duration", f"is {shown(text)}, which is no duration", str(error)) from None
    if setting.kind == "url" and text.partition(":")[0] not in STORE_KINDS:
        following = "write sqlite:PATH, or take it out: the home's own store is the first value"
        raise Refused("unsupported_feature", f"is {shown(text)}, which is no store that can be used", following)
    return text


def _write(setting: Setting) -> str:
    return f"write {setting.key} = {setting.example}"


def step_of(setting: Setting, refused: Refused, *, variable: bool) -> str:
    """What to write instead, as it is written in a variable or behind an option."""
    bare = setting.example.strip('"')
    said = f"write {setting.variable}={bare}" if variable else f"write {setting.flag} {bare}"
    return refused.following.replace(_write(setting), said)


def unknown_key(word: str, known: Iterable[str]) -> str:
    """What to write instead of a word that is no key."""
    names = sorted(known)
    near = difflib.get_close_matches(word[:WORD_SHOWN_MAX], names, n=1)
    return f"did you mean {near[0]}?" if near else f"use one of {', '.join(names)}"


def unknown_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Variables that look like settings and are none -> what may have been meant, empty where nothing is like it."""
    known = {setting.variable.removeprefix(PREFIX): setting.variable for setting in SETTINGS}
    found = {}
    for name in sorted(environment):
        if name.startswith(PREFIX) and name not in OTHER_VARIABLES and name not in known.values():
            near = difflib.get_close_matches(name.removeprefix(PREFIX)[:WORD_SHOWN_MAX], known, n=1)
            found[name] = known[near[0]] if near else ""
    return found
