"""Frames between worker and keeper: four bytes of length, big-endian, and one JSON object.

Only the standard library, and little of it: this is loaded by the keeper host, which imports nothing else of
the package.
"""

from __future__ import annotations

import json
import struct

TYPE_CHECKING = False  # that of `typing`, without loading it
if TYPE_CHECKING:
    from typing import Any

    Message = dict[str, Any]

FRAME_BYTES_MAX = 16 * 1024 * 1024
"""Twice the port's bound on a job: JSON escapes may double it."""


class FrameBroken(Exception):
    """The other side sent what no frame may be."""


def encode(message: Message) -> bytes:
    """One frame. Lone surrogates (bytes of the operating system that are no UTF-8) survive as escapes."""
    body = json.dumps(message, separators=(",", ":")).encode("ascii")
    if len(body) > FRAME_BYTES_MAX:
        raise FrameBroken(f"a frame of {len(body)} bytes passes the bound of {FRAME_BYTES_MAX}")
    return struct.pack(">I", len(body)) + body


class Decoder:
    """Collects bytes as they come and gives whole messages."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[Message]:
        """The messages that `data` completes, in order. Raises FrameBroken."""
        self._buffer += data
        messages: list[Message] = []
        while len(self._buffer) >= 4:
            (length,) = struct.unpack_from(">I", self._buffer)
            if length > FRAME_BYTES_MAX:
                raise FrameBroken(f"a frame of {length} bytes passes the bound of {FRAME_BYTES_MAX}")
            if len(self._buffer) < 4 + length:
                break
            message = json.loads(self._buffer[4 : 4 + length])
            if not isinstance(message, dict):
                raise FrameBroken("a frame must hold one object")
            messages.append(message)
            del self._buffer[: 4 + length]
        return messages
