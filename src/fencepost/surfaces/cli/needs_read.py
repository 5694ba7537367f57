"""What the orders of a plan need, read in pages: specs of one submission stand side by side in the journal.

Asking the store for each order's needs costs a question an order. Here a plan costs a question for some hundred
records, whatever its size, and a replacement that was submitted later one page more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from fencepost.core.state import OrderState
from fencepost.kernel.read import Look
from fencepost.kernel.rows import VERIFY
from fencepost.ports.errors import IntegrityError

PAGE = 500
GAP_MAX = 200  # records of others between two specs that are read over rather than asked for anew


class Member(msgspec.Struct, frozen=True):
    """An order that a group waits for, and the outcomes that satisfy it."""

    order: str
    outcomes: tuple[str, ...] = ()


class Group(msgspec.Struct, frozen=True):
    """One dependency group; `members` may name orders that were replaced since."""

    kind: str
    members: tuple[Member, ...]


class _Spec(msgspec.Struct):
    groups: tuple[Group, ...] = ()


class _Body(msgspec.Struct):
    body: _Spec


_SPEC = msgspec.json.Decoder(_Body)


def read_groups(look: Look, orders: Sequence[OrderState]) -> dict[str, tuple[Group, ...]]:
    """Order -> its groups as its spec has them; nothing for an order without needs."""
    wanted = {order.spec_seq: order.order for order in orders if order.groups}
    found: dict[str, tuple[Group, ...]] = {}
    for first, last in _runs(sorted(wanted)):
        after = first - 1
        while after < last and (page := look.records(after, min(PAGE, last - after))):
            for seq, data in page:
                if seq in wanted:
                    found[wanted[seq]] = _groups(seq, data)
            after = page[-1][0]
    return found


def _runs(sequences: Sequence[int]) -> list[tuple[int, int]]:
    """First and last of each stretch without a wide gap."""
    runs: list[tuple[int, int]] = []
    for seq in sequences:
        if runs and seq - runs[-1][1] <= GAP_MAX:
            runs[-1] = (runs[-1][0], seq)
        else:
            runs.append((seq, seq))
    return runs


def _groups(seq: int, data: bytes) -> tuple[Group, ...]:
    try:
        return _SPEC.decode(data).body.groups
    except msgspec.DecodeError as error:
        raise IntegrityError(f"record {seq} cannot be read ({error})", next_step=VERIFY) from error


def newest_of(by_id: Mapping[str, OrderState]) -> dict[str, str]:
    """Each order's last replacement, itself where it was never replaced."""
    newest: dict[str, str] = {}
    for name in by_id:
        chain = [name]
        while chain[-1] not in newest:
            following = by_id[chain[-1]].replaced_by
            if following is None or following not in by_id:
                newest[chain[-1]] = chain[-1]
                break
            chain.append(following)
        for each in chain:
            newest[each] = newest[chain[-1]]
    return newest
