"""Other places to compute the same thing in: other seeds of hashing, zones, languages, and other Pythons.

A Python of another version gets an environment of its own with nothing but the pinned msgspec in it. It is made once
and kept in the cache folder that its caller names.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
VERSIONS = ("3.11", "3.12", "3.13")
OTHER = "another language"
WAIT_S = 60.0
_LOCALE_NAME = re.compile(r"(?!C\b|POSIX\b)[A-Za-z]{2,3}_[A-Z]{2}[.\w@-]*")


class NotHere(Exception):
    """What is asked for is not on this machine; the text says what, for whoever skips a test for it."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """`language` is a locale's name, or OTHER for any that is not C's."""

    seed: str
    zone: str
    language: str

    def __str__(self) -> str:
        return f"{self.seed}-{self.zone.rpartition('/')[2]}-{self.language.replace(' ', '-')}"


def _pairs() -> tuple[Place, ...]:
    """Nine places in which every pair of seed, zone and language occurs once."""
    seeds, zones, languages = (
        ("0", "1", "random"),
        ("UTC", "Asia/Kathmandu", "America/St_Johns"),
        ("C", "C.UTF-8", OTHER),
    )
    return tuple(
        Place(seed=seed, zone=zone, language=languages[(row + column) % 3])
        for row, seed in enumerate(seeds)
        for column, zone in enumerate(zones)
    )


PLACES = _pairs()


def environment(place: Place, folder: Path) -> dict[str, str]:
    """Variables of a process there; what is compiled for it, modules or a locale, stays in `folder`. Raises NotHere."""
    copy = os.environ.get("PYTHONPATH")  # whoever tests another copy of the sources names it so
    variables = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": copy or str(ROOT / "src"),
        "PYTHONHASHSEED": place.seed,
        "TZ": place.zone,
        # Of copies that come and go nothing is kept.
        **({"PYTHONDONTWRITEBYTECODE": "1"} if copy else {"PYTHONPYCACHEPREFIX": str(folder / "compiled")}),
    }
    if place.language == OTHER:
        return {**variables, **other_language(folder / "locales")}
    return {**variables, "LC_ALL": place.language}


def other_language(folder: Path) -> dict[str, str]:
    """Variables that choose a language with letters, digits and an order of its own. Raises NotHere."""
    installed = _installed_language()
    if installed:
        return {"LC_ALL": installed}
    name = "tr_TR.UTF-8"  # whose capital of i is not I
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / name / "LC_CTYPE").exists():
            _compile_locale(folder / name)
    return {"LC_ALL": name, "LOCPATH": str(folder)}


@cache
def _installed_language() -> str:
    try:
        told = subprocess.run(["locale", "-a"], capture_output=True, check=True, timeout=WAIT_S).stdout
    except (OSError, subprocess.CalledProcessError):
        return ""
    found = sorted(
        name
        for name in told.decode(errors="replace").split()
        if _LOCALE_NAME.fullmatch(name) and "utf8" in name.lower()
    )
    turkish = [name for name in found if name.startswith("tr_")]
    return (turkish or found or [""])[0]


def _compile_locale(target: Path) -> None:
    command = ["localedef", "-i", "tr_TR", "-f", "UTF-8", str(target)]
    try:
        subprocess.run(command, capture_output=True, check=True, timeout=WAIT_S)
    except (OSError, subprocess.CalledProcessError) as error:
        shutil.rmtree(target, ignore_errors=True)
        raise NotHere("no language but C's is installed, and none can be compiled") from error


def interpreter(version: str) -> Path:
    """A Python of that version: this one, one on PATH, or one of pyenv's. Raises NotHere."""
    if version == f"{sys.version_info[0]}.{sys.version_info[1]}":
        return Path(sys.executable)
    versions = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    on_path = shutil.which(f"python{version}")
    candidates = [*([Path(on_path)] if on_path else []), *sorted(versions.glob(f"{version}.*/bin/python"))]
    for candidate in candidates:
        # A shim of a version manager is on PATH whether or not there is a Python behind it.
        if _output(candidate, "import sys; print('%d.%d' % sys.version_info[:2])") == version:
            return candidate
    raise NotHere(f"there is no Python {version} here")


def _output(python: Path, code: str) -> str:
    """What a Python prints, empty where it cannot."""
    try:
        done = subprocess.run([python, "-c", code], capture_output=True, text=True, timeout=WAIT_S, check=False)
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def pin_of(name: str) -> str:
    """The lines of one package in the pinned set, digests and all."""
    text = (ROOT / "requirements" / "run.txt").read_text("utf-8")
    blocks = re.split(r"\n(?=\S)", text)
    return next(block for block in blocks if block.startswith(f"{name}==")) + "\n"


def bare_python(version: str, kept: Path) -> Path:
    """A Python of that version that sees the standard library and the pinned msgspec, nothing else. Raises NotHere."""
    base = interpreter(version)
    pin = pin_of("msgspec")
    exact = _output(base, "import sys; print(sys.version, sys.base_prefix)")
    folder = kept / f"{version}-{hashlib.sha256((exact + pin).encode()).hexdigest()[:16]}"
    python = folder / "bin" / "python"
    kept.mkdir(parents=True, exist_ok=True)
    with (kept / f"{version}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if _output(python, "import msgspec; print(msgspec.__version__)") != pin.split()[0].partition("==")[2]:
            shutil.rmtree(folder, ignore_errors=True)
            _make_bare(base, folder, pin)
    return python


def _make_bare(base: Path, folder: Path, pin: str) -> None:
    subprocess.run([base, "-m", "venv", "--without-pip", folder], check=True, capture_output=True, timeout=WAIT_S)
    pinned = folder / "pinned.txt"
    pinned.write_text(pin, encoding="utf-8")
    install = ["install", "--quiet", "--no-deps", "--only-binary", ":all:", "--require-hashes", "-r", str(pinned)]
    done = subprocess.run(
        [sys.executable, "-m", "pip", "--python", folder / "bin" / "python", *install],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    if done.returncode:
        said = (done.stderr.strip().splitlines() or ["nothing"])[-1]
        raise NotHere(f"the pinned msgspec cannot be installed for {base.name}: {said}")
