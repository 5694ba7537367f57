"""Text forms of what the core counts in integers: durations, amounts of money, points of time.

Inside there are integers only, microseconds and millionths of a currency unit. Text is for people and for
plan files, and is read and written here and nowhere else. Calendars stop at the printed instant: nothing is
ever computed from one.
"""

from __future__ import annotations

import re
from typing import Final

from fencepost.core.strictjson import INT_MAX

_UNITS_US: Final = {
    "d": 86_400_000_000,
    "h": 3_600_000_000,
    "m": 60_000_000,
    "s": 1_000_000,
    "ms": 1_000,
}
DURATION_MIN_US: Final = 1_000
DURATION_MAX_US: Final = 365 * _UNITS_US["d"]
MICROS_MAX: Final = INT_MAX
INSTANT_MAX_US: Final = 253_402_300_799_999_999
"""9999-12-31T23:59:59.999999Z, inclusive."""

_DURATION = re.compile("".join(rf"(?:([0-9]{{1,18}}){unit})?" for unit in _UNITS_US))
_MONEY = re.compile(r"([0-9]{1,16})(?:\.([0-9]{1,6}))?")
_MICROS_PER_UNIT: Final = 1_000_000
_DAYS_PER_ERA: Final = 146_097
_DAYS_TO_EPOCH: Final = 719_468


def parse_duration(text: str) -> int:
    """Microseconds of a duration such as `1h30m`: d, h, m, s, ms, descending, each at most once.

    1 ms to 365 d, both inclusive. Raises `ValueError` with a message that says what to write.
    """
    found = _DURATION.fullmatch(text)
    if found is None or not text:
        raise ValueError("write whole numbers with the units d, h, m, s, ms in this order, for example 1h30m or 500ms")
    counts = zip(found.groups(), _UNITS_US.values(), strict=True)
    duration_us = sum(int(count) * unit_us for count, unit_us in counts if count is not None)
    if not DURATION_MIN_US <= duration_us <= DURATION_MAX_US:
        raise ValueError("write a duration between 1ms and 365d")
    return duration_us


def format_duration(duration_us: int) -> str:
    """The shortest text that `parse_duration` reads back, in whole milliseconds, the rest cut off.

    0 and more than 365 days have a text too, which is not read back. Raises `ValueError` below 0.
    """
    if duration_us < 0:
        raise ValueError("a duration is not negative")
    left_us = duration_us
    parts: list[str] = []
    for unit, unit_us in _UNITS_US.items():
        count, left_us = divmod(left_us, unit_us)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0ms"


def parse_money(text: str) -> int:
    """Millionths of a currency unit in a decimal string such as `2.50`: no sign, at most six places.

    At most 2^53 - 1 millionths. Raises `ValueError` with a message that says what to write.
    """
    found = _MONEY.fullmatch(text)
    if found is None:
        raise ValueError('write a decimal string with at most six places, for example "2.50"')
    micros = int(found[1]) * _MICROS_PER_UNIT + int((found[2] or "").ljust(6, "0"))
    if micros > MICROS_MAX:
        raise ValueError(f"write an amount of at most {format_money(MICROS_MAX)}")
    return micros


def format_money(micros: int) -> str:
    """Decimal text with two places, or as many as are needed; `parse_money` reads it back.

    Raises `ValueError` below 0.
    """
    if micros < 0:
        raise ValueError("an amount is not negative")
    units, rest = divmod(micros, _MICROS_PER_UNIT)
    return f"{units}.{f'{rest:06d}'.rstrip('0').ljust(2, '0')}"


def format_instant(utc_us: int) -> str:
    """ISO 8601 in UTC with microseconds, `2026-01-31T09:30:00.000000Z`.

    From 1970 to the end of 9999. Raises `ValueError` outside.
    """
    if not 0 <= utc_us <= INSTANT_MAX_US:
        raise ValueError("an instant lies between 1970 and 9999")
    days, of_day_us = divmod(utc_us, _UNITS_US["d"])
    year, month, day = _civil_from_days(days)
    seconds, micros = divmod(of_day_us, _UNITS_US["s"])
    hour, minute, second = seconds // 3_600, seconds // 60 % 60, seconds % 60
    return f"{year:04d}-{month:02d}-{day:02d}T{hour:02d}:{minute:02d}:{second:02d}.{micros:06d}Z"


def _civil_from_days(days: int) -> tuple[int, int, int]:
    """Year, month and day of the Gregorian calendar, `days` after 1970-01-01.

    Years are counted from March, so that the leap day comes last, in eras of 400 years, which are all alike.
    """
    era, day_of_era = divmod(days + _DAYS_TO_EPOCH, _DAYS_PER_ERA)
    year_of_era = (day_of_era - day_of_era // 1_460 + day_of_era // 36_524 - day_of_era // 146_096) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    month_from_march = (5 * day_of_year + 2) // 153
    day = day_of_year - (153 * month_from_march + 2) // 5 + 1
    month = month_from_march + 3 if month_from_march < 10 else month_from_march - 9
    return era * 400 + year_of_era + (month <= 2), month, day
