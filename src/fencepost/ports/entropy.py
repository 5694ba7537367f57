"""The entropy port: the only source of randomness, so that a simulation can be replayed from one seed."""

from __future__ import annotations

from typing import Protocol

SEED_BYTES = 16


class Entropy(Protocol):
    """A source of unpredictable bytes. Safe to use from several threads and after a fork."""

    def seed(self) -> bytes:
        """Return 16 fresh bytes, fit for keys; no two calls return the same ones."""
        ...
