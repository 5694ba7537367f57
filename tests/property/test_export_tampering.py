"""Whatever is done to an exported journal is found, and at the record where it was done (W24, W30).

Bytes are changed, dropped and added, records dropped, doubled, swapped, moved and replaced, in any mixture. What must
be found where is told by a reading of the same bytes that shares no code with the project: the first line that is not
the one that was written is the first that can be wrong. It is wrong itself unless it still is a record in canonical
form, in its place and with its link; then the line behind it has the wrong link, or, of the last one, the digest that
was kept elsewhere does not fit.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from io import BytesIO
from typing import Any

import rfc8785
from hypothesis import given, settings
from hypothesis import strategies as st

from fencepost.core.chain import BrokenChain, Link
from fencepost.core.machines import CorruptHistory
from fencepost.kernel.replay import verify
from fencepost.ports.journal import Head, StoredRecord, Stream
from fencepost.testing.prefixes import Prefixes, check_anchor, open_journal, read_lines
from tests.fixtures.lives import Lives
from tests.fixtures.renew import JOURNALS

TAMPERINGS_EACH = 8  # journals that are tampered with in one example
RECORDS = 70


@cache
def journals() -> tuple[tuple[bytes, ...], ...]:
    """The records of some journals: random lives, and the beginning and the end of a real run."""
    with open_journal(JOURNALS / "real-run.jsonl.gz") as file:
        real = tuple(read_lines(file))
    return (tuple(Lives(3).run(RECORDS).splitlines()), real[:RECORDS], real)


def digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


# What is done


@st.composite
def _bytes_changed(draw: st.DrawFn, journal: bytes) -> bytes:
    at = draw(st.integers(0, len(journal) - 1))
    other = draw(st.integers(0, 255).filter(lambda value: value != journal[at]))
    return journal[:at] + bytes([other]) + journal[at + 1 :]


@st.composite
def _text_changed(draw: st.DrawFn, journal: bytes) -> bytes:
    """A letter or digit for another one, which most often leaves a record that can be read."""
    at = draw(st.integers(0, len(journal) - 1))
    while not journal[at : at + 1].isalnum():
        at -= 1
    old = journal[at]
    letters = b"0123456789" if chr(old).isdigit() else b"abcdefghijklmnopqrstuvwxyz"
    return journal[:at] + bytes([draw(st.sampled_from([each for each in letters if each != old]))]) + journal[at + 1 :]


@st.composite
def _bytes_dropped(draw: st.DrawFn, journal: bytes) -> bytes:
    at = draw(st.integers(0, len(journal) - 1))
    return journal[:at] + journal[at + draw(st.sampled_from([1, 1, 2, 700])) :]


@st.composite
def _bytes_added(draw: st.DrawFn, journal: bytes) -> bytes:
    at = draw(st.integers(0, len(journal)))
    added = draw(st.one_of(st.binary(min_size=1, max_size=3), st.sampled_from([b"\n", b" ", b"\r", b"0", b"{}\n"])))
    return journal[:at] + added + journal[at:]


@st.composite
def _records_moved(draw: st.DrawFn, journal: bytes) -> bytes:
    """Records dropped, doubled, swapped, moved, put in another's place; or everything behind one cut off."""
    lines = journal.split(b"\n")
    if len(lines) < 3:
        return journal
    places = st.integers(0, len(lines) - 2)  # behind the last line end nothing follows
    one, other = draw(places), draw(places)
    match draw(st.sampled_from(["drop", "double", "swap", "neighbours", "move", "replace", "cut"])):
        case "drop":
            del lines[one]
        case "double":
            lines.insert(other, lines[one])
        case "swap":
            lines[one], lines[other] = lines[other], lines[one]
        case "neighbours":
            lines[one : one + 2] = reversed(lines[one : one + 2]) if one < len(lines) - 2 else lines[one : one + 2]
        case "move":
            lines.insert(other, lines.pop(one))
        case "replace":
            lines[one] = lines[other]
        case _:
            lines = [*lines[:one], b""]
    return b"\n".join(lines)


_WAYS = (_bytes_changed, _text_changed, _bytes_dropped, _bytes_added, _records_moved)


@st.composite
def tampered(draw: st.DrawFn, journal: bytes) -> bytes:
    for _ in range(draw(st.sampled_from([1, 1, 1, 2, 3]))):
        if journal:
            journal = draw(draw(st.sampled_from(_WAYS))(journal))
    return journal


# What must be found


def _no_double(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len({name for name, _ in pairs}) != len(pairs):
        raise ValueError("a name stands twice")
    return dict(pairs)


def _may_stand_here(line: bytes, place: int, before: bytes | None, original: bytes) -> bool:
    """Whether a line is a JSON document in canonical form that has the envelope of record `place + 1`."""
    try:
        document = json.loads(line, object_pairs_hook=_no_double)
        if not isinstance(document, dict) or rfc8785.dumps(document) != line:
            return False
    except (ValueError, RecursionError):
        return False
    written = json.loads(original)
    same = all(document.get(name) == written[name] for name in ("v", "scope", "stream", "epoch"))
    prev = "" if before is None else digest(before)
    return bool(same and document.get("seq") == place + 1 and document.get("prev") == prev)


def expected(original: tuple[bytes, ...], lines: list[bytes], *, knows_where: bool) -> set[int | None]:
    """Where the first finding may be: one place, or two where only the form of a body can say.

    `knows_where` says whether the reader knows the stream; else a first record says itself where it belongs.
    """
    if tuple(lines) == original:
        return {None}
    place = next(
        (at for at, (one, other) in enumerate(zip(original, lines, strict=False)) if one != other),
        min(len(original), len(lines)),
    )
    if place >= len(lines) or place >= len(original):
        return {place + 1}  # records that are missing at the end, or that were added there
    before = lines[place - 1] if place else None
    if (place or knows_where) and not _may_stand_here(lines[place], place, before, original[place]):
        return {place + 1}
    if place + 1 == len(original):
        return {place + 1, place + 2} if len(lines) > len(original) else {place + 1}
    return {place + 1, place + 2}


class Tampered:
    """A journal port with one stream, whose head is the one that was written, and whose records are others."""

    def __init__(self, original: tuple[bytes, ...], lines: list[bytes]) -> None:
        self._head = Head(0, len(original), digest(original[-1]), 1)
        self._records = [StoredRecord(seq, line) for seq, line in enumerate(lines, 1)]

    @contextmanager
    def snapshot(self) -> Iterator[Tampered]:
        yield self

    def head(self, _: Stream) -> Head:
        return self._head

    def records(self, _: Stream, after_seq: int, limit: int) -> list[StoredRecord]:
        return self._records[after_seq : after_seq + limit]


def found_by_verify(original: tuple[bytes, ...], lines: list[bytes]) -> int | None:
    stream = Stream("default", "main")
    kept = Link(len(original), digest(original[-1]))
    found = verify(Tampered(original, lines), stream, None, None, kept)  # type: ignore[arg-type]  # all that is asked
    assert found.ok == (found.first_bad is None)
    return found.first_bad


def found_by_fold(original: tuple[bytes, ...], journal: bytes) -> int | None:
    """What a reader of the exported file finds who folds it and has kept its end's digest."""
    fold = Prefixes()
    digests = []
    try:
        for line in read_lines(BytesIO(journal)):
            digests.append(fold.add(line).record)
        check_anchor(fold.replayed.link, digests, Link(len(original), digest(original[-1])))
        if len(digests) > len(original):
            return len(original) + 1
    except BrokenChain as error:
        return error.seq
    except CorruptHistory:
        return len(digests) + 1
    return None


@settings(max_examples=settings().max_examples)
@given(st.data())
def test_w24_every_tampering_is_found_at_its_record(data: st.DataObject) -> None:
    original = data.draw(st.sampled_from(journals()), label="journal")
    exported = b"".join(line + b"\n" for line in original)
    for number in range(TAMPERINGS_EACH):
        journal = data.draw(tampered(exported))
        lines = journal.split(b"\n")
        torn = lines.pop()  # nothing, where the last line has its end
        if torn:
            lines.append(torn)
        assert found_by_verify(original, lines) in expected(original, lines, knows_where=True)
        if number:
            continue
        where = expected(original, lines, knows_where=False)
        if torn and where == {None}:
            where = {len(lines)}  # the line end alone is gone: a file says so, a store has none
        assert found_by_fold(original, journal) in where


def test_an_untouched_journal_is_well() -> None:
    for original in journals():
        exported = b"".join(line + b"\n" for line in original)
        assert found_by_verify(original, list(original)) is None
        assert found_by_fold(original, exported) is None


def test_w24_a_record_sealed_anew_is_found_by_the_link_behind_it_and_the_last_one_by_the_kept_digest() -> None:
    """A body that was changed with care: every single record, one after the other."""
    for original in journals():
        for place, line in enumerate(original):
            record = json.loads(line)
            record["subject_version"] += 1
            lines = [*original[:place], rfc8785.dumps(record), *original[place + 1 :]]
            assert found_by_verify(original, lines) == min(place + 2, len(original))
