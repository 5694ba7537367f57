"""The threads port on a loop: locks, events and time of a simulated process."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType

from fencepost.ports.threads import Event, Lock, Thread
from fencepost.testing.simulator.hosts import Host
from fencepost.testing.simulator.loop import Loop, Process, Task

PREEMPTED = 0.1  # share of the locks at which somebody else goes first


class SimThreads:
    """`Threads` of one simulated process."""

    def __init__(self, process: Process, host: Host) -> None:
        self._process = process
        self._loop = process.loop
        self._host = host

    def start(self, target: Callable[[], object], *, name: str) -> Thread:
        return _SimThread(self._loop, self._loop.spawn(self._process, target, name))

    def lock(self) -> Lock:
        return _SimLock(self._loop)

    def event(self) -> Event:
        return _SimEvent(self._host)

    def monotonic(self) -> float:
        return self._host.tick_us() / 1_000_000

    def sleep(self, seconds: float) -> None:
        self._loop.wait(_end_us(self._host, seconds))


class _SimThread:
    def __init__(self, loop: Loop, task: Task) -> None:
        self._loop = loop
        self._task = task

    def join(self) -> None:
        while not self._task.done:
            self._task.joiners.append(self._loop.me())
            self._loop.wait(None)


class _SimLock:
    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._owner: Task | None = None
        self._waiters: list[Task] = []

    def __enter__(self) -> object:
        self.acquire()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def acquire(self, blocking: bool = True) -> bool:
        if self._loop.chance.random() < PREEMPTED:
            self._loop.pause()
        while self._owner is not None:
            if not blocking:
                return False
            self._waiters.append(self._loop.me())
            self._loop.wait(None)
        self._owner = self._loop.me()
        return True

    def release(self) -> None:
        self._owner = None
        waiters, self._waiters = self._waiters, []
        for task in waiters:
            self._loop.wake(task)

    def locked(self) -> bool:
        return self._owner is not None


class _SimEvent:
    def __init__(self, host: Host) -> None:
        self._loop = host.loop
        self._host = host
        self._set = False
        self._waiters: list[Task] = []

    def is_set(self) -> bool:
        return self._set

    def set(self) -> None:
        self._set = True
        waiters, self._waiters = self._waiters, []
        for task in waiters:
            self._loop.wake(task)

    def clear(self) -> None:
        self._set = False

    def wait(self, timeout: float | None = None) -> bool:
        if self._set:
            return True
        until_us = None if timeout is None else _end_us(self._host, timeout)
        task = self._loop.me()
        self._waiters.append(task)
        self._loop.wait(until_us)
        if task in self._waiters:
            self._waiters.remove(task)  # nobody may wake it out of a later wait for this one's sake
        return self._set


def _end_us(host: Host, seconds: float) -> int:
    """The loop's time at which so many seconds of this host have passed: its clocks may run slow."""
    return host.loop.now_us if seconds <= 0 else host.loop_us(host.tick_us() + int(seconds * 1_000_000))
