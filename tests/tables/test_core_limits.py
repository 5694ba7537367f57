"""Bounds stand in one place, hold their relations, and agree with the bounds of the parts that have their own."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from fencepost.core import strictjson
from fencepost.core.canonical import slow_path_reason
from fencepost.core.commands import PAIRS
from fencepost.core.limits import DAY_US, FIRST_VALUES, HOUR_US, MINUTE_US, SECOND_US, Limits
from fencepost.core.planfile import bounds
from fencepost.core.records import KINDS, Kind
from fencepost.core.schemas import registry, schema_of


def test_c27_first_values_are_the_documented_ones_and_hold_their_relations() -> None:
    assert FIRST_VALUES.check() == []
    assert (FIRST_VALUES.lease_us, FIRST_VALUES.renewal_us, FIRST_VALUES.reservation_us) == (
        10 * SECOND_US,
        3 * SECOND_US,
        5 * SECOND_US,
    )
    assert FIRST_VALUES.lease_max_us == 30 * MINUTE_US
    assert FIRST_VALUES.clock_resolution_us == 250_000 and FIRST_VALUES.clock_skew_max_us == 2 * SECOND_US
    assert FIRST_VALUES.yields_max == 1_000 and FIRST_VALUES.attempts == 3
    assert FIRST_VALUES.keep_failed_us == 7 * DAY_US


@pytest.mark.parametrize(
    ("change", "relation"),
    [
        ({"renewal_us": 6 * SECOND_US}, "C8"),
        ({"lease_us": 31 * MINUTE_US}, "C2"),
        ({"clock_resolution_us": SECOND_US}, "reservation_us"),
        ({"plan_orders_max": 20_000}, "a plan fits"),
        ({"batch_records_max": 50_000}, "a group holds"),
        ({"cancel_per_batch": 40_000}, "a page of cancels"),
        ({"record_bytes_max": 2**30}, "a record fits"),
    ],
)
def test_c27_a_broken_relation_is_named(change: dict[str, int], relation: str) -> None:
    assert any(relation in broken for broken in replace(Limits(), **change).check())


def test_c27_bounds_of_plan_files_and_of_documents_are_the_same_ones() -> None:
    assert bounds.ORDERS_MAX == FIRST_VALUES.plan_orders_max == bounds.MEMBERS_MAX
    assert FIRST_VALUES.plan_edges_max == bounds.EDGES_MAX
    assert bounds.DOCUMENT_BYTES_MAX == FIRST_VALUES.command_bytes_max == strictjson.BYTES_MAX
    assert FIRST_VALUES.text_bytes_max == bounds.OBJECTIVE_BYTES_MAX
    assert bounds.INTEGER_MAX == strictjson.INT_MAX == 2**53 - 1
    assert bounds.BACKOFF_LONGEST_US == FIRST_VALUES.backoff_max_us == HOUR_US
    assert bounds.BACKOFF_MAX_FIRST_US <= bounds.BACKOFF_LONGEST_US
    assert FIRST_VALUES.attempts == bounds.ATTEMPTS_FIRST
    assert FIRST_VALUES.attempt_time_us == bounds.ATTEMPT_TIME_FIRST_US
    assert FIRST_VALUES.record_bytes_max <= strictjson.BYTES_MAX


@pytest.mark.parametrize("kind", list(KINDS.values()), ids=lambda kind: kind.name)
def test_every_record_kind_is_encoded_fast(kind: Kind) -> None:
    assert slow_path_reason(kind.record) is None


@pytest.mark.parametrize("command", list(PAIRS), ids=lambda command: command.__name__)
def test_every_command_is_encoded_fast(command: type) -> None:
    assert slow_path_reason(command) is None


def test_every_kind_has_a_schema_in_the_registry() -> None:
    assert [(name, version) for name, version, _ in registry()] == sorted(KINDS)
    assert len({digest for _, _, digest in registry()}) == len(KINDS)
    for name, version in KINDS:
        schema = schema_of(name, version)
        assert schema["$id"] == f"urn:fencepost:record:{name}:{version}" and "$defs" in schema
