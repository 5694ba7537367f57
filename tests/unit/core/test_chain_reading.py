"""Sealed bytes read back, by the short way and by the long one, and what each kind of damage is called (W24)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fencepost.core.chain import BrokenChain, Link, Where, fact_of, follow, open_record, read_record, seal
from fencepost.core.ids import sha256_of
from fencepost.core.records import FORMAT, Stamp
from tests.support.states import TASK, world_in
from tests.support.world import DIGEST, ME

WHERE = Where("scope", "stream", 0)
STAMP = Stamp(key="key", digest=DIGEST, principal=ME, assurance="service", decision=DIGEST, grant=DIGEST, clock=1)
Read = Callable[[int, bytes], object]


def history() -> list[bytes]:
    """The records of an applied order, sealed as three batches."""
    facts = world_in("applied").facts
    sealed = []
    link = Link(0, "")
    for start, stop in ((0, 4), (4, 9), (9, len(facts))):
        made = seal(WHERE, link, facts[start:stop], STAMP)
        sealed += made
        link = Link(made[-1].seq, made[-1].digest)
    assert world_in("applied").order(TASK).state == "applied"
    return [record.data for record in sealed]


def test_w24_what_was_sealed_is_read_back_the_same_by_both_ways_and_follows_on() -> None:
    facts = world_in("applied").facts
    link = Link(0, "")
    for seq, data in enumerate(history(), 1):
        record = read_record(seq, data)
        assert record == open_record(seq, data)
        assert fact_of(record) == facts[seq - 1]
        assert (record.batch.first, record.batch.count) == (
            (1, 4) if seq < 5 else (5, 5) if seq < 10 else (10, len(facts) - 9)
        )
        assert (record.command is not None) == (seq in (1, 5, 10)), "once a batch, in its first record"
        link = follow(link, WHERE, record, data)
        assert link == Link(seq, sha256_of(data))


def test_w24_a_batch_follows_on_its_link_without_a_gap() -> None:
    facts = world_in("applied").facts
    with pytest.raises(ValueError, match="record 3 does not follow on 1"):
        seal(WHERE, Link(0, ""), [facts[0], facts[2]], STAMP)
    with pytest.raises(ValueError, match="record 1 does not follow on 1"):
        seal(WHERE, Link(1, DIGEST), facts[:2], STAMP)


DAMAGES: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "nothing": (lambda data: b"", "cannot be read: "),
    "no json": (lambda data: data[:-1], "cannot be read: "),
    "no text": (lambda data: data.replace(b'"seq":', b'"\xffeq":'), "invalid_utf8 at /"),
    "no kind": (lambda data: data.replace(b'"kind":', b'"kinf":'), "cannot be read: "),
    "an unknown kind": (
        lambda data: data.replace(b'"kind":"', b'"kind":"un'),
        "version 1 is not registered",
    ),
    "an unknown version": (
        lambda data: data.replace(b'"kind_version":1', b'"kind_version":9'),
        "version 9 is not registered",
    ),
    "an unknown field": (lambda data: data.replace(b'"seq":', b'"sez":1,"seq":'), "unknown_field at /"),
    "another format": (lambda data: data.replace(b'"v":%d}' % FORMAT, b'"v":9}'), "journal format 9 is not"),
}


@pytest.mark.parametrize("read", [read_record, open_record], ids=["short", "long"])
@pytest.mark.parametrize("damage", DAMAGES)
def test_w24_damaged_bytes_name_their_record_and_what_is_wrong(damage: str, read: Read) -> None:
    harm, problem = DAMAGES[damage]
    for seq, data in enumerate(history(), 1):
        assert harm(data) != data
        with pytest.raises(BrokenChain) as found:
            read(seq, harm(data))
        assert found.value.seq == seq and problem in found.value.problem
        assert str(found.value) == f"record {seq}: {found.value.problem}"


@pytest.mark.parametrize("read", [read_record, open_record], ids=["short", "long"])
def test_w24_a_record_in_anothers_place_says_whose_it_is(read: Read) -> None:
    with pytest.raises(BrokenChain) as found:
        read(2, history()[0])
    assert (found.value.seq, found.value.problem) == (2, "says that it is record 1")


def test_w24_only_the_long_way_proves_that_bytes_are_canonical() -> None:
    data = history()[0]
    spaced = data.replace(b'"seq":', b'"seq": ')
    assert read_record(1, spaced) == open_record(1, data)
    with pytest.raises(BrokenChain) as found:
        open_record(1, spaced)
    assert found.value.seq == 1 and found.value.problem.startswith("not_canonical at /: ")


def test_w24_what_does_not_follow_is_named_by_the_first_record_that_is_wrong() -> None:
    first, second, third = (read_record(seq, data) for seq, data in enumerate(history()[:3], 1))
    data = history()
    link = follow(Link(0, ""), WHERE, first, data[0])
    with pytest.raises(BrokenChain) as missing:
        follow(link, WHERE, third, data[2])
    assert (missing.value.seq, missing.value.problem) == (2, "is missing; record 3 follows on 1")
    with pytest.raises(BrokenChain) as unlinked:
        follow(Link(1, DIGEST), WHERE, second, data[1])
    assert (unlinked.value.seq, unlinked.value.problem) == (2, "does not name the digest of the record before it")
    for where in (Where("other", "stream", 0), Where("scope", "other", 0), Where("scope", "stream", 1)):
        with pytest.raises(BrokenChain) as elsewhere:
            follow(link, where, second, data[1])
        assert (elsewhere.value.seq, elsewhere.value.problem) == (2, "belongs to another stream or epoch")
    assert follow(link, WHERE, second, data[1]).seq == 2
