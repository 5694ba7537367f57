"""What becomes of a standard stream that cannot be written any more; for commands that start often, in few lines."""

from __future__ import annotations

import os

STDOUT = 1
STDERR = 2


def mute(descriptor: int) -> None:
    """What is left to print there goes nowhere, so that the interpreter does not try again when it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)
