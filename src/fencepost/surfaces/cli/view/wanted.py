"""Who looks at an output, and what it can show: decided by what it is and by the environment, with no view loaded."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TextIO

from fencepost.surfaces.cli.view.signs import ASCII, SIGNS, UNICODE, Marks


def is_terminal(out: TextIO) -> bool:
    """Whether an output is a terminal; a closed one is none."""
    try:
        return out.isatty()
    except ValueError:
        return False


def is_wanted(out: TextIO, environment: Mapping[str, str]) -> bool:
    """Whether an output is a terminal that a person looks at: not a pipe, not one that can do nothing, not a log."""
    try:
        terminal = out.isatty() and os.tcgetpgrp(out.fileno()) == os.getpgrp()
    except (OSError, ValueError):
        return False
    return terminal and environment.get("TERM", "") not in ("", "dumb") and not environment.get("CI")


def has_colour(environment: Mapping[str, str], *, terminal: bool) -> bool:
    """NO_COLOR takes colour away whatever else holds; FORCE_COLOR gives it where there is no terminal."""
    if environment.get("NO_COLOR"):
        return False
    if environment.get("FORCE_COLOR", "0") not in ("", "0", "false"):
        return True
    return terminal and environment.get("TERM", "") not in ("", "dumb")


def marks_for(out: TextIO) -> Marks:
    """Signs that the output's encoding has."""
    encoding = getattr(out, "encoding", None) or "ascii"
    try:
        "".join([*(sign.glyph for sign in SIGNS.values()), *UNICODE[1:]]).encode(encoding)
    except (UnicodeError, LookupError):
        return ASCII
    return UNICODE
