"""Finds the files that the house rules are about."""

from __future__ import annotations

import ast
import subprocess
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_BYTES_MAX = 2_000_000
_SKIPPED_FOLDERS = frozenset(
    {".git", ".venv", ".fencepost", ".fencepost.ledger", "__pycache__", "build", "dist", ".hypothesis"}
)


@dataclass(frozen=True, kw_only=True)
class Source:
    """One text file: its POSIX path relative to the repository, and its text."""

    path: str
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        """The parsed module; raises SyntaxError where it is none."""
        return ast.parse(self.text, self.path)


@dataclass(frozen=True, kw_only=True, order=True)
class Finding:
    """One break of a house rule, with what to write instead."""

    path: str
    line: int
    message: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.message}"


@lru_cache(maxsize=1)
def kept_files() -> tuple[Source, ...]:
    """Returns every text file that git keeps or would keep, in path order.

    Where git does not answer (an unpacked archive, a checkout of another user), the folder is walked instead.
    """
    sources = []
    for path in sorted(_kept_paths()):
        absolute = ROOT / path
        if absolute.is_symlink() or not absolute.is_file() or absolute.stat().st_size > _BYTES_MAX:
            continue
        try:
            text = absolute.read_bytes().decode("utf-8")
        except UnicodeDecodeError:
            continue
        sources.append(Source(path=path, text=text))
    return tuple(sources)


def _kept_paths() -> set[str]:
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        answer = subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return _walked_paths()
    return {name.decode("utf-8", "surrogateescape") for name in answer.stdout.split(b"\0") if name}


def _walked_paths() -> set[str]:
    found = set()
    for path in ROOT.rglob("*"):
        parts = path.relative_to(ROOT).parts
        if not any(part in _SKIPPED_FOLDERS or part.endswith("_cache") for part in parts):
            found.add("/".join(parts))
    return found


def modules_of_package() -> tuple[Source, ...]:
    """Returns the Python modules of the shipped package."""
    return tuple(source for source in kept_files() if in_package(source.path))


def in_package(path: str) -> bool:
    """Tells whether a path is a module of the shipped package."""
    return path.startswith("src/fencepost/") and path.endswith(".py")


def python_files() -> tuple[Source, ...]:
    """Returns all Python files, tests included."""
    return tuple(source for source in kept_files() if source.path.endswith(".py"))
