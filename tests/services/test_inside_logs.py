"""What programs print, whatever their end: it is evidence, and holds no token (W5, X10)."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest
from msgspec.structs import replace

from fencepost.core.commands import WaitDraft
from fencepost.core.records.attempt import ResultFacts
from fencepost.core.records.plan import Acceptance
from fencepost.ports.executor import Ended
from fencepost.services.attempt import Run
from fencepost.services.leases import Lease
from fencepost.services.results import HIDDEN
from fencepost.services.tasks import Task
from tests.services.test_callables_run import callable_draft
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


def command(world: World, *words: str) -> str:
    """What a command prints."""
    environment = {**os.environ, "XDG_STATE_HOME": str(world.folder / "state")}
    line = [sys.executable, "-m", "fencepost", *words, "--home", str(world.home)]
    return subprocess.run(line, capture_output=True, text=True, env=environment, check=True).stdout


def log_of(world: World, ordinal: int, stream: str) -> str:
    """What the command prints of one stream of an attempt of order a."""
    return command(world, "order", "log", "a", "--attempt", str(ordinal), f"--{stream}")


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


RAISES = """
import fencepost as fp, os

@fp.executor("work", version=1)
def work(attempt):
    raise RuntimeError("call failed: " + str({k: v for k, v in os.environ.items() if "TOKEN" in k}))
"""


def test_x10_a_token_that_a_callable_raises_stands_in_no_record(world: World) -> None:
    plan = world.submit(callable_draft(world, RAISES))
    world.worker(jobs=1)
    world.until_ended(plan)
    message = world.facts(plan, "a").message
    assert "call failed" in message and HIDDEN in message
    assert re.search(r"[0-9a-f]{64}", message) is None


def test_x10_a_token_that_names_an_output_stands_in_no_record(world: World) -> None:
    script = 'echo a > a.txt; echo b > "$FENCEPOST_TOKEN.txt"'
    plan = world.submit(draft("a", "sh", "-c", script, outputs=("*.txt",)))
    world.worker(jobs=1)
    world.until_ended(plan)
    facts = world.facts(plan, "a")
    assert (facts.failure, facts.message_code) == ("validation", "outputs_refused")
    assert [ref.path for ref in facts.artifacts] == ["a.txt"]


def test_x10_a_token_in_what_a_schema_says_of_an_output_stands_in_no_record(world: World) -> None:
    schema = world.app.artifacts.put_bytes(
        b'{"type": "object", "properties": {"a": {"const": 1}}}', classification="internal"
    )
    script = 'printf \'{"a": "%s"}\' "$FENCEPOST_TOKEN" > a.json'
    accept = Acceptance(schemas={"a.json": schema.digest})
    plan = world.submit(draft("a", "sh", "-c", script, outputs=("a.json",), accept=accept))
    world.worker(jobs=1)
    world.until_ended(plan)
    (receipt,) = world.facts(plan, "a").validation
    assert not receipt.passed
    assert re.search(r"[0-9a-f]{64}", receipt.message) is None
