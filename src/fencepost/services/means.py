"""What the services of a worker are handed: ports, folders, and who and where this worker is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from fencepost.core.commands import AnyCommand, Request
from fencepost.core.state import ClockState
from fencepost.kernel.kernel import Kernel
from fencepost.kernel.receipts import Receipt
from fencepost.ports.artifacts import ArtifactStore
from fencepost.ports.checks import SchemaChecks
from fencepost.ports.clock import Reading
from fencepost.ports.door import Door
from fencepost.ports.errors import StorageError, StorageFull, StorageMismatch
from fencepost.ports.executor import Executor
from fencepost.ports.locks import HostLocks
from fencepost.ports.packs import Packs
from fencepost.ports.threads import Threads
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
        checkpoint_path: str = "",
        socket: str = "",
        token: str = "",
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
    packs: Packs
    door: Door
    pid: int
    threads: Threads
    locks: HostLocks
    environment: MakeEnvironment
    base_environment: Mapping[str, str]
    read_log: ReadLog
    schema_checks: SchemaChecks
    store_stands: Callable[[], bool]
    """Whether the store still is where it was opened. What is written into one that was removed nobody will find."""
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
                if self.reading().tick_us >= until_tick_us or not self.store_stands():
                    raise
            self.threads.sleep(INSIST_S)


def estimated_now_us(clock: ClockState | None, reading: Reading) -> int:
    """Logical time as the next observation will most likely say; good for deciding when to look, for nothing else."""
    if clock is None:
        return 0
    boot = clock.boot(reading.source, reading.boot_id)
    if boot is None:
        return clock.logical_us
    return max(clock.logical_us, boot.anchor_logical_us + reading.tick_us - boot.anchor_tick)


def worker_lock(worker: str) -> str:
    """Name of the lock that a worker holds while it lives."""
    return f"{worker}.lock"


def serves_lock(worker: str, plan: str) -> str:
    """Name of the lock that a worker holds beside its own while it serves one plan alone."""
    return f"{plan}.{worker}.lock"


def finish_lock(attempt: str, *, late: bool = False) -> str:
    """Name of the lock that a worker holds while it brings a result to its end; `late` is for a second one, in the
    place of a worker that stands still and keeps the first."""
    return f"{attempt}.late.lock" if late else f"{attempt}.finish.lock"


def verify_lock(attempt: str, *, late: bool = False) -> str:
    """Name of the lock that the supervisor of an attempt's verifier holds while anything of it lives."""
    return f"{attempt}.late.verify.lock" if late else f"{attempt}.verify.lock"


def attempt_lock(attempt: str) -> str:
    """Name of the lock that an attempt's supervisor holds while anything of the attempt lives."""
    return f"{attempt}.lock"
