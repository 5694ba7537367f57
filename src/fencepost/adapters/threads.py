"""The system's own threads."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from fencepost.ports.threads import Event, Lock, Thread


class SystemThreads:
    """`Threads` of this interpreter."""

    def start(self, target: Callable[[], object], *, name: str) -> Thread:
        thread = threading.Thread(target=target, name=name, daemon=True)
        thread.start()
        return thread

    def lock(self) -> Lock:
        return threading.Lock()

    def event(self) -> Event:
        return threading.Event()

    def monotonic(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)
