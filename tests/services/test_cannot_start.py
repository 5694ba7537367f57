"""Where nothing can be started, through no fault of any order, none fails for it and none pays."""

from __future__ import annotations

import shutil
from typing import Any

import pytest

from fencepost.core.records.plan import Acceptance, Retry
from fencepost.ports.errors import DescriptorsExhausted
from fencepost.ports.executor import CannotStart, Ended, LogFacts
from tests.services.world import World, draft, needs

NOTHING = LogFacts(bytes_total=0, head_bytes=0, tail_bytes=0, gap_bytes=0)
NOT_STARTED = Ended(
    reason="not_started",
    exit_code=None,
    signal=None,
    duration_us=0,
    tree_empty=True,
    stdout=NOTHING,
    stderr=NOTHING,
    message="no keeper could be started",
)


class Never:
    pid = None

    def confirm(self, deadline_tick_us: int) -> None:
        pass

    def wait(self, timeout_s: float | None) -> Ended:
        return NOT_STARTED


def test_a_removed_folder_of_locks_fails_no_order_and_ends_the_worker(world: World) -> None:
    once = f"test -e '{world.folder}/flag' || {{ touch '{world.folder}/flag'; rm -rf '{world.home}/locks'; }}"
    plan = world.submit(draft("a", *world.say("a", once)), draft("b", groups=needs("a")))
    worker = world.worker(jobs=1)
    world.until(lambda: worker.fatal is not None, 20, "the worker goes on without its lock")
    worker.stop()
    assert isinstance(worker.fatal, CannotStart) and worker.fatal.code == "storage_unavailable"
    assert "locks" in worker.fatal.message and worker.fatal.next_step == "fencepost doctor"
    assert world.order(plan, "b").state in ("ready", "blocked_dependency")
    assert world.plan(plan).account.charged.get("attempts", 0) <= 1
    (world.home / "locks").mkdir(mode=0o700)
    world.worker(jobs=1)
    world.until_ended(plan)
    assert [world.order(plan, name).state for name in "ab"] == ["applied", "applied"]
    world.check()


def test_a_worker_whose_lock_was_removed_stops_what_it_runs_at_no_cost(world: World) -> None:
    """Without it others take it for dead: they would run the same beside it."""
    plan = world.submit(draft("a", *world.say("a", "sleep 60")))
    worker = world.worker(jobs=1)
    world.until_ran("a")
    world.until(lambda: world.attempts(plan, "a")[0].state == "running")
    (world.home / "locks" / f"{worker.worker}.lock").unlink()
    world.until(lambda: worker.fatal is not None, 10, "the worker goes on without its lock")
    worker.stop()
    assert worker.fatal is not None and "take it for dead" in worker.fatal.message
    order = world.order(plan, "a")
    assert (order.state, order.failures, world.processes()) == ("ready", 0, [])
    assert world.plan(plan).account.charged.get("attempts", 0) == 0
    world.check()


def test_an_attempt_whose_lock_cannot_be_made_is_given_back(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = world.submit(draft("a", *world.say("a")))
    executor = world.app.executor
    start = executor.start

    def without_locks(job: Any, deadline_tick_us: int) -> Any:
        shutil.rmtree(world.home / "locks")
        return start(job, deadline_tick_us)

    monkeypatch.setattr(executor, "start", without_locks)
    worker = world.worker(jobs=1)
    world.until(lambda: worker.fatal is not None, 20)
    worker.stop()
    order = world.order(plan, "a")
    assert (order.state, order.reason, order.failures, world.ran()) == ("ready", "drained", 0, [])
    assert world.plan(plan).account.charged.get("attempts", 0) == 0
    (world.home / "locks").mkdir(mode=0o700)
    world.check()


def test_what_no_keeper_takes_is_a_failure_of_the_executor(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    again = Retry(on=("executor",), backoff_us=1_000, backoff_max_us=1_000)
    plan = world.submit(draft("a", *world.say("a"), retry=again))
    executor = world.app.executor
    start, asked = executor.start, []

    def once_not(job: Any, deadline_tick_us: int) -> Any:
        asked.append(job)
        return Never() if len(asked) == 1 else start(job, deadline_tick_us)

    monkeypatch.setattr(executor, "start", once_not)
    world.worker(jobs=1)
    world.until_ended(plan)
    order = world.order(plan, "a")
    assert (order.state, order.failures, world.ran()) == ("applied", 1, ["a"])
    world.check()


def test_a_worker_that_may_open_no_more_files_says_so(world: World) -> None:
    worker = world.worker(jobs=1)
    worker._take(OSError(24, "Too many open files"))
    assert worker.fatal is not None and worker.fatal.code == "too_few_descriptors"


@pytest.mark.parametrize("step", ["prepare", "collect"])
def test_an_attempt_for_which_no_file_can_be_opened_is_given_back(
    world: World, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """As one for which nothing can be started: its worker drains, and the next one runs it."""
    plan = world.submit(draft("a", *world.say("a", "touch x"), outputs=("x",)))
    once(monkeypatch, world, step)
    worker = world.worker(jobs=1)
    world.until(lambda: worker.fatal is not None, 10)
    worker.stop()
    assert isinstance(worker.fatal, CannotStart) and worker.fatal.code == DescriptorsExhausted.code
    assert (world.order(plan, "a").state, world.order(plan, "a").failures) == ("ready", 0)
    assert world.plan(plan).account.charged.get("attempts", 0) == 0
    world.worker(jobs=1)
    world.until_ended(plan)
    assert world.order(plan, "a").state == "applied"
    world.check()


def test_a_verifier_for_which_no_file_can_be_opened_says_nothing_about_the_result(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = world.submit(draft("a", *world.say("a"), accept=Acceptance(verify=("true",))))
    asked = once(monkeypatch, world, "prepare_verifier")
    worker = world.worker(jobs=1)
    world.until_ended(plan, 20)
    assert asked == [DescriptorsExhausted.code] and worker.fatal is None
    assert world.order(plan, "a").state == "applied"
    world.check()


def once(monkeypatch: pytest.MonkeyPatch, world: World, step: str) -> list[str]:
    """A step of the workspaces that fails the first time; the codes of its failures."""
    spaces = type(world.app.workspaces)
    real, told = getattr(spaces, step), []

    def failing(*given: Any, **named: Any) -> Any:
        if not told:
            told.append(DescriptorsExhausted.code)
            raise DescriptorsExhausted("too many open files")
        return real(*given, **named)

    monkeypatch.setattr(spaces, step, failing)
    return told
