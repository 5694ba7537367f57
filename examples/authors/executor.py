"""An executor of one's own for the simulator: a worker's side, and a supervisor that outlives it.

It does what the port `fencepost.ports.executor` asks for, over the operating system that the simulator hands it
(`Site`). One that is to run real programs has the same shape over real processes: what the simulator tries is who
decides what when, and who is still there to do it.
"""

from __future__ import annotations

import msgspec

from fencepost.ports.executor import (
    STOP_GRACE_US,
    STOP_GRACE_US_MAX,
    STOP_LEAD_US,
    Ended,
    EndReason,
    HolderProof,
    Job,
    LogFacts,
    Running,
    Spending,
    Status,
    StopReason,
)
from fencepost.testing.simulator.programs import Pipe, Program, Site

LOOK_S = 0.05
NOTHING = LogFacts(bytes_total=0, head_bytes=0, tail_bytes=0, gap_bytes=0)


def ended(
    reason: EndReason,
    code: tuple[int | None, int | None] = (None, None),
    *,
    duration_us: int = 0,
    tree_empty: bool = True,
    message: str = "",
) -> Ended:
    return Ended(
        reason=reason,
        exit_code=code[0],
        signal=code[1],
        duration_us=duration_us,
        tree_empty=tree_empty,
        stdout=NOTHING,
        stderr=NOTHING,
        message=message,
    )


class Supervisor:
    """A process of its own beside each program. It watches the clock whether its worker lives or not."""

    def __init__(self, site: Site, pipe: Pipe, job: Job, deadline_tick_us: int) -> None:
        self.site = site
        self.pipe = pipe
        self.job = job
        self.deadline_tick_us = deadline_tick_us
        self.reason: EndReason = "exited"
        self.kill_tick_us: int | None = None
        self.is_alone = False

    def now_us(self) -> int:
        return self.site.clock.read().tick_us

    def run(self) -> None:
        job = self.job
        held = self.site.locks.take(job.lock_path.rpartition("/")[2], wait=False)
        if held is None:
            self.pipe.send(ended("spawn_failed", message="the attempt's lock is held"))
            return
        began_us = self.now_us()
        try:
            program = self.site.spawn(job)
        except OSError as error:
            held.release()
            self.pipe.send(ended("spawn_failed", message=str(error)))
            return
        code = self.watch(program, began_us)
        is_empty = self.clear()
        end = ended(self.reason, code, duration_us=self.now_us() - began_us, tree_empty=is_empty)
        self.keep(end)
        self.pipe.send(end)

    def watch(self, program: Program, began_us: int) -> tuple[int | None, int | None]:
        """Until the program has ended: by itself, at its time limit, before its lease does, or as it is told."""
        while True:
            code = program.wait(0)
            if code is not None:
                return code
            now_us = self.now_us()
            if now_us >= began_us + self.job.time_limit_us:
                self.stop(program, "timeout", STOP_GRACE_US)
            if now_us >= self.deadline_tick_us - STOP_LEAD_US:
                self.stop(program, "lease_lost", STOP_GRACE_US)
            if now_us >= min(self.kill_tick_us or 2**62, self.deadline_tick_us - STOP_LEAD_US + STOP_GRACE_US):
                program.kill()  # no grace reaches beyond the lease, also not for those who slept through its end
                continue
            self.listen(program)

    def listen(self, program: Program) -> None:
        """To the worker, for a moment. When it is gone, the program has its grace."""
        if self.is_alone:
            program.wait(LOOK_S)
            return
        try:
            message = self.pipe.receive(LOOK_S)
        except EOFError:
            self.is_alone = True
            self.stop(program, "worker_gone", STOP_GRACE_US)
            return
        if isinstance(message, int):
            self.deadline_tick_us = max(self.deadline_tick_us, message)
        elif message is not None:
            self.stop(program, *message)

    def stop(self, program: Program, reason: EndReason, grace_us: int) -> None:
        """SIGTERM, and SIGKILL after the grace. A second order can only shorten it."""
        kill_tick_us = self.now_us() + grace_us
        if self.kill_tick_us is None:
            self.reason = reason
            self.kill_tick_us = kill_tick_us
            program.terminate()
        self.kill_tick_us = min(self.kill_tick_us, kill_tick_us)

    def clear(self) -> bool:
        """End what the program has left behind, and look whether anything is there still."""
        for left in self.site.programs(self.job.attempt):
            left.kill()
        return not self.site.programs(self.job.attempt)

    def keep(self, end: Ended) -> None:
        """Leave the end on disk, for whoever comes when nobody listens any more."""
        reading = self.site.clock.read()
        status = Status(
            attempt=self.job.attempt,
            order=self.job.order,
            fence=self.job.fence,
            boot_id=reading.boot_id,
            ended_tick_us=reading.tick_us,
            ended=end,
        )
        self.site.files[self.job.status_path] = msgspec.json.encode(status)


class OneRunning:
    """The worker's side of one execution."""

    def __init__(self, site: Site, job: Job, pipe: Pipe | None, end: Ended | None = None) -> None:
        self._site = site
        self._job = job
        self._pipe = pipe
        self._end = end

    @property
    def pid(self) -> int | None:
        return None

    def confirm(self, deadline_tick_us: int) -> None:
        if self._pipe is not None:
            self._pipe.send(deadline_tick_us)

    def stop(self, reason: StopReason, grace_us: int) -> None:
        if not 0 <= grace_us <= STOP_GRACE_US_MAX:
            raise ValueError(f"a grace is from 0 to {STOP_GRACE_US_MAX}, not {grace_us}")
        if self._pipe is not None:
            self._pipe.send((reason, grace_us))

    def wait(self, timeout_s: float | None) -> Ended | None:
        if self._end is None and self._pipe is not None:
            try:
                self._end = self._pipe.receive(timeout_s)
            except EOFError:
                self._end = self._supervisor_lost()
        return self._end

    def _supervisor_lost(self) -> Ended:
        for left in self._site.programs(self._job.attempt):
            left.kill()
        return ended("keeper_lost", tree_empty=not self._site.programs(self._job.attempt))

    def fileno(self) -> int:
        return -1


class OneExecutor:
    """The port's `Executor`."""

    supervisor = Supervisor
    running = OneRunning

    def __init__(self, site: Site) -> None:
        self.site = site

    @property
    def kind(self) -> str:
        return "command"

    @property
    def spending(self) -> Spending:
        return "opaque"

    def start(self, job: Job, deadline_tick_us: int) -> Running:
        if deadline_tick_us - self.site.clock.read().tick_us <= STOP_LEAD_US:
            return self.running(self.site, job, None, ended("lease_lost"))
        pipe = self.site.supervise(lambda site, pipe: self.supervisor(site, pipe, job, deadline_tick_us).run())
        return self.running(self.site, job, pipe)

    def holder_proof(self, lock_path: str, attempt: str, boot_id: str, *, same_host: bool) -> HolderProof:
        if boot_id != self.site.clock.read().boot_id:
            return HolderProof(gone=same_host, lock="not_examined", pids=(), evidence=("another boot",))
        pids = tuple(program.pid for program in self.site.programs(attempt))
        is_held = self.site.locks.is_held(lock_path.rpartition("/")[2])
        return HolderProof(
            gone=not pids and not is_held,
            lock="held" if is_held else "free",
            pids=pids,
            evidence=(f"{len(pids)} processes carry the marker", f"the lock is {'held' if is_held else 'free'}"),
        )

    def end_holder(self, lock_path: str, attempt: str, boot_id: str, *, same_host: bool) -> HolderProof:
        if boot_id == self.site.clock.read().boot_id:
            for left in self.site.programs(attempt):
                left.kill()
        return self.holder_proof(lock_path, attempt, boot_id, same_host=same_host)

    def read_status(self, status_path: str) -> Status | None:
        data = self.site.files.get(status_path)
        return None if data is None else msgspec.json.decode(data, type=Status)

    def close(self) -> None:
        """Nothing is kept open here."""


def make(site: Site) -> OneExecutor:
    """What the simulator is told: `--executor executor:make`."""
    return OneExecutor(site)
