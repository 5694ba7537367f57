"""`kill -9` of `fencepost run` at random moments, and the same command again: it continues, and nothing is doubled."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from pathlib import Path

import pytest

from tests.crash.runs import Place, check_journal, processes_of

KILLS = int(os.environ.get("FENCEPOST_TEST_KILLS", "50"))
ORDERS = 8


def plan_text(number: int, log: Path) -> str:
    lines = [f'name = "killed-{number}"', 'objective = "survive"', "[budget]", f"attempts = {ORDERS * 40}"]
    for place in range(ORDERS):
        needs = f'needs = ["w{place - 2}"]\n' if place >= 2 else ""
        lines.append(
            f'[[work]]\nname = "w{place}"\n{needs}'
            f'run = ["sh", "-c", "sleep 0.0{place}; echo done > out.txt; echo {number}/w{place} >> \'{log}\'"]\n'
            'outputs = ["out.txt"]\naccept = { files = ["out.txt"] }\n'
            "budget = { attempts = 40 }\n"
        )
    return "\n".join(lines)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_kill_at_random_moments_and_run_again(tmp_path: Path) -> None:
    place = Place(tmp_path)
    chance = random.Random(20_261_130)
    kills = plans = 0
    while kills < KILLS:
        plan = place.write_plan(plan_text(plans, place.log))
        while True:
            process = place.start("run", str(plan), "--json")
            if kills < KILLS:
                time.sleep(chance.uniform(0.0, 1.6))
                finished = process.poll() is not None
                process.send_signal(signal.SIGKILL)
            else:
                finished = True
            output, errors = process.communicate(timeout=60)
            if finished:
                assert process.returncode == 0, errors.decode()
                document = json.loads(output)
                break
            kills += 1
        assert document["outcome"] == "done"
        assert {order["state"] for order in document["orders"]} == {"applied"}
        for order in document["orders"]:
            assert place.executions().count(f"{plans}/{order['name']}") >= 1
        check_journal(place)
        plans += 1
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
