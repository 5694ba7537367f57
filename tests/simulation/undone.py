"""Runs a kept failure with its mending undone: `python -m tests.simulation.undone FAILURE`, exit status 1 if it fails.

The mending is undone as a module is imported, by a change of its text, so that no file is written and nothing else of
this process knows of it. A failure stands for its scenario under several orders of steps (`seeds_of`): one seed alone
would test something else as soon as anybody adds a step.
"""

from __future__ import annotations

import importlib
import sys
import tomllib
from collections.abc import Iterator, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import find_spec, spec_from_file_location
from pathlib import Path
from types import CodeType, ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

if TYPE_CHECKING:
    from fencepost.testing.simulator.authors import Parts

FAILURES = Path(__file__).parent / "failures"
MENDINGS = FAILURES / "mendings.toml"
PACKAGE = Path(__file__).parents[2] / "src" / "fencepost"
AUTHORS = Path(__file__).parents[2] / "examples" / "authors"
NEXT_ORDER = 1_000_003  # between the seeds of one scenario


class Change(NamedTuple):
    """A text of a file that stands in it once, and what stood there before the mending."""

    file: str
    mended: str
    undone: str

    @property
    def module(self) -> str:
        return ".".join(("fencepost", *Path(self.file).with_suffix("").parts))


class Mending(NamedTuple):
    """What a kept failure is for. `orders` of steps are tried until one fails in the way that it says.

    `executor` is that of an author (module and name, of `examples/authors`) with which it was found, "" for the
    simulator's own.
    """

    failure: str
    orders: int
    changes: tuple[Change, ...]
    executor: str


def load() -> list[Mending]:
    """Every mending, in the order of the file."""
    tables: Sequence[dict[str, Any]] = tomllib.loads(MENDINGS.read_text("utf-8"))["mending"]
    return [
        Mending(
            table["failure"],
            table["orders"],
            tuple(Change(**change) for change in table["changes"]),
            table.get("executor", ""),
        )
        for table in tables
    ]


def parts_of(mending: Mending) -> Parts:
    """What an author brings to the world in which it failed. Imports the simulator, and no earlier."""
    from fencepost.testing.simulator.authors import NO_PARTS, Parts

    if not mending.executor:
        return NO_PARTS
    if str(AUTHORS) not in sys.path:
        sys.path.insert(0, str(AUTHORS))
    module, _, name = mending.executor.partition(":")
    return Parts(executor=getattr(importlib.import_module(module), name))


def undone(text: str, changes: Sequence[Change]) -> str:
    """The text of one file without its mending. Raises ValueError unless each change applies exactly once."""
    for change in changes:
        count = text.count(change.mended)
        if count != 1:
            raise ValueError(f"the text of a mending stands {count} times in {change.file}, not once: {change.mended}")
        text = text.replace(change.mended, change.undone)
    return text


def seeds_of(seed: int, orders: int) -> Iterator[int]:
    """The seed of a kept scenario, and those of other orders of the same."""
    return (seed + number * NEXT_ORDER for number in range(orders))


class _Loader(SourceFileLoader):
    def __init__(self, name: str, path: str, changes: Sequence[Change]) -> None:
        super().__init__(name, path)
        self._changes = changes

    def get_code(self, fullname: str) -> CodeType:
        text = undone(Path(self.path).read_text("utf-8"), self._changes)
        return compile(text, self.path, "exec", dont_inherit=True)


class _Finder(MetaPathFinder):
    def __init__(self, changes: Sequence[Change]) -> None:
        self._changes = changes
        self.loaded: set[str] = set()

    def find_spec(self, fullname: str, path: object, target: ModuleType | None = None) -> ModuleSpec | None:
        mine = [change for change in self._changes if change.module == fullname]
        if not mine:
            return None
        self.loaded.add(fullname)
        place = str(PACKAGE / mine[0].file)
        return spec_from_file_location(fullname, place, loader=_Loader(fullname, place, mine))


def main(name: str) -> int:
    mending = next(each for each in load() if each.failure == name)
    finder = _Finder(mending.changes)
    sys.meta_path.insert(0, finder)
    if find_spec("fencepost") is None or any(change.module in sys.modules for change in mending.changes):
        raise ImportError("a module of the mending was there before its change")
    from fencepost.testing.simulator.shrink import Failure, run, signature

    failure = msgspec.json.decode((FAILURES / f"{name}.json").read_bytes(), type=Failure)
    others: list[str] = []
    parts = parts_of(mending)
    for number, seed in enumerate(seeds_of(failure.scenario.seed, mending.orders), 1):
        problem = run(msgspec.structs.replace(failure.scenario, seed=seed), parts=parts).problem
        if signature(problem) == signature(failure.problem):
            print(f"order {number}: {problem.splitlines()[0]}")
            return 1
        if problem:
            others.append(problem.splitlines()[0])
    missing = {change.module for change in mending.changes} - finder.loaded
    print(f"{mending.orders} orders, and none fails as it did; other problems: {others[:3]}; not loaded: {missing}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
