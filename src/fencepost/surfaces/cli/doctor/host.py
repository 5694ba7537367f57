"""The host: Python, platform, git, locale, rights and limits of this process, and which program is called."""

from __future__ import annotations

import locale
import os
import platform
import sys
from collections.abc import Iterator
from pathlib import Path

from fencepost._version import __version__
from fencepost.app import diagnosis
from fencepost.surfaces.cli.doctor.findings import Line, fault, well

PYTHON_MIN = (3, 11)
DESCRIPTORS_BASE = 64  # of one process with store, locks and sockets
DESCRIPTORS_PER_JOB = 8
FILE_SIZE_LEAST_BYTES = 2**30
MEBIBYTE = 2**20


def host_lines() -> Iterator[Line]:
    version = platform.python_version()
    if sys.version_info >= PYTHON_MIN:
        yield well("python", f"{version} at {sys.executable}")
    else:
        yield fault("python_too_old", found=version)
    yield _platform()
    git = diagnosis().git_version()
    yield well("git", git) if git is not None else fault("git_missing")
    yield _locale()
    yield _umask()
    yield _temporary()
    yield _boot()
    yield _processes()
    yield _program()


def _platform() -> Line:
    if sys.platform == "linux":
        return well("platform", f"linux {platform.release()}: whole process trees are contained by their keeper")
    return fault("containment_weak") if sys.platform == "darwin" else fault("platform_unsupported", found=sys.platform)


def _locale() -> Line:
    names = sys.getfilesystemencoding()
    if names.lower().replace("-", "") != "utf8":
        return fault("locale_not_utf8", found=names)
    return well("locale", f"names are UTF-8, the locale's letters {locale.getpreferredencoding(False)}")


def _umask() -> Line:
    mask = diagnosis().umask()
    if mask & 0o700:
        return fault("umask_closed", found=f"{mask:03o}")
    return well("umask", f"{mask:03o}") if mask & 0o002 else fault("umask_open", found=f"{mask:03o}")


def limits_line(jobs: int) -> Line:
    """Whether this process may open as many files, and make them as large, as so many jobs need."""
    found = diagnosis().limits()
    needed = DESCRIPTORS_BASE + DESCRIPTORS_PER_JOB * jobs
    if found.descriptors is not None and found.descriptors < needed:
        return fault("descriptors_low", found=found.descriptors, jobs=jobs, needed=needed)
    if found.file_bytes is not None and found.file_bytes < FILE_SIZE_LEAST_BYTES:
        return fault("file_size_low", found=found.file_bytes // MEBIBYTE)
    return well("limits", f"{found.descriptors or 'any number of'} open files, enough for {jobs} jobs")


def _temporary() -> Line:
    named = os.environ.get("TMPDIR", "")
    folder = Path(named or "/tmp")
    if named and not diagnosis().takes_files(folder):
        return fault("temporary_unusable", where=named)
    system = diagnosis().file_system(folder)
    if system is not None and system.noexec:
        return fault("temporary_noexec", where=str(folder))
    return well("temporary", str(folder))


def _boot() -> Line:
    if sys.platform == "linux" and not diagnosis().boot_is_known():
        return fault("boot_unknown")
    return well("boot", "restarts of this host are seen" if sys.platform == "linux" else "every start is a restart")


def _processes() -> Line:
    if sys.platform == "linux" and not os.path.exists("/proc/self/stat"):
        return fault("processes_unseen", where="/proc")
    return well("processes", "those of this user can be seen")


def _program() -> Line:
    """Whether `fencepost` means this program: where it is typed, and inside attempts, which have our folder first."""
    folder = Path(sys.executable).parent
    if not (folder / "fencepost").exists():
        return fault("program_missing_in_attempts", where=sys.executable)
    found = diagnosis().program_version("fencepost")
    if found is None:
        return well("program", f"{folder / 'fencepost'}, {__version__}; it is not on PATH")
    path, version = found
    if os.path.realpath(path) != os.path.realpath(folder / "fencepost") and version != f"fencepost {__version__}":
        told = version or "no version is known"
        return fault("program_other_version", where=path, found=told, version=__version__, folder=folder)
    return well("program", f"{path}, {__version__}")
