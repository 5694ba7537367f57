"""What only a person may give is refused to whatever runs inside an attempt of the same store (architecture).

The programs are real attempts: they hide that they are, as far as programs without malice can.
"""

from __future__ import annotations

import ast
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fencepost import surfaces
from fencepost.adapters.ancestry import Mark, marks
from fencepost.core.records.attempt import VerificationReceipt
from fencepost.core.records.plan import Acceptance
from fencepost.surfaces.cli.command_tree import read_all
from tests.services.world import World, draft, needs, opened_world

PLAN = 'name = "sly"\n[budget]\nattempts = 3\n[[work]]\nname = "more"\nrun = ["true"]\n'
COMMANDS = {
    "answer": ["order", "answer", "kept/asks", "yes"],
    "cancel": ["order", "cancel", "kept/asks"],
    "retry": ["order", "retry", "kept/asks"],
    "budget": ["budget", "set", "scope", "--attempts", "1000"],
    "plan cancel": ["plan", "cancel"],
    "submit": ["plan", "submit", "sly.toml"],
    "run": ["run", "sly.toml", "--no-work", "--timeout", "1s"],
    "worker": ["worker", "start", "--until-idle"],
    "init": ["init"],
    "scope": ["init", "--scope", "another"],
    "rebuild": ["journal", "replay", "--rebuild"],
}
READING = {
    "why": ["order", "why", "kept/asks"],
    "list": ["order", "list"],
    "verify": ["journal", "verify"],
    "replay": ["journal", "replay"],
}
READERS = {
    *("attempt list", "attempt show", "budget show", "clock show", "completion", "config validate", "config view"),
    *("doctor", "journal export", "journal tail", "journal verify", "order files", "order graph", "order list"),
    *("order log", "order show", "order watch", "order why", "plan check", "plan diff", "plan list", "plan show"),
    "version",
}
HIDING = {
    "variable unset": ["env", "-u", "FENCEPOST_ATTEMPT", "-u", "FENCEPOST_TOKEN"],
    "environment cleared": ["env", "-i"],
    "another's name": ["env", "FENCEPOST_ATTEMPT=attempt_" + "0" * 32],
    "left its parents": ["sh", "-c", 'setsid env -i "$@" > left.new 2>&1 & wait $!; echo $? > left', "sh"],
    "orphan": ["sh", "-c", '(setsid sh -c \'env -i "$@" > left.new 2>&1; echo $? > left\' sh "$@" &)', "sh"],
}
PROGRAM = """
import json, os, pathlib, shutil, subprocess, sys, time
told = {}
program = shutil.which("fencepost")
for name, words in json.loads(sys.argv[1]).items():
    place = words.index("fencepost")
    words[place] = program
    left = pathlib.Path("left")
    left.unlink(missing_ok=True)
    done = subprocess.run(words, capture_output=True, text=True)
    code, text = done.returncode, done.stdout + done.stderr
    if "left" in " ".join(words[:place]):
        until = time.monotonic() + 60
        while not (left.is_file() and left.read_text().endswith("\\n")) and time.monotonic() < until:
            time.sleep(0.05)
        code, text = int(left.read_text()), pathlib.Path("left.new").read_text()
    told[name] = [code, text]
print(json.dumps(told))
"""


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with opened_world(tmp_path) as made:
        yield made


def tried(world: World, calls: dict[str, list[str]]) -> dict[str, tuple[int, Any]]:
    """What a program in an attempt of its own is told, each with its exit code."""
    script = f"cat > sly.toml <<'end'\n{PLAN}end\nexec \"$@\""
    plan = world.submit(draft("a", "sh", "-c", script, "sh", sys.executable, "-c", PROGRAM, json.dumps(calls)))
    world.worker(jobs=1)
    world.until_ended(plan, 100)
    facts = world.facts(plan, "a")
    assert facts.exit_code == 0, facts
    out = world.app.artifacts.read(facts.stdout.digest, 10**6)
    return {name: (code, text) for name, (code, text) in json.loads(out).items()}


def at(world: World, words: list[str]) -> list[str]:
    return ["fencepost", *words, "--json", "--home", str(world.home)]


def test_x10_nothing_that_only_a_person_may_ask_is_asked_from_inside_an_attempt(world: World) -> None:
    kept = world.submit(draft("asks", "true"), name="kept")
    told = tried(world, {name: at(world, words) for name, words in COMMANDS.items()})
    for name, (code, text) in told.items():
        error = json.loads(text.splitlines()[-1])["error"]
        assert (code, error["code"]) == (4, "inside_attempt"), (name, text)
        assert error["where"] == "environment" and "attempt_" in error["message"]
        assert "fencepost attempt yield --question" in error["next"]
    assert world.order(kept, "asks").state == "applied", "as its own plan has it"
    with world.app.kernel.reader.look() as look:
        assert sorted(plan.name for plan in look.newest_plans(9)) == ["kept", "plan"]


def test_x10_of_every_command_it_is_known_whether_only_a_person_may_ask_for_it() -> None:
    """A new one is tried above, stands among those that change nothing, or is said by the program of an attempt."""
    known = {" ".join(command.words) for noun in read_all() for command in noun.commands}
    asked = {" ".join(words[:length]) for words in COMMANDS.values() for length in (1, 2)} & known
    spoken = {name for name in known if name.startswith("attempt ")} - READERS
    assert known == asked | READERS | spoken
    assert not asked & READERS


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not show the environment of ancestors")
def test_x10_a_variable_that_is_unset_and_parents_that_are_left_do_not_hide_an_attempt(world: World) -> None:
    told = tried(world, {name: [*hidden, *at(world, ["plan", "cancel"])] for name, hidden in HIDING.items()})
    assert told.keys() == HIDING.keys()
    for name, (code, text) in told.items():
        error = json.loads(text.splitlines()[-1])["error"]
        assert (code, error["code"]) == (4, "inside_attempt"), (name, text)
        assert error["where"].startswith("process "), (name, error)


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not show the environment of ancestors")
def test_x10_a_verifier_that_left_its_parents_is_no_person(world: World) -> None:
    _, *words = at(world, ["plan", "cancel"])
    hidden = shlex.join([*HIDING["orphan"], str(Path(sys.executable).with_name("fencepost")), *words])
    verify = ("sh", "-c", f"{hidden}; while [ ! -s left ]; do sleep 0.1; done; cat left.new")
    plan = world.submit(draft("a", "true", accept=Acceptance(verify=verify)), draft("b", "true", groups=needs("a")))
    world.worker(jobs=1)
    world.until_ended(plan, 100)
    [attempt] = world.attempts(plan, "a")
    with world.app.kernel.reader.look() as look:
        receipt = look.body(attempt.verification_seq, VerificationReceipt)
    assert receipt.outcome == "passed" and receipt.stdout is not None
    said = json.loads(world.app.artifacts.read(receipt.stdout.digest, 10**6).splitlines()[-1])
    assert said["error"]["code"] == "inside_attempt" and attempt.attempt in said["error"]["message"]
    assert world.order(plan, "b").state == "applied"


def test_x10_what_only_reads_and_what_goes_to_another_home_works_inside_an_attempt(world: World) -> None:
    """A test suite that uses this program is itself run by it."""
    world.submit(draft("asks", "true"), name="kept")
    own = ["--home", "own/.fencepost", "--json"]
    calls = {name: at(world, words) for name, words in READING.items()}
    calls |= {
        "own init": ["fencepost", "init", *own],
        "own run": ["fencepost", "run", "sly.toml", *own],
        "own budget": ["fencepost", "budget", "set", "sly", "--attempts", "9", *own],
        "own retry": ["fencepost", "plan", "submit", "sly.toml", "--again", *own],
        "own cancel": ["fencepost", "plan", "cancel", *own],
    }
    told = tried(world, calls)
    assert {name: code for name, (code, _) in told.items()} == dict.fromkeys(calls, 0), told["own run"]


def test_outside_of_attempts_there_is_no_mark() -> None:
    here = {mark.attempt for mark in marks(os.environ)}
    done = subprocess.run(["sleep", "0"], env={"FENCEPOST_ATTEMPT": "attempt_1"}, check=False)
    assert done.returncode == 0
    assert {mark.attempt for mark in marks(os.environ)} == here, "what a child had says nothing of its parent"
    assert marks({"FENCEPOST_ATTEMPT": "attempt_2"})[0] == Mark("attempt_2", 0)


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not show the environment of ancestors")
@pytest.mark.parametrize("suffix", ["lock", "verify.lock", "late.verify.lock"])
def test_an_attempt_is_seen_by_the_environment_of_parents_and_by_its_keeper(tmp_path: Path, suffix: str) -> None:
    attempt = "attempt_" + "1" * 32
    lock = tmp_path / f"{attempt}.{suffix}"
    lock.touch()
    parent = "import subprocess; subprocess.run(['env', '-i', 'sh', '-c', 'echo $$; read line'])"
    keeper = f"import os; held = open({str(lock)!r}); print(os.getpid(), flush=True); input()  # keeper_host"
    for program, marked in ((parent, {"FENCEPOST_ATTEMPT": attempt}), (keeper, {})):
        with subprocess.Popen(
            [sys.executable, "-c", program],
            env={"PATH": os.environ["PATH"], **marked},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as running:
            below = int(running.stdout.readline()) if running.stdout is not None else 0
            assert Mark(attempt, running.pid) in marks({}, below), program
            running.communicate("\n", timeout=30)


def test_the_command_line_asks_in_a_persons_name_in_one_place() -> None:
    """By `by_person` or `require_outside`: whoever asked the kernel by himself would forget what these refuse."""
    found = []
    for path in sorted(Path(surfaces.__path__[0]).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "request":
                of = node.func.value
                if (
                    of.attr if isinstance(of, ast.Attribute) else of.id if isinstance(of, ast.Name) else ""
                ) == "kernel":
                    found.append(path.name)
    assert found == ["context.py"]
