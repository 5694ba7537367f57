"""JSON Schemas of every record kind, and the registry that names each by digest.

The registry's digest stands in a scope's first record, so that a journal says which schemas it was written under.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import msgspec

from fencepost.core.canonical import digest_of
from fencepost.core.records import FORMAT, KINDS


def _without_prose(schema: Any) -> Any:
    """A schema as far as it says what is valid: sentences about it may be improved without another digest."""
    if isinstance(schema, dict):
        return {
            key: {name: _without_prose(part) for name, part in value.items()}
            if key in ("properties", "$defs")
            else _without_prose(value)
            for key, value in schema.items()
            if key != "description"
        }
    if isinstance(schema, list):
        return [_without_prose(part) for part in schema]
    return schema


def schema_of(name: str, version: int) -> dict[str, Any]:
    """The JSON Schema (2020-12) of a whole record of this kind. Raises KeyError for one that is not registered."""
    kind = KINDS[name, version]
    schema = _without_prose(msgspec.json.schema(kind.record))
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:fencepost:record:{name}:{version}",
        **schema,
    }


@lru_cache(maxsize=1)
def registry() -> tuple[tuple[str, int, str], ...]:
    """(name, version, digest of the schema) of every kind, by name and version."""
    return tuple((name, version, digest_of(schema_of(name, version))) for name, version in sorted(KINDS))


@lru_cache(maxsize=1)
def registry_digest() -> str:
    rows = [[name, version, digest] for name, version, digest in registry()]
    return digest_of({"format": FORMAT, "kinds": rows})
