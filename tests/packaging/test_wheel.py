"""The wheel is what a user gets: built offline with the pinned build backend, and looked into."""

from __future__ import annotations

import configparser
import email
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "fencepost"

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Copies what a build needs, and some of what it must leave out; the repository stays clean."""
    copy = tmp_path_factory.mktemp("wheel") / "source tree"
    copy.mkdir()
    for name in ("pyproject.toml", "LICENSE", "README.md", ".gitignore"):
        if (ROOT / name).exists():
            shutil.copy(ROOT / name, copy / name)
    for name in ("src", "tests/packaging"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    return copy


@pytest.fixture(scope="module")
def wheel(copy: Path) -> Path:
    """Builds the wheel as an offline user would; pip's own configuration stays in force."""
    out = copy.parent / "out"
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-index", "--no-deps"]
    command += ["--no-build-isolation", "--wheel-dir", str(out), str(copy)]
    subprocess.run(command, check=True, cwd=copy.parent, timeout=60)
    (built,) = out.iterdir()
    return built


@pytest.fixture(scope="module")
def names(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def test_holds_every_module_and_every_query(copy: Path, names: set[str]) -> None:
    kept = [path for pattern in ("*.py", "*.sql") for path in (copy / "src").rglob(pattern)]
    wanted = {path.relative_to(copy / "src").as_posix() for path in kept}
    assert wanted - names == set()


def test_holds_the_marker_of_types(names: set[str]) -> None:
    assert "fencepost/py.typed" in names


def test_holds_nothing_else(names: set[str]) -> None:
    strange = {name for name in names if not re.match(r"fencepost/|fencepost-[^/]+\.dist-info/", name)}
    assert strange == set()
    assert not any(name.endswith((".pyc", ".db")) or "/tests/" in name for name in names)


def test_holds_the_license(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (path,) = (name for name in archive.namelist() if name.endswith("/licenses/LICENSE"))
        assert archive.read(path) == (ROOT / "LICENSE").read_bytes()


def test_says_what_it_is(wheel: Path) -> None:
    scope: dict[str, str] = {}
    exec((PACKAGE / "_version.py").read_text("utf-8"), scope)
    with zipfile.ZipFile(wheel) as archive:
        (path,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = email.message_from_bytes(archive.read(path))
        (path,) = (name for name in archive.namelist() if name.endswith(".dist-info/entry_points.txt"))
        scripts = configparser.ConfigParser()
        scripts.read_string(archive.read(path).decode("utf-8"))
    assert metadata["Name"] == "fencepost"
    assert metadata["Version"] == scope["__version__"]
    assert metadata["Requires-Python"] == ">=3.11"
    assert metadata["License-Expression"] == "Apache-2.0"
    assert scripts["console_scripts"]["fencepost"] == "fencepost.__main__:main"


def test_every_dependency_has_both_bounds(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (path,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = email.message_from_bytes(archive.read(path))
    required = metadata.get_all("Requires-Dist") or []
    assert required
    assert [line for line in required if ">=" not in line or "<" not in line] == []
