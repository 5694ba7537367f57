"""What an author's executor stands on in the simulator: processes of a host, programs, pipes and locks.

An executor that is tried here is handed a `Site`, the operating system as one simulated process has it: a clock,
threads, locks, programs that it starts, and other processes that it makes to watch over them. Programs end by
themselves, or hang, or leave somebody behind; processes are killed and hosts sleep. `authors` looks whether the
executor keeps the port's promises all the same.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from fencepost.ports.clock import Clock
from fencepost.ports.executor import Job
from fencepost.ports.locks import HostLocks
from fencepost.ports.threads import Threads
from fencepost.testing.simulator.executor import LONG_SHARE, LONG_US, SCRIPTED, SHORT_US, Tree, Trees, script_of
from fencepost.testing.simulator.faults import Faults
from fencepost.testing.simulator.hosts import Host
from fencepost.testing.simulator.loop import Loop, Process, Task
from fencepost.testing.simulator.threads import SimThreads

SIGTERM, SIGKILL = 15, 9
DEAF_SHARE = 0.25  # of programs that do not listen to SIGTERM
WAKE_US = 200_000  # within which whoever watches has looked, after its host woke
VERIFIER = ".verify.lock"

Report = Callable[[str], None]
Code = tuple[int | None, int | None]


class OwnTree(Tree):
    """Everything that was started for one job. It lives while one of its programs does."""

    def __init__(self, yard: Yard, host: Host, worker: Process, watcher: Process, job: Job, deadline_us: int) -> None:
        super().__init__(host, worker, job, deadline_us)
        self.keeper_killed = False
        self.programs: list[Program] = []
        self.watcher = watcher
        self.code: Code = (None, None)
        self._yard = yard

    @property
    def is_watched(self) -> bool:
        """Whether somebody is left who owes its end: a supervisor that was killed, or a program that nothing ends,
        is no fault of the executor."""
        return not self.keeper_killed and not self.stubborn

    def ended_one(self) -> None:
        if self.alive and not any(program.alive for program in self.programs):
            self._yard.trees.gone(self)


class Program:
    """One process of a tree. `detached` is one that the command left behind."""

    def __init__(self, yard: Yard, tree: OwnTree, *, detached: bool = False) -> None:
        self._yard = yard
        self._tree = tree
        self._alive = True
        self._waiters: list[Task] = []
        self._code: Code | None = None
        self._plan: list[tuple[int, Code]] = []
        self.detached = detached
        self.pid = yard.next_pid()
        self.deaf = yard.loop.chance.random() < DEAF_SHARE
        self.answer: Code = (None, SIGTERM)  # to SIGTERM
        tree.programs.append(self)

    @property
    def alive(self) -> bool:
        return self._alive and self._tree.alive

    def wait(self, timeout_s: float | None) -> Code | None:
        """(exit code, signal) of which one is set, or None when `timeout_s` passed; None waits without limit."""
        loop = self._yard.loop
        until_us = None if timeout_s is None else loop.now_us + max(int(timeout_s * 1_000_000), 0)
        loop.pause()
        while self._code is None:
            task = loop.me()
            self._waiters.append(task)
            if not loop.wait(until_us):
                if task in self._waiters:
                    self._waiters.remove(task)
                break
        return self._code

    def terminate(self) -> None:
        """SIGTERM. Some take a second to end, and some do not listen."""
        self._yard.loop.pause()
        if not self.deaf:
            self.ends_in(int(self._yard.loop.chance.random() * 1_000_000), self.answer)

    def kill(self) -> None:
        """SIGKILL. Where the fault `not_ended` happens, what was left behind lives on."""
        self._yard.loop.pause()
        if self.detached and self._yard.faults.hits("not_ended"):
            self._tree.stubborn = True
            return
        self._end((None, SIGKILL))

    def ends_in(self, after_us: int, code: Code) -> None:
        self._plan.append((self._tree.host.tick_us() + after_us, code))
        self._yard.loop.call_at(self._yard.loop.now_us + after_us + 2, self._look)

    def _look(self) -> None:
        if not self.alive:
            return
        host = self._tree.host
        if host.asleep:
            host.on_wake.append(self._look_once)
            return
        due = [(tick_us, code) for tick_us, code in self._plan if tick_us <= host.tick_us()]
        if due:
            self._end(min(due, key=lambda each: each[0])[1])
        elif self._plan:
            self._yard.loop.call_at(host.loop_us(min(self._plan, key=lambda each: each[0])[0]), self._look)

    def _look_once(self) -> None:
        self._tree.host.on_wake.remove(self._look_once)
        self._look()

    def _end(self, code: Code) -> None:
        if not self.alive:
            return
        self._alive, self._code = False, code
        if not self.detached:
            self._tree.code = code
            if self._yard.faults.hits("not_contained"):
                Program(self._yard, self._tree, detached=True)
        self._tree.ended_one()
        waiters, self._waiters = self._waiters, []
        for task in waiters:
            self._yard.loop.wake(task)


class Pipe:
    """One end of a pipe between two processes. Messages are objects, and arrive in order."""

    def __init__(self, loop: Loop, process: Process) -> None:
        self._loop = loop
        self._process = process
        self._messages: deque[Any] = deque()
        self._waiters: list[Task] = []
        self._other: Pipe
        process.at_exit.append(self._closed)

    @classmethod
    def between(cls, loop: Loop, one: Process, other: Process) -> tuple[Pipe, Pipe]:
        ends = cls(loop, one), cls(loop, other)
        ends[0]._other, ends[1]._other = ends[1], ends[0]
        return ends

    def send(self, message: Any) -> None:
        """Never blocks. Lost when nobody is left at the other end."""
        self._other._messages.append(message)
        self._other._wake()

    def receive(self, timeout_s: float | None) -> Any:
        """The next message, None after `timeout_s` seconds (None waits without limit). Raises EOFError when the process
        at the other end is gone, and everything that it said was heard."""
        until_us = None if timeout_s is None else self._loop.now_us + max(int(timeout_s * 1_000_000), 0)
        self._loop.pause()
        while not self._messages:
            if not self._other._process.alive:
                raise EOFError("the process at the other end is gone")
            task = self._loop.me()
            self._waiters.append(task)
            if not self._loop.wait(until_us):
                if task in self._waiters:
                    self._waiters.remove(task)
                break
        return self._messages.popleft() if self._messages else None

    def _closed(self) -> None:
        self._other._wake()

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, []
        for task in waiters:
            self._loop.wake(task)


class Asked(Protocol):
    """An execution that a worker asked for, and whoever looks on."""

    @property
    def deadline_tick_us(self) -> int:
        """The confirmed end of its lease."""
        ...

    def began(self, tree: OwnTree) -> None: ...


class Yard:
    """All programs of a simulated world, and what executors were asked to run."""

    def __init__(self, loop: Loop, faults: Faults, trees: Trees, report: Report) -> None:
        self.loop = loop
        self.faults = faults
        self.trees = trees
        self.report = report
        self.asked: dict[tuple[Host, str], Asked] = {}
        """By lock path: what workers were told to start lately."""
        self.files: dict[Host, dict[str, bytes]] = {}
        self._pids = 4_000

    def next_pid(self) -> int:
        self._pids += 1
        return self._pids

    def trees_of(self, host: Host, attempt: str) -> list[OwnTree]:
        return [
            tree
            for tree in self.trees.alive
            if isinstance(tree, OwnTree) and tree.host is host and tree.job.attempt == attempt
        ]


class Site:
    """The operating system as one simulated process has it. What an author's executor is made with."""

    def __init__(self, yard: Yard, host: Host, process: Process, worker: Process | None = None) -> None:
        self._yard = yard
        self._host = host
        self._process = process
        self._worker = process if worker is None else worker
        self.clock: Clock = host
        self.threads: Threads = SimThreads(process, host)
        self.locks: HostLocks = host.locks.for_process(process)
        self.files = yard.files.setdefault(host, {})
        """Files of this host by their path. They outlive processes."""

    def spawn(self, job: Job) -> Program:
        """Start the job's program. The attempt's lock, which this process must hold, is handed to it: it is free once
        everything of the tree is gone. Raises OSError for a program that cannot be started."""
        yard, host = self._yard, self._host
        yard.loop.pause()
        if yard.faults.hits("spawn_fails") or job.argv[0] == f"{SCRIPTED}missing":
            raise FileNotFoundError(f"simulated: no program {job.argv[0]}")
        asked = yard.asked.get((host, job.lock_path))
        tree = OwnTree(yard, host, self._worker, self._process, job, 0 if asked is None else asked.deadline_tick_us)
        if host.locks.owner(job.lock_path) is not self._process:
            yard.report(f"{job.attempt} was started without holding its lock")
        program = Program(yard, tree)
        host.locks.hold(job.lock_path, tree)
        yard.trees.begin(tree)
        if asked is not None:
            asked.began(tree)
        self._live(program, job)
        return program

    def programs(self, attempt: str) -> tuple[Program, ...]:
        """Everything on this host that carries the marker of an attempt and lives."""
        self._yard.loop.pause()
        found = [program for tree in self._yard.trees_of(self._host, attempt) for program in tree.programs]
        return tuple(program for program in found if program.alive)

    def supervise(self, body: Callable[[Site, Pipe], object]) -> Pipe:
        """Make a process of its own on this host that runs `body`; it outlives this one, and ends with `body`.

        Returns this process's end of a pipe to it. The fault `keeper_killed` kills it at any moment.
        """
        yard, loop = self._yard, self._yard.loop
        process = Process(loop, f"{self._process.name}-keeper")
        self._host.processes.append(process)
        process.at_exit.append(lambda: self._host.processes.remove(process))
        if self._host.asleep:
            process.freeze()
        ours, theirs = Pipe.between(loop, self._process, process)
        site = Site(yard, self._host, process, self._worker)

        def run() -> None:
            body(site, theirs)
            for tree in yard.trees.alive:
                if isinstance(tree, OwnTree) and tree.watcher is process and tree.stubborn:
                    tree.keeper = False  # it could not end it, and has said so: nobody sees to that tree any more
            process.kill()

        def kill() -> None:
            if process.alive:
                for tree in yard.trees.alive:
                    if isinstance(tree, OwnTree) and tree.watcher is process:
                        tree.keeper_killed, tree.keeper = True, False
                process.kill()

        loop.spawn(process, run, "keeper")
        if yard.faults.hits("keeper_killed"):
            loop.call_at(loop.now_us + int(loop.chance.random() * SHORT_US * 20), kill)
        return ours

    def pipe(self) -> tuple[Pipe, Pipe]:
        """A pipe within this process."""
        return Pipe.between(self._yard.loop, self._process, self._process)

    def _live(self, program: Program, job: Job) -> None:
        """Draw how it ends by itself, if it does; a suite writes it instead (`script_of`)."""
        script = script_of(job.argv)
        if script is not None:
            program.deaf, program.answer = script.deaf, script.answer
            if script.after_us is not None:
                program.ends_in(script.after_us, script.code)
            return
        faults, chance = self._yard.faults, self._yard.loop.chance
        if faults.hits("hangs"):
            return
        longest_us = LONG_US if chance.random() < LONG_SHARE else SHORT_US * 20
        badly = "verifier_fails" if job.lock_path.endswith(VERIFIER) else "exits_badly"
        program.ends_in(SHORT_US + int(chance.random() * longest_us), (int(faults.hits(badly)), None))
