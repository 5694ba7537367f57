"""A stop of this process from its terminal waits until it is nobody's turn to write.

Whoever is stopped (Control-Z) while it holds the writer's lock holds up every other process of the store, whose leases
run out meanwhile. So a process of the command line takes the signals that stop by themselves, and stops when its last
transaction has ended, within milliseconds. A commit pays two entries of a table for it and no call of the system.
SIGSTOP asks nobody; `fencepost doctor` names a process that it holds with such a lock.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

TAKEN = (signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU)
WAIT_S_MAX = 35.0
"""How long a stop waits for writers of this process: longer than any of them waits for its turn."""
_PAUSE_S = 0.001
_YIELDS_MAX = 200  # pauses of a writer, so that whoever waits for the end of all of them has its turn


class _Gate:
    """What this process knows of its writers. One of it: a stop is of the whole process."""

    def __init__(self) -> None:
        self._guard = threading.RLock()  # a handler may come while its own thread has it
        self._writing: dict[int, int] = {}  # journal -> thread that has, or waits for, the right to write
        self._asked = 0  # signal of a stop that waits for its own thread to end writing
        self._waiting = False  # whether a stop waits for other threads

    def begin(self, journal: int) -> None:
        for _ in range(_YIELDS_MAX):
            if not self._waiting:
                break
            time.sleep(_PAUSE_S)
        with self._guard:
            self._writing[journal] = threading.get_ident()

    def end(self, journal: int) -> None:
        with self._guard:
            self._writing.pop(journal, None)
            number = 0 if self._writing else self._asked
            if number:
                self._asked = 0
        if number:
            os.kill(os.getpid(), number)

    def stop(self, number: int) -> None:
        until = time.monotonic() + WAIT_S_MAX
        try:
            while not self._stopped_now(number, is_late=time.monotonic() >= until):
                time.sleep(_PAUSE_S)
        finally:
            self._waiting = False

    def _stopped_now(self, number: int, *, is_late: bool) -> bool:
        """Whether this process was stopped and goes on again, or will be by its own thread; else others write."""
        with self._guard:
            if threading.get_ident() in self._writing.values():
                self._asked = number
                return True
            if self._writing and not is_late:
                self._waiting = True
                return False
            # Whoever would begin to write now waits for the guard, and with this process.
            handler = signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
            signal.signal(number, handler)
            return True


_GATE = _Gate()


def begin_writing(journal: int) -> None:
    """This thread is about to wait for the right to write, and then to have it."""
    _GATE.begin(journal)


def end_writing(journal: int) -> None:
    """It has no lock any more. Fine where it never began. A stop that had to wait for it comes now."""
    _GATE.end(journal)


def stop(number: int) -> None:
    """Stop this process as `number` does by itself, once none of its threads holds a lock of writers.

    Called in the main thread. Where that writes itself, returns at once, and the signal is sent again at the end.
    """
    _GATE.stop(number)


@contextmanager
def stopping_between_commits() -> Iterator[None]:
    """While the block lasts, the signals of `TAKEN` that nobody has taken or ignored stop this process by `stop`."""
    taken: list[signal.Signals] = []
    if threading.current_thread() is threading.main_thread():
        for number in TAKEN:
            if signal.getsignal(number) == signal.SIG_DFL:
                signal.signal(number, _stopped)
                taken.append(number)
    try:
        yield
    finally:
        for number in taken:
            if signal.getsignal(number) is _stopped:
                signal.signal(number, signal.SIG_DFL)


def _stopped(number: int, _frame: FrameType | None) -> None:
    stop(number)
