"""Mutation testing of the core: `python -m tests.mutation.run_mutmut [MODULE ...]` in an environment with mutmut.

pytest collects the tests once; then a child is forked for each mutant, puts it in place and runs the tests that reach
its function, the quickest and the latest killers first, until one fails. What was killed is remembered under `--keep`,
by the source of its function, so that a second run only repeats survivors. A survivor is either explained in
survivors.toml or the run fails. Modules are named below `fencepost.core`, `*` stands for any text: `decide.*`.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import importlib.metadata
import json
import math
import os
import selectors
import signal
import tempfile
import time
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any, NoReturn

import pytest

from tests.mutation.mutants import Function, Mutant, change_of, functions_of, mutants_of, put_in_place, sources
from tests.mutation.reach import ROOT, Reach, modules_like, path_of, quiet, reach_of_all

HERE = Path(__file__).resolve().parent
KEEP = Path(tempfile.gettempdir()) / "fencepost-mutmut"
CAUGHT = ("killed", "timeout")
LEFT_OUT = ("text", "loading")
BRISK_SECONDS = 0.2
SECONDS_MOST = 60.0


@dataclass(kw_only=True)
class Verdict:
    """What became of one mutant: killed, timeout, survived, untested, error; left out as text, or as run by loading."""

    key: str
    function: str
    status: str
    by: str = ""
    change: str = ""
    explained: str = ""


@dataclass(kw_only=True)
class Child:
    """A forked child that is trying one mutant; `said` is what it wrote so far."""

    mutant: Mutant
    pid: int
    said: bytes = b""


class Run:
    """A pytest plugin whose loop tries mutants in place of running the tests."""

    def __init__(self, config: Mapping[str, Any], modules: Sequence[str], asked: argparse.Namespace) -> None:
        self.config, self.modules = config, modules
        self.keep: Path = asked.keep.resolve()
        self.children: int = asked.children
        self.seconds_max: float = asked.seconds_max
        self.seconds_all: float = asked.seconds_all
        self.only_new = bool(asked.tests)
        self.items: dict[str, pytest.Item] = {}
        self.rank: dict[str, int] = {}
        self.reach = Reach()
        self.killers: dict[str, list[str]] = {}
        self.reporting: int | None = None
        self.failures: list[str] = []
        self.verdicts: dict[str, list[Verdict]] = {}

    # Hooks of pytest

    def pytest_sessionstart(self) -> None:
        """No example is shrunk, since one that fails is enough, and all runs see the same examples."""
        hypothesis = importlib.import_module("hypothesis")
        hypothesis.settings.register_profile(
            "mutants",
            deadline=None,
            max_examples=25,
            derandomize=True,
            database=None,
            phases=(hypothesis.Phase.explicit, hypothesis.Phase.generate),
            report_multiple_bugs=False,
            suppress_health_check=tuple(hypothesis.HealthCheck),
        )
        hypothesis.settings.load_profile("mutants")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> None:
        """In a child, the first failure is the end."""
        if call.excinfo is None or call.excinfo.errisinstance(pytest.skip.Exception):
            return
        if self.reporting is not None:
            self._say(status="killed", by=item.nodeid)
        self.failures.append(item.nodeid)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self.items = {item.nodeid: item for item in session.items}
        self.rank = {name: rank for rank, name in enumerate(self.items)}
        functions = {name: functions_of(importlib.import_module(name)) for name in self.modules}
        self.reach = reach_of_all(self.items, self.keep, self.failures)
        gc.collect()
        gc.freeze()  # what a child only reads stays shared
        for module in self.modules:
            start = time.monotonic()
            self.verdicts[module] = self._try_module(module, functions[module])
            self._remember(module)
            seconds = f"{time.monotonic() - start:.0f} s"
            print(f"{line_of(module, self.verdicts[module])} {seconds}", flush=True)
        return True

    # One module

    def _try_module(self, module: str, functions: Mapping[str, Function]) -> list[Verdict]:
        known = self._remembered(module)
        done: dict[str, Verdict] = {}
        waiting: list[Mutant] = []
        all_mutants = mutants_of(module, path_of(module))
        for mutant in all_mutants:
            before = known.get(mutant.key)
            place = f"{module.removeprefix('fencepost.core.')}.{mutant.function}"
            if mutant.text or place in self.config["loading"]:
                status = "text" if mutant.text else "loading"
                done[mutant.key] = Verdict(key=mutant.key, function=mutant.function, status=status)
            elif before is not None and before.status in CAUGHT and (self.only_new or before.by in self.items):
                done[mutant.key] = before
            elif mutant.function not in functions:
                done[mutant.key] = Verdict(key=mutant.key, function=mutant.function, status="untested", by="decorated")
            else:
                waiting.append(mutant)
        for verdict in self._try_all(waiting, functions):
            done[verdict.key] = verdict
        return [done[mutant.key] for mutant in all_mutants]

    def _try_all(self, waiting: list[Mutant], functions: Mapping[str, Function]) -> Iterable[Verdict]:
        """Verdicts in the order in which they come; at most `children` at a time."""
        with selectors.DefaultSelector() as selector:
            running = 0
            left = list(reversed(waiting))
            while left or running:
                while left and running < self.children:
                    self._start(left.pop(), functions, selector)
                    running += 1
                for key, _ in selector.select():
                    child: Child = key.data
                    said = os.read(key.fd, 65_536)
                    child.said += said
                    if not said:
                        selector.unregister(key.fd)
                        os.close(key.fd)
                        running -= 1
                        yield self._verdict(child)

    def _start(self, mutant: Mutant, functions: Mapping[str, Function], selector: selectors.BaseSelector) -> None:
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(reader)
            self.reporting = writer
            try:
                self._try_one(mutant, functions[mutant.function])
            except BaseException as error:
                self._say(status="error", by=f"{type(error).__name__}: {error}")
        os.close(writer)
        selector.register(reader, selectors.EVENT_READ, Child(mutant=mutant, pid=pid))

    def _verdict(self, child: Child) -> Verdict:
        _, status = os.waitpid(child.pid, 0)
        mutant = child.mutant
        if os.WIFSIGNALED(status):
            timed = os.WTERMSIG(status) == signal.SIGPROF
            told = {"status": "timeout" if timed else "killed", "by": f"signal {os.WTERMSIG(status)}"}
            told["by"] = child.said.decode() or told["by"]
        else:
            told = json.loads(child.said.decode().splitlines()[-1])
        verdict = Verdict(key=mutant.key, function=mutant.function, **told)
        if verdict.status in CAUGHT and verdict.by in self.items:
            for place in (mutant.module, f"{mutant.module}:{mutant.function}"):
                latest = self.killers.setdefault(place, [])
                if verdict.by in latest:
                    latest.remove(verdict.by)
                latest.insert(0, verdict.by)
        return verdict

    # In the child

    def _say(self, **told: str) -> NoReturn:
        os.write(self.reporting or 2, ("\n" + json.dumps(told)).encode())
        os._exit(0)

    def _try_one(self, mutant: Mutant, held: Function) -> NoReturn:
        quiet()
        limit_memory(int(self.config["memory_max_bytes"]))
        before, after = sources(mutant)
        change = change_of(before, after)
        try:
            put_in_place(mutant, after, held.function)
        except Exception as error:
            self._say(status="killed", by=f"import: {type(error).__name__}: {error}", change=change)
        order = [self.items[test] for test in self._order(mutant)]
        for item, following in zip_longest(order, order[1:]):
            seconds = self.config["time_factor"] * self.reach.seconds[item.nodeid] + self.config["time_more"]
            signal.setitimer(signal.ITIMER_PROF, seconds)
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        self._say(status="survived" if order or self.only_new else "untested", change=change)

    def _order(self, mutant: Mutant) -> list[str]:
        """Those that run its lines: the latest killers, then in turn those that run little else and much else."""
        lines = self.reach.lines.get(mutant.module, {})
        span = range(mutant.first_line, mutant.last_line + 1)
        numbers = {number for line in span for number in lines.get(str(line), [])}
        every = [self.reach.tests[number] for number in sorted(numbers)]
        reached = [
            test for test in every if self.reach.seconds.get(test, math.inf) <= min(self.seconds_max, SECONDS_MOST)
        ]
        of_function = self.killers.get(f"{mutant.module}:{mutant.function}", [])[:20]
        of_module = self.killers.get(mutant.module, [])[:20]
        first = [test for test in dict.fromkeys((*of_function, *of_module)) if test in set(reached)]
        narrow = sorted(set(reached) - set(first), key=lambda test: (self.reach.width[test], self.rank[test]))
        broad = sorted(narrow, key=lambda test: (self.reach.seconds[test] > BRISK_SECONDS, -self.reach.width[test]))
        rest = dict.fromkeys(test for pair in zip(narrow, broad, strict=True) for test in pair)
        seconds = 0.0
        chosen: list[str] = []
        for test in [*first, *rest]:
            seconds += self.reach.seconds[test]
            if chosen and seconds > self.seconds_all:
                continue
            chosen.append(test)
        return chosen

    # Between runs

    def _file(self, module: str) -> Path:
        return self.keep / f"{module}.json"

    def _remembered(self, module: str) -> dict[str, Verdict]:
        if not self._file(module).exists():
            return {}
        told = json.loads(self._file(module).read_text("utf-8"))
        return {one["key"]: Verdict(**one) for one in told}

    def _remember(self, module: str) -> None:
        self.keep.mkdir(parents=True, exist_ok=True)
        told = json.dumps([asdict(verdict) for verdict in self.verdicts[module]], indent=0)
        self._file(module).write_text(told, "utf-8")


def limit_memory(bytes_max: int) -> None:
    """Let a mutant that loops for ever run out of memory alone."""
    resource = importlib.import_module("resource")
    resource.setrlimit(resource.RLIMIT_AS, (bytes_max, bytes_max))


def explain(verdicts: Mapping[str, list[Verdict]]) -> list[str]:
    """Mark survivors that survivors.toml explains; returns what is explained there and no longer survives."""
    told = tomllib.loads((HERE / "survivors.toml").read_text("utf-8")).get("survivor", [])
    stale = []
    for entry in told:
        module = f"fencepost.core.{entry['module']}"
        if module not in verdicts:
            continue
        for change in entry["changes"]:
            found = [
                one
                for one in verdicts[module]
                if (one.function, one.change) == (entry["function"], change) and one.status in ("survived", "untested")
            ]
            for one in found:
                one.explained = entry["why"]
            if not found:
                stale.append(f"{entry['module']}.{entry['function']}: {change}")
    return stale


def line_of(module: str, verdicts: Iterable[Verdict]) -> str:
    """One line of the table: mutants that count, killed, survived, explained, rate in percent, left out."""
    every = list(verdicts)
    counted = [one for one in every if one.status not in LEFT_OUT]
    killed = sum(one.status in CAUGHT for one in counted)
    explained = sum(bool(one.explained) for one in counted)
    rate = 100 * killed / len(counted) if counted else 100.0
    left = len(counted) - killed
    name = module.removeprefix("fencepost.core.")
    return f"| {name} | {len(counted)} | {killed} | {left} | {explained} | {rate:.1f} | {len(every) - len(counted)} |"


def main() -> int:
    """Returns 0 if every survivor is explained and enough were killed, 1 if not, 2 if nothing could be tried."""
    config = tomllib.loads((HERE / "mutmut.toml").read_text("utf-8"))["mutmut"]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("modules", nargs="*", default=config["modules"], metavar="MODULE")
    parser.add_argument("--keep", type=Path, default=KEEP, help="folder of earlier verdicts")
    parser.add_argument("--children", type=int, default=config["children"])
    parser.add_argument("--tests", nargs="+", metavar="PATH", help="try what survived before on these tests alone")
    parser.add_argument("--seconds-max", type=float, default=math.inf, help="leave out slower tests")
    parser.add_argument("--seconds-all", type=float, default=math.inf, help="run so many seconds of tests a mutant")
    asked = parser.parse_args()
    try:
        installed = importlib.metadata.version("mutmut")
    except importlib.metadata.PackageNotFoundError:
        installed = "none"
    if installed != config["version"]:
        print(f"needs mutmut {config['version']}, found {installed}: pip install mutmut=={config['version']}")
        return 2
    os.chdir(ROOT)
    run = Run(config, modules_like(asked.modules), asked)
    options = ["-qq", "--no-header", "--no-summary", "-p", "no:xdist", "-p", "no:cacheprovider", "-s", "--tb=native"]
    left_out = [part for test in config["leave_out"] for part in ("--deselect", test)]
    print("| module | mutants | killed | survived | explained | killed % | left out |", flush=True)
    code = pytest.main([*options, *left_out, *(asked.tests or config["tests"])], plugins=[run])
    if code != pytest.ExitCode.OK or not run.verdicts:
        print(f"pytest ended with {code}")
        return 2
    return report(run.verdicts, float(config["rate_min"]))


def report(verdicts: Mapping[str, list[Verdict]], rate_min: float) -> int:
    """Print what was found; returns the exit code."""
    stale = explain(verdicts)
    print("\nwith explanations")
    for module, found in verdicts.items():
        print(line_of(module, found))
    every = [one for found in verdicts.values() for one in found]
    print(line_of("all", every))
    unexplained = 0
    for module, found in verdicts.items():
        for one in found:
            if one.status not in (*LEFT_OUT, *CAUGHT) and not one.explained:
                unexplained += 1
                print(f"{one.status} {module.removeprefix('fencepost.core.')}.{one.function}: {one.change or one.by}")
    for line in stale:
        print(f"explained but not surviving: {line}")
    counted = [one for one in every if one.status not in LEFT_OUT]
    rate = 100 * sum(one.status in CAUGHT for one in counted) / max(1, len(counted))
    return 1 if unexplained or rate < rate_min else 0


if __name__ == "__main__":
    raise SystemExit(main())
