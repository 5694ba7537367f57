"""Which states the core can write at all, read from its source.

Every state of every machine is written through a few doors: the values that evolve creates or changes, and behind them
the records that deciders make. `written` walks from each door back to the texts that can come through it: literals,
conditions, constants, elements of tuples, arguments of every caller, and fields of every record that is made anywhere
in `core`. What it cannot follow is not taken for harmless: it raises `CannotTell`, which names the line.

The answer is an upper bound. A state that is not in it is written by nobody, so that no row leads to it, and none that
begins there is ever taken.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

import fencepost.core
from fencepost.core.machines import MACHINES
from fencepost.testing.search.source import Function, Source, Where, assigned, keyword_of, last_name, parameters

CORE = Path(fencepost.core.__file__).parent
"""The folder that is read: the core of this very process."""
_KINDS: Mapping[str, str] = {
    "OrderState": "work_order",
    "AttemptState": "attempt",
    "HoldState": "budget_hold",
    "ClockState": "clock_domain",
}
_SHOWN = frozenset({"Projection"})
"""What else takes a `state` by name: it only tells of one."""
_EFFECT_FLAGS = ("effect_open", "effect_applied")


class CannotTell(Exception):
    """A state is computed in a way that this analysis does not follow: write it plainly, or teach it the way."""


class _Resolver:
    """Follows expressions back to the texts that they can be."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._open: set[tuple[str, str]] = set()  # parameters and names that are being followed

    def texts(self, where: Where, node: ast.expr) -> dict[str, str]:
        """Every text that the expression can be -> the place where it is written."""
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            return {node.value: where.site()}
        if isinstance(node, ast.IfExp):
            return self.texts(where, node.body) | self.texts(where, node.orelse)
        if isinstance(node, ast.BoolOp):
            return self._all(where, node.values)
        if isinstance(node, ast.Tuple | ast.List | ast.Set):
            return self._all(where, node.elts)
        if isinstance(node, ast.Starred):
            return self.texts(where, node.value)
        if isinstance(node, ast.Dict):
            return self._all(where, node.values)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "require":
            return self.texts(where, node.args[1])  # Machine.require returns its second argument
        if isinstance(node, ast.Subscript):
            return self._element(where, node)
        if isinstance(node, ast.Attribute):
            return self._field(where, node)
        if isinstance(node, ast.Name):
            return self._name(where, node)
        raise self._lost(where, node)

    def _all(self, where: Where, nodes: list[ast.expr]) -> dict[str, str]:
        found: dict[str, str] = {}
        for node in nodes:
            found |= self.texts(where, node)
        return found

    def _element(self, where: Where, node: ast.Subscript) -> dict[str, str]:
        """One element: of a map of tuples, those in its place; of anything else, all that there are."""
        first = _first_state(node)
        if first:
            return {first: where.site()}
        index, inner = node.slice, node.value
        if isinstance(inner, ast.Subscript) and isinstance(inner.value, ast.Name) and isinstance(index, ast.Constant):
            tables = [each for each in assigned(where.module.tree, inner.value.id) if isinstance(each, ast.Dict)]
            rows = [row for table in tables for row in table.values]
            if rows and all(isinstance(row, ast.Tuple) for row in rows):
                place = int(str(index.value))
                return self._all(where, [row.elts[place] for row in rows if isinstance(row, ast.Tuple)])
        return self.texts(where, inner)

    def _lost(self, where: Where, node: ast.AST) -> CannotTell:
        line = getattr(node, "lineno", 0)
        return CannotTell(f"core/{where.module.path}, line {line}: cannot tell which states {ast.unparse(node)!r} is")

    def _field(self, where: Where, node: ast.Attribute) -> dict[str, str]:
        """A field of a record that the function was handed: whatever the makers of such records put there."""
        if not isinstance(node.value, ast.Name):
            raise self._lost(where, node)
        kind = kind_of(where.function, node.value.id)
        if kind in _KINDS and node.attr == "state":
            return {}  # the state that it has already
        makers = [(at, call) for at, call in self._source.all_calls if last_name(call.func) == kind]
        if not kind or not makers:
            raise self._lost(where, node)
        found: dict[str, str] = {}
        for at, call in makers:
            value = keyword_of(call, node.attr)
            if value is None:
                raise self._lost(at, call)
            if not self._is_open(f"{kind}.{node.attr}", at.site()):
                found |= self._guarded(f"{kind}.{node.attr}", at.site(), at, value)
        return found

    def _is_open(self, what: str, where: str) -> bool:
        return (what, where) in self._open

    def _guarded(self, what: str, name: str, where: Where, node: ast.expr) -> dict[str, str]:
        """Follow, unless it is being followed already: what goes round in a ring adds nothing."""
        mark = (what, name)
        self._open.add(mark)
        try:
            return self.texts(where, node)
        finally:
            self._open.discard(mark)

    def _name(self, where: Where, node: ast.Name) -> dict[str, str]:
        function = where.function
        what = f"{where.site()}.{node.id}"
        found: dict[str, str] = {}
        values = assigned(where.module.tree if function is None else function, node.id)
        known = bool(values)
        for value in values:
            if not self._is_open(what, ast.dump(value)):
                found |= self._guarded(what, ast.dump(value), where, value)
        if function is not None and node.id in parameters(function):
            return found | self._argument(where, function, node.id)
        if known:
            return found
        if function is not None:
            return self._name(Where(where.module, None), node)
        imported = where.module.imports.get(node.id, "")
        home = self._source.modules.get(imported.rpartition(".")[0])
        if home is None:
            raise self._lost(where, node)
        return self._name(Where(home, None), ast.Name(imported.rpartition(".")[2]))

    def _argument(self, where: Where, function: Function, name: str) -> dict[str, str]:
        full = f"{where.module.name}.{function.name}"
        found: dict[str, str] = {}
        callers = self._source.calls.get(full, [])
        if not callers:
            raise CannotTell(f"core/{where.module.path}: {function.name} moves to {name!r} and nobody in core calls it")
        self._only_called(full)
        for at, call in callers:
            for value in _passed(call, function, name):
                mark = f"{at.site()}:{ast.dump(value)}"
                if not self._is_open(f"{full}.{name}", mark):
                    found |= self._guarded(f"{full}.{name}", mark, at, value)
        return found

    def _only_called(self, full: str) -> None:
        """A function that is handed on as a value may be called by anybody, with anything."""
        if full in self._source.handed_on:
            raise CannotTell(f"core/{self._source.handed_on[full]}: {full} is handed on, not called")


class Written(NamedTuple):
    """Machine -> state -> one place that writes it: into a subject that is born, or into one that there is."""

    births: Mapping[str, Mapping[str, str]]
    moves: Mapping[str, Mapping[str, str]]

    def at(self, machine: str, state: str) -> str:
        """One place that writes the state, "" if nothing does."""
        return self.moves[machine].get(state) or self.births[machine].get(state, "")


def written(folder: Path | None = None) -> Written:
    """Every state that something in the core writes. Raises CannotTell."""
    return _written(CORE if folder is None else folder)


@cache
def _source(folder: Path) -> Source:
    return Source(folder)


@cache
def _written(folder: Path) -> Written:
    source = _source(folder)
    resolver = _Resolver(source)
    births: dict[str, dict[str, str]] = {name: {} for name in MACHINES}
    moves: dict[str, dict[str, str]] = {name: {} for name in MACHINES}
    for where, call in source.all_calls:
        door = _door(where, call)
        if door is not None:
            machine, value = door
            into = births if last_name(call.func) in _KINDS else moves
            into[machine] |= resolver.texts(where, value)
    for where, node in source.parts:
        _require_no_back_door(where, node)
    for found in (births, moves):
        for machine, states in found.items():
            strange = sorted(states.keys() - MACHINES[machine].rows.keys())
            if strange:
                raise CannotTell(f"core/{states[strange[0]]} writes {strange[0]!r}, which is no state of {machine}")
    return Written(births, moves)


def recorded(kind: str, field: str, folder: Path | None = None) -> frozenset[str]:
    """Every text that the makers of a record in the core put into one of its fields. Raises CannotTell."""
    source = _source(CORE if folder is None else folder)
    resolver = _Resolver(source)
    found: set[str] = set()
    for where, call in source.all_calls:
        value = keyword_of(call, field)
        if last_name(call.func) == kind and value is not None:
            found |= resolver.texts(where, value).keys()
    return frozenset(found)


def effect_writers(folder: Path | None = None) -> list[str]:
    """Places that say that an effect is open or applied: nobody does, as long as there are none."""
    source = _source(CORE if folder is None else folder)
    asks = {"machines.order_guard"}
    return [
        f"{where.module.path}, line {call.lineno}"
        for where, call in source.all_calls
        if any(keyword.arg in _EFFECT_FLAGS for keyword in call.keywords)
        and source.name_of(where, call.func) not in asks
    ]


def _door(where: Where, call: ast.Call) -> tuple[str, ast.expr] | None:
    """(machine, expression) where a call gives a value of some machine a state, None where it gives none."""
    state = keyword_of(call, "state")
    if state is None:
        return None
    name = last_name(call.func)
    if name in _KINDS:
        return _KINDS[name], state
    if name in _SHOWN:
        return None
    if name == "change" and len(call.args) > 1 and isinstance(call.args[1], ast.Name):
        kind = kind_of(where.function, call.args[1].id)
        if kind in _KINDS:
            return _KINDS[kind], state
    raise CannotTell(f"core/{where.module.path}, line {call.lineno}: whose state does {ast.unparse(call)!r} set?")


def _require_no_back_door(where: Where, node: ast.AST) -> None:
    """States are set by name only: not by a key of a map that is spread, nor by writing to an attribute."""
    stores = isinstance(node, ast.Subscript | ast.Attribute) and isinstance(node.ctx, ast.Store | ast.Del)
    if isinstance(node, ast.Attribute) and stores and node.attr == "state":
        raise CannotTell(f"core/{where.module.path}, line {node.lineno}: a state is written to")
    if isinstance(node, ast.Subscript) and stores:
        key = node.slice
        if isinstance(key, ast.Constant) and key.value in ("state", "target", *_EFFECT_FLAGS):
            raise CannotTell(f"core/{where.module.path}, line {node.lineno}: a state is put into a map by name")
    if isinstance(node, ast.Dict) and where.module.name.startswith("evolve"):
        keys = [key.value for key in node.keys if isinstance(key, ast.Constant)]
        if {"state", *_EFFECT_FLAGS}.intersection(keys):
            raise CannotTell(f"core/{where.module.path}, line {node.lineno}: a state is put into a map by name")
    if not isinstance(node, ast.Call) or last_name(node.func) not in ("change", "replace", *_KINDS):
        return
    if last_name(node.func) in _KINDS and keyword_of(node, "state") is None:
        raise CannotTell(f"core/{where.module.path}, line {node.lineno}: something is born without naming its state")
    if any(keyword.arg is None and not isinstance(keyword.value, ast.Name) for keyword in node.keywords):
        raise CannotTell(f"core/{where.module.path}, line {node.lineno}: a map is spread that has no name")
    if last_name(node.func) == "replace" and keyword_of(node, "target") is not None:
        raise CannotTell(f"core/{where.module.path}, line {node.lineno}: a record's target is replaced")


def kind_of(function: Function | None, name: str) -> str:
    """Name of the class that a parameter or a local is of, by its annotation or by what it was asked for as."""
    if function is None:
        return ""
    arguments = function.args
    for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
        if argument.arg == name and argument.annotation is not None:
            return last_name(argument.annotation)
    for value in assigned(function, name):
        if isinstance(value, ast.Call) and last_name(value.func) in ("need", "find"):
            asked = last_name(value.args[-1])
            return "ClockState" if asked == "CLOCK" else asked
    return ""


def _passed(call: ast.Call, function: Function, name: str) -> list[ast.expr]:
    """What a call hands in for a parameter; its first value where it hands in nothing."""
    by_name = keyword_of(call, name)
    if by_name is not None:
        return [by_name]
    arguments = function.args
    positional = [each.arg for each in (*arguments.posonlyargs, *arguments.args)]
    if arguments.vararg is not None and arguments.vararg.arg == name:
        return call.args[len(positional) :]
    starred = any(isinstance(each, ast.Starred) for each in call.args)
    if name in positional and positional.index(name) < len(call.args) and not starred:
        return [call.args[positional.index(name)]]
    defaults = dict(zip(positional[len(positional) - len(arguments.defaults) :], arguments.defaults, strict=True))
    spread = any(keyword.arg is None for keyword in call.keywords)
    if name in defaults and not starred and not spread:
        return [defaults[name]]
    raise CannotTell(f"line {call.lineno}: cannot tell what {ast.unparse(call)!r} hands in as {name!r}")


def _first_state(node: ast.Subscript) -> str:
    """`MACHINE.first[0]`, "" for anything else."""
    value, index = node.value, node.slice
    if isinstance(value, ast.Attribute) and value.attr == "first" and isinstance(index, ast.Constant):
        name = last_name(value.value).lower()
        if name in MACHINES:
            return MACHINES[name].first[int(str(index.value))]
    return ""
