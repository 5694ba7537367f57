"""Interpreters of Python 3.11 and later that this machine has, each version once."""

from __future__ import annotations

import glob
import os
import shutil
import subprocess
import sys
from functools import cache

VERSIONS = ("3.11", "3.12", "3.13", "3.14")


@cache
def interpreters() -> dict[str, str]:
    """Version -> path; the one that runs the tests is always among them."""
    found = {f"{sys.version_info.major}.{sys.version_info.minor}": sys.executable}
    for version in VERSIONS:
        candidates = [shutil.which(f"python{version}"), *sorted(_installed(version))]
        for path in candidates:
            if version not in found and path is not None and _answers(path, version):
                found[version] = path
    return found


def _installed(version: str) -> list[str]:
    places = ("~/.pyenv/versions", "/opt/python", "/usr/local", "/opt/hostedtoolcache/Python")
    patterns = [os.path.expanduser(f"{place}/{version}*/**/bin/python{version}") for place in places]
    return [path for pattern in patterns for path in glob.glob(pattern, recursive=True)]


def _answers(path: str, version: str) -> bool:
    question = "import sys; print('%d.%d' % sys.version_info[:2])"
    try:
        done = subprocess.run([path, "-I", "-c", question], capture_output=True, text=True, timeout=20, check=False)
    except OSError:
        return False
    return done.returncode == 0 and done.stdout.strip() == version
