"""The home as a folder: its layout, rights, file system and store file, before anything of it is opened."""

from __future__ import annotations

import os
import shlex
import stat
from collections.abc import Iterator
from pathlib import Path

from fencepost.app import FOLDERS, LAYOUT, diagnosis, layout_of
from fencepost.surfaces.cli.doctor.findings import Line, fault, well

FREE_WARN_BYTES = 2**30
FREE_BAD_BYTES = 64 * 2**20
FULL_SHARE = 4  # a disk of which more than this part is free is small, and not full
FREE_FILES_BAD = 1_000
SHOWN_MAX = 8
MEBIBYTE = 2**20
_SQLITE = b"SQLite format 3\0"
_HEADER_BYTES = 100
_WAL = (2, 2)  # bytes 18 and 19 of the header: how it is written and read


def home_lines(home: Path) -> Iterator[Line]:
    """What the folder says. A finding whose check is `home` or `store` and bad means: do not try to open it."""
    strange = diagnosis().strange_files(home)
    if strange:
        yield from (fault("home_file_strange", where=str(path), found=kind) for path, kind in strange[:SHOWN_MAX])
        return
    layout = layout_of(home)
    if not layout:
        yield fault("layout_missing", where=str(home))
        return
    if layout != str(LAYOUT):
        # Only an unfinished home is completed by `init`; one of another layout belongs to another program.
        yield fault("layout_other", where=str(home), found=layout, known=LAYOUT)
        return
    missing = [name for name in FOLDERS if not (home / name).is_dir()]
    if "keys" in missing and (home / "store.db").exists():
        # Keys are made before the store: these were lost, and nothing makes them anew.
        yield fault("keys_missing", where=str(home / "keys"), told=f"{home / 'keys'} is missing: the store needs it")
        return
    if missing:
        yield fault("home_incomplete", where=str(home), missing=", ".join(missing))
        return
    yield from _file_system(home)
    rights = list(_rights(home, layout))
    yield from rights
    yield _locks(home / "locks")
    for pid, told in diagnosis().stopped_holders(home / "locks")[:SHOWN_MAX]:
        yield fault("process_stopped", where=str(pid), pid=pid, told=told)
    yield _keys(home / "keys")
    if all(line.code != "home_read_only" for line in rights):
        yield from _store(home / "store.db")


def _file_system(home: Path) -> Iterator[Line]:
    system = diagnosis().file_system(home)
    if system is None:
        yield well("filesystem", "what the home lies on is not known")
    elif system.is_network:
        yield fault("network_file_system", where=str(home), found=system.kind)
    else:
        yield well("filesystem", f"{system.kind}, on this host")
    work = diagnosis().file_system(home / "work")
    if work is not None and work.noexec:
        yield fault("work_noexec", where=str(home / "work"))
    device = home.stat().st_dev
    for name in FOLDERS:
        if (home / name).stat().st_dev != device:
            yield fault("folder_elsewhere", where=str(home / name))
        elif name == "locks" and (own := diagnosis().file_system(home / name)) is not None and own.is_network:
            yield fault("network_file_system", where=str(home / name), found=own.kind)
    yield _space(home)


def _space(home: Path) -> Line:
    free_bytes, free_files, all_bytes = diagnosis().free_space(home)
    told = f"{free_bytes // MEBIBYTE} MiB free where the home lies"
    if free_bytes < FREE_BAD_BYTES and free_bytes * FULL_SHARE < all_bytes:
        return fault("disk_full", where=str(home), found=free_bytes // MEBIBYTE)
    if free_files is not None and free_files < FREE_FILES_BAD:
        return fault("inodes_low", where=str(home), found=free_files)
    if free_bytes < FREE_WARN_BYTES:
        return fault("disk_low", where=str(home), found=free_bytes // MEBIBYTE)
    return well("disk", told)


def _rights(home: Path, layout: str) -> Iterator[Line]:
    owner, user = home.stat().st_uid, os.geteuid()
    if owner != user:
        yield fault("home_of_another", where=shlex.quote(str(home)), found=owner, user=user)
    else:
        yield well("owner", f"user {user}, who runs this")
    system = diagnosis().file_system(home)
    closed = [name for name in FOLDERS if not diagnosis().takes_files(home / name)]
    if not diagnosis().takes_files(home):
        closed.insert(0, "the folder itself")
    if closed and system is not None and system.read_only:
        yield fault("home_read_only", where=str(home))
    elif closed:
        yield fault("home_unwritable", where=str(home), closed=", ".join(closed))
    else:
        yield well("home", f"{home}, layout {layout}")
    if not _ignores_all(home / ".gitignore"):
        yield fault("gitignore_missing", where=str(home / ".gitignore"))


def _ignores_all(path: Path) -> bool:
    try:
        return "*" in path.read_text("utf-8", "replace").split()
    except OSError:
        return False


def _locks(folder: Path) -> Line:
    if not diagnosis().takes_files(folder):
        return well("locks", "not tried: nothing can be written there")
    if not diagnosis().locks_exclude(folder):
        return fault("locks_ineffective", where=str(folder))
    return well("locks", "one holder at a time")


def _keys(folder: Path) -> Line:
    loose = [
        str(path.relative_to(folder.parent))
        for path in (folder, *_entries(folder))
        if stat.S_IMODE(path.stat().st_mode) & 0o077 or path.stat().st_uid != os.getuid()
    ]
    if loose:
        return fault("keys_open", where=shlex.quote(str(folder)), found=", ".join(loose[:SHOWN_MAX]))
    return well("keys", "only this user may read them")


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except PermissionError:
        return []  # then nobody but its owner reads it, which the rights of the folder say


def _store(path: Path) -> Iterator[Line]:
    """What can be told of the store's file without opening the database."""
    try:
        with path.open("rb") as file:
            header = file.read(_HEADER_BYTES)
    except FileNotFoundError:
        yield fault("store_missing", where=str(path))
        return
    except OSError as error:
        yield fault("store_unusable", where=str(path), told=f"{path} cannot be read: {error.strerror}")
        return
    if not header.startswith(_SQLITE) or len(header) < _HEADER_BYTES:
        yield fault("store_not_sqlite", where=str(path))
        return
    for name in (path, path.with_name(path.name + "-wal"), path.with_name(path.name + "-shm")):
        if name.exists() and not os.access(name, os.R_OK | os.W_OK):
            yield fault("store_unwritable", where=str(name))
            return
    if (header[18], header[19]) != _WAL:
        yield fault("store_journal_mode", where=shlex.quote(str(path)))
