"""How a record kind is registered: once, with a record type that is as strict as every other (W24)."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest

from fencepost.core.canonical import encode_trusted
from fencepost.core.records import KIND_OF, KINDS, Record, Span
from fencepost.core.records.common import Digest
from fencepost.core.records.envelope import Body, Kind, record_kind


class Note(Body, frozen=True):
    text: str


@pytest.fixture
def registered() -> Iterator[Kind]:
    assert record_kind("note_of_a_test", 3, "W1", "C2")(Note) is Note
    try:
        yield KIND_OF[Note]
    finally:
        del KINDS["note_of_a_test", 3], KIND_OF[Note]


def test_w24_a_kind_is_found_by_name_and_version_and_by_its_body(registered: Kind) -> None:
    assert KINDS["note_of_a_test", 3] is registered
    assert (registered.name, registered.version, registered.body) == ("note_of_a_test", 3, Note)
    assert registered.rows == ("W1", "C2")
    with pytest.raises(ValueError, match="note_of_a_test version 3 is registered already"):
        record_kind("note_of_a_test", 3)(Note)
    assert ("note_of_a_test", 4) not in KINDS


def test_w24_its_records_are_frozen_strict_and_say_no_defaults(registered: Kind) -> None:
    record = registered.record
    assert issubclass(record, Record) and record.__name__ == "NoteRecord"
    assert record.__module__ == "fencepost.core.records.envelope"
    config = record.__struct_config__
    assert config.frozen and config.forbid_unknown_fields and config.omit_defaults
    made = record(
        v=0,
        scope="s",
        stream="t",
        epoch=0,
        seq=1,
        batch=Span(first=1, count=1),
        prev="",
        kind="note_of_a_test",
        kind_version=3,
        subject="x",
        subject_version=1,
        body=Note(text="a"),
    )
    data = encode_trusted(made)
    assert b'"command"' not in data and msgspec.json.decode(data, type=record) == made
    assert isinstance(msgspec.json.decode(data, type=record).body, Note)
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(data.replace(b'"seq"', b'"sequence"'), type=record)


@pytest.mark.parametrize("more", ["\n", " ", "0"])
def test_w24_a_digest_is_its_64_digits_and_nothing_behind_them(more: str) -> None:
    known = f"sha256:{'0' * 64}"
    assert msgspec.convert(known, Digest) == known
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(known + more, Digest)
