"""fencepost: durable work orders for agents and for anything that costs money or touches the world."""

from __future__ import annotations

from fencepost._version import __version__

__all__ = ["__version__"]
