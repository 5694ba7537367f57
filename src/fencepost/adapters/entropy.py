"""Entropy from the operating system."""

from __future__ import annotations

import os

from fencepost.ports.entropy import SEED_BYTES


class SystemEntropy:
    """`Entropy` from the kernel's random number generator; blocks only before that is seeded at boot."""

    def seed(self) -> bytes:
        return os.urandom(SEED_BYTES)
