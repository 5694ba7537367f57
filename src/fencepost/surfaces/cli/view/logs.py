"""The last line that a running program printed, read from its folder at the cost of one small read.

A program on another host has no folder here, and what it printed is not seen before it has ended.
"""

from __future__ import annotations

from fencepost.app import App
from fencepost.surfaces.cli.view.cells import last_line

TAIL_BYTES = 2_048
_STREAMS = ("stdout", "stderr")


def last_log_line(app: App, attempt: str, *, verifier: bool = False) -> str:
    """The last line of whichever stream was written last, cleaned; "" where there is nothing."""
    spaces = app.workspaces
    space = (spaces.find_verifier if verifier else spaces.find)(attempt)
    prefix = "verify." if verifier else ""
    newest, text = 0, ""
    for stream in _STREAMS:
        written_ns, data = app.log_tail(space.logs / f"{prefix}{stream}", TAIL_BYTES)
        if data and written_ns >= newest:
            line = last_line(data.decode("utf-8", "replace"))
            if line:
                newest, text = written_ns, line
    return text
