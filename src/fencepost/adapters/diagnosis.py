"""What a diagnosis asks of the host: whether a folder takes files, how much space is left, who carries a marker."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from fencepost.adapters.executors.tree import MARKER

GIT_TIMEOUT_S = 10


def takes_files(folder: Path) -> bool:
    """Whether a file can be made in `folder`, by making one."""
    try:
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def free_bytes(folder: Path) -> int:
    """Bytes that this user can still write where `folder` lies."""
    return shutil.disk_usage(folder).free


def git_version() -> str | None:
    """What `git --version` says, None where there is no git that works."""
    try:
        done = subprocess.run(
            ["git", "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=GIT_TIMEOUT_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def marked_processes() -> dict[str, list[int]]:
    """Attempt -> processes whose environment carries its marker, as far as this user may read it (Linux only)."""
    found: dict[str, list[int]] = {}
    if sys.platform != "linux":
        return found
    start = f"{MARKER}=".encode()
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        try:
            environment = Path(f"/proc/{name}/environ").read_bytes()
        except OSError:
            continue  # it has ended, or belongs to another user
        for entry in environment.split(b"\0"):
            if entry.startswith(start):
                found.setdefault(entry[len(start) :].decode("utf-8", "replace"), []).append(int(name))
    return found
