"""Running one check against one tree, in a process of its own, with a limit, and leaving nothing running."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, Literal, NamedTuple

from tests.mutants.catalogue import Check
from tests.mutants.outcomes import FILE_VARIABLE

LIMIT_S: Final = 90.0
"""Of a check without a limit of its own; one that takes longer has said nothing."""
_OUTPUT_KEPT_CHARACTERS: Final = 200_000
_MESSAGE_LENGTH_MAX: Final = 300
_FOUND: Final = {"sim": "seed ", "search": "world "}
"""How a line begins that only a run to its end has. A program that falls over ends with 1 as well."""
_TRACEBACK: Final = "Traceback (most recent call last)"
_FAILED: Final = 1
"""Exit status of pytest, of the simulator and of the search when they have found something."""
_NOT_INHERITED: Final = ("PYTHONPATH", "PYTHONHASHSEED", "PYTEST_ADDOPTS", "PYTEST_XDIST_WORKER", "COV_CORE_SOURCE")

State = Literal["passed", "failed", "broken", "hung"]


class Ran(NamedTuple):
    """What one check said. `failed` is a catch; `broken` could not be run; `hung` did not end within its limit."""

    state: State
    seconds: float
    test: str = ""  # the first test that failed, where the check is one of tests
    message: str = ""


class Outcome(NamedTuple):
    """What became of one test."""

    test: str
    outcome: str
    message: str


def environment_of(tree: Path) -> dict[str, str]:
    """This process's environment, with the packages and tests of `tree` in the place of this one's."""
    kept = {name: value for name, value in os.environ.items() if name not in _NOT_INHERITED}
    scratch = tree / "t"
    scratch.mkdir(exist_ok=True)
    return {
        **kept,
        "PYTHONPATH": os.pathsep.join((str(tree / "src"), str(tree))),
        "FENCEPOST_TEST_PROFILE": "ci",  # the same examples for every tree
        "TMPDIR": str(scratch),
        FILE_VARIABLE: str(tree / "outcomes.ndjson"),
    }


def run_check(check: Check, tree: Path, limit_s: float = LIMIT_S) -> Ran:
    """Run one check in `tree`. A hang is a failure only where the check says so itself."""
    own = check.hangs_after_s
    ran = run_command(_command(check, tree), tree, own or limit_s)
    if ran.state == "hung" and own is not None:
        return ran._replace(state="failed", test=str(check), message=f"does not end within {own:g} s")
    if ran.state != "failed":
        return ran
    if check.kind != "test":
        found = next((line for line in ran.message.splitlines() if line.startswith(_FOUND[check.kind])), "")
        if _TRACEBACK in ran.message or not found:
            return ran._replace(state="broken")
        return ran._replace(test=str(check), message=found[:_MESSAGE_LENGTH_MAX])
    first = next((each for each in read_outcomes(tree) if each.outcome == "failed"), None)
    if first is None:
        return ran._replace(state="broken")
    return ran._replace(test=first.test, message=first.message)


def run_tests(names: Sequence[str], tree: Path, limit_s: float) -> tuple[Ran, list[Outcome]]:
    """Run tests together, all of them, and say what became of each."""
    return run_command(_pytest(names, tree), tree, limit_s), list(read_outcomes(tree))


def run_command(command: Sequence[str], tree: Path, limit_s: float) -> Ran:
    """Run a program in `tree`; exit status 0 has passed, 1 has failed, anything else could not be run."""
    (tree / "outcomes.ndjson").unlink(missing_ok=True)
    began_s = time.monotonic()
    with (tree / "output").open("w+b") as output:
        process = subprocess.Popen(
            command,
            cwd=tree,
            env=environment_of(tree),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        state: State = "broken"
        try:
            status = process.wait(timeout=limit_s)
            state = "passed" if status == 0 else "failed" if status == _FAILED else "broken"
        except subprocess.TimeoutExpired:
            state = "hung"
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            _end_leftovers(tree)
        seconds = time.monotonic() - began_s
        output.seek(0)
        said = output.read().decode("utf-8", "replace").strip()
    return Ran(state, seconds, message="" if state == "passed" else said[-_OUTPUT_KEPT_CHARACTERS:])


def read_outcomes(tree: Path) -> Iterator[Outcome]:
    """What the last run of tests in `tree` has said of each, in order."""
    path = tree / "outcomes.ndjson"
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        entry: Mapping[str, str] = json.loads(line)
        yield Outcome(entry["test"], entry["outcome"], entry["message"])


def _command(check: Check, tree: Path) -> list[str]:
    if check.kind == "test":
        return [*_pytest((check.argument,), tree), "--exitfirst"]
    if check.kind == "sim":
        once = ("--seed", "0", "--jobs", "1", "--shrink", "0")
        return [sys.executable, "-m", "fencepost.testing.simulator", *once, "--seeds", check.argument]
    return [sys.executable, "-m", "fencepost.testing.search", "--world", check.argument]


def _pytest(names: Sequence[str], tree: Path) -> list[str]:
    quiet = ("-q", "-n0", "--no-header", "--tb=short", "-p", "no:cacheprovider", "-p", "tests.mutants.outcomes")
    return [sys.executable, "-m", "pytest", *quiet, f"--basetemp={tree / 'b'}", *names]


def _end_leftovers(tree: Path) -> None:
    """End what a broken program has left running: whoever works in the tree or was started from it."""
    mark = os.fsencode(tree)
    for pid in _processes():
        if pid != os.getpid() and _belongs(pid, mark):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue


def _processes() -> list[int]:
    proc = Path("/proc")
    return [int(entry.name) for entry in proc.iterdir() if entry.name.isdigit()] if proc.is_dir() else []


def _belongs(pid: int, mark: bytes) -> bool:
    folder = f"/proc/{pid}"
    try:
        if os.stat(folder).st_uid != os.getuid():
            return False
        where = os.fsencode(os.readlink(f"{folder}/cwd")) + b"/"
        words = Path(folder, "cmdline").read_bytes() + Path(folder, "environ").read_bytes()
    except OSError:  # it has gone, or is not ours to look at
        return False
    return where.startswith(mark + b"/") or mark + b"/" in words
