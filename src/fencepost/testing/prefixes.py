"""Replay at every prefix of an exported journal: one digest for each record, equal wherever it is computed (W21).

    python -m fencepost.testing.prefixes JOURNAL [--every N] [--readiness] [--anchor SEQ:DIGEST] [--into STORE]

JOURNAL is what `fencepost journal export` writes, one record a line, packed or not (`.gz`). Each record's form, digest
and link are checked and it is folded, beginning with nothing; one JSON line follows for it on standard output. Two runs
over one journal, on two machines, under two Pythons, must print the same bytes: where they part is the first record
whose fold depends on something that is not in the records. Beyond the standard library only msgspec is imported, and
the engine of the store that `--into` names.

A digest of everything at each of n prefixes would cost n². So `projections` is a rolling one: it covers the one before
it, the new state of each subject that the record touched, and the edges that it added. `readiness` rolls likewise over
the index rows that came and went and over the head of the queue, as a scheduler would be shown it. What was not touched
is taken as it was; every N records, and at the end, `whole` covers everything: all states (the same digest as that of
`fencepost journal replay`), all index rows, all edges, and the queue.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import locale
import re
import sys
import zlib
from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple

import msgspec

from fencepost.core.canonical import BYTES_MAX
from fencepost.core.chain import BrokenChain, Link, Where, fact_of, follow, open_record
from fencepost.core.evolve import Edge, evolve
from fencepost.core.ids import sha256_of
from fencepost.core.index import CLAIM, STAGES, Row, difference, rows_of
from fencepost.core.machines import CorruptHistory
from fencepost.core.state import CLOCK, ClockState, Value, encode_value
from fencepost.kernel import replay
from fencepost.kernel.read import ReadinessPlan, ReadyOrder
from fencepost.ports.errors import FencepostError, IntegrityError
from fencepost.ports.journal import StateRow

if TYPE_CHECKING:
    from fencepost.testing.refill import Refill

EXIT_INTEGRITY = 8
READY_MAX = 100
"""Orders at the head of the queue that `readiness` covers at each prefix; `whole` covers the same."""

_encode = msgspec.json.Encoder(order="deterministic").encode


class Whole(msgspec.Struct, frozen=True, kw_only=True):
    """Digests of everything that a prefix leads to. `ready` is empty before the first accepted observation."""

    projections: str  # as `fencepost journal replay` prints it
    index: str
    edges: str
    ready: str


class Prefix(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the first `seq` records lead to."""

    seq: int
    record: str  # digest of the last of them
    projections: str
    readiness: str = ""
    whole: Whole | None = None


class Changed(NamedTuple):
    """What one record changed: the rows that a store would write for it."""

    states: list[StateRow]
    index_put: list[Row]
    index_delete: list[tuple[str, str]]  # (stage, subject)
    edges: list[Edge]


class Prefixes:
    """Folds records one by one and keeps the digests. Every index row is kept as a store keeps it, by its changes."""

    def __init__(self, *, readiness: bool = False) -> None:
        self.replayed = replay.Replayed()
        self.where: Where | None = None  # of the first record; the others must belong there too
        self.index: dict[tuple[str, str], Row] = {}
        self.changed = Changed([], [], [], [])
        self._readiness = readiness
        self._queue: list[tuple[int, int, str]] = []  # (due_us, rank, subject) of what may be claimed, sorted
        self._rolling = self._rolling_ready = ""
        self._touched: dict[str, Any] = {}
        self._edges: list[Edge] = []

    # The fold's three verbs

    def get(self, subject: str) -> Any | None:
        return self.replayed.values.get(subject)

    def put(self, subject: str, value: Value) -> None:
        self._touched[subject] = value

    def add_edge(self, edge: Edge) -> None:
        self._edges.append(edge)

    def add(self, data: bytes) -> Prefix:
        """Check and fold the next record. Raises BrokenChain or CorruptHistory, which leave everything as it was.

        Raises IntegrityError where the index rows of a subject, kept change by change, are not those of its value.
        """
        link = self.replayed.link
        record = open_record(link.seq + 1, data)
        where = self.where or Where(record.scope, record.stream, record.epoch)
        following = follow(link, where, record, data)
        self._touched, self._edges = {}, []
        evolve(self, fact_of(record))
        self.where, self.replayed.link = where, following
        self._keep()
        return Prefix(
            seq=following.seq, record=following.digest, projections=self._roll(), readiness=self._roll_ready()
        )

    def _keep(self) -> None:
        states = []
        put: list[Row] = []
        delete: list[tuple[str, str]] = []
        for subject in sorted(self._touched):
            value = self._touched[subject]
            states.append(StateRow(subject, value.version, encode_value(value)))
            rows, gone = difference(self.replayed.values.get(subject), value)
            put += rows
            delete += gone
            self.replayed.values[subject] = value
        self.replayed.edges += self._edges
        for key in delete:
            self._forget(self.index.pop(key, None))
        for row in put:
            self._forget(self.index.get((row.stage, row.subject)))
            self.index[row.stage, row.subject] = row
            if row.stage == CLAIM:
                insort(self._queue, (row.due_us, row.rank, row.subject))
        self.changed = Changed(states, put, delete, self._edges)
        for subject in sorted(self._touched):
            self._check_index(subject)

    def _check_index(self, subject: str) -> None:
        wanted = sorted(rows_of(self.replayed.values[subject]))
        found = sorted(row for stage in STAGES if (row := self.index.get((stage, subject))) is not None)
        if wanted != found:
            odd = min(set(wanted) ^ set(found))
            raise IntegrityError(
                f"record {self.replayed.link.seq}: index row {odd.stage} of {subject} was lost or left over"
            )

    def _forget(self, row: Row | None) -> None:
        if row is not None and row.stage == CLAIM:
            del self._queue[bisect_left(self._queue, (row.due_us, row.rank, row.subject))]

    def _roll(self) -> str:
        states = [(row.subject, row.version, sha256_of(row.data)) for row in self.changed.states]
        self._rolling = sha256_of(_encode((self._rolling, states, sorted(self._edges))))
        return self._rolling

    def _roll_ready(self) -> str:
        if self._readiness:
            put, delete = sorted(self.changed.index_put), sorted(self.changed.index_delete)
            self._rolling_ready = sha256_of(_encode((self._rolling_ready, put, delete, self.ready())))
        return self._rolling_ready

    def ready(self) -> ReadinessPlan | None:
        """The head of the queue at the time of the last accepted observation, None before the first."""
        clock = self.replayed.values.get(CLOCK)
        if not isinstance(clock, ClockState):
            return None
        rows = [self.index[CLAIM, subject] for _, _, subject in self._queue[:READY_MAX]]
        orders = tuple(ReadyOrder(row.subject, row.group or None, row.due_us, row.rank) for row in rows)
        link = self.replayed.link
        return ReadinessPlan(clock.last_seq, clock.logical_us, link.seq, link.digest, orders)

    def whole(self) -> Whole:
        """Digests of everything, from the values as they are now."""
        rows = sorted(row for value in self.replayed.values.values() for row in rows_of(value))
        return Whole(
            projections=self.replayed.digest(),
            index=_digest_of(rows),
            edges=_digest_of(sorted(self.replayed.edges)),
            ready="" if self.ready() is None else sha256_of(_encode(self.ready())),
        )


def _digest_of(rows: Iterable[object]) -> str:
    total = hashlib.sha256()
    for row in rows:
        total.update(_encode(row))
        total.update(b"\n")
    return f"sha256:{total.hexdigest()}"


def prefixes(lines: Iterable[bytes], *, every: int = 0, fold: Prefixes | None = None) -> Iterator[Prefix]:
    """One `Prefix` for each record, with `whole` behind every `every`th (0: none) and behind the last.

    Raises BrokenChain or CorruptHistory at the first record that does not fit.
    """
    fold = fold if fold is not None else Prefixes()
    last: Prefix | None = None
    for data in lines:
        if last is not None:
            yield last
        last = fold.add(data)
        if every and last.seq % every == 0:
            last = msgspec.structs.replace(last, whole=fold.whole())
    if last is not None:
        yield msgspec.structs.replace(last, whole=fold.whole())


def read_lines(file: io.BufferedIOBase) -> Iterator[bytes]:
    """The records of an exported journal, bounded in bytes. Raises BrokenChain for a line that has no end."""
    seq = 0
    while line := file.readline(BYTES_MAX + 1):
        seq += 1
        if not line.endswith(b"\n"):
            raise BrokenChain(seq, "is torn: its line has no end")
        yield line[:-1]


def open_journal(path: Path) -> io.BufferedIOBase:
    """An exported journal for reading; one whose name ends in `.gz` is unpacked while it is read."""
    return gzip.open(path, "rb") if path.name.endswith(".gz") else path.open("rb")


def check_anchor(link: Link, digests: Sequence[str], anchor: Link) -> None:
    """Check a record's digest that was kept elsewhere. A chain proves itself only up to its last record, and says
    nothing of records that were cut off. Raises BrokenChain.
    """
    if anchor.seq > link.seq:
        raise BrokenChain(link.seq + 1, f"is missing, and so is record {anchor.seq}, which the given anchor names")
    if digests[anchor.seq - 1] != anchor.digest:
        raise BrokenChain(anchor.seq, "its digest is not the one of the given anchor")


def _anchor(text: str) -> Link:
    found = re.fullmatch(r"([1-9][0-9]{0,15}):(sha256:[0-9a-f]{64})", text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not SEQ:DIGEST, as `fencepost journal verify` prints it")
    return Link(int(found[1]), found[2])


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m fencepost.testing.prefixes",
        description="Fold an exported journal from nothing and print one digest for each of its prefixes.",
    )
    parser.add_argument("journal", type=Path, help="what `fencepost journal export` wrote, packed (.gz) or not")
    parser.add_argument("--every", type=int, default=0, metavar="N", help="digest everything behind every Nth record")
    parser.add_argument("--readiness", action="store_true", help="digest index rows and queue at each prefix, too")
    parser.add_argument(
        "--anchor", type=_anchor, metavar="SEQ:DIGEST", help="a record's digest that was kept elsewhere"
    )
    parser.add_argument(
        "--into", metavar="STORE", help="fold into an empty store and compare: `memory`, or a new folder for SQLite"
    )
    return parser


def _run(options: argparse.Namespace, output: IO[bytes]) -> None:
    fold = Prefixes(readiness=options.readiness)
    refill: Refill | None = None
    if options.into is not None:
        from fencepost.testing.refill import Refill

        refill = Refill(options.into, fold)
    digests: list[str] = []

    def copied(lines: Iterable[bytes]) -> Iterator[bytes]:
        """Each line, put into the store once the fold has had it and asks for the next."""
        for data in lines:
            yield data
            if refill is not None:
                refill.add(data)

    with open_journal(options.journal) as file:
        for prefix in prefixes(copied(read_lines(file)), every=options.every, fold=fold):
            output.write(_encode(prefix) + b"\n")
            digests.append(prefix.record)
    if options.anchor is not None:
        check_anchor(fold.replayed.link, digests, options.anchor)
    if refill is not None and digests:
        with closing(refill.journal):
            refill.flush()
            refill.check()


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0, or 8 where the journal is not whole or leads to something else, with the record on standard error.

    Raises SystemExit (2) for arguments and files that cannot be used.
    """
    locale.setlocale(locale.LC_ALL, "")  # as a program may have done that folds a journal
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.every < 0:
        parser.error("--every is 0 or more")
    try:
        _run(options, sys.stdout.buffer)
    except (BrokenChain, CorruptHistory, FencepostError, gzip.BadGzipFile, zlib.error, EOFError) as error:
        sys.stderr.write(f"{error}\n")
        return EXIT_INTEGRITY
    except OSError as error:
        parser.error(str(error))
    finally:
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
