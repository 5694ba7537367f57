"""Each relation between bounds, where it just holds and where it just does not."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from fencepost.core.canonical import Undecodable, decode, encode_trusted
from fencepost.core.limits import LEASE_MAX_US, PAYLOAD_BYTES_MAX, Limits
from fencepost.core.records.envelope import Body
from fencepost.core.records.plan import AnswerRecorded, PlanCancelRequested
from fencepost.sdk import wire

LONGEST_TEXT, LONGEST_ANSWER = 4_096, 65_536  # characters, as history has them
PLAN = 3 * Limits().plan_orders_max + 100
PAGE = 6 * 256 + 6 * 256 + 100

RELATIONS: list[tuple[str, dict[str, int], dict[str, int]]] = [
    (
        "renewal_us is at most half of lease_us (C8)",
        {"lease_us": 10, "renewal_us": 5},
        {"lease_us": 9, "renewal_us": 5},
    ),
    (
        "lease_us is at most lease_max_us (C2)",
        {"lease_us": LEASE_MAX_US, "lease_max_us": LEASE_MAX_US},
        {"lease_us": LEASE_MAX_US, "lease_max_us": LEASE_MAX_US - 1},
    ),
    ("lease_us is at most lease_max_us (C2)", {"lease_max_us": LEASE_MAX_US}, {"lease_max_us": LEASE_MAX_US + 1}),
    (
        "a hold books every receipt of a result",
        {"receipts_per_result_max": 9, "receipts_per_hold_max": 10},
        {"receipts_per_result_max": 10, "receipts_per_hold_max": 10},
    ),
    (
        "the receipts of a hold fill at most half of a record",
        {"receipts_per_hold_max": 2_000, "receipt_name_bytes_max": 92, "record_bytes_max": 400_000},
        {"receipts_per_hold_max": 2_000, "receipt_name_bytes_max": 92, "record_bytes_max": 399_999},
    ),
    (
        "clock_resolution_us is at most a tenth of reservation_us",
        {"clock_resolution_us": 10, "reservation_us": 100},
        {"clock_resolution_us": 10, "reservation_us": 99},
    ),
    (
        "a plan fits in one batch",
        {"batch_records_max": PLAN, "group_records_max": PLAN},
        {"batch_records_max": PLAN - 1, "group_records_max": PLAN},
    ),
    (
        "a group holds the largest batch",
        {"batch_records_max": PLAN, "group_records_max": PLAN},
        {"batch_records_max": PLAN + 1, "group_records_max": PLAN},
    ),
    (
        "a page of cancels fits in one batch, with the dependents that it tells",
        {"plan_orders_max": 1, "cancel_per_batch": 256, "fanout_per_batch": 256, "batch_records_max": PAGE},
        {"plan_orders_max": 1, "cancel_per_batch": 256, "fanout_per_batch": 256, "batch_records_max": PAGE - 1},
    ),
    (
        "a record fits in a command",
        {"record_bytes_max": 2**24, "command_bytes_max": 2**24},
        {"record_bytes_max": 2**24 + 1, "command_bytes_max": 2**24},
    ),
    (
        "a program can send the payload of a checkpoint and read it again",
        {"checkpoint_bytes_max": wire.PAYLOAD_BYTES_MAX},
        {"checkpoint_bytes_max": wire.PAYLOAD_BYTES_MAX + 1},
    ),
    ("a text fits in its record", {"text_bytes_max": LONGEST_TEXT}, {"text_bytes_max": LONGEST_TEXT + 1}),
    (
        "an answer fits in its record",
        {"answer_bytes_max": LONGEST_ANSWER},
        {"answer_bytes_max": LONGEST_ANSWER + 1},
    ),
]


@pytest.mark.parametrize(
    ("relation", "holds", "breaks"), RELATIONS, ids=[str(place) for place in range(len(RELATIONS))]
)
def test_a_relation_holds_to_its_very_edge(relation: str, holds: dict[str, int], breaks: dict[str, int]) -> None:
    assert replace(Limits(), **holds).check() == []
    assert replace(Limits(), **breaks).check() == [relation]


def test_the_first_values_hold_them_all() -> None:
    assert Limits().check() == []


def test_what_a_checkpoint_may_have_is_tied_to_what_the_protocol_carries() -> None:
    """The words of the protocol are plain standard library, so that the number stands there once more."""
    assert PAYLOAD_BYTES_MAX == wire.PAYLOAD_BYTES_MAX
    assert Limits().checkpoint_bytes_max <= wire.PAYLOAD_BYTES_MAX


@pytest.mark.parametrize(
    ("body", "field", "most"),
    [
        (AnswerRecorded(question="go", value=""), "value", LONGEST_ANSWER),
        (PlanCancelRequested(plan="plan_1", reason="superseded"), "note", LONGEST_TEXT),
    ],
)
def test_what_is_said_may_have_as_much_as_its_record_holds(body: Body, field: str, most: int) -> None:
    assert most in (Limits().answer_bytes_max, Limits().text_bytes_max)
    longest = replace(body, **{field: "x" * most})
    assert decode(encode_trusted(longest), type(body)) == longest
    with pytest.raises(Undecodable):
        decode(encode_trusted(replace(body, **{field: "x" * (most + 1)})), type(body))
