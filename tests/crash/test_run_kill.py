"""`kill -9` of `fencepost run` at random moments, and the same command again: it continues, and nothing is doubled."""

from __future__ import annotations

import random
import signal
import time
from pathlib import Path

import pytest

from tests.crash.runs import Place, check_journal, processes_of

ORDERS = 6
ONCE_MORE_S = 10.0  # for a run that is not killed, recovery included: far below a lease, so that none is waited for


def plan_text(number: int, log: Path) -> str:
    lines = [f'name = "killed-{number}"', 'objective = "survive"', "[budget]", f"attempts = {ORDERS * 60}"]
    for place in range(ORDERS):
        needs = f'needs = ["w{place - 2}"]\n' if place >= 2 else ""
        lines.append(
            f'[[work]]\nname = "w{place}"\n{needs}'
            f'run = ["sh", "-c", "sleep 0.1{place}; echo done > out.txt; echo killed-{number}/w{place} >> \'{log}\'"]\n'
            'outputs = ["out.txt"]\naccept = { files = ["out.txt"] }\n'
            "budget = { attempts = 60 }\n"
        )
    return "\n".join(lines)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kills_least", [50, pytest.param(1_000, marks=pytest.mark.nightly)])
def test_kill_at_random_moments_and_run_again(tmp_path: Path, kills_least: int) -> None:
    """However often a run is killed: it continues, what was applied is not run again, and every account adds up."""
    place = Place(tmp_path)
    chance = random.Random(20_261_130)
    kills = plans = 0
    while kills < kills_least:
        plan = place.write_plan(plan_text(plans, place.log))
        left = min(chance.randint(4, 8), kills_least - kills)
        while left:
            process = place.start("run", str(plan), "--json")
            time.sleep(chance.uniform(0.1, 1.2))
            process.send_signal(signal.SIGKILL)
            process.communicate(timeout=60)
            left -= 1
            kills += process.returncode == -signal.SIGKILL
            finished = place.applied()
            if sum(name.startswith(f"killed-{plans}/") for name in finished) == ORDERS:
                break
        began = time.monotonic()
        document = place.document("run", str(plan))
        assert time.monotonic() - began < ONCE_MORE_S, "a run did not continue at once"
        assert document["outcome"] == "done"
        assert {order["state"] for order in document["orders"]} == {"applied"}
        after = place.applied()
        assert {name: after[name] for name in finished} == finished, "a finished order was run again"
        assert all(after[f"killed-{plans}/{order['name']}"] >= 1 for order in document["orders"])
        for order in document["orders"]:
            assert order["attempts"] >= after[f"killed-{plans}/{order['name']}"], "an execution that was not charged"
        plans += 1
    check_journal(place)
    deadline = time.monotonic() + 5
    while processes_of(tmp_path) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert processes_of(tmp_path) == []


@pytest.mark.slow
def test_a_killed_run_continues_at_once_and_repeats_nothing_finished(tmp_path: Path) -> None:
    place = Place(tmp_path)
    plan = place.write_plan(
        f"""
name = "continue"
[budget]
attempts = 10
[[work]]
name = "first"
run = ["sh", "-c", "echo first >> '{place.log}'"]
[[work]]
name = "second"
needs = ["first"]
run = ["sh", "-c", "echo second-begins >> '{place.log}'; sleep 30; echo second >> '{place.log}'"]
"""
    )
    process = place.start("run", str(plan))
    deadline = time.monotonic() + 20
    while "second-begins" not in place.executions():
        assert time.monotonic() < deadline, place.executions()
        time.sleep(0.05)
    process.kill()
    process.communicate()
    began = time.monotonic()
    again = place.start("run", str(plan))
    while place.executions().count("second-begins") < 2:
        assert time.monotonic() < began + 8, "the second run did not take the order up at once"
        time.sleep(0.05)
    took_s = time.monotonic() - began
    again.send_signal(signal.SIGTERM)
    _, errors = again.communicate(timeout=30)
    assert again.returncode == 143, errors.decode()
    assert took_s < 5, f"continuing took {took_s:.1f} s, which is no longer at once"
    assert place.executions().count("first") == 1
    check_journal(place)
    assert processes_of(tmp_path) == []
