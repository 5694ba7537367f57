"""fencepost: durable work orders for agents and for anything that costs money or touches the world.

What a program inside an attempt uses stands here by name and is loaded when it is first asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from fencepost._version import __version__

if TYPE_CHECKING:
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


def __getattr__(name: str) -> Any:
    place = _PLACES.get(name)
    if place is None:
        raise AttributeError(f"module 'fencepost' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(place), name)
    return value
