"""Folders of ended attempts are removed behind the work, so that neither a slot nor a claim waits for a disk.

What is still queued when a worker dies is found by the next sweep.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from functools import partial

from fencepost.ports.errors import StorageError
from fencepost.services.means import Means


class Cleaner:
    """One thread of a worker that removes what nobody needs, in the order in which it was given up.

    What the system does not remove now is counted, and left to a later sweep. `fault` is told of everything else that
    goes wrong.
    """

    def __init__(self, means: Means, fault: Callable[[Exception], None]) -> None:
        self._means = means
        self._fault = fault
        self._jobs: queue.SimpleQueue[Callable[[], object] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work_until_stopped, name="fencepost-cleaner", daemon=True)
        self.failures = 0

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Do what is queued, and return when that is done."""
        self._jobs.put(None)
        if self._thread.ident is not None:
            self._thread.join()

    def give_up(self, attempt: str) -> None:
        """Nobody needs the folders of `attempt` any more."""
        self._jobs.put(partial(self._means.workspaces.discard, attempt))

    def sweep(self, step: Callable[[], int]) -> None:
        """Look for more of it, by `step`."""
        self._jobs.put(step)

    def _work_until_stopped(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                job()
            except StorageError:
                self.failures += 1
            except Exception as error:
                self._fault(error)
