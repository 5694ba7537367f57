"""Seeds on all cores, and what came of them."""

from __future__ import annotations

import gc
import multiprocessing
import multiprocessing.connection
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait

import msgspec

from fencepost.testing.simulator.authors import NO_PARTS, Parts
from fencepost.testing.simulator.faults import MEANING
from fencepost.testing.simulator.scenario import draw
from fencepost.testing.simulator.shrink import run
from fencepost.testing.simulator.world import Outcome

BATCH = 5  # seeds that a process runs at a time
SEED_MAX = 2**31


class Timed(msgspec.Struct):
    """Outcomes of a batch and the processor time that they took."""

    outcomes: list[Outcome]
    cpu_s: float


class Report(msgspec.Struct, kw_only=True):
    """The document of `--json`."""

    first_seed: int
    seeds: int = 0
    failed: list[int] = []
    steps: int = 0
    wall_s: float = 0.0
    cpu_s: float = 0.0
    steps_per_cpu_s: int = 0
    seeds_per_minute: int = 0
    interrupted: bool = False
    records: int = 0
    orders: int = 0
    executions: int = 0
    rates: dict[str, int] = {}  # those that were set
    faults: dict[str, int] = {}  # how often each happened, those that never did included
    fault_seeds: dict[str, int] = {}  # in how many seeds each happened
    transitions: dict[str, int] = {}
    commands: dict[str, int] = {}
    refusals: dict[str, int] = {}


def run_batch(seeds: Sequence[int], changes: Mapping[str, int], parts: Parts = NO_PARTS) -> Timed:
    began_s = time.process_time()
    outcomes = []
    gc.disable()  # what a run leaves goes with the run, and nothing of it is worth looking at earlier
    for seed in seeds:
        outcomes.append(run(draw(seed, changes), parts=parts))
        gc.collect()
    gc.enable()
    return Timed(outcomes, time.process_time() - began_s)


def _batches(first: int, seeds: int, minutes: float | None) -> Iterator[list[int]]:
    """The seeds to run: a fixed number of them, or for a time."""
    end_s = float("inf") if minutes is None else time.monotonic() + minutes * 60
    for start in range(0, seeds, BATCH):
        if time.monotonic() >= end_s:
            return
        yield [first + number for number in range(start, min(start + BATCH, seeds))]


def end_with_parent() -> None:
    """A process of the pool whose parent was killed has nobody to work for, and would wait for ever."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever interrupts the parent wants its figures, not ours
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_watch, args=(parent.sentinel,), daemon=True).start()


def _watch(sentinel: int) -> None:
    multiprocessing.connection.wait([sentinel])
    os._exit(1)


def explore(
    first: int,
    *,
    seeds: int,
    minutes: float | None,
    jobs: int,
    failed: Callable[[Outcome], None],
    changes: Mapping[str, int] | None = None,
    parts: Parts = NO_PARTS,
) -> tuple[Report, list[Outcome]]:
    """Run `seeds` seeds from `first`, or as many as begin within `minutes`. `failed` is told of each that fails.
    `changes` are rates of faults in the place of those that seeds draw.

    Ctrl-C ends it early, with what has been counted so far.
    """
    changes = changes or {}
    report = Report(first_seed=first, rates=dict(changes))
    failures: list[Outcome] = []
    counts = {name: Counter[str]() for name in ("faults", "fault_seeds", "transitions", "commands", "refusals")}
    for name in ("faults", "fault_seeds"):
        counts[name].update(dict.fromkeys(MEANING, 0))
    began_s = time.monotonic()
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=context, initializer=end_with_parent) as pool:
        try:
            for timed in _results(pool, _batches(first, seeds, minutes), changes, parts, jobs):
                report.cpu_s += timed.cpu_s
                for outcome in timed.outcomes:
                    _count(report, counts, outcome)
                    if outcome.problem:
                        failures.append(outcome)
                        failed(outcome)
        except KeyboardInterrupt:
            report.interrupted = True
            pool.shutdown(wait=False, cancel_futures=True)
            for process in multiprocessing.active_children():
                process.kill()
    report.wall_s = time.monotonic() - began_s
    report.failed = sorted(outcome.seed for outcome in failures)
    report.steps_per_cpu_s = int(report.steps / report.cpu_s) if report.cpu_s else 0
    report.seeds_per_minute = int(report.seeds / report.wall_s * 60) if report.wall_s else 0
    for name, counter in counts.items():
        setattr(report, name, dict(sorted(counter.items())))
    return report, sorted(failures, key=lambda outcome: outcome.seed)


def _count(report: Report, counts: dict[str, Counter[str]], outcome: Outcome) -> None:
    report.seeds += 1
    report.steps += outcome.steps
    report.records += outcome.records
    report.orders += outcome.orders
    report.executions += outcome.executions
    for name, counter in counts.items():
        counter.update(list(outcome.faults) if name == "fault_seeds" else getattr(outcome, name))


def _results(
    pool: ProcessPoolExecutor, batches: Iterator[list[int]], changes: Mapping[str, int], parts: Parts, jobs: int
) -> Iterator[Timed]:
    """Results as they come, with two batches waiting for each process."""
    waiting: set[Future[Timed]] = set()
    for batch in batches:
        waiting.add(pool.submit(run_batch, batch, changes, parts))
        if len(waiting) >= 2 * jobs:
            done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
            yield from (future.result() for future in done)
    for future in waiting:
        yield future.result()
