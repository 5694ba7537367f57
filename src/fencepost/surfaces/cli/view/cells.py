"""Text as a terminal measures it: in cells, with nothing in it that a terminal would take for an order.

Foreign text (a program's output, a name, a message) loses its escape sequences and control characters before it is
measured. Whatever terminals disagree about, joined emoji and variation selectors above all, is taken apart, so that a
line is never wider than it was counted.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

from fencepost.surfaces.cli.view.signs import STYLES
from fencepost.surfaces.cli.words import one_line

TEXT_MAX = 4_096  # characters of one foreign text that are looked at
CUT = "…"

_SEQUENCE = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # CSI
    r"|[\x1b]\][^\x07\x1b]*(?:\x07|\x1b\\|$)"  # OSC, with either end, or cut off
    r"|\x1b[PX^_][^\x1b]*(?:\x1b\\|$)"  # strings that a device is sent
    r"|\x9b[0-?]*[ -/]*[@-~]"
    r"|\x1b[ -/]*[0-~]?"
)
_LINE_ENDS = re.compile(r"[\r\n]+")


class Span(NamedTuple):
    """A piece of a line; `style` is a name of `signs.STYLES`, "" for none."""

    text: str
    style: str = ""


Line = tuple[Span, ...]


def clean(text: str) -> str:
    """Foreign text as one line that steers no terminal: no sequences, no controls, nothing invisible that joins."""
    text = _LINE_ENDS.sub(" ", _SEQUENCE.sub("", text[:TEXT_MAX])).expandtabs(4)
    return one_line(text)


def last_line(text: str) -> str:
    """The last line of an output that has something in it; what was overwritten by a carriage return is gone."""
    for line in reversed(re.split(r"[\n\r]+", text)):
        cleaned = clean(line).strip()
        if cleaned:
            return cleaned
    return ""


@lru_cache(4_096)
def _cells(character: str) -> int:
    from rich.cells import get_character_cell_size  # plain names, which is most of what is measured, need no table

    return get_character_cell_size(character)


def width_of(text: str) -> int:
    """Cells that a cleaned text takes."""
    if text.isascii():
        return len(text)
    return sum(map(_cells, text))


def cut(text: str, cells: int) -> str:
    """The text in at most `cells` cells; where something is left out, an ellipsis says so."""
    if text.isascii() and len(text) <= cells:
        return text
    if width_of(text) <= cells:
        return text
    if cells <= 0:
        return ""
    room = cells - 1
    kept: list[str] = []
    for character in text:
        room -= _cells(character)
        if room < 0:
            break
        kept.append(character)
    return "".join(kept).rstrip() + CUT


def pad(text: str, cells: int, *, right: bool = False) -> str:
    """The text cut or filled to exactly `cells` cells; `right` sets it flush right."""
    text = cut(text, cells)
    space = " " * (cells - width_of(text))
    return space + text if right else text + space


def line_width(line: Iterable[Span]) -> int:
    return sum(width_of(span.text) for span in line)


def cut_line(line: Line, cells: int) -> Line:
    """A line in at most `cells` cells."""
    kept: list[Span] = []
    for span in line:
        if cells <= 0:
            break
        width = width_of(span.text)
        if width > cells:
            kept.append(Span(cut(span.text, cells), span.style))
            break
        kept.append(span)
        cells -= width
    return tuple(kept)


def text_of(line: Line) -> str:
    """A line without its styles."""
    return "".join(span.text for span in line).rstrip()


def painted(line: Line, *, colour: bool) -> str:
    """A line for an output, with its styles where there is colour; each style ends with its piece."""
    parts: list[str] = []
    for text, style in line:
        code = STYLES[style] if colour else ""
        parts.append(f"\x1b[{code}m{text}\x1b[0m" if code and text.strip() else text)
    return "".join(parts).rstrip()


def folded(text: str, cells: int) -> list[str]:
    """A sentence broken between words into lines of at most `cells` cells; a word that is too long is cut."""
    lines: list[str] = []
    current = ""
    for word in text.split():
        joined = f"{current} {word}" if current else word
        if width_of(joined) <= cells:
            current = joined
            continue
        if current:
            lines.append(current)
        current = cut(word, cells)
    return [*lines, current] if current else lines
