"""The door port: where the programs of a worker's attempts come in with what they have to say.

The door takes requests and gives replies back; what they mean, and whose they are, is the clerk's. Rules of the port:

* Nobody who comes in can hold anybody else up: not the worker, and no other attempt's program for longer than its own
  request takes. Whoever is slow, silent, endless or without sense is bounded in time and memory and then shown out.
* One request of an attempt is answered at a time, in the order in which they came in completely. A payload is taken
  only after the clerk has known its sender.
* A reply leaves after the clerk's `answer` has returned, which is after everything in it is durable. It may be lost:
  whoever misses one asks again.
* Only processes of the same user of the same host come in.

Source rows: W5, X10.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import msgspec


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """A request that is well-formed and whose sender is known, before its payload has come.

    `payload_bytes` follow its line, None for a request without any; its reply carries at most `reply_bytes`. One that
    is `slow` may move many bytes: no other attempt's request that is not slow waits behind it.
    """

    who: str
    request: Any
    payload_bytes: int | None = None
    reply_bytes: int = 0
    slow: bool = False


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What goes back. The reply has a field `bytes` exactly where a payload follows it. With `hang_up` nothing more is
    read from whoever gets it."""

    reply: dict[str, Any]
    payload: bytes | None = None
    hang_up: bool = False


class Clerk(Protocol):
    """Who stands behind a door. Used by several threads at once."""

    def read(self, line: bytes) -> Asked | Answer:
        """Know a request by its line, or refuse it. Never waits: not for the store, and not for a lock that anybody
        holds while waiting for it."""
        ...

    def answer(self, asked: Asked, payload: bytes | None) -> Answer:
        """Do what is asked. May take its time. Refusals and failures of the world are answers; an exception is a fault
        of the program."""
        ...

    def refuse(self, code: str, message: str, who: str = "") -> Answer:
        """The answer that says what the door itself does not take, from `who` where that is known. Never waits, as
        `read`."""
        ...


class Door(Protocol):
    """One worker's door."""

    @property
    def address(self) -> str:
        """Where programs find it, once it is open."""
        ...

    def open(self, clerk: Clerk, fault: Callable[[Exception], None]) -> None:
        """Begin to take requests. `fault` is told of what the clerk raised. Raises StorageError where no place can be
        found for it."""
        ...

    def close(self) -> None:
        """Take nothing more, and show everybody out. Requests that are being answered are not waited for for longer
        than a moment. Repeatable."""
        ...
