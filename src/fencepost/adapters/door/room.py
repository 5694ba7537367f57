"""Who makes room for whom: how many connections a door may have, and which of them goes when one more comes.

Connections share the descriptors of their process with everything that its worker opens. A third of what is free when
the door opens is theirs, so that no number of connections keeps the worker from its work. Whoever has a connection that
nothing is asked on can lose it: a program that was shown out comes again when it has something to say.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

import msgspec

from fencepost.adapters.descriptors import free_descriptors
from fencepost.adapters.door.link import Link
from fencepost.sdk import wire

LINKS_SHARE: Final = 3
LINKS_LEAST: Final = 4


class DoorLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds of one door, inclusive; times are seconds."""

    line_bytes_max: int = wire.LINE_BYTES_MAX
    payload_bytes_max: int = wire.PAYLOAD_BYTES_MAX
    held_bytes_max: int = 64 * 2**20
    strangers_max: int = 64
    links_per_sender_max: int = 16
    links_max: int = 1_024  # fewer where the process may not open many files
    answerers: int = 4
    slow_answerers: int = 4  # for requests that may move many bytes; no other waits behind one of them
    line_s: float = 10.0  # from the first byte of a line, and for a stranger from the beginning, to its end
    held_s: float = 30.0  # for room for a payload, and then for the payload itself
    reply_s: float = 30.0
    idle_s: float = 900.0


def links_within(links_max: int) -> int:
    """How many connections a door may have, of at most `links_max`."""
    free = free_descriptors()
    return links_max if free is None else min(links_max, max(free // LINKS_SHARE, LINKS_LEAST))


def idle_links(links: Iterable[Link], by_sender: Counter[str]) -> list[Link]:
    """The connections that can make room, in their order: those of the senders with the most, and of them those that
    have asked nothing for longest."""
    idle = [link for link in links if link.is_idle]
    return sorted(idle, key=lambda link: (-by_sender[link.who], link.until or 0.0))
