"""The named queries and the layout, for the schema that a store lives in.

The files say `fencepost.` before every name, so that they can be read and tried as they stand; a store in another
schema gets that one in its place. No search path is relied on: what stands before the dot is what is meant.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from fencepost.storage.queries import parse_queries

SCHEMA = "fencepost"

_SCHEMA_NAME = re.compile(r"[a-z_][a-z0-9_]{0,62}")  # 63 bytes is PostgreSQL's own bound of a name
_PREFIX = re.compile(r"\bfencepost\.")
_FOLDER = Path(__file__).parent


class Statements(NamedTuple):
    """SQL of one schema: statements by name, and the layout, which is many statements."""

    schema: str
    by_name: Mapping[str, str]
    layout: str


def statements_for(schema: str) -> Statements:
    """Return the SQL of a store in `schema`: lower-case letters, digits and underscores. Raises ValueError."""
    if not _SCHEMA_NAME.fullmatch(schema) or schema.startswith("pg_"):
        raise ValueError(f"{schema!r} cannot be the schema of a store: use lower-case letters, digits and _")
    queries = parse_queries((_FOLDER / "queries.sql").read_text(encoding="utf-8"))
    layout = (_FOLDER / "schema.sql").read_text(encoding="utf-8")
    prefix = f'"{schema}".'
    by_name = {name: _PREFIX.sub(prefix, statement) for name, statement in queries.items()}
    return Statements(schema, MappingProxyType(by_name), _PREFIX.sub(prefix, layout))
