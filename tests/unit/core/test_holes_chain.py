"""A record is read as the one that was asked for, of this format, and follows in its own stream alone (W24)."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from fencepost.core import chain
from fencepost.core.canonical import encode_trusted
from fencepost.core.chain import BrokenChain, Link, Where
from fencepost.core.records import Stamp
from tests.support.world import DIGEST, GRANT, ME, World

WHERE = Where("scope", "main", 0)
STAMP = Stamp(key="key", digest=DIGEST, principal=ME, assurance="service", decision=DIGEST, grant=GRANT, clock=0)


def sealed() -> list[chain.Sealed]:
    return chain.seal(WHERE, Link(0, ""), World().facts, STAMP)


@pytest.mark.parametrize("read", [chain.open_record, chain.read_record])
def test_the_bytes_of_another_record_are_refused(read: Any) -> None:
    first, second, *_ = sealed()
    assert read(2, second.data).seq == 2
    with pytest.raises(BrokenChain, match="says that it is record 1"):
        read(2, first.data)


@pytest.mark.parametrize("read", [chain.open_record, chain.read_record])
def test_case_37_a_record_of_a_later_format_is_refused(read: Any) -> None:
    record = chain.open_record(1, sealed()[0].data)
    with pytest.raises(BrokenChain, match="journal format 1"):
        read(1, encode_trusted(replace(record, v=record.v + 1)))


@pytest.mark.parametrize("other", [Where("other", "main", 0), Where("scope", "other", 0), Where("scope", "main", 1)])
def test_a_record_of_another_scope_stream_or_epoch_does_not_follow(other: Where) -> None:
    first = sealed()[0]
    record = chain.open_record(1, first.data)
    assert chain.follow(Link(0, ""), WHERE, record, first.data) == Link(1, first.digest)
    with pytest.raises(BrokenChain, match="belongs to another"):
        chain.follow(Link(0, ""), other, record, first.data)
