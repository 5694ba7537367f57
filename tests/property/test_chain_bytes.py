"""The hash chain at the level of the core: any changed, dropped, swapped or added byte is found (W24).

A journal is a row of records, and a head that is known from elsewhere: the reader opens each record, follows the
chain from nothing, and ends at the head. Whatever else the row has become, some record does not fit, and it is one
that lies no later than right behind the first place that differs.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fencepost.core.chain import BrokenChain, Link, Where, fact_of, follow, open_record, read_record, seal
from fencepost.core.ids import sha256_of
from fencepost.core.records import Stamp
from tests.conftest import profile_name
from tests.support.states import HISTORIES, world_in
from tests.support.world import DIGEST

WHERE = Where("scope", "main", 0)
STAMP = Stamp(key="k", digest=DIGEST, principal="p", assurance="service", decision="", grant=DIGEST)
NAMES = sorted(HISTORIES)
EXAMPLES = settings.get_profile(profile_name()).max_examples
pytestmark = pytest.mark.timeout(3_600 if profile_name() == "nightly" else 120)


@cache
def chain_of(name: str, batch: int = 0, where: Where = WHERE) -> tuple[bytes, ...]:
    """The history's records, sealed in batches of `batch`, 0 for one batch of all."""
    facts = world_in(name).facts
    size = batch or len(facts)
    link = Link(0, "")
    lines: list[bytes] = []
    for start in range(0, len(facts), size):
        sealed = seal(where, link, facts[start : start + size], STAMP)
        lines += [record.data for record in sealed]
        link = Link(sealed[-1].seq, sealed[-1].digest)
    return tuple(lines)


def head_of(lines: Sequence[bytes]) -> Link:
    return Link(len(lines), sha256_of(lines[-1]))


def first_bad(lines: Sequence[bytes], head: Link, where: Where = WHERE) -> int:
    """The first record that does not fit, 0 when the row is what was written."""
    link = Link(0, "")
    for seq, data in enumerate(lines, 1):
        try:
            link = follow(link, where, open_record(seq, data), data)
        except BrokenChain as error:
            return error.seq
    return 0 if link == head else max(len(lines), head.seq)


def first_difference(lines: Sequence[bytes], changed: Sequence[bytes]) -> int:
    pairs = zip(lines, changed, strict=False)
    found = next((seq for seq, (one, other) in enumerate(pairs, 1) if one != other), None)
    return found if found is not None else min(len(lines), len(changed)) + 1


def require_found(lines: Sequence[bytes], changed: Sequence[bytes]) -> None:
    bad = first_bad(changed, head_of(lines))
    different = first_difference(lines, changed)
    # A record changed within its form is found by the one behind it, at the end of the row by the head.
    assert different <= bad <= different + 1 or (bad and bad == max(len(lines), len(changed)))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("batch", [0, 1, 3])
def test_w24_what_was_sealed_is_followed_to_its_head(name: str, batch: int) -> None:
    lines = chain_of(name, batch)
    assert first_bad(lines, head_of(lines)) == 0
    opened = [open_record(seq, data) for seq, data in enumerate(lines, 1)]
    assert [fact_of(record) for record in opened] == world_in(name).facts
    assert [read_record(seq, data) for seq, data in enumerate(lines, 1)] == opened
    firsts = [record.seq for record in opened if record.command is not None]
    assert firsts == list(range(1, len(lines) + 1, batch or len(lines)))
    assert all(record.batch.first <= record.seq < record.batch.first + record.batch.count for record in opened)


def test_w24_every_byte_of_every_record_is_guarded() -> None:
    """Each place of a whole history once: the byte changed, dropped, doubled, and swapped with the next one."""
    lines = chain_of("applied", 1)
    draw = random.Random(24)
    head = head_of(lines)
    step = 1 if profile_name() == "nightly" else 23
    for number, data in enumerate(lines):
        for at in range(draw.randrange(step), len(data), step):
            byte = data[at : at + 1]
            other = bytes([byte[0] ^ 1 << draw.randrange(8)])
            changes = [other, b"", byte * 2, b" " + byte]
            if data[at + 1 : at + 2] not in (b"", byte):
                changes.append(data[at + 1 : at + 2] + byte)
            for change in changes:
                width = 2 if len(change) == 2 and change[1:] == byte and change[:1] == data[at + 1 : at + 2] else 1
                changed = data[:at] + change + data[at + width :]
                if changed == data:
                    continue
                # Only this record and the one behind it can tell.
                bad = _bad_at(lines, number, changed, head)
                assert bad in (number + 1, number + 2), f"record {number + 1}, byte {at}: {change!r} for {byte!r}"


def _bad_at(lines: Sequence[bytes], number: int, changed: bytes, head: Link) -> int:
    """Which record does not fit when record `number + 1` is `changed`, 0 for none."""
    link = Link(number, sha256_of(lines[number - 1]) if number else "")
    for seq, data in enumerate([changed, *lines[number + 1 : number + 2]], number + 1):
        try:
            link = follow(link, WHERE, open_record(seq, data), data)
        except BrokenChain as error:
            return error.seq
    return 0 if number + 1 < len(lines) or link == head else number + 1


@st.composite
def edits(draw: st.DrawFn) -> tuple[str, int, list[bytes]]:
    """A history, its batching, and its row of records after one to three changes of whole records or of bytes."""
    name = draw(st.sampled_from(NAMES))
    batch = draw(st.sampled_from([0, 1, 3]))
    lines = list(chain_of(name, batch))
    places = st.integers(0, 10_000)
    for _ in range(draw(st.integers(1, 3))):
        if not lines:
            break
        at = draw(places) % len(lines)
        other = draw(places) % len(lines)
        match draw(st.integers(0, 7)):
            case 0:
                del lines[at]
            case 1:
                lines[at], lines[other] = lines[other], lines[at]
            case 2:
                lines.insert(at, lines[other])
            case 3:
                del lines[at:]
            case 4:
                foreign = chain_of(draw(st.sampled_from(NAMES)), batch)
                lines[at] = foreign[min(at, len(foreign) - 1)]
            case 5:
                foreign = chain_of(name, batch, WHERE._replace(stream="other"))
                lines[at] = foreign[min(at, len(foreign) - 1)]
            case 6:
                start = draw(places) % len(lines[at])
                end = start + draw(st.integers(0, 9))
                lines[at] = lines[at][:start] + draw(st.binary(max_size=9)) + lines[at][end:]
            case _:
                cut = draw(places) % len(lines[at])
                lines[at : at + 1] = [lines[at][:cut], lines[at][cut:]]
    return name, batch, lines


@settings(max_examples=EXAMPLES * 5)
@given(edits())
def test_w24_no_other_row_of_records_leads_to_the_same_head(edit: tuple[str, int, list[bytes]]) -> None:
    name, batch, changed = edit
    lines = chain_of(name, batch)
    if list(lines) == changed:
        assert first_bad(changed, head_of(lines)) == 0
    else:
        require_found(lines, changed)


@settings(max_examples=EXAMPLES)
@given(name=st.sampled_from(NAMES), place=st.integers(0, 10_000), joined=st.booleans())
def test_w24_a_chain_computed_anew_fits_in_itself_and_not_to_the_head(name: str, place: int, joined: bool) -> None:
    """Why there are anchors: whoever may write everything leaves no record that does not fit, but another head."""
    facts = list(world_in(name).facts)
    at = place % len(facts)
    dropped = [*facts[:at], *(fact._replace(seq=fact.seq - 1) for fact in facts[at + 1 :])]
    if not dropped:
        return
    sealed = seal(WHERE, Link(0, ""), dropped, STAMP) if joined else []
    for fact in [] if joined else dropped:
        link = Link(sealed[-1].seq, sealed[-1].digest) if sealed else Link(0, "")
        sealed += seal(WHERE, link, [fact], STAMP)
    lines = [record.data for record in sealed]
    head = head_of(chain_of(name))
    assert first_bad(lines, Link(len(lines), sealed[-1].digest)) == 0
    assert first_bad(lines, head) == head.seq


def test_w24_a_batch_with_a_gap_is_not_sealed() -> None:
    facts = world_in("ready").facts
    for wrong in (facts[1:], [facts[0], facts[2]], [facts[0], facts[0]]):
        with pytest.raises(ValueError, match="does not follow"):
            seal(WHERE, Link(0, ""), wrong, STAMP)


@pytest.mark.parametrize("name", NAMES)
def test_w24_a_record_follows_on_nothing_but_what_is_before_it(name: str) -> None:
    lines = chain_of(name)
    for seq, data in enumerate(lines, 1):
        record = open_record(seq, data)
        before = Link(seq - 1, record.prev)
        assert follow(before, WHERE, record, data) == Link(seq, sha256_of(data))
        elsewhere = [WHERE._replace(scope="other"), WHERE._replace(stream="other"), WHERE._replace(epoch=1)]
        tries = [(Link(seq, record.prev), WHERE), (Link(seq - 2, record.prev), WHERE), (Link(seq - 1, DIGEST), WHERE)]
        for link, where in [*tries, *((before, each) for each in elsewhere)]:
            with pytest.raises(BrokenChain):
                follow(link, where, record, data)
        for wrong in (seq - 1, seq + 1):
            with pytest.raises(BrokenChain, match="says that it is record"):
                open_record(wrong, data)
