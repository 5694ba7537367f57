"""The interpreter that callables run in, and the text of their modules, as a submission looks at both.

No module of the source tree is imported or run here; the interpreter itself is started once, isolated and without its
site packages, to say which version it is.
"""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

from fencepost.core.ids import sha256_of
from fencepost.ports.interpreter import ParsedModule, Unsuited

LEAST = (3, 11)
ANSWER_TIMEOUT_S = 20
SOURCE_BYTES_MAX = 1024 * 1024
"""Size of a module that is looked into."""
_OUTLINE = """
import ast, sys
kept = []
for node in ast.parse(sys.stdin.buffer.read()).body:
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        empty = ast.parse("async def f(): pass" if isinstance(node, ast.AsyncFunctionDef) else "def f(): pass").body[0]
        empty.name, empty.decorator_list = node.name, node.decorator_list
        kept.append(empty)
    elif isinstance(node, (ast.Import, ast.ImportFrom)):
        kept.append(node)
sys.stdout.buffer.write(ast.unparse(ast.Module(kept, [])).encode())
"""
_QUESTION = "import sys; sys.stdout.write('fencepost %d %d' % sys.version_info[:2])"


def find_interpreter(text: str, *, root: Path, search: str) -> str | Unsuited:
    """The absolute path of the interpreter that `text` names.

    "" is the one that runs this program, a name without a slash is looked for in `search` (folders as in PATH), and a
    relative path counts from `root`. Links are kept: a virtual environment is known by the path of its own.
    """
    if not text:
        return sys.executable or Unsuited("python_missing", "this program does not know its own interpreter")
    if os.sep in text:
        path = os.path.abspath(root / text)
        if not os.path.isfile(path):
            return Unsuited("python_missing", f"there is no interpreter at {path}")
    else:
        found = shutil.which(text, path=search)
        if found is None:
            return Unsuited("python_missing", f"there is no {text} on PATH")
        path = os.path.abspath(found)
    return _asked(path)


def _asked(path: str) -> str | Unsuited:
    try:
        done = subprocess.run(
            [path, "-I", "-S", "-c", _QUESTION],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=ANSWER_TIMEOUT_S,
            check=False,
        )
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        return Unsuited("python_unsuited", f"{path} cannot be started: {error}")
    words = done.stdout[:64].decode("ascii", "replace").split()
    if done.returncode or len(words) != 3 or words[0] != "fencepost" or not all(map(str.isdigit, words[1:])):
        return Unsuited("python_unsuited", f"{path} does not answer as a Python interpreter")
    if (int(words[1]), int(words[2])) < LEAST:
        return Unsuited("python_unsuited", f"{path} is Python {words[1]}.{words[2]}; 3.11 or later is needed")
    return path


def parse_module(root: Path, path: str, interpreter: str) -> ParsedModule | Unsuited:
    """The parsed text of a file below `root`, with nothing of it run; else `module_unreadable`.

    What this program's own Python cannot parse may be younger than it: then `interpreter` is asked for what counts.
    """
    try:
        with (root / path).open("rb") as file:
            source = file.read(SOURCE_BYTES_MAX + 1)
    except OSError as error:
        return Unsuited("module_unreadable", f"{path} cannot be read: {error.strerror}")
    if len(source) > SOURCE_BYTES_MAX:
        return Unsuited("module_unreadable", f"{path} is larger than {SOURCE_BYTES_MAX} bytes")
    tree = _parsed(source)
    if isinstance(tree, str) and interpreter != sys.executable:
        outline = _outline(source, interpreter)
        tree = tree if outline is None else _parsed(outline)
    if isinstance(tree, str):
        return Unsuited("module_unreadable", f"{path} cannot be parsed: {tree}")
    return ParsedModule(tree, sha256_of(source))


def _parsed(source: bytes) -> ast.Module | str:
    """The syntax tree, else why there is none."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(source)
    except SyntaxError as error:
        place = f"line {error.lineno}: " if error.lineno else ""
        return f"{place}{error.msg}"
    except (ValueError, RecursionError, MemoryError) as error:
        return str(error) or "it is nested too deeply"


def _outline(source: bytes, interpreter: str) -> bytes | None:
    """Imports and decorated functions of a module as `interpreter` reads them; None where it cannot."""
    try:
        done = subprocess.run(
            [interpreter, "-I", "-S", "-c", _OUTLINE],
            input=source,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=ANSWER_TIMEOUT_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout
