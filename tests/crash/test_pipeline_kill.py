"""W6, X10: a pipeline of two hundred paid steps, killed thirty times at random moments, does and pays for each once.

The example itself runs: its server on loopback counts what is asked of it, its plan names the callable. Killed are the
worker, the child process of the callable, its keeper, or several at once; a worker is started again by the command that
a person would repeat.
"""

from __future__ import annotations

import importlib.util
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fencepost.app import App
from tests.crash.runs import Place, check_journal, processes_of

EXAMPLE = Path(__file__).parents[2] / "examples" / "pipeline"
PAGES = 100
KINDS = ("worker", "worker", "child", "child", "worker and child", "keeper")
PATIENCE_S = 60.0


@pytest.fixture
def outside() -> Iterator[Any]:
    """The example's server, and the module that it is."""
    sys.path.insert(0, str(EXAMPLE))
    spec = importlib.util.spec_from_file_location("pipeline_server", EXAMPLE / "server.py")
    assert spec is not None and spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    site = module.Site()
    thread = threading.Thread(target=site.server.serve_forever, args=(0.05,))
    thread.start()
    yield site, module
    site.server.shutdown()
    thread.join()
    site.server.server_close()
    sys.path.remove(str(EXAMPLE))


def laid_out(folder: Path, url: str) -> Place:
    target = folder / "examples" / "pipeline"
    shutil.copytree(EXAMPLE, target, ignore=shutil.ignore_patterns("__pycache__"))
    text = (EXAMPLE / "plan.toml").read_text(encoding="utf-8")
    assert f"pages = {PAGES}" in text
    place = Place(folder)
    place.write_plan(text.replace("http://127.0.0.1:8765", url).replace('"100ms"', '"1ms"'))
    return place


def processes(place: Place) -> dict[str, list[int]]:
    """Child processes of callables, and their keepers."""
    found: dict[str, list[int]] = {"child": [], "keeper": []}
    for pid in processes_of(place.folder):
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            parent = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, IndexError, ValueError):
            continue
        if any(word.endswith(b"/bootstrap.py") for word in words):
            found["child"].append(pid)
            found["keeper"].append(parent)
    return found


def kill(pids: list[int]) -> bool:
    killed = False
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
            killed = True
        except ProcessLookupError:
            continue
    return killed


class Gate:
    """Lets so many requests of the server through, so that no machine is too fast to be killed often enough."""

    def __init__(self, site: Any) -> None:
        self.most = 0
        self._log = site.log
        self._moved = threading.Condition()
        site.read = self._gated(site.read)
        site.summarize = self._gated(site.summarize)

    def open(self, most: int) -> None:
        with self._moved:
            self.most = most
            self._moved.notify_all()

    def _gated(self, function: Any) -> Any:
        def answered(*asked: Any) -> Any:
            with self._moved:
                self._moved.wait_for(lambda: len(self._log) < self.most)
                return function(*asked)

        return answered


class Killer:
    """Runs the plan and kills what runs it, until it has killed often enough."""

    def __init__(self, place: Place, site: Any, chance: random.Random) -> None:
        self.place = place
        self.site = site
        self.chance = chance
        self.gate = Gate(site)
        self.kills: Counter[str] = Counter()
        self.worker: subprocess.Popen[bytes] | None = None

    def run(self, kills: int) -> None:
        while sum(self.kills.values()) < kills:
            worker = self.worker = self.worker or self.place.start("run", "plan.toml", "--json")
            # So few requests between two kills that the last one comes before the last step.
            requests = len(self.site.log) + self.chance.randint(1, 270 // kills)
            self.gate.open(requests)
            self._wait(worker, requests)
            time.sleep(self.chance.uniform(0, 0.03))
            kind = self.chance.choice(KINDS)
            found = processes(self.place)
            victims = [pid for name in ("child", "keeper") if name in kind for pid in found[name]]
            if "worker" in kind:
                victims.insert(self.chance.randint(0, len(victims)), worker.pid)
            if kill(victims):
                self.kills[kind] += 1
            if "worker" in kind:
                worker.communicate(timeout=60)
                self.worker = None
        self.gate.open(sys.maxsize)
        if self.worker is not None:
            self.worker.communicate(timeout=PATIENCE_S)
            self.worker = None

    def _wait(self, worker: subprocess.Popen[bytes], requests: int) -> None:
        until = time.monotonic() + PATIENCE_S
        while len(self.site.log) < requests:
            assert worker.poll() is None, f"it ended by itself: {worker.communicate()}"
            assert time.monotonic() < until, "it does not go on"
            time.sleep(0.002)


def recorded_steps(place: Place) -> list[str]:
    """The names of all steps that are recorded, from the last payload to the first."""
    with place.look() as look:
        (order,) = look.orders(look.plans()[0].plan)
    names: list[str] = []
    app = App(place.folder / ".fencepost", scope="default", environment=place.environment())
    try:
        digest = order.checkpoints["steps/1"].payload
        while digest is not None:
            payload = json.loads(app.artifacts.read(digest, 16 * 2**20))
            names += [step["name"] for step in payload["steps"]]
            digest = payload["base"]
    finally:
        app.kernel.wakeups.close()
        app.kernel.journal.close()
    return names


@pytest.mark.slow
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize(
    ("seed", "kills"), [(20_261_130, 30), *(pytest.param(seed, 45, marks=pytest.mark.nightly) for seed in range(10))]
)
def test_w6_each_step_is_done_and_paid_once_however_often_it_is_killed(
    tmp_path: Path, outside: Any, seed: int, kills: int
) -> None:
    site, module = outside
    place = laid_out(tmp_path, site.url)
    killer = Killer(place, site, random.Random(seed))
    killer.run(kills)
    document = place.document("run", "plan.toml")
    (order,) = document["orders"]
    assert (document["outcome"], order["state"]) == ("done", "applied")
    assert sum(killer.kills.values()) >= kills

    # Done: every step is recorded once, and was repeated only by a kill that came before its record.
    numbers = range(1, PAGES + 1)
    names = [name for number in numbers for name in (f"read page {number}", f"summarize page {number}")]
    assert sorted(recorded_steps(place)) == sorted(names)
    asked = Counter((what, which) for what, which, _ in site.log)
    wanted = {("page", f"{number}") for number in numbers} | {
        ("summary", f"{order['id']}/{number}") for number in numbers
    }
    assert set(asked) == wanted
    assert 2 * PAGES <= len(site.log) <= 2 * PAGES + kills

    # Paid: the model billed every key once, and the accounts hold every bill once.
    assert Counter(which for what, which, billed in site.log if billed) == {
        key: 1 for what, key in wanted if what == "summary"
    }
    bills = [module.answer(f"{order['id']}/{number}", module.page(number)) for number in numbers]
    charged = order["charged"]
    assert charged["tokens_input"] == sum(bill["tokens_input"] for bill in bills)
    assert charged["tokens_output"] == sum(bill["tokens_output"] for bill in bills)
    assert charged["money_micros"] == {"USD": sum(round(float(bill["price"]) * 1_000_000) for bill in bills)}

    # Right: the report is the one that an undisturbed run writes.
    place.document("order", "files", "digest", "--to", "out")
    lines = [
        f"# {PAGES} pages",
        "",
        *(f"{number}. {bill['summary']}" for number, bill in zip(numbers, bills, strict=True)),
        "",
    ]
    assert (tmp_path / "out" / "report.md").read_text(encoding="utf-8") == "\n".join(lines)
    check_journal(place)
    assert processes_of(tmp_path) == []
