"""Folders of ended attempts are removed behind the work, so that no slot waits for a disk.

What is still queued when a worker dies is found by the next sweep.
"""

from __future__ import annotations

import queue
import threading

from fencepost.ports.errors import StorageError
from fencepost.services.means import Means


class Cleaner:
    """One thread of a worker that removes folders, in the order in which they were given up."""

    def __init__(self, means: Means) -> None:
        self._means = means
        self._given_up: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._remove_until_stopped, name="fencepost-cleaner", daemon=True)
        self.failures = 0

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Remove what is queued, and return when that is done."""
        self._given_up.put(None)
        if self._thread.ident is not None:
            self._thread.join()

    def give_up(self, attempt: str) -> None:
        """Nobody needs the folders of `attempt` any more."""
        self._given_up.put(attempt)

    def _remove_until_stopped(self) -> None:
        while (attempt := self._given_up.get()) is not None:
            try:
                self._means.workspaces.discard(attempt)
            except StorageError:
                # What the system does not remove now, a later sweep will.
                self.failures += 1
