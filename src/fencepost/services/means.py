"""What the services of a worker are handed: ports, folders, and who and where this worker is."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from fencepost.core.commands import AnyCommand, Request
from fencepost.core.state import ClockState
from fencepost.kernel.kernel import Kernel
from fencepost.kernel.receipts import Receipt
from fencepost.ports.artifacts import ArtifactStore
from fencepost.ports.clock import Reading
from fencepost.ports.errors import StorageError, StorageFull, StorageMismatch
from fencepost.ports.executor import Executor
from fencepost.ports.workspace import Workspaces

INSIST_S = 0.25  # between tries to write what must not be lost


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
    sweep_partials: Callable[[], int]
    """Removes what writers of artifacts and packs left that were killed; returns the number of files."""

    def reading(self) -> Reading:
        return self.kernel.clock.read()

    def issue(self, name: str, command: AnyCommand) -> Receipt:
        """Write one command of one of the scope's services, under a fresh key."""
        return self.kernel.write(self.kernel.request(name, command))

    def insist(self, requests: Sequence[Request], until_tick_us: int) -> list[Receipt]:
        """Write commands whose loss would cost work, again and again while the store cannot be reached.

        Their keys make every repetition find what an earlier try has written. Gives up at `until_tick_us`. Raises
        StorageError.
        """
        while True:
            try:
                return self.kernel.write_many(requests)
            except (StorageFull, StorageMismatch):
                raise
            except StorageError:
                if self.reading().tick_us >= until_tick_us:
                    raise
            time.sleep(INSIST_S)

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
    """Whether somebody holds the flock on `path`. A lock file that does not exist is held by nobody.

    Looks through a shared lock, so that those who look do not see each other.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    else:
        return False
    finally:
        os.close(descriptor)


def take_lock(path: Path, *, wait: bool) -> int | None:
    """The flock on the file that stands at `path`, as a descriptor; None if another has it and `wait` is false.

    Lock files are removed by their holder and by sweeps, so that what was locked may not stand there any more: then
    it is made anew. Raises OSError.
    """
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            if _stands_at(path, descriptor):
                return descriptor
        except BlockingIOError:
            os.close(descriptor)
            return None
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _stands_at(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False


@contextlib.contextmanager
def try_lock(path: Path) -> Iterator[bool]:
    """Hold the flock on `path` for the block and remove its file then, or yield False when somebody else has it."""
    descriptor = take_lock(path, wait=False)
    if descriptor is None:
        yield False
        return
    try:
        yield True
    finally:
        path.unlink(missing_ok=True)
        os.close(descriptor)


def remove_if_free(path: Path) -> bool:
    """Remove a lock file that nobody holds; return whether it went."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.unlink(missing_ok=True)
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)
    return True
