"""A terminal of a test's own: this process writes to it, and reads what its screen shows."""

from __future__ import annotations

import os
import pty
import select
import struct
import termios
from fcntl import ioctl
from typing import TextIO

from fencepost.surfaces.cli.view.cells import Line, Span
from fencepost.surfaces.cli.view.terminal import Terminal
from tests.surfaces.terminal_world import Emulator


class Board:
    """A terminal whose screen this process writes and reads."""

    def __init__(self, columns: int, rows: int) -> None:
        self._ours, theirs = pty.openpty()
        self.out: TextIO = os.fdopen(theirs, "w", encoding="utf-8")
        self.emulator = Emulator(columns, rows)
        self.resize(columns, rows)
        self.terminal = Terminal(self.out, colour=True)

    def resize(self, columns: int, rows: int) -> None:
        ioctl(self._ours, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.emulator.screen.resize(rows, columns)

    def echoes(self) -> bool:
        return bool(termios.tcgetattr(self.out.fileno())[3] & termios.ECHO)

    def write(self, text: str) -> None:
        self.out.write(text)
        self.out.flush()

    def draw(self, *texts: str) -> bytes:
        """Draw lines; returns the bytes that it took."""
        before = len(self.emulator.raw)
        self.terminal.draw(lines(*texts))
        self.pump()
        return self.emulator.raw[before:]

    def pump(self) -> list[str]:
        while select.select([self._ours], [], [], 0.02)[0]:
            self.emulator.feed(os.read(self._ours, 65_536))
        return self.emulator.lines()

    def close(self) -> None:
        self.terminal.close()
        self.out.close()
        os.close(self._ours)


def lines(*texts: str) -> list[Line]:
    return [(Span(text, "done"),) for text in texts]
