"""What the kernel hands to a decision about grants: the host's time of its own reading (W23, C26)."""

from __future__ import annotations

from typing import Any

import pytest

from fencepost.core.decide import Given, decide
from fencepost.kernel import group
from fencepost.kernel.kernel import SERVICE_OPERATIONS
from tests.kernel.support import done, kernel_over, memory, submit


def test_c26_every_decision_is_handed_the_utc_of_its_groups_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Given] = []

    def watched(view: Any, request: Any, given: Given, next_seq: int) -> Any:
        seen.append(given)
        return decide(view, request, given, next_seq)

    monkeypatch.setattr(group, "decide", watched)
    kernel = kernel_over(memory())
    seen.clear()
    read = kernel.clock.read()
    monkeypatch.setattr(kernel.clock, "read", lambda: read)
    done(kernel, "human", submit("a"))
    assert seen and {given.utc_us for given in seen} == {read.utc_us}


def test_w12_a_grant_is_written_down_as_its_token_verifies() -> None:
    kernel = kernel_over(memory())
    with kernel.reader.look() as look:
        authority = look.authority()
    assert authority is not None
    names = {principal: state.name for principal, state in authority.principals.items()}
    granted = {names[grant.audience]: frozenset(grant.operations) for grant in authority.grants.values()}
    assert {name: granted[name] for name in SERVICE_OPERATIONS} == SERVICE_OPERATIONS
