"""Durations, money and instants as text."""

from __future__ import annotations

import datetime
import random

import pytest

from fencepost.core.instant import (
    DURATION_MAX_US,
    INSTANT_MAX_US,
    MICROS_MAX,
    format_duration,
    format_instant,
    format_money,
    parse_duration,
    parse_money,
)


@pytest.mark.parametrize(
    ("text", "duration_us"),
    [
        ("1ms", 1_000),
        ("2s", 2_000_000),
        ("30m", 1_800_000_000),
        ("1m30s", 90_000_000),
        ("1h", 3_600_000_000),
        ("1d2h3m4s5ms", 93_784_005_000),
        ("90m", 5_400_000_000),
        ("0d1s", 1_000_000),
        ("365d", DURATION_MAX_US),
        ("5m2ms", 300_002_000),
    ],
)
def test_durations_are_read(text: str, duration_us: int) -> None:
    assert parse_duration(text) == duration_us
    assert parse_duration(format_duration(duration_us)) == duration_us


@pytest.mark.parametrize(
    "text",
    [
        "",
        "5",
        "m",
        "1.5h",
        "-1s",
        "1s1m",
        "1s2s",
        "1h 30m",
        "1H",
        "1us",
        "\u0661s",
        "1s\n",
        "9" * 5_000 + "s",
    ],
)
def test_a_malformed_duration_says_what_to_write(text: str) -> None:
    with pytest.raises(ValueError, match="for example 1h30m"):
        parse_duration(text)


@pytest.mark.parametrize("text", ["0s", "0ms", "366d", "365d1ms", "999999999999999999d"])
def test_a_duration_out_of_range_says_the_range(text: str) -> None:
    with pytest.raises(ValueError, match="between 1ms and 365d"):
        parse_duration(text)


def test_durations_round_trip() -> None:
    draw = random.Random(1)
    for _ in range(5_000):
        duration_us = 1_000 * draw.randint(1, draw.choice((1_000, 10**6, DURATION_MAX_US // 1_000)))
        assert parse_duration(format_duration(duration_us)) == duration_us
    assert format_duration(5_400_000_000) == "1h30m"
    assert format_duration(0) == format_duration(999) == "0ms"
    with pytest.raises(ValueError, match="negative"):
        format_duration(-1)


@pytest.mark.parametrize(
    ("text", "micros", "again"),
    [
        ("0", 0, "0.00"),
        ("2.50", 2_500_000, "2.50"),
        ("2.5", 2_500_000, "2.50"),
        ("0.004", 4_000, "0.004"),
        ("0.000001", 1, "0.000001"),
        ("3", 3_000_000, "3.00"),
        ("9007199254.740991", MICROS_MAX, "9007199254.740991"),
    ],
)
def test_money_is_read_and_written(text: str, micros: int, again: str) -> None:
    assert parse_money(text) == micros
    assert format_money(micros) == again
    assert parse_money(again) == micros


@pytest.mark.parametrize(
    "text", ["", ".", "1.", ".5", "-1", "+1", "1e3", "1,5", "0.0000001", "\u0661", "1\n", "NaN", "1 "]
)
def test_malformed_money_says_what_to_write(text: str) -> None:
    with pytest.raises(ValueError, match="at most six places"):
        parse_money(text)


def test_money_has_bounds() -> None:
    with pytest.raises(ValueError, match="at most 9007199254"):
        parse_money("9007199254.740992")
    with pytest.raises(ValueError, match="negative"):
        format_money(-1)


def test_instants_agree_with_the_calendar() -> None:
    epoch = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    draw = random.Random(2)
    leap_days = [951_782_400_000_000, 951_868_799_999_999, 4_107_542_400_000_000, 1_709_164_800_000_000]
    for utc_us in [0, INSTANT_MAX_US, *leap_days, *(draw.randint(0, INSTANT_MAX_US) for _ in range(20_000))]:
        expected = (epoch + datetime.timedelta(microseconds=utc_us)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        assert format_instant(utc_us) == expected
    for outside in (-1, INSTANT_MAX_US + 1):
        with pytest.raises(ValueError, match="1970 and 9999"):
            format_instant(outside)
