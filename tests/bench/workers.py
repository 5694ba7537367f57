"""A producer and a worker as two processes on one home, the worker started as a user starts it.

The producer is this process, through the library; the worker is `fencepost worker start`. Each order runs `true`, or
calls a function that does nothing in a child process of its own, under a keeper: every figure has the start and the
end of a real program in it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from fencepost.app import HOME_NAME, App, make_home
from fencepost.core.commands import OrderDraft, SubmitOrder
from fencepost.core.machines import ENDED
from fencepost.core.records.plan import Acceptance, WorkOrderSpec
from fencepost.core.state import OrderState

CLI = (sys.executable, "-m", "fencepost")
PLAN = 'name = "first"\n[budget]\nattempts = 1\n[[work]]\nname = "first"\n'
SHORT = (sys.executable, "-I", "-S", "-c", "pass")
"""A short program that does something: an interpreter starts and ends, some 10 ms of the processor's time."""
PROGRAMS = {
    "command": 'run = ["true"]\n',
    "short": f"run = {json.dumps(SHORT)}\n",
    "python": 'executor = "python"\ncall = "work:nothing"\n',
    "python_step": 'executor = "python"\ncall = "work:stepping"\n',
}
MODULE = """
import fencepost

@fencepost.executor("nothing", version=1)
def nothing(attempt):
    return fencepost.Result.succeeded()

@fencepost.executor("stepping", version=1)
def stepping(attempt):
    attempt.step("one", int)
    return fencepost.Result.succeeded()
"""
WAIT_S = 120.0
LOOK_S = 0.5  # at most between two looks, should a hint be lost


def _environment(folder: Path) -> dict[str, str]:
    own = {name: value for name, value in os.environ.items() if not name.startswith("FENCEPOST_")}
    path = os.pathsep.join(filter(None, sys.path))
    return {**own, "HOME": str(folder), "XDG_STATE_HOME": str(folder / "state"), "PYTHONPATH": path}


class Pair:
    """The producer's side of a home that a worker process serves."""

    def __init__(self, app: App, draft: OrderDraft, worker_pid: int) -> None:
        self._app = app
        self._draft = draft
        self.worker_pid = worker_pid

    def submit(self, count: int) -> list[str]:
        kernel = self._app.kernel
        command = SubmitOrder(order=self._draft)
        receipts = kernel.write_many([kernel.request("human", command) for _ in range(count)])
        return [receipt.required()["order"] for receipt in receipts]

    def wait_applied(self, orders: Sequence[str]) -> None:
        """Return as soon as all are applied; hints come from the worker's process. Raises RuntimeError."""
        kernel = self._app.kernel
        left, deadline = list(orders), time.monotonic() + WAIT_S
        while True:
            ticket = kernel.wakeups.ticket()
            with kernel.reader.look() as look:
                while left:
                    order = look.find(left[-1], OrderState)
                    if order is None or order.state not in ENDED:
                        break
                    if order.state != "applied":
                        raise RuntimeError(f"{order.order} ended as {order.state}: {order.reason}")
                    left.pop()
            if not left:
                return
            if time.monotonic() > deadline:
                raise RuntimeError(f"{len(left)} of {len(orders)} orders are not applied after {WAIT_S:g} s")
            kernel.wakeups.wait(ticket, LOOK_S)


@contextmanager
def served(folder: Path, jobs: int, executor: str = "command") -> Iterator[Pair]:
    """A home in `folder` with one worker process on it, which has run its first order with that executor."""
    home = folder / HOME_NAME
    make_home(home)
    environment = _environment(folder)
    app = App(home, scope="default", environment=environment)
    worker = None
    try:
        app.kernel.open()
        (folder / "plan.toml").write_text(PLAN + PROGRAMS[executor], encoding="utf-8")
        (folder / "work.py").write_text(MODULE, encoding="utf-8")
        subprocess.run(
            [*CLI, "plan", "submit", "plan.toml"], cwd=folder, env=environment, check=True, capture_output=True
        )
        with app.kernel.reader.look() as look:
            (plan,) = look.plans()
            (first,) = look.orders(plan.plan)
            spec = look.spec(first)
        worker = subprocess.Popen(
            [*CLI, "worker", "start", "--jobs", str(jobs)],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        pair = Pair(app, _draft(spec), worker.pid)
        pair.wait_applied([first.order])
        yield pair
    finally:
        if worker is not None:
            worker.terminate()
            worker.wait(WAIT_S)
        app.close()


def _draft(spec: WorkOrderSpec) -> OrderDraft:
    """One more order like the first: the same program, with the same pinned files."""
    return OrderDraft(
        task="again",
        work_kind=spec.work_kind,
        priority="normal",
        classification="private",
        effects="declared",
        attempt_time_us=60_000_000,
        accept=Acceptance(),
        run=spec.run,
        python=spec.python,
        manifest=spec.inputs.digest,
        ceilings={"attempts": 1},
    )


def worker_rate(folder: Path, orders: int, executor: str, jobs: int = 2) -> dict[str, float]:
    """From the submission of so many orders to the last application: orders a second, the seconds, and the processor
    time of an order in worker, keeper and program together, in milliseconds."""
    with served(folder, jobs=jobs, executor=executor) as pair:
        begun, begun_cpu = time.perf_counter(), tree_cpu_s(pair.worker_pid)
        pair.wait_applied(pair.submit(orders))
        took_s, cpu_s = time.perf_counter() - begun, tree_cpu_s(pair.worker_pid) - begun_cpu
    return {"rate": orders / took_s, "took_s": took_s, "cpu_ms": cpu_s * 1e3 / orders}


def tree_cpu_s(pid: int) -> float:
    """Processor time, in user and system mode, of a process, of those that it has waited for, and of all below it."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        threads = list(Path(f"/proc/{pid}/task").iterdir())
    except FileNotFoundError:
        return 0.0  # it ended while we looked: whoever waited for it counts it
    children = [child for thread in threads for child in _children_of(thread)]
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK") + sum(map(tree_cpu_s, children))


def _children_of(thread: Path) -> list[int]:
    try:
        return [int(child) for child in (thread / "children").read_text(encoding="ascii").split()]
    except (FileNotFoundError, ProcessLookupError):
        return []  # a thread that has ended: its children are another's now


def across_ms(folder: Path, samples: int) -> dict[str, float]:
    """From submission in one process to the news, back there, that the other has applied it."""
    found = []
    with served(folder, jobs=2) as pair:
        for _ in range(samples):
            time.sleep(0.02)
            begun = time.perf_counter()
            pair.wait_applied(pair.submit(1))
            found.append((time.perf_counter() - begun) * 1e3)
    found.sort()
    return {"p50": found[len(found) // 2], "p99": found[min(len(found) - 1, len(found) * 99 // 100)]}
