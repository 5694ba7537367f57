"""What the properties of fuzzing are told with."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec


class Broken(AssertionError):
    """A property does not hold for some bytes."""


def require(holds: object, what: str) -> None:
    """Raise `Broken`, also where assertions are left out."""
    if not holds:
        raise Broken(what)


def fields_of(types: Iterable[type]) -> set[str]:
    """Wire names of the fields of structs."""
    return {field.encode_name for each in types for field in msgspec.structs.fields(each)}
