"""Replay and verification: the whole journal folded again from nothing, and compared with what is kept beside it.

Verification checks bytes: form, digests, links, and the signed anchors outside the store. Replay also folds: the
states that come out must be, byte for byte, those that live work left behind (W21, W24). Both stream.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from fencepost.core.anchor import Checkpoint
from fencepost.core.chain import BrokenChain, Link, Where, fact_of, follow, open_record, read_record
from fencepost.core.evolve import Edge, evolve
from fencepost.core.ids import sha256_of
from fencepost.core.index import rows_of
from fencepost.core.machines import CorruptHistory
from fencepost.core.records import Record
from fencepost.core.state import FOLD_VERSION, OrderState, Value, encode_value
from fencepost.ports.errors import IntegrityError
from fencepost.ports.journal import EdgeRow, Head, IndexRow, Journal, Reads, StateRow, StoredRecord, Stream
from fencepost.ports.ledger import SafetyLedger

PAGE = 1_000


class Replayed:
    """The fold of a journal in memory."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.edges: list[Edge] = []
        self.link = Link(0, "")
        # The fold's three verbs are those of the containers: a replay calls them ten times for each record.
        self.get: Callable[[str], Any | None] = self.values.get
        self.put: Callable[[str, Value], None] = self.values.__setitem__
        self.add_edge: Callable[[Edge], None] = self.edges.append

    def digest(self) -> str:
        """The scope's projection digest: SHA-256 over (subject, digest of its state) in id order."""
        return projection_digest((subject, encode_value(self.values[subject])) for subject in sorted(self.values))


class Verified(msgspec.Struct, frozen=True, kw_only=True):
    """What verification found. `first_bad` is the first record that does not fit.

    It is None when all do, and when only the safety ledger's own signatures are not genuine.
    """

    ok: bool
    sequence: int
    digest: str
    first_bad: int | None = None
    problem: str = ""
    anchors: int = 0


class Compared(msgspec.Struct, frozen=True, kw_only=True):
    """What a replay found. `differs` names the first subject or row that is not what the records lead to."""

    match: bool
    sequence: int
    projection_digest: str
    differs: str = ""


def projection_digest(states: Iterable[tuple[str, bytes]]) -> str:
    total = hashlib.sha256()
    for subject, data in states:
        total.update(subject.encode())
        total.update(b"\n")
        total.update(sha256_of(data).encode())
        total.update(b"\n")
    return f"sha256:{total.hexdigest()}"


def _pages(reads: Reads, stream: Stream) -> Iterator[StoredRecord]:
    after = 0
    while page := reads.records(stream, after, PAGE):
        yield from page
        after = page[-1].seq


def opened(
    reads: Reads, stream: Stream, epoch: int, read: Callable[[int, bytes], Record] = open_record
) -> Iterator[tuple[Record, Link]]:
    """Every record of a stream in order with the link behind it, form, digest and link checked. Raises BrokenChain.

    `read` is `read_record` where the form has been proved, or where only values matter.
    """
    link = Link(0, "")
    where = Where(stream.scope, stream.name, epoch)
    for seq, data in _pages(reads, stream):
        if seq != link.seq + 1:
            raise BrokenChain(link.seq + 1, f"is missing; record {seq} follows on {link.seq}")
        record = read(seq, data)
        link = follow(link, where, record, data)
        yield record, link


def verify(
    journal: Journal,
    stream: Stream,
    ledger: SafetyLedger | None,
    public_key: bytes | None,
    kept: Link | None = None,
) -> Verified:
    """Check the chain, the head, every anchor of this stream, and one that was kept elsewhere, without folding."""
    links: dict[int, str] = {}
    anchors = [] if ledger is None else list(ledger.all(scope=stream.scope, stream=stream.name))
    wanted = {anchor.sequence for anchor in anchors} | ({kept.seq} if kept is not None else set())
    last = Link(0, "")
    with journal.snapshot() as reads:
        head = reads.head(stream)
        try:
            for _, last in opened(reads, stream, head.epoch):
                if last.seq in wanted:
                    links[last.seq] = last.digest
        except BrokenChain as error:
            return Verified(ok=False, sequence=head.seq, digest=head.digest, first_bad=error.seq, problem=error.problem)
    found = [
        *_head_problems(head, last),
        *_anchor_problems(anchors, links, last),
        *_kept_problems(kept, links, last),
        *_signature_problems(ledger, public_key),
    ]
    first_bad, problem = min(found, default=(None, ""), key=lambda each: each[0] or head.seq)
    return Verified(
        ok=not found,
        sequence=head.seq,
        digest=head.digest,
        first_bad=first_bad,
        problem=problem,
        anchors=len(anchors),
    )


_Problem = tuple[int | None, str]  # sequence number of the first record that does not fit, and why


def _head_problems(head: Head, last: Link) -> Iterator[_Problem]:
    if head.seq != last.seq:
        yield min(head.seq, last.seq) + 1, f"the head names record {head.seq}, the records end at {last.seq}"
    elif head.digest != last.digest:
        yield last.seq, "its digest is not the one that the head names"


def _anchor_problems(anchors: Sequence[Checkpoint], links: Mapping[int, str], last: Link) -> Iterator[_Problem]:
    for anchor in anchors:
        if anchor.sequence > last.seq:
            yield last.seq + 1, f"an anchor names record {anchor.sequence}, which is missing"
        elif links.get(anchor.sequence) != anchor.digest:
            yield anchor.sequence, "its digest is not the one that was signed"


def _kept_problems(kept: Link | None, links: Mapping[int, str], last: Link) -> Iterator[_Problem]:
    if kept is None:
        return
    if kept.seq > last.seq:
        yield last.seq + 1, f"is missing, and so is record {kept.seq}, which the given anchor names"
    elif links.get(kept.seq) != kept.digest:
        yield kept.seq, "its digest is not the one of the given anchor"


def _signature_problems(ledger: SafetyLedger | None, public_key: bytes | None) -> Iterator[_Problem]:
    if ledger is not None and public_key is not None:
        verdict = ledger.verify(public_key)
        if not verdict.ok:
            yield None, f"the safety ledger: {verdict.first_bad}"


def fold(reads: Reads, stream: Stream, to: int | None = None) -> Replayed:
    """Fold the records up to sequence `to`, all of them for None. Raises IntegrityError."""
    replayed = Replayed()
    head = reads.head(stream)
    try:
        for record, link in opened(reads, stream, head.epoch, read_record):
            if to is not None and record.seq > to:
                break
            evolve(replayed, fact_of(record))
            replayed.link = link
    except (BrokenChain, CorruptHistory) as error:
        raise IntegrityError(str(error), next_step="fencepost journal verify") from error
    return replayed


def compare(journal: Journal, stream: Stream) -> Compared:
    """Replay from nothing and compare every state, index and edge row with what the store keeps."""
    with journal.snapshot() as reads:
        return compare_with(reads, stream, fold(reads, stream))


def compare_with(reads: Reads, stream: Stream, replayed: Replayed) -> Compared:
    """Compare every state, index and edge row with a fold that somebody has made."""
    differs = (
        _compare_states(reads, stream, replayed)
        or _compare_index(reads, stream, replayed)
        or _compare_edges(reads, stream, replayed)
    )
    sequence = replayed.link.seq
    return Compared(match=not differs, sequence=sequence, projection_digest=replayed.digest(), differs=differs)


def _compare_states(reads: Reads, stream: Stream, replayed: Replayed) -> str:
    expected = iter(sorted(replayed.values))
    after = ""
    while page := reads.state_page(stream, after, "", PAGE):
        for row in page:
            subject = next(expected, None)
            if subject != row.subject:
                return f"state of {min(filter(None, (subject, row.subject)))}"
            value = replayed.values[subject]
            if row.data != encode_value(value) or row.version != value.version:
                return f"state of {subject}"
        after = page[-1].subject
    rest = next(expected, None)
    return f"state of {rest}" if rest is not None else ""


def _index_rows(replayed: Replayed) -> list[IndexRow]:
    rows = [IndexRow(*row) for value in replayed.values.values() for row in rows_of(value)]
    return sorted(rows, key=lambda row: (row.stage, row.subject))


def _compare_index(reads: Reads, stream: Stream, replayed: Replayed) -> str:
    expected = iter(_index_rows(replayed))
    after: tuple[str, str] | None = None
    while page := reads.index_page(stream, after, PAGE):
        for row in page:
            wanted = next(expected, None)
            if wanted != row:
                return f"index row {row.stage} of {row.subject}"
        after = (page[-1].stage, page[-1].subject)
    rest = next(expected, None)
    return f"index row {rest.stage} of {rest.subject}" if rest is not None else ""


def _compare_edges(reads: Reads, stream: Stream, replayed: Replayed) -> str:
    """Compare the edges of every order; those that a member without edges has gained, too."""
    by_member: dict[str, list[Edge]] = {
        subject: [] for subject, value in replayed.values.items() if isinstance(value, OrderState)
    }
    for edge in replayed.edges:
        by_member[edge.member].append(edge)
    for member, edges in by_member.items():
        if reads.edge_count(stream, member) != len(edges):
            return f"edges of {member}"
        after = -1
        found: list[Edge] = []
        while edges and (page := reads.edges(stream, member, after, PAGE)):
            found.extend(Edge(*row) for row in page)
            after = page[-1].position
        if found != edges:
            return f"edges of {member}"
    return ""


def rebuild(journal: Journal, stream: Stream) -> Replayed:
    """Fold the journal and put what comes out in the place of every cached row, in one transaction."""
    with journal.transaction(stream) as transaction:
        replayed = fold(transaction, stream)
        transaction.replace_caches(
            stream,
            FOLD_VERSION,
            [
                StateRow(subject, value.version, encode_value(value))
                for subject, value in sorted(replayed.values.items())
            ],
            _index_rows(replayed),
            [EdgeRow(*edge) for edge in replayed.edges],
        )
        transaction.commit()
    return replayed
