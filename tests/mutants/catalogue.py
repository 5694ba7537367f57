"""The planted faults: named, plausible one-line mistakes, and the checks that have to notice each.

The faults stand in `catalogue/*.toml`, one file a layer. A fault is a replacement of text that occurs exactly once in
one file of `src/fencepost`; a text that is gone or stands twice is an error of the catalogue and is told as one, so
that no fault is left out in silence when the code moves on. The checks of a fault stand in the order in which they
are tried, cheapest first. In the files a check is

    "tests/unit/core/test_finish.py::test_x"            a test, a class or a file, as pytest names it
    { test = "tests/…::test_x", hangs_after_s = 20 }    the same; that it does not end by then is how it fails
    { sim = 200 }                                       that many seeds of the simulator
    { search = "two_orders" }                           the exhaustive search of that world
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Literal, NamedTuple, cast

FOLDER: Final = Path(__file__).with_name("catalogue")
PACKAGE: Final = Path("src", "fencepost")

Kind = Literal["test", "sim", "search"]
KINDS: Final[tuple[Kind, ...]] = ("test", "sim", "search")


class CatalogueError(Exception):
    """The catalogue does not fit the code, or is not one: says which fault, and what is wrong with it."""


class Check(NamedTuple):
    """One thing to try. `hangs_after_s` is the check's own limit, past which it has failed; None where a check that
    does not end says nothing."""

    kind: Kind
    argument: str
    hangs_after_s: float | None = None

    def __str__(self) -> str:
        if self.kind == "sim":
            return f"simulator, {self.argument} seeds"
        return self.argument if self.kind == "test" else f"search of {self.argument}"


class Mutant(NamedTuple):
    """A planted fault. `file` is relative to the package; `harm` is what a user would suffer."""

    name: str
    layer: str
    file: str
    before: str
    after: str
    harm: str
    checks: tuple[Check, ...]

    @property
    def path(self) -> Path:
        """Where the file stands in a tree."""
        return PACKAGE / self.file

    @property
    def module(self) -> str:
        """The module that the file is; its package's storage engine for one that is no module."""
        path = Path("fencepost", self.file)
        return ".".join(path.with_suffix("").parts if path.suffix == ".py" else path.parent.parts)


def load(folder: Path = FOLDER) -> list[Mutant]:
    """Every fault in the order of files and of their lines. Raises CatalogueError."""
    found: list[Mutant] = []
    for path in sorted(folder.glob("*.toml")):
        tables = tomllib.loads(path.read_text(encoding="utf-8")).get("mutant", [])
        found.extend(_mutant(path.stem, table) for table in tables)
    names = [mutant.name for mutant in found]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise CatalogueError(f"named twice: {', '.join(twice)}")
    return found


def mutated(mutant: Mutant, tree: Path) -> str:
    """The fault's file in `tree` as the fault leaves it. Raises CatalogueError unless it applies exactly once."""
    path = tree / mutant.path
    if not path.is_file():
        raise CatalogueError(f"{mutant.name}: there is no {mutant.path}")
    text = path.read_text(encoding="utf-8")
    count = text.count(mutant.before)
    if count != 1:
        raise CatalogueError(f"{mutant.name}: its text occurs {count} times in {mutant.path}, not once")
    return text.replace(mutant.before, mutant.after)


def _mutant(layer: str, table: Mapping[str, object]) -> Mutant:
    name = str(table.get("name", ""))
    wanted = {"name", "file", "before", "after", "harm", "checks"}
    if set(table) != wanted:
        raise CatalogueError(f"{layer}: {name or 'a fault'} has not exactly the keys {', '.join(sorted(wanted))}")
    checks = tuple(_check(name, each) for each in cast("Sequence[object]", table["checks"]))
    if not checks or not name:
        raise CatalogueError(f"{layer}: {name or 'a fault'} has no name or no check")
    file, before, after, harm = (str(table[key]) for key in ("file", "before", "after", "harm"))
    if before == after:
        raise CatalogueError(f"{layer}: {name} changes nothing")
    return Mutant(name, layer, file, before, after, harm, checks)


def _check(name: str, value: object) -> Check:
    if isinstance(value, str):
        return Check("test", value)
    table = cast("Mapping[str, object]", value if isinstance(value, dict) else {})
    for kind in KINDS:
        if kind in table and set(table) <= {kind, "hangs_after_s"}:
            limit = table.get("hangs_after_s")
            return Check(kind, str(table[kind]), None if limit is None else float(str(limit)))
    raise CatalogueError(f"{name}: {value!r} is no check")
