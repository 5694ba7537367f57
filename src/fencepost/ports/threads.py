"""The threads port: lines of work inside one process, what they wait for, and how they wait.

The services of a worker run side by side. They say here, and nowhere else, where one of them waits for another or for
time to pass, so that the same services run on a system's threads and, turn by turn on one thread, under a simulator.

Rules of the port:

* A thread never keeps its process alive, and nothing outside of the process waits for one.
* Between two calls of this port, or of one that reads or writes the world, a simulated thread is alone; a real one
  never is. Shared data stands under a lock all the same.
* Seconds are those of a clock that no setting of the system's time moves.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol


class Lock(AbstractContextManager[object], Protocol):
    """Held by one thread at a time, for the length of a `with` block or from `acquire` to `release`. Not reentrant."""

    def acquire(self, blocking: bool = True) -> bool:
        """Take it; returns whether it was taken. Without `blocking` nobody is waited for."""
        ...

    def release(self) -> None:
        """Give back what this thread has taken."""
        ...

    def locked(self) -> bool:
        """Whether somebody holds it just now."""
        ...


class Event(Protocol):
    """A flag that threads wait for."""

    def is_set(self) -> bool: ...

    def set(self) -> None: ...

    def clear(self) -> None: ...

    def wait(self, timeout: float | None = None) -> bool:
        """Return True once it is set, False after `timeout` seconds; None waits without limit."""
        ...


class Thread(Protocol):
    """One line of work that was started."""

    def join(self) -> None:
        """Return when it has ended."""
        ...


class Threads(Protocol):
    """Makes threads and what they share."""

    def start(self, target: Callable[[], object], *, name: str) -> Thread: ...

    def lock(self) -> Lock: ...

    def event(self) -> Event: ...

    def monotonic(self) -> float:
        """Seconds since some moment of this host's past; they only grow."""
        ...

    def sleep(self, seconds: float) -> None: ...
