"""A link between a client and a PostgreSQL server that loses what it is told to lose: around a COMMIT.

The link is a unix socket that a client takes for the server's. Everything passes, until the next COMMIT of any
connection meets the next entry of `fates`:

- `lost_answer`: the server commits, and the link breaks before its answer.
- `lost_request`: the link breaks before the server hears of it.
- `late`: the link breaks at once, and the server hears of the COMMIT after `LATE_S` seconds.
"""

from __future__ import annotations

import socket
import threading
import time
from collections import deque
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Literal

Fate = Literal["pass", "lost_answer", "lost_request", "late"]

LATE_S = 0.4
_SOCKET_NAME = ".s.PGSQL.5432"
_COMMIT = b"Q" + (4 + 7).to_bytes(4) + b"COMMIT\0"  # a message: its kind, its length without the kind, its text
_COMMITTED = b"C" + (4 + 7).to_bytes(4) + b"COMMIT\0"


class Link:
    """A listening link; `folder` is what a client names as the server's host."""

    def __init__(self, folder: Path, server_folder: Path) -> None:
        self.folder = folder
        self.fates: deque[Fate] = deque()
        self.met: list[Fate] = []
        self._upstream = str(server_folder / _SOCKET_NAME)
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(folder / _SOCKET_NAME))
        self._listener.listen()
        self._threads: list[threading.Thread] = []
        self._start(self._accept)

    def __enter__(self) -> Link:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End once every client is gone."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join(20)

    def _start(self, target: object, *arguments: object) -> None:
        thread = threading.Thread(target=target, args=arguments, daemon=True)  # type: ignore[arg-type]  # a function
        thread.start()
        self._threads.append(thread)

    def _accept(self) -> None:
        with suppress(OSError):  # closed
            while True:
                client, _ = self._listener.accept()
                server = socket.socket(socket.AF_UNIX)
                server.connect(self._upstream)
                _Pair(self, client, server).start(self._start)


class _Pair:
    """One client's connection."""

    def __init__(self, link: Link, client: socket.socket, server: socket.socket) -> None:
        self._link = link
        self._client = client
        self._server = server
        self._fate: Fate = "pass"

    def start(self, run: object) -> None:
        run(self._requests)  # type: ignore[operator]  # Link._start
        run(self._answers)  # type: ignore[operator]  # Link._start

    def _requests(self) -> None:
        with suppress(OSError):
            while data := self._client.recv(1 << 16):
                # Messages of one round trip arrive together, and a COMMIT is a round trip of its own.
                if data == _COMMIT and self._link.fates:
                    self._fate = self._link.fates.popleft()
                    self._link.met.append(self._fate)
                    if self._fate == "lost_request":
                        break
                    if self._fate == "late":
                        _cut(self._client)
                        time.sleep(LATE_S)
                self._server.sendall(data)
                if self._fate == "late":
                    return  # the answer's thread closes what is left
        if self._fate != "lost_answer":
            _cut(self._client)
            _cut(self._server)

    def _answers(self) -> None:
        with suppress(OSError):
            while data := self._server.recv(1 << 16):
                if self._fate in ("lost_answer", "late") and _COMMITTED in data:
                    break
                self._client.sendall(data)
        _cut(self._client)
        _cut(self._server)


def _cut(end: socket.socket) -> None:
    with suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
    end.close()
