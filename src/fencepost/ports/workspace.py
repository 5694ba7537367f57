"""The workspace port: the folders that one attempt works in, laid out from pinned inputs and read back.

Nothing here is durable but what `collect` has stored. What an attempt leaves is foreign: it is read without following
links and within bounds, and what cannot be kept is a typed problem, never an exception.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Literal, Protocol

import msgspec

from fencepost.ports.artifacts import Classification


class HandedFile(msgspec.Struct, frozen=True, kw_only=True):
    """An input from another order's outputs."""

    path: str
    digest: str
    mode: Literal["0644", "0755"]


class Inputs(msgspec.Struct, frozen=True, kw_only=True):
    """All that a tree is laid out from: manifests of pinned files, then files handed over by other orders."""

    manifests: tuple[str, ...] = ()
    handed: tuple[HandedFile, ...] = ()


class Workspace(msgspec.Struct, frozen=True, kw_only=True):
    """The folders of one attempt. `params_path` is None where the order has no params, `checkpoint_path` where no
    earlier attempt has left a checkpoint that is a file."""

    attempt: str
    path: Path
    home: Path
    tmp: Path
    logs: Path
    params_path: Path | None
    checkpoint_path: Path | None = None


class Output(msgspec.Struct, frozen=True, kw_only=True):
    """A collected output; its bytes are durable in the artifact store."""

    path: str
    mode: Literal["0644", "0755"]
    digest: str
    bytes: int


class OutputProblem(msgspec.Struct, frozen=True, kw_only=True):
    """Why an output was not taken; `path` is printable, empty where no single path is meant.

    Codes: path_outside, not_regular, bad_path_name, source_changed, too_large, too_many, unreadable,
    covers_pinned.
    """

    code: str
    path: str
    message: str


NOTE_BYTES_MAX = 4_096
"""Of what a worker keeps of an attempt for those who come after it."""


class Collected(msgspec.Struct, frozen=True, kw_only=True):
    """Outputs in bytewise order. With a problem the outputs are what could be kept all the same; where a bound of
    the whole is passed (too_many, too_large without a path) nothing was kept."""

    outputs: tuple[Output, ...]
    problems: tuple[OutputProblem, ...]


class Swept(msgspec.Struct, frozen=True, kw_only=True):
    """What a sweep did. `failed` holds the attempts whose files the system would not remove, and why."""

    removed: tuple[str, ...]
    failed: tuple[tuple[str, str], ...]


class Workspaces(Protocol):
    """All workspaces of one home. Safe for several threads, each with attempts of its own."""

    def prepare(
        self, *, attempt: str, inputs: Inputs, params: bytes | None = None, checkpoint: str | None = None
    ) -> Workspace:
        """Lay out the folders of an attempt anew; `checkpoint` is the digest of what its program goes on from. Raises
        PathRefused, ArtifactMissing, IntegrityError, StorageError."""
        ...

    def find(self, attempt: str) -> Workspace:
        """The folders of an attempt, whether they exist or not."""
        ...

    def collect(
        self, workspace: Workspace, declared: Callable[[str], bool], *, classification: Classification
    ) -> Collected:
        """Store the files of a workspace whose path is `declared`. Raises StorageError."""
        ...

    def keep(
        self, workspace: Workspace, path: str, *, classification: Classification, between: Callable[[], None]
    ) -> Output | OutputProblem:
        """Store one regular file of a workspace while its programs run, without following a link; or why not.
        `between` is called between pieces: what it raises gives the file up. Raises WorkspaceGone,
        StorageError."""
        ...

    def read_left(self, workspace: Workspace, name: str, *, bytes_max: int) -> bytes | None:
        """A file that a process of an attempt has left beside its logs. None where none stands, where it is no regular
        file or a link, where it is larger than `bytes_max`, and where it cannot be read."""
        ...

    def read_note(self, attempt: str) -> bytes | None:
        """What `keep_note` kept last for an attempt, None for nothing and for what cannot be read."""
        ...

    def keep_note(self, attempt: str, note: bytes) -> None:
        """Keep some words of its worker with the folders of an attempt and outside of them, whole and durable; they go
        with the rest. At most NOTE_BYTES_MAX. Raises StorageError."""
        ...

    def list_files(self, workspace: Workspace) -> tuple[str, ...]:
        """The paths of everything in a workspace that is no folder, in bytewise order, as far as they are text and
        within the bounds of what an attempt may hand in. Raises ContentTooLarge, WorkspaceGone, StorageError."""
        ...

    def find_verifier(self, attempt: str, *, late: bool = False) -> Workspace:
        """The folders of an attempt's verifier, or of its `late` one, whether they exist or not."""
        ...

    def prepare_verifier(
        self, attempt: str, *, inputs: Inputs, outputs: Sequence[Output], late: bool = False
    ) -> Workspace | tuple[OutputProblem, ...]:
        """Fresh folders, none of them the attempt's, whose tree holds the inputs and then the outputs; or why not.
        Those of a `late` one are others: somebody may be in the first, who stands still and will go on."""
        ...

    def discard(self, attempt: str) -> None:
        """Remove all that an attempt left. Nothing there is fine. Raises StorageError."""
        ...

    def list_attempts(self) -> tuple[str, ...]: ...

    def sweep(self, *, among: Sequence[str], keep: Collection[str]) -> Swept:
        """Remove the folders of `among` without those of `keep`, which must have been read later than `among`."""
        ...
