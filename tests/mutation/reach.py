"""Which test runs which line of the core: a mutant of a line need only be shown to tests that run it."""

from __future__ import annotations

import fnmatch
import hashlib
import importlib
import json
import os
import time
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import zip_longest
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
CORE = ROOT / "src" / "fencepost" / "core"


def path_of(module: str) -> Path:
    """The file of a module of the core."""
    plain = ROOT / "src" / Path(*module.split("."))
    return plain / "__init__.py" if plain.is_dir() else plain.with_suffix(".py")


def modules_like(patterns: Sequence[str]) -> list[str]:
    """The modules of the core that the patterns name, in the order of the patterns."""
    files = sorted(path.relative_to(CORE).with_suffix("") for path in CORE.rglob("*.py"))
    names = [".".join(path.parts).removesuffix("__init__").rstrip(".") for path in files]
    found: dict[str, None] = {}
    for pattern in patterns:
        matching = [n for n in names if n and (fnmatch.fnmatchcase(n, pattern) or f"{n}.*" == pattern)]
        if not matching:
            raise SystemExit(f"no module of fencepost.core is called {pattern}")
        found.update(dict.fromkeys(f"fencepost.core.{name}" for name in matching))
    return list(found)


def quiet() -> None:
    """Send what a child prints nowhere."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)


@dataclass(kw_only=True)
class Reach:
    """Which tests run which line of which module, and how many seconds each test takes, from one run of them all.

    `lines` is module -> line -> places of tests in `tests`, `width` the number of lines that a test runs. Tests that
    are `failing` without any mutant have no seconds and are shown none.
    """

    tests: list[str] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    lines: dict[str, dict[str, list[int]]] = field(default_factory=dict)
    width: dict[str, int] = field(default_factory=dict)
    failing: list[str] = field(default_factory=list)

    def add(self, other: Reach) -> None:
        """Take in what another file of tests reaches."""
        start = len(self.tests)
        self.tests += other.tests
        self.seconds |= other.seconds
        self.failing += other.failing
        for module, found in other.lines.items():
            mine = self.lines.setdefault(module, {})
            for line, places in found.items():
                mine.setdefault(line, []).extend(start + place for place in places)
                for place in places:
                    self.width[other.tests[place]] = self.width.get(other.tests[place], 0) + 1


def reach_of_all(items: Mapping[str, pytest.Item], keep: Path, failures: list[str]) -> Reach:
    """Of each file of tests from an earlier run if nothing it rests on has changed, else by running it once.

    `failures` is where a hook of pytest names tests that failed.
    """
    support = (ROOT / "tests" / "support").rglob("*.py")
    ground = _digest([*CORE.rglob("*.py"), *support, ROOT / "tests" / "conftest.py"])
    files: dict[Path, list[str]] = {}
    for name, item in items.items():
        files.setdefault(item.path, []).append(name)
    whole = Reach()
    for path, names in files.items():
        kept = keep / "reach" / f"{_digest([path])[:12]}-{ground[:12]}-{len(names)}.json"
        if kept.exists():
            part = Reach(**json.loads(kept.read_text("utf-8")))
        else:
            part = _reach_of([items[name] for name in names], failures)
            if not part.failing:
                kept.parent.mkdir(parents=True, exist_ok=True)
                kept.write_text(json.dumps(asdict(part)), "utf-8")
        whole.add(part)
    for name in whole.failing:
        print(f"left out, since it fails without any mutant: {name}")
    return whole


def _digest(paths: Iterable[Path]) -> str:
    content = b"".join(hashlib.sha256(path.read_bytes()).digest() for path in sorted(paths))
    return hashlib.sha256(content).hexdigest()


def _reach_of(items: Sequence[pytest.Item], failures: list[str]) -> Reach:
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        with os.fdopen(writer, "w") as out:
            try:
                json.dump(asdict(_reach_in_child(items, failures)), out)
            except BaseException as error:
                json.dump({"failed": repr(error)}, out)
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as lines:
        told = json.loads(lines.read() or '{"failed": "the child said nothing"}')
    os.waitpid(pid, 0)
    if "failed" in told:
        raise pytest.UsageError(f"{items[0].nodeid} and those beside it, without any mutant: {told['failed']}")
    return Reach(**told)


def _reach_in_child(items: Sequence[pytest.Item], failures: list[str]) -> Reach:
    quiet()
    coverage = importlib.import_module("coverage")
    measured = coverage.Coverage(data_file=None, source=[str(CORE)], config_file=False, messages=False)
    result = Reach(tests=[item.nodeid for item in items])
    measured.start()
    for place, (item, following) in enumerate(zip_longest(items, items[1:])):
        measured.switch_context(str(place))
        start = time.process_time()
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if item.nodeid in failures:
            result.failing.append(item.nodeid)
        else:
            result.seconds[item.nodeid] = time.process_time() - start
    measured.stop()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a file of tests may run no line of the core
        data = measured.get_data()
    for module in modules_like(["*"]):
        lines = data.contexts_by_lineno(str(path_of(module)))
        result.lines[module] = {str(line): [int(test) for test in tests if test] for line, tests in lines.items()}
    return result
