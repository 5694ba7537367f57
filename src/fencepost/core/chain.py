"""Sealing and opening records: canonical bytes, digests, and the link from each record to the one before.

`seal` turns the facts of one batch into bytes; `open_record` turns bytes back into a record and refuses everything
that `seal` could not have written. Whoever changes, drops, swaps or adds a byte breaks either a record's form or the
link of the next one; whoever recomputes the whole chain breaks the signed anchors outside the store.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from fencepost.core.canonical import Undecodable, decode_canonical, encode_trusted, sanitize
from fencepost.core.evolve import Fact
from fencepost.core.ids import sha256_of
from fencepost.core.records import FORMAT, KIND_OF, KINDS, Record, Span, Stamp


class Link(msgspec.Struct, frozen=True, gc=False):
    """Where a chain stands: the last record's sequence number and digest, (0, "") before the first."""

    seq: int
    digest: str


class Sealed(msgspec.Struct, frozen=True, gc=False):
    """One record ready to be stored."""

    seq: int
    data: bytes
    digest: str


class BrokenChain(ValueError):
    """Stored bytes are not what was written. `seq` is the first record that does not fit."""

    def __init__(self, seq: int, problem: str) -> None:
        super().__init__(f"record {seq}: {problem}")
        self.seq = seq
        self.problem = problem


class Where(NamedTuple):
    """The stream and epoch that a batch belongs to."""

    scope: str
    stream: str
    epoch: int


def seal(where: Where, link: Link, facts: Sequence[Fact], stamp: Stamp) -> list[Sealed]:
    """Seal the facts of one batch, which follow on `link` without a gap."""
    sealed: list[Sealed] = []
    prev = link.digest
    scope, stream, epoch = where
    first = link.seq + 1
    span = Span(first=first, count=len(facts))
    for expected, (seq, subject, version, body) in enumerate(facts, first):
        if seq != expected:
            raise ValueError(f"record {seq} does not follow on {expected - 1}")
        kind = KIND_OF[type(body)]
        record = kind.record(
            v=FORMAT,
            scope=scope,
            stream=stream,
            epoch=epoch,
            seq=seq,
            batch=span,
            prev=prev,
            kind=kind.name,
            kind_version=kind.version,
            subject=subject,
            subject_version=version,
            body=body,
            command=stamp if seq == first else None,
        )
        data = encode_trusted(record)
        prev = sha256_of(data)
        sealed.append(Sealed(seq, data, prev))
    return sealed


class _Peek(msgspec.Struct):
    kind: str
    kind_version: int


_PEEK = msgspec.json.Decoder(_Peek)
_SHOWN_BYTES_MAX = 200  # of a stored text that a problem repeats

_DECODERS = {name: msgspec.json.Decoder(kind.record) for name, kind in KINDS.items()}
# In canonical bytes the kind stands behind the body, and no text can hold its unescaped quotes.
_KIND_MARK = b'"kind":"'
_MARKS = {
    f'"kind":"{name}","kind_version":{version},"'.encode(): decoder for (name, version), decoder in _DECODERS.items()
}


def read_record(seq: int, data: bytes) -> Record:
    """Decode a record strictly without proving that its bytes are canonical: for bytes whose digest is checked.

    Raises BrokenChain as `open_record`.
    """
    start = data.rfind(_KIND_MARK)
    decoder = _MARKS.get(data[start : data.find(b',"', data.find(b',"', start) + 2) + 2]) if start >= 0 else None
    if decoder is None:
        return open_record(seq, data)
    try:
        record = decoder.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return open_record(seq, data)  # which says what is wrong with it
    return _own(seq, record)


def open_record(seq: int, data: bytes) -> Record:
    """Decode the stored bytes of record `seq`. Raises BrokenChain, also for a kind that is not registered."""
    try:
        peek = _PEEK.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        # Too many containers inside each other are met here already, in a field that is only passed over.
        raise BrokenChain(seq, f"cannot be read: {error}") from error
    kind = KINDS.get((peek.kind, peek.kind_version))
    if kind is None:
        shown = sanitize(peek.kind, _SHOWN_BYTES_MAX)
        raise BrokenChain(seq, f"kind {shown!r} version {peek.kind_version} is not registered")
    try:
        record = decode_canonical(data, kind.record)
    except Undecodable as error:
        raise BrokenChain(seq, f"{error.code} at {error.path or '/'}: {error.message}") from error
    return _own(seq, record)


def _own(seq: int, record: Record) -> Record:
    if record.v != FORMAT:
        raise BrokenChain(seq, f"journal format {record.v} is not {FORMAT}")
    if record.seq != seq:
        raise BrokenChain(seq, f"says that it is record {record.seq}")
    return record


def follow(link: Link, where: Where, record: Record, data: bytes) -> Link:
    """Check that a record follows on `link` in its stream, and return the link behind it."""
    if record.seq != link.seq + 1:
        raise BrokenChain(link.seq + 1, f"is missing; record {record.seq} follows on {link.seq}")
    if record.prev != link.digest:
        raise BrokenChain(record.seq, "does not name the digest of the record before it")
    scope, stream, epoch = where
    if record.scope != scope or record.stream != stream or record.epoch != epoch:
        raise BrokenChain(record.seq, "belongs to another stream or epoch")
    return Link(record.seq, sha256_of(data))


def fact_of(record: Record) -> Fact:
    body: Any = record.body
    return Fact(record.seq, record.subject, record.subject_version, body)
