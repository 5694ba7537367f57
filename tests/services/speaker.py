"""An attempt whose program only waits, so that a test can say in its place whatever it likes."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from fencepost.core.commands import OrderDraft
from fencepost.core.state import AttemptState
from fencepost.sdk.client import Attempt
from tests.services.world import World, draft

_WAITS = """
import os, signal, sys, time
place = sys.argv[1]
if len(sys.argv) > 2:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
number = sum(name.startswith("begun") for name in os.listdir(place)) + 1
with open(f"{place}/new", "wb") as file:
    file.write(b"\\0".join(f"{name}={value}".encode() for name, value in os.environ.items()))
os.rename(f"{place}/new", f"{place}/begun{number}")
while not os.path.exists(f"{place}/end{number}"):
    time.sleep(0.02)
with open(f"{place}/end{number}") as file:
    sys.exit(int(file.read()))
"""


class Speaker:
    """Speaks for the attempts of one order, one after the other."""

    def __init__(self, world: World, name: str = "a", *, stubborn: bool = False) -> None:
        self.world = world
        self.name = name
        self.place = world.folder / f"speaker-{name}"
        self.place.mkdir()
        (world.folder / "waits.py").write_text(_WAITS)
        self.stubborn = ("stubborn",) if stubborn else ()
        self.number = 0
        self.environment: dict[str, str] = {}
        self._spoken: list[Attempt] = []

    def draft(self, **changes: Any) -> OrderDraft:
        script = str(self.world.folder / "waits.py")
        return draft(self.name, sys.executable, "-S", script, str(self.place), *self.stubborn, **changes)

    def next(self, seconds: float = 20.0) -> Attempt:
        """The next attempt of the order, as soon as its program runs."""
        self.number += 1
        begun = self.place / f"begun{self.number}"
        self.world.until(begun.exists, seconds, f"attempt {self.number} of {self.name} never began")
        pairs = (entry.partition(b"=") for entry in begun.read_bytes().split(b"\0"))
        self.environment = {os.fsdecode(name): os.fsdecode(value) for name, _, value in pairs}
        spoken = Attempt(self.environment)
        self._spoken.append(spoken)
        return spoken

    def end(self, code: int = 0) -> None:
        """Let the program of the attempt that speaks now end."""
        part = self.place / "part"
        part.write_text(str(code))
        part.rename(self.place / f"end{self.number}")

    def close(self) -> None:
        for attempt in self._spoken:
            attempt.connection.close()

    @property
    def workspace(self) -> Path:
        return Path(self.environment["FENCEPOST_WORKSPACE"])

    def state(self) -> AttemptState:
        """The attempt that speaks now, as the journal has it."""
        with self.world.app.kernel.reader.look() as look:
            found = look.attempt(self.environment["FENCEPOST_ATTEMPT"])
        assert found is not None
        return found
