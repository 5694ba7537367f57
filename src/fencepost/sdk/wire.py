"""The words that a program and its worker exchange: one JSON object a line each way, over a socket of the host.

A request is a line of at most `LINE_BYTES_MAX` bytes, followed by exactly `bytes` raw ones where it has that field. A
reply is a line of at most `REPLY_BYTES_MAX`, followed in the same way. A request that is sent twice does no harm, so
that one whose reply was lost is sent again by whoever sent it. `docs/ATTEMPTS.md` says what may be asked.
"""

from __future__ import annotations

import json
import os
import time
from _socket import AF_UNIX, SOCK_STREAM, socket  # `socket` is this, and loads as much again for servers
from _thread import allocate_lock

TYPE_CHECKING = False  # that of `typing`, without loading it
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any, Final, TypeVar

    Made = TypeVar("Made")

VERSION: Final = 1
LINE_BYTES_MAX: Final = 65_536
"""Bytes of a request's line, inclusive, without its end."""
REPLY_BYTES_MAX: Final = 8 * 2**20
"""Bytes of a reply's line, inclusive, without its end."""
PAYLOAD_BYTES_MAX: Final = 16 * 2**20
"""Raw bytes behind a line, inclusive."""
REPLY_TIMEOUT_S: Final = 120.0
TRIES_MAX: Final = 4
AGAIN_S: Final = 0.2
BUSY_S: Final = 30.0
"""How long a worker that is busy is asked again."""
NAMELESS_S: Final = 3.0
"""How long a socket that is not there may take to come back."""

NOTHING_CHARGED: Final = "a charge says what was used, and this one names no amount and nothing that is unknown"
SAY_WHAT: Final = "name an amount, 0 where that is known, or what is unknown; charge when it is known, not before"

EXIT_UNEXPECTED: Final = 1
EXIT_USAGE: Final = 2


class Refused(Exception):
    """The worker refused what was asked. `code` is stable; `exit_code` is what a command exits with."""

    def __init__(self, code: str, message: str, where: Any = None, next: str = "", exit_code: int = 1) -> None:
        super().__init__(code, message, where, next, exit_code)
        self.code = code
        self.message = message
        self.where = where
        self.next = next
        self.exit_code = exit_code

    def __str__(self) -> str:
        """All of it, in one line: `[code] message; where: /place; next: what to do`."""
        parts = [f"[{self.code}] {self.message}"]
        parts += [f"where: {self.where}"] if self.where else []
        parts += [f"next: {self.next}"] if self.next else []
        return "; ".join(parts)


class StaleFence(Refused):
    """The attempt's lease is over: whatever it does now changes nothing. Stop."""


class Unreachable(Refused):
    """There is no worker to talk to: this is no attempt, or the worker is gone and the end of the attempt is near."""


def own(by_process: dict[int, Made], make: Callable[[], Made]) -> Made:
    """What this process has of its own, made when it first asks. What a parent had is let go of: a lock of it may be
    held by a thread that is not here. Without a lock, since a dictionary takes a first value in once."""
    process = os.getpid()
    found = by_process.get(process)
    if found is None:
        found = by_process.setdefault(process, make())
        for other in list(by_process):
            if other != process:
                by_process.pop(other, None)
    return found


def refusal_of(reply: Mapping[str, Any]) -> Refused:
    """The exception that says what a reply refuses."""
    error = reply.get("error")
    error = error if isinstance(error, dict) else {}
    code = str(error.get("code", "internal_error"))
    kind = StaleFence if code in ("stale_fence", "rejected_stale") else Refused
    exit_code = reply.get("exit")
    return kind(
        code,
        str(error.get("message", "the worker refused it")),
        error.get("where"),
        str(error.get("next", "")),
        exit_code if isinstance(exit_code, int) else EXIT_UNEXPECTED,
    )


def encode(fields: Mapping[str, Any]) -> bytes:
    """One object as a line. Raises ValueError for what is no JSON, or holds a fraction that is no number."""
    return json.dumps(fields, ensure_ascii=False, allow_nan=False, separators=(",", ":"), sort_keys=True).encode()


class Connection:
    """A way to ask the worker, made when it is first used and again when it breaks. Safe for several threads, and for
    processes that are forked off: each has a link of its own, whatever a thread of another did as it began."""

    def __init__(self, path: str, token: str, *, timeout_s: float = REPLY_TIMEOUT_S) -> None:
        self._path = path
        self._token = token
        self._timeout_s = timeout_s
        self._links: dict[int, _Link] = {}  # of one process

    def ask(self, op: str, payload: bytes | None = None, **fields: Any) -> tuple[dict[str, Any], bytes]:
        """Ask, and return the reply with the raw bytes behind it. Raises Refused, and Unreachable where nobody
        answers."""
        request = {"v": VERSION, "token": self._token, "op": op, **fields}
        if payload is not None:
            request["bytes"] = len(payload)
        try:
            line = encode(request)
        except UnicodeEncodeError:
            step = "write whole characters"
            raise Refused("lone_surrogate", "a text holds half of a character", None, step, EXIT_USAGE) from None
        except (TypeError, ValueError) as error:
            step = "write text, whole numbers, lists and tables"
            raise Refused("bad_value", f"this cannot be said in JSON: {error}", None, step, EXIT_USAGE) from None
        if len(line) > LINE_BYTES_MAX:
            message = f"the request has {len(line)} bytes, at most {LINE_BYTES_MAX} are taken"
            raise Refused("too_large", message, None, "make it smaller", EXIT_USAGE)
        if payload is not None and len(payload) > PAYLOAD_BYTES_MAX:
            message = f"the payload has {len(payload)} bytes, at most {PAYLOAD_BYTES_MAX} are taken"
            raise Refused("too_large", message, "/bytes", "make it smaller", EXIT_USAGE)
        link = own(self._links, lambda: _Link(self._path, self._timeout_s))
        with link.lock:
            return link.insist(line + b"\n" + (payload or b""))

    def close(self) -> None:
        link = self._links.get(os.getpid())
        if link is not None:
            with link.lock:
                link.hang_up()


class _Link:
    """The socket of one process. The caller of whatever follows holds `lock`."""

    def __init__(self, path: str, timeout_s: float) -> None:
        self.lock = allocate_lock()
        self._path = path
        self._timeout_s = timeout_s
        self._socket: socket | None = None
        self._left = b""

    def insist(self, request: bytes) -> tuple[dict[str, Any], bytes]:
        tries = 0
        began = time.monotonic()
        until = began + BUSY_S
        while True:
            try:
                reply, payload = self._once(request)
            except OSError as error:
                self.hang_up()
                if isinstance(error, BlockingIOError) and time.monotonic() < until:
                    time.sleep(AGAIN_S)  # a crowd waits to be let in
                    continue
                if isinstance(error, FileNotFoundError) and time.monotonic() < began + NAMELESS_S:
                    time.sleep(AGAIN_S)  # a worker that lives puts its socket back where somebody removed it
                    continue
                tries += 1
                if tries >= TRIES_MAX:
                    message = f"the worker cannot be reached: {error.strerror or error}"
                    step = "stop: the worker is gone, and the attempt ends with it"
                    raise Unreachable("unreachable", message, None, step, EXIT_UNEXPECTED) from error
                time.sleep(AGAIN_S * tries)
                continue
            if reply.get("ok") is True:
                return reply, payload
            refused = refusal_of(reply)
            if refused.code != "busy" or time.monotonic() >= until:
                raise refused
            time.sleep(AGAIN_S)

    def _once(self, request: bytes) -> tuple[dict[str, Any], bytes]:
        link = self._opened()
        _send(link, request)
        try:
            reply = json.loads(self._line(link))
        except ValueError as error:
            raise ConnectionError("the reply is no JSON") from error
        if not isinstance(reply, dict):
            raise ConnectionError("the reply is no object")
        size = reply.get("bytes", 0) if reply.get("ok") is True else 0
        if not isinstance(size, int) or not 0 <= size <= PAYLOAD_BYTES_MAX:
            raise ConnectionError("the reply announces bytes that cannot be")
        return reply, self._exactly(link, size)

    def _opened(self) -> socket:
        if self._socket is None:
            link = socket(AF_UNIX, SOCK_STREAM)
            try:
                link.settimeout(self._timeout_s)
                link.connect(self._path)
            except BaseException:
                link.close()
                raise
            self._socket, self._left = link, b""
        return self._socket

    def _line(self, link: socket) -> bytes:
        pieces = [self._left]
        size = len(self._left)
        while b"\n" not in pieces[-1]:
            if size > REPLY_BYTES_MAX:
                raise ConnectionError("the reply is too long")
            piece = link.recv(65_536)
            if not piece:
                raise ConnectionError("the worker hung up")
            pieces.append(piece)
            size += len(piece)
        line, _, self._left = b"".join(pieces).partition(b"\n")
        return line

    def _exactly(self, link: socket, size: int) -> bytes:
        taken, self._left = self._left[:size], self._left[size:]
        pieces, missing = [taken], size - len(taken)
        while missing:
            piece = link.recv(min(missing, 1 << 20))
            if not piece:
                raise ConnectionError("the worker hung up")
            pieces.append(piece)
            missing -= len(piece)
        return b"".join(pieces)

    def hang_up(self) -> None:
        if self._socket is not None:
            self._socket.close()
        self._socket, self._left = None, b""


def _send(link: socket, request: bytes) -> None:
    try:
        link.sendall(request)
    except ConnectionError:
        return  # it hung up before it had taken everything, and may have said why
