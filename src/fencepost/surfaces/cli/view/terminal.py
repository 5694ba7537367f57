"""Draws lines in place on a terminal's main screen, and gives the terminal back as it was.

The block begins where the cursor stood. Between two drawings the cursor rests, hidden, at the block's first cell: when
the terminal is resized, whatever it does to the lines below, the block is drawn anew from there. A drawing writes only
the lines that differ, in one write that terminals with synchronized output show at once; nothing is ever cleared to be
written again, and automatic wrapping is off, so that a line can neither flicker nor wrap.

Control-C, Control-Z and what comes after, termination and errors all end with cursor, wrapping and echo restored.
"""

from __future__ import annotations

import os
import signal
import termios
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import FrameType
from typing import Any, Final, TextIO

from fencepost.app import stop
from fencepost.surfaces.cli.view.cells import Line, painted

_BEGIN: Final = "\x1b[?2026h"
_END: Final = "\x1b[?2026l"
_HIDE: Final = "\x1b[?25l\x1b[?7l"
_SHOW: Final = "\x1b[?7h\x1b[?25h"
_REST_OF_LINE: Final = "\x1b[K"
_REST_OF_SCREEN: Final = "\x1b[J"
SIZE_FIRST: Final = (80, 24)  # of a terminal that does not know its own


class Terminal:
    """One block of lines on a terminal, from `open` to `close`."""

    def __init__(self, out: TextIO, *, colour: bool) -> None:
        self._out = out
        self._descriptor = out.fileno()
        self._colour = colour
        self._drawn: list[str] = []
        self._size = (0, 0)
        self._echo: list[Any] | None = None
        self._before: list[tuple[signal.Signals, Any]] = []
        self._stop_asked = False
        self._continued = False
        self._away = True
        self.gone = False
        """Whether the terminal takes nothing any more."""

    def open(self) -> None:
        """Take the terminal."""
        self._out.flush()
        self._catch(signal.SIGTSTP, self._asked_to_stop)
        self._catch(signal.SIGCONT, self._has_continued)
        self._catch(signal.SIGQUIT, self._quit)
        self._take()

    def size(self) -> tuple[int, int]:
        """Columns and rows, as they are now."""
        try:
            columns, rows = os.get_terminal_size(self._descriptor)
        except OSError:
            return SIZE_FIRST
        return (columns, rows) if columns > 0 and rows > 0 else SIZE_FIRST

    def in_front(self) -> bool:
        """Whether this process may write to the terminal: in the background it leaves it alone."""
        try:
            return os.tcgetpgrp(self._descriptor) == os.getpgrp()
        except OSError:
            return True  # not the controlling terminal of anybody, so that nobody else uses it

    def attend(self) -> bool:
        """Carry out a stop that was asked for. False while others have the terminal."""
        if self._stop_asked:
            self._stop_asked = False
            self._stop_here()
        if self._continued:
            # Whoever stopped this without asking, and the shell meanwhile, left the terminal in some state.
            self._continued, self._away = False, True
        if self._away and not self.gone and self.in_front():
            self._take()
        return not self._away and not self.gone

    def draw(self, lines: Sequence[Line], *, anew: bool = False) -> None:
        """Show these lines in the block's place; with `anew` all of them, whatever stood there."""
        if not self.attend():
            return
        size = self.size()
        texts = [self.rendered(line) for line in lines][: max(size[1] - 1, 1)]
        if anew or size != self._size:
            self._size = size
            changes = self._all(texts)
        else:
            changes = self._differences(texts)
        self._drawn = texts
        if changes:
            self._write(f"{_BEGIN}{changes}{_END}")

    def clear(self) -> None:
        """Take the block away; what is written next stands in its place."""
        if not self._away and self._drawn:
            self._write(f"{_BEGIN}\r{_REST_OF_SCREEN}{_END}")
        self._drawn = []

    def close(self) -> None:
        """Give the terminal back, below what was drawn last. A second call does nothing."""
        self._leave()
        for number, handler in self._before:
            signal.signal(number, handler)
        self._before = []

    def rendered(self, line: Line) -> str:
        """A line with its styles, which end with it."""
        encoding = getattr(self._out, "encoding", None) or "utf-8"
        return painted(line, colour=self._colour).encode(encoding, "replace").decode(encoding)

    def _all(self, texts: Sequence[str]) -> str:
        """The block from its first line on. New lines at the screen's end scroll it, and only then."""
        parts = ["\r", _REST_OF_SCREEN if self._drawn else ""]
        for place, text in enumerate(texts):
            parts.append(f"{text}{_REST_OF_LINE}" + ("\r\n" if place < len(texts) - 1 else ""))
        return "".join(parts) + "\r" + _up(len(texts) - 1)

    def _differences(self, texts: Sequence[str]) -> str:
        before = self._drawn
        parts: list[str] = []
        at = 0
        for place, text in enumerate(texts):
            if place < len(before) and before[place] == text:
                continue
            if place < max(len(before), 1):
                parts.append(_down(place - at))
            else:
                # The line before may be the screen's last: only a line feed makes room.
                parts.append(_down(len(before) - 1 - at) if at < len(before) - 1 else "")
                parts.append("\n" * (place - max(at, len(before) - 1)))
            parts.append(f"\r{text}{_REST_OF_LINE}")
            at = place
        if len(before) > len(texts):
            first = len(texts)
            parts.append(f"{_down(first - at)}\r{_REST_OF_SCREEN}")
            at = first
        return "".join(parts) + (f"\r{_up(at)}" if parts else "")

    def _take(self) -> None:
        """Have the terminal, or take it again: no cursor, no wrapping, no echo of what is typed meanwhile."""
        if not self.in_front():
            self._away = True
            return
        self._away = False
        self._drawn = []
        self._size = (0, 0)
        self._write(f"\r{_HIDE}")
        with suppress(termios.error, OSError):
            found = termios.tcgetattr(self._descriptor)
            self._echo = self._echo if self._echo is not None else found
            changed = list(found)
            changed[3] &= ~(termios.ECHO | termios.ECHONL)
            termios.tcsetattr(self._descriptor, termios.TCSADRAIN, changed)

    def _leave(self) -> None:
        """Give it back, the cursor on the line below the block."""
        if self._away:
            return
        self._away = True
        below = f"{_down(len(self._drawn) - 1)}\r\n" if self._drawn else "\r"
        self._write(f"{below}{_SHOW}")
        if self._echo is not None:
            with suppress(termios.error, OSError):
                termios.tcsetattr(self._descriptor, termios.TCSADRAIN, self._echo)
            self._echo = None

    def restore(self) -> None:
        """For whoever ends the process at once, from a signal's handler too."""
        self._leave()

    def _stop_here(self) -> None:
        """Stop as any program does on Control-Z, and go on where the shell lets it."""
        self._leave()
        stop(signal.SIGTSTP)  # not while a worker beside this view writes

    def _catch(self, number: signal.Signals, handler: Callable[[int, FrameType | None], None]) -> None:
        if signal.getsignal(number) == signal.SIG_IGN:
            return
        try:
            before = signal.signal(number, handler)
        except ValueError:
            return  # not the main thread, to which alone signals come
        self._before.append((number, before))

    def _asked_to_stop(self, _number: int, _frame: FrameType | None) -> None:
        self._stop_asked = True

    def _has_continued(self, _number: int, _frame: FrameType | None) -> None:
        self._continued = True

    def _quit(self, number: int, _frame: FrameType | None) -> None:
        self._leave()
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    def _write(self, text: str) -> None:
        if self.gone:
            return
        data = text.encode(getattr(self._out, "encoding", None) or "utf-8", "replace")
        try:
            while data:
                data = data[os.write(self._descriptor, data) :]
        except BlockingIOError:
            self._size = (0, 0)  # a terminal that was made non-blocking and is full: the next drawing is whole again
        except OSError:
            self.gone = True  # it was closed: the work goes on without


def _down(lines: int) -> str:
    return f"\x1b[{lines}B" if lines > 0 else ""


def _up(lines: int) -> str:
    return f"\x1b[{lines}A" if lines > 0 else ""
