"""Text for people: safe for a terminal, right in a pipe, in units that are read and not computed with.

Foreign text (of plans, programs, other people) may hold what steers a terminal, what turns its order round, what
nobody sees, and marks without end that cover other lines. All of it is made harmless in one place, here.
"""

from __future__ import annotations

import difflib
import re
import shutil
import textwrap
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import TextIO

from fencepost.core.instant import format_duration, format_instant, format_money
from fencepost.core.shares import MONEY

WORD_MATCHED_MAX = 80  # characters of a word that is looked for among others: the search takes their square
COLUMNS = 80  # where nothing says how wide the output is
_COLUMNS_LEAST = 40
_COLUMNS_MOST = 160  # longer lines are hard to read
_CONTROLS = "\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff"
_UNSAFE = re.compile(f"[\u061c{_CONTROLS}]")
_UNSAFE_IN_LINE = re.compile(f"[\t\n\u061c{_CONTROLS}]")
_UNSEEN = re.compile(
    "[\u00ad\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200d\u2060-\u2065\u206a-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0"
    "\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
"""What takes no room and joins, fills or tags others: nothing is seen of it, so that nothing is lost without it."""
MARKS_MAX = 4  # that may stand on one character, as some scripts need
STACKED_MAX = 2  # of those, marks that grow upwards or downwards
UNSIGNED = (
    "no signed anchor of this store is left in {place}: whoever can write the store could have rewritten its chain; "
    "fencepost journal verify --anchor SEQ:DIGEST compares it with what was kept elsewhere"
)
"""What is said of a store that nothing outside of it vouches for."""
_PLAN = re.compile(r"\bPLAN\b")
_UNIT = re.compile(r"[0-9]+[a-z]+")
_LABELS = {
    "attempts": "attempts",
    "time_us": "time",
    "tokens_input": "tokens-input",
    "tokens_output": "tokens-output",
    "calls": "calls",
}


def columns() -> int:
    """How wide text for people may be: COLUMNS, else the terminal's width, else 80."""
    return min(max(shutil.get_terminal_size((COLUMNS, 24)).columns, _COLUMNS_LEAST), _COLUMNS_MOST)


def one_line(text: str) -> str:
    """Foreign text on one line; whatever could steer a terminal becomes a question mark, what is unseen goes."""
    return _UNSAFE_IN_LINE.sub("?", text if text.isascii() else _seen(text))


def line_by_line(text: str, *, lines_max: int = 8) -> list[str]:
    """Foreign text as the lines that it has, empty ones left out, at least one; what is past the bound is counted."""
    lines = [one_line(line) for line in text.splitlines() if line.strip()] or [""]
    more = len(lines) - lines_max
    return [*lines[:lines_max], f"and {count(more, 'more line')}"] if more > 0 else lines


def block(text: str) -> str:
    """Foreign text of several lines; line ends and tabs stay, whatever else could steer a terminal does not."""
    text = text.replace("\r\n", "\n")
    return _UNSAFE.sub("?", text if text.isascii() else _seen(text))


def _seen(text: str) -> str:
    """Without what is unseen, and with as many marks on a character as a script may need."""
    kept: list[str] = []
    marks = stacked = 0
    for character in _UNSEEN.sub("", text):
        if unicodedata.category(character) not in ("Mn", "Me"):
            marks = stacked = 0
        else:
            marks += 1
            stacked += unicodedata.combining(character) != 0 or unicodedata.category(character) == "Me"
            if marks > MARKS_MAX or stacked > STACKED_MAX:
                continue
        kept.append(character)
    return "".join(kept)


def dimension_label(dimension: str) -> str:
    """A dimension as the options of `budget set` call it; a currency by its code."""
    return _LABELS.get(dimension) or dimension.removeprefix(MONEY)


def dimension_option(dimension: str, ceiling: int) -> str:
    """How a person writes a ceiling of this dimension to `budget set`; a time is rounded up to what can be written."""
    if dimension.startswith(MONEY):
        return f"--money {dimension.removeprefix(MONEY)}:{format_money(ceiling)}"
    if dimension == "time_us":
        return f"--time {format_duration(-(-ceiling // 1_000) * 1_000)}"
    return f"--{_LABELS[dimension]} {ceiling}"


def amount(dimension: str, value: int | None) -> str:
    """An amount with its unit; "-" for None, which is no limit."""
    if value is None:
        return "-"
    sign = "-" if value < 0 else ""
    if dimension == "time_us":
        return sign + duration(abs(value))
    if dimension.startswith(MONEY):
        return sign + format_money(abs(value))
    return str(value)


def duration(duration_us: int) -> str:
    """A duration in its two largest units: what is smaller says nothing to a person. Documents have all of it."""
    text = format_duration(duration_us)
    return "".join(_UNIT.findall(text)[:2])


def count(number: int, noun: str) -> str:
    """A number with its noun: `1 order`, `2 orders`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The word that another is most like, None where it is like none."""
    near = difflib.get_close_matches(word[:WORD_MATCHED_MAX], list(dict.fromkeys(known)), n=1)
    return near[0] if near else None


def like(word: str, known: Iterable[str]) -> str:
    """What is said behind a word that is none of those that are known."""
    return f"; did you mean {near}?" if (near := nearest(word, known)) is not None else ""


def state_text(state: str, reason: str) -> str:
    """A state with its reason, where the reason says more."""
    return state if reason == state else f"{state} ({reason})"


def named_step(step: str, name: str, ordinal: int | None) -> str:
    """A reason's next step about one order, so that it can be typed: its name, and the number of its last attempt."""
    return step.replace("NAME", name).replace("--attempt N", f"--attempt {ordinal or 1}")


def planned_step(step: str, plan: str) -> str:
    """A next step with what `run` takes for the plan that it is about."""
    return _PLAN.sub(lambda _: plan, step)


def amounts(values: Mapping[str, int]) -> str:
    """Several amounts on one line, "nothing" for none."""
    shown = [f"{dimension_label(name)} {amount(name, value)}" for name, value in sorted(values.items()) if value]
    return ", ".join(shown) or "nothing"


def cost_text(charged: Mapping[str, int]) -> str:
    """What was charged beside attempts and time, money first."""
    names = sorted(
        (name for name in charged if name not in ("attempts", "time_us") and charged[name]),
        key=lambda name: not name.startswith(MONEY),
    )
    return ", ".join(f"{dimension_label(name)} {amount(name, charged[name])}" for name in names)


def unknown_text(unknown: Mapping[str, int]) -> str:
    """What receipts do not say of what was spent: `tokens-output of 2 receipts`."""
    return ", ".join(
        f"{dimension_label(name)} of {count(number, 'receipt')}" for name, number in sorted(unknown.items())
    )


def unknown_note(unknown: Mapping[str, int]) -> str:
    """The same as a note beside what is charged."""
    return f"{unknown_text(unknown)}: all that was set aside for it is charged"


def instant(utc_us: int | None) -> str:
    """A point of time to the second, "-" for none."""
    return f"{format_instant(utc_us)[:19]}Z" if utc_us else "-"


def wrapped(text: str, *, indent: str = "", after: str | None = None) -> list[str]:
    """Text broken between words, harmless; a word that is too long stays whole, since it will be copied."""
    return textwrap.wrap(
        block(text),
        width=columns() - 1,
        initial_indent=indent,
        subsequent_indent=indent if after is None else after,
        break_long_words=False,
        break_on_hyphens=False,
    ) or [indent.rstrip()]


def fields(out: TextIO, rows: Sequence[tuple[str, str]], *, width: int = 10) -> None:
    """Labels and values, one below the other; a label that repeats stands once."""
    last = ""
    for label, value in rows:
        shown = "" if label == last else label
        last = label
        lead = f"{shown.ljust(width)}  "
        out.write("\n".join(wrapped(value, indent=lead, after=" " * (width + 2))) + "\n")
