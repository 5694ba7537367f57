"""In whose process tree this program runs: which attempts it descends from, by marks that it cannot take off itself.

Everything that an attempt starts has its marker in the environment. A program can leave that out for what it starts in
turn, so that the environments of all ancestors are read as well, as they were when these began (Linux only). Whoever
left them all behind, by a process that ended before, was taken in by the attempt's keeper, which has no marker and
holds the attempt's lock.

This stops a program that does not know better, and not one that fights: docs/SECURITY.md.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from typing import Final, NamedTuple

from fencepost.adapters.executors.tree import MARKER

ANCESTORS_MAX: Final = 256
ENVIRONMENT_BYTES_MAX: Final = 4 * 2**20
_KEEPER: Final = b"keeper_host"
"""Stands in the arguments of each keeper, since it is a fork of their host."""
_LOCK: Final = re.compile(r"(attempt_[0-9a-f]{32})(?:(?:\.late)?\.verify)?\.lock(?: \(deleted\))?")
"""Of an attempt, or of its verifier: both have a keeper, and neither is a person."""
_START: Final = f"{MARKER}=".encode()


class Mark(NamedTuple):
    """An attempt, and where its mark was found: a process, 0 for the environment that this one has now."""

    attempt: str
    pid: int


def marks(environment: Mapping[str, str], pid: int | None = None) -> tuple[Mark, ...]:
    """Marks of this process and of its ancestors, the nearest first. What cannot be read has none.

    `pid` is where to begin, first value: this process.
    """
    found = [Mark(environment[MARKER], 0)] if environment.get(MARKER) else []
    if sys.platform != "linux":
        return tuple(found)
    one = os.getpid() if pid is None else pid
    for _ in range(ANCESTORS_MAX):
        if one <= 0:
            break
        found += [Mark(attempt, one) for attempt in (*_in_environment(one), *_kept_by(one))]
        one = _parent_of(one)
    return tuple(found)


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(ENVIRONMENT_BYTES_MAX)
    except OSError:
        return b""  # it has ended, or is another user's


def _in_environment(pid: int) -> list[str]:
    entries = _read(f"/proc/{pid}/environ").split(b"\0")
    return [entry.removeprefix(_START).decode("utf-8", "replace") for entry in entries if entry.startswith(_START)]


def _kept_by(pid: int) -> list[str]:
    """The attempt whose lock a keeper holds; nothing for a process that is none."""
    if _KEEPER not in _read(f"/proc/{pid}/cmdline"):
        return []
    folder = f"/proc/{pid}/fd"
    found = []
    try:
        for name in os.listdir(folder):
            lock = _LOCK.fullmatch(os.path.basename(os.readlink(f"{folder}/{name}")))
            found += [lock[1]] if lock is not None else []
    except OSError:
        return found  # it ends just now
    return found


def _parent_of(pid: int) -> int:
    """0 for the first process, and for one that has ended."""
    fields = _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    return int(fields[1]) if len(fields) > 1 else 0
