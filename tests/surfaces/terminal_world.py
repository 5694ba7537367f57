"""A real terminal for tests: a pseudo-terminal with an emulator behind it, and whatever runs on it."""

from __future__ import annotations

import errno
import fcntl
import os
import pty
import re
import select
import signal
import struct
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pyte

FULL_CLEAR = re.compile(rb"\x1b\[[23]J|\x1bc|\x1b\[\?1049")
"""What makes a screen flicker, or leaves it: erasing all of it, a reset, the other screen."""
WAIT_S = 30.0


class Emulator:
    """A screen that bytes are written to. Keeps all of them."""

    def __init__(self, columns: int, rows: int) -> None:
        self.screen = pyte.HistoryScreen(columns, rows, history=2_000)
        self._stream = pyte.ByteStream(self.screen)
        self.raw = b""

    def feed(self, data: bytes) -> None:
        self.raw += data
        self._stream.feed(data)

    def lines(self) -> list[str]:
        """What is on the screen, without what is empty at its end."""
        lines = [line.rstrip() for line in self.screen.display]
        while lines and not lines[-1]:
            lines.pop()
        return lines

    def scrolled(self) -> list[str]:
        """What has left the screen at its top."""
        columns = self.screen.columns
        return ["".join(line[place].data for place in range(columns)).rstrip() for line in self.screen.history.top]

    @property
    def text(self) -> str:
        return "\n".join(self.lines())

    @property
    def is_given_back(self) -> bool:
        """Whether the cursor is seen, and lines wrap, as before."""
        return not self.screen.cursor.hidden and pyte.modes.DECAWM in self.screen.mode


class OnTerminal(Emulator):
    """A program on a terminal of its own, session and all."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        folder: Path,
        environment: Mapping[str, str],
        columns: int = 80,
        rows: int = 24,
    ) -> None:
        super().__init__(columns, rows)
        self.pid, self._descriptor = pty.fork()
        if self.pid == 0:
            os.chdir(folder)
            os.execvpe(command[0], list(command), {"TERM": "xterm-256color", **environment})
        self.resize(columns, rows, tell=False)
        self.echo_before = self.echoes()

    def resize(self, columns: int, rows: int, *, tell: bool = True) -> None:
        fcntl.ioctl(self._descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        if tell:
            self.screen.resize(rows, columns)

    def echoes(self) -> bool:
        """Whether the terminal shows what is typed."""
        return bool(termios.tcgetattr(self._descriptor)[3] & termios.ECHO)

    def type(self, keys: bytes) -> None:
        os.write(self._descriptor, keys)

    def send(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def pump(self, seconds: float = 0.05) -> bool:
        """Take what is written within that time. False once nobody writes any more."""
        ready, _, _ = select.select([self._descriptor], [], [], seconds)
        if not ready:
            return True
        try:
            data = os.read(self._descriptor, 65_536)
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            return False
        self.feed(data)
        return bool(data)

    def until(self, seen: str | Callable[[Emulator], bool]) -> None:
        """Read on until the screen shows it."""
        deadline = time.monotonic() + WAIT_S
        while not (seen in self.text if isinstance(seen, str) else seen(self)):
            if not self.pump() or time.monotonic() > deadline:
                raise AssertionError(f"{seen!r} was never seen:\n{self.text}")

    def hang_up(self) -> int:
        """Close the terminal, as a window is closed; returns the exit code."""
        os.close(self._descriptor)
        _, status = os.waitpid(self.pid, 0)
        return os.waitstatus_to_exitcode(status)

    def ended(self) -> int:
        """Read to the end; returns the exit code."""
        deadline = time.monotonic() + WAIT_S
        while self.pump():
            if time.monotonic() > deadline:
                os.kill(self.pid, signal.SIGKILL)
                raise AssertionError(f"it did not end:\n{self.text}")
        _, status = os.waitpid(self.pid, 0)
        os.close(self._descriptor)
        return os.waitstatus_to_exitcode(status)
