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
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

import fencepost.core
from fencepost.core.machines import MACHINES

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
_Function = ast.FunctionDef | ast.AsyncFunctionDef


class CannotTell(Exception):
    """A state is computed in a way that this analysis does not follow: write it plainly, or teach it the way."""


class _Module(NamedTuple):
    name: str  # below core, as "decide.ending"
    path: str
    tree: ast.Module
    imports: Mapping[str, str]  # local name -> full name below core


class _Where(NamedTuple):
    """The function that an expression stands in; None at the level of its module."""

    module: _Module
    function: _Function | None

    def site(self) -> str:
        return f"{self.module.path}:{self.function.name if self.function else 'module'}"


class _Source:
    """The parsed core, and who calls what in it."""

    def __init__(self, folder: Path) -> None:
        self.modules = {module.name: module for module in map(_parsed(folder), sorted(folder.rglob("*.py")))}
        self.functions: dict[str, _Where] = {}
        self.calls: dict[str, list[tuple[_Where, ast.Call]]] = {}
        self.all_calls: list[tuple[_Where, ast.Call]] = []
        self.parts: list[tuple[_Where, ast.AST]] = []
        for module in self.modules.values():
            for where, node in _walk(module):
                self.parts.append((where, node))
                if isinstance(node, ast.Call):
                    self.all_calls.append((where, node))
                    self.calls.setdefault(self.name_of(where, node.func), []).append((where, node))
            for node in module.tree.body:
                if isinstance(node, _Function):
                    self.functions[f"{module.name}.{node.name}"] = _Where(module, node)
        self.handed_on = dict(self._handed_on())

    def _handed_on(self) -> Iterator[tuple[str, str]]:
        """Functions whose name stands anywhere but where it is called -> one such place."""
        called = {id(call.func) for _, call in self.all_calls}
        for where, node in self.parts:
            if not isinstance(node, ast.Name | ast.Attribute) or id(node) in called or isinstance(node.ctx, ast.Store):
                continue
            if isinstance(node, ast.Name) and node.id in _locals(where.function):
                continue
            name = self.name_of(where, node)
            if name in self.functions:
                yield name, f"{where.module.path}, line {node.lineno}"

    def name_of(self, where: _Where, node: ast.expr) -> str:
        """The full name below core that an expression means, "" where it means none."""
        if isinstance(node, ast.Name):
            known = where.module.imports.get(node.id)
            return known if known is not None else f"{where.module.name}.{node.id}"
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            known = where.module.imports.get(node.value.id)
            return f"{known}.{node.attr}" if known is not None else f"?.{node.attr}"
        return f"?.{node.attr}" if isinstance(node, ast.Attribute) else ""


class _Resolver:
    """Follows expressions back to the texts that they can be."""

    def __init__(self, source: _Source) -> None:
        self._source = source
        self._open: set[tuple[str, str]] = set()  # parameters and names that are being followed

    def texts(self, where: _Where, node: ast.expr) -> dict[str, str]:
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

    def _all(self, where: _Where, nodes: list[ast.expr]) -> dict[str, str]:
        found: dict[str, str] = {}
        for node in nodes:
            found |= self.texts(where, node)
        return found

    def _element(self, where: _Where, node: ast.Subscript) -> dict[str, str]:
        """One element: of a map of tuples, those in its place; of anything else, all that there are."""
        first = _first_state(node)
        if first:
            return {first: where.site()}
        index, inner = node.slice, node.value
        if isinstance(inner, ast.Subscript) and isinstance(inner.value, ast.Name) and isinstance(index, ast.Constant):
            tables = [each for each in _assigned(where.module.tree, inner.value.id) if isinstance(each, ast.Dict)]
            rows = [row for table in tables for row in table.values]
            if rows and all(isinstance(row, ast.Tuple) for row in rows):
                place = int(str(index.value))
                return self._all(where, [row.elts[place] for row in rows if isinstance(row, ast.Tuple)])
        return self.texts(where, inner)

    def _lost(self, where: _Where, node: ast.AST) -> CannotTell:
        line = getattr(node, "lineno", 0)
        return CannotTell(f"core/{where.module.path}, line {line}: cannot tell which states {ast.unparse(node)!r} is")

    def _field(self, where: _Where, node: ast.Attribute) -> dict[str, str]:
        """A field of a record that the function was handed: whatever the makers of such records put there."""
        if not isinstance(node.value, ast.Name):
            raise self._lost(where, node)
        kind = kind_of(where.function, node.value.id)
        if kind in _KINDS and node.attr == "state":
            return {}  # the state that it has already
        makers = [(at, call) for at, call in self._source.all_calls if _last(call.func) == kind]
        if not kind or not makers:
            raise self._lost(where, node)
        found: dict[str, str] = {}
        for at, call in makers:
            value = _keyword(call, node.attr)
            if value is None:
                raise self._lost(at, call)
            if not self._is_open(f"{kind}.{node.attr}", at.site()):
                found |= self._guarded(f"{kind}.{node.attr}", at.site(), at, value)
        return found

    def _is_open(self, what: str, where: str) -> bool:
        return (what, where) in self._open

    def _guarded(self, what: str, name: str, where: _Where, node: ast.expr) -> dict[str, str]:
        """Follow, unless it is being followed already: what goes round in a ring adds nothing."""
        mark = (what, name)
        self._open.add(mark)
        try:
            return self.texts(where, node)
        finally:
            self._open.discard(mark)

    def _name(self, where: _Where, node: ast.Name) -> dict[str, str]:
        function = where.function
        what = f"{where.site()}.{node.id}"
        found: dict[str, str] = {}
        values = _assigned(where.module.tree if function is None else function, node.id)
        known = bool(values)
        for value in values:
            if not self._is_open(what, ast.dump(value)):
                found |= self._guarded(what, ast.dump(value), where, value)
        if function is not None and node.id in _parameters(function):
            return found | self._argument(where, function, node.id)
        if known:
            return found
        if function is not None:
            return self._name(_Where(where.module, None), node)
        imported = where.module.imports.get(node.id, "")
        home = self._source.modules.get(imported.rpartition(".")[0])
        if home is None:
            raise self._lost(where, node)
        return self._name(_Where(home, None), ast.Name(imported.rpartition(".")[2]))

    def _argument(self, where: _Where, function: _Function, name: str) -> dict[str, str]:
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
def _source(folder: Path) -> _Source:
    return _Source(folder)


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
            into = births if _last(call.func) in _KINDS else moves
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
        value = _keyword(call, field)
        if _last(call.func) == kind and value is not None:
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


def _door(where: _Where, call: ast.Call) -> tuple[str, ast.expr] | None:
    """(machine, expression) where a call gives a value of some machine a state, None where it gives none."""
    state = _keyword(call, "state")
    if state is None:
        return None
    name = _last(call.func)
    if name in _KINDS:
        return _KINDS[name], state
    if name in _SHOWN:
        return None
    if name == "change" and len(call.args) > 1 and isinstance(call.args[1], ast.Name):
        kind = kind_of(where.function, call.args[1].id)
        if kind in _KINDS:
            return _KINDS[kind], state
    raise CannotTell(f"core/{where.module.path}, line {call.lineno}: whose state does {ast.unparse(call)!r} set?")


def _require_no_back_door(where: _Where, node: ast.AST) -> None:
    """States are set by name only: not by a key of a map that is spread, nor by writing to an attribute."""
    stores = isinstance(node, ast.Subscript | ast.Attribute) and isinstance(node.ctx, ast.Store | ast.Del)
    if isinstance(node, ast.Attribute) and stores and node.attr == "state":
        raise CannotTell(f"core/{where.module.path}, line {node.lineno}: a state is written to")
    if isinstance(node, ast.Subscript) and stores:
        key = node.slice
        if isinstance(key, ast.Constant) and key.value in ("state", "target", *_EFFECT_FLAGS):
            raise CannotTell(f"core/{where.module.path}, line {node.lineno}: a state is put into a map by name")
    if not isinstance(node, ast.Call) or _last(node.func) not in ("change", "replace", *_KINDS):
        return
    if any(keyword.arg is None and not isinstance(keyword.value, ast.Name) for keyword in node.keywords):
        raise CannotTell(f"core/{where.module.path}, line {node.lineno}: a map is spread that has no name")
    if _last(node.func) == "replace" and _keyword(node, "target") is not None:
        raise CannotTell(f"core/{where.module.path}, line {node.lineno}: a record's target is replaced")


def kind_of(function: _Function | None, name: str) -> str:
    """Name of the class that a parameter or a local is of, by its annotation or by what it was asked for as."""
    if function is None:
        return ""
    arguments = function.args
    for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
        if argument.arg == name and argument.annotation is not None:
            return _last(argument.annotation)
    for value in _assigned(function, name):
        if isinstance(value, ast.Call) and _last(value.func) in ("need", "find"):
            asked = _last(value.args[-1])
            return "ClockState" if asked == "CLOCK" else asked
    return ""


def _parsed(folder: Path):  # type: ignore[no-untyped-def]  # a small closure over the folder
    def parse(path: Path) -> _Module:
        below = path.relative_to(folder)
        parts = below.with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        tree = ast.parse(path.read_text(encoding="utf-8"))
        return _Module(name, below.as_posix(), tree, _imports(tree))

    return parse


def _imports(tree: ast.Module) -> dict[str, str]:
    found: dict[str, str] = {}
    prefix = "fencepost.core"
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith(prefix):
            package = node.module.removeprefix(prefix).removeprefix(".")
            for alias in node.names:
                found[alias.asname or alias.name] = ".".join(part for part in (package, alias.name) if part)
    return found


def _walk(module: _Module) -> Iterator[tuple[_Where, ast.AST]]:
    """Every part of a module with the outermost function that it stands in."""
    for top in module.tree.body:
        methods = top.body if isinstance(top, ast.ClassDef) else [top]
        for node in methods:
            where = _Where(module, node if isinstance(node, _Function) else None)
            for part in ast.walk(node):
                yield where, part


def _last(node: ast.expr) -> str:
    if isinstance(node, ast.Name):
        return node.id
    return node.attr if isinstance(node, ast.Attribute) else ""


def _keyword(call: ast.Call, name: str) -> ast.expr | None:
    return next((keyword.value for keyword in call.keywords if keyword.arg == name), None)


def _parameters(function: _Function) -> list[str]:
    arguments = function.args
    names = [each.arg for each in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
    return [*names, arguments.vararg.arg] if arguments.vararg else names


def _locals(function: _Function | None) -> list[str]:
    return [] if function is None else _parameters(function)


def _passed(call: ast.Call, function: _Function, name: str) -> list[ast.expr]:
    """What a call hands in for a parameter; its first value where it hands in nothing."""
    by_name = _keyword(call, name)
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


def _assigned(scope: ast.AST, name: str) -> list[ast.expr]:
    """Every expression that a name is bound to in a function or module, elements of unpacked ones among them."""
    found: list[ast.expr] = []
    for node in ast.walk(scope):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                found.extend(_bound(target, node.value, name))
        elif isinstance(node, ast.AnnAssign | ast.NamedExpr) and node.value is not None:
            found.extend(_bound(node.target, node.value, name))
        elif isinstance(node, ast.For | ast.comprehension):
            found.extend(_bound(node.target, node.iter, name))
    return found


def _bound(target: ast.expr, value: ast.expr, name: str) -> list[ast.expr]:
    if isinstance(target, ast.Name):
        return [value] if target.id == name else []
    if not isinstance(target, ast.Tuple):
        return []
    names = [_last(each) for each in target.elts]
    if name not in names:
        return []
    if isinstance(value, ast.Tuple) and len(value.elts) == len(names):
        return [value.elts[names.index(name)]]
    if isinstance(value, ast.Subscript):
        return [ast.Subscript(value, ast.Constant(names.index(name)), ast.Load())]  # of a map of tuples
    return [value]


def _first_state(node: ast.Subscript) -> str:
    """`MACHINE.first[0]`, "" for anything else."""
    value, index = node.value, node.slice
    if isinstance(value, ast.Attribute) and value.attr == "first" and isinstance(index, ast.Constant):
        name = _last(value.value).lower()
        if name in MACHINES:
            return MACHINES[name].first[int(str(index.value))]
    return ""
