"""Starts the command: its own process group, nothing inherited but stdin from nowhere, two pipes and the
lock.

`posix_spawn` shares the keeper's memory until the command runs, which costs half of a fork of an interpreter.
Only the standard library: the keeper uses this.
"""

from __future__ import annotations

import errno
import fcntl
import os
import signal
from collections.abc import Iterator

FOLDERS_SHOWN_MAX = 3
LOCK_DESCRIPTOR_MIN = 20
"""The lock's descriptor in the command: above those that shells and scripts use for themselves."""

_RESET = [each for each in signal.valid_signals() if each not in (signal.SIGKILL, signal.SIGSTOP)]


class SpawnFailed(Exception):
    """The command did not start; the text says why, for people."""


class NoPlaceToWork(SpawnFailed):
    """The folder that was laid out for the command is not there, or closed: not the command's fault."""


def share_lock(descriptor: int) -> int:
    """Make the lock a descriptor that commands inherit; the given one is closed. The only one that they
    do.
    """
    shared = fcntl.fcntl(descriptor, fcntl.F_DUPFD, LOCK_DESCRIPTOR_MIN)
    os.close(descriptor)
    return shared


def spawn(*, argv: list[str], environment: dict[str, str], cwd: str, stdout: int, stderr: int) -> int:
    """Start `argv` and return its process id once it has really been executed. Raises SpawnFailed.

    All signals are at their first disposition and none is blocked. `argv[0]` without a slash is looked for on
    the PATH of `environment`, relative entries of which count from `cwd`.
    """
    try:
        os.chdir(cwd)
    except OSError as error:
        raise NoPlaceToWork(f"cannot work in {cwd}: {error.strerror}") from error
    program = argv[0]
    try:
        return os.posix_spawn(
            _found(program, environment),
            argv,
            environment,
            file_actions=((os.POSIX_SPAWN_DUP2, stdout, 1), (os.POSIX_SPAWN_DUP2, stderr, 2)),
            setpgroup=0,
            setsigmask=(),
            setsigdef=_RESET,
        )
    except OSError as error:
        raise SpawnFailed(_explain(program, environment, error)) from error
    except ValueError as error:
        raise SpawnFailed(f"cannot run {program}: {error}") from error
    finally:
        os.chdir("/")


def _found(program: str, environment: dict[str, str]) -> str:
    refused = ""
    for candidate in _candidates(program, environment):
        if os.access(candidate, os.X_OK) and not os.path.isdir(candidate):
            return candidate
        if os.path.isfile(candidate):
            refused = refused or candidate
    return refused or program


def _candidates(program: str, environment: dict[str, str]) -> Iterator[str]:
    if os.sep in program:
        yield program
        return
    for folder in environment.get("PATH", os.defpath).split(os.pathsep):
        yield os.path.join(folder or ".", program)


def _shown(path: str) -> str:
    """The first folders of a PATH, and how many more it has."""
    folders = list(dict.fromkeys(path.split(os.pathsep)))
    more = len(folders) - FOLDERS_SHOWN_MAX
    shown = os.pathsep.join(folders[:FOLDERS_SHOWN_MAX])
    return f"{shown} and {more} more folders" if more > 0 else shown


def _explain(program: str, environment: dict[str, str], error: OSError) -> str:
    if error.errno == errno.ENOENT and os.sep not in program:
        return f"no command {program} on PATH, which is {_shown(environment.get('PATH', os.defpath))}"
    if error.errno == errno.ENOENT and os.path.exists(program):
        return f"cannot run {program}: the interpreter on its first line does not exist"
    if error.errno == errno.EACCES and os.path.isdir(program):
        return f"cannot run {program}: it is a folder"
    return f"cannot run {program}: {error.strerror}"
