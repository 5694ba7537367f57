"""The clock port: one reading of this host's clocks. Nothing below the composition root asks for the time
otherwise.

A reading is evidence, not time: the sampler turns readings into observations, and only accepted observations
move a clock domain (W8). All figures are integers.
"""

from __future__ import annotations

from typing import Protocol

import msgspec


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """What a host's clocks said at one moment.

    `tick_us` never decreases within one `boot_id` and counts the time in which the host was suspended, where
    the system can tell; between two boot ids it says nothing. `utc_us` may jump in both directions.
    """

    utc_us: int
    """Microseconds since 1970-01-01 UTC, as the system clock has them."""
    tick_us: int
    """Microseconds since some start that is fixed within the boot; at least 0."""
    boot_id: str
    """Names one run of the tick counter: lower-case hexadecimal digits and dashes, at most 64 characters."""
    uncertainty_us: int
    """Upper bound of the distance between the two readings; at least 1."""
    source: str
    """Stable name of this host as a clock source: `source_` and 32 hexadecimal digits."""
    tick_unit: str = "us"
    """Unit of the tick; always microseconds."""


class Clock(Protocol):
    """A host's clocks. Safe to use from several threads; never blocks."""

    def read(self) -> Reading:
        """Read both clocks as close together as the system permits."""
        ...
