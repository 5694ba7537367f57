"""The last line that a running program printed, read from its folder at the cost of one small read.

A program on another host has no folder here, and what it printed is not seen before it has ended. What is no text, such
as an archive that goes to stdout, is passed over line by line.
"""

from __future__ import annotations

import re

from fencepost.app import App
from fencepost.surfaces.cli.view.cells import last_line

TAIL_BYTES = 2_048
UNREADABLE_SHARE = 4  # a line in which one character of so many was no UTF-8 may be text of another encoding
_STREAMS = ("stdout", "stderr")
_NO_TEXT = re.compile(r"[\x00-\x06\x0e-\x1a\x1c-\x1f]")  # what programs move a cursor with may stand in a text
_FOLLOWS = re.compile(rb"^[\x80-\xbf]{1,3}")


def last_log_line(app: App, attempt: str, *, verifier: bool = False) -> str:
    """The last line of whichever stream was written last, cleaned; "" where there is nothing."""
    spaces = app.workspaces
    space = (spaces.find_verifier if verifier else spaces.find)(attempt)
    prefix = "verify." if verifier else ""
    newest, text = 0, ""
    for stream in _STREAMS:
        written_ns, data = app.log_tail(space.logs / f"{prefix}{stream}", TAIL_BYTES)
        if data and written_ns >= newest:
            line = last_line(_text_of(data))
            if line:
                newest, text = written_ns, line
    return text


def _text_of(data: bytes) -> str:
    """The lines of an end of an output that are text. A character that was cut at its beginning is left out, and one
    whose end is still to come."""
    text = _FOLLOWS.sub(b"", data).decode("utf-8", "replace")
    text = text.removesuffix("\ufffd")
    return "\n".join(line for line in re.split(r"[\r\n]+", text) if _is_text(line))


def _is_text(line: str) -> bool:
    return _NO_TEXT.search(line) is None and line.count("\ufffd") * UNREADABLE_SHARE <= len(line)
