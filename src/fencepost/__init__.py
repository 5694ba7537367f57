"""fencepost: durable work orders for agents and for anything that costs money or touches the world.

What a program inside an attempt uses stands here by name and is loaded when it is first asked for.
"""

from __future__ import annotations

import importlib as _importlib
import typing as _typing

from fencepost._version import __version__

if _typing.TYPE_CHECKING:
    from fencepost.sdk.client import Attempt, Yield, attempt
    from fencepost.sdk.wire import Refused, StaleFence, Unreachable

__all__ = ["Attempt", "Refused", "StaleFence", "Unreachable", "Yield", "__version__", "attempt"]

_PLACES = {
    "Attempt": "fencepost.sdk.client",
    "Refused": "fencepost.sdk.wire",
    "StaleFence": "fencepost.sdk.wire",
    "Unreachable": "fencepost.sdk.wire",
    "Yield": "fencepost.sdk.client",
    "attempt": "fencepost.sdk.client",
}


def __getattr__(name: str) -> object:
    place = _PLACES.get(name)
    if place is None:
        raise AttributeError(f"module 'fencepost' has no attribute {name!r}")
    value: object = getattr(_importlib.import_module(place), name)
    globals()[name] = value
    return value
