"""`--help` of every command, and `fencepost help TOPIC`: commands, topics, reason codes, faults that doctor finds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from fencepost.config import SETTINGS
from fencepost.core.reasons import EXIT_MEANINGS, REASONS, WAITS_AND_ENDS
from fencepost.surfaces.cli.command_pages import PAGES
from fencepost.surfaces.cli.command_tree import Command, Noun, Parameter, first_sentence, read_noun
from fencepost.surfaces.cli.doctor.findings import FAULTS
from fencepost.surfaces.cli.frame import NOUNS
from fencepost.surfaces.cli.help_plan import CLOSING, HOLDS, OPENING, TABLES
from fencepost.surfaces.cli.words import like, wrapped

NAME_COLUMNS_MAX: Final = 26  # of a column of names; a longer one stands on a line of its own


def command_help(noun: str, verb: str) -> str | None:
    """The help of a command, or of a noun with its verbs; None for a verb that is none."""
    found = read_noun(noun)
    if not found.has_verbs:
        return _command_text(found.commands[0])
    if not verb:
        return _noun_text(found)
    chosen = next((command for command in found.commands if command.words[1] == verb), None)
    return None if chosen is None else _command_text(chosen)


def topic_help(words: Sequence[str]) -> str:
    """What there is to say of a topic. Raises LookupError, whose text says what may have been meant."""
    name = " ".join(words)
    if words[0] in NOUNS:
        found = command_help(words[0], words[1] if len(words) > 1 else "")
        if found is not None:
            return found
    if name in TOPICS:
        return TOPICS[name][1]()
    if len(words) == 1 and (lines := _code_lines(name)):
        return _text(lines)
    known = [*NOUNS, *TOPICS, *REASONS, *WAITS_AND_ENDS, *FAULTS]
    raise LookupError(f"{name} is no topic{like(name, known)}")


def _noun_text(noun: Noun) -> str:
    rows = [(command.words[1], first_sentence(command.summary)) for command in noun.commands]
    return _text(
        [
            f"usage: fencepost {noun.name} COMMAND ...",
            "",
            *wrapped(noun.about),
            "",
            "commands:",
            *_rows(rows),
            "",
            f"fencepost {noun.name} COMMAND --help says more.",
        ]
    )


def _command_text(command: Command) -> str:
    page = PAGES.get(command.name)
    lines = [*wrapped(f"usage: {command.usage()}", after="         "), "", *wrapped(command.summary)]
    for paragraph in (*command.more.split("\n\n"), page.more if page is not None else ""):
        if paragraph:
            lines += ["", *wrapped(" ".join(paragraph.split()))]
    for title, chosen in (
        ("arguments:", command.arguments),
        ("options:", command.options),
        ("options of every command:", command.shared),
    ):
        if chosen:
            lines += ["", title, *_rows([(_left(one), _about(one)) for one in chosen])]
    if page is not None:
        lines += ["", "examples:"]
        for example in page.examples:
            lines += [f"  {example.line}", *wrapped(example.about, indent="      ")]
        told = "; ".join(f"{code} {EXIT_MEANINGS[code]}" for code in page.exits)
        lines += ["", *wrapped(f"exit codes: {told}. fencepost help exit-codes lists all.", after="  ")]
    return _text(lines)


def _left(one: Parameter) -> str:
    return f"{one.name} {one.value}" if one.value and one.name.startswith("-") else one.name


def _about(one: Parameter) -> str:
    told = one.about + (" May be repeated." if one.repeated else "")
    return f"{told} First value: {one.first}." if one.first else told


def _rows(rows: Sequence[tuple[str, str]]) -> list[str]:
    """Two columns; a name that is too long for its column has a line of its own."""
    width = min(max(len(name) for name, _ in rows), NAME_COLUMNS_MAX)
    lines = []
    for name, text in rows:
        lead = f"  {name.ljust(width)}  "
        if len(name) > width:
            lines.append(f"  {name}")
            lead = " " * (width + 4)
        lines += wrapped(text, indent=lead, after=" " * (width + 4)) if text else [lead.rstrip()]
    return lines


def _code_lines(code: str) -> list[str]:
    """All meanings of a code: of a refusal, of a wait or an end, and of a fault."""
    lines: list[str] = []
    for row in (REASONS.get(code), WAITS_AND_ENDS.get(code)):
        if row is not None:
            sentence, step = (text.replace("{{", "{").replace("}}", "}") for text in (row.sentence, row.next_step))
            lines += ["", *wrapped(f"{code} ({row.sort}): {sentence}"), *wrapped(f"next: {step}", indent="  ")]
            lines.append(f"  exit code {row.exit_code}: {EXIT_MEANINGS[row.exit_code]}")
    if code in FAULTS:
        fault = FAULTS[code]
        lines += ["", *wrapped(f"{code} (fault that doctor finds, {fault.level}): {_named(fault.message)}")]
        lines += wrapped(f"next: {_named(fault.following)}", indent="  ")
    return lines[1:]


def _named(text: str) -> str:
    """What is filled in, in capitals, as placeholders stand everywhere else."""
    for piece in {part.split("}")[0] for part in text.split("{")[1:]}:
        text = text.replace("{" + piece + "}", piece.upper())
    return text


def _exit_codes() -> str:
    rows = [(str(code), meaning) for code, meaning in EXIT_MEANINGS.items()]
    rows.append(("129, 130, 143", "ended by SIGHUP, SIGINT or SIGTERM, after a drain"))
    more = "`run` gives the first of these that holds: 8; the signal; 2, 4, 5; 6; 9; 7; 0. Every error names a code of "
    more += "its own beside it: fencepost help CODE."
    return _text(["exit codes:", *_rows(rows), "", *wrapped(more)])


def _configuration() -> str:
    lines = [
        *wrapped(
            "The first source that names a value wins: option, variable, the project's fencepost.toml, "
            "[tool.fencepost] in its pyproject.toml, $XDG_CONFIG_HOME/fencepost/config.toml, first value."
        )
    ]
    for setting in SETTINGS:
        names = ", ".join(filter(None, (setting.flag, setting.variable)))
        lines += ["", f"{setting.key} = {setting.example}", *wrapped(setting.about, indent="  ")]
        lines += wrapped(f"{names}. First value: {setting.first}.", indent="  ")
    lines += ["", *wrapped("fencepost config view shows what holds here, and why.")]
    return _text(lines)


def _names() -> str:
    rows = [
        (
            "an order",
            "[PLAN/]ORDER or its id; without PLAN the newest open plan, else the newest. What changes something takes "
            "no name that another open plan, or the one submitted last, has as well",
        ),
        ("a plan", "its name, which means the open one, else the newest; or its id"),
        ("an account", "scope, a plan, [PLAN/]ORDER or an id"),
        ("a name", "[a-z][a-z0-9-]{0,62}"),
        ("a duration", "units d, h, m, s, ms in this order: 1h30m, 500ms; 1 ms to 365 d"),
        ("money", "a currency and a decimal with at most six places: USD:2.50"),
    ]
    return _text(["How things are named:", *_rows(rows)])


def _plan_file() -> str:
    lines = wrapped(OPENING)
    for title, rows in TABLES.values():
        lines += ["", *wrapped(title), *_rows(rows)]
    return _text([*lines, "", *wrapped(HOLDS), "", *wrapped(CLOSING)])


def _topics() -> str:
    rows = [(name, about) for name, (about, _) in TOPICS.items()]
    return _text(
        [
            "usage: fencepost help [COMMAND | TOPIC | CODE]",
            "",
            "topics:",
            *_rows(rows),
            "",
            *wrapped("A CODE is one of those in brackets behind an error, in `order why`, or that doctor gives."),
        ]
    )


TOPICS: Final[Mapping[str, tuple[str, Callable[[], str]]]] = {
    "exit-codes": ("what the exit code of a command says", _exit_codes),
    "configuration": ("every setting: option, variable, key, first value", _configuration),
    "names": ("how orders, plans, accounts, durations and money are written", _names),
    "plan-file": ("every key of a plan file", _plan_file),
    "topics": ("this list", _topics),
}


def _text(lines: Sequence[str]) -> str:
    return "\n".join(line.rstrip() for line in lines) + "\n"
