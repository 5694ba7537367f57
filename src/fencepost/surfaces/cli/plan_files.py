"""Plan files as the command line takes them: read, checked against the source tree, refused with every problem.

Nothing here writes. The source tree is the git repository that the plan lies in (`--repo` names another), else the
plan's own folder; a plan on stdin belongs to the working directory.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from fencepost.app import callables_at, inspect_inputs, repository_at
from fencepost.core.planfile import (
    CheckedPlan,
    PlanDocument,
    PlanProblem,
    RawDocument,
    check_document,
    read_document,
    with_lines,
)
from fencepost.ports.errors import FencepostError
from fencepost.ports.repository import Repository, RepositoryError
from fencepost.services.callables import Callee
from fencepost.services.submission import Selection, every_path, plan_problems, selections
from fencepost.surfaces.cli import frame
from fencepost.surfaces.cli.context import CommandError

STDIN = "-"  # what messages call it
READ_BYTES_MAX = 64 * 2**20  # of what is read before the check says how much it takes


class PlanRefused(FencepostError):
    """A plan has problems: the first one as the error itself, all of them in `others`."""

    def __init__(self, file: str, problems: Sequence[PlanProblem], left_off: int) -> None:
        first = problems[0]
        super().__init__(first.message, next_step=first.next)
        self.code = first.code
        self.where = where_of(file, first)
        self.documents = [problem_document(file, problem) for problem in problems]
        if left_off:
            self.documents.append(
                {
                    "code": "out_of_range",
                    "message": f"{left_off} more problems are not shown",
                    "where": None,
                    "next": "correct these first",
                }
            )
        self.others = self.documents[1:]


def where_of(file: str, problem: PlanProblem) -> dict[str, Any]:
    return {"file": file, "at": problem.at, "name": problem.name, "line": problem.line}


def problem_document(file: str, problem: PlanProblem) -> dict[str, Any]:
    return {
        "code": problem.code,
        "message": problem.message,
        "where": where_of(file, problem),
        "next": problem.next,
    }


@dataclass(frozen=True, kw_only=True)
class Source:
    """A plan file as it was read. `folder` is where it belongs, `file` what people call it."""

    file: str
    stem: str
    syntax: Literal["toml", "json"]
    data: bytes
    folder: Path

    @cached_property
    def repository(self) -> Repository:
        return repository_at(self.folder)

    def provenance(self) -> dict[str, str]:
        """Where the plan came from: told, never trusted."""
        root = self.repository.root
        name = self.file
        if self.file != STDIN:
            full = os.path.realpath(self.file)
            name = os.path.relpath(full, root) if Path(full).is_relative_to(root) else full
        return {
            "repository": _storable(str(root)),
            "commit": self.repository.head() or "none",
            "dirty": "yes" if self.repository.dirty() else "no",
            "file": _storable(name),
        }


def _storable(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def read_source(plan: str, repository: str | None) -> Source:
    """Read a plan file, or stdin for `-`. Raises CommandError."""
    if repository is not None and not Path(repository).is_dir():
        raise CommandError("not_found", f"there is no folder {repository}", next_step="name a repository")
    if plan == frame.STDIN:
        data = sys.stdin.buffer.read(READ_BYTES_MAX)
        syntax: Literal["toml", "json"] = "json" if data.lstrip()[:1] == b"{" else "toml"
        return Source(file=STDIN, stem=STDIN, syntax=syntax, data=data, folder=Path(repository or ".").absolute())
    path = Path(plan)
    try:
        with path.open("rb") as file:
            data = file.read(READ_BYTES_MAX)
    except (FileNotFoundError, NotADirectoryError):
        raise CommandError(
            "plan_missing", f"there is no plan file at {plan}", next_step="name an existing file"
        ) from None
    except IsADirectoryError:
        message = f"{plan} is a folder, not a plan file"
        raise CommandError("not_regular", message, next_step="name a file in it") from None
    except (OSError, ValueError) as error:
        raise CommandError(
            "plan_missing", f"{plan} cannot be read: {error}", next_step="name a readable file"
        ) from error
    folder = path.absolute().parent if repository is None else Path(repository).absolute()
    syntax = "json" if path.suffix == ".json" else "toml"
    return Source(file=plan, stem=path.stem, syntax=syntax, data=data, folder=folder)


@dataclass(frozen=True, kw_only=True)
class Checked:
    """A plan without problems. `chosen` is what its orders pin, `callees` their callables; both are empty when nobody
    has looked at the tree."""

    source: Source
    document: PlanDocument
    content: str
    order: tuple[str, ...]
    chosen: tuple[Selection, ...] = ()
    callees: tuple[Callee | None, ...] = ()


def check_alone(source: Source) -> Checked | None:
    """Check a plan without looking at the source tree; None when it has problems."""
    raw = read_document(source.data, syntax=source.syntax)
    return None if isinstance(raw, PlanProblem) else _accepted(source, check_document(raw, stem=source.stem))


def _accepted(source: Source, found: CheckedPlan) -> Checked | None:
    if found.document is None or found.content_digest is None:
        return None
    return Checked(source=source, document=found.document, content=found.content_digest, order=found.order)


def check(source: Source) -> Checked:
    """Check a plan against its source tree. Raises PlanRefused with every problem, and RepositoryError."""
    raw = read_document(source.data, syntax=source.syntax)
    if isinstance(raw, PlanProblem):
        raise PlanRefused(source.file, (raw,), 0)
    found, tree, extra = _with_tree(source, raw)
    accepted = _accepted(source, found)
    problems = list(found.problems)
    chosen: tuple[Selection, ...] = ()
    callees: tuple[Callee | None, ...] = ()
    if accepted is not None:
        chosen = selections(accepted.document, tree)
        paths = every_path(chosen)
        problems += plan_problems(accepted.document, chosen, inspect_inputs(source.repository.root, paths))
        callees, unfit = callables_at(source.repository.root, accepted.document, [each.paths for each in chosen], tree)
        problems += unfit
    problems += extra
    if accepted is None or problems:
        raise PlanRefused(source.file, with_lines(raw, problems), found.problems_left_off)
    return Checked(
        source=source,
        document=accepted.document,
        content=accepted.content,
        order=accepted.order,
        chosen=chosen,
        callees=callees,
    )


def _with_tree(source: Source, raw: RawDocument) -> tuple[CheckedPlan, tuple[str, ...], tuple[PlanProblem, ...]]:
    """Check with the tree; a tree whose names cannot be stored is one problem among the others."""
    try:
        tree = source.repository.list_files()
    except RepositoryError as error:
        if error.code not in ("bad_path_name", "too_many"):
            raise
        problem = PlanProblem(
            code="out_of_range", message=error.message, at="", next=error.next_step or "let git ignore these files"
        )
        return check_document(raw, stem=source.stem), (), (problem,)
    return check_document(raw, stem=source.stem, tree=tree), tree, ()
