"""The door of a worker: a socket of the host that its attempts' programs speak through."""

from __future__ import annotations

from fencepost.adapters.door.room import DoorLimits
from fencepost.adapters.door.server import SocketDoor

__all__ = ["DoorLimits", "SocketDoor"]
