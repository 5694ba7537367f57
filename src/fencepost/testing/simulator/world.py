"""One run: the real kernel, scheduler, services and workers of many processes on several hosts, on one thread.

A run has two halves. In the first, clients ask, workers work, and everything goes wrong that the scenario says. In the
second the world is kind: faults end, whoever is gone comes back, and within a bounded time everything must have come
to its end, or say what it waits for.
"""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from functools import cached_property
from random import Random
from typing import Any

import msgspec

from fencepost.adapters.artifacts.memory import MemoryArtifactStore
from fencepost.core.index import CLAIM, FINISH, LEASE, RESERVATION, RETRY, REVISE, TELL, UNSETTLED, WAIT
from fencepost.core.machines import ENDED
from fencepost.core.state import OrderState, PlanState
from fencepost.kernel import replay
from fencepost.kernel.kernel import STREAM, Kernel
from fencepost.kernel.read import Reader
from fencepost.ports.authority import CHECKPOINT_SIGNER, Constitution, Decision, Question
from fencepost.ports.errors import FencepostError, StorageError, StorageFull
from fencepost.ports.journal import Journal, Stream
from fencepost.ports.threads import Event
from fencepost.services.means import Means
from fencepost.services.worker import Worker
from fencepost.storage.memory import MemoryJournal
from fencepost.testing.fakes import FakeAuthority, FakeEntropy, MemoryKeyring, MemoryLedger, NoPacks
from fencepost.testing.simulator.actors import People, Stranger, Wants
from fencepost.testing.simulator.authors import NO_PARTS, Parts, executor_for
from fencepost.testing.simulator.checks import STRANGER, Checks
from fencepost.testing.simulator.disk import Disk
from fencepost.testing.simulator.executor import Tree, Trees
from fencepost.testing.simulator.faults import Faults
from fencepost.testing.simulator.hosts import Host
from fencepost.testing.simulator.loop import Loop, Process
from fencepost.testing.simulator.programs import VERIFIER, Yard
from fencepost.testing.simulator.scenario import MINUTE_US, SECOND_US, FaultEvent, Scenario
from fencepost.testing.simulator.speech import SOCKET, TOKEN, Doors, Speaker
from fencepost.testing.simulator.stores import Hints, SimWorkspaces
from fencepost.testing.simulator.threads import SimThreads
from fencepost.testing.simulator.waits import LOOK_US as WAITS_LOOK_US
from fencepost.testing.simulator.waits import Holder, Waits

SCOPE = "default"
PEOPLE = -1  # in the place of a client's number: whoever answers questions
REST_US_MAX = 20 * MINUTE_US  # from the last fault to the end of everything
LOOK_US = SECOND_US  # between two looks whether everything has ended
STEPS_MAX = 2_000_000
BACK_US = 3 * SECOND_US  # until somebody starts a process again that is gone, at most
STILL_US = (25 * SECOND_US, 60 * SECOND_US)  # that a worker stands still as it verifies
TRACE_LINES = 12
VERIFIED_EVERY = 8  # seeds of which one has its journal verified from its bytes, anchors included


class Outcome(msgspec.Struct, kw_only=True):
    """What became of a run. `problem` is empty for one in which everything held."""

    seed: int
    problem: str = ""
    steps: int = 0
    simulated_us: int = 0
    records: int = 0
    orders: int = 0
    executions: int = 0
    faults: dict[str, int] = {}
    transitions: dict[str, int] = {}
    commands: dict[str, int] = {}
    refusals: dict[str, int] = {}
    digest: str = ""
    story: list[str] = []


class SimAuthority(FakeAuthority):
    """A constitution that permits what the service grants leave open; each question is worked out once."""

    @cached_property
    def constitution(self) -> Constitution:
        texts = {"constitution.cedar": "", "vocabulary.cedarschema": ""}
        return msgspec.structs.replace(super().constitution, texts=texts)

    def decide(self, question: Question) -> Decision:
        decision = super().decide(question)
        self.questions.clear()
        return decision


class World:
    """A scenario on its way. `run` is to be called once."""

    def __init__(
        self,
        scenario: Scenario,
        *,
        with_story: bool = False,
        engine: Journal | None = None,
        parts: Parts = NO_PARTS,
    ) -> None:
        """`engine` is an empty store that everything is kept in; without one, `parts` makes one, or it is in memory."""
        if engine is None and parts.store is not None:
            engine = parts.store()
        self.scenario = scenario
        self.loop = Loop(Random(f"loop {scenario.seed}"))
        self.faults = Faults(scenario.rates, Random(f"faults {scenario.seed}"))
        self.trees = Trees(self.loop, self.faults)
        self.disk = Disk(self.loop, self.faults, MemoryJournal("0" * 32) if engine is None else engine)
        self.disk.crash = self._crash
        self.checks = Checks(self.loop, self.trees, msgspec.to_builtins(scenario.limits), self._tell, told=with_story)
        self.disk.watch = self.checks
        self.disk.reopen = parts.reopen
        self.doors = Doors(self.loop)
        self.trees.speak = self._speak
        self.people = People(self.loop, self.faults, self.checks.said)
        self.checks.asked = self.people.asked
        self.yard = Yard(self.loop, self.faults, self.trees, self.checks.problem)
        self._parts = parts
        self.artifacts = MemoryArtifactStore()
        self._notes: dict[str, bytes] = {}  # of workers, with the folders of their attempts
        self.hints = Hints(self.loop, self.faults)
        self.keyring = MemoryKeyring()
        self.ledger = MemoryLedger(self.keyring)
        self.authority = SimAuthority()
        self.hosts = [
            Host(self.loop, number, drift_ppm=drift, utc_offset_us=offset)
            for number, (drift, offset) in enumerate(zip(scenario.drifts_ppm, scenario.utc_offsets_us, strict=True))
        ]
        self.wants = [Wants(client, scenario, self.faults) for client in range(scenario.clients)]
        self.story: list[tuple[int, str, str]] = []
        self._with_story = with_story
        self._starts = 0
        self._workers: dict[int, tuple[Process, Worker | None]] = {}
        self._told: dict[Process, Event] = {}  # set once a worker is told to stop: nothing keeps it from leaving
        self._clients: dict[int, Process] = {}
        self._ending = False
        self.waits = Waits(self.checks.auditor.world, self.loop, self.disk, self.trees, self.hosts)
        self.checks.is_there, self.checks.meddled = self.waits.is_there, self.waits.meddled
        self._look_us = WAITS_LOOK_US
        self.trees.began.append(self._judge_deadline)
        self.trees.began.append(self._freeze_verifying)
        self.trees.confirmed.append(self._judge_deadline)
        self._stranger = Stranger(self.checks, Random(f"stranger {scenario.seed}"), self.faults)

    # The run

    def run(self) -> Outcome:
        try:
            problem = self._run()
        except Exception as error:  # a fault of what looks on is told with its seed, as any other
            problem = f"{type(error).__name__}: {error}\n{traceback.format_exc()}"
        self.loop.end()
        counts = self.checks
        with self.disk.engine.snapshot() as reads:
            head = reads.head(Stream(SCOPE, STREAM))
        return Outcome(
            seed=self.scenario.seed,
            problem=problem,
            steps=self.loop.steps,
            simulated_us=self.loop.now_us,
            records=head.seq,
            orders=counts.records["work_order_spec"],
            executions=self.trees.count,
            faults=dict(+self.faults.counts),
            transitions=dict(counts.shadow.transitions),
            commands=dict(counts.commands),
            refusals=dict(counts.refusals),
            digest=head.digest,
            story=[f"{at_us / 1_000_000:9.3f} s  {who:<10} {what}" for at_us, who, what in self.story],
        )

    def _run(self) -> str:
        """Returns the first problem in words, "" for none."""
        self._begin()
        problem = self._go_on(lambda: self.loop.now_us >= self.scenario.length_us)
        if problem:
            return problem
        self._be_kind()
        end_us = self.loop.now_us + REST_US_MAX
        looked_us = 0

        def at_rest() -> bool:
            nonlocal looked_us
            if self.loop.now_us - looked_us < LOOK_US:
                return False
            looked_us = self.loop.now_us
            return not self._restless()

        problem = self._go_on(lambda: at_rest() or self.loop.now_us > end_us)
        if problem:
            return problem
        restless = self._restless()
        if restless:
            return f"no rest within {REST_US_MAX // MINUTE_US} minutes of a kind world: {restless}"
        return self._judge()

    def _go_on(self, over: Callable[[], bool]) -> str:
        loop, checks = self.loop, self.checks
        while not over():
            if not loop.step():
                return "" if not self._restless() else "nothing is left that could run"
            if loop.now_us >= self._look_us:
                self._look_us = loop.now_us + WAITS_LOOK_US
                for problem in self.waits.look():
                    checks.problem(problem)
            if checks.problems:
                return checks.problems[0]
            if loop.failed is not None:
                return _in_words(*loop.failed)
            if loop.steps > STEPS_MAX:
                return f"no end within {STEPS_MAX} steps"
        return ""

    def _judge_deadline(self, tree: Tree) -> None:
        problem = self.waits.deadline_problem(tree)
        if problem:
            self.checks.problem(problem)

    def _judge(self) -> str:
        """What holds when everything has ended: accounts, holds, chain, anchors, and the whole fold."""
        stream = Stream(SCOPE, STREAM)
        problems = self.checks.auditor.at_rest() or [problem for problem in [self.checks.receipts_problem()] if problem]
        if problems:
            return f"at rest: {problems[0]}"
        with self.disk.engine.snapshot() as reads:
            compared = replay.compare_with(reads, stream, self.checks.shadow)
        if not compared.match:
            return f"replay differs from what lived: {compared.differs}"
        if self.scenario.seed % VERIFIED_EVERY:
            return ""  # the auditor has followed the chain record by record; what it cannot see is the anchors
        verified = replay.verify(self.disk.engine, stream, self.ledger, self.keyring.public_key(CHECKPOINT_SIGNER))
        return "" if verified.ok else f"the chain does not hold: {verified.problem}"

    def _restless(self) -> str:
        """What is not at its end, and not waiting for a person; "" when everything is."""
        unfinished = [wants.client for wants in self.wants if not wants.finished]
        if unfinished:
            return f"client {unfinished[0]} has not been answered"
        with Reader(self.disk.engine, Stream(SCOPE, STREAM)).look() as look:
            clock = look.clock()
            blocked = clock is not None and clock.state == "clock_reconciliation_required"
            stages = (
                (TELL, REVISE) if blocked else (CLAIM, WAIT, RETRY, RESERVATION, LEASE, FINISH, UNSETTLED, TELL, REVISE)
            )
            for stage in stages:
                rows = look.due(stage, limit=1)
                if rows:
                    return f"{rows[0].subject} is due in stage {stage}"
            if blocked:
                return ""
            for plan in look.plans():
                for order in look.orders(plan.plan):
                    if not _may_wait(order):
                        return f"{order.order} ({order.task}) is {order.state} ({order.reason})"
        return next(iter(self.checks.auditor.left_behind()), "")

    # Beginning and end

    def _begin(self) -> None:
        scenario = self.scenario
        for host in self.hosts:
            self.faults.counts["clock_drifts"] += host.drift_ppm != 0
            self.faults.counts["clock_skewed"] += host.utc_offset_us != 0
        self._start("founder", self.hosts[0], lambda kernel, process, host: None)
        for number in range(scenario.clients):
            self._start_client(number)
        for number in range(len(scenario.workers)):
            self._start_worker(number)
        self._start_people()
        if scenario.stranger_us:
            self._start_stranger()
        for event in scenario.faults:
            self.loop.call_at(event.at_us, self._fault(event))
        self.loop.call_at(scenario.length_us, lambda: None)  # so that there is an end, whoever stands still

    def _be_kind(self) -> None:
        self._tell("world", "is kind from now on")
        self._ending = True
        self.faults.stop()
        self.disk.full = False
        self.disk.away_until_us = 0
        for host in self.hosts:
            if host.asleep:
                host.wake()
            for process in host.processes:
                process.thaw()
                for task in self.loop.tasks_of(process):
                    self.loop.unstick(task)

    def _speak(self, tree: Tree, ends: Callable[[], None]) -> bool:
        """Start what a program says while it runs, if it says anything."""
        if not tree.job.argv[2:] or TOKEN not in tree.job.environment:
            return False
        Speaker(self.doors, self.checks.said, self.loop, self.faults, tree, ends)
        return True

    # Processes

    def _start(self, name: str, host: Host, body: Callable[[Kernel, Process, Host], object]) -> Process:
        """A process that opens the store, and goes on trying while it cannot be reached."""
        process = Process(self.loop, name)
        host.processes.append(process)
        process.at_exit.append(lambda: host.processes.remove(process))
        if host.asleep:
            process.freeze()

        def main() -> None:
            while True:
                kernel = self._kernel(process, host)
                try:
                    kernel.open()
                    body(kernel, process, host)
                    return
                except StorageError as error:
                    self._tell(name, f"could not go on: {error.code}: {error.message}")
                    self.loop.wait(self.loop.now_us + SECOND_US)
                except FencepostError as error:
                    self.checks.problem(f"{name} was told {error.code}: {error.message}")
                    return

        self.loop.spawn(process, main, name)
        return process

    def _kernel(self, process: Process, host: Host) -> Kernel:
        self._starts += 1
        return Kernel(
            journal=self.disk.journal(process),
            scope=SCOPE,
            clock=host,
            entropy=FakeEntropy(self.scenario.seed * 1_000 + self._starts),
            authority=self.authority,
            keyring=self.keyring,
            ledger=self.ledger,
            wakeups=self.hints.for_process(process),
            threads=SimThreads(process, host),
            limits=self.scenario.limits,
            witness=self.checks.witness(process),
        )

    def _later(self, start: Callable[[], None]) -> None:
        delay_us = int(self.faults.chance.random() * BACK_US)
        self.loop.call_at(self.loop.now_us + delay_us, start)

    def _start_client(self, number: int) -> None:
        wants = self.wants[number]
        if wants.finished:
            return
        process = self._start(
            f"client-{number}", self._host(number), lambda kernel, process, host: wants.run(kernel, self.loop)
        )
        self._clients[number] = process
        process.at_exit.append(lambda: self._later(lambda: self._start_client(number)))

    def _host(self, number: int) -> Host:
        return self.hosts[number % len(self.hosts)]

    def _start_people(self) -> None:
        process = self._start("people", self.hosts[0], lambda kernel, process, host: self.people.run(kernel))
        self._clients[PEOPLE] = process
        process.at_exit.append(lambda: self._later(self._start_people))

    def _start_stranger(self) -> None:
        if self._ending:
            return
        every_us = self.scenario.stranger_us

        def body(kernel: Kernel, process: Process, host: Host) -> None:
            self._stranger.run(kernel, self.loop, every_us, lambda: self._ending)

        process = self._start(STRANGER, self._host(1), body)
        process.at_exit.append(lambda: self._later(self._start_stranger))

    def _start_worker(self, number: int) -> None:
        host_number, jobs, plan_number = self.scenario.workers[number]
        host = self._host(host_number)

        def body(kernel: Kernel, process: Process, host: Host) -> None:
            plan = None if plan_number < 0 else self._open_plan(kernel, plan_number)
            worker = Worker(self._means(kernel, process, host), jobs=jobs, plan=plan)
            self._workers[number] = (process, worker)
            holder = Holder(worker=worker.worker, process=process, host=host, slots=jobs, plan=plan or "")
            worker.start()
            self.waits.holders[worker.worker] = holder
            self._told[process] = SimThreads(process, host).event()
            self.disk.drains[process] = lambda: self._drain(process, worker)
            self._serve(number, holder, worker, until_idle=plan is not None)
            for problem in self.waits.leaves(holder):
                self.checks.problem(problem)
            kernel.close()
            process.kill()

        process = self._start(f"worker-{number}", host, body)
        self._workers[number] = (process, None)
        process.at_exit.append(lambda: self._later(lambda: self._start_worker(number)))

    def _open_plan(self, kernel: Kernel, number: int) -> str:
        """What `run` waits for: its plan, as soon as there is one that is open."""
        while True:
            with kernel.reader.look() as look:
                named = look.name(f"plan-{number}")
                plan = None if named is None else look.find(named.newest, PlanState)
            if plan is not None and plan.ended_us is None:
                return plan.plan
            self.loop.wait(self.loop.now_us + 2 * SECOND_US)

    def _serve(self, number: int, holder: Holder, worker: Worker, *, until_idle: bool) -> None:
        """The main thread of a worker's process: it waits for a reason to end, and then drains and leaves."""
        told = self._told[holder.process]
        while worker.fatal is None and not worker.status().stopping and not told.wait(1.0):
            if until_idle and worker.is_idle():
                break
        holder.drain(self.loop.now_us)
        worker.stop()
        if worker.fatal is not None and not isinstance(worker.fatal, StorageFull):
            self.checks.problem(f"worker {number} ended: {worker.fatal.code}: {worker.fatal.message}")

    def _means(self, kernel: Kernel, process: Process, host: Host) -> Means:
        return Means(
            kernel=kernel,
            executor=executor_for(self._parts, self.yard, host, process),
            artifacts=self.artifacts,
            workspaces=SimWorkspaces(self.loop, self.faults, self.artifacts, self._notes),
            packs=NoPacks(),
            door=self.doors.for_process(process),
            pid=self._starts,
            threads=SimThreads(process, host),
            locks=host.locks.for_process(process),
            environment=_environment,
            base_environment={},
            read_log=lambda path: (0, b""),
            schema_checks=lambda must_stop: nullcontext(lambda document, schema: ()),
            store_stands=lambda: True,
            sweep_partials=lambda: 0,
        )

    # What goes wrong

    def _crash(self, process: Process) -> None:
        self._tell("world", f"kills {process.name}")
        process.kill()

    def _freeze_verifying(self, tree: Tree) -> None:
        """A worker that stands still as it verifies is waited for by the result, unless others take it."""
        process = tree.process
        if tree.job.lock_path.endswith(VERIFIER) and process.alive and self.faults.hits("freeze_verifying"):
            length_us = self.faults.chance.choice(STILL_US)
            self._tell("world", f"{process.name} stands still for {length_us / SECOND_US:g} s")
            process.freeze()
            self.loop.call_at(self.loop.now_us + length_us, lambda: self._thaw(process))

    def _drain(self, process: Process, worker: Worker) -> None:
        self._tell("world", f"tells {process.name} to stop")
        self.waits.drains(worker.worker)
        self.loop.spawn(process, worker.request_stop, "drain")
        if process in self._told:
            self._told[process].set()

    def _fault(self, event: FaultEvent) -> Callable[[], None]:
        def happen() -> None:
            if self._ending:
                return
            self._happen(event)

        return happen

    def _happen(self, event: FaultEvent) -> None:
        host = self.hosts[event.target % len(self.hosts)]
        process, worker = self._workers[event.target % len(self._workers)] if self._workers else (None, None)
        self.faults.counts[event.kind] += 1
        self._tell("world", f"{event.kind} ({event.target}, {event.length_us / 1_000_000:g} s)")
        match event.kind:
            case "crash" if process is not None:
                process.kill()
            case "client_crash" if self._clients:
                list(self._clients.values())[event.target % len(self._clients)].kill()
            case "drain" if worker is not None and process is not None and process.alive:
                self._drain(process, worker)
            case "freeze" if process is not None and process.alive:
                process.freeze()
                self._after(event, lambda: self._thaw(process))
            case "host_sleep" if not host.asleep:
                host.sleep()
                self._after(event, lambda: host.wake() if host.asleep else None)
            case "clock_stands" if not host.asleep:
                host.stand()
                self._after(event, lambda: host.wake() if host.asleep else None)
            case "worker_hangs" if process is not None and process.alive:
                tasks = self.loop.tasks_of(process)
                task = tasks[event.target % len(tasks)]
                self.loop.stick(task)
                self._after(event, lambda: self.loop.unstick(task))
            case "host_restart":
                host.restart()
                self.trees.power_cut(host)
                if host is self.hosts[0]:
                    self.disk.power_cut()
            case "jump" | "clock_slips":
                host.utc_offset_us += event.length_us
            case "disk_full":
                self.disk.full = True
                self._after(event, self._empty_disk)
            case "store_away":
                self.disk.away_until_us = self.loop.now_us + event.length_us
            case _:
                self.faults.counts[event.kind] -= 1

    def _thaw(self, process: Process) -> None:
        if not any(host.asleep and process in host.processes for host in self.hosts):
            process.thaw()

    def _empty_disk(self) -> None:
        self.disk.full = False

    def _after(self, event: FaultEvent, step: Callable[[], object]) -> None:
        def call() -> None:
            step()

        self.loop.call_at(self.loop.now_us + event.length_us, call)

    def _tell(self, who: str, what: str) -> None:
        if self._with_story:
            self.story.append((self.loop.now_us, who, what))


def _may_wait(order: OrderState) -> bool:
    """Whether an order is at its end, or waits for a person or for others that do, and says so."""
    if order.state in ENDED:
        return True
    return bool(order.reason) and order.state in ("blocked_budget", "blocked_dependency", "conflict")


def _environment(names: Any, *, socket: str = "", token: str = "", **_: Any) -> dict[str, str]:
    return {SOCKET: socket, TOKEN: token} if token else {}


def _in_words(task: Any, error: BaseException) -> str:
    lines = traceback.format_exception(error)
    return f"{task.process.name}/{task.name}: {type(error).__name__}: {error}\n{''.join(lines[-TRACE_LINES:])}"


def total(outcomes: Mapping[int, Outcome], field: str) -> Counter[str]:
    """One kind of count over many runs."""
    counted: Counter[str] = Counter()
    for outcome in outcomes.values():
        counted.update(getattr(outcome, field))
    return counted
