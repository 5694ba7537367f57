"""Stopping on a signal: the first asks for a drain, the second kills what runs, the third ends the process at once.

Where nothing runs that could be drained or killed the second ends the process. Ending at once is as safe as any kill:
whatever it leaves is found by whoever comes next, though a program may run on for some seconds.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any

STOPPING = "stopping: what runs is stopped cleanly and costs no attempt; another signal kills it"
KILLING = "killing what still runs, which costs no attempt either; another signal leaves at once, whatever runs"
TICK_S = 0.1  # how late a signal may be noticed


class Interrupts:
    """While the block lasts, a signal is remembered in `code`: 128 and its number, None before one came.

    SIGINT and SIGTERM, and SIGHUP of a terminal that was closed, unless its sender was told to be ignored (`nohup`).
    """

    def __init__(self) -> None:
        self.code: int | None = None
        self.again = False  # whether a second signal asks to kill what runs
        self.can_kill = False
        """Whether somebody looks at `again`. Nobody needs to before there is a worker, and after its end."""
        self.before_exit: Callable[[], None] | None = None
        """Called before the process is ended at once, from the signal's handler: it gives a terminal back."""
        self._before: list[tuple[signal.Signals, Any]] = []

    def __enter__(self) -> Interrupts:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if number == signal.SIGHUP and signal.getsignal(number) == signal.SIG_IGN:
                continue
            self._before.append((number, signal.signal(number, self._seen)))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for number, handler in self._before:
            signal.signal(number, handler)

    def _seen(self, number: int, _frame: FrameType | None) -> None:
        if self.code is not None and self.can_kill and not self.again:
            self.again = True
        elif self.code is not None:
            try:
                if self.before_exit is not None:
                    self.before_exit()
            finally:
                os._exit(128 + number)
        else:
            self.code = 128 + number

    def pause(self) -> None:
        """Sleep a little; a signal shortens it."""
        if self.code is None:
            time.sleep(TICK_S)
