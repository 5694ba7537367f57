"""Identifiers and digests."""

from __future__ import annotations

import hashlib
import re

import pytest
import uuid_utils

from fencepost.core.ids import PREFIXES, IdSource, sha256_of

SEED = bytes(range(16))
UTC_US = 1_790_000_000_123_456


def number_of(identifier: str) -> int:
    return int(identifier.rpartition("_")[2], 16)


def test_digest_form() -> None:
    assert sha256_of(b"x") == "sha256:" + hashlib.sha256(b"x").hexdigest()


def test_id_form() -> None:
    source = IdSource(SEED, UTC_US)
    for prefix in sorted(PREFIXES):
        assert re.fullmatch(f"{prefix}_[0-9a-f]{{32}}", source.next(prefix))


def test_layout_is_that_of_a_uuid_of_version_7() -> None:
    made = uuid_utils.UUID(int=number_of(IdSource(SEED, UTC_US).next("order")))
    assert made.version == 7
    assert made.variant == uuid_utils.RFC_4122
    assert made.timestamp == UTC_US // 1_000
    theirs = uuid_utils.uuid7(nanoseconds=UTC_US * 1_000)
    assert theirs.hex[:13] == made.hex[:13]


def test_ids_of_one_source_increase_strictly_past_the_counter() -> None:
    source = IdSource(SEED, UTC_US)
    made = [source.next("order") for _ in range(12_000)]
    assert made == sorted(made)
    assert len(set(made)) == len(made)
    parsed = [uuid_utils.UUID(int=number_of(each)) for each in made]
    assert all(each.version == 7 and each.variant == uuid_utils.RFC_4122 for each in parsed)
    assert [each.timestamp - UTC_US // 1_000 for each in parsed] == [at // 4_096 for at in range(12_000)]
    assert len({number_of(each) & (2**62 - 1) for each in made}) == len(made)


def test_ids_follow_from_the_seed_and_the_time_alone() -> None:
    def twenty(seed: bytes, utc_us: int, draws: int) -> list[str]:
        source = IdSource(seed, utc_us)
        for _ in range(draws):
            source.below(10)
        return [source.next("task") for _ in range(20)]

    first = twenty(SEED, UTC_US, 0)
    assert twenty(SEED, UTC_US, 3) == first
    assert not set(twenty(bytes(16), UTC_US, 0)) & set(first)
    assert twenty(SEED, UTC_US + 1_000, 0)[0] > first[-1]


def test_draws_are_spread_and_repeatable() -> None:
    source = IdSource(SEED, UTC_US)
    draws = [source.below(10) for _ in range(5_000)]
    assert set(draws) == set(range(10))
    assert all(400 < draws.count(each) < 600 for each in range(10))
    again = IdSource(SEED, UTC_US)
    assert [again.below(10) for _ in range(50)] == draws[:50]
    assert source.below(1) == 0
    assert 0 <= source.below(2**63) < 2**63


def test_misuse_is_refused() -> None:
    source = IdSource(SEED, 2**48 * 1_000 - 1)
    with pytest.raises(ValueError, match="begin"):
        source.next("thing")
    for bound in (0, -1, 2**63 + 1):
        with pytest.raises(ValueError, match="bound"):
            source.below(bound)
    with pytest.raises(ValueError, match="16 bytes"):
        IdSource(b"short", UTC_US)
    for utc_us in (-1, 2**48 * 1_000):
        with pytest.raises(ValueError, match="48 bits"):
            IdSource(SEED, utc_us)
    for _ in range(4_096):
        source.next("order")
    with pytest.raises(ValueError, match="48 bits"):
        source.next("order")
