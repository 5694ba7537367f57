"""Stored bytes as they are read: decoded, or named as damaged with the command that mends them.

Rows of states are caches, which `journal replay --rebuild` makes anew from the records. Records are the history
itself: of those a damaged one is found and named by `journal verify`.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import msgspec

from fencepost.core.chain import BrokenChain, open_record
from fencepost.core.records import Record
from fencepost.core.state import FOLD_VERSION, decode_value
from fencepost.kernel.receipts import Receipt
from fencepost.ports.errors import IntegrityError, StorageMismatch
from fencepost.ports.journal import CommandRow, Head

REBUILD = "fencepost journal replay --rebuild"
VERIFY = "fencepost journal verify"
_RECEIPT = msgspec.json.Decoder(Receipt)

KNOWN_MAX = 512  # values that are remembered by their bytes: whoever looks again most often sees what was there
KNOWN_BYTES_MAX = 8_192  # of one of them
_known = lru_cache(KNOWN_MAX)(decode_value)


def value_of(subject: str, data: bytes) -> Any:
    """The state of a subject. Raises IntegrityError for bytes that no state was ever written as."""
    try:
        return _known(data) if len(data) <= KNOWN_BYTES_MAX else decode_value(data)
    except msgspec.DecodeError as error:
        raise IntegrityError(f"the cached row of {subject} is damaged ({error})", next_step=REBUILD) from error


def as_damage(error: Exception) -> Exception:
    """What a decider says of a subject that the state names and that is not there, as damage of the caches.

    Deciders say it with LookupError itself; its subclasses are faults of the program, and stay what they are.
    """
    return IntegrityError(str(error), next_step=REBUILD) if type(error) is LookupError else error


def record_of(seq: int, data: bytes) -> Record:
    """A record, its form checked. Raises IntegrityError for bytes that are no record."""
    try:
        return open_record(seq, data)
    except BrokenChain as error:
        raise IntegrityError(str(error), next_step=VERIFY) from error


def receipt_of(row: CommandRow) -> Receipt:
    """The answer that a command key has had, as a repetition gets it. Raises IntegrityError for a damaged one."""
    try:
        receipt = _RECEIPT.decode(row.receipt)
    except msgspec.DecodeError as error:
        raise IntegrityError(
            f"the kept answer of command key {row.key} is damaged ({error})", next_step="use a fresh command key"
        ) from error
    return msgspec.structs.replace(receipt, fresh=False)


def other_fold(head: Head) -> StorageMismatch | None:
    """Why the caches of a stream cannot be used as they are; None when this program's own fold made them."""
    if not head.seq or head.fold_version == FOLD_VERSION:
        return None
    newer = head.fold_version > FOLD_VERSION
    return StorageMismatch(
        f"its caches were folded by version {head.fold_version}, this program has {FOLD_VERSION}",
        next_step="use the newer fencepost" if newer else REBUILD,
    )
