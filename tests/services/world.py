"""A real home with workers in this process or in others, and the checks that must hold whatever happened."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fencepost.app import App, make_home
from fencepost.core.commands import AnyCommand, GroupDraft, MemberDraft, OrderDraft, SubmitPlan
from fencepost.core.ids import sha256_of
from fencepost.core.limits import Limits
from fencepost.core.records.attempt import ResultFacts
from fencepost.core.records.plan import Acceptance
from fencepost.core.state import AttemptState, HoldState, OrderState, PlanState
from fencepost.kernel import replay
from fencepost.kernel.kernel import Kernel
from fencepost.kernel.receipts import Receipt
from fencepost.services.worker import Worker
from tests.kernel.support import Trouble

SHORT = Limits(lease_us=5_000_000, renewal_us=1_000_000, reservation_us=2_500_000)
"""Leases that end while a test waits. A keeper stops its tree 3 s before the end."""

# A worker in a process of its own. It says when it serves, and stops when its stdin is closed.
_WORKER = """
import os, sys
from pathlib import Path
from fencepost.app import App
from tests.services.world import SHORT, limited
app = App(Path(sys.argv[1]), scope="default", environment=os.environ)
app = limited(app, SHORT)
app.kernel.open()
worker = app.worker(jobs=int(sys.argv[2]))
worker.start()
print(worker.worker, flush=True)
sys.stdin.read()
worker.stop()
app.close()
"""


def draft(task: str, *run: str, **changes: Any) -> OrderDraft:
    values: dict[str, Any] = {
        "task": task,
        "work_kind": "command/1",
        "priority": "normal",
        "classification": "internal",
        "effects": "declared",
        "attempt_time_us": 60_000_000,
        "accept": Acceptance(),
        "run": run or ("true",),
        "environment": ("PATH",),
        "ceilings": {"attempts": 3},
    }
    return OrderDraft(**{**values, **changes})


def needs(*tasks: str) -> tuple[GroupDraft, ...]:
    members = tuple(MemberDraft(task=task, outcomes=("applied",)) for task in tasks)
    return (GroupDraft(kind="required", members=members),)


def limited(app: App, limits: Limits) -> App:
    """The same home with other bounds, and a journal that fails when told to."""
    known = app.kernel
    app.kernel = Kernel(
        journal=Trouble(known.journal),  # type: ignore[arg-type]  # it passes everything else on
        scope=known.scope,
        clock=known.clock,
        entropy=known.entropy,
        authority=known._authority,
        keyring=known.keyring,
        ledger=known.ledger,
        wakeups=known.wakeups,
        threads=app.threads,
        limits=limits,
    )
    return app


class World:
    """One home. Close it through `opened_world`."""

    def __init__(self, folder: Path, limits: Limits = SHORT) -> None:
        self.folder = folder
        self.home = folder / ".fencepost"
        self.log = folder / "ran.log"
        self.environment = {"PATH": os.environ["PATH"], "XDG_STATE_HOME": str(folder / "state"), "HOME": str(folder)}
        make_home(self.home)
        self.app = self.open(limits)
        self.workers: list[Worker] = []
        self.others: list[subprocess.Popen[str]] = []

    def open(self, limits: Limits = SHORT) -> App:
        """The home through a kernel of its own, as another process would."""
        app = limited(App(self.home, scope="default", environment=self.environment), limits)
        app.kernel.open()
        return app

    @property
    def trouble(self) -> Trouble:
        trouble = self.app.kernel.journal
        assert isinstance(trouble, Trouble)
        return trouble

    def write(self, name: str, command: AnyCommand) -> Receipt:
        return self.app.kernel.write(self.app.kernel.request(name, command))

    def submit(self, *orders: OrderDraft, **changes: Any) -> str:
        values: dict[str, Any] = {
            "name": "plan",
            "objective": "a test",
            "content": sha256_of(repr((orders, changes)).encode()),
            "recovery": "replace",
            "mode": "new",
        }
        plan: str = self.write("human", SubmitPlan(orders=orders, **{**values, **changes})).required()["plan"]
        return plan

    def worker(self, jobs: int = 2, app: App | None = None) -> Worker:
        worker = (app or self.app).worker(jobs=jobs)
        self.workers.append(worker)
        worker.start()
        return worker

    def other_worker(self, jobs: int = 2) -> subprocess.Popen[str]:
        other = subprocess.Popen(
            [sys.executable, "-c", _WORKER, str(self.home), str(jobs)],
            env={**os.environ, **self.environment},
            cwd=Path(__file__).parents[2],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.others.append(other)
        assert other.stdout is not None
        assert other.stdout.readline().startswith("worker_")
        return other

    def plan(self, plan: str) -> PlanState:
        with self.app.kernel.reader.look() as look:
            found = look.find(plan, PlanState)
        assert found is not None
        return found

    def orders(self, plan: str) -> dict[str, OrderState]:
        with self.app.kernel.reader.look() as look:
            return {order.task: order for order in look.orders(plan)}

    def order(self, plan: str, task: str) -> OrderState:
        return self.orders(plan)[task]

    def attempts(self, plan: str, task: str) -> list[AttemptState]:
        order = self.order(plan, task)
        with self.app.kernel.reader.look() as look:
            return look.attempts(order.order)

    def hold(self, attempt: AttemptState) -> HoldState:
        with self.app.kernel.reader.look() as look:
            hold = look.hold(attempt.hold)
        assert hold is not None
        return hold

    def facts(self, plan: str, task: str) -> ResultFacts:
        order = self.order(plan, task)
        with self.app.kernel.reader.look() as look:
            seq = order.result_seq or look.attempts(order.order)[-1].result_seq
            facts = look.facts(seq)
        assert facts is not None
        return facts

    def kinds(self) -> list[tuple[str, str]]:
        """(kind, subject) of every record."""
        with self.app.kernel.reader.look() as look:
            records = [look.record(seq) for seq, _ in look.records(0, 100_000)]
        return [(record.kind, record.subject) for record in records]

    def ran(self) -> list[str]:
        return self.log.read_text().split() if self.log.exists() else []

    def until(self, condition: Callable[[], object], seconds: float = 20.0, what: str = "") -> float:
        """Wait for a condition; return how long it took."""
        began = time.monotonic()
        while not condition():
            took = time.monotonic() - began
            problems = [worker.fatal for worker in self.workers if worker.fatal is not None]
            assert took < seconds, (what or "waited too long", problems, [w.status() for w in self.workers])
            time.sleep(0.01)
        return time.monotonic() - began

    def until_ended(self, plan: str, seconds: float = 30.0) -> float:
        return self.until(lambda: self.plan(plan).open == 0, seconds)

    def until_state(self, plan: str, task: str, *states: str, seconds: float = 20.0) -> OrderState:
        self.until(lambda: self.order(plan, task).state in states, seconds, f"{task} never was {states}")
        return self.order(plan, task)

    def until_ran(self, word: str, seconds: float = 20.0) -> None:
        self.until(lambda: word in self.ran(), seconds, f"{word} never ran: {self.ran()}")

    def say(self, word: str, then: str = "") -> tuple[str, ...]:
        """A shell command that notes that it ran, in a file outside of every workspace."""
        return ("sh", "-c", f"echo {word} >> '{self.log}'; {then}")

    def processes(self) -> list[int]:
        """Processes with the marker of an attempt of this home."""
        found = []
        for entry in os.listdir("/proc"):
            try:
                content = Path(f"/proc/{entry}/environ").read_bytes() if entry.isdecimal() else b""
            except OSError:
                continue
            if b"FENCEPOST_ATTEMPT=" in content and os.fsencode(self.home) in content:
                found.append(int(entry))
        return found

    def check(self, *, settled: bool = True) -> None:
        """The chain, the replay, and the accounts: holds add up, and none is left when all is settled."""
        kernel = self.app.kernel
        assert kernel.verify().ok
        compared = replay.compare(kernel.journal, kernel.stream)
        assert compared.match, compared
        with kernel.reader.look() as look:
            values = [look.get(subject) for page in look.state_pages() for subject, _ in page]
        holds = [value for value in values if isinstance(value, HoldState)]
        open_holds = [hold for hold in holds if hold.state in ("held", "unsettled")]
        if settled:
            assert open_holds == []
        for value in values:
            account = getattr(value, "account", None)
            if account is None:
                continue
            for dimension, ceiling in account.ceiling.items():
                taken = account.held.get(dimension, 0)
                assert taken >= 0
                if dimension == "attempts":
                    assert taken + account.charged.get(dimension, 0) <= ceiling, value
            if settled:
                assert not any(account.held.values()), value
        if settled:
            assert self.processes() == []

    def close(self) -> None:
        for other in self.others:
            if other.poll() is None:
                other.send_signal(signal.SIGCONT)
                other.kill()
            other.wait()
            for pipe in (other.stdin, other.stdout):
                if pipe is not None:
                    pipe.close()
        for worker in self.workers:
            worker.stop()
        self.app.close()


@contextmanager
def opened_world(folder: Path, limits: Limits = SHORT) -> Iterator[World]:
    world = World(folder, limits)
    try:
        yield world
    finally:
        world.close()
