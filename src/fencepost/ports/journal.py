"""The journal port: what the kernel needs from a store, and all that a store has to know.

A store keeps, per stream, an append-only run of sealed records and beside it four caches of their fold: state
rows, index rows, edge rows and command rows. It stores and finds; it never decides. Every value that it gets is
final: sequence numbers, digests, versions and index keys are computed above it, and time is always an argument.

Rules that every engine keeps (the conformance suite in `fencepost.testing.conformance.journal` shows each):

- **One writer at a time per stream.** `transaction()` returns only when nobody else can append to the stream;
  competing processes wait in turn, and no "database is locked" reaches a caller within `wait_s`.
- **All or nothing.** What a transaction appended is visible and durable after `commit()` has returned, as one, or
  not at all. Leaving the block without `commit()` drops it. After an error in `commit()` the outcome is unknown
  to the caller, who looks for the command keys again in a new transaction.
- **Compare and append.** `Append.expected` is the head that the writer has seen; another head raises
  `HeadMoved` and writes nothing.
- **Append only.** Records and commands are never changed or removed; the database itself refuses it.
- **Reads are consistent.** All reads of one snapshot see one state of the whole store. Those of a transaction see one
  state of its own stream, which nobody else changes meanwhile; other streams may move on under it.
- **A store can be lost at any moment.** Any call may raise StorageUnavailable or StorageError. A transaction or
  snapshot that has raised it is over, and what follows begins another one: the store finds its way back by itself.

Text is whole Unicode characters without NUL, and compared by its UTF-8 bytes, which is by code point. What stands in
a key (scope, name, subject, group, key, member) has at most 1,024 bytes, a stage 64. Numbers are below 2^63, sequence
numbers below 2^40. An engine may refuse anything else with StorageError; the kernel's own bounds keep it from being
asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol

from fencepost.ports.errors import StorageError


class HeadMoved(StorageError):
    """The stream's head is not the one that the append expected. Nothing was written."""

    code = "head_moved"


class Stream(NamedTuple):
    """The unit of chain, sequence and lock. For now a scope has one stream, `main`."""

    scope: str
    name: str


class Head(NamedTuple):
    """Where a stream stands. An empty stream has `seq` 0, `digest` "" and `fold_version` 0."""

    epoch: int  # first value 0
    seq: int  # of the last record; the first record has 1
    digest: str  # of the last record, "sha256:…"
    fold_version: int  # of the caches beside the records


class StoredRecord(NamedTuple):
    """A sealed record as it stands in the store."""

    seq: int
    data: bytes  # canonical JSON, digest = SHA-256 of exactly these bytes


class StateRow(NamedTuple):
    """Cache of one subject's state after the record that made `version`."""

    subject: str
    version: int  # first value 1
    data: bytes


class IndexRow(NamedTuple):
    """Makes one subject findable in one stage. Unique by (stage, subject); putting it again moves it."""

    stage: str
    group: str  # what `find_due(group=…)` narrows to, most often a plan; "" for none
    due_us: int  # logical microseconds UTC; the row is found when `due_us <= now_us`
    rank: int  # breaks ties of `due_us`, below 2^63
    subject: str


class Cursor(NamedTuple):
    """Position in an order of index rows: exclusive lower bound of the next page."""

    due_us: int
    rank: int
    subject: str


class EdgeRow(NamedTuple):
    """`dependent` waits for the end of `member`, in its dependency group number `group`. Written once, kept."""

    member: str
    position: int  # order of the dependents of one member, first value 0, unique per member
    dependent: str
    group: int
    outcomes: str  # terminal outcomes that satisfy it, comma-separated in byte order


class CommandRow(NamedTuple):
    """What a command key was answered. Unique by key within the stream, for ever."""

    key: str
    digest: str  # of the command's bytes and principal
    first_seq: int  # of the batch, 0 when the command wrote no record
    records: int  # in the batch
    receipt: bytes


class Append(NamedTuple):
    """One group of one stream, written in one transaction. A later row of one key replaces an earlier one."""

    stream: Stream
    expected: Head
    head: Head
    records: Sequence[StoredRecord]
    states: Sequence[StateRow] = ()
    index_put: Sequence[IndexRow] = ()
    index_delete: Sequence[tuple[str, str]] = ()  # (stage, subject)
    edges: Sequence[EdgeRow] = ()
    commands: Sequence[CommandRow] = ()


class StoreInfo(NamedTuple):
    """Identity of a store. `layout` and `format` are compared at opening, by number."""

    store_id: str  # 32 hex digits, made at creation
    layout: int  # of tables and folders
    format: int  # of the records


class Reads(Protocol):
    """Questions to one consistent view. All pages are bounded by `limit` (at least 1) and ordered as said."""

    def head(self, stream: Stream) -> Head: ...

    def streams(self) -> list[Stream]:
        """Every stream that has a record, ordered by (scope, name)."""
        ...

    def states(self, stream: Stream, subjects: Sequence[str]) -> dict[str, StateRow]:
        """The rows of these subjects; a subject without a row is absent from the answer."""
        ...

    def state_page(self, stream: Stream, after: str, prefix: str, limit: int) -> list[StateRow]:
        """Rows with `subject > after` that start with `prefix`, ordered by subject (bytewise)."""
        ...

    def command(self, stream: Stream, key: str) -> CommandRow | None: ...

    def commands(self, stream: Stream, keys: Sequence[str]) -> dict[str, CommandRow]: ...

    def records(self, stream: Stream, after_seq: int, limit: int) -> list[StoredRecord]:
        """Records with `seq > after_seq`, ascending."""
        ...

    def find_due(
        self, stream: Stream, stage: str, now_us: int, after: Cursor | None, limit: int, group: str | None = None
    ) -> list[IndexRow]:
        """Rows of `stage` with `due_us <= now_us` beyond `after`, ordered by (due_us, rank, subject).

        `group=None` takes every group. The cost depends on `limit`, never on how many rows the stage has.
        """
        ...

    def find_last(self, stream: Stream, stage: str, group: str, limit: int) -> list[IndexRow]:
        """Rows of `stage` and `group` in descending order of (due_us, rank, subject)."""
        ...

    def next_due(self, stream: Stream, stage: str) -> int | None:
        """The smallest `due_us` of the stage, None when it is empty. For sleeping just long enough."""
        ...

    def index_page(self, stream: Stream, after: tuple[str, str] | None, limit: int) -> list[IndexRow]:
        """All index rows ordered by (stage, subject), for comparison with a replay."""
        ...

    def edges(self, stream: Stream, member: str, after_position: int, limit: int) -> list[EdgeRow]:
        """Dependents of `member` with `position > after_position`, ascending by position."""
        ...

    def edge_count(self, stream: Stream, member: str) -> int:
        """How many edges `member` has; the next edge's position."""
        ...


class Transaction(Reads, Protocol):
    """Exclusive right to append to one stream. Reads see the head under the lock."""

    def append(self, group: Append) -> None:
        """Stage one group. Raises HeadMoved when `group.expected` is not the stream's head."""
        ...

    def replace_caches(
        self,
        stream: Stream,
        fold_version: int,
        states: Sequence[StateRow],
        index: Sequence[IndexRow],
        edges: Sequence[EdgeRow],
    ) -> None:
        """Drop every state, index and edge row of the stream and write these. Records stay as they are."""
        ...

    def commit(self) -> None:
        """Make all of it durable and visible. Raises StorageFull, StorageUnavailable or StorageError."""
        ...


class Journal(Protocol):
    """A store. Safe for use from any thread of one process; not to be carried over a fork."""

    @property
    def engine(self) -> str:
        """`memory`, `sqlite`, `postgres`, …"""
        ...

    @property
    def info(self) -> StoreInfo: ...

    def transaction(self, stream: Stream, *, wait_s: float = 30.0) -> AbstractContextManager[Transaction]:
        """Wait in turn for the stream's lock. Raises StorageUnavailable after `wait_s` seconds, or a little later."""
        ...

    def snapshot(self) -> AbstractContextManager[Reads]: ...

    def change_token(self) -> int:
        """A cheap number that differs after any process has committed; a safety net for lost wake-ups."""
        ...

    def close(self) -> None:
        """Release everything. A second call does nothing; any other call afterwards raises StorageUnavailable."""
        ...
