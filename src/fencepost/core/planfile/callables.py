"""Decorated callables, found in the source of a module without running any of it.

Rules: what a spec says of a callable is read from the text alone, so that a submission executes nothing. Hence the
function stands at the top level of its module, the decorator is reached through an import of `fencepost` that stands
there too, and its name and version are written as literals. Whether the module says the same once it is imported is
checked in the child process, before the callable is called.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Final

import msgspec

from fencepost.core.planfile.problems import quote
from fencepost.core.planfile.values import NAME_RULE
from fencepost.core.strictjson import INT_MAX

CALL_RULE: Final = re.compile(r"([A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*):([A-Za-z_][A-Za-z0-9_]*)")
"""`module:function`; the module may stand in packages."""

_FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef)
_PACKAGE: Final = "fencepost"
_DECORATOR: Final = "executor"
_EXAMPLE: Final = '@fp.executor("name", version=1)'


class Declared(msgspec.Struct, frozen=True, kw_only=True):
    """What the decorator of a callable says."""

    name: str
    version: int


class NotDeclared(msgspec.Struct, frozen=True, kw_only=True):
    """Why a callable cannot be run: a code of plan files, a sentence, and what to do."""

    code: str
    message: str
    next: str


def module_paths(call: str) -> tuple[str, ...]:
    """Relative paths at which the module of `call` may stand, the one that an import prefers first."""
    path = call.partition(":")[0].replace(".", "/")
    return (f"{path}/__init__.py", f"{path}.py")


def find_declared(tree: ast.Module, call: str, path: str) -> Declared | NotDeclared:
    """What the function of `call` is declared as in the module that was parsed from `path`. Never raises."""
    function = call.partition(":")[2]
    found = [node for node in tree.body if isinstance(node, _FUNCTIONS) and node.name == function]
    if not found:
        return NotDeclared(
            code="function_missing",
            message=f"{path} has no function {quote(function)} at its top level",
            next="name a function that is defined there with `def`",
        )
    return _declared(found[-1], tuple(_ways(tree)), path)


def _ways(tree: ast.Module) -> Iterator[tuple[str, ...]]:
    """The names by which the module reaches the decorator: ("fp", "executor"), or ("executor",)."""
    for node in tree.body:
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name == _PACKAGE or (alias.name.startswith(f"{_PACKAGE}.") and alias.asname is None):
                    yield (alias.asname or _PACKAGE, _DECORATOR)
        elif isinstance(node, ast.ImportFrom) and node.module == _PACKAGE and node.level == 0:
            for alias in node.names:
                if alias.name == _DECORATOR:
                    yield (alias.asname or _DECORATOR,)


def _dotted(node: ast.expr) -> tuple[str, ...]:
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return (node.value.id, node.attr)
    return (node.id,) if isinstance(node, ast.Name) else ()


def _declared(
    node: ast.FunctionDef | ast.AsyncFunctionDef, ways: tuple[tuple[str, ...], ...], path: str
) -> Declared | NotDeclared:
    where = f"{path}, line {node.lineno}: {node.name}"
    calls = [each for each in node.decorator_list if isinstance(each, ast.Call) and _dotted(each.func) in ways]
    if not calls:
        return NotDeclared(
            code="not_an_executor",
            message=f"{where} is not decorated with fencepost's executor",
            next=f"import fencepost as fp, and write {_EXAMPLE} above it",
        )
    if isinstance(node, ast.AsyncFunctionDef) or len(calls) > 1:
        what = "is a coroutine" if isinstance(node, ast.AsyncFunctionDef) else "is decorated twice"
        return NotDeclared(
            code="not_an_executor",
            message=f"{where} {what}",
            next="write a plain function with one decorator; it may call asyncio.run",
        )
    return _literals(calls[0], where)


def _literals(call: ast.Call, where: str) -> Declared | NotDeclared:
    given: dict[str, ast.expr] = {word.arg: word.value for word in call.keywords if word.arg is not None}
    if len(call.args) == 1:
        given.setdefault("name", call.args[0])
    values = {key: node.value for key, node in given.items() if isinstance(node, ast.Constant)}
    name, version = values.get("name"), values.get("version")
    exact = len(given) == len(call.args) + len(call.keywords) and set(given) == {"name", "version"}
    if not exact or not isinstance(name, str) or not isinstance(version, int) or isinstance(version, bool):
        return NotDeclared(
            code="not_literal",
            message=f"{where}: name and version of its decorator are not written as literals",
            next=f"write them out, as in {_EXAMPLE}",
        )
    if NAME_RULE.fullmatch(name) is None or not 1 <= version <= INT_MAX:
        return NotDeclared(
            code="not_literal",
            message=f"{where}: {quote(name)} version {quote(version)} is no name with a version",
            next="write a name of [a-z][a-z0-9-]{0,62} and a version from 1",
        )
    return Declared(name=name, version=version)
