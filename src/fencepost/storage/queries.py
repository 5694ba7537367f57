"""Named queries. SQL stands in `.sql` files, so that it can be read as SQL."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

_NAME = re.compile(r"^-- name: ([a-z_]+)$", re.MULTILINE)


def parse_queries(text: str) -> Mapping[str, str]:
    """Return statement by name. Raises ValueError for a name given twice, without comment or without
    statement."""
    queries: dict[str, str] = {}
    pieces = _NAME.split(text)[1:]
    for name, body in zip(pieces[::2], pieces[1::2], strict=True):
        lines = body.strip().splitlines()
        statement = "\n".join(line for line in lines if not line.startswith("--")).strip()
        if name in queries or not statement.endswith(";") or not lines[0].startswith("-- "):
            raise ValueError(f"query {name}: named twice, without comment, or without a whole statement")
        queries[name] = statement.removesuffix(";")
    return MappingProxyType(queries)
