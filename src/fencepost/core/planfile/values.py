"""Readers of single values: each takes a place and what stands there, and gives the value or None if it
refused.

Rules: a reader refuses at the place it is given or below it, with what to write instead, and never raises for
any document. What no value may be, wherever it stands (a float, a date, a null, an integer past 2^53 - 1,
NUL or a lone surrogate in a string), is found by one walk over the whole document beforehand.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from typing import Final, TypeVar

from fencepost.core import instant
from fencepost.core.planfile import bounds
from fencepost.core.planfile.patterns import Pattern, PatternProblem, compile_pattern
from fencepost.core.planfile.problems import Spot, kind_of, one_of, quote

T = TypeVar("T")

NAME_RULE: Final = re.compile(r"[a-z][a-z0-9-]{0,62}")
_UNWANTED = re.compile("[\0\ud800-\udfff]")


def walk_document(spot: Spot, value: object) -> bool:
    """Refuse what no value may be, anywhere. False: too deep for any further check."""
    if not isinstance(value, (dict, list)):
        _check_scalar(spot.refuse, value)
        return True
    fits = True
    waiting: list[tuple[Spot, dict[str, object] | list[object], int]] = [(spot, value, 1)]
    while waiting:
        place, container, depth = waiting.pop()
        if depth > bounds.DEPTH_MAX:
            fits = False
            place.refuse(
                "out_of_range",
                f"more than {bounds.DEPTH_MAX} tables and lists inside one another",
                "flatten the document",
            )
            continue
        entries: Iterable[tuple[str | int, object]]
        if isinstance(container, dict):
            for key in container:
                _check_scalar(partial(_refuse_at, place, key), key)
            entries = container.items()
        else:
            entries = enumerate(container)
        below: list[tuple[Spot, dict[str, object] | list[object], int]] = []
        for step, item in entries:
            if isinstance(item, (dict, list)):
                below.append((place.child(step), item, depth + 1))
            else:
                _check_scalar(partial(_refuse_at, place, step), item)
        waiting.extend(reversed(below))
    return fits


def _refuse_at(spot: Spot, step: str | int, code: str, message: str, next_step: str) -> None:
    spot.child(step).refuse(code, message, next_step)


def _check_scalar(refuse: Callable[[str, str, str], None], value: object) -> None:
    """`refuse` is called with code, message and what to write; most values never need a place."""
    if isinstance(value, str):
        if _UNWANTED.search(value) is not None:
            refuse("out_of_range", f"{quote(value)} contains NUL or a lone surrogate", "leave that character out")
    elif isinstance(value, int):
        if abs(value) > bounds.INTEGER_MAX:
            refuse("out_of_range", "the integer is beyond 2^53 - 1", "write a smaller integer, or a string")
    elif isinstance(value, float):
        refuse(
            "wrong_type",
            "a float is refused in a plan",
            'write an integer, or a decimal string such as "2.50"',
        )
    elif value is None:
        refuse("wrong_type", "null is refused in a plan", "leave the key out")
    else:
        refuse("wrong_type", f"{kind_of(value)} is refused in a plan", "write it as a string")


def _wrong_type(spot: Spot, value: object, wanted: str, example: str) -> None:
    spot.refuse("wrong_type", f"this is {kind_of(value)}, it must be {wanted}", f"write {example}")


def read_text(spot: Spot, value: object, *, bytes_max: int, example: str) -> str | None:
    if not isinstance(value, str):
        _wrong_type(spot, value, "a string", example)
        return None
    if not fits_bytes(value, bytes_max):
        spot.refuse(
            "out_of_range",
            f"the string is longer than {bytes_max} bytes",
            "shorten it, or put it into a file",
        )
        return None
    return value


def fits_bytes(text: str, bytes_max: int) -> bool:
    # No character takes more than four bytes, so most texts need not be encoded to know.
    return len(text) * 4 <= bytes_max or len(text.encode("utf-8", "surrogatepass")) <= bytes_max


def read_boolean(spot: Spot, value: object) -> bool | None:
    if not isinstance(value, bool):
        _wrong_type(spot, value, "a boolean", "true or false")
        return None
    return value


def read_integer(spot: Spot, value: object, *, least: int, most: int) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int):
        _wrong_type(spot, value, "an integer", f"an integer from {least} to {most}")
        return None
    if not least <= value <= most:
        spot.refuse(
            "out_of_range",
            f"{quote(value)} is not between {least} and {most}",
            f"write an integer from {least} to {most}",
        )
        return None
    return value


def read_duration(spot: Spot, value: object) -> int | None:
    """A duration in microseconds."""
    if not isinstance(value, str):
        _wrong_type(spot, value, "a duration", 'a string such as "90s", "1h30m" or "250ms"')
        return None
    try:
        return instant.parse_duration(value)
    except ValueError:
        spot.refuse(
            "bad_duration",
            f"{quote(value)} is not a duration between 1 ms and 365 d",
            'write numbers with d, h, m, s, ms, in descending order, such as "1h30m"',
        )
        return None


def read_money(spot: Spot, value: object) -> int | None:
    """An amount of money in micros of its currency, at most `bounds.INTEGER_MAX`."""
    if not isinstance(value, str):
        _wrong_type(spot, value, "a decimal string", 'a string such as "2.50"')
        return None
    try:
        micros = instant.parse_money(value)
    except ValueError:
        spot.refuse(
            "bad_money",
            f"{quote(value)} is not an amount of money",
            'write a decimal string with at most six places, such as "2.50"',
        )
        return None
    if micros > bounds.INTEGER_MAX:
        spot.refuse("out_of_range", f"{quote(value)} is more than can be counted", "write a smaller amount")
        return None
    return micros


def read_choice(spot: Spot, value: object, choices: Sequence[T], *, unsupported: Sequence[str] = ()) -> T | None:
    """One of the choices; `unsupported` are those that a later version will know."""
    words = [str(choice) for choice in choices]
    if not isinstance(value, str):
        _wrong_type(spot, value, "a string", one_of(words).removeprefix("write "))
        return None
    if value in words:
        return choices[words.index(value)]
    if value in unsupported:
        spot.refuse("unsupported_feature", f"{quote(value)} is not built yet", one_of(words))
    else:
        spot.refuse("out_of_range", f"{quote(value)} is not known here", one_of(words))
    return None


def read_name(spot: Spot, value: object) -> str | None:
    if not isinstance(value, str):
        _wrong_type(spot, value, "a name", 'a string such as "unit-tests"')
        return None
    if NAME_RULE.fullmatch(value) is None:
        spot.refuse(
            "bad_name",
            f"{quote(value)} is not a name: a lower-case letter, then at most "
            f"{bounds.NAME_CHARACTERS_MAX - 1} lower-case letters, digits and hyphens",
            f'write for example "{suggested_name(value)}"',
        )
        return None
    return value


def suggested_name(text: str) -> str:
    """A name that is like the text."""
    words = re.sub(r"[^a-z0-9]+", "-", text[:512].lower()).strip("-")
    if not words or not words[0].isalpha():
        words = f"work-{words}" if words else "work"
    return words[: bounds.NAME_CHARACTERS_MAX].rstrip("-")


def read_table(spot: Spot, value: object, *, example: str) -> dict[str, object] | None:
    if not isinstance(value, dict):
        _wrong_type(spot, value, "a table", example)
        return None
    return value


def read_list(spot: Spot, value: object, *, items_max: int, example: str) -> list[object] | None:
    if not isinstance(value, list):
        _wrong_type(spot, value, "a list", example)
        return None
    if len(value) > items_max:
        spot.refuse("out_of_range", f"{len(value)} items, at most {items_max} are taken", "shorten the list")
        return None
    return value


def read_items(
    spot: Spot, value: object, read: Callable[[Spot, object], T | None], *, items_max: int, example: str
) -> tuple[T, ...] | None:
    """A list whose items all go through one reader."""
    items = read_list(spot, value, items_max=items_max, example=example)
    if items is None:
        return None
    found = [read(spot.child(index), item) for index, item in enumerate(items)]
    return tuple(item for item in found if item is not None)


def read_arguments(spot: Spot, value: object) -> tuple[str, ...] | None:
    """An argument list: a program and what it is given, never a line for a shell."""
    example = 'a list such as ["pytest", "-q"]'

    def read(place: Spot, item: object) -> str | None:
        return read_text(place, item, bytes_max=bounds.ARGUMENTS_BYTES_MAX, example="a string")

    arguments = read_items(spot, value, read, items_max=bounds.ARGUMENTS_MAX, example=example)
    if arguments is None:
        return None
    if value == [] or (arguments and arguments[0] == ""):
        spot.refuse("out_of_range", "the argument list names no program", f"write {example}")
        return None
    if not fits_bytes("\0".join(arguments) + "\0", bounds.ARGUMENTS_BYTES_MAX):
        spot.refuse(
            "out_of_range",
            f"the arguments have more than {bounds.ARGUMENTS_BYTES_MAX} bytes together",
            "put the long ones into a file or into params",
        )
        return None
    return arguments


def read_pattern(spot: Spot, value: object) -> Pattern | None:
    if not isinstance(value, str):
        _wrong_type(spot, value, "a pattern", 'a string such as "src/**"')
        return None
    pattern = compile_pattern(value)
    if isinstance(pattern, PatternProblem):
        spot.refuse(pattern.code, pattern.message, pattern.next)
        return None
    return pattern


def read_patterns(spot: Spot, value: object) -> tuple[str, ...] | None:
    patterns = read_items(
        spot, value, read_pattern, items_max=bounds.PATTERNS_MAX, example='a list such as ["report.xml"]'
    )
    return None if patterns is None else tuple(pattern.text for pattern in patterns)


def refuse_unknown(
    spot: Spot, table: dict[str, object], names: Sequence[str], *, refused_elsewhere: Collection[str] = ()
) -> None:
    """Refuse the keys that nobody reads, with the known name that is most like each."""
    for key in table:
        if key in names or key in refused_elsewhere:
            continue
        like = spot.nearest(key, names)
        spot.child(key).refuse(
            "unknown_key",
            f"the key {quote(key)} is not known here" + (f'; did you mean "{like}"?' if like else ""),
            f'write "{like}"' if like else "leave it out; known here: " + ", ".join(names),
        )
