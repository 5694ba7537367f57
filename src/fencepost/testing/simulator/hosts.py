"""Simulated hosts: clocks that drift, jump and start anew, and locks that the host frees for the dead."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from fencepost.ports.clock import Reading
from fencepost.ports.locks import HeldLock
from fencepost.testing.simulator.loop import Loop, Process, Task

FIRST_UTC_US = 1_750_000_000_000_000
FIRST_TICK_US = 1_000_000
MILLION = 1_000_000


class Host:
    """A machine with a clock of its own. `drift_ppm` is how much faster than the loop's time its ticks run."""

    def __init__(self, loop: Loop, number: int, *, drift_ppm: int = 0, utc_offset_us: int = 0) -> None:
        self.loop = loop
        self.number = number
        self.name = f"source_{number:032x}"
        self.drift_ppm = drift_ppm
        self.utc_offset_us = utc_offset_us
        self.locks = SimLocks(loop, self)
        self.processes: list[Process] = []
        self.asleep = False
        self.woke_us = 0
        self.on_wake: list[Callable[[], None]] = []
        self.stood_us = 0  # for how long its clock has stood still within this boot
        self._stands_since_us: int | None = None
        self._boot_number = 0
        self._booted_us = loop.now_us

    @property
    def boot_id(self) -> str:
        return f"{self.number:016x}{self._boot_number:016x}"

    def tick_us(self) -> int:
        passed_us = self._now_us() - self._booted_us
        return FIRST_TICK_US + passed_us + passed_us * self.drift_ppm // MILLION

    def loop_us(self, tick_us: int) -> int:
        """The loop's time at which this host's ticks reach `tick_us`, or just after."""
        passed_us = tick_us - FIRST_TICK_US
        return self._booted_us + self.stood_us + passed_us * MILLION // (MILLION + self.drift_ppm) + 2

    def _now_us(self) -> int:
        """The loop's time without what this host has not lived through."""
        until_us = self.loop.now_us if self._stands_since_us is None else self._stands_since_us
        return until_us - self.stood_us

    def read(self) -> Reading:
        """The port's `Clock`."""
        return Reading(
            utc_us=FIRST_UTC_US + self._now_us() + self.utc_offset_us,
            tick_us=self.tick_us(),
            boot_id=self.boot_id,
            uncertainty_us=1,
            source=self.name,
        )

    def restart(self) -> None:
        """A power cut: every process is gone, ticks begin anew under another boot id."""
        for process in list(self.processes):
            process.kill()
        self.locks.boot()
        self.asleep = False
        self._stands_since_us, self.stood_us = None, 0
        self.on_wake.clear()
        self._boot_number += 1
        self._booted_us = self.loop.now_us

    def sleep(self) -> None:
        """Suspended: nothing runs, and ticks go on."""
        self.asleep = True
        for process in self.processes:
            process.freeze()

    def stand(self) -> None:
        """Suspended, and its clock with it, as a virtual machine that is stopped."""
        self._stands_since_us = self.loop.now_us
        self.sleep()

    def wake(self) -> None:
        """What watches the clock by itself looks first."""
        self.asleep = False
        self.woke_us = self.loop.now_us
        if self._stands_since_us is not None:
            self.stood_us += self.loop.now_us - self._stands_since_us
            self._stands_since_us = None
        for step in list(self.on_wake):
            step()
        for process in self.processes:
            process.thaw()


@dataclass(eq=False)
class _Named:
    """A lock file. `owner` is None once its holder is gone and the file is left."""

    owner: object | None
    waiters: list[Task] = field(default_factory=list)


class SimLocks:
    """What a host knows of its locks, for all of its processes. `for_process` gives one of them its port."""

    def __init__(self, loop: Loop, host: Host) -> None:
        self.loop = loop
        self.host = host
        self._names: dict[str, _Named] = {}

    def for_process(self, process: Process) -> ProcessLocks:
        process.at_exit.append(lambda: self.free_all(process))
        return ProcessLocks(self, process)

    def owner(self, name: str) -> object | None:
        named = self._names.get(name)
        return None if named is None else named.owner

    def hold(self, name: str, owner: object) -> None:
        self._names.setdefault(name, _Named(None)).owner = owner

    def free(self, name: str, owner: object) -> None:
        """What the host does when the last process that had the lock is gone: the name stays."""
        named = self._names.get(name)
        if named is not None and named.owner is owner:
            named.owner = None
            waiters, named.waiters = named.waiters, []
            for task in waiters:
                self.loop.wake(task)

    def free_all(self, owner: object) -> None:
        for name in [name for name, named in self._names.items() if named.owner is owner]:
            self.free(name, owner)

    def remove(self, name: str) -> bool:
        """Remove a name that nobody holds; return whether it went."""
        if name not in self._names or self._names[name].owner is not None:
            return False
        del self._names[name]
        return True

    def boot(self) -> None:
        """Nobody holds anything any more; files stay."""
        for named in self._names.values():
            named.owner = None
            named.waiters.clear()

    def wait_for(self, name: str) -> None:
        named = self._names.get(name)
        if named is not None and named.owner is not None:
            named.waiters.append(self.loop.me())
            self.loop.wait(None)

    def names(self) -> list[str]:
        return sorted(self._names)


class ProcessLocks:
    """`HostLocks` of one process."""

    def __init__(self, locks: SimLocks, process: Process) -> None:
        self._locks = locks
        self._process = process

    def path(self, name: str) -> str:
        return name

    def take(self, name: str, *, wait: bool) -> HeldLock | None:
        while self._locks.owner(name) is not None:
            if not wait:
                return None
            self._locks.wait_for(name)
        self._locks.hold(name, self._process)
        return _Held(self._locks, name, self._process)

    def is_held(self, name: str) -> bool:
        return self._locks.owner(name) is not None

    def remove_if_free(self, name: str) -> bool:
        return self._locks.remove(name)

    def names(self) -> list[str]:
        return self._locks.names()


class _Held:
    """A hold of one process, which lets go of it once, and of nobody else's."""

    def __init__(self, locks: SimLocks, name: str, process: Process) -> None:
        self._locks = locks
        self._name = name
        self._process = process
        self._is_held = True

    def stands(self) -> bool:
        return self._is_held

    def release(self) -> None:
        if self._is_held:
            self._is_held = False
            self._locks.free(self._name, self._process)
            self._locks.remove(self._name)
