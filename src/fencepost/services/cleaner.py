"""Folders of ended attempts are removed behind the work, so that neither a slot nor a claim waits for a disk.

What is still queued when a worker dies is found by the next sweep.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial

from fencepost.ports.errors import StorageError
from fencepost.ports.threads import Thread
from fencepost.services.means import Means


class Cleaner:
    """One thread of a worker that removes what nobody needs, in the order in which it was given up.

    What the system does not remove now is counted, and left to a later sweep. `fault` is told of everything else that
    goes wrong.
    """

    def __init__(self, means: Means, fault: Callable[[Exception], None]) -> None:
        self._means = means
        self._fault = fault
        self._jobs: deque[Callable[[], object]] = deque()
        self._wake = means.threads.event()
        self._stopping = False
        self._thread: Thread | None = None
        self.failures = 0

    def start(self) -> None:
        self._thread = self._means.threads.start(self._work_until_stopped, name="fencepost-cleaner")

    def stop(self) -> None:
        """Do what is queued, and return when that is done."""
        self._stopping = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join()

    def give_up(self, attempt: str) -> None:
        """Nobody needs the folders of `attempt` any more."""
        self._put(partial(self._means.workspaces.discard, attempt))

    def sweep(self, step: Callable[[], int]) -> None:
        """Look for more of it, by `step`."""
        self._put(step)

    def _put(self, job: Callable[[], object]) -> None:
        self._jobs.append(job)
        self._wake.set()

    def _work_until_stopped(self) -> None:
        while True:
            # The mark first, the jobs after: one that is put meanwhile sets the mark again.
            self._wake.clear()
            stopping = self._stopping
            while self._jobs:
                self._do(self._jobs.popleft())
            if stopping:
                return
            self._wake.wait()

    def _do(self, job: Callable[[], object]) -> None:
        try:
            job()
        except StorageError:
            self.failures += 1
        except Exception as error:
            self._fault(error)
