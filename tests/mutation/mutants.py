"""Mutants of the pure core: mutmut says what may be changed, this module says what each change is.

mutmut's own runner wants a tree of its own and collects every test anew for each mutant, which took seconds a mutant.
Here nothing is written anywhere: a mutant is the code of one function, compiled in a forked child and put in the place
of the real one. So only what stands inside a function is mutated; the tables of a module are walked whole by
`tests/tables`. Functions with a decorator are left out by mutmut itself.

Left out as text: a changed spelling of a string literal with a space in it, and the message of an error that only a
wrong program or wrong history brings about. Nothing in the product compares such words; where a test pins them, it
does so for readers.
"""

from __future__ import annotations
import __future__

import difflib
import hashlib
import importlib
import inspect
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

ERRORS = frozenset({"ValueError", "TypeError", "RuntimeError", "AssertionError", "KeyError", "LookupError"})
"""What only a wrong program raises."""
CORRUPT = frozenset({"CorruptHistory", "corrupt"})
"""What only wrong history raises: its words are for whoever repairs it."""
CHECKS = frozenset({"require", "less", "_require_lease"})
"""Checks of history, which are handed such words beside what they check."""


@dataclass(frozen=True, kw_only=True)
class Mutant:
    """One change of one function; `number` counts from 1 within the function, `digest` is of its source.

    Whoever runs none of the lines from `first_line` to `last_line`, both included, cannot see the change.
    """

    module: str
    function: str
    number: int
    digest: str
    text: bool
    first_line: int
    last_line: int
    before: Any
    old: Any
    new: Any

    @property
    def key(self) -> str:
        """Names the mutant for as long as its function and mutmut stay the same."""
        return f"{self.function}#{self.number}@{self.digest}"


@dataclass(frozen=True, kw_only=True)
class Function:
    """A function that may be mutated, as the running program holds it."""

    name: str
    function: FunctionType
    owner: str | None


def mutants_of(module: str, path: Path) -> list[Mutant]:
    """Every mutant inside the functions of a module, in the order of the source."""
    cst = importlib.import_module("libcst")
    made = importlib.import_module("mutmut.mutation.file_mutation").create_mutations(str(path), path.read_text("utf-8"))
    tree, mutations = made[0], made[1]
    spans = _spans(cst, tree)
    names = {id(node): name for name, node in _definitions(cst, tree)}
    digests: dict[str, str] = {}
    messages: set[int] = set()
    numbers: dict[str, int] = {}
    found = []
    for mutation in mutations:
        node = mutation.contained_by_top_level_function
        name = names.get(id(node))
        if name is None:
            continue
        if name not in digests:
            digests[name] = hashlib.sha256(_code(cst, node).encode()).hexdigest()[:12]
            messages |= _messages(cst, node)
        numbers[name] = numbers.get(name, 0) + 1
        found.append(
            Mutant(
                module=module,
                function=name,
                number=numbers[name],
                digest=digests[name],
                text=_is_text(cst, mutation.original_node, mutation.mutated_node, messages),
                first_line=spans[id(mutation.original_node)][0],
                last_line=spans[id(mutation.original_node)][1],
                before=node,
                old=mutation.original_node,
                new=mutation.mutated_node,
            )
        )
    return found


def _definitions(cst: ModuleType, tree: Any) -> Iterator[tuple[str, Any]]:
    for node in tree.body:
        if isinstance(node, cst.FunctionDef):
            yield node.name.value, node
        elif isinstance(node, cst.ClassDef):
            for member in node.body.body:
                if isinstance(member, cst.FunctionDef):
                    yield f"{node.name.value}.{member.name.value}", member


def _spans(cst: ModuleType, tree: Any) -> dict[int, tuple[int, int]]:
    """The lines of the innermost statement of each node; the head alone, of a statement with a body of its own.

    Defaults of arguments are set once, so that every line of their function may show a change of them.
    """
    metadata = importlib.import_module("libcst.metadata")
    places = metadata.MetadataWrapper(tree, unsafe_skip_copy=True).resolve(metadata.PositionProvider)
    found: dict[int, tuple[int, int]] = {}
    stack = [(tree, (1, 1))]
    while stack:
        node, span = stack.pop()
        statement = isinstance(node, cst.BaseCompoundStatement | cst.SimpleStatementLine)
        if statement or isinstance(node, cst.Else | cst.ExceptHandler | cst.MatchCase):
            place = places[node]
            span = (place.start.line, place.end.line)
            if isinstance(getattr(node, "body", None), cst.IndentedBlock) and not isinstance(node, cst.FunctionDef):
                span = (span[0], max(span[0], places[node.body.body[0]].start.line - 1))
        found[id(node)] = span
        stack.extend((child, span) for child in node.children)
    return found


def _nodes(node: Any) -> Iterator[Any]:
    stack = [node]
    while stack:
        current = stack.pop()
        yield current
        stack.extend(current.children)


def _messages(cst: ModuleType, function: Any) -> set[int]:
    """Names the nodes of messages that only a wrong program or wrong history brings about."""
    found: set[int] = set()
    for node in _nodes(function):
        if isinstance(node, cst.Call) and _called(cst, node) in ERRORS | CORRUPT:
            found.update(id(part) for part in _nodes(node))
    return found


def _called(cst: ModuleType, call: Any) -> str:
    if isinstance(call.func, cst.Attribute):
        return str(call.func.attr.value)
    return str(call.func.value) if isinstance(call.func, cst.Name) else ""


def _is_text(cst: ModuleType, old: Any, new: Any, messages: set[int]) -> bool:
    if id(old) in messages:
        return True
    if isinstance(old, cst.Call) and _called(cst, old) in CHECKS and len(old.args) == len(new.args):
        changed = [was for was, now in zip(old.args, new.args, strict=True) if was is not now]
        return all(_is_words(cst, argument.value) for argument in changed)
    return isinstance(old, cst.SimpleString) and _is_words(cst, old)


def _is_words(cst: ModuleType, node: Any) -> bool:
    return isinstance(node, cst.FormattedString) or (isinstance(node, cst.SimpleString) and " " in node.value)


def _code(cst: ModuleType, function: Any) -> str:
    return str(cst.Module(body=[function.with_changes(leading_lines=[], lines_after_decorators=[])]).code)


def sources(mutant: Mutant) -> tuple[str, str]:
    """The function's source before and after."""
    cst = importlib.import_module("libcst")
    replace = importlib.import_module("mutmut.mutation.file_mutation").deep_replace
    return _code(cst, mutant.before), _code(cst, replace(mutant.before, mutant.old, mutant.new))


def change_of(before: str, after: str) -> str:
    """The change on one line, `old lines => new lines`, without indentation."""
    old, new = [], []
    for line in difflib.unified_diff(before.splitlines(), after.splitlines(), n=0, lineterm=""):
        if line.startswith("-") and not line.startswith("---"):
            old.append(line[1:].strip())
        elif line.startswith("+") and not line.startswith("+++"):
            new.append(line[1:].strip())
    return f"{' / '.join(old)}  =>  {' / '.join(new)}"


def functions_of(module: ModuleType) -> dict[str, Function]:
    """The functions of a module that can be exchanged, by the name that mutants have."""
    found = {}
    for name, value in vars(module).items():
        if isinstance(value, FunctionType) and value.__module__ == module.__name__:
            found[name] = Function(name=name, function=value, owner=None)
        elif inspect.isclass(value) and value.__module__ == module.__name__:
            for member, held in vars(value).items():
                plain = held.__func__ if isinstance(held, staticmethod | classmethod) else held
                if isinstance(plain, FunctionType):
                    found[f"{name}.{member}"] = Function(name=member, function=plain, owner=name)
    return found


def put_in_place(mutant: Mutant, source: str, target: FunctionType) -> None:
    """Exchange the code of a function for that of its mutant; whoever imported the function has the mutant too."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a mutant may compare a literal by identity
        code = compile(source, target.__code__.co_filename, "exec", __future__.annotations.compiler_flag, True)
    space = dict(target.__globals__)
    exec(code, space)
    made = space[mutant.function.rpartition(".")[2]]
    made = made.__func__ if isinstance(made, staticmethod | classmethod) else made
    if made.__code__.co_freevars != target.__code__.co_freevars:
        raise RuntimeError(f"{mutant.function} closes over {target.__code__.co_freevars}")
    target.__code__, target.__defaults__, target.__kwdefaults__ = made.__code__, made.__defaults__, made.__kwdefaults__
    forget()


def forget() -> None:
    """Empty the caches of the core, which may hold what the real function has said while modules were loaded."""
    for name, module in list(sys.modules.items()):
        if name.startswith("fencepost.core"):
            for value in list(vars(module).values()):
                if hasattr(value, "cache_clear"):
                    value.cache_clear()
