"""The store that all simulated processes share, and each process's own way to it.

Below is an engine, which is whole or not at all: the one in memory, or one that its author tries here. What goes wrong
is the way there: a lock that is not got, a step that fails, a commit that is durable and whose answer is lost, a
process that is gone between two steps. Whoever dies in a transaction leaves nothing of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import ParamSpec, Protocol, TypeVar

from fencepost.ports.errors import StorageFull, StorageUnavailable
from fencepost.ports.journal import Append, Journal, Reads, StoreInfo, Stream, Transaction
from fencepost.testing.simulator.faults import Faults
from fencepost.testing.simulator.loop import Loop, Process, Task

SLOW_US = 1_000_000
DELAY_US = 15_000_000  # of an answer: longer than a lease

P = ParamSpec("P")
R = TypeVar("R")


class Watch(Protocol):
    """Told of every transaction."""

    def begun(self, process: Process) -> None: ...

    def committed(self, process: Process, append: Append | None) -> None:
        """At the moment of truth: it is durable; None for one that only looked."""
        ...


class Disk:
    """One store, and the turn of those who write to it."""

    def __init__(self, loop: Loop, faults: Faults, engine: Journal) -> None:
        self.loop = loop
        self.engine = engine
        self.faults = faults
        self.watch: Watch
        self.full = False
        self.away_until_us = 0
        self.trouble_us = 0  # when it last failed somebody, or kept somebody waiting
        self.crash: Callable[[Process], None] = Process.kill
        self.drains: dict[Process, Callable[[], None]] = {}  # what tells a worker to leave, for each that serves
        self.reopen: Callable[[Journal], Journal] | None = None
        self._owner: Process | None = None
        self._open: AbstractContextManager[Transaction] | None = None
        self._transaction: Transaction | None = None
        self._waiters: list[Task] = []

    def journal(self, process: Process) -> SimJournal:
        process.at_exit.append(lambda: self._let_go(process))
        return SimJournal(self, process)

    def step(self, process: Process, fault: str = "") -> None:
        """One step of storage: others go on, the process may be gone, the step may fail."""
        loop, faults = self.loop, self.faults
        loop.pause()
        if faults.hits("crash_at_step"):
            self.crash(process)
            loop.pause()
        if process in self.drains and faults.hits("drain_at_step"):
            self.drains.pop(process)()
            loop.pause()
        if faults.hits("slow"):
            loop.wait(loop.now_us + int(loop.chance.random() * SLOW_US))
            self.trouble_us = loop.now_us
        if loop.now_us < self.away_until_us:
            raise StorageUnavailable("simulated: the store is away")
        if fault and faults.hits(fault):
            self.trouble_us = loop.now_us
            raise StorageUnavailable(f"simulated: {fault}")

    def in_trouble(self) -> bool:
        """Whether nobody can write just now: it is full or away, or whoever writes stands still."""
        owner = self._owner
        still = owner is not None and (owner.frozen or owner.stuck > 0)
        return self.full or self.loop.now_us < self.away_until_us or still

    def take(self, process: Process, stream: Stream, wait_s: float) -> Transaction:
        until_us = self.loop.now_us + int(wait_s * 1_000_000)
        while self._owner is not None:
            task = self.loop.me()
            self._waiters.append(task)
            if not self.loop.wait(until_us):
                if task in self._waiters:
                    self._waiters.remove(task)
                raise StorageUnavailable("simulated: another writer has held the store for too long")
        self._owner = process
        self._open = self.engine.transaction(stream)
        self._transaction = self._open.__enter__()
        return self._transaction

    def power_cut(self) -> None:
        """The machine that the store lies on starts anew: whoever writes is cut off, and what was durable is there."""
        if self.reopen is not None:
            if self._owner is not None:
                self._let_go(self._owner)
            self.engine = self.reopen(self.engine)

    def _let_go(self, process: Process) -> None:
        if self._owner is process and self._transaction is not None:
            self.give_back(self._transaction)

    def give_back(self, transaction: Transaction) -> None:
        """One that was cut off has been given back already."""
        if self._transaction is not transaction or self._open is None:
            return
        self._open.__exit__(None, None, None)
        self._owner = self._open = self._transaction = None
        waiters, self._waiters = self._waiters, []
        for task in waiters:
            self.loop.wake(task)


class SimJournal:
    """The journal port of one simulated process."""

    def __init__(self, disk: Disk, process: Process) -> None:
        self._disk = disk
        self._process = process
        self._closed = False

    @property
    def engine(self) -> str:
        return "simulated"

    @property
    def info(self) -> StoreInfo:
        self._require_open()
        return self._disk.engine.info

    @contextmanager
    def transaction(self, stream: Stream, *, wait_s: float = 30.0) -> Iterator[Transaction]:
        self._require_open()
        disk, process = self._disk, self._process
        disk.step(process, "begin_fails")
        inner = disk.take(process, stream, wait_s)
        transaction = SimTransaction(disk, process, inner)
        try:
            disk.step(process)
            disk.watch.begun(process)
            yield transaction
            if transaction.appended is None:
                disk.watch.committed(process, None)
        finally:
            disk.give_back(inner)

    def snapshot(self) -> AbstractContextManager[Reads]:
        self._require_open()
        self._disk.step(self._process, "read_fails")
        return self._disk.engine.snapshot()

    def change_token(self) -> int:
        self._require_open()
        return self._disk.engine.change_token()

    def close(self) -> None:
        self._closed = True

    def _require_open(self) -> None:
        if self._closed:
            raise StorageUnavailable("this store is closed", next_step="open the store again")


class SimTransaction:
    """A transaction, each of whose questions and changes is a step: others go on meanwhile, or its process is gone."""

    def __init__(self, disk: Disk, process: Process, inner: Transaction) -> None:
        self._disk = disk
        self._process = process
        self._inner = inner
        self.appended: Append | None = None
        self.head = inner.head
        self.streams = inner.streams
        self.states = self._step(inner.states)
        self.state_page = self._step(inner.state_page)
        self.command = self._step(inner.command)
        self.commands = self._step(inner.commands)
        self.records = self._step(inner.records)
        self.find_due = self._step(inner.find_due)
        self.find_last = self._step(inner.find_last)
        self.next_due = self._step(inner.next_due)
        self.index_page = self._step(inner.index_page)
        self.edges = self._step(inner.edges)
        self.edge_count = self._step(inner.edge_count)
        self.replace_caches = self._step(inner.replace_caches)

    def _step(self, call: Callable[P, R]) -> Callable[P, R]:
        disk, process = self._disk, self._process

        def stepped(*arguments: P.args, **named: P.kwargs) -> R:
            disk.step(process)
            return call(*arguments, **named)

        return stepped

    def append(self, group: Append) -> None:
        self.appended = group
        self._disk.step(self._process, "append_fails")
        if self._disk.full:
            raise StorageFull("simulated: no space is left")
        self._inner.append(group)

    def commit(self) -> None:
        self._disk.step(self._process, "commit_fails")
        disk, loop = self._disk, self._disk.loop
        self._inner.commit()
        disk.watch.committed(self._process, self.appended)
        if disk.faults.hits("answer_delayed"):
            disk.give_back(self._inner)
            self._process.stuck += 1
            loop.wait(loop.now_us + int(loop.chance.random() * DELAY_US))
            self._process.stuck -= 1
            self._process.steady_us = loop.now_us
        disk.step(self._process, "commit_unanswered")
