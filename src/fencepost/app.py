"""The composition root: the only module that names a concrete adapter or database.

A *home* is the folder `.fencepost/`: layout number, store, artifacts, packs, keys, workspaces, locks and wake-ups.
`open_home` puts a kernel together over it; what is heavy (policy engine, keys, executor) is made when it is used.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property, partial
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, NamedTuple

from fencepost.adapters.ancestry import Mark, marks
from fencepost.adapters.authority.cedar import CedarAuthority
from fencepost.adapters.authority.keys import KeyFolder
from fencepost.adapters.clock import SystemClock
from fencepost.adapters.descriptors import free_descriptors
from fencepost.adapters.durable import place_file, storage_errors
from fencepost.adapters.entropy import SystemEntropy
from fencepost.adapters.home_files import require_files
from fencepost.adapters.ledger import FileLedger, ledger_places
from fencepost.adapters.locks import FolderLocks
from fencepost.adapters.repository import find_root, open_repository
from fencepost.adapters.threads import SystemThreads
from fencepost.adapters.wakeups import FolderWakeups
from fencepost.config import HOME_NAME
from fencepost.core.limits import FIRST_VALUES, Limits
from fencepost.kernel.kernel import STREAM, Kernel
from fencepost.kernel.read import Reader
from fencepost.ports.authority import KeyDamaged
from fencepost.ports.errors import FencepostError, PathRefused, StorageMismatch, StorageUnavailable
from fencepost.ports.journal import Stream
from fencepost.ports.repository import Repository
from fencepost.storage import sqlite
from fencepost.storage.sqlite.stops import stop, stopping_between_commits

if TYPE_CHECKING:  # what most commands do not need is loaded by those that do
    from fencepost.adapters.artifacts.pack import Packs
    from fencepost.adapters.artifacts.store import FileArtifactStore
    from fencepost.adapters.diagnosis import FileSystem, FreeSpace, ProcessLimits
    from fencepost.adapters.executors.command import CommandExecutor
    from fencepost.adapters.executors.log_reader import LogView
    from fencepost.adapters.workspace import Workspaces
    from fencepost.core.planfile import PlanDocument, PlanProblem
    from fencepost.ports.executor import Executor
    from fencepost.ports.packs import PathProblem
    from fencepost.services.callables import Callee
    from fencepost.services.means import Means
    from fencepost.services.worker import Worker

__all__ = [
    "FOLDERS",
    "HOME_NAME",
    "LAYOUT",
    "App",
    "NoHome",
    "callables_at",
    "find_home",
    "home_for",
    "inspect_inputs",
    "make_home",
    "reading",
    "repository_at",
    "stop",
    "stopping_between_commits",
]

LAYOUT = 1
LAYOUT_BYTES_MAX = 64
DESCRIPTORS_LEAST = 16  # of a store, and of a worker beside those of its jobs
DESCRIPTORS_PER_JOB = 8
FOLDERS = ("artifacts", "packs", "keys", "work", "locks", "wake")
REMOVED_S_MAX = 15.0  # within which a worker whose home was removed notices, and has stopped what it runs
REMOVED_LOOK_S = 0.2
PIDS_SHOWN_MAX = 8
_PRIVATE = 0o700


class NoHome(FencepostError):
    """There is no home here or above. Nothing was made."""

    code = "no_home"


class TooFewDescriptors(FencepostError):
    """This process may not open as many files as its worker needs. Nothing was started."""

    code = "too_few_descriptors"


class Diagnosis(NamedTuple):
    """Questions to the host; each is described in `adapters.diagnosis`."""

    boot_is_known: Callable[[], bool]
    door_folder: Callable[[Path, str, Mapping[str, str]], Path | None]
    doors_heard: Callable[[Path, str, Mapping[str, str]], int]
    file_system: Callable[[Path], FileSystem | None]
    free_space: Callable[[Path], FreeSpace]
    git_version: Callable[[], str | None]
    limits: Callable[[], ProcessLimits]
    locks_exclude: Callable[[Path], bool]
    marked_processes: Callable[[], dict[str, list[int]]]
    program_version: Callable[[str], tuple[str, str | None] | None]
    stopped_holders: Callable[[Path], tuple[tuple[int, str], ...]]
    strange_files: Callable[[Path], tuple[tuple[Path, str], ...]]
    takes_files: Callable[[Path], bool]
    tracked_below: Callable[[Path, str], tuple[str, ...]]
    umask: Callable[[], int]
    untracked_files: Callable[[Path], tuple[str, ...]]


def find_home(start: Path) -> Path | None:
    """The nearest `.fencepost/` upwards from `start`, not above the git root that `start` is in."""
    start = Path(os.path.abspath(start))
    root = find_root(start)
    for folder in (start, *start.parents):
        if (folder / HOME_NAME / "layout").is_file():
            return folder / HOME_NAME
        if folder == root:
            return None
    return None


def home_for(start: Path) -> Path:
    """Where a new home belongs: at the git root, else in the folder itself."""
    start = Path(os.path.abspath(start))
    root = find_root(start)
    return (root if root is not None else start) / HOME_NAME


def repository_at(folder: Path) -> Repository:
    """The source tree that `folder` belongs to: its git repository, else the folder itself."""
    return open_repository(find_root(folder) or folder)


def inspect_inputs(root: Path, paths: Sequence[str]) -> tuple[PathProblem, ...]:
    """What keeps files of a source tree from being pinned, as far as can be seen without reading or writing."""
    from fencepost.adapters.artifacts.pack import inspect_paths

    return inspect_paths(root, paths)


def callables_at(
    root: Path, document: PlanDocument, pinned: Sequence[Sequence[str]], tree: Sequence[str]
) -> tuple[tuple[Callee | None, ...], tuple[PlanProblem, ...]]:
    """The callables of a plan's orders as they stand in a source tree, and what keeps them from being run."""
    from fencepost.adapters.interpreter import find_interpreter, parse_module
    from fencepost.services.callables import find_callees

    find = partial(find_interpreter, root=root, search=os.environ.get("PATH", os.defpath))
    return find_callees(document, pinned, tree, find=find, parse=partial(parse_module, root))


def diagnosis() -> Diagnosis:
    """What a diagnosis may ask of the host."""
    from fencepost.adapters import diagnosis as host

    return Diagnosis(**{name: getattr(host, name) for name in Diagnosis._fields})


def layout_of(home: Path) -> str:
    """The layout that a home says it has, empty where it says none. What is no text is a layout of somebody else's."""
    path = home / "layout"
    return path.read_bytes()[:LAYOUT_BYTES_MAX].decode("utf-8", "backslashreplace").strip() if path.is_file() else ""


def make_home(home: Path) -> bool:
    """Make a home's folders and store, or complete them after a kill. Return whether it is new.

    What held keys or records is never replaced by an empty one. Raises KeyDamaged, StorageError, PathRefused.
    """
    _require_text(home)
    require_files(home)
    fresh = not (home / "layout").is_file()
    _require_kept(home, fresh=fresh)
    if fresh:
        _require_nobody(home)
    with storage_errors(home):
        home.mkdir(mode=0o755, parents=True, exist_ok=True)
        for name in FOLDERS:
            (home / name).mkdir(mode=_PRIVATE, exist_ok=True)
    if not (home / ".gitignore").is_file():
        place_file(home / ".gitignore", b"*\n")
    store_id = SystemEntropy().seed().hex()
    sqlite.create(home / "store.db", store_id, home / "locks").close()
    if fresh:
        place_file(home / "layout", f"{LAYOUT}\n".encode())
    return fresh


def _require_nobody(home: Path) -> None:
    """Where a home was removed while its worker ran, what runs there goes on until the worker notices. Nothing begins
    beside it. Raises StorageUnavailable where it does not end."""
    from fencepost.adapters.diagnosis import processes_below

    until = time.monotonic() + REMOVED_S_MAX
    while pids := processes_below(home / "work"):
        if time.monotonic() >= until:
            shown = " ".join(str(pid) for pid in pids[:PIDS_SHOWN_MAX])
            raise StorageUnavailable(
                f"programs of a home that was removed from {home} still run: a new one would run the same beside them",
                next_step=f"wait until they have ended, or end them: kill {shown}",
            )
        time.sleep(REMOVED_LOOK_S)


def _require_text(home: Path) -> None:
    """Where a home lies is written into records and documents, as text. Raises PathRefused, before anything is made."""
    try:
        str(home).encode()
    except UnicodeEncodeError as error:
        refused = PathRefused(
            f"the home's path {os.fsencode(home)!r} is not UTF-8",
            next_step="name a home whose path is UTF-8: --home DIR",
        )
        refused.code = "bad_path_name"
        raise refused from error


def _require_kept(home: Path, *, fresh: bool) -> None:
    """The folder of keys is made before the store, and the layout behind it: what is missing there was lost."""
    store, keys = home / "store.db", home / "keys"
    aside = f"mv {quote(str(home))} {quote(f'{home}.old')}"
    if not fresh and not store.exists():
        raise StorageUnavailable(
            f"{store} is missing, and this home had one: a new store would know nothing of its orders",
            next_step=f"restore it from a backup, or begin anew: {aside}; fencepost init",
        )
    if store.exists() and not keys.exists():
        raise KeyDamaged(
            f"{keys} is missing, and this store was signed for with the keys in it",
            next_step="restore the keys folder from a backup, or use a new home (--home DIR)",
        )


def _lasting(user_home: str, home: Path) -> Path | None:
    """A user's home folder, unless it is an attempt's own, which goes with the workspace and all that is in it."""
    if not user_home or Path(os.path.realpath(user_home)).is_relative_to(os.path.realpath(home / "work")):
        return None
    return Path(user_home)


@contextmanager
def reading(home: Path, scope: str) -> Iterator[Reader]:
    """A scope of a home, for reading alone: no keys, no sockets, no writer. Raises StorageError, IntegrityError."""
    if layout_of(home) != str(LAYOUT):
        raise NoHome(f"there is no home of layout {LAYOUT} at {home}", next_step="fencepost init")
    require_files(home)
    journal = sqlite.open(home / "store.db", home / "locks")
    try:
        yield Reader(journal, Stream(scope, STREAM))
    finally:
        journal.close()


class App:
    """One open home: the kernel of a scope, and everything round it. Close it when done."""

    def __init__(
        self, home: Path, *, scope: str, environment: Mapping[str, str], limits: Limits = FIRST_VALUES
    ) -> None:
        _require_text(home)
        layout = layout_of(home)
        if not layout:
            following = f"fencepost init --home {quote(str(home))}"
            raise NoHome(
                f"there is no home at {home}", next_step=f"name the folder that has it, or make one there: {following}"
            )
        if layout != str(LAYOUT):
            raise StorageMismatch(f"{home} has layout {layout}, this program has {LAYOUT}")
        _require_descriptors(0)
        require_files(home)
        self.home = home
        self.environment = dict(environment)  # os.environ decodes each value anew whenever it is asked
        entropy = SystemEntropy()
        self.threads = SystemThreads()
        journal = sqlite.open(home / "store.db", home / "locks")
        with storage_errors(home):
            self._store = _identity(home / "store.db")

        def has_records() -> bool:
            with journal.snapshot() as reads:
                return bool(reads.streams())  # whatever the scope: all of them are signed for with the same keys

        self.keys = KeyFolder(home / "keys", entropy, in_use=has_records)
        self.ledger = FileLedger(
            ledger_places(
                store_id=journal.info.store_id,
                home=home,
                environment=environment,
                user_home=_lasting(environment.get("HOME", ""), home),
            ),
            self.keys,
            home=home,
        )
        self.kernel = Kernel(
            journal=journal,
            scope=scope,
            clock=SystemClock(entropy),
            entropy=entropy,
            authority=CedarAuthority(),
            keyring=self.keys,
            ledger=self.ledger,
            wakeups=FolderWakeups(home / "wake"),
            threads=self.threads,
            limits=limits,
        )
        self.locks = FolderLocks(home / "locks")
        self._executor: CommandExecutor | None = None

    @cached_property
    def artifacts(self) -> FileArtifactStore:
        from fencepost.adapters.artifacts.store import FileArtifactStore

        return FileArtifactStore(self.home / "artifacts")

    @cached_property
    def packs(self) -> Packs:
        from fencepost.adapters.artifacts.pack import Packs

        return Packs(self.home / "packs", self.artifacts)

    @cached_property
    def workspaces(self) -> Workspaces:
        from fencepost.adapters.workspace import Workspaces

        return Workspaces(self.home, store=self.artifacts, packs=self.packs)

    @property
    def executor(self) -> Executor:
        if self._executor is None:
            from fencepost.adapters.executors.command import CommandExecutor

            self._executor = CommandExecutor()
        return self._executor

    def store_stands(self) -> bool:
        """Whether the store that this home was opened with has its name still: it is gone, or another one, where
        somebody has removed the home under it. Where nobody can say, it stands."""
        try:
            return _identity(self.home / "store.db") == self._store
        except FileNotFoundError:
            return False
        except OSError:
            return True

    def worker(self, *, jobs: int, plan: str | None = None) -> Worker:
        """Raises TooFewDescriptors."""
        _require_descriptors(jobs)
        from fencepost.services.worker import Worker

        return Worker(self.means(), jobs=jobs, plan=plan)

    def means(self) -> Means:
        from fencepost.adapters.artifacts.schema_checks import schema_checks
        from fencepost.adapters.door import SocketDoor
        from fencepost.adapters.door.place import folders_for
        from fencepost.adapters.executors.environment import attempt_environment
        from fencepost.services.means import Means

        return Means(
            kernel=self.kernel,
            executor=self.executor,
            artifacts=self.artifacts,
            workspaces=self.workspaces,
            packs=self.packs,
            door=SocketDoor(
                folders_for(self.home, self.kernel.journal.info.store_id, self.environment),
                may_return=self.store_stands,
            ),
            store_stands=self.store_stands,
            pid=os.getpid(),
            threads=self.threads,
            locks=self.locks,
            environment=partial(
                attempt_environment, base=self.environment, bin_folder=str(Path(sys.executable).parent)
            ),
            base_environment=self.environment,
            read_log=self._read_log,
            schema_checks=schema_checks,
            sweep_partials=self._sweep_partials,
        )

    def _sweep_partials(self) -> int:
        return self.artifacts.sweep_partials() + self.packs.sweep_partials()

    def log(self, path: Path) -> LogView:
        """What is kept of a command's output at `path`, at any moment of its life."""
        from fencepost.adapters.executors.log_reader import read_log

        return read_log(str(path))

    def log_tail(self, path: Path, bytes_max: int) -> tuple[int, bytes]:
        """When a command's output was last written, and its last bytes; nothing where there is none."""
        from fencepost.adapters.executors.log_reader import read_tail

        return read_tail(str(path), bytes_max)

    def attempt_around(self) -> Mark | None:
        """The attempt of this store, in any of its scopes, in whose process tree this program runs; None outside of
        all, and inside those of other stores."""
        found = marks(self.environment)
        if not found:
            return None
        names = sorted({mark.attempt for mark in found})
        with self.kernel.journal.snapshot() as reads:
            known = {name for stream in reads.streams() for name in reads.states(stream, names)}
        return next((mark for mark in found if mark.attempt in known), None)

    def close(self) -> None:
        try:
            self.kernel.close()
        finally:
            if self._executor is not None:
                self._executor.close()

    def _read_log(self, path: Path) -> tuple[int, bytes]:
        try:
            view = self.log(path)
        except FileNotFoundError:
            return 0, b""
        return view.bytes_total, view.text()


def _identity(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_dev, found.st_ino


def _require_descriptors(jobs: int) -> None:
    """Whether a store, and the attempts of a worker with their keepers and programs, find enough. Raises
    TooFewDescriptors, before anything can fail for want of them."""
    free = free_descriptors()
    needed = DESCRIPTORS_LEAST + DESCRIPTORS_PER_JOB * jobs
    if free is None or free >= needed:
        return
    fewer = (free - DESCRIPTORS_LEAST) // DESCRIPTORS_PER_JOB
    raise TooFewDescriptors(
        f"{free} more files may be opened by this process, and {f'{jobs} jobs need' if jobs else 'it needs'} {needed}",
        next_step=f"ulimit -n $(( $(ulimit -n) + {needed - free} ))" + (f", or --jobs {fewer}" if fewer > 0 else ""),
    )
