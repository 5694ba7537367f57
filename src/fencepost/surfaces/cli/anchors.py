"""What the signed anchors outside a store say of it at a glance; `journal verify` checks them all.

A store that is provably older than what was signed, or another one, takes no command: what has been done and paid for
since is not in it, and would be done again; and whatever it signed would make its newest copy look wrong. The same
holds for a copy of a home that stands. Reading goes on. To go on behind a declared loss takes a new epoch, which a
later version has (decision 0018).
"""

from __future__ import annotations

from shlex import quote
from typing import NamedTuple

from fencepost.app import App
from fencepost.core.anchor import Checkpoint
from fencepost.core.ids import sha256_of
from fencepost.kernel.read import Look
from fencepost.ports.errors import FencepostError
from fencepost.ports.journal import Head

VERIFY = "fencepost journal verify"
UNSIGNED_INTERVALS_MAX = 2  # records that a scope may have without an anchor, in intervals between two of them
LOOKED_AT_MAX = 100  # anchors, the last that were left: a store that went on after a restore agrees with its own


class Finding(NamedTuple):
    """`bad` where the store is not what was signed, else what vouched for it is lost."""

    bad: bool
    message: str
    following: str


def anchor_finding(opened: App) -> Finding | None:
    """What is wrong between the newest anchors and the chain; None where they agree, and for a scope that has not been
    signed for yet."""
    kernel = opened.kernel
    anchors = kernel.ledger.all(scope=kernel.stream.scope, stream=kernel.stream.name)[-LOOKED_AT_MAX:]
    with kernel.reader.look() as look:
        head = look.head
        if not anchors:
            if not are_anchors_lost(opened, head.seq):
                return None
            message = f"none of this store is left in {opened.ledger.named()}, so nothing vouches for its chain"
            return Finding(False, message, f"{VERIFY} --anchor SEQ:DIGEST, with what was kept elsewhere")
        told = next((text for each in reversed(anchors) if (text := _disagreement(each, head, look))), None)
    if told is None:
        return None
    copies = opened.ledger.other_homes()
    if copies:
        told += f"; {copies[0]} is another home of the same store and signs into the same ledger"
        return Finding(True, told, f"use the one that has gone on; begin this one anew: {_aside(opened)}")
    told += "; the store is an older copy, was restored from one, or was rewritten"
    return Finding(
        True,
        told,
        "put its newest copy back; else go on in a new scope (fencepost init --scope NAME) or a new home: "
        f"{_aside(opened)}",
    )


def are_anchors_lost(opened: App, sequence: int) -> bool:
    """Whether a scope of so many records, of which the ledger has no anchor, must have left one (decision 0018).

    Its home says so, or its length does: whoever writes for long signs as it goes, a new scope when its first writer
    closes.
    """
    kernel = opened.kernel
    return (
        opened.ledger.has_signed(kernel.scope)
        or sequence >= UNSIGNED_INTERVALS_MAX * kernel.limits.checkpoint_interval_records
    )


def require_current(opened: App) -> None:
    """Raises NotAsSigned and HomeIsCopy, before anything is written."""
    original = opened.ledger.copied_from()
    if original is not None:
        raise HomeIsCopy(
            f"{opened.home} is a copy of {original}, which stands: both would run the same orders",
            next_step=f"work in {original}; if that one is given up, move it away; to begin anew here: "
            f"{_aside(opened)}",
        )
    found = anchor_finding(opened)
    if found is not None and found.bad:
        message = f"{found.message}. What was done since is not in it, so nothing is started"
        raise NotAsSigned(f"{message} (to accept that loss is not built yet)", next_step=found.following)


class NotAsSigned(FencepostError):
    """The chain lacks a record that was signed, or has another one in its place."""

    code = "journal_not_as_signed"


class HomeIsCopy(FencepostError):
    """The home was copied, and the one that it was copied from is still there."""

    code = "home_is_copy"


def _aside(opened: App) -> str:
    return f"mv {quote(str(opened.home))} {quote(f'{opened.home}.old')}"


def _disagreement(anchor: Checkpoint, head: Head, look: Look) -> str | None:
    if anchor.sequence > head.seq:
        return f"the journal ends at record {head.seq}, and record {anchor.sequence} was signed before"
    rows = look.records(anchor.sequence - 1, 1)
    if not rows or sha256_of(rows[0][1]) != anchor.digest:
        return f"record {anchor.sequence} is not the one that was signed"
    return None


def anchor_line(opened: App) -> str | None:
    """One line for who runs something; None where `anchor_finding` finds nothing."""
    found = anchor_finding(opened)
    return None if found is None else f"anchors: {found.message}; next: {found.following}"
