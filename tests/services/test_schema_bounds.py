"""Outputs that would take for ever to look at: their checks are bounded in time and memory, and hold up nobody (W7)."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path

import pytest

from fencepost.adapters.artifacts import schema_checks as checks_module
from fencepost.adapters.artifacts.schema_checks import schema_checks
from fencepost.core import matching
from fencepost.core.records.plan import Acceptance
from fencepost.services import results
from tests.services.world import World, draft

INNOCENT = b'{"type":"string","pattern":"^([a-z]+[ ]?)+$"}'
HOSTILE = b'"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!"'
QUICK = (
    "import fencepost.adapters.artifacts.schema_child as child; "
    "child.DOCUMENT_CPU_S_MAX, child.MEMORY_BYTES_MAX = {0}, {1}; child.serve(child.socket.socket(fileno=0))"
)


def quick(monkeypatch: pytest.MonkeyPatch, seconds: int = 1, *, memory_bytes: int = 2**30) -> None:
    """Limits that a test reaches, in this process and in those that check."""
    monkeypatch.setattr(checks_module, "DOCUMENT_CPU_S_MAX", seconds)
    started = f"import json, sys; sys.path[:] = json.loads(sys.argv[1]); exec({QUICK.format(seconds, memory_bytes)!r})"
    monkeypatch.setattr(checks_module, "_BOOTSTRAP", started)


def test_w7_what_follows_its_schema_and_what_does_not_are_told_as_before() -> None:
    with schema_checks(bool) as problems_of:
        assert problems_of(b'"a b"', INNOCENT) == []
        assert problems_of(b"3", INNOCENT) == ["/: 3 is not of type 'string'"]
        assert problems_of(b'{"a": NaN}', b"{}") == ["/: the document is not JSON: NaN is no JSON value"]


@pytest.mark.parametrize(
    "document, schema",
    [
        (HOSTILE, INNOCENT),
        (json.dumps([{"a": number} for number in range(30_000)]).encode(), b'{"uniqueItems": true}'),
        (
            b"3",
            json.dumps(
                {
                    "$ref": "#/$defs/d0",
                    "$defs": {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(40)} | {"d40": {}},
                }
            ).encode(),
        ),
    ],
    ids=["pattern", "unique items", "references"],
)
def test_w7_a_check_without_end_is_ended_and_the_next_output_is_checked(
    document: bytes, schema: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick(monkeypatch)
    with schema_checks(bool) as problems_of:
        assert problems_of(document, schema) == ["its check took more than 1s of processor time"]
        assert problems_of(b'"a"', INNOCENT) == []


def test_w7_references_in_a_ring_are_told() -> None:
    with schema_checks(bool) as problems_of:
        (problem,) = problems_of(b"3", b'{"$ref": "#"}') or ()
        assert "nested too deeply" in problem


def test_w7_a_result_uses_up_no_more_than_its_share(monkeypatch: pytest.MonkeyPatch) -> None:
    quick(monkeypatch)
    monkeypatch.setattr(checks_module, "ENDED_MAX", 1)
    with schema_checks(bool) as problems_of:
        assert "1s of processor time" in str(problems_of(HOSTILE, INNOCENT))
        assert "not checked" in str(problems_of(b'"a"', INNOCENT))


def test_w7_a_document_that_needs_too_much_memory_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    quick(monkeypatch, 10, memory_bytes=2**28)
    with schema_checks(bool) as problems_of:
        grown = b"[" + b",".join([b'{"":[0]}'] * 1_500_000) + b"]"
        assert problems_of(grown, b"{}") == ["its check needs more than 256 MiB of memory"]
        assert problems_of(b'"a"', INNOCENT) == []


def test_a_check_whose_process_was_killed_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    begin = subprocess.Popen.__init__

    def counted(self: subprocess.Popen[bytes], *arguments: object, **named: object) -> None:
        begin(self, *arguments, **named)  # type: ignore[call-overload]  # passed on as it is
        made.append(self.pid)
        if len(made) == 1:
            os.kill(self.pid, signal.SIGKILL)

    monkeypatch.setattr(subprocess.Popen, "__init__", counted)
    with schema_checks(bool) as problems_of:
        assert problems_of(b'"a"', INNOCENT) == []
    assert len(made) == 2


def test_a_check_that_stands_still_is_ended_by_the_wall(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks_module, "ANSWER_S_MAX", 0.5)
    monkeypatch.setattr(checks_module, "_BOOTSTRAP", "import time; time.sleep(60)")
    began = time.monotonic()
    with schema_checks(bool) as problems_of:
        assert problems_of(b"x" * 2**22, INNOCENT) == ["its check took more than 0.5s"]
    assert time.monotonic() - began < 20


def test_w7_c8_a_pattern_without_end_fails_its_own_order_alone(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker goes on: it renews, and the other order is applied meanwhile."""
    quick(monkeypatch, 3)
    schema = world.app.artifacts.put_bytes(INNOCENT, classification="internal").digest
    accept = Acceptance(schemas={"*.json": schema})
    hostile = draft("a", "sh", "-c", f"printf '%s' '{HOSTILE.decode()}' > o.json", outputs=("*.json",), accept=accept)
    plan = world.submit(hostile, draft("b", "sleep", "4"))
    world.worker(jobs=2)
    world.until_ended(plan)
    assert (world.order(plan, "a").state, world.order(plan, "a").reason) == ("failed", "schema_failed")
    assert world.order(plan, "b").state == "applied"
    (receipt,) = world.facts(plan, "a").validation
    assert receipt.message == "o.json: its check took more than 3s of processor time"
    world.check()


def test_case_09_a_drain_waits_for_a_check_no_longer_than_for_a_program(world: World) -> None:
    schema = world.app.artifacts.put_bytes(INNOCENT, classification="internal").digest
    accept = Acceptance(schemas={"*.json": schema})
    script = world.say("a", f"printf '%s' '{HOSTILE.decode()}' > o.json")
    plan = world.submit(draft("a", *script, outputs=("*.json",), accept=accept))
    worker = world.worker(jobs=1)
    world.until_ran("a")
    world.until(lambda: not world.processes(), 10)
    began = time.monotonic()
    worker.stop()
    assert time.monotonic() - began < 9
    assert (world.order(plan, "a").state, world.order(plan, "a").reason) == ("ready", "drained")
    assert world.plan(plan).account.charged.get("attempts", 0) == 0
    world.check()


def test_the_process_of_a_check_inherits_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FENCEPOST_TOKEN", "secret")
    seen = tmp_path / "seen"
    monkeypatch.setattr(
        checks_module, "_BOOTSTRAP", f"import os; open({str(seen)!r}, 'w').write(repr(dict(os.environ)))"
    )
    with schema_checks(bool) as problems_of:
        assert "exit code 0" in str(problems_of(b"3", b"{}"))
    assert "secret" not in seen.read_text()


@pytest.mark.parametrize("ended_by", ["drain", "time"])
def test_case_40_looking_through_a_workspace_has_an_end(
    world: World, ended_by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many files at the end of deep paths, and patterns that are compared everywhere on the way."""
    slow = matching.matches_any

    def slower(texts: Iterable[str], path: str) -> bool:
        time.sleep(0.01)
        return slow(texts, path)

    monkeypatch.setattr(results, "matches_any", slower)
    if ended_by == "time":
        monkeypatch.setattr(results, "COLLECT_US_MAX", 500_000)
    script = world.say("a", "i=0; while [ $i -lt 3000 ]; do : > f$i; i=$((i+1)); done")
    plan = world.submit(draft("a", *script, outputs=("*.json",)))
    worker = world.worker(jobs=1)
    world.until_ran("a")
    world.until(lambda: not world.processes(), 20)
    if ended_by == "drain":
        began = time.monotonic()
        worker.stop()
        assert time.monotonic() - began < 12
        assert (world.order(plan, "a").state, world.order(plan, "a").reason) == ("ready", "drained")
    else:
        world.until_ended(plan, 20)
        assert world.order(plan, "a").reason == "outputs_refused"
        assert "look through it" in world.facts(plan, "a").message
    world.check()
