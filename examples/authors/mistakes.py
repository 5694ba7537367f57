"""Executors and stores with one mistake each, as people really make them. The simulator or a suite finds every one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from executor import LOOK_S, OneExecutor, OneRunning, Supervisor, ended

from fencepost.ports.executor import STOP_GRACE_US, STOP_LEAD_US, Ended, EndReason, HolderProof, Job, Running
from fencepost.ports.journal import Journal, Stream, Transaction
from fencepost.storage.memory import MemoryJournal
from fencepost.testing.simulator.programs import Pipe, Program, Site

STORE_ID = "0" * 32


class LooksAtTheCommandAlone(Supervisor):
    """Says that the tree is empty as soon as the command has ended, whoever it left behind."""

    def clear(self) -> bool:
        return True


class IgnoresTheLease(Supervisor):
    """Watches the time limit, and leaves the lease to its worker."""

    def __init__(self, site: Site, pipe: Pipe, job: Job, deadline_tick_us: int) -> None:
        super().__init__(site, pipe, job, 2**62)


class IgnoresTheTimeLimit(Supervisor):
    def watch(self, program: Program, began_us: int) -> tuple[int | None, int | None]:
        return super().watch(program, 2**62)


class GrantsTheWholeGrace(Supervisor):
    """Gives a program its grace also when its host has slept through the end of the lease."""

    def watch(self, program: Program, began_us: int) -> tuple[int | None, int | None]:
        while True:
            code = program.wait(0)
            if code is not None:
                return code
            if self.now_us() >= self.deadline_tick_us - STOP_LEAD_US:
                self.stop(program, "lease_lost", STOP_GRACE_US)
            if self.now_us() >= began_us + self.job.time_limit_us:
                self.stop(program, "timeout", STOP_GRACE_US)
            if self.kill_tick_us is not None and self.now_us() >= self.kill_tick_us:
                program.kill()
                continue
            self.listen(program)


class AsksOnly(Supervisor):
    """Sends SIGTERM and waits for as long as it takes."""

    def stop(self, program: Program, reason: EndReason, grace_us: int) -> None:
        super().stop(program, reason, grace_us)
        self.kill_tick_us = 2**62


class TakesNoLock(Supervisor):
    """Starts first, and asks nobody whether the attempt runs already."""

    def run(self) -> None:
        program = self.site.spawn(self.job)
        code = self.watch(program, self.now_us())
        self.pipe.send(ended(self.reason, code, tree_empty=self.clear()))


class AlwaysWell(Supervisor):
    """Hands on the exit code of something that it ran in between, which was 0."""

    def watch(self, program: Program, began_us: int) -> tuple[int | None, int | None]:
        code = super().watch(program, began_us)
        return code if code[0] is None else (0, None)


class TriesAgain(OneRunning):
    """Its supervisor is gone: it starts the program once more, instead of saying so."""

    def _supervisor_lost(self) -> Ended:
        for left in self._site.programs(self._job.attempt):
            left.kill()
        job, site = self._job, self._site
        deadline_tick_us = site.clock.read().tick_us + 2 * STOP_LEAD_US
        self._pipe = site.supervise(lambda there, pipe: Supervisor(there, pipe, job, deadline_tick_us).run())
        while True:
            try:
                end = self._pipe.receive(LOOK_S)
            except EOFError:
                return super()._supervisor_lost()
            if isinstance(end, Ended):
                return end


class InItsOwnProcess(OneExecutor):
    """Has no supervisor: a thread of the worker watches, and is gone with it, or stands still with it."""

    def start(self, job: Job, deadline_tick_us: int) -> Running:
        if deadline_tick_us - self.site.clock.read().tick_us <= STOP_LEAD_US:
            return self.running(self.site, job, None, ended("lease_lost"))
        ours, theirs = self.site.pipe()
        supervisor = self.supervisor(self.site, theirs, job, deadline_tick_us)
        self.site.threads.start(supervisor.run, name="watch")
        return self.running(self.site, job, ours)


class ProvesTooMuch(OneExecutor):
    """Takes the end of a worker for the end of what it started."""

    def holder_proof(self, lock_path: str, attempt: str, boot_id: str, *, same_host: bool) -> HolderProof:
        return HolderProof(gone=True, lock="free", pids=(), evidence=("its worker is gone",))


class WithLooksAtTheCommandAlone(OneExecutor):
    supervisor = LooksAtTheCommandAlone


class WithIgnoresTheLease(OneExecutor):
    supervisor = IgnoresTheLease


class WithIgnoresTheTimeLimit(OneExecutor):
    supervisor = IgnoresTheTimeLimit


class WithGrantsTheWholeGrace(OneExecutor):
    supervisor = GrantsTheWholeGrace


class WithAsksOnly(OneExecutor):
    supervisor = AsksOnly


class WithTakesNoLock(OneExecutor):
    supervisor = TakesNoLock


class WithAlwaysWell(OneExecutor):
    supervisor = AlwaysWell


class StartsAgain(OneExecutor):
    running = TriesAgain


EXECUTORS: dict[str, tuple[type[OneExecutor], str]] = {
    "says that the tree is empty too soon": (WithLooksAtTheCommandAlone, "is empty while it runs"),
    "ignores the lease": (WithIgnoresTheLease, "after the end of its lease"),
    "ignores the time limit": (WithIgnoresTheTimeLimit, "runs on after its time limit"),
    "grants a grace beyond the lease": (WithGrantsTheWholeGrace, "after the end of its lease"),
    "never kills": (WithAsksOnly, "runs on after"),
    "takes no lock": (WithTakesNoLock, "without holding its lock"),
    "says 0 whatever it was": (WithAlwaysWell, "says exit code 0"),
    "starts again": (StartsAgain, "was started twice"),
    "has no supervisor": (InItsOwnProcess, "runs on after"),
    "proves too much": (ProvesTooMuch, "gone while it runs"),
}
"""Name -> the executor, and words in which its mistake is told."""


class KeptJournal(MemoryJournal):
    """A store without a mistake: what was committed is there after a power cut."""

    def __init__(self) -> None:
        super().__init__(STORE_ID)

    def left(self) -> dict[Stream, Any]:
        return self._streams

    def reopened(self) -> KeptJournal:
        """The store as it is found after a power cut."""
        found = type(self)()
        found._streams = self.left()
        return found


class ForgetfulJournal(KeptJournal):
    """Answers a commit before it is durable: a power cut takes the last one with it."""

    def __init__(self) -> None:
        super().__init__()
        self._before = self._streams

    def left(self) -> dict[Stream, Any]:
        return self._before

    def publish(self, stream: Stream, tables: Any) -> None:
        self._before = self._streams
        super().publish(stream, tables)


class TwoWriters(KeptJournal):
    """Compares the head with what it was when the transaction began, and lets others write meanwhile."""

    @contextmanager
    def transaction(self, stream: Stream, *, wait_s: float = 30.0) -> Iterator[Transaction]:
        with KeptJournal.transaction(self._beside(), stream, wait_s=wait_s) as transaction:
            yield transaction

    def _beside(self) -> KeptJournal:
        """The same store behind a lock of its own."""
        beside = KeptJournal()
        beside._streams = self._streams
        beside.publish = self.publish  # type: ignore[method-assign]  # what it publishes is ours
        return beside


class KeepsIndexRows(KeptJournal):
    """Does not delete index rows, since a put replaces them anyway."""

    @contextmanager
    def transaction(self, stream: Stream, *, wait_s: float = 30.0) -> Iterator[Transaction]:
        with super().transaction(stream, wait_s=wait_s) as transaction:
            append = transaction.append
            transaction.append = lambda group: append(group._replace(index_delete=()))  # type: ignore[method-assign]  # on purpose
            yield transaction


def reopen(journal: Journal) -> Journal:
    """What the simulator calls at a power cut: `--reopen mistakes:reopen`."""
    if not isinstance(journal, KeptJournal):
        raise TypeError("not one of these stores")
    return journal.reopened()


STORES: dict[str, tuple[type[KeptJournal], str]] = {
    "loses the last commit at a power cut": (ForgetfulJournal, "test_what_was_committed_is_there_after_a_crash"),
    "two writers at once": (TwoWriters, "test_a_lock_that_is_held_too_long_is_unavailable"),
    "keeps index rows": (KeepsIndexRows, "test_deletes_come_before_puts"),
}
"""Name -> the store, and the test of a suite that finds it."""
