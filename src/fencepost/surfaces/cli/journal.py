"""`fencepost journal`: the record itself. Verified, replayed, read along and exported, never changed."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from shutil import get_terminal_size
from typing import Annotated, BinaryIO, TextIO

from cyclopts import App, Parameter

from fencepost.app import App as Home
from fencepost.core.chain import BrokenChain, Link, Where, follow, open_record
from fencepost.kernel.read import Look
from fencepost.ports.errors import IntegrityError
from fencepost.surfaces.cli.anchors import are_anchors_lost
from fencepost.surfaces.cli.context import (
    NO_GLOBALS,
    CommandError,
    Force,
    Globals,
    emit,
    opened,
    recorded_is,
    require_outside,
    say,
)
from fencepost.surfaces.cli.record_line import RecordLines
from fencepost.surfaces.cli.typed import here
from fencepost.surfaces.cli.watch import until
from fencepost.surfaces.cli.whole_file import STDOUT, whole_file
from fencepost.surfaces.cli.words import UNSIGNED, count

app = App(name="journal", help="Verify, replay, read and export the record.")

EXIT_INTEGRITY = 8
_PAGE = 500
_TAIL = 20
_LIMIT_MAX = 1_000_000
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


@app.command(name="verify")
def verify(
    *,
    anchor: Annotated[
        str | None,
        Parameter(help="SEQ:DIGEST that was kept elsewhere, as this command prints it: the chain must have it."),
    ] = None,
    options: Globals = NO_GLOBALS,
) -> int:
    """Check every record's form, digest and link, and the signed anchors outside the store. Exit code 8 when not ok."""
    kept = None if anchor is None else _anchor(anchor)
    with opened(options) as home:
        found = home.kernel.verify(kept)
        is_lost = not found.anchors and kept is None and are_anchors_lost(home, found.sequence)
        warning = UNSIGNED.format(place=home.ledger.named()) if is_lost else None
    document = {
        "ok": found.ok,
        "sequence": found.sequence,
        "digest": found.digest,
        "first_bad": found.first_bad,
        "problem": found.problem or None,
        "anchors": found.anchors,
        "anchor": f"{found.sequence}:{found.digest}",
        "warning": warning,
    }

    def human(out: TextIO) -> None:
        if found.ok:
            is_first = not found.anchors and warning is None and kept is None
            anchors = "not signed yet" if is_first else count(found.anchors, "signed anchor")
            given = "" if kept is None else f", and the given anchor at record {kept.seq}"
            out.write(f"ok: {found.sequence} records, {anchors}{given}\n{document['anchor']}\n")
        elif found.first_bad is None:
            out.write(f"not ok: {found.problem}\n")
        else:
            out.write(f"not ok: record {found.first_bad} {found.problem}\n")

    emit(options, document, human)
    if warning is not None and not options.json:
        say(f"warning: {warning}")
    return 0 if found.ok else EXIT_INTEGRITY


def _anchor(text: str) -> Link:
    """A record's number and digest as `SEQ:sha256:...`. Raises CommandError usage."""
    number, _, digest = text.partition(":")
    if not number.isascii() or not number.isdecimal() or int(number) < 1 or not _DIGEST.fullmatch(digest):
        raise CommandError(
            "usage",
            f"--anchor {text!r} is not SEQ:DIGEST, such as 120:sha256: and 64 hexadecimal digits",
            next_step="give the line that fencepost journal verify printed",
        )
    return Link(int(number), digest)


@app.command(name="replay")
def replay(
    *,
    to: Annotated[int | None, Parameter(help="Fold only up to this record; nothing is compared then.")] = None,
    rebuild: Annotated[bool, Parameter(negative="", help="Write what the records say over the caches first.")] = False,
    options: Globals = NO_GLOBALS,
) -> int:
    """Fold the journal from nothing and compare what comes out with the store's caches. Exit code 8 on a difference."""
    if to is not None and (to < 1 or rebuild):
        raise CommandError("usage", "--to is a record's number, and goes without --rebuild", next_step="leave it out")
    with opened(options) as home:
        if rebuild:
            require_outside(home)
        kernel = home.kernel
        with kernel.reader.look() as look:
            head = look.head.seq
        if to is not None and to > head:
            raise CommandError(
                "usage", f"there is no record {to}: the last one is {head}", next_step="fencepost journal replay"
            )
        if to is not None and to < head:
            digest = kernel.replay_to(to).digest()
            document = {"match": True, "sequence": to, "projection_digest": digest, "compared": False, "differs": None}
        else:
            if rebuild:
                kernel.rebuild()
                recorded_is("the caches are written anew all the same")
            found = kernel.compare()
            document = {
                "match": found.match,
                "sequence": found.sequence,
                "projection_digest": found.projection_digest,
                "compared": True,
                "differs": found.differs or None,
            }
    document["rebuilt"] = rebuild

    def human(out: TextIO) -> None:
        verdict = "match" if document["match"] else f"no match: {document['differs']}"
        if not document["compared"]:
            verdict = "folded"
        out.write(f"{verdict}: {document['sequence']} records\n{document['projection_digest']}\n")

    emit(options, document, human)
    if not document["match"]:
        say(here("next: fencepost journal replay --rebuild"))
    return 0 if document["match"] else EXIT_INTEGRITY


@app.command(name="tail")
def tail(
    *,
    after: Annotated[int | None, Parameter(help="Begin behind this record; first value: the last 20.")] = None,
    limit: Annotated[int | None, Parameter(help="At most so many records.")] = None,
    follow: Annotated[bool, Parameter(negative="", help="Go on with what is written.")] = False,
    options: Globals = NO_GLOBALS,
) -> None:
    """Print records, one a line; with --json their exact bytes."""
    if (after is not None and after < 0) or (limit is not None and not 1 <= limit <= _LIMIT_MAX):
        raise CommandError("usage", f"--after is 0 or more, --limit 1 to {_LIMIT_MAX}", next_step="correct it")
    with opened(options) as home:
        with home.kernel.reader.look() as look:
            head = look.head.seq
        start = after if after is not None else max(head - (limit or _TAIL), 0)
        reader = _Tail(home, start, limit, options.json)
        if follow:
            until(home, reader.step)
        else:
            with home.kernel.reader.look() as look:
                reader.step(look)


class _Tail:
    """How far the journal has been printed."""

    def __init__(self, home: Home, after: int, limit: int | None, as_json: bool) -> None:
        self._after = after
        self._left = limit
        self._as_json = as_json
        self._lines = RecordLines(get_terminal_size().columns if sys.stdout.isatty() else None)

    def step(self, look: Look) -> bool:
        """Print what is new; True once the limit is reached."""
        while self._left != 0 and self._after < look.head.seq:
            page = look.records(self._after, _PAGE if self._left is None else min(self._left, _PAGE))
            for seq, data in page:
                if self._as_json:
                    sys.stdout.flush()
                    sys.stdout.buffer.write(data + b"\n")
                else:
                    sys.stdout.write(self._lines.line(look, seq, data) + "\n")
            if not page:
                break
            self._after = page[-1][0]
            if self._left is not None:
                self._left -= len(page)
        sys.stdout.flush()
        return self._left == 0


@app.command(name="export")
def export(
    file: Annotated[str | None, Parameter(help="First value: stdout.")] = None,
    /,
    *,
    force: Force = False,
    options: Globals = NO_GLOBALS,
) -> None:
    """Write every record's exact bytes, one a line, each verified first. A file is there whole or not at all.

    Each record holds the digest of the one before it, so that the file proves itself against the digest of its head.
    """
    with opened(options) as home:
        if file is None or file in STDOUT:
            _export(home, sys.stdout.buffer)
            sys.stdout.flush()
            return
        with whole_file(Path(file), force=force) as target:
            link = _export(home, target)
            size = target.tell()
    document = {"file": file, "sequence": link.seq, "digest": link.digest, "bytes": size}
    emit(options, document, lambda out: print(f"wrote {file}: {link.seq} records\n{link.digest}", file=out))


def _export(home: Home, target: BinaryIO) -> Link:
    """Copy the stream as one snapshot sees it. Raises IntegrityError at the first record that does not fit."""
    kernel = home.kernel
    link = Link(0, "")
    with kernel.journal.snapshot() as reads:
        head = reads.head(kernel.stream)
        where = Where(kernel.stream.scope, kernel.stream.name, head.epoch)
        while page := reads.records(kernel.stream, link.seq, _PAGE):
            for stored in page:
                try:
                    link = follow_on(link, where, stored.seq, stored.data)
                except BrokenChain as error:
                    raise IntegrityError(str(error), next_step="fencepost journal verify") from error
                target.write(stored.data + b"\n")
    if (link.seq, link.digest) != (head.seq, head.digest):
        raise IntegrityError(
            f"the head names record {head.seq}, the records end at {link.seq}", next_step="fencepost journal verify"
        )
    return link


def follow_on(link: Link, where: Where, seq: int, data: bytes) -> Link:
    """The link behind a stored record. Raises BrokenChain."""
    return follow(link, where, open_record(seq, data), data)
