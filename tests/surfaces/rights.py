"""What takes rights away for a test: mount namespaces of its own, and a superuser without the superuser's rights."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest


def unshared() -> tuple[str, ...]:
    return ("unshare", "--mount") if os.geteuid() == 0 else ("unshare", "--map-root-user", "--mount")


def can_mount() -> bool:
    if shutil.which("unshare") is None:
        return False
    script = "mount -t tmpfs -o size=64k tmpfs /mnt"
    return subprocess.run([*unshared(), "sh", "-c", script], capture_output=True, check=False).returncode == 0


def without_rights() -> tuple[str, ...]:
    """Before a command: takes away what lets the superuser pass over the rights of files."""
    if os.geteuid() != 0:
        return ()
    if shutil.which("setpriv") is None:
        pytest.skip("needs setpriv to give up the superuser's rights")
    return ("setpriv", "--bounding-set", "-dac_override,-dac_read_search", "--inh-caps", "-all")
