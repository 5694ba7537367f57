"""One connection: what has come of a line and of its payload, and what has still to go."""

from __future__ import annotations

import socket
from typing import Final

from fencepost.ports.door import Answer, Asked
from fencepost.sdk import wire

_PIECE_BYTES: Final = 65_536


class Link:
    """A connection, and where its request stands: line, hold, payload, queued or reply. Used by one thread at a time.

    `until` is when it is late, None while the worker itself is what it waits for.
    """

    def __init__(self, made: socket.socket, until: float) -> None:
        self.socket = made
        self.state = "line"
        self.until: float | None = until
        self.watched = 1  # events that the selector looks for
        self.who = ""
        self.in_line = True  # a stranger's time runs from the beginning
        self.asked: Asked | None = None
        self.hang_up = False
        self.held_bytes = 0
        self.buffer = bytearray()
        self._searched = 0
        self._payload = bytearray()
        self._filled = 0
        self._out: list[memoryview] = []

    @property
    def is_idle(self) -> bool:
        """Whether it is known who has it, and nothing is asked on it."""
        return bool(self.who) and self.state == "line" and not self.buffer

    def take(self, line_bytes_max: int) -> bool:
        """Take what has come, if anything may come now. False at the end of the connection."""
        if self.state == "line":
            return self._take_line_bytes(line_bytes_max)
        return self.state != "payload" or self._take_payload_bytes()

    def _take_line_bytes(self, line_bytes_max: int) -> bool:
        room = line_bytes_max + 1 - len(self.buffer)
        if room <= 0:
            return True
        piece = self.socket.recv(min(room, _PIECE_BYTES))
        self.buffer += piece
        return bool(piece)

    def cut_line(self) -> bytes | None:
        """The next line without its end, None while it is not whole."""
        end = self.buffer.find(b"\n", self._searched)
        if end < 0:
            self._searched = len(self.buffer)
            return None
        line = bytes(self.buffer[:end])
        del self.buffer[: end + 1]
        self._searched = 0
        return line

    def sizes(self) -> tuple[int, int]:
        """Bytes of the payload that comes, and of that and the one that may go back together."""
        if self.asked is None:
            return 0, 0
        size = self.asked.payload_bytes or 0
        return size, size + self.asked.reply_bytes

    def begin_payload(self, size: int) -> None:
        self._payload = bytearray(size)
        self._filled = min(size, len(self.buffer))
        self._payload[: self._filled] = self.buffer[: self._filled]
        del self.buffer[: self._filled]
        self._searched = 0

    def _take_payload_bytes(self) -> bool:
        with memoryview(self._payload) as view:
            count = self.socket.recv_into(view[self._filled :])
        self._filled += count
        return count > 0

    @property
    def is_whole(self) -> bool:
        return self._filled == len(self._payload)

    @property
    def payload(self) -> bytes:
        return bytes(self._payload)

    def put_reply(self, answer: Answer) -> None:
        self._payload, self._filled = bytearray(), 0
        self.hang_up = answer.hang_up
        line = wire.encode(answer.reply) + b"\n"
        self._out = [memoryview(part) for part in (line, answer.payload) if part]

    def send(self) -> bool:
        """Send what is taken now; whether everything has gone."""
        while self._out:
            try:
                sent = self.socket.send(self._out[0])
            except BlockingIOError:
                return False
            if sent < len(self._out[0]):
                self._out[0] = self._out[0][sent:]
                continue
            del self._out[0]
        return True
