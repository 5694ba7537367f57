"""Exceptions of the outer layers: a broken world or a broken program, never an ordinary refusal.

    FencepostError                 anything that this package raises on purpose
    ├── StorageError               the store or a disk below it (the machine's fault)
    │   ├── StorageFull            no space, quota or file size left: free space and run again
    │   ├── StorageUnavailable     cannot be opened, is locked for too long, or the connection is gone
    │   │   ├── StorageReadOnly    can be read, and nothing can be written: the file system is mounted read-only
    │   │   ├── StorageLogUnread   its newest records cannot be read where nothing may be written
    │   │   └── DescriptorsExhausted  this process, or its host, may not open as many files
    │   └── StorageMismatch        written by another layout, format or fold than this program knows
    ├── IntegrityError             bytes are not what was written: the chain, a digest or a signature
    ├── ContentTooLarge            a bound of `core.limits` is passed (the caller's fault)
    ├── WorkspaceGone              an attempt's folder is moved or replaced (its program's doing)
    └── PathRefused                a path leaves its folder or cannot be stored (the caller's fault)

Refusals of commands are values (`core.reasons.Refusal`), not exceptions. `code` is stable and names a row
of `core.reasons`.
"""

from __future__ import annotations


class FencepostError(Exception):
    """Root of the tree. `code` is the stable reason code, `next` what the reader can do about it."""

    code = "internal_error"

    def __init__(self, message: str, *, next_step: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.next_step = next_step


class StorageError(FencepostError):
    """The store or a disk below it does not do what it must. Nothing of the failed operation is visible."""

    code = "storage_error"


class StorageFull(StorageError):
    """No space, quota or permitted file size is left. The store is intact; run again with space."""

    code = "storage_full"


class StorageUnavailable(StorageError):
    """The store cannot be opened, is held by another for too long, or the connection is gone."""

    code = "storage_unavailable"


class StorageReadOnly(StorageUnavailable):
    """The file system is mounted read-only. What is there can be read."""

    code = "storage_read_only"


class StorageLogUnread(StorageUnavailable):
    """The newest records stand in a log beside the store, which cannot be read without making a file beside it."""

    code = "storage_log_unread"


class DescriptorsExhausted(StorageUnavailable):
    """This process, or its host, may not open as many files as are needed. What was open stays as it was."""

    code = "too_few_descriptors"


class StorageMismatch(StorageError):
    """The store has another layout, journal format or fold version than this program knows."""

    code = "storage_mismatch"


class IntegrityError(FencepostError):
    """Bytes are not those that were written. Work stops; `journal verify` says where."""

    code = "journal_integrity"


class ContentTooLarge(FencepostError):
    """Content passes a documented bound."""

    code = "too_large"


class WorkspaceGone(FencepostError):
    """The folder of an attempt is not there, or is none that can be read: its own program has done that."""

    code = "no_file"


class PathRefused(FencepostError):
    """A path leaves the folder it belongs to, or has a name that cannot be stored."""

    code = "path_outside"
