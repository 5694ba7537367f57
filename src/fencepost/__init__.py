"""fencepost: durable work orders for agents and for anything that costs money or touches the world.

What a program inside an attempt uses stands here by name and is loaded when it is first asked for.
"""

from __future__ import annotations

import importlib as _importlib
import typing as _typing

from fencepost._version import __version__

if _typing.TYPE_CHECKING:
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
    "__version__",
    "attempt",
    "executor",
]

_PLACES = {
    "Attempt": "fencepost.sdk.client",
    "Failure": "fencepost.sdk.failures",
    "InputError": "fencepost.sdk.failures",
    "Refused": "fencepost.sdk.wire",
    "Result": "fencepost.sdk.executor",
    "StaleFence": "fencepost.sdk.wire",
    "StepChanged": "fencepost.sdk.failures",
    "StepRefused": "fencepost.sdk.failures",
    "Stopping": "fencepost.sdk.failures",
    "TransientError": "fencepost.sdk.failures",
    "Unreachable": "fencepost.sdk.wire",
    "Yield": "fencepost.sdk.client",
    "attempt": "fencepost.sdk.client",
    "executor": "fencepost.sdk.executor",
}


def __getattr__(name: str) -> object:
    place = _PLACES.get(name)
    if place is None:
        raise AttributeError(f"module 'fencepost' has no attribute {name!r}")
    value: object = getattr(_importlib.import_module(place), name)
    globals()[name] = value
    return value
