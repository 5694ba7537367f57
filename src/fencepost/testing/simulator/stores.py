"""Workspaces and wake-ups of simulated processes: nothing on a disk, and hints that get lost."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from fencepost.adapters.artifacts.memory import MemoryArtifactStore
from fencepost.ports.artifacts import ArtifactMissing, Classification
from fencepost.ports.workspace import Collected, Inputs, Output, OutputProblem, Swept, Workspace
from fencepost.testing.simulator.faults import Faults
from fencepost.testing.simulator.loop import Loop, Process, Task

_FOLDER = Path("/simulated")
_SPACE = {name: _FOLDER / name for name in ("path", "home", "tmp", "logs")}
OUTPUT_PATHS = ("out.txt", "report.json")
LATE_US = 2_000_000  # of a hint that is late, at most


class SimWorkspaces:
    """`Workspaces` whose every command leaves the same two files, of which its order declares what it likes."""

    def __init__(self, loop: Loop, faults: Faults, artifacts: MemoryArtifactStore, notes: dict[str, bytes]) -> None:
        """`notes` are those of the whole host: they outlive the process that keeps them."""
        self._loop = loop
        self._faults = faults
        self._artifacts = artifacts
        self._notes = notes

    def prepare(
        self, *, attempt: str, inputs: Inputs, params: bytes | None = None, checkpoint: str | None = None
    ) -> Workspace:
        self._loop.pause()
        if self._faults.hits("layout_fails"):
            raise ArtifactMissing("simulated: a pinned file is not there any more")
        missing = [file.path for file in inputs.handed if not self._artifacts.has(file.digest)]
        if missing:
            raise ArtifactMissing(f"{missing[0]} was handed over and is not there")
        if checkpoint is not None and not self._artifacts.has(checkpoint):
            raise ArtifactMissing("a checkpoint was accepted and is not there")
        return self.find(attempt)

    def find(self, attempt: str) -> Workspace:
        return Workspace(attempt=attempt, params_path=None, **_SPACE)

    def collect(
        self, workspace: Workspace, declared: Callable[[str], bool], *, classification: Classification
    ) -> Collected:
        self._loop.pause()
        outputs = []
        for path in OUTPUT_PATHS:
            if declared(path):
                data = f"{workspace.attempt} {path}".encode()
                stored = self._artifacts.put_bytes(data, classification=classification)
                outputs.append(Output(path=path, mode="0644", digest=stored.digest, bytes=stored.bytes))
        return Collected(outputs=tuple(outputs), problems=())

    def keep(
        self, workspace: Workspace, path: str, *, classification: Classification, between: Callable[[], None]
    ) -> Output | OutputProblem:
        self._loop.pause()
        between()
        data = f"{workspace.attempt} {path}".encode()
        stored = self._artifacts.put_bytes(data, classification=classification)
        return Output(path=path, mode="0644", digest=stored.digest, bytes=stored.bytes)

    def read_left(self, workspace: Workspace, name: str, *, bytes_max: int) -> bytes | None:
        return None

    def read_note(self, attempt: str) -> bytes | None:
        return self._notes.get(attempt)

    def keep_note(self, attempt: str, note: bytes) -> None:
        self._loop.pause()
        self._notes[attempt] = note

    def list_files(self, workspace: Workspace) -> tuple[str, ...]:
        return OUTPUT_PATHS

    def find_verifier(self, attempt: str, *, late: bool = False) -> Workspace:
        return self.find(attempt)

    def prepare_verifier(
        self, attempt: str, *, inputs: Inputs, outputs: Sequence[Output], late: bool = False
    ) -> Workspace | tuple[OutputProblem, ...]:
        self._loop.pause()
        if self._faults.hits("layout_fails"):
            return (OutputProblem(code="unreadable", path="out.txt", message="simulated"),)
        return self.find(attempt)

    def discard(self, attempt: str) -> None:
        self._loop.pause()

    def list_attempts(self) -> tuple[str, ...]:
        return ()

    def sweep(self, *, among: Sequence[str], keep: Collection[str]) -> Swept:
        return Swept(removed=(), failed=())


class Hints:
    """Wake-ups of all processes of one store. A hint reaches each process, or does not."""

    def __init__(self, loop: Loop, faults: Faults) -> None:
        self.loop = loop
        self.faults = faults
        self._listeners: list[SimWakeups] = []

    def for_process(self, process: Process) -> SimWakeups:
        wakeups = SimWakeups(self)
        self._listeners.append(wakeups)
        process.at_exit.append(lambda: self._listeners.remove(wakeups))
        return wakeups

    def notify(self) -> None:
        faults = self.faults
        for listener in self._listeners:
            if faults.hits("hint_lost"):
                continue
            if faults.hits("hint_delayed"):
                self.loop.call_at(self.loop.now_us + int(faults.chance.random() * LATE_US), listener.hint)
                continue
            listener.hint()
            if faults.hits("hint_doubled"):
                listener.hint()


class SimWakeups:
    """`Wakeups` of one process."""

    def __init__(self, hints: Hints) -> None:
        self._hints = hints
        self._count = 0
        self._waiters: list[Task] = []

    def hint(self) -> None:
        self._count += 1
        waiters, self._waiters = self._waiters, []
        for task in waiters:
            self._hints.loop.wake(task)

    def notify(self) -> None:
        self._hints.notify()

    def ticket(self) -> int:
        return self._count

    def wait(self, ticket: int, timeout_s: float) -> bool:
        if self._count != ticket:
            return True
        loop = self._hints.loop
        task = loop.me()
        self._waiters.append(task)
        loop.wait(loop.now_us + max(int(timeout_s * 1_000_000), 0))
        if task in self._waiters:
            self._waiters.remove(task)
        return self._count != ticket

    def close(self) -> None:
        self.hint()


def digest(text: str) -> str:
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"
