"""The parsed source of the core: its modules, who calls what, and what names are bound to.

Nothing here knows of states. `writers` asks it where an expression comes from.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

Function = ast.FunctionDef | ast.AsyncFunctionDef


class Module(NamedTuple):
    name: str  # below core, as "decide.ending"
    path: str
    tree: ast.Module
    imports: Mapping[str, str]  # local name -> full name below core


class Where(NamedTuple):
    """The function that an expression stands in; None at the level of its module."""

    module: Module
    function: Function | None

    def site(self) -> str:
        return f"{self.module.path}:{self.function.name if self.function else 'module'}"


class Source:
    """The parsed core, and who calls what in it."""

    def __init__(self, folder: Path) -> None:
        modules = [_parsed(folder, path) for path in sorted(folder.rglob("*.py"))]
        self.modules = {module.name: module for module in modules}
        self.functions: dict[str, Where] = {}
        self.calls: dict[str, list[tuple[Where, ast.Call]]] = {}
        self.all_calls: list[tuple[Where, ast.Call]] = []
        self.parts: list[tuple[Where, ast.AST]] = []
        for module in self.modules.values():
            for where, node in _walk(module):
                self.parts.append((where, node))
                if isinstance(node, ast.Call):
                    self.all_calls.append((where, node))
                    self.calls.setdefault(self.name_of(where, node.func), []).append((where, node))
            for node in module.tree.body:
                if isinstance(node, Function):
                    self.functions[f"{module.name}.{node.name}"] = Where(module, node)
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

    def name_of(self, where: Where, node: ast.expr) -> str:
        """The full name below core that an expression means, "" where it means none."""
        if isinstance(node, ast.Name):
            known = where.module.imports.get(node.id)
            return known if known is not None else f"{where.module.name}.{node.id}"
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            known = where.module.imports.get(node.value.id)
            return f"{known}.{node.attr}" if known is not None else f"?.{node.attr}"
        return f"?.{node.attr}" if isinstance(node, ast.Attribute) else ""


def _parsed(folder: Path, path: Path) -> Module:
    below = path.relative_to(folder)
    parts = below.with_suffix("").parts
    name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return Module(name, below.as_posix(), tree, _imports(tree))


def _imports(tree: ast.Module) -> dict[str, str]:
    found: dict[str, str] = {}
    prefix = "fencepost.core"
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith(prefix):
            package = node.module.removeprefix(prefix).removeprefix(".")
            for alias in node.names:
                found[alias.asname or alias.name] = ".".join(part for part in (package, alias.name) if part)
    return found


def _walk(module: Module) -> Iterator[tuple[Where, ast.AST]]:
    """Every part of a module with the outermost function that it stands in."""
    for top in module.tree.body:
        methods = top.body if isinstance(top, ast.ClassDef) else [top]
        for node in methods:
            where = Where(module, node if isinstance(node, Function) else None)
            for part in ast.walk(node):
                yield where, part


def last_name(node: ast.expr) -> str:
    if isinstance(node, ast.Name):
        return node.id
    return node.attr if isinstance(node, ast.Attribute) else ""


def keyword_of(call: ast.Call, name: str) -> ast.expr | None:
    return next((keyword.value for keyword in call.keywords if keyword.arg == name), None)


def parameters(function: Function) -> list[str]:
    arguments = function.args
    names = [each.arg for each in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
    return [*names, arguments.vararg.arg] if arguments.vararg else names


def _locals(function: Function | None) -> list[str]:
    return [] if function is None else parameters(function)


def assigned(scope: ast.AST, name: str) -> list[ast.expr]:
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
    names = [last_name(each) for each in target.elts]
    if name not in names:
        return []
    if isinstance(value, ast.Tuple) and len(value.elts) == len(names):
        return [value.elts[names.index(name)]]
    if isinstance(value, ast.Subscript):
        return [ast.Subscript(value, ast.Constant(names.index(name)), ast.Load())]  # of a map of tuples
    return [value]
