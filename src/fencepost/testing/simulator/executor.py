"""Simulated executions: trees of processes with a keeper beside them, ended as the executor port promises.

A keeper watches its host's clock by itself: it stops its tree before the last confirmed end of the lease, at the time
limit, on order, and when its worker is gone, whether anybody listens or not. A keeper that is killed leaves a tree
that only `end_holder` ends.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

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
from fencepost.testing.simulator.faults import Faults
from fencepost.testing.simulator.hosts import Host
from fencepost.testing.simulator.loop import Loop, Process, Task

SHORT_US = 30_000
LONG_US = 30_000_000
LONG_SHARE = 0.25
NOTICE_US = 200_000
NOTHING = LogFacts(bytes_total=0, head_bytes=0, tail_bytes=0, gap_bytes=0)


class Script(NamedTuple):
    """How a program behaves that a suite has written: when it ends by itself (None: never), as (exit code, signal);
    its answer to SIGTERM, and whether it does not listen to that."""

    after_us: int | None = None
    code: tuple[int | None, int | None] = (0, None)
    answer: tuple[int | None, int | None] = (None, 15)
    deaf: bool = False


SCRIPTED = "simulated:"


def script_of(argv: tuple[str, ...]) -> Script | None:
    """`simulated:exit CODE AFTER_US`, `simulated:signal NUMBER`, `simulated:trap CODE` (its answer to SIGTERM),
    `simulated:deaf` and `simulated:sleep`; None for every other program, whose life is drawn. Raises ValueError."""
    if not argv[0].startswith(SCRIPTED):
        return None
    match argv[0].removeprefix(SCRIPTED), *argv[1:]:
        case "exit", code, after_us:
            return Script(after_us=int(after_us), code=(int(code), None))
        case "signal", number:
            return Script(after_us=1_000, code=(None, int(number)))
        case "trap", code:
            return Script(answer=(int(code), None))
        case "deaf", *_:
            return Script(deaf=True)
        case "sleep", *_:
            return Script()
        case _:
            raise ValueError(f"no simulated program is called {argv[0]}")


class Tree:
    """One started command with everything that it started. `keeper` is whether its supervisor lives."""

    def __init__(self, host: Host, process: Process, job: Job, deadline_tick_us: int) -> None:
        self.host = host
        self.process = process
        self.job = job
        self.deadline_tick_us = deadline_tick_us
        self.began_tick_us = host.tick_us()
        self.boot_id = host.boot_id
        self.alive = True
        self.keeper = True
        self.stubborn = False  # its keeper could not end it, and who tries after it may not either
        self.stop_at_tick_us: int | None = None
        self.stop_reason: EndReason = "stopped"
        self.ended: Ended | None = None
        self.waiters: list[Task] = []


class Trees:
    """Everything that runs on all hosts, and whoever wants to know when something begins."""

    def __init__(self, loop: Loop, faults: Faults) -> None:
        self.loop = loop
        self.faults = faults
        self.alive: list[Tree] = []
        self.began: list[Callable[[Tree], None]] = []
        self.confirmed: list[Callable[[Tree], None]] = []
        self.speak: Callable[[Tree, Callable[[], None]], bool] = lambda tree, ends: False
        """Starts a program that says something while it runs, if this one does; `ends` is told of its own end."""
        self.count = 0

    def begin(self, tree: Tree) -> None:
        self.count += 1
        self.alive.append(tree)
        for step in self.began:
            step(tree)

    def power_cut(self, host: Host) -> None:
        """Everything that ran on a host is gone."""
        for tree in [tree for tree in self.alive if tree.host is host]:
            self.gone(tree)

    def gone(self, tree: Tree) -> None:
        tree.alive = False
        if tree in self.alive:
            self.alive.remove(tree)
        tree.host.locks.free(tree.job.lock_path, tree)


class SimExecutor:
    """`Executor` of one simulated process."""

    def __init__(self, trees: Trees, host: Host, process: Process) -> None:
        self._trees = trees
        self._host = host
        self._process = process

    @property
    def kind(self) -> str:
        return "command"

    @property
    def spending(self) -> Spending:
        return "opaque"

    def start(self, job: Job, deadline_tick_us: int) -> Running:
        self._trees.loop.pause()
        host, faults = self._host, self._trees.faults
        tree = Tree(host, self._process, job, deadline_tick_us)
        running = SimRunning(self._trees, tree)
        if faults.hits("spawn_fails") or job.argv[0] == f"{SCRIPTED}missing":
            running.settle("spawn_failed", message=f"simulated: no program {job.argv[0]}")
        elif deadline_tick_us - host.tick_us() <= STOP_LEAD_US:
            running.settle("lease_lost")
        elif host.locks.owner(job.lock_path) is not None:
            running.settle("not_started", message="simulated: the lock is held")
        else:
            host.locks.hold(job.lock_path, tree)
            self._trees.begin(tree)
            running.run()
        return running

    def holder_proof(self, lock_path: str, attempt: str, boot_id: str, *, same_host: bool) -> HolderProof:
        self._trees.loop.pause()
        return self._proof(attempt, boot_id)

    def end_holder(self, lock_path: str, attempt: str, boot_id: str, *, same_host: bool) -> HolderProof:
        self._trees.loop.pause()
        for tree in list(self._trees.alive):
            if tree.host is self._host and tree.job.attempt == attempt:
                if tree.stubborn and self._trees.faults.hits("not_ended"):
                    continue
                if tree.keeper:
                    tree.stop_at_tick_us = self._host.tick_us()
                self._trees.gone(tree)
        return self._proof(attempt, boot_id)

    def _proof(self, attempt: str, boot_id: str) -> HolderProof:
        if boot_id != self._host.boot_id:
            return HolderProof(gone=True, lock="not_examined", pids=(), evidence=("simulated: another boot",))
        here = [tree for tree in self._trees.alive if tree.host is self._host and tree.job.attempt == attempt]
        lock: Literal["held", "free"] = "held" if here else "free"
        return HolderProof(gone=not here, lock=lock, pids=(1,) * len(here), evidence=(f"simulated: lock {lock}",))

    def read_status(self, status_path: str) -> Status | None:
        return None

    def close(self) -> None:
        """Nothing is kept open."""


class SimRunning:
    """One execution, driven by its keeper's looks at the clock."""

    def __init__(self, trees: Trees, tree: Tree) -> None:
        self._trees = trees
        self._tree = tree
        self._natural_tick_us: int | None = None
        self._script: Script | None = None
        self._look_number = 0

    @property
    def pid(self) -> int | None:
        return 4_242

    def run(self) -> None:
        """Draw how it would end by itself, and have the keeper look at every moment that could end it."""
        loop, faults, tree = self._trees.loop, self._trees.faults, self._tree
        self._script = script_of(tree.job.argv)
        if self._script is not None:
            if self._script.after_us is not None:
                self._natural_tick_us = tree.began_tick_us + self._script.after_us
        elif not faults.hits("hangs") and not self._trees.speak(tree, self._exits):
            longest_us = LONG_US if loop.chance.random() < LONG_SHARE else SHORT_US * 20
            self._natural_tick_us = tree.began_tick_us + SHORT_US + int(loop.chance.random() * longest_us)
        if faults.hits("keeper_killed"):
            loop.call_at(loop.now_us + int(loop.chance.random() * SHORT_US * 20), self._keeper_killed)
        tree.process.at_exit.append(self._worker_gone)
        tree.host.on_wake.append(self._look)
        self._plan()

    def _exits(self) -> None:
        """The program has said everything, and ends by itself."""
        self._natural_tick_us = self._tree.host.tick_us()
        if self._tree.alive and self._tree.ended is None:
            self._plan()

    def _keeper_killed(self) -> None:
        self._tree.keeper = False
        self._notice()

    def _notice(self) -> None:
        """A worker that lives sees that its keeper is gone, and ends the tree by itself. One that stands still sees
        it later, and a dead one never."""
        loop, tree = self._trees.loop, self._tree
        if tree.ended is not None or not tree.process.alive:
            return
        if tree.process.frozen:
            loop.call_at(loop.now_us + NOTICE_US, self._notice)
            return
        self._trees.gone(tree)
        self._lost()

    def _worker_gone(self) -> None:
        self._order("worker_gone", STOP_GRACE_US)

    def _order(self, reason: EndReason, grace_us: int) -> None:
        tree = self._tree
        if tree.ended is not None or not tree.alive:
            return
        # A command takes some of its grace to end, or all of it.
        took_us = int(self._trees.loop.chance.random() * (grace_us + 1))
        if self._script is not None and self._script.deaf:
            took_us = grace_us
        at_tick_us = tree.host.tick_us() + took_us
        if tree.stop_at_tick_us is None or at_tick_us < tree.stop_at_tick_us:
            tree.stop_at_tick_us, tree.stop_reason = at_tick_us, reason
        self._plan()

    def _ends(self) -> list[tuple[int, EndReason]]:
        """Every moment, on the host's ticks, at which the tree is gone at the latest, and why."""
        tree = self._tree
        ends: list[tuple[int, EndReason]] = []
        if self._natural_tick_us is not None:
            ends.append((self._natural_tick_us, "exited"))
        if tree.keeper:
            ends.append((tree.began_tick_us + tree.job.time_limit_us, "timeout"))
            ends.append((tree.deadline_tick_us - STOP_LEAD_US + STOP_GRACE_US // 2, "lease_lost"))
            if tree.stop_at_tick_us is not None:
                ends.append((tree.stop_at_tick_us, tree.stop_reason))
        return ends

    def _plan(self) -> None:
        ends = self._ends()
        if ends:
            self._look_number += 1
            number = self._look_number
            self._trees.loop.call_at(self._tree.host.loop_us(min(ends)[0]), lambda: self._look(number))

    def _look(self, number: int | None = None) -> None:
        tree = self._tree
        if number not in (None, self._look_number) or tree.ended is not None or tree.host.asleep:
            return
        if not tree.alive:
            self._lost()
            return
        ends = self._ends()
        if not ends:
            return
        tick_us, reason = min(ends)
        if tree.host.tick_us() < tick_us:
            self._plan()
            return
        faults = self._trees.faults
        if not tree.keeper:
            self._trees.gone(tree)  # it ended by itself, and nobody is left who could tell how
            return
        contained = not faults.hits("not_contained") and not (reason == "lease_lost" and faults.hits("runs_on"))
        if contained:
            self._trees.gone(tree)
        else:
            tree.keeper, tree.stubborn = False, True
        exit_code, signal = self._code(reason)
        self.settle(reason, exit_code=exit_code, tree_empty=contained, signal=signal)

    def _code(self, reason: EndReason) -> tuple[int | None, int | None]:
        """(exit code, signal) of a command that ended for this reason."""
        script = self._script
        if script is not None:
            return script.code if reason == "exited" else (None, 9) if script.deaf else script.answer
        if reason != "exited":
            return None, 15
        badly = "verifier_fails" if self._tree.job.lock_path.endswith(".verify.lock") else "exits_badly"
        return int(self._trees.faults.hits(badly)), None

    def _lost(self) -> None:
        """The supervisor is gone, and nobody of the tree is left."""
        if self._tree.ended is None:
            self.settle("keeper_lost", message="simulated: the keeper was killed", signal=None)

    def settle(
        self,
        reason: EndReason,
        *,
        exit_code: int | None = None,
        signal: int | None = None,
        tree_empty: bool = True,
        message: str = "",
    ) -> None:
        tree = self._tree
        tree.ended = Ended(
            reason=reason,
            exit_code=exit_code,
            signal=signal,
            duration_us=max(tree.host.tick_us() - tree.began_tick_us, 0),
            tree_empty=tree_empty,
            stdout=NOTHING,
            stderr=NOTHING,
            message=message,
        )
        if self._look in tree.host.on_wake:
            tree.host.on_wake.remove(self._look)
        if self._worker_gone in tree.process.at_exit:
            tree.process.at_exit.remove(self._worker_gone)
        waiters, tree.waiters = tree.waiters, []
        for task in waiters:
            self._trees.loop.wake(task)

    def confirm(self, deadline_tick_us: int) -> None:
        tree = self._tree
        if deadline_tick_us > tree.deadline_tick_us:
            tree.deadline_tick_us = deadline_tick_us
            for step in self._trees.confirmed:
                step(tree)
            if tree.ended is None and tree.alive:
                self._plan()

    def stop(self, reason: StopReason, grace_us: int) -> None:
        if not 0 <= grace_us <= STOP_GRACE_US_MAX:
            raise ValueError(f"a grace is 0 to {STOP_GRACE_US_MAX} microseconds, not {grace_us}")
        self._order(reason, grace_us)

    def wait(self, timeout_s: float | None) -> Ended | None:
        loop, tree = self._trees.loop, self._tree
        until_us = None if timeout_s is None else loop.now_us + max(int(timeout_s * 1_000_000), 0)
        while tree.ended is None:
            task = loop.me()
            tree.waiters.append(task)
            if not loop.wait(until_us):
                if task in tree.waiters:
                    tree.waiters.remove(task)
                break
        return tree.ended

    def fileno(self) -> int:
        return -1
