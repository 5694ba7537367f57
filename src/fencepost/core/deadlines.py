"""When a lease or reservation ends: one answer for those who decide and those who fold (W8, W10).

A gap in observation gives one grace interval: what would have ended from `grace_from_us` on ends no earlier than
`grace_until_us`.
"""

from __future__ import annotations

from fencepost.core.state import ClockState


def effective_end_us(clock: ClockState, deadline_us: int) -> int:
    """When a lease or reservation ends, with the grace that a gap in observation gives it."""
    if clock.grace_until_us and deadline_us >= clock.grace_from_us:
        return max(deadline_us, clock.grace_until_us)
    return deadline_us


def has_lapsed(clock: ClockState, deadline_us: int) -> bool:
    """Whether a lease or reservation is past its end, from its holder's view: at the end it is over."""
    return clock.logical_us >= effective_end_us(clock, deadline_us)


def is_past(clock: ClockState, deadline_us: int) -> bool:
    """Whether a deadline is past for others: later than the reading's uncertainty can reach back."""
    return clock.logical_us - clock.uncertainty_us >= deadline_us
