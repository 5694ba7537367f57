"""The house rules: each takes one file and returns its findings, and each finding names the replacement.

What ruff, mypy and import-linter can say is left to them. Each rule stands in `RULES` with the files that it
is about and with a snippet that it must refuse, so that no rule can stop working unseen.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator

from tests.tidy.files import ROOT, Finding, Source

FUNCTION_NODES = (ast.FunctionDef, ast.AsyncFunctionDef)

MODULE_LINES_MAX = 600
FUNCTION_LINES_MAX = 70

# One table, since a list of one word a line would hide the rules below it.
_IMPURE_MODULES_TEXT = """
apsw asyncio cedarpy concurrent contextvars ctypes cyclopts datetime fcntl getpass glob http
importlib io jsonschema locale logging multiprocessing os pathlib platform psycopg queue random
rich secrets select selectors shutil signal socket sqlite3 ssl subprocess sys tempfile
threading time urllib uuid warnings weakref
"""
IMPURE_MODULES = frozenset(_IMPURE_MODULES_TEXT.split())
IMPURE_CALLS = {
    "open": "take the content as an argument; files belong to adapters",
    "print": "return the value; surfaces print",
    "input": "take the answer as an argument; surfaces ask",
    "breakpoint": "remove it",
    "eval": "write it out",
    "exec": "write it out",
    "__import__": "import at the top of the module",
    "id": "compare with `is`, or by a field of the record; an address differs between runs",
    "hash": "use a digest from core.canonical; hashes of strings differ between processes",
}
WALL_CLOCK_CALLS = frozenset(
    {"time.time", "time.time_ns", "datetime.now", "datetime.utcnow", "datetime.today", "date.today"}
)
FILE_MODULES = frozenset({"fcntl", "glob", "io", "os", "shutil", "stat", "tempfile"})
_FILE_CALLS_TEXT = """
chmod exists glob is_dir is_file is_symlink iterdir lstat mkdir read_bytes read_text rglob rmdir stat symlink_to touch
unlink write_bytes write_text
"""
FILE_CALLS = frozenset(_FILE_CALLS_TEXT.split())
ENTROPY_MODULES = frozenset({"random", "secrets"})
ENTROPY_CALLS = frozenset({"os.urandom", "uuid.uuid1", "uuid.uuid4"})
# Where time and randomness are injected without exception.
_INJECTED_LAYERS = tuple(f"src/fencepost/{layer}/" for layer in ("core", "kernel", "services", "storage"))


def dotted(node: ast.expr) -> str:
    """Returns the dotted name of an expression, or an empty string for anything else."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        before = dotted(node.value)
        return f"{before}.{node.attr}" if before else ""
    return ""


def _at(source: Source, node: ast.AST, message: str) -> Finding:
    return Finding(path=source.path, line=getattr(node, "lineno", 1), message=message)


def _imports(tree: ast.Module) -> Iterator[tuple[ast.stmt, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node, alias.name
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node, node.module


def pure_core(source: Source) -> Iterator[Finding]:
    """No I/O, clock, randomness, environment, logging, async or threads in core."""
    for statement, name in _imports(source.tree):
        if name.split(".")[0] in IMPURE_MODULES:
            yield _at(source, statement, f"core imports {name}; take what it gives from `given`")
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in IMPURE_CALLS:
            name = node.func.id
            yield _at(source, node, f"core calls {name}(); instead: {IMPURE_CALLS[name]}")
        if isinstance(node, (ast.AsyncFunctionDef, ast.Await, ast.AsyncFor, ast.AsyncWith)):
            yield _at(source, node, "core is synchronous; async lives in surfaces")
        if isinstance(node, ast.Global):
            yield _at(source, node, "core keeps no state between calls; pass it as an argument")


# What these make of their argument does not depend on its order.
_ORDER_FREE_CALLS = frozenset({"sorted", "any", "all", "min", "max", "sum", "len", "set", "frozenset"})


def ordered_core(source: Source) -> Iterator[Finding]:
    """No result in core may depend on the order of a set."""
    message = "the order of a set differs between processes; write sorted(...)"
    order_free = {id(generator) for node in ast.walk(source.tree) for generator in _generators_without_order(node)}
    for node in ast.walk(source.tree):
        if isinstance(node, (ast.For, ast.comprehension)) and _is_set(node.iter) and id(node) not in order_free:
            yield _at(source, node.iter, message)
        if isinstance(node, ast.Call) and node.args and _is_set(node.args[0]):
            name = dotted(node.func) or (node.func.attr if isinstance(node.func, ast.Attribute) else "")
            if name in ("list", "tuple", "enumerate", "iter") or name.endswith("join"):
                yield _at(source, node, message)


def _generators_without_order(node: ast.AST) -> list[ast.comprehension]:
    if isinstance(node, ast.SetComp):
        return node.generators
    if isinstance(node, ast.Call) and dotted(node.func) in _ORDER_FREE_CALLS and node.args:
        argument = node.args[0]
        if isinstance(argument, (ast.GeneratorExp, ast.ListComp)):
            return argument.generators
    return []


def _is_set(node: ast.expr) -> bool:
    if isinstance(node, ast.Call):
        return dotted(node.func) in ("set", "frozenset")
    return isinstance(node, (ast.Set, ast.SetComp))


def no_assert(source: Source) -> Iterator[Finding]:
    """`python -O` drops asserts."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Assert):
            yield _at(source, node, "assert is dropped by `python -O`; write `if not ...: raise`")


def no_swallowed_error(source: Source) -> Iterator[Finding]:
    """An error is handled, told or raised."""
    broad = ("Exception", "BaseException")
    for node in ast.walk(source.tree):
        if isinstance(node, ast.ExceptHandler):
            if node.type is None:
                yield _at(source, node, "bare except; name the errors that are expected")
            elif _names(node.type) & set(broad) and all(_is_empty(statement) for statement in node.body):
                yield _at(source, node, "a swallowed error; name the expected one, or raise or record it")
        elif isinstance(node, ast.Call) and dotted(node.func) in ("suppress", "contextlib.suppress"):
            for argument in node.args:
                if dotted(argument) in broad:
                    yield _at(source, node, "suppress() of every error; name the expected ones")


def _names(node: ast.expr) -> set[str]:
    return {dotted(element) for element in (node.elts if isinstance(node, ast.Tuple) else [node])}


def _is_empty(statement: ast.stmt) -> bool:
    constant = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    return constant or isinstance(statement, (ast.Pass, ast.Continue, ast.Break))


def injected_time(source: Source) -> Iterator[Finding]:
    """The wall clock is read in one file."""
    if source.path == "src/fencepost/adapters/clock.py":
        return
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Call):
            name = dotted(node.func)
            if ".".join(name.split(".")[-2:]) in WALL_CLOCK_CALLS:
                yield _at(source, node, f"{name}() outside adapters/clock.py; take the time from ports.clock")
        elif isinstance(node, ast.ImportFrom) and node.module == "time":
            for alias in node.names:
                if alias.name in ("time", "time_ns"):
                    yield _at(source, node, "import of the wall clock; take the time from ports.clock")


def injected_entropy(source: Source) -> Iterator[Finding]:
    """Randomness reaches core, kernel, services and storage through its port."""
    if not source.path.startswith(_INJECTED_LAYERS):
        return
    for statement, name in _imports(source.tree):
        if name.split(".")[0] in ENTROPY_MODULES:
            yield _at(source, statement, f"import of {name}; take randomness from ports.entropy")
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Call) and dotted(node.func) in ENTROPY_CALLS:
            yield _at(source, node, f"{dotted(node.func)}(); take randomness from ports.entropy")


def files_behind_ports(source: Source) -> Iterator[Finding]:
    """Kernel and services read and write files through a port: no module of the system's files, no call of a path."""
    for statement, name in _imports(source.tree):
        if name.split(".")[0] in FILE_MODULES:
            yield _at(source, statement, f"{name}: say it through a port; files belong to adapters")
    for node in ast.walk(source.tree):
        if not isinstance(node, ast.Call):
            continue
        method = node.func.attr if isinstance(node.func, ast.Attribute) else dotted(node.func)
        if method in FILE_CALLS or dotted(node.func) == "open":
            yield _at(source, node, f"{method}(): say it through a port, such as ports/workspace")


def opened_properly(source: Source) -> Iterator[Finding]:
    """Every module says what it is for and postpones its annotations."""
    if not source.text.strip():
        if not source.path.endswith("/__init__.py"):
            yield Finding(path=source.path, line=1, message="an empty module; delete it")
        return
    if not ast.get_docstring(source.tree):
        yield Finding(path=source.path, line=1, message="no docstring; open with what the module is for")
    code = [node for node in source.tree.body if not _is_empty(node)]
    if code and not any(
        isinstance(node, ast.ImportFrom) and node.module == "__future__" and node.names[0].name == "annotations"
        for node in code
    ):
        message = "add `from __future__ import annotations` below the docstring"
        yield Finding(path=source.path, line=1, message=message)


_LEFTOVERS = re.compile(r"\b(?:" + "|".join(("TO" + "DO", "FIX" + "ME", "X" * 3)) + r")\b")


def nothing_left_over(source: Source) -> Iterator[Finding]:
    """What is not done is not in the code."""
    for number, line in enumerate(source.text.splitlines(), start=1):
        if found := _LEFTOVERS.search(line):
            message = f"{found[0]}: do it, or say in words what holds now"
            yield Finding(path=source.path, line=number, message=message)


_MACHINE_PATHS = re.compile(
    "(?<![\\w.~}>$-])/(?:"
    + "|".join(("work/(?:main|shared)", "root/\\.?\\w", "home/\\w+/", "Users/\\w+/", "opt/(?:wheels|pypi)"))
    + ")"
)
_REGISTRIES = re.compile(
    "|".join(("py" + r"pi\.(?:org|python)", "python" + "hosted", "index" + "[-_]url", "find" + "[-_]links")),
    re.IGNORECASE,
)


def at_home_nowhere(source: Source) -> Iterator[Finding]:
    """No file knows the machine that it was written on, nor where packages come from."""
    # A root of one segment, such as that of a container, would match in innocent places.
    here = re.compile(rf"(?<![\w.~}}>$-]){re.escape(str(ROOT))}(?![\w-])") if len(ROOT.parts) > 2 else None
    for number, line in enumerate(source.text.splitlines(), start=1):
        if _MACHINE_PATHS.search(line) or (here and here.search(line)):
            message = "a path of one machine; derive it from the repository or use tmp_path"
            yield Finding(path=source.path, line=number, message=message)
        if _REGISTRIES.search(line):
            message = "an address of a registry; leave the choice to pip's own configuration"
            yield Finding(path=source.path, line=number, message=message)


_REASON = re.compile(r"#\s*(?:type:\s*ignore|noqa)(?:\[[^\]]*\]|:\s*[A-Z]+\d+(?:\s*,\s*[A-Z]+\d+)*)?(.*)$")


def exceptions_have_reasons(source: Source) -> Iterator[Finding]:
    """A checker is overruled only with a reason on the line."""
    for number, line in enumerate(source.text.splitlines(), start=1):
        found = _REASON.search(line)
        if found and len(re.findall(r"\w+", found[1])) < 2:
            message = "a checker is overruled without a reason; append `# why` to the line, or fix its cause"
            yield Finding(path=source.path, line=number, message=message)


def requirements_are_plain(source: Source) -> Iterator[Finding]:
    """Pinned sets name versions and digests only."""
    for number, line in enumerate(source.text.splitlines(), start=1):
        if re.search("ht" + "tp|in" + "dex|://", line, re.IGNORECASE):
            message = "an address in a pinned set; compile it without emitting any"
            yield Finding(path=source.path, line=number, message=message)


def storage_knows_no_state(source: Source, states: frozenset[str]) -> Iterator[Finding]:
    """SQL stores and finds; it never decides. In Python files only strings that hold SQL count."""
    for first_line, text in _sql_texts(source):
        for found in re.finditer(r"""'([^'\n]*)'|"([^"\n]*)\"""", text):
            word = found[1] if found[1] is not None else found[2]
            if word in states:
                line = first_line + text.count("\n", 0, found.start())
                message = f"SQL names the state {word!r}; let core/index.py compute what makes work findable"
                yield Finding(path=source.path, line=line, message=message)


_SQL_WORDS = re.compile(r"\b(?:SELECT|INSERT|UPDATE|DELETE|WHERE|CHECK)\b")


def _sql_texts(source: Source) -> Iterator[tuple[int, str]]:
    if source.path.endswith(".sql"):
        yield 1, source.text
        return
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and _SQL_WORDS.search(node.value):
            yield node.lineno, node.value


def module_lengths(source: Source) -> Iterator[tuple[str, int]]:
    """Yields the module, with its number of lines."""
    yield source.path, len(source.text.splitlines())


def function_lengths(source: Source) -> Iterator[tuple[str, int]]:
    """Yields each function by its qualified name, with its number of lines, decorators left out."""

    def inside(node: ast.AST, prefix: str) -> Iterator[tuple[str, int]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, (*FUNCTION_NODES, ast.ClassDef)):
                name = f"{prefix}.{child.name}" if prefix else child.name
                if isinstance(child, FUNCTION_NODES):
                    yield f"{source.path}::{name}", (child.end_lineno or child.lineno) - child.lineno + 1
                yield from inside(child, name)
            else:
                yield from inside(child, prefix)

    yield from inside(source.tree, "")


def above_ratchet(lengths: dict[str, int], *, limit: int, tolerated: dict[str, int], unit: str) -> Iterator[Finding]:
    """Compares lengths with the limit and with what is tolerated, which may only shrink."""
    for name, lines in sorted(lengths.items()):
        allowed = max(limit, tolerated.get(name, 0))
        if lines > allowed:
            message = f"{unit} of {lines} lines, {allowed} at most; split it along what it decides"
            yield Finding(path=name, line=1, message=message)
    for name, allowed in sorted(tolerated.items()):
        lines = lengths.get(name, 0)
        if lines <= limit:
            message = f"{unit} fits by now or is gone; remove its line from ratchet.toml"
            yield Finding(path=name, line=1, message=message)
        elif lines < allowed:
            message = f"{unit} has shrunk; write {lines} instead of {allowed} in ratchet.toml"
            yield Finding(path=name, line=1, message=message)


Rule = Callable[[Source], Iterator[Finding]]


def _package(path: str) -> bool:
    return path.startswith("src/fencepost/") and path.endswith(".py")


def _not_a_suite(path: str) -> bool:
    """The package without the conformance suites: those are pytest tests that ship, and assert is their language."""
    return _package(path) and not path.startswith("src/fencepost/testing/conformance/")


def _core(path: str) -> bool:
    return _package(path) and path.startswith("src/fencepost/core/")


def _kernel_or_services(path: str) -> bool:
    return path.startswith(("src/fencepost/kernel/", "src/fencepost/services/"))


def _python(path: str) -> bool:
    return path.endswith(".py")


def _requirements(path: str) -> bool:
    return path.startswith("requirements/") and path.endswith(".txt")


def _text(path: str) -> bool:
    return path != "LICENSE"


RULES: tuple[tuple[Rule, Callable[[str], bool]], ...] = (
    (pure_core, _core),
    (ordered_core, _core),
    (no_assert, _not_a_suite),
    (no_swallowed_error, _package),
    (injected_time, _package),
    (injected_entropy, _package),
    (files_behind_ports, _kernel_or_services),
    (opened_properly, _package),
    (exceptions_have_reasons, _python),
    (nothing_left_over, _text),
    (at_home_nowhere, _text),
    (requirements_are_plain, _requirements),
)
