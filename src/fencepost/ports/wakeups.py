"""Wake-ups: hints that something was committed. They may be lost, doubled or early; nothing depends on them."""

from __future__ import annotations

from typing import Protocol


class Wakeups(Protocol):
    """Hints between the threads of one process and between the processes of one store."""

    def notify(self) -> None:
        """Tell everyone who waits, in this process and in others. Never blocks, never raises for a lost hint."""
        ...

    def ticket(self) -> int:
        """A number to pass to `wait`; take it *before* looking for work, so that no hint falls between."""
        ...

    def wait(self, ticket: int, timeout_s: float) -> bool:
        """Return True as soon as anything was notified after `ticket`, False after `timeout_s` seconds."""
        ...

    def close(self) -> None: ...
