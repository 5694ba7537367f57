"""Several workers on one store: each order once, no lock error for anyone, and a stopped worker changes nothing."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.crash.runs import Place, check_journal, holds_of, processes_of

ORDERS = 300


def _wait_for(condition: Callable[[], bool], seconds: float, what: str) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_case_35_two_workers_share_300_orders_each_run_once(tmp_path: Path) -> None:
    place = Place(tmp_path)
    orders = "\n".join(
        f'[[work]]\nname = "n{number}"\nrun = ["sh", "-c", "echo n{number} >> \'{place.log}\'"]\n'
        for number in range(ORDERS)
    )
    plan = place.write_plan(f'name = "shared"\n[budget]\nattempts = {ORDERS}\n{orders}')
    submitted = place.call("plan", "submit", str(plan))
    assert submitted.returncode == 0, submitted.stderr
    workers = [place.start("worker", "start", "--until-idle", "--jobs", "2") for _ in range(2)]
    for worker in workers:
        _, errors = worker.communicate(timeout=240)
        assert worker.returncode == 0, errors.decode()
        assert b"locked" not in errors
    assert sorted(place.executions()) == sorted(f"n{number}" for number in range(ORDERS))
    records = place.records()
    takers = {record["body"]["worker"] for record in records if record["kind"] == "attempt_reservation"}
    assert len(takers) == 2, "one of the two workers got nothing"
    document = place.document("plan", "show", "shared")
    assert document["applied"] == ORDERS
    check_journal(place)


def _check_that_the_late_end_was_paid(records: list[dict[str, Any]]) -> None:
    """The time that the stopped worker's supervisor measured is charged on that attempt's own hold, which has ended."""
    (late,) = [record for record in records if record["kind"] == "late_record" and record["body"]["what"] == "stop"]
    used_us = late["body"]["duration_us"]
    assert used_us > 0
    (hold,) = [hold for hold in holds_of(records) if hold.attempt == late["subject"]]
    assert hold.charged["time_us"] >= used_us, "what the stopped worker used is charged"


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_case_20_a_worker_stopped_past_its_lease_changes_nothing_and_is_paid(tmp_path: Path) -> None:
    """SIGSTOP past the lease, SIGCONT later: its tree ended before the lease did, its late end is kept and refused
    as stale, its time is charged, and the order is done once, by the other worker."""
    place = Place(tmp_path)
    beats = tmp_path / "beats.log"
    plan = place.write_plan(
        f"""
name = "stopped"
[budget]
attempts = 4
[[work]]
name = "slow"
run = ["sh", "-c", '''
echo begin-$FENCEPOST_FENCE >> '{place.log}'
if [ "$FENCEPOST_FENCE" = 1 ]; then
  while :; do date +%s.%N >> '{beats}'; sleep 0.1; done
fi
echo end-$FENCEPOST_FENCE >> '{place.log}'
''']
"""
    )
    assert place.call("plan", "submit", str(plan)).returncode == 0
    first = place.start("worker", "start", "--jobs", "1")
    second = None
    try:
        _wait_for(lambda: "begin-1" in place.executions(), 20, "the first worker did not start the order")
        os.kill(first.pid, signal.SIGSTOP)
        stopped = time.time()
        second = place.start("worker", "start", "--jobs", "1")
        _wait_for(lambda: "end-2" in place.executions(), 60, "the second worker did not take the order over")
        last_beat = float(beats.read_text().split()[-1])
        records = place.records()
        expiry = next(record for record in records if record["kind"] == "expiry_eligibility")
        assert last_beat * 1_000_000 < expiry["body"]["deadline_us"], "the tree outlived its lease"
        assert last_beat - stopped < 10
        os.kill(first.pid, signal.SIGCONT)
        _wait_for(
            lambda: any(record["kind"] == "late_record" for record in place.records()),
            30,
            "the late end was not kept",
        )
    finally:
        for worker in (first, second):
            if worker is not None:
                os.kill(worker.pid, signal.SIGCONT)
                worker.send_signal(signal.SIGTERM)
                worker.communicate(timeout=30)
    records = place.records()
    late = [record["body"] for record in records if record["kind"] == "late_record"]
    assert {body["disposition"] for body in late} == {"rejected_stale"}
    assert [entry for entry in place.executions() if entry.startswith("end-")] == ["end-2"]
    _check_that_the_late_end_was_paid(records)
    order = place.document("order", "show", "stopped/slow")
    assert order["state"] == "applied"
    assert order["charged"]["attempts"] == 2
    check_journal(place)
    assert processes_of(tmp_path) == []
