"""A producer process and a worker process on one home, with no program between them.

Both open the home as an application does (`fencepost.app.App`) and speak the same commands as everybody: the producer
submits in batches, the worker reserves, activates, reports and applies in batches, and waits for a hint when there is
nothing to do. What a program does inside of an attempt is left out, so that the figures are those of the kernel
shared by two processes. `python -m tests.bench.pair ROLE HOME COUNT` is one of the two.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fencepost.app import HOME_NAME, App, make_home
from fencepost.core.index import CLAIM
from fencepost.core.machines import ENDED
from fencepost.core.state import OrderState
from fencepost.kernel.kernel import Kernel
from tests.bench.worlds import Crew

SCOPE = "default"
BATCH = 64
WAIT_S = 120.0
LOOK_S = 0.5  # at most between two looks, should a hint be lost
Told = dict[str, float]


def produce(kernel: Kernel, count: int) -> Told:
    """Submit `count` orders in batches as fast as they are taken."""
    crew = Crew(kernel)
    _start()
    begun, begun_cpu = time.time(), time.process_time()
    left = count
    while left > 0:
        left -= len(crew.do_many("human", [crew.submit()] * min(left, BATCH)))
    return {"begun": begun, "ended": time.time(), "cpu_s": time.process_time() - begun_cpu, "rss_mb": _rss_mb()}


def produce_singly(kernel: Kernel, count: int) -> Told:
    """Submit one order after the other, each when the news has come that the one before is applied."""
    crew = Crew(kernel)
    found = []
    _start()
    for _ in range(count + 1):
        time.sleep(0.02)
        begun = time.perf_counter()
        order = crew.do("human", crew.submit())["order"]
        _wait_applied(kernel, order)
        found.append((time.perf_counter() - begun) * 1e3)
    found = sorted(found[1:])  # the first one warms both processes up
    return {"p50": found[len(found) // 2], "p99": found[min(len(found) - 1, len(found) * 99 // 100)]}


def work(kernel: Kernel, count: int) -> Told:
    """Carry out `count` orders: each attempt is activated, reported and applied without a program."""
    crew = Crew(kernel)
    _start()
    begun, begun_cpu = time.time(), time.process_time()
    deadline, left = time.monotonic() + WAIT_S, count
    while left > 0:
        ticket = kernel.wakeups.ticket()
        with kernel.reader.look() as look:  # as the worker service looks before it asks
            ready = len(look.due(CLAIM, limit=BATCH))
        if ready:
            reserved = crew.do("dispatcher", crew.reserve_next(ready))["reservations"]
            crew.do_many("dispatcher", [crew.activate(each) for each in reserved])
            crew.do_many("executor", [crew.report(each) for each in reserved])
            crew.do_many("reducer", [crew.apply(each) for each in reserved])
            left -= len(reserved)
        elif time.monotonic() > deadline:
            raise RuntimeError(f"{left} of {count} orders did not come within {WAIT_S:g} s")
        else:
            kernel.wakeups.wait(ticket, LOOK_S)
    return {"begun": begun, "ended": time.time(), "cpu_s": time.process_time() - begun_cpu, "rss_mb": _rss_mb()}


ROLES: dict[str, Callable[[Kernel, int], Told]] = {"produce": produce, "singly": produce_singly, "work": work}


def _start() -> None:
    """Tell that everything is open, and wait for the word to begin."""
    print("ready", flush=True)
    sys.stdin.readline()


def _wait_applied(kernel: Kernel, name: str) -> None:
    deadline = time.monotonic() + WAIT_S
    while True:
        ticket = kernel.wakeups.ticket()
        with kernel.reader.look() as look:
            order = look.find(name, OrderState)
        if order is not None and order.state in ENDED:
            return
        if time.monotonic() > deadline:
            raise RuntimeError(f"{name} is not applied after {WAIT_S:g} s")
        kernel.wakeups.wait(ticket, LOOK_S)


def _rss_mb() -> float:
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")) / 1024


class Partner:
    """One of the two processes, told to begin when both are ready."""

    def __init__(self, role: str, home: Path, count: int) -> None:
        environment = {**os.environ, **_environment(home), "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.bench.pair", role, str(home), str(count)],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.pid = self._process.pid

    def ready(self) -> None:
        if self._process.stdout is None or self._process.stdout.readline() != "ready\n":
            self.stop()
            raise RuntimeError("a process of the pair did not start")

    def begin(self) -> None:
        if self._process.stdin is not None:
            self._process.stdin.write("\n")
            self._process.stdin.flush()

    def told(self) -> Told:
        out, _ = self._process.communicate(timeout=WAIT_S)
        if self._process.returncode:
            raise RuntimeError(f"a process of the pair ended with {self._process.returncode}")
        found: Told = json.loads(out)
        return found

    def stop(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.communicate()


def _environment(home: Path) -> dict[str, str]:
    return {"HOME": str(home.parent), "XDG_STATE_HOME": str(home.parent / "state")}


def opened(home: Path) -> App:
    app = App(home, scope=SCOPE, environment=_environment(home))
    app.kernel.open()
    return app


def run_together(home: Path, *roles: tuple[str, int]) -> list[Told]:
    """Run the roles at the same time, each in a process of its own, from one word on."""
    partners: list[Partner] = []
    try:
        for role, count in roles:
            partners.append(Partner(role, home, count))
        for partner in partners:
            partner.ready()
        for partner in partners:
            partner.begin()
        return [partner.told() for partner in partners]
    finally:
        for partner in partners:
            partner.stop()


def made(folder: Path) -> Path:
    """A home in `folder` whose scope is open."""
    home = folder / HOME_NAME
    make_home(home)
    opened(home).close()
    return home


def rates(folder: Path, orders: int, counted: Callable[[Kernel, int], Any]) -> dict[str, float]:
    """Orders a second: submitted with nobody else there, drained afterwards, and both at the same time."""
    home = made(folder)
    (enqueued,) = run_together(home, ("produce", orders))
    (drained,) = run_together(home, ("work", orders))
    produced, worked = run_together(home, ("produce", orders), ("work", orders))
    app = opened(home)
    try:
        counted(app.kernel, 2 * orders)
    finally:
        app.close()
    return {
        "enqueue_per_s": orders / (enqueued["ended"] - enqueued["begun"]),
        "drain_per_s": orders / (drained["ended"] - drained["begun"]),
        "both_per_s": orders / (worked["ended"] - min(produced["begun"], worked["begun"])),
        "worker_cpu_us": drained["cpu_s"] * 1e6 / orders,
        "worker_rss_mb": worked["rss_mb"],
    }


def idle_ms(folder: Path, samples: int) -> dict[str, float]:
    """From submission in one process to the news, back there, that the other has applied it."""
    told, _ = run_together(made(folder), ("singly", samples), ("work", samples + 1))
    return told


def main(arguments: list[str]) -> int:
    role, home, count = arguments
    app = opened(Path(home))
    try:
        told = ROLES[role](app.kernel, int(count))
    finally:
        app.close()
    print(json.dumps(told))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
