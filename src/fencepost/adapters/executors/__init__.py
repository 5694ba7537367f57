"""Executors that ship with fencepost; they need sessions, signals and inherited descriptors."""

from __future__ import annotations

import sys

from fencepost.ports.executor import UnsupportedPlatform

if sys.platform == "win32":
    raise UnsupportedPlatform(
        "fencepost cannot contain a process tree on Windows",
        next_step="run it on Linux or macOS, or in the Windows Subsystem for Linux",
    )
