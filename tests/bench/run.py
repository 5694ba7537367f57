"""The benchmark: `./dev bench` prints the table, `--json FILE` writes the document of the design's page on speed.

What runs is the path that a user runs, and every figure is counted afterwards from the journal: a store whose replay
does not match gives no figure. Medians of three. Figures that cannot be measured here are null.
"""

from __future__ import annotations

import argparse
import compileall
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

if __package__ in (None, ""):  # run as a script, by `./dev bench`
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import apsw

import fencepost
from fencepost.kernel import replay
from fencepost.kernel.kernel import Kernel
from tests.bench import attempts, pair, plans, waiting, workers, worlds

RUNS = 3
EXECUTORS = ("command", "python", "python_step")
ONCE_FROM = 100_000  # waiting orders: a store that takes minutes to fill is made once
Document = dict[str, Any]


class Sizes:
    """How much is run. Quick ones show that the benchmark works; their figures say nothing."""

    def __init__(self, *, quick: bool) -> None:
        self.runs = 1 if quick else RUNS
        self.raw_s = 0.1 if quick else 1.0
        self.one = 10 if quick else 500
        self.crowd = 128 if quick else 3_200
        self.many = 64 if quick else 3_200
        self.idle = 10 if quick else 200
        self.claims = 20 if quick else 300
        self.finishes = 2 if quick else 30
        self.plan_orders = 200 if quick else 10_000
        self.pair = 128 if quick else 6_400
        self.starts = 1 if quick else 5
        self.worker_orders = 4 if quick else 200
        self.across = 2 if quick else 50
        self.idle_worker_s = 0.5 if quick else 30.0


def raw_sqlite(folder: Path, seconds: float) -> Document:
    """What SQLite itself does here: rows of 600 bytes, WAL, FULL, one and a hundred a commit."""
    rates = []
    for rows in (1, 100):
        connection = apsw.Connection(str(folder / f"raw-{rows}.db"))
        connection.pragma("journal_mode", "WAL")
        connection.pragma("synchronous", "FULL")
        connection.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, data BLOB)")
        values = [(b"x" * 600,)] * rows
        written, begun = 0, time.perf_counter()
        while time.perf_counter() - begun < seconds:
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany("INSERT INTO t (data) VALUES (?)", values)
            connection.execute("COMMIT")
            written += rows
        rates.append(written / (time.perf_counter() - begun))
        connection.close()
    return {"sqlite_commits_per_s": rates[0], "sqlite_rows_per_s": rates[1]}


def counted(kernel: Kernel, lives: int) -> replay.Compared:
    """Raise unless the journal holds exactly so many applied lives and replays to what the store keeps."""
    with kernel.reader.look() as look:
        applied = sum(
            look.record(seq).kind == "result_application"
            for after in range(0, look.head.seq, 1_000)
            for seq, _ in look.records(after, 1_000)
        )
    if applied != lives:
        raise RuntimeError(f"the journal holds {applied} applications, {lives} lives were run")
    compared = replay.compare(kernel.journal, kernel.stream)
    if not compared.match:
        raise RuntimeError(f"the replay does not match: {compared.differs}")
    return compared


def lives_per_s(folder: Path, drive: Callable[[worlds.Crew, int], None], lives: int) -> Document:
    """Return lives a second, processor time of a life in microseconds, and bytes of the closed store for each."""
    warm = min(lives, 64)
    with worlds.opened(folder) as kernel:
        crew = worlds.Crew(kernel)
        drive(crew, warm)
        begun, begun_cpu = time.perf_counter(), time.process_time()
        drive(crew, lives)
        rate, cpu_s = lives / (time.perf_counter() - begun), time.process_time() - begun_cpu
        counted(kernel, warm + lives)
    size = (folder / "store.db").stat().st_size
    return {"rate": rate, "cpu_us": cpu_s * 1e6 / lives, "bytes": size / (warm + lives)}


def idle_ms(folder: Path, samples: int) -> Document:
    """From submission to applied on a store that has nothing else to do."""
    found = []
    with worlds.opened(folder) as kernel:
        crew = worlds.Crew(kernel)
        worlds.one(crew, 5)
        for _ in range(samples):
            time.sleep(0.005)
            begun = time.perf_counter()
            worlds.one(crew, 1)
            found.append((time.perf_counter() - begun) * 1e3)
        counted(kernel, samples + 5)
    return waiting.percentiles(found)


def replay_rate(folder: Path, lives: int) -> float:
    with worlds.opened(folder) as kernel:
        crew = worlds.Crew(kernel)
        worlds.many(crew, lives)
        counted(kernel, lives)
        with kernel.journal.snapshot() as reads:
            begun = time.perf_counter()
            replayed = replay.fold(reads, kernel.stream)
            return replayed.link.seq / (time.perf_counter() - begun)


def cli_ms(starts: int, words: Sequence[str], folder: Path | None = None) -> float | None:
    """A command from nothing to its end; None where it is not installed, or fails."""
    command = Path(sys.executable).with_name("fencepost")
    if not command.exists():
        return None
    found = []
    for _ in range(starts):
        begun = time.perf_counter()
        done = subprocess.run([str(command), *words], capture_output=True, check=False, cwd=folder)
        found.append((time.perf_counter() - begun) * 1e3)
        if done.returncode:
            return None
    return statistics.median(found)


class Bench:
    """Runs each measurement in a folder of its own that is removed again."""

    def __init__(self, place: Path | None, sizes: Sizes) -> None:
        self._place = place
        self.sizes = sizes

    def fresh(self, measure: Callable[..., Any], *arguments: Any) -> Any:
        folder = Path(tempfile.mkdtemp(prefix="fencepost-bench-", dir=self._place))
        try:
            return measure(folder, *arguments)
        finally:
            shutil.rmtree(folder)

    def median(self, measure: Callable[..., float], *arguments: Any) -> float:
        found: list[float] = [self.fresh(measure, *arguments) for _ in range(self.sizes.runs)]
        return statistics.median(found)

    def medians(self, measure: Callable[..., Document], *arguments: Any) -> Document:
        found = [self.fresh(measure, *arguments) for _ in range(self.sizes.runs)]
        return {key: statistics.median(each[key] for each in found) for key in found[0]}


def document(bench: Bench, counts: tuple[int, ...]) -> Document:
    """Measure everything, with so many waiting orders each. The order is that of the table."""
    sizes = bench.sizes
    load_before = os.getloadavg()[0]
    raw = bench.medians(raw_sqlite, sizes.raw_s)
    rates: Document = {}
    cpu_us: Document = {}
    bytes_per_life: list[float] = []
    waits = {
        count: (bench.medians if count < ONCE_FROM else bench.fresh)(
            waiting.with_waiting, count, sizes.claims, sizes.finishes
        )
        for count in counts
    }
    reserve_us, finish_us = waiting.by_count(waits)
    for name, drive, lives in (
        ("one", worlds.one, sizes.one),
        ("crowd64", worlds.crowd, sizes.crowd),
        ("many", worlds.many, sizes.many),
    ):
        found = bench.medians(lives_per_s, drive, lives)
        rates[name], cpu_us[name] = found["rate"], found["cpu_us"]
        bytes_per_life.append(found["bytes"])
    served = {name: bench.medians(workers.worker_rate, sizes.worker_orders, name) for name in EXECUTORS}
    rates["worker"], rates["worker_python"] = served["command"]["rate"], served["python"]["rate"]
    two_processes = bench.medians(pair.rates, sizes.pair, counted)
    plan = bench.medians(plans.plan_s, sizes.plan_orders, counted)
    return {
        "machine": {
            "python": platform.python_version(),
            "system": platform.platform(),
            "processors": os.cpu_count(),
            "sqlite": apsw.sqlite_lib_version(),
            "load_before": load_before,
            "quick": sizes.runs == 1,
        },
        "raw": {**raw, "postgres_commits_per_s": None, "postgres_rows_per_s": None},
        "lives_per_s": {"sqlite": rates, "postgres": None},
        "cpu_us_per_life": {"sqlite": cpu_us},
        "worker_executor": "command",
        "attempt_cpu_ms": {name: each["cpu_ms"] for name, each in served.items()},
        "attempt_start_ms": bench.medians(attempts.beside_ms, sizes.worker_orders),
        "short_commands": {
            name: bench.medians(attempts.against_shell, sizes.worker_orders, name) for name in ("command", "short")
        },
        "idle_worker": bench.fresh(attempts.idle_share, sizes.idle_worker_s),
        "two_processes": two_processes,
        "idle_ms": {
            "in_process": bench.medians(idle_ms, sizes.idle),
            "across_processes": bench.medians(workers.across_ms, sizes.across),
            "across_kernels": bench.medians(pair.idle_ms, sizes.across),
        },
        "reserve_us": reserve_us,
        "finish_us": finish_us,
        "replay_records_per_s": bench.median(replay_rate, sizes.many),
        "rss_mb": {str(count): each["rss_mb"] for count, each in waits.items()},
        "rss_mb_1e6_waiting": waits[1_000_000]["rss_mb"] if 1_000_000 in waits else None,
        "bytes_per_life": max(bytes_per_life),
        "cli_start_ms": cli_ms(sizes.starts, ("version",)),
        "order_list_ms": bench.fresh(plans.order_list_ms, sizes.starts, cli_ms),
        "plan_10k_s": plan["checked_s"] + plan["submitted_s"],
        "plan_10k_parts_s": plan,
    }


def table(found: Document) -> str:
    """The document as a table, each figure beside its target."""
    rates, raw = found["lives_per_s"]["sqlite"], found["raw"]
    lone_target = 0.35 * raw["sqlite_commits_per_s"] / 5
    two, kernels = found["two_processes"], found["idle_ms"]["across_kernels"]
    cpu_us, across = found["cpu_us_per_life"]["sqlite"], found["idle_ms"]["across_processes"]
    rows = [
        ("SQLite alone, commits/s", f"{raw['sqlite_commits_per_s']:,.0f}", ""),
        ("SQLite alone, rows/s", f"{raw['sqlite_rows_per_s']:,.0f}", ""),
        ("lives/s, one caller", f"{rates['one']:,.0f}", f"{lone_target:,.0f}"),
        ("lives/s, 64 tasks", f"{rates['crowd64']:,.0f}", "1,600"),
        ("lives/s, in batches of 64", f"{rates['many']:,.0f}", "2,500"),
        ("processor time of a life, one caller, µs", f"{cpu_us['one']:,.0f}", ""),
        ("processor time of a life, 64 tasks, µs", f"{cpu_us['crowd64']:,.0f}", ""),
        ("processor time of a life, batches, µs", f"{cpu_us['many']:,.0f}", ""),
        ("orders/s, worker process that runs `true`", f"{rates['worker']:,.0f}", ""),
        ("orders/s, worker process that calls a function", f"{rates['worker_python']:,.0f}", "1,000"),
        ("two processes, submitted/s, alone", f"{two['enqueue_per_s']:,.0f}", ""),
        ("two processes, lives/s, worker alone", f"{two['drain_per_s']:,.0f}", ""),
        ("two processes, lives/s, both at once", f"{two['both_per_s']:,.0f}", ""),
        ("processor time of a job in the worker, µs", f"{two['worker_cpu_us']:,.0f}", ""),
        ("memory of the worker, MB", f"{two['worker_rss_mb']:,.0f}", ""),
        ("idle, submission to applied, p50 ms", f"{found['idle_ms']['in_process']['p50']:.2f}", "2"),
        ("idle, submission to applied, p99 ms", f"{found['idle_ms']['in_process']['p99']:.2f}", ""),
        ("idle, across processes, no program, p50 ms", f"{kernels['p50']:.2f}", "5"),
        ("idle, across processes, no program, p99 ms", f"{kernels['p99']:.2f}", ""),
        ("idle, across processes, with `true`, p50 ms", f"{across['p50']:.1f}", ""),
        ("idle, across processes, with `true`, p99 ms", f"{across['p99']:.1f}", ""),
        ("replay, records/s", f"{found['replay_records_per_s']:,.0f}", "100,000"),
        ("bytes a life", f"{found['bytes_per_life']:,.0f}", "20,480"),
        ("plan of 10,000 orders, checked, pinned, submitted, s", f"{found['plan_10k_s']:.2f}", "3"),
        ("`fencepost version`, ms", _shown(found["cli_start_ms"]), "150"),
        ("`fencepost order list`, ms", _shown(found["order_list_ms"]), "300"),
    ]
    rows += _attempt_rows(found)
    for count, each in found["reserve_us"].items():
        rows.append((f"reserve of {int(count):,} waiting, p50 µs", f"{each['p50']:,.0f}", ""))
        rows.append((f"reserve of {int(count):,} waiting, p99 µs", f"{each['p99']:,.0f}", ""))
    for count, ends in found["finish_us"].items():
        for dependents, each in ends.items():
            name = f"end of an order, {int(dependents)} dependents, {int(count):,} others"
            rows.append((f"{name}, p50 µs", f"{each['p50']:,.0f}", ""))
            rows.append(("the processor's part of it, mean, µs", f"{each['cpu']:,.0f}", ""))
    for count, megabytes in found["rss_mb"].items():
        rows.append((f"memory with {int(count):,} waiting, MB", f"{megabytes:,.0f}", "120"))
    return "\n".join(
        f"{name:<54}{value:>12}{target:>12}" for name, value, target in [("", "measured", "target"), *rows]
    )


def _attempt_rows(found: Document) -> list[tuple[str, str, str]]:
    cpu_ms, short = found["attempt_cpu_ms"], found["short_commands"]
    return [
        ("processor time of an attempt, `true`, ms", f"{cpu_ms['command']:.1f}", ""),
        ("processor time of an attempt, function, ms", f"{cpu_ms['python']:.1f}", ""),
        ("processor time of an attempt, function, one step, ms", f"{cpu_ms['python_step']:.1f}", ""),
        ("attempt of `true` beside the command's own time, ms", f"{found['attempt_start_ms']['beside']:.1f}", "15"),
        ("two at once, times a shell's loop, `true`", f"{short['command']['ratio']:.1f}", "2"),
        ("two at once, times a shell's loop, an interpreter", f"{short['short']['ratio']:.1f}", "2"),
        ("idle worker, % of a core", f"{found['idle_worker']['percent']:.2f}", "0.5"),
    ]


def _shown(milliseconds: float | None) -> str:
    return "-" if milliseconds is None else f"{milliseconds:.0f}"


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="./dev bench", description=__doc__)
    parser.add_argument(
        "--json",
        nargs="?",
        const="-",
        metavar="FILE",
        help="print the document in the place of the table; with FILE write it there and print the table",
    )
    parser.add_argument("--quick", action="store_true", help="a few seconds: shows that it runs, not how fast")
    parser.add_argument("--large", action="store_true", help="also with 10,000, 100,000 and 1,000,000 waiting orders")
    parser.add_argument("--waiting", type=int, nargs="+", metavar="N", help="with so many waiting orders instead")
    parser.add_argument("--place", type=Path, metavar="FOLDER", help="where stores are made; a disk that really syncs")
    options = parser.parse_args(arguments)
    counts = (100,) if options.quick else (1_000, 10_000, 100_000, 1_000_000) if options.large else (1_000,)
    counts = tuple(options.waiting or counts)
    # As an installer leaves it: each process that is started would otherwise compile what was edited last.
    compileall.compile_dir(Path(fencepost.__file__).parent, quiet=1)
    found = document(Bench(options.place, Sizes(quick=options.quick)), counts)
    text = json.dumps(found, indent=2) + "\n"
    print(text if options.json == "-" else table(found) + "\n", end="")
    if options.json not in (None, "-"):
        Path(options.json).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
