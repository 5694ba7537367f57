"""What `run` says while it works where nobody looks at a terminal: one plain line for each change of an order, read
from the journal's records.

The wording is stable: `NAME: STATE (REASON)`, with more behind it where there is more to say. `View` is what a run
tells, be it these lines or the live view.
"""

from __future__ import annotations

import errno
import os
import stat
from typing import Protocol, TextIO

import msgspec

from fencepost.core.machines import ENDED
from fencepost.core.records.plan import Wait
from fencepost.kernel.read import Look
from fencepost.kernel.rows import VERIFY
from fencepost.ports.errors import IntegrityError
from fencepost.surfaces.cli.order_failure import question_lines
from fencepost.surfaces.cli.words import duration, one_line

PAGE = 500
QUIET = frozenset({"submitted", "reserved"})
"""States that last for a moment and mean nothing to a person who waits."""


class _Head(msgspec.Struct):
    kind: str
    subject: str


class _Backoff(msgspec.Struct):
    delay_us: int
    jitter_us: int


class _Facts(msgspec.Struct):
    outcome: str


class _Body(msgspec.Struct):
    """What is read of the bodies of the six kinds that move an order; absent fields have their first values."""

    order: str = ""
    target: str = ""
    reason: str = ""
    ordinal: int = 0
    decision: str = ""
    backoff: _Backoff | None = None
    facts: _Facts | None = None
    wait: Wait | None = None


class _Record(msgspec.Struct):
    body: _Body


_HEAD = msgspec.json.Decoder(_Head)
_RECORD = msgspec.json.Decoder(_Record)
_KINDS = frozenset(
    {
        "work_order_moved",
        "work_order_waits",
        "attempt_reservation",
        "attempt_descriptor",
        "attempt_result",
        "result_application",
    }
)


class View(Protocol):
    """Where a run shows what happens."""

    def say(self, text: str) -> None:
        """Something that is not an order's change."""
        ...

    def tell(self, look: Look) -> None:
        """Take in everything that has changed up to this look."""
        ...

    def tick(self) -> None:
        """Time has passed. Cheap, and called several times a second."""
        ...

    def close(self) -> None:
        """Nothing more is shown."""
        ...


class Lines:
    """An output that may go away: once nobody reads it, what is said goes nowhere and the work goes on."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._gone = False

    def say(self, text: str) -> None:
        if self._gone:
            return
        try:
            self._out.write(f"{text}\n")
            self._out.flush()
        except OSError as error:
            if not is_gone(error, self._out):
                raise
            self._gone = True
            silence(self._out)


def is_gone(error: OSError, out: TextIO) -> bool:
    """Whether writing failed since nobody reads any more: a pipe without a reader, or a terminal that was closed."""
    closed_terminal = error.errno == errno.EIO and stat.S_ISCHR(os.fstat(out.fileno()).st_mode)
    return isinstance(error, BrokenPipeError) or closed_terminal


def silence(out: TextIO) -> None:
    """Nobody reads this output any more: what is still written to it goes nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), out.fileno())


class Progress:
    """Changes of one plan's orders after a sequence."""

    def __init__(self, plan: str, after_seq: int, lines: Lines) -> None:
        self._plan = plan
        self._seen = after_seq
        self._lines = lines
        self._names: dict[str, str] = {}
        self._ordinals: dict[str, int] = {}  # attempt -> ordinal

    def say(self, text: str) -> None:
        self._lines.say(text)

    def tick(self) -> None:
        """Lines say what has changed, not that time passes."""

    def close(self) -> None:
        """Lines stay."""

    def begin(self, look: Look) -> None:
        """Say where the orders stand that neither have ended nor simply wait their turn."""
        for order in look.orders(self._plan):
            if order.state not in ENDED and order.state not in ("ready", "blocked_dependency", *QUIET):
                self._say(look, order.order, order.state, order.reason)

    def tell(self, look: Look) -> None:
        """Say everything that has changed up to this look."""
        while rows := look.records(self._seen, PAGE):
            for seq, data in rows:
                self._bytes(look, seq, data)
                self._seen = seq

    def _bytes(self, look: Look, seq: int, data: bytes) -> None:
        try:
            head = _HEAD.decode(data)
            body = _RECORD.decode(data).body if head.kind in _KINDS else None
        except msgspec.DecodeError as error:
            raise IntegrityError(f"record {seq} cannot be read ({error})", next_step=VERIFY) from error
        if body is not None:
            self._record(look, head, body)

    def _record(self, look: Look, head: _Head, body: _Body) -> None:
        if head.kind == "work_order_moved":
            if body.target not in QUIET:
                self._say(look, head.subject, body.target, body.reason)
        elif head.kind == "work_order_waits":
            asked = question_lines(body.wait) if body.wait is not None else []
            self._say(look, head.subject, "waiting", body.reason, f", asks {asked[0]}" if asked else "")
        elif head.kind == "attempt_reservation":
            self._ordinals[head.subject] = body.ordinal
        elif head.kind == "attempt_descriptor":
            ordinal = self._ordinals.pop(head.subject, 1)
            self._say(look, body.order, "active", "attempt_running", f", attempt {ordinal}" if ordinal > 1 else "")
        elif head.kind == "attempt_result":
            self._reported(look, body)
        elif body.backoff is not None:
            wait_us = body.backoff.delay_us + body.backoff.jitter_us
            more = f": {body.reason}, again in {duration(wait_us)}"
            self._say(look, body.order, "retry_wait", "backoff", more)
        else:
            self._say(look, body.order, body.decision, body.reason)

    def _reported(self, look: Look, body: _Body) -> None:
        """A result is only worth a line where a verifier has to speak, since anything else follows at once."""
        order = look.order(body.order)
        if order is not None and order.terms.accept.verify and body.facts and body.facts.outcome == "succeeded":
            self._say(look, body.order, "result_pending", "waiting_for_verification")

    def _say(self, look: Look, order: str, state: str, reason: str, more: str = "") -> None:
        name = self._name(look, order)
        if name:
            told = f" ({reason})" if reason != state else ""
            self._lines.say(f"{one_line(name)}: {state}{told}{more}")

    def _name(self, look: Look, order: str) -> str:
        """The order's name, "" for one of another plan."""
        name = self._names.get(order)
        if name is None:
            found = look.order(order)
            name = self._names[order] = found.task if found is not None and found.plan == self._plan else ""
        return name
