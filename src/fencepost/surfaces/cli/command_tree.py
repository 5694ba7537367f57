"""The commands as data: words, arguments, options and what is said of them, read from the commands themselves.

Help, completion and docs/COMMANDS.md are made from this, so that none of them can name what is not there.
"""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator
from typing import Any, Final, Literal, NamedTuple, get_args, get_origin

from fencepost.surfaces.cli.frame import FLAGS, NOUNS, VALUED

SHARED: Final = (*VALUED, *FLAGS)
"""Options that every command takes."""

_WORDS: Final = {
    "--after": "CURSOR",
    "--anchor": "SEQ:DIGEST",
    "--command-key": "KEY",
    "--home": "DIR",
    "--money": "CURRENCY:AMOUNT",
    "--unknown": "DIMENSION",
    "--no-limit": "DIMENSION",
    "--plan": "PLAN",
    "--repo": "DIR",
    "--scope": "NAME",
    "--state": "STATE",
    "--store": "URL",
    "--svg": "FILE",
    "--time": "DURATION",
    "--timeout": "DURATION",
    "--to": "DIR",
}
"""What stands for the value of an option whose type does not say it."""

_WORDS_OF: Final = {
    ("attempt yield", "--after"): "DURATION",
    ("attempt output", "--to"): "FILE",
    ("attempt resume", "--to"): "FILE",
}
"""The same, where a command means something else by it."""


class Parameter(NamedTuple):
    """An argument or an option. `value` stands for its value, empty for a flag; `choices` are all values there are."""

    name: str
    value: str
    about: str
    required: bool
    first: str
    choices: tuple[str, ...]
    repeated: bool


class Command(NamedTuple):
    """One command: its words after `fencepost`, one sentence, what else there is to say, and what it takes."""

    words: tuple[str, ...]
    summary: str
    more: str
    arguments: tuple[Parameter, ...]
    options: tuple[Parameter, ...]
    shared: tuple[Parameter, ...]

    @property
    def name(self) -> str:
        return " ".join(self.words)

    def usage(self) -> str:
        words = ["fencepost", *self.words]
        words += [one.name if one.required else f"[{one.name}]" for one in self.arguments]
        words += [f"{one.name} {one.value}" for one in self.options if one.required]
        return " ".join(words) + " [options]"


class Noun(NamedTuple):
    """A first word: a command itself, or one with verbs."""

    name: str
    about: str
    commands: tuple[Command, ...]

    @property
    def has_verbs(self) -> bool:
        return bool(self.commands) and len(self.commands[0].words) > 1


def read_noun(name: str) -> Noun:
    """A noun of `frame.NOUNS` with its commands."""
    app: Any = importlib.import_module(f"fencepost.surfaces.cli.{name}").app
    if app.default_command is not None:
        return Noun(name, app.help, (_command((name,), app, app.help),))
    verbs = sorted(word for word in app if not word.startswith("-"))
    commands = tuple(_command((name, verb), app[verb], _docstring(app[verb])) for verb in verbs)
    return Noun(name, app.help, commands)


def read_all() -> Iterator[Noun]:
    for name in NOUNS:
        yield read_noun(name)


def first_sentence(text: str) -> str:
    return re.split(r"(?<=\.)\s", text, maxsplit=1)[0]


def _docstring(app: Any) -> str:
    return inspect.cleandoc(app.default_command.__doc__ or "")


def _command(words: tuple[str, ...], app: Any, text: str) -> Command:
    summary, _, more = inspect.cleandoc(text).partition("\n\n")
    arguments: list[Parameter] = []
    options: list[Parameter] = []
    shared: list[Parameter] = []
    for one in app.assemble_argument_collection():
        if not one.show:
            continue
        made = _parameter(" ".join(words), one)
        if one.index is not None:
            arguments.append(made)
        else:
            (shared if made.name in SHARED else options).append(made)
    return Command(words, " ".join(summary.split()), more, tuple(arguments), tuple(options), tuple(shared))


def _parameter(command: str, one: Any) -> Parameter:
    name = next((known for known in one.names if known.startswith("--")), one.names[0])
    flag = one.token_count()[0] == 0
    choices = _choices(one.hint)
    number = one.hint is int or int in get_args(one.hint)
    word = _WORDS_OF.get((command, name)) or _WORDS.get(name, "TEXT")
    value = "" if flag else "|".join(choices) if choices else "N" if number else word
    first = one.field_info.default
    told = "" if first in (None, "", False) or first is inspect.Parameter.empty or not isinstance(first, int) else first
    return Parameter(
        name=name,
        value=value,
        about=one.parameter.help or "",
        required=bool(one.required),
        first=str(told),
        choices=choices,
        repeated=one.token_count()[1],
    )


def _choices(hint: Any) -> tuple[str, ...]:
    if get_origin(hint) is Literal:
        return tuple(str(choice) for choice in get_args(hint))
    return tuple(choice for inner in get_args(hint) for choice in _choices(inner))
