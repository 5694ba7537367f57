"""What the services of a worker are handed: ports, folders, and who and where this worker is."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from fencepost.core.commands import AnyCommand
from fencepost.core.state import ClockState
from fencepost.kernel.kernel import Kernel
from fencepost.kernel.receipts import Receipt
from fencepost.ports.artifacts import ArtifactStore
from fencepost.ports.clock import Reading
from fencepost.ports.executor import Executor
from fencepost.ports.workspace import Workspaces


class MakeEnvironment(Protocol):
    """Builds the whole environment of an attempt's command."""

    def __call__(
        self,
        names: Sequence[str],
        *,
        home: str,
        temporary: str,
        order: str,
        attempt: str,
        fence: int,
        workspace: str,
        repository: str,
        params_path: str,
    ) -> dict[str, str]: ...


class ReadLog(Protocol):
    """Reads what is kept of one stream of a command: (bytes in all, bytes as a person reads them)."""

    def __call__(self, path: Path) -> tuple[int, bytes]: ...


@dataclass(frozen=True, kw_only=True)
class Means:
    """Everything that a worker's services use. Made by the composition root."""

    kernel: Kernel
    executor: Executor
    artifacts: ArtifactStore
    workspaces: Workspaces
    locks: Path
    environment: MakeEnvironment
    base_environment: Mapping[str, str]
    read_log: ReadLog
    schema_problems: Callable[[bytes, bytes], Sequence[str]]

    def reading(self) -> Reading:
        return self.kernel.clock.read()

    def issue(self, name: str, command: AnyCommand) -> Receipt:
        """Write one command of one of the scope's services, under a fresh key."""
        return self.kernel.write(self.kernel.request(name, command))

    def attempt_lock(self, attempt: str) -> Path:
        return self.locks / f"{attempt}.lock"

    def worker_lock(self, worker: str) -> Path:
        return self.locks / f"{worker}.lock"


def estimated_now_us(clock: ClockState | None, reading: Reading) -> int:
    """Logical time as the next observation will most likely say; good for deciding when to look, for nothing else."""
    if clock is None:
        return 0
    source = clock.sources.get(reading.source)
    if source is None or source.boot_id != reading.boot_id:
        return clock.logical_us
    return max(clock.logical_us, source.anchor_logical_us + reading.tick_us - source.anchor_tick)


def is_locked(path: Path) -> bool:
    """Whether somebody holds the flock on `path`. A lock file that does not exist is held by nobody."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    else:
        return False
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def try_lock(path: Path) -> Iterator[bool]:
    """Hold the flock on `path` for the block, or yield False at once when somebody else does."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        yield True
    finally:
        os.close(descriptor)
