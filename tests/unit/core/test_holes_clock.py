"""A reading that nobody may believe changes nothing that a later proof rests on (lifecycle, 18)."""

from __future__ import annotations

from msgspec.structs import replace

from tests.support.states import world_in
from tests.support.world import SECOND


def test_w8_a_quarantined_reading_is_kept_and_is_never_the_mark() -> None:
    world = world_in("active/running")
    before = world.clock
    world.tick_us += SECOND
    world.utc_us += 3_600 * SECOND
    world.observe()
    seq = world.clock.quarantined_seq
    assert seq > before.last_seq
    expected = replace(before, version=before.version + 1, state="clock_reconciliation_required", quarantined_seq=seq)
    assert world.clock == expected
