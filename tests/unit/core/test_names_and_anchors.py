"""Identifiers, schemas and sealed checkpoints, each computed a second time or taken to its very bound."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from fencepost.core import schemas
from fencepost.core.anchor import (
    CHECKPOINT_PAYLOAD_TYPE,
    ENVELOPE_BYTES_MAX,
    AnchorMalformed,
    Checkpoint,
    Envelope,
    Signature,
    key_id,
    seal,
    unseal,
)
from fencepost.core.canonical import digest_of, encode
from fencepost.core.ids import IdSource, is_id
from fencepost.core.records import FORMAT, KINDS

SEED = bytes(range(16))
LAST_MS = 2**48 - 1


# Identifiers


@pytest.mark.parametrize(
    ("name", "fits"),
    [
        ("worker_" + "0" * 32, True),
        ("worker_" + "f" * 32, True),
        ("order_" + "0" * 32, False),
        ("worker_" + "0" * 31, False),
        ("worker_" + "0" * 33, False),
        ("worker_" + "F" * 32, False),
        ("worker_x_" + "0" * 32, False),
        ("worker", False),
        ("worker_" + "0" * 32 + "\n", False),
        ("x_worker_" + "0" * 32, False),
    ],
)
def test_a_name_that_somebody_else_made_is_an_id_or_is_none(name: str, fits: bool) -> None:
    assert is_id(name, "worker") is fits


@pytest.mark.parametrize(
    ("utc_us", "fits"), [(-1, False), (0, True), (LAST_MS * 1_000 + 999, True), ((LAST_MS + 1) * 1_000, False)]
)
def test_identifiers_begin_in_48_bits_of_milliseconds(utc_us: int, fits: bool) -> None:
    if fits:
        assert IdSource(SEED, utc_us).next("order").startswith(f"order_{utc_us // 1_000:012x}7")
        return
    with pytest.raises(ValueError, match="48 bits"):
        IdSource(SEED, utc_us)


def _hash(purpose: bytes, counter: int) -> bytes:
    return hashlib.blake2b(counter.to_bytes(8), key=SEED, person=purpose).digest()


def test_identifiers_and_draws_are_what_their_description_says() -> None:
    source = IdSource(SEED, 1_790_000_000_123_456)
    for number in range(20):
        block = _hash(b"identifier", number - number % 8)
        word = int.from_bytes(block[number % 8 * 8 : number % 8 * 8 + 8]) & (2**62 - 1)
        expected = 1_790_000_000_123 << 80 | 0x7 << 76 | number << 64 | 0b10 << 62 | word
        assert source.next("order") == f"order_{expected:032x}"
        draw = int.from_bytes(_hash(b"draw", number)[:16])
        assert source.below(1_000) == draw * 1_000 >> 128


# Schemas


def test_schemas_leave_sentences_out_and_fields_of_that_name_in(monkeypatch: pytest.MonkeyPatch) -> None:
    raw: dict[str, Any] = {
        "description": "gone",
        "properties": {"description": {"type": "string", "description": "gone"}, "a": {"description": "gone"}},
        "$defs": {"description": {"anyOf": [{"description": "gone", "type": "null"}, 1]}},
        "required": ["description"],
    }
    monkeypatch.setattr(msgspec.json, "schema", lambda _: raw)
    name, version = next(iter(KINDS))
    assert schemas.schema_of(name, version) == {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:fencepost:record:{name}:{version}",
        "properties": {"description": {"type": "string"}, "a": {}},
        "$defs": {"description": {"anyOf": [{"type": "null"}, 1]}},
        "required": ["description"],
    }


def test_the_registry_names_every_kind_by_the_digest_of_its_schema() -> None:
    rows = [[name, version, digest_of(schemas.schema_of(name, version))] for name, version in sorted(KINDS)]
    assert [list(row) for row in schemas.registry()] == rows
    assert schemas.registry_digest() == digest_of({"format": FORMAT, "kinds": rows})
    assert len({digest for _, _, digest in rows}) == len(rows)


# Checkpoints


def checkpoint(**changes: Any) -> Checkpoint:
    fields: dict[str, Any] = {}
    for field in msgspec.structs.fields(Checkpoint):
        fields[field.name] = {int: 1}.get(field.type, "x")
    return Checkpoint(**{**fields, **changes})


def sealed(scope: str = "x") -> bytes:
    return seal(checkpoint(scope=scope), sign=lambda _: b"s" * 64, public_key=b"k" * 32)


def test_an_envelope_is_read_to_the_bound_and_written_to_it() -> None:
    data = sealed()
    padded = data[:-1] + b" " * (ENVELOPE_BYTES_MAX - len(data)) + b"}"
    assert len(padded) == ENVELOPE_BYTES_MAX and unseal(padded) == unseal(data)
    with pytest.raises(AnchorMalformed, match=f"{ENVELOPE_BYTES_MAX + 1} bytes are more than an envelope has"):
        unseal(padded[:-1] + b" }")
    # Each three bytes more of payload are four characters more.
    most = (ENVELOPE_BYTES_MAX - len(data)) // 4 * 3
    longest = next(size for size in range(most + 3, most - 4, -1) if written(size))
    assert ENVELOPE_BYTES_MAX - 4 < len(sealed("x" * longest)) <= ENVELOPE_BYTES_MAX
    with pytest.raises(ValueError, match="passes"):
        sealed("x" * (longest + 1))


def written(size: int) -> bool:
    try:
        return bool(sealed("x" * size))
    except ValueError:
        return False


def opened(change: Callable[[dict[str, Any]], None]) -> str:
    envelope = json.loads(sealed())
    change(envelope)
    with pytest.raises(AnchorMalformed) as caught:
        unseal(encode(envelope))
    return str(caught.value)


def again(payload: Checkpoint) -> bytes:
    text = base64.standard_b64encode(encode(payload)).decode()
    signature = Signature(keyid=key_id(b"k" * 32), sig="cw==")
    return encode(Envelope(payload=text, payloadType=CHECKPOINT_PAYLOAD_TYPE, signatures=(signature,)))


def test_what_no_seal_has_made_says_what_is_wrong() -> None:
    assert opened(lambda envelope: envelope.update(payloadType="other")) == "payload type 'other' is not a checkpoint's"
    assert opened(lambda envelope: envelope.update(signatures=[])) == "0 signatures instead of one"
    two = [{"keyid": "a", "sig": "cw=="}] * 2
    assert opened(lambda envelope: envelope.update(signatures=two)) == "2 signatures instead of one"
    assert opened(lambda envelope: envelope.update(payload="!" + envelope["payload"]))
    assert opened(lambda envelope: envelope["signatures"][0].update(sig="cw==!"))
    assert opened(lambda envelope: envelope.update(more=1)).startswith("unknown_field at /more")


@pytest.mark.parametrize(
    ("changes", "fits"),
    [({"sequence": 0}, True), ({"epoch": 0}, True), ({"sequence": -1}, False), ({"epoch": -1}, False)],
)
def test_a_checkpoint_begins_at_zero(changes: dict[str, int], fits: bool) -> None:
    data = again(checkpoint(**changes))
    if fits:
        assert unseal(data).checkpoint == checkpoint(**changes)
        return
    with pytest.raises(AnchorMalformed, match="epoch or sequence is negative"):
        unseal(data)
