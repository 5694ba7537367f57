"""What a program inside an attempt may use: pure standard library, importable without the kernel."""

from __future__ import annotations

from fencepost.sdk.client import Attempt, Yield, attempt
from fencepost.sdk.wire import Refused, StaleFence, Unreachable

__all__ = ["Attempt", "Refused", "StaleFence", "Unreachable", "Yield", "attempt"]
