"""The end of a run of a wide plan: what is the same is said once, and each step to take stands once, at the end."""

from __future__ import annotations

import signal
import time
from pathlib import Path

from fencepost.surfaces.cli.summary_fold import folded_rows, names_text, step_lines
from fencepost.surfaces.cli.summary_table import Entry
from tests.surfaces.cli_run_world import WAIT_S, make_repo

FAN = "".join(f'[[work]]\nname = "fan-{number:02}"\nneeds = ["b1"]\nrun = ["true"]\n' for number in range(1, 41))
WIDE = f"""\
[budget]
attempts = 60
[[work]]
name = "a"
run = ["true"]
[[work]]
name = "b1"
run = ["sh", "-c", "exit 3"]
{FAN}
[[work]]
name = "z1"
run = ["nosuchprogram"]
[[work]]
name = "z2"
run = ["nosuchprogram"]
"""


def test_forty_orders_behind_one_are_one_row_and_the_steps_stand_at_the_end(tmp_path: Path) -> None:
    repo = make_repo(tmp_path)
    repo.write("plan.toml", WIDE)
    done = repo.call("run", "plan.toml")
    assert done.returncode == 7
    summary = done.stdout[done.stdout.index("plan plan: failed") :]
    lines = summary.splitlines()
    assert len(lines) < 24, summary
    assert summary.count("because of plan/b1") == 1 and "fan-01 ... fan-40 (40)" in summary
    assert "40 dependency_failed" in lines[0]
    cost = next(number for number, line in enumerate(lines) if line.startswith("cost: "))
    assert not any(line.lstrip().startswith("next") for line in lines[:cost])
    steps = [line for line in lines[cost + 1 :] if line]
    assert all(line.startswith(("next: ", "next, for ", "  ")) for line in steps)
    assert len([line for line in steps if "plan/b1" in line]) == 1
    assert len(steps) == len(set(steps))
    assert {order["state"] for order in repo.document("run", "plan.toml", code=7)["orders"]} == {
        "applied",
        "failed",
        "dependency_failed",
    }


def test_few_orders_and_those_that_differ_have_rows_of_their_own() -> None:
    entries = [
        Entry(name=name, state=state, tries="-", time="-", told=told)
        for name, state, told in (
            ("a", "applied", "exit code 0"),
            ("b", "applied", "exit code 0"),
            ("c", "applied", "exit code 0"),
            ("d", "failed", "x"),
            ("e", "failed", "y"),
            ("f", "failed", "x"),
            ("g", "failed", "x"),
            ("h", "failed", "y"),
        )
    ]
    kept = [entry.state == "applied" for entry in entries]
    assert folded_rows(entries, kept=kept) == [[0], [1], [2], [3, 5, 6], [4], [7]]
    assert names_text(["d", "f", "g"], is_run=False) == "d, f, g"
    assert names_text(["d", "f", "g", "h", "i"], is_run=False) == "d, f, g and 2 more"


def test_a_step_stands_once_and_says_whose_it_is() -> None:
    lines = step_lines([("a", "correct run in the plan"), ("b", "fencepost order log p/b"), ("c", ""), ("d", "wait")])
    assert lines == ["next, for a: correct run in the plan", "next: fencepost order log p/b", "next, for d: wait"]
    assert step_lines([("a", "wait"), ("b", "wait")]) == ["next: wait"]
    assert step_lines([("a", "wait"), ("b", "wait"), ("c", "look")])[0] == "next, for a; b: wait"
    many = step_lines([(f"o{number}", f"fencepost order log p/o{number}") for number in range(12)])
    assert len(many) == 9 and many[-1] == "and 4 more steps"


def test_an_order_whose_worker_was_killed_is_said_to_have_lost_it(tmp_path: Path) -> None:
    """As `order list` says it: nobody is at work, and there is no output to follow."""
    repo = make_repo(tmp_path)
    repo.write(
        "plan.toml",
        '[budget]\nattempts = 9\n[[work]]\nname = "a"\nrun = ["sh", "-c", "touch $FENCEPOST_REPO/began; sleep 60"]\n',
    )
    running = repo.start("run", "plan.toml")
    until = time.monotonic() + WAIT_S
    while not (repo.folder / "began").exists():
        assert time.monotonic() < until
        time.sleep(0.02)
    running.send_signal(signal.SIGKILL)
    running.communicate()
    told = repo.call("run", "plan.toml", "--no-work", "--timeout", "100ms").stdout
    row = next(line for line in told.splitlines() if line.startswith("a  "))
    assert "worker gone" in row and "order log" not in told
    assert "next: fencepost run plan.toml" in told


def test_orders_that_are_told_as_one_have_each_answer_that_is_wanted_told(tmp_path: Path) -> None:
    """Whoever answers what is printed has answered all that the plan asks."""
    repo = make_repo(tmp_path)
    asks = 'run = ["fencepost", "attempt", "yield", "--question", "go", "--prompt", "Go on?"]'
    fails = 'run = ["sh", "-c", "exit 3"]'
    works = [(name, asks) for name in "abc"] + [(name, fails) for name in "defg"]
    repo.write("q.toml", "[budget]\nattempts = 9\n" + "".join(f'[[work]]\nname = "{n}"\n{r}\n' for n, r in works))
    run = repo.call("run", "q.toml")
    assert run.returncode == 9 and "a ... c (3)" in run.stdout and "d ... g (4)" in run.stdout
    steps = [line for line in run.stdout.splitlines() if line.startswith("next")]
    assert steps[:3] == [f"next: fencepost order answer q/{name} VALUE" for name in "abc"]
    assert steps[3:] == ["next: fencepost order log q/d"], "one of those that only look"
