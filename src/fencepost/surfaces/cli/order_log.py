"""What an attempt printed: kept as artifacts once it was reported, live from its folder while it runs.

The bytes go to stdout as they are, unless that is a terminal; which attempt and stream they come from stands on
stderr, and so does what was not kept.
"""

from __future__ import annotations

import codecs
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from fencepost.app import App
from fencepost.core.machines import ENDED, LIVE
from fencepost.core.records.attempt import AttemptStopped, AttemptYielded, LateRecord, VerificationReceipt
from fencepost.core.records.common import LogRef
from fencepost.core.state import AttemptState, OrderState
from fencepost.kernel.read import Look
from fencepost.surfaces.cli.context import CommandError, emit_line, find_order, say
from fencepost.surfaces.cli.living import GONE, is_orphan
from fencepost.surfaces.cli.typed import here
from fencepost.surfaces.cli.watch import until
from fencepost.surfaces.cli.words import block, count, state_text

LOG_BYTES_MAX = 16 * 2**20  # kept of one stream at most: twice a MiB and the line that states the gap
FOLLOW_S = 0.2
_ENDS = ("result", "stop", "yield")  # late facts that tell of an attempt's end
SILENT_LOOKS = 3  # a worker that ends gives its attempts back first: a look may have come in between


class Chosen(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt of one order, at one moment."""

    order: OrderState
    attempt: AttemptState
    kept: dict[str, LogRef]
    reported: bool  # its output is final
    told: bool  # whether a record of its end says what it printed

    @property
    def title(self) -> str:
        state = state_text(self.attempt.state, self.attempt.reason)
        return f"{self.order.task}, attempt {self.attempt.ordinal}, {state}"


class Piece(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes of a stream from `offset` on; `skipped` bytes before them were not kept."""

    offset: int
    skipped: int
    data: bytes
    next_offset: int


def print_log(
    home: App,
    name: str,
    *,
    ordinal: int | None,
    streams: Sequence[str],
    verifier: bool,
    follow: bool,
    as_json: bool,
) -> None:
    """Print the streams of an attempt; with `follow` until its output is final."""
    with home.kernel.reader.look() as look:
        order = find_order(look, name)
        chosen = _choose(look, order.order, ordinal, verifier)
    if chosen is None and follow:
        chosen = _wait_for_attempt(home, order.order, ordinal, verifier)
    if chosen is None:
        which = "attempt yet" if ordinal is None else f"attempt {ordinal}"
        raise CommandError("not_found", f"{order.task} has no {which}", next_step=f"fencepost order why {name}")
    headings: list[str] = []
    outputs = [Output(home, stream, verifier=verifier, as_json=as_json, headings=headings) for stream in streams]
    if not as_json:
        say(f"{chosen.title}{', its verifier' if verifier else ''}")
    if follow:
        _follow(home, chosen, outputs, verifier)
    elif as_json:
        emit_line({**_head(chosen), "streams": [output.document(chosen) for output in outputs]})
    else:
        for output in outputs:
            output.advance(chosen)
            output.finish(chosen)


def _head(chosen: Chosen) -> dict[str, Any]:
    return {
        "name": chosen.order.task,
        "id": chosen.order.order,
        "attempt": chosen.attempt.attempt,
        "ordinal": chosen.attempt.ordinal,
        "state": chosen.attempt.state,
        "live": not chosen.reported,
    }


def _choose(look: Look, order_id: str, ordinal: int | None, verifier: bool) -> Chosen | None:
    order = look.order(order_id)
    if order is None:
        return None
    if ordinal is None:
        attempt = look.find(order.attempt, AttemptState) if order.attempt is not None else None
    else:
        attempt = next((one for one in look.attempts(order_id) if one.ordinal == ordinal), None)
    if attempt is None:
        return None
    source = _verification(look, attempt) if verifier else _end(look, attempt)
    kept = {stream: ref for stream in ("stdout", "stderr") if (ref := getattr(source, stream, None)) is not None}
    waiting = ("reserved", *LIVE, *(("result_reported",) if verifier else ()))
    return Chosen(
        order=order,
        attempt=attempt,
        kept=kept,
        reported=source is not None or attempt.state not in waiting,
        told=source is not None,
    )


def _verification(look: Look, attempt: AttemptState) -> VerificationReceipt | None:
    return look.body(attempt.verification_seq, VerificationReceipt) if attempt.verification_seq else None


def _end(look: Look, attempt: AttemptState) -> Any:
    """What tells of the attempt's end, and what it printed: in time, else the last that came late; None for none."""
    if attempt.yielded_seq:
        return look.body(attempt.yielded_seq, AttemptYielded)
    if attempt.stopped_seq:
        return look.body(attempt.stopped_seq, AttemptStopped)
    if attempt.result_seq:
        return look.facts(attempt.result_seq)
    for what, _, seq in reversed(attempt.late):
        if what in _ENDS:
            late = look.body(seq, LateRecord)
            return late if late.facts is None else late.facts
    return None


def _wait_for_attempt(home: App, order: str, ordinal: int | None, verifier: bool) -> Chosen | None:
    """Wait until the attempt exists, or cannot come any more."""
    found: list[Chosen] = []

    def done(look: Look) -> bool:
        one = _choose(look, order, ordinal, verifier)
        if one is not None:
            found.append(one)
        value = look.order(order)
        return bool(found) or value is None or value.state in ENDED

    until(home, done)
    return found[0] if found else None


def _follow(home: App, chosen: Chosen, outputs: Sequence[Output], verifier: bool) -> None:
    """Print what comes until the attempt's output is final. Another attempt of the order is not followed."""

    silent = 0  # looks in a row at which nobody was alive to write or to report

    def done(look: Look) -> bool:
        nonlocal silent
        now = _choose(look, chosen.order.order, chosen.attempt.ordinal, verifier)
        if now is None:
            return True
        orphaned = is_orphan(now.attempt, home.locks, home.kernel.clock.read())
        silent = silent + 1 if orphaned and not now.reported else 0
        for output in outputs:
            output.advance(now)
            if now.reported:
                output.finish(now)
        if silent >= SILENT_LOOKS:
            say(f"{GONE} {here('next: fencepost worker start')}")
            return True
        return now.reported

    until(home, done, poll_s=FOLLOW_S)


class Output:
    """One stream on its way to whoever reads: how far it has been printed, and in which form."""

    def __init__(self, home: App, stream: str, *, verifier: bool, as_json: bool, headings: list[str]) -> None:
        self._home = home
        self._stream = stream
        self._verifier = verifier
        self._file = f"verify.{stream}" if verifier else stream
        self._as_json = as_json
        self._offset = 0
        self._headings = headings  # streams in the order in which they came, shared by all outputs of a command
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._raw = not as_json and not sys.stdout.isatty()

    def document(self, chosen: Chosen) -> dict[str, Any]:
        """The whole stream as one part of a document."""
        pieces = list(self._pieces(chosen))
        text = b"".join(piece.data for piece in pieces).decode("utf-8", "replace")
        gap = sum(piece.skipped for piece in pieces)
        total = pieces[-1].next_offset if pieces else 0
        return {"stream": self._stream, "bytes_total": total, "gap_bytes": gap, "text": text}

    def advance(self, chosen: Chosen) -> None:
        """Print what has come since the last time."""
        for piece in self._pieces(chosen):
            self._print(piece, chosen)

    def finish(self, chosen: Chosen) -> None:
        """Nothing more comes."""
        if not self._offset and not self._as_json:
            say(f"{self._stream}: {self._nothing(chosen)}")
        rest = self._decoder.decode(b"", final=True)
        if rest and not self._raw and not self._as_json:
            sys.stdout.write(block(rest))
            sys.stdout.flush()

    def _nothing(self, chosen: Chosen) -> str:
        """Why there is nothing to be seen."""
        ref = chosen.kept.get(self._stream)
        if ref is not None and ref.bytes_total:
            return f"{count(ref.bytes_total, 'byte')} were printed, and none could be kept (was the disk full?)"
        lost = chosen.reported and not chosen.told
        return "nothing is kept of this attempt" if lost else "nothing was printed"

    def _pieces(self, chosen: Chosen) -> list[Piece]:
        """What is there and was not printed: the head, and behind a gap the tail."""
        view = self._view(chosen)
        pieces: list[Piece] = []
        while view is not None:
            since = view.since(self._offset)
            if not since.data and not since.skipped_bytes:
                break
            offset = self._offset + since.skipped_bytes
            self._offset = since.next_offset
            pieces.append(
                Piece(offset=offset, skipped=since.skipped_bytes, data=since.data, next_offset=since.next_offset)
            )
        return pieces

    def _view(self, chosen: Chosen) -> Any:
        """The log as it stands: kept bytes once they are reported, else those in the attempt's folder."""
        ref = chosen.kept.get(self._stream)
        if ref is not None:
            data = self._home.artifacts.read(ref.digest, LOG_BYTES_MAX)
            with tempfile.TemporaryDirectory(prefix="fencepost-") as folder:
                path = Path(folder) / "log"
                path.write_bytes(data)
                return self._home.log(path)
        if chosen.reported and chosen.told:
            return None
        try:
            spaces = self._home.workspaces
            space = (spaces.find_verifier if self._verifier else spaces.find)(chosen.attempt.attempt)
            return self._home.log(space.logs / self._file)
        except FileNotFoundError:
            return None

    def _print(self, piece: Piece, chosen: Chosen) -> None:
        if self._as_json:
            text = self._decoder.decode(piece.data)
            emit_line(
                {
                    "attempt": chosen.attempt.attempt,
                    "stream": self._stream,
                    "offset": piece.offset,
                    "skipped_bytes": piece.skipped,
                    "text": text,
                }
            )
            sys.stdout.flush()
            return
        if self._headings[-1:] != [self._stream]:
            self._headings.append(self._stream)
            say(f"{self._stream}:")
        if piece.skipped:
            sys.stdout.write(f"\n[fencepost: {piece.skipped} bytes left out]\n")
        if self._raw:
            sys.stdout.flush()
            sys.stdout.buffer.write(piece.data)
        else:
            sys.stdout.write(block(self._decoder.decode(piece.data)))
        sys.stdout.flush()
