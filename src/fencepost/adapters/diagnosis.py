"""What a diagnosis asks of the host: rights, space, file systems, limits, git, and who carries an attempt's marker."""

from __future__ import annotations

import fcntl
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from fencepost.adapters.clock import host_boot_id
from fencepost.adapters.door.place import answers_at, folder_that_would_do, folders_for
from fencepost.adapters.executors.tree import MARKER, children_of
from fencepost.adapters.home_files import strangers
from fencepost.adapters.repository import GitRepository

PROGRAM_TIMEOUT_S = 10
MOUNTS_BYTES_MAX = 4 * 2**20
STATUS_BYTES_MAX = 64 * 2**10
_MOUNTS = Path("/proc/self/mountinfo")
_LOCKS = Path("/proc/locks")
LOCKS_BYTES_MAX = 4 * 2**20
_STATUS = Path("/proc/self/status")
# Locks or shared memory of these do not reach every host that mounts them, or not as SQLite needs them.
_NETWORK = ("nfs", "cifs", "smb", "9p", "afs", "ceph", "gluster", "lustre", "beegfs", "gpfs", "pvfs", "ocfs", "gfs")
_NETWORK_FUSE = ("sshfs", "s3fs", "gcsfuse", "rclone", "glusterfs", "davfs", "goofys", "juicefs", "curlftpfs", "moose")


class FileSystem(NamedTuple):
    """What a folder lies on. `kind` is the kernel's name for it."""

    kind: str
    read_only: bool
    noexec: bool

    @property
    def is_network(self) -> bool:
        fuse = self.kind.removeprefix("fuse.") if self.kind.startswith("fuse.") else ""
        return self.kind.startswith(_NETWORK) or fuse.startswith(_NETWORK_FUSE)


class ProcessLimits(NamedTuple):
    """Files that may be open at once, and bytes that a file may have; None is without limit."""

    descriptors: int | None
    file_bytes: int | None


def takes_files(folder: Path) -> bool:
    """Whether a file can be made in `folder`, by making one."""
    try:
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


class FreeSpace(NamedTuple):
    """What this user can still make, and what there is at all; files None where they are not counted."""

    free_bytes: int
    free_files: int | None
    all_bytes: int


def free_space(folder: Path) -> FreeSpace:
    """Where `folder` lies."""
    found = os.statvfs(folder)
    files = found.f_favail if found.f_files else None
    return FreeSpace(found.f_bavail * found.f_frsize, files, found.f_blocks * found.f_frsize)


def file_system(folder: Path, mounts: Path = _MOUNTS) -> FileSystem | None:
    """What `folder` lies on, None where the host does not say. Flags are those of the mount, and of what it mounts."""
    flags = os.statvfs(folder).f_flag
    kind = _mounted_kind(os.path.realpath(folder), mounts)
    if kind is None:
        return None
    return FileSystem(kind=kind, read_only=bool(flags & os.ST_RDONLY), noexec=bool(flags & getattr(os, "ST_NOEXEC", 8)))


def _mounted_kind(path: str, mounts: Path) -> str | None:
    """The kind of the mount that is nearest above a real path; of several at one place the last one holds."""
    try:
        with mounts.open("rb") as file:
            lines = file.read(MOUNTS_BYTES_MAX).decode("utf-8", "surrogateescape").splitlines()
    except OSError:
        return None
    best, kind = -1, None
    for line in lines:
        left, _, right = line.partition(" - ")
        words = left.split(" ")
        if len(words) < 5 or not right:
            continue
        place = words[4].replace("\\040", " ").replace("\\011", "\t").replace("\\012", "\n").replace("\\134", "\\")
        inside = path == place or path.startswith(place.rstrip("/") + "/")
        if inside and len(place) >= best:
            best, kind = len(place), right.split(" ")[0]
    return kind


def limits() -> ProcessLimits:
    """The soft limits of this process."""
    descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    file_bytes = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    return ProcessLimits(
        descriptors=None if descriptors == resource.RLIM_INFINITY else descriptors,
        file_bytes=None if file_bytes == resource.RLIM_INFINITY else file_bytes,
    )


def locks_exclude(folder: Path) -> bool:
    """Whether a lock on a file in `folder` keeps a second holder out. Raises OSError where no file can be made."""
    with tempfile.NamedTemporaryFile(dir=folder, prefix="doctor.") as first, open(first.name, "rb") as second:
        try:
            fcntl.flock(first.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        try:
            fcntl.flock(second.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:
            return False
    return False


def umask() -> int:
    """This process's umask, without changing it where the host tells it."""
    try:
        with _STATUS.open("rb") as file:
            lines = file.read(STATUS_BYTES_MAX).splitlines()
    except OSError:
        lines = []
    for line in lines:
        if line.startswith(b"Umask:"):
            return int(line.split()[1], 8)
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def door_folder(home: Path, store_id: str, environment: Mapping[str, str]) -> Path | None:
    """The folder in which a worker's socket would stand, by `place`, which makes none; None where none takes it."""
    return folder_that_would_do(folders_for(home, store_id, environment))


def boot_is_known() -> bool:
    """Whether the kernel tells one boot of this host from another."""
    return host_boot_id() is not None


def git_version() -> str | None:
    """What `git --version` says, None where there is no git that works."""
    return _version_of("git")


def program_version(name: str) -> tuple[str, str | None] | None:
    """Where `name` is on PATH and what it says to `--version`, None where there is none."""
    path = shutil.which(name)
    return None if path is None else (path, _version_of(path))


def _version_of(program: str) -> str | None:
    try:
        done = subprocess.run(
            [program, "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=PROGRAM_TIMEOUT_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip().partition("\n")[0][:200]


def tracked_below(root: Path, name: str) -> tuple[str, ...]:
    """Files below the folder `name` that the git repository at `root` tracks. Raises RepositoryError."""
    return GitRepository(root).listed("--cached", name)


def untracked_files(root: Path) -> tuple[str, ...]:
    """Files of the git repository at `root` that git neither tracks nor ignores. Raises RepositoryError."""
    return GitRepository(root).listed("--others")


def strange_files(home: Path) -> tuple[tuple[Path, str], ...]:
    """What stands in a home in the place of a file, and what it is."""
    return tuple(strangers(home, locks=True))


def stopped_holders(folder: Path) -> tuple[tuple[int, str], ...]:
    """Processes that are stopped and hold a lock in `folder`, each with what it is to the home (Linux only).

    Children of a worker count too: one of them begins its attempts. Attempts' own locks do not: whoever supervises an
    attempt ends it in time.
    """
    try:
        held = _LOCKS.read_bytes()[:LOCKS_BYTES_MAX].decode("ascii", "replace")
    except OSError:
        return ()
    names = {}
    for path in folder.iterdir():
        try:
            found = path.stat()
        except FileNotFoundError:
            continue  # whoever held it has gone
        names[f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"] = path.name
    stopped = []
    for line in held.splitlines():
        words = line.split()
        name = names.get(words[5], "") if len(words) > 5 and words[1] == "FLOCK" else ""
        if not name or name.startswith("attempt_") or not words[4].isdigit():
            continue
        pid = int(words[4])
        if _is_stopped(pid):
            stopped.append((pid, f"holds {name}"))
        elif name.startswith("worker_"):
            stopped += [
                (child, f"begins the attempts of process {pid}") for child in children_of(pid) if _is_stopped(child)
            ]
    return tuple(dict.fromkeys(stopped))


def _is_stopped(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] in (b"T", b"t")
    except OSError:
        return False


def marked_processes() -> dict[str, list[int]]:
    """Attempt -> processes whose environment carries its marker, as far as this user may read it (Linux only)."""
    found: dict[str, list[int]] = {}
    for pid, attempt in _carriers(MARKER):
        found.setdefault(attempt, []).append(pid)
    return found


def processes_below(work: Path) -> tuple[int, ...]:
    """Processes of attempts that were given a workspace below `work`, whether it is still there or not (Linux only)."""
    here = os.path.realpath(work) + os.sep
    return tuple(pid for pid, path in _carriers("FENCEPOST_WORKSPACE") if os.path.realpath(path).startswith(here))


def _carriers(variable: str) -> Iterator[tuple[int, str]]:
    """Other processes with this variable in their environment as it was when they began, and its value."""
    if sys.platform != "linux":
        return
    start = f"{variable}=".encode()
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        try:
            environment = Path(f"/proc/{name}/environ").read_bytes()
        except OSError:
            continue  # it has ended, or belongs to another user
        for entry in environment.split(b"\0"):
            if entry.startswith(start):
                yield int(name), entry[len(start) :].decode("utf-8", "surrogateescape")


def doors_heard(home: Path, store_id: str, environment: Mapping[str, str]) -> int:
    """How many workers of a home can be spoken to by programs that begin now."""
    return answers_at(folders_for(home, store_id, environment))
