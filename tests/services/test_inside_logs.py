"""What programs print, whatever their end: it is evidence, and holds no token (W5, X10)."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from msgspec.structs import replace

from fencepost.core.commands import WaitDraft
from fencepost.core.records.attempt import ResultFacts
from fencepost.ports.executor import Ended
from fencepost.services.attempt import Run
from fencepost.services.leases import Lease
from fencepost.services.tasks import Task
from tests.services.world import World, draft

YIELDS = """
n=$(cat "$FENCEPOST_CHECKPOINT" 2>/dev/null || echo 0)
n=$((n+1))
echo "said by attempt $n"
echo "told by attempt $n with $FENCEPOST_TOKEN" >&2
[ $n -gt 2 ] && exit 0
echo $n > s
fencepost attempt checkpoint s >/dev/null
fencepost attempt yield --after 1s >/dev/null
"""


def log_of(world: World, ordinal: int, stream: str) -> str:
    """What the command prints of one stream of an attempt of order a."""
    command = ["order", "log", "a", "--attempt", str(ordinal), f"--{stream}", "--home", str(world.home)]
    environment = {**os.environ, "XDG_STATE_HOME": str(world.folder / "state")}
    done = subprocess.run(
        [sys.executable, "-m", "fencepost", *command], capture_output=True, text=True, env=environment, check=True
    )
    return done.stdout


def test_w5_the_output_of_an_attempt_that_yielded_is_evidence_like_any_other(world: World) -> None:
    plan = world.submit(draft("a", "sh", "-c", YIELDS))
    world.worker(jobs=1)
    world.until_ended(plan)
    assert world.order(plan, "a").state == "applied"
    world.workers[0]._upkeep.sweep()
    assert [log_of(world, ordinal, "stdout") for ordinal in (1, 2, 3)] == [
        f"said by attempt {ordinal}\n" for ordinal in (1, 2, 3)
    ]
    hidden = "*" * 64
    assert [log_of(world, ordinal, "stderr") for ordinal in (1, 2, 3)] == [
        f"told by attempt {ordinal} with {hidden}\n" for ordinal in (1, 2, 3)
    ]
    world.check()


def test_w5_an_attempt_that_could_not_yield_keeps_what_it_printed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = world.submit(draft("a", "sh", "-c", "echo why; fencepost attempt yield --question go > said"))
    world.worker(jobs=1)
    attempts = world.workers[0]._attempts
    real = attempts._yielded

    def damaged(lease: Lease, task: Task, run: Run, wish: WaitDraft, ended: Ended) -> ResultFacts | None:
        return real(lease, task, run, replace(wish, question="", after_us=0), ended)

    monkeypatch.setattr(attempts, "_yielded", damaged)
    world.until_ended(plan)
    facts = world.facts(plan, "a")
    assert (facts.message_code, facts.exit_code) == ("result_invalid", 0)
    assert facts.stdout is not None
    assert world.app.artifacts.read(facts.stdout.digest, 100) == b"why\n"
