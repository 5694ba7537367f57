"""What a worker looks after beside its attempts: blocked orders, files that killed writers left, its own name (W18)."""

from __future__ import annotations

import time
from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from fencepost.core.commands import Activate, EnrolWorker, ObserveClock, Reading, Request, ReserveNext, SetBudget
from fencepost.core.index import BUDGET
from fencepost.core.state import BOOTS_MAX
from fencepost.kernel.read import Look
from fencepost.kernel.receipts import Receipt
from fencepost.services import upkeep
from fencepost.services.means import estimated_now_us
from fencepost.services.upkeep import Blocked
from tests.services.world import World, draft

SECOND = 1_000_000
USD, EUR = "money_micros:USD", "money_micros:EUR"


def head(world: World) -> int:
    with world.app.kernel.reader.look() as look:
        return look.head.seq


def principal_of(look: Look, name: str) -> str:
    authority = look.authority()
    assert authority is not None
    return next(principal for principal, state in authority.principals.items() if state.name == name)


def test_a_foreign_currency_holds_an_order_up_without_a_word_on_every_look_and_nobody_else(world: World) -> None:
    paid = world.submit(draft("a", *world.say("a"), ceilings={"attempts": 2, USD: 10}, attempt_time_us=20 * SECOND))
    world.write("human", SetBudget(account="scope", ceilings={EUR: 5, "time_us": 60 * SECOND})).required()
    worker = world.worker(jobs=2)
    order = world.until_state(paid, "a", "blocked_budget")
    assert order.reason == "currency_not_budgeted"
    world.until(worker.is_idle, 5)
    before = head(world)
    time.sleep(0.6)
    assert head(world) <= before + 1, "nothing is written about it again and again"
    free = world.submit(*(draft(f"n{n}", *world.say(f"n{n}"), attempt_time_us=30 * SECOND) for n in range(4)), name="b")
    world.until_ended(free, 10)
    world.write("human", SetBudget(account="scope", ceilings={EUR: 5, USD: 50, "time_us": 90 * SECOND})).required()
    world.until_ended(paid, 10)
    assert world.order(paid, "a").reason == "applied"
    world.check()


def test_an_order_that_is_blocked_already_says_so_when_its_currency_goes(world: World) -> None:
    plan = world.submit(
        draft("slow", "sleep", "60", attempt_time_us=30 * SECOND),
        draft("a", *world.say("a"), ceilings={"attempts": 2, USD: 10}, attempt_time_us=30 * SECOND),
        ceilings={"time_us": 40 * SECOND, "attempts": 6},
    )
    world.worker(jobs=2)
    world.until(lambda: world.order(plan, "a").reason == "budget_held", 10)
    world.write("human", SetBudget(account="scope", ceilings={EUR: 5})).required()
    world.until(lambda: world.order(plan, "a").reason == "currency_not_budgeted", 5)
    world.write("human", SetBudget(account="scope", ceilings={})).required()
    world.until(lambda: world.order(plan, "a").reason == "budget_held", 5)


def test_a_worker_is_not_idle_while_budget_that_came_free_waits_to_be_looked_at(world: World) -> None:
    plan = world.submit(draft("a", *world.say("a"), ceilings={"attempts": 1, USD: 1}))
    world.write("human", SetBudget(account="scope", ceilings={EUR: 1})).required()
    worker = world.worker(jobs=1)
    world.until_state(plan, "a", "blocked_budget")
    world.until(worker.is_idle, 5)
    worker.stop()
    assert worker.is_idle(), "nothing has happened since"
    world.write("human", SetBudget(account="scope", ceilings={USD: 1})).required()
    assert not worker.is_idle(), "it could go on, and nobody has looked yet"


def test_files_that_killed_writers_left_go_when_a_worker_starts(world: World) -> None:
    folders = [world.home / name / "partial" / "0123456789abcdef" for name in ("artifacts", "packs")]
    for folder in folders:
        folder.mkdir(parents=True)
        (folder / "1-1-aaaa").write_bytes(b"half a file")
    world.worker()
    world.until(lambda: not any((folder / "1-1-aaaa").exists() for folder in folders), 5)


def test_c28_a_worker_is_enrolled_by_the_dispatcher_and_not_in_a_persons_name(world: World) -> None:
    worker = world.worker()
    with world.app.kernel.reader.look() as look:
        records = [look.record(seq) for seq, _ in look.records(0, 1_000)]
        enrolled = next(record for record in records if record.kind == "worker_enrolled")
        stamp = next(record.command for record in records if record.seq == enrolled.batch.first)
        assert enrolled.subject == worker.worker and stamp is not None
        assert stamp.principal == principal_of(look, "dispatcher")


def known_boots(world: World, source: str) -> set[str]:
    with world.app.kernel.reader.look() as look:
        clock = look.clock()
    assert clock is not None
    known = clock.sources[source]
    return {known.boot_id, *(boot.boot_id for boot in known.earlier)}


def observe_boots(world: World, count: int) -> str:
    """Have the clock see so many other boots of this host; return the host's source."""
    now = world.app.kernel.clock.read()
    for number in range(count):
        other = Reading(source=now.source, boot_id=f"other-{number}", utc_us=now.utc_us, tick_us=1, uncertainty_us=1)
        world.write("sampler", ObserveClock(reading=other)).required()
    return now.source


def test_w8_a_worker_whose_boot_the_clock_has_forgotten_says_so_by_itself(world: World) -> None:
    """An idle worker was blind to everything that fell due once its boot was no longer known."""
    worker = world.worker(jobs=1)
    world.until(worker.is_idle, 5)
    source = observe_boots(world, BOOTS_MAX)
    world.until(lambda: world.app.kernel.clock.read().boot_id in known_boots(world, source), 5)
    world.check()


def test_w8_a_reading_of_another_boot_of_this_host_makes_no_worker_blind(world: World) -> None:
    """Its time goes on by its own boot, and nothing has to be written for that."""
    worker = world.worker(jobs=1)
    world.until(worker.is_idle, 5)
    observe_boots(world, 1)
    reading = world.app.kernel.clock.read()
    with world.app.kernel.reader.look() as look:
        clock = look.clock()
    assert clock is not None and clock.sources[reading.source].boot_id == "other-0"
    later = replace(reading, tick_us=reading.tick_us + 60_000_000)
    assert estimated_now_us(clock, later) >= clock.logical_us + 59_000_000
    world.check()


def test_w18_a_round_through_blocked_orders_that_others_wrote_into_is_not_the_last(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What came free behind the place that a round has reached is found by the next one, written or not."""
    monkeypatch.setattr(upkeep, "BLOCKED_PAGE", 1)
    plans = [
        world.submit(*(draft(name, attempt_time_us=SECOND) for name in "ab"), ceilings={"time_us": SECOND}, name=plan)
        for plan in ("one", "two")
    ]
    reading = world.app.kernel.clock.read()
    name = "worker_" + "f" * 32
    world.write(
        "dispatcher",
        EnrolWorker(worker=name, host=reading.source, boot_id=reading.boot_id, pid=1, executors=("command/1",)),
    ).required()
    world.write("dispatcher", ReserveNext(worker=name, count=4)).required()
    blocked, look = Blocked(), world.app.kernel.reader.look
    with look() as first:
        [row] = first.due(BUDGET, limit=1)
        assert blocked.movable(first) == [] and blocked.unfinished
        order = first.order(row.subject)
    assert order is not None and order.plan in plans
    world.write("human", SetBudget(account=order.plan, ceilings={"time_us": 2 * SECOND})).required()
    found: list[str] = []
    for _ in range(4):
        with look() as later:
            found += [each.order for each in blocked.movable(later)]
    assert order.order in found


def test_w18_a_reservation_whose_budget_was_lowered_is_given_back_at_once(world: World) -> None:
    plan = world.submit(draft("a", *world.say("a"), attempt_time_us=2 * SECOND), ceilings={"time_us": 10 * SECOND})
    worker = world.app.worker(jobs=1)
    world.workers.append(worker)
    insist, lowered = worker._means.insist, [True]

    def lowering(requests: Sequence[Request], until_tick_us: int) -> list[Receipt]:
        if isinstance(requests[0].command, Activate) and lowered:
            lowered.clear()
            world.write("human", SetBudget(account=plan, ceilings={"time_us": SECOND})).required()
        return insist(requests, until_tick_us)

    object.__setattr__(worker._means, "insist", lowering)
    worker.start()
    world.until_state(plan, "a", "blocked_budget", "budget_exhausted", seconds=10)
    assert [each.state for each in world.attempts(plan, "a")] == ["cancelled_no_effect"], "it did not lapse"
