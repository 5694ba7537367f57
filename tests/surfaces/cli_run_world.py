"""Helpers for tests of the main job: a real git repository in a folder of its own, and the real command on it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

CLI = [sys.executable, "-m", "fencepost"]
WAIT_S = 30.0

THREE = """\
objective = "three orders in a row"
[budget]
attempts = 20

[[work]]
name = "one"
run = ["sh", "-c", "echo one >> \\"$FENCEPOST_REPO/ran.log\\"; echo one > one.txt"]
outputs = ["one.txt"]

[[work]]
name = "two"
needs = ["one"]
inputs = [{ from = "one", files = ["one.txt"] }]
run = ["sh", "-c", '''
cat one.txt
test -e "$FENCEPOST_REPO/go" || sleep 60
echo two >> "$FENCEPOST_REPO/ran.log"
''']

[[work]]
name = "three"
needs = ["two"]
run = ["sh", "-c", "echo three >> \\"$FENCEPOST_REPO/ran.log\\""]
"""
"""Three orders in a row. The second sleeps for a minute unless the repository has a file `go`."""

ONE = '[budget]\nattempts = 3\n[[work]]\nname = "only"\nrun = ["true"]\n'


@dataclass
class Repo:
    """A git repository with one commit, and a user whose home folder lies beside it."""

    folder: Path
    user: Path
    variables: dict[str, str] = field(default_factory=dict)

    def environment(self) -> dict[str, str]:
        # Whoever tests another copy of the sources names it so; nothing else of the tester's environment counts.
        copies = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
        return {**copies, "HOME": str(self.user), "LANG": "C.UTF-8", **self.variables}

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*CLI, *arguments],
            cwd=self.folder,
            env=self.environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
        )

    def call(self, *arguments: str, stdin: str = "", **options: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*CLI, *arguments],
            cwd=self.folder,
            env=self.environment(),
            input=stdin,
            capture_output=True,
            encoding="utf-8",
            timeout=WAIT_S,
            check=False,
            **options,
        )

    def document(self, *arguments: str, code: int = 0) -> Any:
        done = self.call(*arguments, "--json")
        assert done.returncode == code, (arguments, done.returncode, done.stdout, done.stderr)
        return json.loads(done.stdout)

    def error(self, *arguments: str, code: int) -> Any:
        """The error document of a command that must fail."""
        done = self.call(*arguments, "--json")
        assert done.returncode == code, (arguments, done.returncode, done.stdout, done.stderr)
        assert done.stdout == ""
        return json.loads(done.stderr.splitlines()[-1])["error"]

    def ran(self) -> list[str]:
        """Which commands came to their end, in order."""
        log = self.folder / "ran.log"
        return log.read_text().split() if log.exists() else []

    def states(self, plan: str = "plan") -> dict[str, str]:
        items = self.document("plan", "show", plan)["items"]
        return {item["name"]: item["state"] for item in items}

    def has_home(self) -> bool:
        return (self.folder / ".fencepost").exists()


def make_repo(base: Path, name: str = "repo", **files: str) -> Repo:
    folder = base / name
    folder.mkdir(parents=True)
    user = base / "user"
    user.mkdir(exist_ok=True)
    repo = Repo(folder, user)
    (folder / "readme.txt").write_text("a repository\n")
    git(folder, "init", "-q")
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", "first")
    return repo


def git(folder: Path, *words: str) -> None:
    identity = ["-c", "user.name=tester", "-c", "user.email=tester@example.org"]
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "GIT_CONFIG_NOSYSTEM": "1"}
    subprocess.run(["git", *identity, *words], cwd=folder, env=environment, check=True, capture_output=True)


def read_until(process: subprocess.Popen[str], text: str) -> list[str]:
    """Read lines of a command that runs until one contains `text`."""
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line.rstrip("\n"))
        if text in line:
            return lines
    raise AssertionError(f"{text!r} was never said: {lines}")


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Wait for a command; returns (exit code, the rest of what it said)."""
    said, _ = process.communicate(timeout=WAIT_S)
    return process.returncode, said


def interrupt(process: subprocess.Popen[str], number: signal.Signals) -> None:
    process.send_signal(number)


def processes_of(folder: Path) -> list[int]:
    """Processes of attempts whose workspace is below `folder`."""
    wanted = f"FENCEPOST_WORKSPACE={folder}".encode()
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                environment = Path(f"/proc/{name}/environ").read_bytes()
            except OSError:
                continue
            if any(entry.startswith(wanted) for entry in environment.split(b"\0")):
                found.append(int(name))
    return found


def wait_for_no_process(folder: Path, limit_s: float) -> None:
    until = time.monotonic() + limit_s
    while processes_of(folder):
        assert time.monotonic() < until, processes_of(folder)
        time.sleep(0.02)


_IDS = re.compile(r"\b(plan|task|order|attempt|hold|worker|reservation)_[0-9a-f]{32}\b")
_DURATION = re.compile(r"\b(?:[0-9]+(?:h|m(?!s)|s|ms))+\b")
_DIGEST = re.compile(r"sha256:[0-9a-f]{16,64}")
_TIME = re.compile(r"\b[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]+Z")
_COMMIT = re.compile(r"\b[0-9a-f]{40}\b")


def steady(text: str, repo: Repo) -> str:
    """A transcript without what differs from run to run: ids, durations, times, and where the repository lies."""
    for place, word in ((repo.folder, "REPO"), (repo.user, "USER")):
        text = text.replace(str(place), word)
    text = re.sub(r"\n +(?=REPO|USER)", " ", text)  # a long path is broken off, a short one is not
    text = _TIME.sub("TIME", _IDS.sub(r"\1_ID", text))
    text = _COMMIT.sub("COMMIT", text)
    return re.sub(r" {2,}DURATION", "  DURATION", _DURATION.sub("DURATION", text))  # columns are as wide as durations
