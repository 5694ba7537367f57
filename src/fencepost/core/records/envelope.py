"""The envelope that every record wears, and the registry of record kinds.

A record is one fact. Its digest is SHA-256 of its canonical bytes, which contain the digest of the record before
it in its stream, so that nothing in a stream can be changed, dropped, swapped or added without a trace. Who asked
for a batch, on what authority and under which clock observation stands once, in the batch's first record; its
siblings name that record by `batch`.

Wire names and versions are frozen once the journal's format is 1; until then they may be re-cut.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

FORMAT = 0  # of the journal; becomes 1 when schemas and fixtures freeze


class Wire(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    """Base of everything that stands in a record: frozen, strict, absent when equal to its first value.

    Plain data forms no rings, so that the collector of garbage need not look at it.
    """


class Stamp(Wire, frozen=True):
    """On whose word a batch was written. Stands in the batch's first record only."""

    key: str  # command key, unique in its scope
    digest: str  # of the command's bytes and principal
    principal: str
    assurance: str  # "service", "session" or "presence"
    decision: str  # digest of the policy decision
    grant: str  # digest of the runtime grant's chain
    clock: int = 0  # seq of the accepted clock observation, 0 before there is one


class Span(Wire, frozen=True):
    """The batch that a record belongs to: seq of its first record, number of its records."""

    first: int
    count: int


class Body(Wire, frozen=True):
    """Base of the bodies. Subclasses are registered with `record_kind`."""


class Record(Wire, frozen=True):
    """A whole record. Each kind has a type of its own, `Kind.record`, in which `body` has the kind's type."""

    v: int
    scope: str
    stream: str
    epoch: int
    seq: int  # first value 1, no gaps
    batch: Span
    prev: str  # digest of the record before, "" for the first
    kind: str
    kind_version: int
    subject: str
    subject_version: int  # first value 1; the subject's version after this record
    body: Any
    command: Stamp | None = None


class Kind(msgspec.Struct, frozen=True):
    """One registered record kind."""

    name: str
    version: int
    body: type[Body]
    record: type[Record]
    rows: tuple[str, ...]  # of the requirements


KINDS: dict[tuple[str, int], Kind] = {}
KIND_OF: dict[type[Body], Kind] = {}

B = TypeVar("B", bound=type[Body])


def record_kind(name: str, version: int, *rows: str) -> Callable[[B], B]:
    """Register a body under its frozen wire name and version. A name and version can be taken once."""

    def register(body: B) -> B:
        if (name, version) in KINDS:
            raise ValueError(f"record kind {name} version {version} is registered already")
        record = msgspec.defstruct(
            f"{body.__name__}Record",
            [("body", body)],
            bases=(Record,),
            module=__name__,
            frozen=True,
            kw_only=True,
            forbid_unknown_fields=True,
            omit_defaults=True,
        )
        if not issubclass(record, Record):
            raise TypeError(f"record type of {name} is not derived from Record")
        kind = Kind(name, version, body, record, rows)
        KINDS[name, version] = kind
        KIND_OF[body] = kind
        return body

    return register
