"""The host locks port: what tells processes of one host whether another of them still lives.

A lock is held by a process and everything that it handed the lock to, and the host itself frees it when the last of
them is gone, however it went. That is the only evidence of a death that needs no clock (W17, C17; case 16).

Names are file names without a folder. Names of locks that nobody needs any more are removed by their holder and by
sweeps, so that a name that does not exist is held by nobody.
"""

from __future__ import annotations

from typing import Protocol


class HeldLock(Protocol):
    """A lock that this process holds."""

    def stands(self) -> bool:
        """Whether others still see it: False once its name, or the folder of names, was removed by somebody else."""
        ...

    def release(self) -> None:
        """Remove the name, where it still stands for this lock, and free the lock. A second call does nothing."""
        ...


class HostLocks(Protocol):
    """All locks of one home on this host. Raises StorageError where the host refuses."""

    def path(self, name: str) -> str:
        """Where the lock stands, absolute, for those who take it by themselves (an executor's supervisor)."""
        ...

    def take(self, name: str, *, wait: bool) -> HeldLock | None:
        """Hold the lock; None if another has it and `wait` is false."""
        ...

    def is_held(self, name: str) -> bool:
        """Whether anybody holds it. Those who look do not see each other."""
        ...

    def remove_if_free(self, name: str) -> bool:
        """Remove a name whose lock nobody holds; return whether it went."""
        ...

    def names(self) -> list[str]:
        """Every name that is there, in order."""
        ...
