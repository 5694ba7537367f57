"""The source tree that a plan submitted here would pin its inputs from."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from fencepost.app import HOME_NAME, diagnosis, repository_at
from fencepost.ports.errors import FencepostError
from fencepost.surfaces.cli.doctor.findings import Line, fault, well

UNTRACKED_BYTES_WARN = 2**30
UNTRACKED_FILES_WARN = 20_000
MEBIBYTE = 2**20


def repository_lines(folder: Path, home: Path | None) -> Iterator[Line]:
    bare = next((parent for parent in (folder, *folder.parents) if _is_git_folder(parent)), None)
    if bare is not None:
        yield fault("repository_bare", where=str(bare))
        return
    repository = repository_at(folder)
    root = repository.root
    if not os.path.lexists(root / ".git"):
        yield well("repository", f"{root} is a plain folder: all of its files may be pinned")
        return
    if diagnosis().git_version() is None:
        return  # told with git itself
    try:
        head = repository.head()
        tracked = diagnosis().tracked_below(root, home.name if home is not None and home.parent == root else HOME_NAME)
        untracked = diagnosis().untracked_files(root)
    except FencepostError as error:
        yield fault("repository_refused", where=str(root), told=error.message, following=error.next_step)
        return
    if tracked:
        name = os.path.dirname(tracked[0]).split("/")[0] or HOME_NAME
        yield fault("home_in_git", where=str(root / name), count=len(tracked), name=name)
    yield from _untracked(root, untracked)
    if head is None:
        yield fault("repository_without_commits", where=str(root))
    else:
        yield well("repository", f"{root} at {head[:12]}")


def _is_git_folder(folder: Path) -> bool:
    """Whether a folder is a git repository itself, as bare ones and every `.git` are."""
    return (folder / "HEAD").is_file() and (folder / "objects").is_dir() and (folder / "refs").is_dir()


def _untracked(root: Path, names: tuple[str, ...]) -> Iterator[Line]:
    sizes = {}
    for name in names:
        try:
            sizes[name] = os.lstat(root / name).st_size
        except OSError:
            continue  # it is gone by now
    total = sum(sizes.values())
    if total >= UNTRACKED_BYTES_WARN or len(sizes) >= UNTRACKED_FILES_WARN:
        largest = max(sizes, key=lambda name: (sizes[name], name))
        yield fault("untracked_large", where=largest, count=len(sizes), mebibytes=total // MEBIBYTE)
