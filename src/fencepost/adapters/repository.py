"""Source trees as git sees them, or as plain folders.

git runs with a clean environment: nothing that a hook, a wrapper or an outer git has exported can point it at
another repository, no prompt, no lock, no program that the repository's settings name for watching files.
Names come and go as bytes, so neither locale nor quoting touches them.
"""

from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from fencepost.adapters.artifacts import disk
from fencepost.ports.errors import StorageUnavailable
from fencepost.ports.repository import RepositoryError

FILES_MAX: Final = 1_000_000
SUBMODULE_DEPTH_MAX: Final = 16
GIT_TIMEOUT_S: Final = 120
OWN_FOLDERS: Final = frozenset({b".git", b".fencepost", b".fencepost.ledger"})

_NAMES_SHOWN: Final = 5


def find_root(start: Path) -> Path | None:
    """The nearest folder from `start` upwards that holds a git repository, or None. Needs no git program."""
    here = Path(os.path.realpath(start))
    for folder in (here, *here.parents):
        if _is_repository(os.fsencode(folder)):
            return folder
    return None


def open_repository(root: Path) -> GitRepository | PlainFolder:
    """The tree at `root`: through git if it is the root of a repository, else as a folder."""
    return GitRepository(root) if _is_repository(os.fsencode(root)) else PlainFolder(root)


class GitRepository:
    """`ports.repository.Repository` for the root of a git working tree."""

    def __init__(self, root: Path) -> None:
        self._root = Path(os.path.realpath(root))

    @property
    def root(self) -> Path:
        return self._root

    def list_files(self) -> tuple[str, ...]:
        names: set[bytes] = set()
        self._collect(b"", names, depth=0)
        return _decoded(names)

    def listed(self, which: str, below: str = "") -> tuple[str, ...]:
        """What `git ls-files` says of `--cached` or `--others`, without what git ignores; `below` is a folder."""
        where = [":(top,literal)" + below] if below else []
        listing = self._git(b"", "ls-files", "-z", which, "--exclude-standard", "--", *where)
        return tuple(sorted(os.fsdecode(name) for name in listing.split(b"\0") if name))

    def head(self) -> str | None:
        done = self._git(b"", "rev-parse", "--verify", "--quiet", "HEAD^{commit}", may_fail=True)
        return done.decode("ascii").strip() or None

    def dirty(self) -> bool:
        exclude = [f":(exclude,top,glob)**/{name.decode('ascii')}/**" for name in sorted(OWN_FOLDERS)]
        return bool(self._git(b"", "status", "--porcelain", "-z", "--untracked-files=normal", "--", ".", *exclude))

    def _collect(self, prefix: bytes, names: set[bytes], *, depth: int) -> None:
        """Add the files of the repository at `prefix` (empty, or ending with a slash) and of its
        submodules."""
        if depth > SUBMODULE_DEPTH_MAX:
            message = f"submodules are nested more than {SUBMODULE_DEPTH_MAX} deep at {disk.printable(prefix)}"
            raise RepositoryError("too_many", message)
        base = os.fsencode(self._root) + b"/" + prefix
        listing = self._git(prefix, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
        folders = _Folders(base)
        for name in set(listing.split(b"\0")):
            # git names an untracked repository with a slash at its end.
            if not name or name.endswith(b"/") or _is_own(name) or not folders.is_real(os.path.dirname(name)):
                continue
            try:
                mode = os.lstat(base + name).st_mode
            except (FileNotFoundError, NotADirectoryError):
                continue  # deleted, or left out by a sparse checkout
            if stat.S_ISREG(mode) or stat.S_ISLNK(mode):
                names.add(prefix + name)
            elif stat.S_ISDIR(mode) and _is_repository(base + name):
                self._collect(prefix + name + b"/", names, depth=depth + 1)
        if len(names) > FILES_MAX:
            raise _too_many(self._root)

    def _git(self, prefix: bytes, *arguments: str, may_fail: bool = False) -> bytes:
        folder = os.fsencode(self._root) + b"/" + prefix
        if not os.path.isdir(folder):
            raise StorageUnavailable(f"the folder {disk.printable(folder)} is gone")
        try:
            done = subprocess.run(
                ["git", "-c", "core.fsmonitor=false", *arguments],
                cwd=folder,
                env=_environment(),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=GIT_TIMEOUT_S,
                check=False,
            )
        except FileNotFoundError:
            raise RepositoryError(
                "git_missing",
                f"{disk.printable(folder)} is a git repository, but no git program is on PATH",
                next_step="install git, or put it on PATH",
            ) from None
        except subprocess.TimeoutExpired:
            raise RepositoryError(
                "git_failed",
                f"`git {arguments[0]}` took longer than {GIT_TIMEOUT_S} s",
                next_step="try it by hand",
            ) from None
        if done.returncode and not (may_fail and done.returncode == 1):
            raise _git_error(arguments[0], folder, done.returncode, done.stderr)
        return done.stdout


class PlainFolder:
    """`ports.repository.Repository` for a folder that is no repository: every file, nothing ignored."""

    def __init__(self, root: Path) -> None:
        self._root = Path(os.path.realpath(root))

    @property
    def root(self) -> Path:
        return self._root

    def list_files(self) -> tuple[str, ...]:
        try:
            return _decoded(self._walk())
        except OSError as error:
            raise StorageUnavailable(f"listing {disk.printable(os.fsencode(self._root))} failed: {error}") from error

    def head(self) -> str | None:
        return None

    def dirty(self) -> bool:
        return False

    def _walk(self) -> Iterator[bytes]:
        base = os.fsencode(self._root) + b"/"
        waiting = [b""]
        count = 0
        while waiting:
            prefix = waiting.pop()
            with os.scandir(base + prefix) as found:
                for entry in found:
                    name = prefix + entry.name
                    if entry.name in OWN_FOLDERS:
                        continue
                    if entry.is_dir(follow_symlinks=False):
                        if not _is_repository(base + name):
                            waiting.append(name + b"/")
                    elif entry.is_symlink() or entry.is_file(follow_symlinks=False):
                        yield name
                        count += 1
                        if count > FILES_MAX:
                            raise _too_many(self._root)


class _Folders:
    """Remembers which folders below a base are real ones, reached through no link."""

    def __init__(self, base: bytes) -> None:
        self._base = base
        self._known: dict[bytes, bool] = {b"": True}

    def is_real(self, folder: bytes) -> bool:
        chain = []
        while folder not in self._known:
            chain.append(folder)
            folder = os.path.dirname(folder)
        real = self._known[folder]
        for inner in reversed(chain):
            real = real and _is_folder(self._base + inner)
            self._known[inner] = real
        return real


def _is_folder(path: bytes) -> bool:
    try:
        return stat.S_ISDIR(os.lstat(path).st_mode)
    except OSError:
        return False


def _is_repository(folder: bytes) -> bool:
    """Whether `.git` is there in one of its two forms: a folder with a HEAD, or a file that names one."""
    dot_git = os.path.join(folder, b".git")
    if os.path.isfile(dot_git):
        return True
    return os.path.lexists(os.path.join(dot_git, b"HEAD"))


def _is_own(name: bytes) -> bool:
    return b".fencepost" in name and not OWN_FOLDERS.isdisjoint(name.split(b"/"))


def _decoded(names: Iterable[bytes]) -> tuple[str, ...]:
    """Names as text in bytewise order; those that are not UTF-8 are refused together."""
    good: list[bytes] = []
    bad: list[bytes] = []
    for name in names:
        try:
            name.decode("utf-8")
            good.append(name)
        except UnicodeDecodeError:
            bad.append(name)
    if bad:
        bad.sort()
        shown = ", ".join(disk.printable(name) for name in bad[:_NAMES_SHOWN])
        more = f" and {len(bad) - _NAMES_SHOWN} more" if len(bad) > _NAMES_SHOWN else ""
        raise RepositoryError(
            "bad_path_name",
            f"file names that are not UTF-8 cannot be pinned: {shown}{more}",
            next_step="rename these files, or let git ignore them",
        )
    return tuple(name.decode("utf-8") for name in sorted(good))


def _environment() -> dict[str, str]:
    """What git gets: the caller's environment without git's own variables, in the C locale."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("GIT_", "LC_", "LANG"))}
    return {**kept, "LC_ALL": "C", "GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0"}


def _git_error(command: str, folder: bytes, code: int, stderr: bytes) -> RepositoryError:
    said = disk.printable(b"; ".join(stderr.strip().split(b"\n")[:3]))
    place = disk.printable(folder)
    if b"dubious ownership" in stderr or b"unsafe repository" in stderr:
        return RepositoryError(
            "git_refused",
            f"git refuses {place}, since another user owns it",
            next_step=f"own the folder, or `git config --global --add safe.directory {place.rstrip('/')}`",
        )
    return RepositoryError("git_failed", f"`git {command}` in {place} ended with {code}: {said}")


def _too_many(root: Path) -> RepositoryError:
    return RepositoryError(
        "too_many",
        f"{disk.printable(os.fsencode(root))} holds more than {FILES_MAX} files",
        next_step="let git ignore what no order needs",
    )
