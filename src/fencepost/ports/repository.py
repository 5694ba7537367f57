"""The repository port: which files of a source tree exist for a plan, and which commit they stand on."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from fencepost.ports.errors import FencepostError


class RepositoryError(FencepostError):
    """The tree cannot be listed: git is missing or refuses, or a name cannot be stored. The person who owns
    the tree can mend it; `next_step` says how. Codes: git_missing, git_refused, git_failed, bad_path_name,
    too_many."""

    code = "git_failed"

    def __init__(self, code: str, message: str, *, next_step: str | None = None) -> None:
        super().__init__(message, next_step=next_step)
        self.code = code


class Repository(Protocol):
    """A source tree. Nothing here ever writes to it, git's own caches included."""

    @property
    def root(self) -> Path:
        """The folder that all paths are relative to."""
        ...

    def list_files(self) -> tuple[str, ...]:
        """Every regular file and link that git tracks or does not ignore, as it lies there now, dirty ones
        included and deleted ones left out, in bytewise order; without git every file of the folder.

        Submodules that are checked out belong to the tree, by their own ignore rules. A repository that lies
        in the tree without being its submodule is another's and is left out, as are `.git`, `.fencepost` and
        `.fencepost.ledger` everywhere. Raises `RepositoryError`.
        """
        ...

    def head(self) -> str | None:
        """The commit that is checked out, in hex; None before the first commit and without git."""
        ...

    def dirty(self) -> bool:
        """Whether a file differs from `head()`, untracked files included. False without git."""
        ...
