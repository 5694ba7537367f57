"""fencepost: durable work orders for agents and for anything that costs money or touches the world.

What a program inside an attempt uses stands here by name: `fencepost.sdk` lists it, and is loaded when the first of
those names is asked for.
"""

from __future__ import annotations

import importlib as _importlib

from fencepost._version import __version__ as __version__


def _find(name: str) -> object:
    if name.startswith("_") and name != "__all__":
        raise AttributeError(f"module 'fencepost' has no attribute {name!r}")
    sdk = _importlib.import_module("fencepost.sdk")
    if name != "__all__" and name not in sdk.__all__:
        raise AttributeError(f"module 'fencepost' has no attribute {name!r}")
    found: object = sorted(["__version__", *sdk.__all__]) if name == "__all__" else getattr(sdk, name)
    globals()[name] = found
    return found


TYPE_CHECKING = False  # that of `typing`, without loading it
if TYPE_CHECKING:
    from fencepost.sdk import *  # noqa: F403  # `fencepost.sdk.__all__` is the one list
else:
    __getattr__ = _find  # out of the sight of type checkers, so that they know a name that does not exist
del TYPE_CHECKING
