"""A coding agent's command line as a work order: examples/agents, with each way in which such agents fail (X10, W6).

Everything is real but the model: the plan as it is shipped, the command line, workers that are killed.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "agents"
FENCEPOST = [sys.executable, "-m", "fencepost"]
ONCE = {"calls": 4, "tokens_input": 4_600, "tokens_output": 900, "money_micros": {"USD": 10_000}}
"""What the four responses cost, each paid once."""


def project(folder: Path, *script: str, attempts: int = 5) -> Path:
    shutil.copytree(EXAMPLE, folder / "p", ignore=shutil.ignore_patterns("__pycache__"))
    plan = folder / "p" / "plan.toml"
    text = plan.read_text()
    text, scripts = re.subn(r"script = \[[^\]]*\]", f"script = {json.dumps(list(script))}", text)
    text, budgets = re.subn(r"budget = \{ attempts = 5", f"budget = {{ attempts = {attempts}", text)
    assert (scripts, budgets) == (1, 1)
    plan.write_text(text)
    return folder / "p"


def environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("FENCEPOST_")}
    return {"AGENT_TURN_S": "0.01", **kept}


def fencepost(where: Path, *words: str, expected: int = 0) -> Any:
    done = subprocess.run(
        [*FENCEPOST, *words, "--json"],
        cwd=where,
        env=environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == expected, f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    return json.loads(done.stdout)


def order(where: Path, name: str) -> dict[str, Any]:
    found: dict[str, Any] = fencepost(where, "order", "show", name)
    return found


def paid(document: dict[str, Any]) -> dict[str, Any]:
    return {name: document["charged"][name] for name in ONCE}


def starts(where: Path, attempt: int) -> dict[str, Any]:
    """How the agent began in an attempt: its session and its turn."""
    log = fencepost(where, "order", "log", "write", "--attempt", str(attempt))
    text = next(stream["text"] for stream in log["streams"] if stream["stream"] == "stdout")
    lines = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    found: dict[str, Any] = next(line for line in lines if line["type"] == "start")
    return found


def test_w6_a_rate_limit_in_the_middle_costs_an_attempt_and_no_response_twice(tmp_path: Path) -> None:
    where = project(tmp_path, "limit", "work")
    fencepost(where, "run", "plan.toml")
    written = order(where, "write")
    assert (written["state"], written["attempts"], paid(written)) == ("applied", 2, ONCE)
    assert (starts(where, 1)["turn"], starts(where, 2)["turn"]) == (0, 1), "it resumes where it was"
    assert order(where, "review")["state"] == "applied"


def test_w18_a_response_that_was_paid_before_a_crash_is_not_paid_again(tmp_path: Path) -> None:
    where = project(tmp_path, "crash", "work")
    fencepost(where, "run", "plan.toml")
    written = order(where, "write")
    assert (written["attempts"], paid(written)) == (2, ONCE)
    assert starts(where, 2)["turn"] == 0, "the turn itself was lost with the session"


def test_w7_that_an_agent_says_done_proves_nothing(tmp_path: Path) -> None:
    where = project(tmp_path, "lie", attempts=2)
    fencepost(where, "run", "plan.toml", expected=7)
    written = order(where, "write")
    assert (written["state"], written["reason"], written["failures"]) == ("failed", "verifier_failed", 2)
    assert order(where, "review")["state"] == "dependency_failed"


def test_w7_a_second_program_refuses_what_passes_the_tests(tmp_path: Path) -> None:
    where = project(tmp_path, "sloppy")
    fencepost(where, "run", "plan.toml", expected=7)
    assert order(where, "write")["state"] == "applied"
    review = order(where, "review")
    assert (review["state"], review["reason"]) == ("failed", "verifier_failed")


def test_lifecycle_9_an_agent_over_its_budget_asks_and_holds_nothing_until_a_person_has_spoken(tmp_path: Path) -> None:
    where = project(tmp_path, "greedy", "work")
    fencepost(where, "run", "plan.toml", expected=9)
    waiting = order(where, "write")
    assert (waiting["state"], waiting["reason"], waiting["wait"]["question"]) == (
        "waiting",
        "waiting_for_answer",
        "go-on-1",
    )
    assert "tokens_output" in waiting["wait"]["prompt"]
    calls = waiting["charged"]["calls"]
    assert calls >= 1 and waiting["charged"]["tokens_output"] == 40_000 * calls, "all that it had said is paid"
    held = fencepost(where, "budget", "show")
    assert not any(one["held"] for item in held["items"] for one in item["dimensions"].values())
    fencepost(where, "budget", "set", "agent-fix", "--tokens-output", "400000")
    fencepost(where, "order", "answer", "write", "yes")
    fencepost(where, "run", "plan.toml")
    written = order(where, "write")
    assert (written["state"], written["charged"]["calls"], written["answers"]) == ("applied", 4, ["go-on-1"])
    assert written["attempts"] == 1, "it saved its state and yielded: that attempt was given back"
    assert starts(where, 2)["turn"] >= 1


def test_lifecycle_9_an_agent_that_a_person_told_to_stop_fails_and_spends_nothing_more(tmp_path: Path) -> None:
    where = project(tmp_path, "greedy", "work")
    fencepost(where, "run", "plan.toml", expected=9)
    before = order(where, "write")
    fencepost(where, "budget", "set", "agent-fix", "--tokens-output", "400000")
    fencepost(where, "order", "answer", "write", "no")
    fencepost(where, "run", "plan.toml", expected=7)
    after = order(where, "write")
    assert (after["state"], paid(after)) == ("failed", paid(before))


def test_lifecycle_9_an_agent_that_is_over_its_budget_a_second_time_asks_a_second_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENT_TURN_S", "0.7")  # so that it is stopped in the turn that goes over, and has some left
    where = project(tmp_path, "greedy", "greedy", "work")
    for turn, ceiling in ((1, "100000"), (2, "400000")):
        fencepost(where, "run", "plan.toml", expected=9)
        waiting = order(where, "write")
        assert (waiting["reason"], waiting["wait"]["question"]) == ("waiting_for_answer", f"go-on-{turn}")
        fencepost(where, "budget", "set", "agent-fix", "--tokens-output", ceiling)
        fencepost(where, "order", "answer", "write", "yes")
    fencepost(where, "run", "plan.toml")
    written = order(where, "write")
    assert (written["state"], written["answers"]) == ("applied", ["go-on-1", "go-on-2"])


def test_w6_a_worker_that_is_killed_while_its_agent_hangs_loses_one_turn_at_most(tmp_path: Path) -> None:
    where = project(tmp_path, "hang", "work")
    run = subprocess.Popen(
        [*FENCEPOST, "run", "plan.toml"],
        cwd=where,
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        until = time.monotonic() + 60
        while not (where / ".fencepost").is_dir() or not _checkpoints(where):
            assert time.monotonic() < until and run.poll() is None
            time.sleep(0.1)
    finally:
        run.send_signal(signal.SIGKILL)
        run.wait()
    fencepost(where, "run", "plan.toml")
    written = order(where, "write")
    assert (written["state"], paid(written)) == ("applied", ONCE)
    assert starts(where, 2)["turn"] == 1
    states = [attempt["state"] for attempt in fencepost(where, "attempt", "list", "write")["items"]]
    assert states == ["cancelled_no_effect", "accepted"], "the old attempt never opens again"
    assert fencepost(where, "journal", "replay")["match"] is True


def _checkpoints(where: Path) -> int:
    done = subprocess.run(
        [*FENCEPOST, "order", "show", "write", "--json"],
        cwd=where,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    return int(json.loads(done.stdout)["checkpoints"]) if done.returncode == 0 else 0


@pytest.mark.parametrize("name", ["coding_agent.py", "drive.py", "verify.py", "review.py", "accepted.py"])
def test_the_example_is_plain_standard_library(name: str) -> None:
    imported = set(re.findall(r"^(?:import|from) (\w+)", (EXAMPLE / name).read_text(), re.MULTILINE))
    assert imported <= set(sys.stdlib_module_names) | {"__future__"}
