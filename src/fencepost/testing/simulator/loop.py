"""Many processes on one thread: greenlets that run one at a time, from one call of a port to the next.

The loop has one time of its own, which moves only when it says so. Whoever is ready to go on may be next, and one
random source says who: the same seed gives the same run, to the last switch. A process that is killed never runs
again, not even its `finally` blocks; one that is stopped runs on, later, as if nothing had been.

A **step** is what happens between two switches: a task goes on from where it waited (a step of storage, a message, a
lock, a time) to where it waits next.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from random import Random

try:
    from greenlet import getcurrent, greenlet
except ImportError as error:
    raise ImportError("the simulator needs greenlet: pip install 'fencepost[testing]'") from error

STEP_US_MAX = 60  # how long one step takes, at most


class Killed(BaseException):
    """Raised in what is left of a killed process when it is thrown away. Nothing may catch it and go on."""


class Process:
    """One process of a host: what it runs dies with it, and stands still with it."""

    def __init__(self, loop: Loop, name: str) -> None:
        self.loop = loop
        self.name = name
        self.alive = True
        self.frozen = False
        self.stuck = 0  # how many of its tasks stand still
        self.steady_us = loop.now_us  # since when nothing of it stood still
        self.held: list[Task] = []
        self.at_exit: list[Callable[[], None]] = []
        """Called when the process is killed: what the host and the store do for a dead process."""

    def kill(self) -> None:
        if not self.alive:
            return
        self.alive = False
        self.held.clear()
        for step in list(self.at_exit):
            step()

    def freeze(self) -> None:
        self.frozen = True

    def thaw(self) -> None:
        self.frozen = False
        self.steady_us = self.loop.now_us
        if self.alive:
            held, self.held = self.held, []
            for task in held:
                self.loop.make_ready(task)


class Task:
    """One line of work of a process."""

    __slots__ = (
        "done",
        "error",
        "greenlet",
        "held",
        "joiners",
        "name",
        "process",
        "stuck",
        "wait_number",
        "waiting",
        "woken",
    )

    def __init__(self, process: Process, name: str) -> None:
        self.process = process
        self.name = name
        self.done = False
        self.error: BaseException | None = None
        self.joiners: list[Task] = []
        self.wait_number = 0  # of its current wait, so that a time-out of an earlier one does nothing
        self.waiting = False
        self.stuck = False  # stands still while the rest of its process goes on
        self.held = False  # whether it could go on, but for that
        self.woken = False  # whether its last wait was ended by somebody, and not by its time
        self.greenlet: greenlet


class Loop:
    """Runs tasks in a random order and moves time."""

    def __init__(self, chance: Random) -> None:
        self.chance = chance
        self.now_us = 0
        self.steps = 0
        self.current: Task | None = None
        self.failed: tuple[Task, BaseException] | None = None
        self.over = False
        self._ready: list[Task] = []
        self._timers: list[tuple[int, int, Callable[[], None]]] = []
        self._timer_count = 0
        self._hub = getcurrent()
        self._kept: list[Task] = []  # greenlets are thrown away at the end, not in the middle of a run

    # For whoever drives the loop

    def spawn(self, process: Process, target: Callable[[], object], name: str) -> Task:
        task = Task(process, name)

        def body() -> None:
            try:
                target()
            except Killed:
                pass
            except BaseException as error:
                task.error = error
                if process.alive and self.failed is None:
                    self.failed = (task, error)
            task.done = True
            for joiner in task.joiners:
                self.wake(joiner)

        task.greenlet = greenlet(body, self._hub)
        self._kept.append(task)
        self.make_ready(task)
        return task

    def call_at(self, at_us: int, call: Callable[[], None]) -> None:
        """Call back at a time, between two steps."""
        self._timer_count += 1
        heapq.heappush(self._timers, (at_us, self._timer_count, call))

    def step(self) -> bool:
        """Run one task up to its next wait. False when nothing is left that ever could run."""
        timers = self._timers
        while timers and timers[0][0] <= self.now_us:
            heapq.heappop(timers)[2]()
        while not self._ready:
            if not timers:
                return False
            at_us, _, call = heapq.heappop(timers)
            self.now_us = max(self.now_us, at_us)
            call()
        ready = self._ready
        place = int(self.chance.random() * len(ready))
        task = ready[place]
        ready[place] = ready[-1]
        ready.pop()
        process = task.process
        if not process.alive or task.done:
            return True
        if process.frozen:
            process.held.append(task)
            return True
        if task.stuck:
            task.held = True
            return True
        self.steps += 1
        self.now_us += 1 + int(self.chance.random() * STEP_US_MAX)
        self.current = task
        task.greenlet.switch()
        self.current = None
        return True

    def tasks_of(self, process: Process) -> list[Task]:
        """What runs in a process, the oldest first."""
        return [task for task in self._kept if task.process is process and not task.done]

    def stick(self, task: Task) -> None:
        """Have one task stand still while the rest of its process goes on."""
        if not task.stuck:
            task.stuck = True
            task.process.stuck += 1

    def unstick(self, task: Task) -> None:
        """Let a task go on that stood still."""
        if task.stuck:
            task.stuck = False
            task.process.stuck -= 1
            task.process.steady_us = self.now_us
        if task.held:
            task.held = False
            self.make_ready(task)

    def end(self) -> None:
        """Throw away everything that still waits."""
        self.over = True
        for task in self._kept:
            task.process.alive = False
            if task.greenlet and not task.greenlet.dead:
                task.greenlet.throw(Killed)
        self._kept.clear()

    # For tasks

    def me(self) -> Task:
        task = self.current
        if task is None:
            raise Killed
        return task

    def pause(self) -> None:
        """Let others run. What goes on afterwards is a step of its own."""
        task = self.me()
        self._ready.append(task)
        self._switch(task)

    def wait(self, until_us: int | None) -> bool:
        """Wait until somebody wakes this task (True), or until a time (False)."""
        task = self.me()
        task.wait_number += 1
        task.waiting, task.woken = True, False
        if until_us is not None:
            number = task.wait_number

            def time_out() -> None:
                if task.waiting and task.wait_number == number:
                    task.waiting = False
                    self.make_ready(task)

            self.call_at(max(until_us, self.now_us), time_out)
        self._switch(task)
        return task.woken

    def wake(self, task: Task) -> None:
        """End a task's wait. One that does not wait is left as it is."""
        if task.waiting:
            task.waiting, task.woken = False, True
            self.make_ready(task)

    def make_ready(self, task: Task) -> None:
        self._ready.append(task)

    def _switch(self, task: Task) -> None:
        if self.over:
            raise Killed
        self._hub.switch()  # for good, if the process is dead: nobody makes its tasks ready any more
        if self.over:
            raise Killed
