"""Several processes on one store, and processes that are killed: what was answered is in the journal.

What was not answered is either wholly there or not at all, and the replay matches at every moment.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fencepost.core.commands import ApplyResult
from fencepost.kernel import replay
from fencepost.testing.fakes import FakeEntropy
from tests.kernel.support import (
    activate,
    done,
    enrol,
    kernel_over,
    life,
    report,
    reserve,
    sqlite_store,
    submit,
    tasks_in,
)

ROOT = Path(__file__).parent.parent.parent
KILLS = 25


def started(folder: Path, number: int, lives: int, way: str) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT), *sys.path))}
    arguments = [str(Path(__file__).with_name("liver.py")), str(folder), str(number), str(lives), way]
    return subprocess.Popen([sys.executable, *arguments], stdout=subprocess.PIPE, env=environment)


def acknowledged(output: bytes) -> list[tuple[str, int, int, bool]]:
    """The receipts of all whole lines; the last one may have been cut off by the kill."""
    lines = output.split(b"\n")[:-1]
    return [tuple(json.loads(line)) for line in lines if line.startswith(b"[")]


def checked(folder: Path, told: list[tuple[str, int, int, bool]], number: int) -> int:
    """Compare what was told with the journal; return the number of its records."""
    kernel = kernel_over(sqlite_store(folder), entropy=FakeEntropy(10_000 + number))
    compared = replay.compare(kernel.journal, kernel.stream)
    assert compared.match, compared.differs
    assert kernel.verify().ok
    with kernel.reader.look() as look:
        records = [look.record(seq) for seq, _ in look.records(0, 1_000_000)]
    for key, first_seq, count, ok in told:
        assert ok
        record = records[first_seq - 1]
        assert record.command is not None and record.command.key == key
        assert record.batch.count == count and record.batch.first == first_seq
    firsts = [record for record in records if record.command is not None]
    assert sum(record.batch.count for record in firsts) == len(records), "every batch is whole"
    kernel.journal.close()
    return len(records)


@pytest.mark.slow
def test_a_process_killed_at_any_moment_loses_nothing_that_it_was_answered(tmp_path: Path) -> None:
    choices = random.Random(26)
    told: list[tuple[str, int, int, bool]] = []
    before = 0
    for number in range(KILLS):
        child = started(tmp_path, number, 100_000, "tasks" if number % 2 else "alone")
        if child.stdout is None:
            raise RuntimeError("the child has no output")
        first = child.stdout.readline()
        assert first == b"ready\n"
        # So many answers are waited for, and then a moment: how far it comes is no matter of the machine's load.
        answers = b"".join(child.stdout.readline() for _ in range(choices.randrange(40)))
        time.sleep(choices.random() * 0.005)
        child.kill()
        told += acknowledged(answers + child.stdout.read())
        child.wait()
        child.stdout.close()
        after = checked(tmp_path, told, number)
        assert after >= before
        before = after
    assert len(told) > 10 * KILLS


@pytest.mark.slow
def test_case_35_two_processes_alternate_on_one_store(tmp_path: Path) -> None:
    kernel = kernel_over(sqlite_store(tmp_path))
    done(kernel, "dispatcher", enrol())
    children = [started(tmp_path, number, 12, way) for number, way in enumerate(("tasks", "alone"))]
    for number in range(12):
        life(kernel, f"own-{number}")
    told: list[tuple[str, int, int, bool]] = []
    for child in children:
        output, _ = child.communicate(timeout=60)
        assert child.returncode == 0
        told += acknowledged(output)
    assert len(told) == 5 * (8 * 12 + 12)
    assert len(set(tasks_in(kernel))) == 12 + 8 * 12 + 12
    kernel.close()
    checked(tmp_path, told, 1)


def test_two_kernels_see_each_others_writes_at_every_step(tmp_path: Path) -> None:
    """Each step of a life is another kernel's: remembered state is used only while nobody else has written."""
    kernels = [kernel_over(sqlite_store(tmp_path), entropy=FakeEntropy(number)) for number in (1, 2)]
    done(kernels[0], "dispatcher", enrol())
    for turn in range(6):
        one, other = kernels[turn % 2], kernels[(turn + 1) % 2]
        submitted = done(one, "human", submit(f"task-{turn}"))
        reserved = done(other, "dispatcher", reserve(submitted))["reservations"][0]
        done(one, "dispatcher", activate(reserved))
        done(other, "executor", report(reserved))
        ended = done(one, "reducer", ApplyResult(attempt=reserved["attempt"]))
        assert ended["state"] == "applied"
    with kernels[0].reader.look() as look:
        scope = look.scope()
    assert scope is not None and scope.account.charged["attempts"] == 6 and not scope.account.held
    assert replay.compare(kernels[0].journal, kernels[0].stream).match
    for kernel in kernels:
        kernel.close()
