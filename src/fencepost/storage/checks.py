"""What every engine checks at its door, so that no engine forgives what another refuses."""

from __future__ import annotations

from fencepost.ports.errors import StorageError
from fencepost.ports.journal import Append, Head, Stream

EMPTY_HEAD = Head(epoch=0, seq=0, digest="", fold_version=0)
SEQ_BITS = 40
SEQ_MAX = (1 << SEQ_BITS) - 1

_DEFECT = "this is a defect of the program that wrote; nothing of the transaction was kept"


def require_limit(limit: int) -> None:
    """Raise ValueError unless a page has room for one row."""
    if limit < 1:
        raise ValueError(f"limit must be at least 1, not {limit}")


def require_own(stream: Stream, asked: Stream) -> None:
    """Raise StorageError when a transaction for `stream` is asked to write to another."""
    if asked != stream:
        raise StorageError(f"this transaction is for {'/'.join(stream)}, not for {'/'.join(asked)}", next_step=_DEFECT)


def require_whole(group: Append) -> None:
    """Raise StorageError unless the records are exactly those between the two heads, in order."""
    numbered = all(record.seq == seq for seq, record in enumerate(group.records, group.expected.seq + 1))
    if not numbered or group.head.seq != group.expected.seq + len(group.records) or group.head.seq > SEQ_MAX:
        raise StorageError(
            f"records of {'/'.join(group.stream)} do not lead from {group.expected.seq} to {group.head.seq}",
            next_step=_DEFECT,
        )


def written_once(what: str) -> StorageError:
    """Return what to raise when a command or an edge is written a second time."""
    return StorageError(f"a row that is written once exists already: {what}", next_step=_DEFECT)


def ended() -> StorageError:
    """Return what to raise when a snapshot or transaction is used after its end."""
    return StorageError("this view of the store has ended", next_step="open a new snapshot or transaction")
