"""The very first command in a fresh clone: `./dev run` and `./dev test` make their environment and do their job.

The sources are those of this repository, as a clone of its own. What a first set-up would fetch is lent by the
environment that runs this test: the clone's pinned set is one wheel, which only says where the packages lie. So the
real script, the real build backend and the real set-up run, and nothing is fetched.
"""

from __future__ import annotations

import base64
import hashlib
import os
import shutil
import subprocess
import sysconfig
import zipfile
from pathlib import Path

import pytest

from tests.tidy.files import ROOT, kept_files

pytestmark = pytest.mark.slow


def _lender(folder: Path) -> tuple[str, str]:
    """A wheel that puts the packages of this environment on the path; returns (its name, its digest)."""
    name = "lent-1-py3-none-any.whl"
    info = "lent-1.dist-info/"
    files = {
        "lent.pth": sysconfig.get_paths()["purelib"] + "\n",
        info + "METADATA": "Metadata-Version: 2.1\nName: lent\nVersion: 1\n",
        info + "WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    rows = [f"{path},sha256={_record_digest(text)},{len(text.encode())}" for path, text in files.items()]
    with zipfile.ZipFile(folder / name, "w") as archive:
        for path, text in files.items():
            archive.writestr(path, text)
        archive.writestr(info + "RECORD", "\n".join([*rows, f"{info}RECORD,,", ""]))
    return name, hashlib.sha256((folder / name).read_bytes()).hexdigest()


def _record_digest(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    origin = tmp_path / "origin"
    for source in kept_files():
        target = origin / source.path
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / source.path, target)
    name, digest = _lender(origin)
    (origin / "requirements" / "dev.txt").write_text(f"./{name} --hash=sha256:{digest}\n")
    _git(origin, "init", "-q")
    _git(origin, "add", "--force", ".")
    _git(origin, "commit", "-q", "-m", "as it is here")
    _git(tmp_path, "clone", "-q", str(origin), "a clone")
    return tmp_path / "a clone"


def _git(folder: Path, *words: str) -> None:
    identity = ["-c", "user.name=tester", "-c", "user.email=tester@example.org"]
    subprocess.run(["git", *identity, *words], cwd=folder, check=True, capture_output=True, timeout=60)


def _first(clone: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
    user = clone.parent / "user"
    user.mkdir()
    return subprocess.run(
        ["./dev", *words],
        cwd=clone,
        env={**environment, "HOME": str(user), "PIP_NO_INDEX": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def test_run_is_the_first_command(clone: Path) -> None:
    done = _first(clone, "run")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "dev: .venv is ready" in done.stderr
    assert "plan repository-check: done" in done.stdout
    assert (clone / ".fencepost" / "layout").is_file()
    left = subprocess.run(["git", "status", "--short"], cwd=clone, capture_output=True, text=True, check=True)
    assert left.stdout == "", "nothing is left in the clone that git would show"


def test_test_is_the_first_command(clone: Path) -> None:
    done = _first(clone, "test", "--version")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "dev: .venv is ready" in done.stderr
    assert "pytest" in done.stdout + done.stderr
