"""What a program inside an attempt may use: pure standard library, importable without the kernel."""

from __future__ import annotations

from fencepost.sdk.client import Attempt, Yield, attempt
from fencepost.sdk.executor import Result, executor
from fencepost.sdk.failures import Failure, InputError, StepChanged, StepRefused, Stopping, TransientError
from fencepost.sdk.wire import Refused, StaleFence, Unreachable

__all__ = [
    "Attempt",
    "Failure",
    "InputError",
    "Refused",
    "Result",
    "StaleFence",
    "StepChanged",
    "StepRefused",
    "Stopping",
    "TransientError",
    "Unreachable",
    "Yield",
    "attempt",
    "executor",
]
