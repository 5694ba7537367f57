"""What a submission asks about callables: which interpreter runs them, and what the text of their module is.

Nothing of the source tree is imported or run to answer. Whatever is wrong is a value.
"""

from __future__ import annotations

import ast
from typing import NamedTuple, Protocol


class Unsuited(NamedTuple):
    """Why an interpreter or a module cannot be used: a code of plan files, and a sentence."""

    code: str
    message: str


class ParsedModule(NamedTuple):
    """A module as it was read: its syntax tree, and the digest of its bytes."""

    tree: ast.Module
    digest: str


class FindInterpreter(Protocol):
    def __call__(self, text: str) -> str | Unsuited:
        """The absolute path of the interpreter that `text` names, "" for the one that runs this program. One that is
        named is started once to say its version. Codes: python_missing, python_unsuited."""
        ...


class ParseModule(Protocol):
    def __call__(self, path: str, interpreter: str) -> ParsedModule | Unsuited:
        """Parse a file of the source tree, at most 1 MiB, as this program reads it, else as `interpreter` does. Code:
        module_unreadable."""
        ...
