"""Process trees: who belongs to one, and how to look for those who left it.

A subreaper inherits every orphan of its tree, so while it lives, "no child at all" means "nobody left". Where
there is no subreaper (macOS), or its keeper was killed, members are found by the marker in their environment.

Only the standard library: the keeper host loads this.
"""

from __future__ import annotations

import ctypes
import os
import sys
import time

MARKER = "FENCEPOST_ATTEMPT"

_PR_SET_CHILD_SUBREAPER = 36
_CLOCK: int = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
_LIBC = ctypes.CDLL(None, use_errno=True)


def tick_us() -> int:
    """Microseconds of the local clock that counts suspended time, since boot."""
    return time.clock_gettime_ns(_CLOCK) // 1000


def become_subreaper() -> bool:
    """Inherit the orphans of the own tree. False where the system has no such thing."""
    if sys.platform != "linux":
        return False
    return bool(_LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)


def descendants(root: int) -> set[int]:
    """Every process below `root` as far as can be seen in one look; a tree that forks meanwhile needs
    another.
    """
    found: set[int] = set()
    waiting = [root]
    parents: dict[int, list[int]] | None = None if _has_children_files() else _children_by_parent()
    while waiting:
        pid = waiting.pop()
        children = children_of(pid) if parents is None else parents.get(pid, [])
        fresh = [child for child in children if child not in found and child != root]
        found.update(fresh)
        waiting.extend(fresh)
    return found


def marked(attempt: str) -> tuple[set[int], int, int]:
    """Processes whose environment holds the attempt's marker, how many were read, and how many could not be.

    The caller itself is left out. What could not be read belongs to another user.
    """
    wanted = f"{MARKER}={attempt}".encode()
    if sys.platform != "linux":
        return _marked_by_ps(wanted)
    found: set[int] = set()
    read = unreadable = 0
    own = os.getpid()
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == own:
            continue
        try:
            with open(f"/proc/{name}/environ", "rb") as file:
                environment = file.read()
        except PermissionError:
            unreadable += 1
            continue
        except OSError:
            continue  # it ended while we looked
        read += 1
        if wanted in environment.split(b"\0"):
            found.add(int(name))
    return found, read, unreadable


def holding(path: str) -> set[int]:
    """Processes that have the file at `path` open, also if it was unlinked there or replaced since (Linux only).

    The caller itself is left out. Processes of other users cannot be looked at.
    """
    found: set[int] = set()
    if sys.platform != "linux":
        return found
    wanted = os.path.realpath(path)
    names = (wanted, wanted + " (deleted)")
    own = os.getpid()
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == own:
            continue
        try:
            descriptors = os.listdir(f"/proc/{name}/fd")
        except OSError:
            continue  # it ended while we looked, or belongs to another user
        for descriptor in descriptors:
            try:
                target = os.readlink(f"/proc/{name}/fd/{descriptor}")
            except OSError:
                continue  # it was closed meanwhile
            if target in names:
                found.add(int(name))
                break
    return found


def signal_all(pids: set[int], number: int) -> set[int]:
    """Send a signal to each; returns those that we may not signal. One that has ended is no error."""
    refused: set[int] = set()
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue
        except PermissionError:
            refused.add(pid)
    return refused


def _has_children_files() -> bool:
    return os.path.exists("/proc/thread-self/children")


def children_of(pid: int) -> list[int]:
    """The children of one process, where the system lists them (Linux)."""
    children: list[int] = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/children", "rb") as file:
                children.extend(int(word) for word in file.read().split())
    except OSError:
        return children  # it ended while we looked; its children are the subreaper's now
    return children


def _children_by_parent() -> dict[int, list[int]]:
    parents: dict[int, list[int]] = {}
    for pid, parent in _parents():
        parents.setdefault(parent, []).append(pid)
    return parents


def _parents() -> list[tuple[int, int]]:
    if sys.platform != "linux":
        return [
            (int(words[0]), int(words[1]))
            for words in (line.split() for line in _ps("-A", "-o", "pid=,ppid=").splitlines())
            if len(words) == 2
        ]
    pairs: list[tuple[int, int]] = []
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                fields = file.read().rpartition(b")")[2].split()
        except OSError:
            continue
        pairs.append((int(name), int(fields[1])))
    return pairs


def _marked_by_ps(wanted: bytes) -> tuple[set[int], int, int]:
    found: set[int] = set()
    read = 0
    for line in _ps("-A", "-E", "-ww", "-o", "pid=,command=").splitlines():
        words = line.split()
        if not words or int(words[0]) == os.getpid():
            continue
        read += 1
        if wanted in words:
            found.add(int(words[0]))
    return found, read, 0


def _ps(*arguments: str) -> bytes:
    import subprocess  # only where there is no /proc; the keeper host must start fast

    return subprocess.run(["/bin/ps", *arguments], stdout=subprocess.PIPE, check=True).stdout
