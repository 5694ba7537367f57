"""A queued command and its answer: read strictly on the way in, told to whoever waits on the way out.

A command is taken apart into bytes and read back before it is queued, so that what the writer decides about is a
detached value of exactly the declared types and bounds: nobody can change it afterwards, and nothing that a record
could not hold reaches one.
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
from collections import deque
from collections.abc import Sequence
from contextlib import suppress

import msgspec

from fencepost.core.canonical import Undecodable, encode_trusted
from fencepost.core.commands import Request
from fencepost.core.ids import SEED_BYTES, sha256_of
from fencepost.core.limits import Limits
from fencepost.core.reasons import Refusal
from fencepost.kernel.receipts import Receipt
from fencepost.ports.entropy import Entropy
from fencepost.ports.threads import Event

_REQUEST = msgspec.json.Decoder(Request)


# In a request's canonical bytes the command stands between these two, and no text can hold their unescaped quotes.
_COMMAND_MARK = b'"command":'
_GRANT_MARK = b',"grant":"'


class Seeds:
    """Seeds that follow from one draw of entropy, each given out once. Safe for use from any thread.

    A system's entropy is not asked for each command: the call lets go of the interpreter, and a busy process would
    wait to get it back every time.
    """

    def __init__(self, entropy: Entropy) -> None:
        self._key = entropy.seed()
        self._numbers = itertools.count()
        self._ready: deque[bytes] = deque()

    def next(self) -> bytes:
        try:
            return self._ready.popleft()
        except IndexError:
            block = hashlib.blake2b(next(self._numbers).to_bytes(8), key=self._key).digest()
            self._ready.extend([block[at : at + SEED_BYTES] for at in range(SEED_BYTES, len(block), SEED_BYTES)])
            return block[:SEED_BYTES]


class Ticket:
    """One queued command and, once it is decided, its answer. The seed is drawn once, so that a repeat agrees.

    `done` is set last, when the answer stands. A ticket that is done is dropped from the queue by whoever leads.
    """

    __slots__ = ("bytes_total", "digest", "done", "error", "future", "loop", "receipt", "request", "seed", "wake")

    def __init__(self, request: Request, data: bytes, seed: bytes) -> None:
        self.request = request
        self.seed = seed
        self.bytes_total = len(data)
        start = data.index(_COMMAND_MARK) + len(_COMMAND_MARK)
        command = data[start : data.rindex(_GRANT_MARK)]
        self.digest = sha256_of(command + b"|" + request.principal.encode())
        self.done = False
        self.receipt: Receipt | None = None
        self.error: BaseException | None = None
        self.wake: Event | None = None  # of the thread that waits
        self.loop: asyncio.AbstractEventLoop | None = None  # of the task that waits
        self.future: asyncio.Future[Receipt] | None = None

    def outcome(self) -> Receipt:
        if self.error is not None:
            raise self.error
        if self.receipt is None:
            raise RuntimeError("a ticket was asked for its outcome before its group was committed")
        return self.receipt


def read_strictly(request: Request, limits: Limits) -> tuple[Request, bytes] | Receipt:
    """Return the detached request with its canonical bytes, or the receipt that refuses it.

    Refused here: what is outside of a field's declared type or bound, text that one store would keep and another
    refuse, and a command that is larger than one may be. Nothing is looked up, so that `sequence` is 0.
    """
    try:
        data = encode_trusted(request)
        if len(data) > limits.command_bytes_max:
            detail = {"subject": "the command", "bound": f"{limits.command_bytes_max} bytes"}
            return _refused(request, Refusal(code="too_large", detail=detail))
        return _REQUEST.decode(data), data
    except Undecodable as error:
        problem = f"{error.message} at {error.path or '/'}"
        return _refused(request, Refusal(code="bad_command", field=error.path, detail={"problem": problem}))
    except msgspec.ValidationError as error:
        return _refused(request, Refusal(code="bad_command", detail={"problem": str(error)}))


def _refused(request: Request, refusal: Refusal) -> Receipt:
    return Receipt(key=request.key, sequence=0, refusal=refusal)


def answer(tickets: Sequence[Ticket]) -> None:
    """Mark tickets as done and tell everyone who waits: threads one by one, tasks once for each loop."""
    loops: dict[asyncio.AbstractEventLoop, list[Ticket]] = {}
    for ticket in tickets:
        ticket.done = True
        if ticket.wake is not None:
            ticket.wake.set()
        elif ticket.loop is not None:
            loops.setdefault(ticket.loop, []).append(ticket)
    for loop, waiting in loops.items():
        # A loop that was closed has nobody left who waits, and must not keep others from their answers.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(_resolve, waiting)


def _resolve(tickets: Sequence[Ticket]) -> None:
    for ticket in tickets:
        future = ticket.future
        if future is None or future.done():
            continue  # its caller was cancelled; the command is decided all the same
        if isinstance(ticket.error, StopIteration):
            future.set_exception(RuntimeError(f"a decision ended early: {ticket.error!r}"))  # no future takes the other
        elif ticket.error is not None:
            future.set_exception(ticket.error)
        else:
            future.set_result(ticket.outcome())
