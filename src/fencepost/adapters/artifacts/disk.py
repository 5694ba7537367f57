"""What artifacts, packs and workspaces need from a disk: names, durability, copies, and who is to blame.

Rules kept here once:

- Relative paths are text (`/` between segments, UTF-8 on disk) and are handed to the system as bytes, so that
  neither `LANG=C` nor an odd locale changes a name.
- A file becomes visible under its final name only complete and synced: written under a partial name, synced,
  renamed, and then its folder is synced.
- Partial files live in a folder of the process that writes them, which holds a lock on it; a folder whose
  lock is free belonged to a process that is gone and is swept by the next one.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import secrets
import stat
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from fencepost.ports.artifacts import SourceChanged
from fencepost.ports.errors import (
    ContentTooLarge,
    IntegrityError,
    PathRefused,
    StorageError,
    StorageFull,
    StorageUnavailable,
)

CHUNK_BYTES: Final = 1024 * 1024
SYNC_THREADS: Final = 8
PATH_BYTES_MAX: Final = 4_000  # exclusive, of a relative path
SWEPT_SESSIONS_MAX: Final = 1_000

_FICLONE: Final = 0x40049409  # linux/fs.h; other systems answer ENOTTY or EINVAL and get a plain copy
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_HEX: Final = frozenset("0123456789abcdef")


def storage_error(error: OSError, doing: str) -> StorageError:
    """The typed error for a failed call to the system; `doing` is a gerund and names the file."""
    if error.errno in _FULL:
        return StorageFull(
            f"no space left while {doing}: {error.strerror}",
            next_step="free space or raise the quota, then run again",
        )
    return StorageUnavailable(f"{doing} failed: {error.strerror or error}", next_step="see `fencepost doctor`")


@contextlib.contextmanager
def storage_errors(doing: str) -> Iterator[None]:
    """Turn every `OSError` of the block into a `StorageError`."""
    try:
        yield
    except OSError as error:
        raise storage_error(error, doing) from error


def hex_of(digest: str) -> str:
    """The 64 hex digits of a digest; anything else is a broken program."""
    if len(digest) != 71 or not digest.startswith("sha256:") or not _HEX.issuperset(digest[7:]):
        raise ValueError(f"not a digest: {digest[:80]!r}")
    return digest[7:]


def digest_of(data: bytes) -> str:
    return "sha256:" + hashlib.sha256(data).hexdigest()


def native(root: Path, path: str) -> bytes:
    """The system's name of a relative path below `root`."""
    return os.fsencode(root) + b"/" + path.encode("utf-8")


def printable(name: bytes | str) -> str:
    """A name that any terminal, record and encoding can show; at most 200 characters."""
    text = name.decode("utf-8", "backslashreplace") if isinstance(name, bytes) else name
    text = text.encode("utf-8", "backslashreplace").decode("utf-8")
    shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)
    return shown if len(shown) <= 200 else shown[:199] + "…"


def path_problem(path: str) -> str | None:
    """Why a relative path cannot be stored, or None. The form: non-empty segments joined by `/`, none of them
    `.` or `..`, no NUL, Unicode scalar values only, fewer than `PATH_BYTES_MAX` bytes."""
    try:
        size = len(path.encode("utf-8"))
    except UnicodeEncodeError:
        return "is not valid UTF-8"
    if not 0 < size < PATH_BYTES_MAX:
        return f"is empty or has {PATH_BYTES_MAX} bytes or more"
    if "\0" in path:
        return "contains NUL"
    if any(segment in ("", ".", "..") for segment in path.split("/")):
        return "is not a plain relative path"
    return None


def link_leaves(path: str, target: str) -> bool:
    """Whether a link at `path` leads out of the tree by its text alone; `path` must be a plain relative
    path."""
    if target.startswith("/") or not target or "\0" in target:
        return True
    depth = path.count("/")
    for segment in target.split("/"):
        if segment == "..":
            depth -= 1
            if depth < 0:
                return True
        elif segment not in ("", "."):
            depth += 1
    return False


def real_path_leaves(root: bytes, path: bytes) -> bool:
    """Whether `path`, with every link on the way followed, is outside `root` (which must be real itself)."""
    real = os.path.realpath(path)
    return real != root and not real.startswith(root.rstrip(b"/") + b"/")


def sync_file(path: str | bytes | Path) -> None:
    """Make a file's content, or a folder's entries, survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_all(paths: Iterable[str | bytes | Path]) -> None:
    """Sync each path; many at once share the disk's commits. The first error is raised after all have
    ended."""
    listed = list(paths)
    if len(listed) <= SYNC_THREADS:
        for path in listed:
            sync_file(path)
        return
    with ThreadPoolExecutor(SYNC_THREADS, thread_name_prefix="sync") as pool:
        for _ in pool.map(sync_file, listed):
            pass


def make_folder(path: Path, mode: int = 0o700) -> None:
    """Make a folder and its missing parents, each durably entered in its parent."""
    if path.is_dir():
        return
    make_folder(path.parent, mode)
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=mode)
    sync_file(path.parent)


def write_all(descriptor: int, data: bytes | memoryview) -> None:
    """Write every byte; the system may take fewer at a time."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def try_clone(source: int, target: int) -> bool:
    """Let `target` share the blocks of `source`. False where the file system cannot."""
    try:
        fcntl.ioctl(target, _FICLONE, source)
    except OSError as error:
        if error.errno in _FULL:
            raise
        return False
    return True


def open_beneath(root: int, path: str) -> int:
    """Open a file below the folder `root` for reading, following no link on the way and waiting for
    nobody."""
    *folders, name = path.split("/")
    here = root
    try:
        for segment in folders:
            inner = os.open(
                segment.encode("utf-8"),
                os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC,
                dir_fd=here,
            )
            if here != root:
                os.close(here)
            here = inner
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        return os.open(name.encode("utf-8"), flags, dir_fd=here)
    finally:
        if here != root:
            os.close(here)


def _mark(status: os.stat_result) -> tuple[int, int, int]:
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns


def read_steadily(
    descriptor: int,
    *,
    name: str,
    bytes_max: int,
    consume: Callable[[bytes], object],
    between: Callable[[], None] | None = None,
) -> tuple[str, int]:
    """Read a regular file from its start to its end in pieces and return its digest and size.

    `between` is called before each piece, and ends the reading with what it raises. Raises `PathRefused` (no regular
    file), `ContentTooLarge`, `SourceChanged` (size or times moved meanwhile).
    """
    before = os.fstat(descriptor)
    if not stat.S_ISREG(before.st_mode):
        raise PathRefused(f"{printable(name)} is not a regular file")
    if before.st_size > bytes_max:
        raise ContentTooLarge(f"{printable(name)} has {before.st_size} bytes, at most {bytes_max} are kept")
    digest = hashlib.sha256()
    size = 0
    while size < before.st_size:
        if between is not None:
            between()
        piece = os.pread(descriptor, min(CHUNK_BYTES, before.st_size - size), size)
        if not piece:
            break
        size += len(piece)
        digest.update(piece)
        consume(piece)
    if size != before.st_size or _mark(before) != _mark(os.fstat(descriptor)):
        raise SourceChanged(
            f"{printable(name)} changed while it was read", next_step="run again when nothing writes to it"
        )
    return "sha256:" + digest.hexdigest(), size


def copy_range(source: int, target: int, *, digest: str, offset: int, size: int, name: str) -> None:
    """Copy `size` bytes at `offset` to the current place of `target`, verified against `digest`."""
    seen = hashlib.sha256()
    done = 0
    while done < size:
        piece = os.pread(source, min(CHUNK_BYTES, size - done), offset + done)
        if not piece:
            break
        seen.update(piece)
        write_all(target, piece)
        done += len(piece)
    if "sha256:" + seen.hexdigest() != digest:
        raise IntegrityError(f"{name}: the stored bytes do not have the digest {digest}")


class Partials:
    """Partial files of this process in a folder of its own below `folder`.

    The folder's lock lives as long as the process; `close()` gives it back earlier. A forked child shares the
    lock and makes names of its own.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._session: Path | None = None
        self._lock = -1
        self._count = 0
        self._mutex = threading.Lock()

    def new_path(self) -> Path:
        """A name that no file has, in a folder that exists."""
        with self._mutex:
            if self._session is None or not self._session.is_dir():
                self._session = self._begin()
            self._count += 1
            return self._session / f"{os.getpid()}-{self._count}-{secrets.token_hex(4)}"

    def _begin(self) -> Path:
        make_folder(self.folder)
        self.close()
        for _ in range(100):
            session = self.folder / secrets.token_hex(8)
            session.mkdir(mode=0o700)
            # A sweeper may take the new folder for an abandoned one as long as it is not locked.
            try:
                lock = os.open(session, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            except FileNotFoundError:
                continue
            fcntl.flock(lock, fcntl.LOCK_EX)
            if session.is_dir():
                self._lock = lock
                return session
            os.close(lock)
        raise StorageUnavailable(f"no partial folder can be kept in {self.folder}")

    def close(self) -> None:
        """Give the folder up; what is left in it goes with the next sweep."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1
        self._session = None

    def sweep(self) -> int:
        """Remove the partial files of processes that are gone; returns how many files went."""
        removed = 0
        try:
            sessions = sorted(os.listdir(self.folder))[:SWEPT_SESSIONS_MAX]
        except FileNotFoundError:
            return 0
        for name in sessions:
            removed += self._sweep_session(self.folder / name)
        return removed

    def _sweep_session(self, session: Path) -> int:
        if session == self._session:
            return 0
        try:
            lock = os.open(session, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except (FileNotFoundError, NotADirectoryError):
            return 0
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            names = os.listdir(session)
            for name in names:
                os.unlink(session / name)
            os.rmdir(session)
            return len(names)
        except (BlockingIOError, FileNotFoundError):
            return 0  # its owner lives, or another sweeper was faster
        finally:
            os.close(lock)
