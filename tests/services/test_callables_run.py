"""X10, C8: what a worker makes of the end of a callable, and of what its process said of it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from fencepost.adapters.executors.command import CommandExecutor
from fencepost.app import callables_at
from fencepost.core.commands import OrderDraft
from fencepost.core.planfile import check_text
from fencepost.core.records.plan import PythonCall, Retry
from fencepost.ports.executor import Ended, Job, Running
from fencepost.services.submission import Pins, pin, selections
from tests.services.world import World, draft

BEATS = """
import time
import fencepost as fp

@fp.executor("work", version=1)
def work(attempt):
    while True:
        attempt.heartbeat("on")
        time.sleep(0.02)
"""


def callable_draft(world: World, source: str) -> OrderDraft:
    """An order of `work:work` with `source` as its module."""
    (world.folder / "work.py").write_text(source)
    written: Any = world.app.packs.write(world.folder, ["work.py"])
    manifest = world.app.packs.put_manifest(written, ["work.py"], classification="internal")
    return draft(
        "a",
        run=(),
        work_kind="python/1",
        python=PythonCall(call="work:work", name="work", version=1, interpreter=sys.executable),
        manifest=manifest.digest,
        manifest_content=manifest.content_digest,
        manifest_files=1,
        manifest_bytes=manifest.bytes,
    )


class SeesTheExitFirst(CommandExecutor):
    """Its supervisor notices that a command has ended before it hears that it should be stopped."""

    def start(self, job: Job, deadline_tick_us: int) -> Running:
        running: Any = super().start(job, deadline_tick_us)
        wait = running.wait

        def seen(timeout_s: float | None) -> Ended | None:
            ended: Ended | None = wait(timeout_s)
            return ended and replace(ended, reason="exited")

        running.wait = seen
        return running  # type: ignore[no-any-return]  # changed in one method


@pytest.mark.parametrize("executor", [CommandExecutor, SeesTheExitFirst])
def test_c8_a_callable_that_heeds_a_drain_costs_nothing_whoever_is_first(
    world: World, executor: type[CommandExecutor]
) -> None:
    world.app._executor = executor()
    plan = world.submit(callable_draft(world, BEATS))
    worker = world.worker(jobs=1)
    world.until(lambda: any(attempt.note for attempt in world.attempts(plan, "a")), what="it never said anything")
    worker.stop()
    order = world.order(plan, "a")
    assert (order.state, order.failures, order.account.charged.get("attempts", 0)) == ("ready", 0, 0)
    world.check()


def test_x10_a_callable_that_stops_by_itself_has_failed(world: World) -> None:
    plan = world.submit(callable_draft(world, BEATS.replace("while True:", "raise fp.Stopping('tired')\n    while 1:")))
    world.worker(jobs=1)
    world.until_ended(plan)
    order = world.order(plan, "a")
    assert (order.state, order.reason) == ("failed", "stopped_on_order")
    assert "tired" in world.facts(plan, "a").message
    world.check()


def test_x10_a_yield_that_nobody_was_told_of_is_a_failure(world: World) -> None:
    plan = world.submit(callable_draft(world, BEATS.replace("while True:", "raise fp.Yield\n    while True:")))
    world.worker(jobs=1)
    world.until_ended(plan)
    order = world.order(plan, "a")
    assert (order.state, order.reason) == ("failed", "callable_failed")


def test_x10_an_outcome_makes_no_success_of_a_failed_exit(world: World) -> None:
    """What the process wrote is a claim; whoever writes it by hand gains nothing."""
    forged = """
        import json, os, sys
        with open(sys.argv[-1], "w") as file:
            json.dump({"v": 1, "outcome": "succeeded"}, file)
        os._exit(3)
    while True:"""
    plan = world.submit(callable_draft(world, BEATS.replace("    while True:", "    if True:" + forged)))
    world.worker(jobs=1)
    world.until_ended(plan)
    assert (world.order(plan, "a").state, world.order(plan, "a").reason) == ("failed", "exit_code_unexpected")


PLAN = """
name = "p"
[budget]
attempts = 2
[[work]]
name = "a"
executor = "python"
call = "work:work"
[[work]]
name = "b"
run = ["true"]
"""


def test_x10_what_is_pinned_is_what_was_read(world: World, tmp_path: Path) -> None:
    root = tmp_path / "tree"
    root.mkdir()
    (root / "work.py").write_text(BEATS)
    document = check_text(PLAN, syntax="toml", stem="p").document
    assert document is not None
    chosen = selections(document, ["work.py"])
    callees, problems = callables_at(root, document, [each.paths for each in chosen], ["work.py"])
    assert problems == ()
    pins = pin(document, chosen, callees, root=root, packs=world.app.packs, artifacts=world.app.artifacts)
    assert isinstance(pins, Pins)
    assert {name: python.name for name, python in pins.callables.items()} == {"a": "work"}
    (root / "work.py").write_text(BEATS + "\n")
    moved = pin(document, chosen, callees, root=root, packs=world.app.packs, artifacts=world.app.artifacts)
    assert isinstance(moved, tuple)
    assert [(problem.code, problem.at) for problem in moved] == [("module_unreadable", "/work/0/call")]


def end_of(world: World, body: str, **changes: Any) -> tuple[str, str, str, int]:
    """State, reason and message of the order of a callable with this body, and its attempts."""
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    plan = world.submit(replace(callable_draft(world, BEATS.partition("    while True:")[0] + lines), **changes))
    world.worker(jobs=1)
    world.until_ended(plan)
    order = world.order(plan, "a")
    world.check()
    message = world.facts(plan, "a").message
    return order.state, order.reason, message, order.account.charged["attempts"]


def test_case_18_text_that_cannot_be_stored_fails_one_attempt_cleanly(world: World) -> None:
    state, reason, message, attempts = end_of(world, r"raise ValueError('a\0b\ud800c\udc88d\uffffe\U0001f600f')")
    assert (state, reason, attempts) == ("failed", "callable_raised", 1)
    assert message.startswith("ValueError: a\\0b\\ud800c\\udc88d\uffffe\U0001f600f\nwork.py:")


def test_case_18_what_can_be_stored_comes_back_as_it_was(world: World) -> None:
    body = r"""
text = 'a\0b\uffffc\U0001f600\u2028'
assert attempt.step('s \U0001f600', lambda given: [given, {given: given}], text) == [text, {text: text}]
assert fp.Attempt(__import__('os').environ).step('s \U0001f600', lambda given: None, text) == [text, {text: text}]
attempt.step('half', lambda: '\ud800')
"""
    state, reason, message, attempts = end_of(world, body.strip())
    assert (state, reason, attempts) == ("failed", "step_refused", 1)
    assert "half of a character" in message


@pytest.mark.parametrize(("more", "reason"), [(0, "applied"), (1, "step_refused")])
def test_case_40_a_value_past_its_bound_ends_the_attempt_once(world: World, more: int, reason: str) -> None:
    retry = Retry(on=("executor", "transient_dependency"), backoff_us=1_000, backoff_max_us=1_000)
    body = f"attempt.step('large', lambda: 'x' * ({2**20} - 2 + {more}))"
    found = end_of(world, body, retry=retry)
    assert (found[1], found[3]) == (reason, 1)
