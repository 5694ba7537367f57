"""Values of steps: what JSON can hold, checked with a place for whatever it cannot, in one form of bytes.

Rules: nothing is converted in silence. Keys of objects are text, numbers are finite, text is made of whole characters;
a tuple is a list. Keys are sorted and nothing is spaced, so that equal values have equal bytes under every interpreter.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Coroutine, Iterator, Mapping, Sequence, Set

from fencepost.sdk.failures import StepRefused

TYPE_CHECKING = False  # that of `typing`, without loading it
if TYPE_CHECKING:
    from typing import Final

DEPTH_MAX: Final = 64
"""Lists and objects inside one another."""


def encode_value(value: object, what: str, bytes_max: int) -> bytes:
    """The bytes of `value`, which messages call `what`. Raises StepRefused."""
    _check(value, what, DEPTH_MAX)
    return _encoded(value, what, bytes_max)


def encode_arguments(arguments: Sequence[object], named: Mapping[str, object], step: str, bytes_max: int) -> bytes:
    """The bytes of what a step is called with: `{"args": [...], "kwargs": {...}}`. Raises StepRefused."""
    for index, value in enumerate(arguments):
        _check(value, f"argument {index + 1} of step {step!r}", DEPTH_MAX)
    for name, value in named.items():
        _check(value, f"argument {name} of step {step!r}", DEPTH_MAX)
    whole = {"args": list(arguments), "kwargs": dict(named)}
    return _encoded(whole, f"what step {step!r} is called with", bytes_max)


def _encoded(value: object, what: str, bytes_max: int) -> bytes:
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"), sort_keys=True)
        encoded = text.encode()
    except UnicodeEncodeError:
        raise StepRefused(f"{what} has a text that holds half of a character") from None
    except ValueError as error:
        raise StepRefused(f"{what} cannot be written as JSON: {error}") from None
    if len(encoded) > bytes_max:
        raise StepRefused(f"{what} has {len(encoded)} bytes as JSON, at most {bytes_max} are recorded; keep a file")
    return encoded


def digest_of(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def _check(value: object, what: str, depth_left: int) -> None:
    if value is None or isinstance(value, str | bool | int):
        return
    if isinstance(value, float):
        if not math.isfinite(value):
            raise StepRefused(f"{what} is {value}, which JSON does not have")
        return
    if isinstance(value, list | tuple | dict) and depth_left < 1:
        raise StepRefused(f"{what} is nested more than {DEPTH_MAX} deep")
    if isinstance(value, list | tuple):
        for index, item in enumerate(value):
            _check(item, f"{what}[{index}]", depth_left - 1)
    elif isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str):
                raise StepRefused(f"{what} has the key {str(key)[:80]!r}, of type {type(key).__name__}; keys are text")
            _check(item, f"{what}[{key[:80]!r}]", depth_left - 1)
    else:
        raise StepRefused(f"{what} is of type {type(value).__name__}, which JSON does not have; {_advice(value)}")


def _advice(value: object) -> str:
    """What to write instead of a value that JSON does not have."""
    if isinstance(value, Coroutine):
        value.close()  # nobody will wait for it
        return "a step calls plain functions: give it one that runs the coroutine, such as by asyncio.run"
    if isinstance(value, Iterator | Set):
        return "write it as a list"
    if isinstance(value, Mapping):
        return "write it as a dict"
    if callable(value):
        return "call it, and give what it returns"
    return "write it as text"
