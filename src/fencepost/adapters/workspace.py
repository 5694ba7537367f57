"""The folder of an attempt: laid out from pinned inputs, read back for declared outputs, removed afterwards.

    work/<attempt>/workspace/    exactly the pinned inputs, and the attempt's working directory
    work/<attempt>/home/ tmp/    HOME and TMPDIR
    work/<attempt>/params.json   where the order has params
    work/<attempt>/checkpoint    where an earlier attempt left one
    work/<attempt>/logs/         what the executor keeps of stdout and stderr
    work/<attempt>.verify/       the same folders for the verifier, made anew: it shares nothing with the attempt
    work/.trash/                 what is being removed

Nothing here is durable: a workspace is made again rather than recovered. What an attempt leaves is foreign:
it is read without following links, within bounds, and what cannot be kept is a typed problem and never an
exception. An attempt is collected only after its processes have ended.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import stat
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Final, Literal

from fencepost.adapters.artifacts import disk
from fencepost.adapters.artifacts.manifest import PERMISSIONS
from fencepost.adapters.artifacts.outputs import CollectLimits, Collector
from fencepost.adapters.artifacts.pack import Packs
from fencepost.adapters.durable import place_file
from fencepost.adapters.executors import foreign
from fencepost.ports.artifacts import ArtifactStore, Classification, SourceChanged
from fencepost.ports.errors import ContentTooLarge, PathRefused, StorageError, WorkspaceGone
from fencepost.ports.workspace import NOTE_BYTES_MAX, Collected, Inputs, Output, OutputProblem, Swept, Workspace

ATTEMPTS_LISTED_MAX: Final = 100_000

_ATTEMPT: Final = re.compile(r"[a-z]{1,16}_[0-9a-f]{32}")
_ROOT_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_VERIFIER: Final = ".verify"
_LATE: Final = ".late.verify"
_NOTE: Final = ".note"
_HALF_NOTE: Final = re.compile(rf"\.({_ATTEMPT.pattern})\.note\.[0-9a-f]+\.new")
"""The name under which `place_file` writes a note, which stays where its worker is killed meanwhile."""
_FOLDERS: Final = ("workspace", "home", "tmp", "logs")
_TRASH: Final = ".trash"


class Workspaces:
    """The folder `work/` of a home."""

    def __init__(self, home: Path, *, store: ArtifactStore, packs: Packs, limits: CollectLimits | None = None) -> None:
        self.folder = Path(os.path.abspath(home)) / "work"
        self._store = store
        self._packs = packs
        self._limits = limits or CollectLimits()

    def prepare(
        self, *, attempt: str, inputs: Inputs, params: bytes | None = None, checkpoint: str | None = None
    ) -> Workspace:
        """Lay out the folder of an attempt, anew if a killed worker had begun it.

        A handed file may stand where a pinned one does only with the same bytes and mode; else `PathRefused`.
        Also raises what `Packs.materialize` and `ArtifactStore.copy_to` raise; then there is no folder.
        """
        base = self._base(attempt)
        self.discard(attempt)
        try:
            with disk.storage_errors(f"preparing the workspace of {attempt}"):
                base.mkdir(mode=0o700, parents=True)
                for name in _FOLDERS:
                    (base / name).mkdir(mode=0o700)
                if params is not None:
                    (base / "params.json").write_bytes(params)
                if checkpoint is not None:
                    self._store.copy_to(checkpoint, base / "checkpoint", 0o600)
                self._lay_out(base / "workspace", inputs)
        except BaseException:
            self.discard(attempt)
            raise
        return self.find(attempt)

    def find(self, attempt: str) -> Workspace:
        """The folders of an attempt, whether they exist or not."""
        base = self._base(attempt)
        return _folders(attempt, base, _plain(base / "params.json"), _plain(base / "checkpoint"))

    def find_verifier(self, attempt: str, *, late: bool = False) -> Workspace:
        """The folders of an attempt's verifier, or of its `late` one, whether they exist or not."""
        return _folders(attempt, self._verifier(attempt, late=late), None)

    def collect(
        self, workspace: Workspace, declared: Callable[[str], bool], *, classification: Classification
    ) -> Collected:
        """Store the files of a workspace whose path is `declared`, behind one barrier.

        Unchanged inputs count like any file. A link to a regular file inside is taken as that file; one that
        leaves the tree is a problem; other links are no files. Raises `StorageError` only.
        """
        with disk.storage_errors(f"collecting the outputs of {workspace.attempt}"):
            try:
                root = _opened(workspace)
            except WorkspaceGone as gone:
                problem = OutputProblem(code="unreadable", path="", message=gone.message)
                return Collected(outputs=(), problems=(problem,))
            try:
                collector = Collector(root, os.path.realpath(os.fsencode(workspace.path)), self._limits)
                wanted = collector.find(declared)
                if collector.within_bounds(wanted):
                    with self._store.batch() as batch:
                        collector.keep(wanted, batch, classification)
            finally:
                os.close(root)
        return Collected(outputs=tuple(collector.outputs), problems=tuple(collector.problems))

    def keep(
        self, workspace: Workspace, path: str, *, classification: Classification, between: Callable[[], None]
    ) -> Output | OutputProblem:
        """Store one file of a workspace whose programs go on; see the port."""
        problem = disk.path_problem(path)
        if problem is not None:
            return _problem("bad_path_name" if ".." not in path.split("/") else "path_outside", path, problem)
        with disk.storage_errors(f"keeping a file of {workspace.attempt}"):
            root = _opened(workspace)
            try:
                return self._keep_one(root, path, classification, between)
            finally:
                os.close(root)

    def _keep_one(
        self, root: int, path: str, classification: Classification, between: Callable[[], None]
    ) -> Output | OutputProblem:
        try:
            descriptor = disk.open_beneath(root, path)
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENOTDIR, errno.ENXIO):
                return _problem("not_regular", path, "it is no regular file, or a link leads to it")
            code = "no_file" if error.errno == errno.ENOENT else "unreadable"
            return _problem(code, path, error.strerror or "it cannot be opened")
        try:
            executable = os.fstat(descriptor).st_mode & stat.S_IXUSR
            stored = self._store.put_descriptor(
                descriptor,
                name=path,
                classification=classification,
                bytes_max=self._limits.file_bytes_max,
                between=between,
            )
        except (SourceChanged, ContentTooLarge, PathRefused) as error:
            code = "not_regular" if isinstance(error, PathRefused) else error.code
            return _problem(code, path, error.message)
        finally:
            os.close(descriptor)
        mode: Literal["0644", "0755"] = "0755" if executable else "0644"
        return Output(path=path, mode=mode, digest=stored.digest, bytes=stored.bytes)

    def read_left(self, workspace: Workspace, name: str, *, bytes_max: int) -> bytes | None:
        """See the port."""
        try:
            folder = foreign.open_folder(os.fspath(workspace.logs))
            try:
                return foreign.read_regular(name, folder=folder, bytes_max=bytes_max)
            finally:
                os.close(folder)
        except OSError:
            return None

    def read_note(self, attempt: str) -> bytes | None:
        """See the port."""
        try:
            return foreign.read_regular(str(self._note(attempt)), bytes_max=NOTE_BYTES_MAX)
        except OSError:
            return None

    def keep_note(self, attempt: str, note: bytes) -> None:
        """See the port."""
        if len(note) > NOTE_BYTES_MAX:
            raise ValueError(f"a note of {len(note)} bytes, at most {NOTE_BYTES_MAX} are kept")
        with disk.storage_errors(f"keeping a note of {attempt}"):
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            place_file(self._note(attempt), note)

    def list_files(self, workspace: Workspace) -> tuple[str, ...]:
        """See the port."""
        with disk.storage_errors(f"looking through the workspace of {workspace.attempt}"):
            root = _opened(workspace)
            try:
                collector = Collector(root, os.path.realpath(os.fsencode(workspace.path)), self._limits)
                return collector.names()
            finally:
                os.close(root)

    def prepare_verifier(
        self, attempt: str, *, inputs: Inputs, outputs: Sequence[Output], late: bool = False
    ) -> Workspace | tuple[OutputProblem, ...]:
        """Fresh folders whose tree holds the inputs and then the outputs, and nothing else that the attempt's command
        could reach; or why not: an output that differs from an input at the same path, or clashes with a folder of
        the inputs, is `covers_pinned`."""
        base = self._verifier(attempt, late=late)
        tree = base / "workspace"
        self._remove(base)
        problems: list[OutputProblem] = []
        with disk.storage_errors(f"preparing the verifier of {attempt}"):
            base.mkdir(mode=0o700, parents=True)
            for name in _FOLDERS:
                (base / name).mkdir(mode=0o700)
            pinned = self._lay_out(tree, inputs)
            for output in outputs:
                known = pinned.get(output.path)
                if known == (output.digest, output.mode):
                    continue
                clash = known is not None
                if not clash:
                    try:
                        self._place(tree, output.path, output.digest, output.mode)
                    except PathRefused:
                        clash = True
                if clash:
                    message = "the output would take the place of a pinned input, which a verifier relies on"
                    shown = disk.printable(output.path)
                    problems.append(OutputProblem(code="covers_pinned", path=shown, message=message))
        if problems:
            self._remove(base)
            return tuple(problems[: self._limits.problems_max])
        return _folders(attempt, base, None)

    def discard(self, attempt: str) -> None:
        """Remove all that an attempt left, whatever modes it gave to its files. Nothing there is fine."""
        self._remove(self._base(attempt))
        self._remove(self._verifier(attempt))
        self._remove(self._verifier(attempt, late=True))
        self._remove(self._note(attempt))

    def list_attempts(self) -> tuple[str, ...]:
        """The attempts that have a folder or a note, also half a one, in order of their ids."""
        try:
            names = os.listdir(self.folder)
        except FileNotFoundError:
            return ()
        attempts = {name.removesuffix(_LATE).removesuffix(_VERIFIER).removesuffix(_NOTE) for name in names}
        attempts.update(half[1] for name in names if (half := _HALF_NOTE.fullmatch(name)))
        return tuple(sorted(name for name in attempts if _ATTEMPT.fullmatch(name))[:ATTEMPTS_LISTED_MAX])

    def sweep(self, *, among: Sequence[str], keep: Collection[str]) -> Swept:
        """Remove the folders of `among` without those of `keep`, and what a killed removal or note left.

        `among` must come from `list_attempts()` before `keep` is read from the journal: an attempt activated
        in between is then in neither, and its fresh workspace stays.
        """
        removed: list[str] = []
        failed: list[tuple[str, str]] = []
        for attempt in among:
            if attempt in keep:
                continue
            try:
                self.discard(attempt)
                removed.append(attempt)
            except StorageError as error:
                failed.append((attempt, error.message))
        failed += self._sweep_half_notes(set(among).difference(keep))
        trash = self.folder / _TRASH
        for name in os.listdir(trash) if trash.is_dir() else ():
            try:
                _remove_tree(trash / name, trash)
            except OSError as error:
                failed.append((name, str(error)))
        return Swept(removed=tuple(removed), failed=tuple(failed))

    def _sweep_half_notes(self, attempts: Collection[str]) -> list[tuple[str, str]]:
        """Remove what a killed worker has begun to write of notes; returns (name, why) of those that stay."""
        failed: list[tuple[str, str]] = []
        for name in os.listdir(self.folder) if attempts else ():
            half = _HALF_NOTE.fullmatch(name)
            if half is not None and half[1] in attempts:
                try:
                    (self.folder / name).unlink(missing_ok=True)
                except OSError as error:
                    failed.append((name, str(error)))
        return failed

    def _base(self, attempt: str) -> Path:
        if not _ATTEMPT.fullmatch(attempt):
            raise ValueError(f"not an attempt id: {attempt[:80]!r}")
        return self.folder / attempt

    def _verifier(self, attempt: str, *, late: bool = False) -> Path:
        return self._base(attempt).with_name(attempt + (_LATE if late else _VERIFIER))

    def _note(self, attempt: str) -> Path:
        return self._base(attempt).with_name(attempt + _NOTE)

    def _lay_out(self, tree: Path, inputs: Inputs) -> dict[str, tuple[str, str]]:
        """Lay out inputs in an empty folder; returns path -> (digest, mode)."""
        placed: dict[str, tuple[str, str]] = {}
        for digest in inputs.manifests:
            manifest = self._packs.materialize(digest, tree)
            placed.update({entry.path: (entry.digest, entry.mode) for entry in manifest.entries})
        for handed in inputs.handed:
            known = placed.get(handed.path)
            if known == (handed.digest, handed.mode):
                continue
            if known is not None:
                raise PathRefused(
                    f"{disk.printable(handed.path)} comes from another order and is pinned otherwise",
                    next_step="leave it out of the patterns, or give the output another path",
                )
            self._place(tree, handed.path, handed.digest, handed.mode)
            placed[handed.path] = (handed.digest, handed.mode)
        return placed

    def _place(self, tree: Path, path: str, digest: str, mode: str) -> None:
        """Put an artifact at a path of a tree; `PathRefused` if something is in the way or the path leaves
        it."""
        problem = disk.path_problem(path)
        if problem is not None:
            raise PathRefused(f"the path {disk.printable(path)} {problem}")
        root = os.path.realpath(os.fsencode(tree))
        target = disk.native(tree, path)
        try:
            os.makedirs(os.path.dirname(target), 0o755, exist_ok=True)
        except (FileExistsError, NotADirectoryError):
            raise PathRefused(f"{disk.printable(path)} needs a folder where a file is") from None
        if disk.real_path_leaves(root, os.path.dirname(target)) or os.path.lexists(target):
            raise PathRefused(f"{disk.printable(path)} is taken or leaves its folder")
        self._store.copy_to(digest, Path(os.fsdecode(target)), PERMISSIONS[mode])

    def _remove(self, path: Path) -> None:
        trash = self.folder / _TRASH
        with disk.storage_errors(f"removing {disk.printable(os.fsencode(path))}"):
            try:
                status = os.lstat(path)
            except FileNotFoundError:
                return
            trash.mkdir(mode=0o700, parents=True, exist_ok=True)
            # One rename takes the folder away; the rest may be finished by a later sweep.
            doomed = trash / f"{path.name}.{secrets.token_hex(4)}"
            try:
                if stat.S_ISDIR(status.st_mode):
                    os.chmod(path, 0o700)
                os.rename(path, doomed)
            except FileNotFoundError:
                return  # another removal was first
            _remove_tree(doomed, trash)


def _plain(path: Path) -> Path | None:
    return path if path.is_file() and not path.is_symlink() else None


def _opened(workspace: Workspace) -> int:
    """Raises WorkspaceGone for what the attempt's own program has done to its folder, and OSError."""
    try:
        return os.open(os.fsencode(workspace.path), _ROOT_FLAGS)
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EACCES):
            raise
        message = "the workspace is no folder any more: the command has moved, removed or replaced it"
        raise WorkspaceGone(message, next_step="leave it where it is: files are taken from there") from None


def _problem(code: str, path: str, message: str) -> OutputProblem:
    return OutputProblem(code=code, path=disk.printable(path), message=message)


def _folders(attempt: str, base: Path, params: Path | None, checkpoint: Path | None = None) -> Workspace:
    return Workspace(
        attempt=attempt,
        path=base / "workspace",
        home=base / "home",
        tmp=base / "tmp",
        logs=base / "logs",
        params_path=params,
        checkpoint_path=checkpoint,
    )


def _remove_tree(doomed: Path, trash: Path) -> None:
    """Remove a file or a tree that is in `trash`.

    Inner folders are moved up into `trash` before they are emptied, so that no depth and no length of a path
    is too great, and a killed removal is found again. Two removals of one tree help each other.
    """
    if not doomed.is_dir() or doomed.is_symlink():
        with contextlib.suppress(FileNotFoundError):
            os.unlink(doomed)
        return
    waiting = [os.fsencode(doomed)]
    while waiting:
        folder = waiting.pop()
        with contextlib.suppress(FileNotFoundError):
            os.chmod(folder, 0o700)
            waiting += _empty(folder, os.fsencode(trash))
            os.rmdir(folder)


def _empty(folder: bytes, trash: bytes) -> list[bytes]:
    """Unlink what is in `folder` and move its folders into `trash`; returns their new names."""
    moved: list[bytes] = []
    with os.scandir(folder) as entries:
        for entry in list(entries):
            with contextlib.suppress(FileNotFoundError):
                if not entry.is_dir(follow_symlinks=False):
                    os.unlink(entry.path)
                    continue
                os.chmod(entry.path, 0o700)
                name = os.path.join(trash, b"inner." + secrets.token_hex(8).encode("ascii"))
                os.rename(entry.path, name)
                moved.append(name)
    return moved
