"""The named queries and the layout beside this module."""

from __future__ import annotations

from pathlib import Path

from fencepost.storage.queries import parse_queries

QUERIES = parse_queries(Path(__file__).with_name("queries.sql").read_text(encoding="utf-8"))
SCHEMA = Path(__file__).with_name("schema.sql").read_text(encoding="utf-8")
