"""What the signed anchors outside a store say of it at a glance; `journal verify` checks them all."""

from __future__ import annotations

from typing import NamedTuple

from fencepost.app import App
from fencepost.core.anchor import Checkpoint
from fencepost.core.ids import sha256_of
from fencepost.kernel.read import Look
from fencepost.ports.journal import Head
from fencepost.surfaces.cli.words import UNSIGNED

VERIFY = "fencepost journal verify"
LOOKED_AT_MAX = 100  # anchors, the last that were left: a store that went on after a restore agrees with its own


class Finding(NamedTuple):
    """`bad` where the store is not what was signed, else it works with less to vouch for it."""

    bad: bool
    message: str
    following: str


def anchor_finding(opened: App) -> Finding | None:
    """What is wrong between the newest anchors and the chain, None where they agree."""
    kernel = opened.kernel
    anchors = kernel.ledger.all(scope=kernel.stream.scope, stream=kernel.stream.name)[-LOOKED_AT_MAX:]
    if not anchors:
        return Finding(False, UNSIGNED.format(place=opened.ledger.where()), VERIFY)
    with kernel.reader.look() as look:
        head = look.head
        told = next((text for each in reversed(anchors) if (text := _disagreement(each, head, look))), None)
    if told is None:
        return None
    copies = opened.ledger.other_homes()
    if copies:
        told += f"; {copies[0]} is another home of the same store and signs into the same ledger"
        return Finding(True, told, "keep one of the two homes; begin the other anew, in a folder without .fencepost")
    told += "; the store is an older copy, was restored from one, or was rewritten"
    return Finding(True, told, f"{VERIFY}; do not write to this store before its newest copy is found")


def _disagreement(anchor: Checkpoint, head: Head, look: Look) -> str | None:
    if anchor.sequence > head.seq:
        return f"the journal ends at record {head.seq}, and record {anchor.sequence} was signed before"
    rows = look.records(anchor.sequence - 1, 1)
    if not rows or sha256_of(rows[0][1]) != anchor.digest:
        return f"record {anchor.sequence} is not the one that was signed"
    return None


def anchor_line(opened: App) -> str | None:
    """One line for who runs something; None for a store that agrees with its anchors or has never left one."""
    found = anchor_finding(opened)
    if found is None or not (found.bad or opened.ledger.has_signed()):
        return None
    return f"anchors: {found.message}: {found.following}"
