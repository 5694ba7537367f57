"""How often the verifier of a result was begun, and what the runs took that came to no verdict: kept on its host.

A verifier that takes its worker with it says nothing, and the result waits for the next one. So that this has an end,
and its time is paid for, each start is written down before it, durably, with the attempt's folders: a result is
verified on the host of its attempt and nowhere else. Only a verdict is a record of the scope; what is kept here goes
into it, or into the time that a cancelled order is charged.
"""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec.structs import replace

from fencepost.core.state import AttemptState
from fencepost.ports.executor import Ended, StatusUnreadable
from fencepost.services.means import Means

LOST_MAX: Final = 5
"""So many runs may be cut off together with their worker: another one would most likely do the same."""
STOPPED_MAX: Final = 100
"""So many may be stopped by a drain, which a verifier can bring about as well."""


class Begun(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A run that has begun and whose end nobody has written down. `tick_us` counts under `boot_id` alone. A `late` one
    is in the place of a worker that stands still, and has folders of its own."""

    boot_id: str
    tick_us: int
    limit_us: int
    late: bool = False


class Runs(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The runs of one result's verifier: how many came to no verdict, and what they took together."""

    lost: int = 0
    stopped: int = 0
    used_us: int = 0
    begun: Begun | None = None

    @property
    def spent(self) -> str:
        """Why there is no further run, for people; "" where there may be one."""
        if self.lost >= LOST_MAX:
            return f"it was begun {self.lost} times, and each time its worker was gone before it had spoken"
        if self.stopped >= STOPPED_MAX:
            return f"it was stopped {self.stopped} times before it had spoken"
        return ""


class Verifications:
    """Reads and writes what is kept of them. Whoever writes holds one of the result's finish locks: the first, or the
    late one once the holder of the first stands still. One that wakes finds that its run is counted already."""

    def __init__(self, means: Means) -> None:
        self._means = means

    def read(self, attempt: AttemptState) -> Runs:
        """What is kept, with the run that was cut off, if one was, as lost. A note that is damaged counts as none."""
        runs = self._kept(attempt.attempt)
        if runs.begun is None:
            return runs
        took_us = self._took_us(attempt, runs.begun)
        return replace(runs, lost=runs.lost + 1, used_us=runs.used_us + took_us, begun=None)

    def take(self, attempt: AttemptState) -> Runs:
        """The same, written down where one was cut off: nobody takes that run for one that stands. Raises
        StorageError."""
        runs = self.read(attempt)
        if self.begun(attempt.attempt) is not None:
            self._keep(attempt, runs)
        return runs

    def begun(self, attempt: str) -> Begun | None:
        """The run of which no end is written down."""
        return self._kept(attempt).begun

    def begin(self, attempt: AttemptState, runs: Runs, limit_us: int, *, late: bool) -> Begun:
        """Write down, before it starts, that one is begun. Raises StorageError."""
        reading = self._means.reading()
        begun = Begun(boot_id=reading.boot_id, tick_us=reading.tick_us, limit_us=limit_us, late=late)
        self._keep(attempt, replace(runs, begun=begun))
        return begun

    def end(self, attempt: AttemptState, begun: Begun, ended: Ended, *, drained: bool) -> None:
        """Write down that one ended without a verdict, its worker being there. Raises StorageError."""
        known = self._kept(attempt.attempt)
        if known.begun != begun:
            return  # somebody took this worker for one that is gone, and has counted its run
        runs = replace(known, begun=None)
        used_us = runs.used_us + max(ended.duration_us, 0)
        if drained:
            self._keep(attempt, replace(runs, stopped=runs.stopped + 1, used_us=used_us))
        else:
            self._keep(attempt, replace(runs, lost=runs.lost + 1, used_us=used_us))

    def _kept(self, attempt: str) -> Runs:
        data = self._means.workspaces.read_note(attempt)
        try:
            return Runs() if data is None else msgspec.json.decode(data, type=Runs)
        except msgspec.MsgspecError:
            return Runs()

    def _keep(self, attempt: AttemptState, runs: Runs) -> None:
        self._means.workspaces.keep_note(attempt.attempt, msgspec.json.encode(runs))

    def _took_us(self, attempt: AttemptState, begun: Begun) -> int:
        """What a run took that was cut off: as its supervisor says, if it was left to speak. Else all of the time
        since, as far as the run may have lasted; and where the host has restarted, all that it might have lasted."""
        space = self._means.workspaces.find_verifier(attempt.attempt, late=begun.late)
        try:
            status = self._means.executor.read_status(str(space.logs / "verify.status"))
        except StatusUnreadable:
            status = None
        if status is not None and (status.attempt, status.boot_id) == (attempt.attempt, begun.boot_id):
            return max(status.ended.duration_us, 0)
        reading = self._means.reading()
        if reading.boot_id != begun.boot_id:
            return begun.limit_us
        return min(max(reading.tick_us - begun.tick_us, 0), begun.limit_us)
