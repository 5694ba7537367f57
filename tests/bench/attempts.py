"""What an attempt costs beside its command, and what a worker costs that has nothing to do.

Commands are set beside a shell that runs the same ones in a loop. The worker is `fencepost worker start`.
"""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from tests.bench import workers

LOOP = 'n=$1; shift; while [ "$n" -gt 0 ]; do "$@" || exit 1; n=$((n - 1)); done'
SETTLE_S = 2.0  # what a worker does behind its last order is not idleness yet


def words_of(executor: str) -> Sequence[str]:
    """The command that orders of this kind run, by its path: a shell has a `true` of its own."""
    return workers.SHORT if executor == "short" else (shutil.which("true") or "/bin/true",)


def shell_s(words: Sequence[str], count: int, at_once: int) -> float:
    """Seconds that as many shells as run at once need to run a command so many times between them."""
    begun = time.perf_counter()
    shares = [count // at_once + (place < count % at_once) for place in range(at_once)]
    shells = [
        subprocess.Popen(["sh", "-c", LOOP, "sh", str(share), *words], stdin=subprocess.DEVNULL) for share in shares
    ]
    if any([shell.wait(workers.WAIT_S) for shell in shells]):
        raise RuntimeError("a command of the shell failed")
    return time.perf_counter() - begun


def beside_ms(folder: Path, orders: int) -> dict[str, float]:
    """Milliseconds of an order beside its command's own, one order after the other, submission included."""
    took_s = workers.worker_rate(folder, orders, "command", jobs=1)["took_s"]
    own_s = shell_s(words_of("command"), orders, 1)
    return {"whole": took_s * 1e3 / orders, "command": own_s * 1e3 / orders, "beside": (took_s - own_s) * 1e3 / orders}


def against_shell(folder: Path, orders: int, executor: str) -> dict[str, float]:
    """Seconds for so many orders with two at once, for a shell's loop of the same commands, and their ratio."""
    took_s = workers.worker_rate(folder, orders, executor)["took_s"]
    loop_s = shell_s(words_of(executor), orders, 2)
    return {"attempts_s": took_s, "shell_s": loop_s, "ratio": took_s / loop_s}


def idle_share(folder: Path, seconds: float) -> dict[str, float]:
    """Share of one core, in percent, that a worker and its keeper host use while nothing happens."""
    with workers.served(folder, jobs=2) as pair:
        time.sleep(min(SETTLE_S, seconds))
        begun, begun_cpu = time.perf_counter(), workers.tree_cpu_s(pair.worker_pid)
        time.sleep(seconds)
        cpu_s, took_s = workers.tree_cpu_s(pair.worker_pid) - begun_cpu, time.perf_counter() - begun
    return {"percent": cpu_s * 100 / took_s, "seconds": took_s}
