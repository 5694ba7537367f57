"""Parts of one's own in a simulated world, and whether they keep what their port promises (X6).

`Parts` says what an author brings: how an executor is made for a simulated process, how an empty store is made, and
what a power cut leaves of it. An executor is looked at from both sides: what the services ask of it and what it
answers, and what really runs on the hosts, which it cannot hide. Each promise that is broken is a sentence.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fencepost.ports.executor import (
    STOP_GRACE_US,
    STOP_LEAD_US,
    Ended,
    Executor,
    HolderProof,
    Job,
    Running,
    Spending,
    Status,
    StopReason,
)
from fencepost.ports.journal import Journal
from fencepost.testing.simulator.executor import SimExecutor
from fencepost.testing.simulator.hosts import Host
from fencepost.testing.simulator.loop import Process
from fencepost.testing.simulator.programs import WAKE_US, OwnTree, Site, Yard

LATE_US = 1_000_000
"""By which an end that is owed may come later than its time: whoever watches may look once a while."""


@dataclass(frozen=True, kw_only=True)
class Parts:
    """What an author brings; None for the simulator's own. Functions of a module can be sent to other processes.

    `executor` is called once for each start of a worker's process. `store` makes an empty store. `reopen` is told of a
    power cut of the host that the store lies on: it gets the store as it was and returns what is found afterwards.
    """

    executor: Callable[[Site], Executor] | None = None
    store: Callable[[], Journal] | None = None
    reopen: Callable[[Journal], Journal] | None = None


NO_PARTS = Parts()


def executor_for(parts: Parts, yard: Yard, host: Host, process: Process) -> Executor:
    """The executor of one simulated worker: the author's, watched, or the simulator's."""
    if parts.executor is None:
        return SimExecutor(yard.trees, host, process)
    return WatchedExecutor(yard, host, parts.executor(Site(yard, host, process)))


class WatchedExecutor:
    """An author's executor, with somebody who compares its answers with what runs."""

    def __init__(self, yard: Yard, host: Host, inner: Executor) -> None:
        self._yard = yard
        self._host = host
        self._inner = inner

    @property
    def kind(self) -> str:
        return self._inner.kind

    @property
    def spending(self) -> Spending:
        return self._inner.spending

    def start(self, job: Job, deadline_tick_us: int) -> Running:
        watch = WatchedRunning(self._yard, self._host, job, deadline_tick_us)
        self._yard.asked[self._host, job.lock_path] = watch
        watch.inner = self._inner.start(job, deadline_tick_us)
        return watch

    def holder_proof(self, lock_path: str, attempt: str, boot_id: str, *, same_host: bool) -> HolderProof:
        return self._true(attempt, boot_id, self._inner.holder_proof(lock_path, attempt, boot_id, same_host=same_host))

    def end_holder(self, lock_path: str, attempt: str, boot_id: str, *, same_host: bool) -> HolderProof:
        return self._true(attempt, boot_id, self._inner.end_holder(lock_path, attempt, boot_id, same_host=same_host))

    def _true(self, attempt: str, boot_id: str, proof: HolderProof) -> HolderProof:
        if proof.gone and boot_id == self._host.boot_id and self._yard.trees_of(self._host, attempt):
            self._yard.report(f"the executor proved {attempt} gone while it runs")
        return proof

    def read_status(self, status_path: str) -> Status | None:
        return self._inner.read_status(status_path)

    def close(self) -> None:
        self._inner.close()


class WatchedRunning:
    """One execution, with the bounds within which its tree must be gone."""

    inner: Running

    def __init__(self, yard: Yard, host: Host, job: Job, deadline_tick_us: int) -> None:
        self._yard = yard
        self._host = host
        self._job = job
        self.deadline_tick_us = deadline_tick_us
        self._tree: OwnTree | None = None
        self._told = False

    def began(self, tree: OwnTree) -> None:
        """Its program was started."""
        self._tree = tree
        if tree.began_tick_us > self.deadline_tick_us - STOP_LEAD_US + LATE_US:
            self._yard.report(f"{self._job.attempt} was started under a lease that ends too soon")
        self._owed(tree.began_tick_us + self._job.time_limit_us + STOP_GRACE_US, "after its time limit")
        self._lease(tree)
        tree.process.at_exit.append(self._worker_gone)

    def _worker_gone(self) -> None:
        """Its process is gone: the tree has its grace, and no more."""
        self._owed(self._host.tick_us() + STOP_GRACE_US, "after its worker was gone")

    def _lease(self, tree: OwnTree) -> None:
        loop, host, boot_id = self._yard.loop, self._host, self._host.boot_id

        def look() -> None:
            if not self._is_owed(tree, boot_id):
                return
            if host.asleep:
                loop.call_at(loop.now_us + WAKE_US, look)
            elif host.tick_us() < tree.deadline_tick_us:
                loop.call_at(host.loop_us(tree.deadline_tick_us), look)
            elif loop.now_us < host.woke_us + WAKE_US:
                loop.call_at(host.woke_us + WAKE_US, look)
            else:
                self._yard.report(f"{self._job.attempt} runs on after the end of its lease")

        loop.call_at(host.loop_us(tree.deadline_tick_us), look)

    def _owed(self, at_tick_us: int, when: str) -> None:
        """Its tree is to be gone at a tick of its host, give or take."""
        tree, loop, host, boot_id = self._tree, self._yard.loop, self._host, self._host.boot_id
        if tree is None:
            return

        def look() -> None:
            if not self._is_owed(tree, boot_id):
                return
            if host.asleep:
                loop.call_at(loop.now_us + WAKE_US, look)
            elif host.tick_us() < at_tick_us + LATE_US:
                loop.call_at(host.loop_us(at_tick_us + LATE_US), look)  # its clock has stood still meanwhile
            elif loop.now_us < host.woke_us + STOP_GRACE_US + LATE_US:
                loop.call_at(host.woke_us + STOP_GRACE_US + LATE_US, look)  # who slept through it begins to stop it now
            else:
                self._yard.report(f"{self._job.attempt} runs on {when}")

        loop.call_at(host.loop_us(at_tick_us + LATE_US), look)

    @staticmethod
    def _is_owed(tree: OwnTree, boot_id: str) -> bool:
        return tree.alive and tree.host.boot_id == boot_id and tree.is_watched

    @property
    def pid(self) -> int | None:
        return self.inner.pid

    def confirm(self, deadline_tick_us: int) -> None:
        if deadline_tick_us > self.deadline_tick_us:
            self.deadline_tick_us = deadline_tick_us
            if self._tree is not None:
                self._tree.deadline_tick_us = deadline_tick_us
                for step in self._yard.trees.confirmed:
                    step(self._tree)
        self.inner.confirm(deadline_tick_us)

    def stop(self, reason: StopReason, grace_us: int) -> None:
        at_tick_us, tree = self._host.tick_us() + grace_us, self._tree
        if tree is not None and (tree.stop_at_tick_us is None or at_tick_us < tree.stop_at_tick_us):
            tree.stop_at_tick_us, tree.stop_reason = at_tick_us, reason
        self._owed(at_tick_us, "after it was told to stop")
        self.inner.stop(reason, grace_us)

    def wait(self, timeout_s: float | None) -> Ended | None:
        ended = self.inner.wait(timeout_s)
        if ended is not None and not self._told:
            self._told = True
            if self._tree is not None:
                self._tree.ended = ended  # its worker knows: from now on it owes a report, and no order to stop
            self._compare(ended)
        return ended

    def fileno(self) -> int:
        return self.inner.fileno()

    def _compare(self, ended: Ended) -> None:
        """What it says of the end, and how it was."""
        report, attempt, tree = self._yard.report, self._job.attempt, self._tree
        if tree is None:
            if ended.reason not in ("spawn_failed", "not_started", "lease_lost", "keeper_lost", "stopped", "timeout"):
                report(f"the executor says {ended.reason} of {attempt}, and nothing was started")
            return
        if ended.tree_empty and tree.alive:
            report(f"the executor says that the tree of {attempt} is empty while it runs")
        if ended.reason == "exited" and (ended.exit_code, ended.signal) != tree.code:
            report(f"the executor says exit code {ended.exit_code} of {attempt}, and it was {tree.code[0]}")
        if ended.reason in ("spawn_failed", "not_started"):
            report(f"the executor says that {attempt} could not be started, and it ran")
