"""Callables of a plan's orders at submission: found in the source tree, read as text, bound to an interpreter.

What is found is bound to the bytes that were read, so that pinning other bytes is noticed.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from fencepost.core.planfile import PlanDocument, PlanProblem, WorkItem
from fencepost.core.planfile.callables import NotDeclared, find_declared, module_paths
from fencepost.core.records.plan import PythonCall
from fencepost.ports.interpreter import FindInterpreter, ParseModule, Unsuited

UNKNOWN = "unknown"  # stands for an interpreter that is refused


class Callee(msgspec.Struct, frozen=True, kw_only=True):
    """A callable, the file that declares it, and the digest of the text that was read."""

    python: PythonCall
    path: str
    digest: str


def find_callees(
    document: PlanDocument,
    pinned: Sequence[Sequence[str]],
    tree: Sequence[str],
    *,
    find: FindInterpreter,
    parse: ParseModule,
) -> tuple[tuple[Callee | None, ...], tuple[PlanProblem, ...]]:
    """The callable of each order, None for orders without one, and every problem with them.

    `pinned` are the paths that each order pins, in definition order; `tree` all that could be pinned.
    """
    if not document.python and all(item.executor != "python" for item in document.work):
        return (None,) * len(document.work), ()
    problems: list[PlanProblem] = []
    interpreter = find(document.python)
    if isinstance(interpreter, Unsuited):
        step = "name an interpreter of Python 3.11 or later that is installed here"
        problems.append(PlanProblem(code=interpreter.code, message=interpreter.message, at="/python", next=step))
        interpreter = UNKNOWN
    finder = _Finder(frozenset(tree), interpreter, parse)
    callees: list[Callee | None] = []
    for item, paths in zip(document.work, pinned, strict=True):
        found = finder.find(item, paths) if item.executor == "python" else None
        if isinstance(found, NotDeclared):
            at = f"/work/{item.position}/call"
            problems.append(PlanProblem(code=found.code, message=found.message, at=at, name=item.name, next=found.next))
            found = None
        callees.append(found)
    return tuple(callees), tuple(problems)


class _Finder:
    """Finds callables in one source tree; each call is read once."""

    def __init__(self, files: frozenset[str], interpreter: str, parse: ParseModule) -> None:
        self._files = files
        self._interpreter = interpreter
        self._parse = parse
        self._known: dict[str, Callee | NotDeclared] = {}

    def find(self, item: WorkItem, paths: Sequence[str]) -> Callee | NotDeclared:
        candidates = module_paths(item.call)
        path = next((each for each in candidates if each in self._files), None)
        if path is None:
            return NotDeclared(
                code="module_missing",
                message=f"neither {candidates[0]} nor {candidates[1]} is a file that git tracks or does not ignore",
                next="name a module by its path from the top of the tree, with dots",
            )
        if path not in paths:
            return NotDeclared(
                code="module_not_pinned",
                message=f"{path} is not among the order's inputs",
                next=f'add "{path}" to inputs, and whatever it imports',
            )
        if item.call not in self._known:
            self._known[item.call] = self._read(item.call, path)
        return self._known[item.call]

    def _read(self, call: str, path: str) -> Callee | NotDeclared:
        module = self._parse(path, self._interpreter)
        if isinstance(module, Unsuited):
            return NotDeclared(code=module.code, message=module.message, next="correct the module")
        declared = find_declared(module.tree, call, path)
        if isinstance(declared, NotDeclared):
            return declared
        python = PythonCall(call=call, name=declared.name, version=declared.version, interpreter=self._interpreter)
        return Callee(python=python, path=path, digest=module.digest)
