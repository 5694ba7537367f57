"""Canonical bytes and digests by the standard library alone: RFC 8785 over integers, texts, lists and maps."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Any

_ENCODE = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, check_circular=False).encode


def canonical(value: Any) -> bytes:
    """Bytes of a value whose map keys are within the Basic Multilingual Plane or are no worse ordered by code point."""
    return _ENCODE(value).encode()


def digest_of(value: Any) -> str:
    return "sha256:" + sha256(canonical(value)).hexdigest()


def digest_of_bytes(data: bytes) -> str:
    return "sha256:" + sha256(data).hexdigest()
