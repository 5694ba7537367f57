"""What the signed anchors outside a store say of it at a glance; `journal verify` checks them all."""

from __future__ import annotations

from typing import NamedTuple

from fencepost.app import App
from fencepost.core.ids import sha256_of
from fencepost.surfaces.cli.words import UNSIGNED

VERIFY = "fencepost journal verify"


class Finding(NamedTuple):
    """`bad` where the store is not what was signed, else it works with less to vouch for it."""

    bad: bool
    message: str
    following: str


def anchor_finding(opened: App) -> Finding | None:
    """What is wrong between the newest anchor and the chain, None where they agree."""
    kernel = opened.kernel
    anchor = kernel.ledger.latest(scope=kernel.stream.scope, stream=kernel.stream.name)
    with kernel.reader.look() as look:
        head = look.head
        rows = [] if anchor is None else look.records(anchor.sequence - 1, 1)
    if anchor is None:
        return Finding(False, UNSIGNED.format(place=opened.ledger.where()), VERIFY)
    if anchor.sequence > head.seq:
        told = f"the journal ends at record {head.seq}, and record {anchor.sequence} was signed before"
    elif not rows or sha256_of(rows[0][1]) != anchor.digest:
        told = f"record {anchor.sequence} is not the one that was signed"
    else:
        return None
    copies = opened.ledger.other_homes()
    if copies:
        told += f"; {copies[0]} is another home of the same store and signs into the same ledger"
        return Finding(True, told, "keep one of the two homes; begin the other anew, in a folder without .fencepost")
    told += "; the store is an older copy, was restored from one, or was rewritten"
    return Finding(True, told, f"{VERIFY}; do not write to this store before its newest copy is found")


def anchor_line(opened: App) -> str | None:
    """One line for who runs something; None for a store that agrees with its anchors or has never left one."""
    found = anchor_finding(opened)
    if found is None or not (found.bad or opened.ledger.has_signed()):
        return None
    return f"anchors: {found.message}: {found.following}"
