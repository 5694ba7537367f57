"""W6, X10: a callable whose processes and threads record steps beside each other loses none that was acknowledged."""

from __future__ import annotations

from collections import Counter

import pytest
from msgspec.structs import replace

from fencepost.core.records.plan import Retry
from tests.services.test_callables_run import callable_draft
from tests.services.world import World

SOURCE = """
import multiprocessing, os, signal, sys, threading, time
import fencepost as fp

WORKERS, STEPS = {workers}, {steps}

def pay(name):
    with open({paid!r}, "a") as log:
        log.write(name + "\\n")
    return name + "!"

def steps(attempt, worker):
    for number in range(STEPS):
        name = f"{{worker}}-{{number}}"
        if attempt.step(name, pay, name) != name + "!":
            raise RuntimeError(name)

def by_itself(worker):
    steps(fp.attempt(), worker)

def threaded(attempt, worker):
    threads = [threading.Thread(target=steps, args=(attempt, f"{{worker}}-{{number}}")) for number in range(2)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]

def started(way, target, *arguments):
    context = multiprocessing.get_context(way)
    running = [context.Process(target=target, args=(*arguments, worker)) for worker in range(WORKERS)]
    [process.start() for process in running]
    [process.join() for process in running]
    if any(process.exitcode for process in running):
        raise RuntimeError([process.exitcode for process in running])

@fp.executor("work", version=1)
def work(attempt):
    attempt.step("first", pay, "first")
    {body}
    if attempt.fence < 2:
        os.kill(os.getpid(), signal.SIGKILL)
    attempt.step("last", pay, "last")
"""

BODIES = {
    "fork": "started('fork', steps, attempt)",
    "fork, by itself": "started('fork', by_itself)",
    "fork with threads": "started('fork', threaded, attempt)",
    "spawn": "started('spawn', steps, attempt)",
    "spawn, by itself": "started('spawn', by_itself)",
    "pool": "with multiprocessing.get_context('fork').Pool(WORKERS) as pool: pool.map(by_itself, range(WORKERS))",
    "threads": "[threaded(attempt, worker) for worker in range(WORKERS)]",
    "fork while a thread speaks": """beats = [True]
    def beat():
        while beats:
            attempt.status()
    thread = threading.Thread(target=beat)
    thread.start()
    try:
        started('fork', steps, attempt)
        started('fork', by_itself)
    finally:
        beats.clear()
        thread.join()""",
}


def paid(world: World, body: str, workers: int = 4, steps: int = 5) -> Counter[str]:
    """How often each step was paid for by two attempts, of which the first is killed behind all its steps."""
    log = world.folder / "paid"
    source = SOURCE.format(workers=workers, steps=steps, paid=str(log), body=body)
    retry = Retry(on=("executor",), backoff_us=1_000, backoff_max_us=1_000)
    plan = world.submit(replace(callable_draft(world, source), retry=retry))
    world.worker(jobs=1)
    world.until_ended(plan, 60)
    order = world.order(plan, "a")
    assert (order.state, order.account.charged["attempts"]) == ("applied", 2), world.facts(plan, "a").message
    world.check()
    return Counter(log.read_text().split())


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_w6_no_acknowledged_step_is_lost_whoever_records_it(world: World, body: str) -> None:
    found = paid(world, body)
    assert set(found.values()) == {1}, found
    assert len(found) >= 2 + 4 * 5


def test_c8_a_forked_process_ends_its_step_within_the_grace_of_a_drain(world: World) -> None:
    """What it had under way is recorded; it then ends by the signal, though it would never say anything again."""
    log = world.folder / "paid"
    body = """
    import signal

    def slowly():
        pay("begun")
        time.sleep(0.5)
        return pay("slow")

    def then_for_ever(attempt):
        attempt.step("slow", slowly)
        signal.pause()

    if attempt.fence < 2:
        process = multiprocessing.get_context("fork").Process(target=then_for_ever, args=(attempt,))
        process.start()
        process.join()
        pay(str(process.exitcode))
        attempt.go_on()
    attempt.step("slow", slowly)
"""
    source = SOURCE.partition("    attempt.step")[0].format(workers=1, steps=1, paid=str(log)) + body
    plan = world.submit(callable_draft(world, source))
    worker = world.worker(jobs=1)
    world.until(log.exists, what="it never began")
    worker.stop()
    order = world.order(plan, "a")
    assert (order.state, order.failures, order.account.charged.get("attempts", 0)) == ("ready", 0, 0)
    assert log.read_text().split() == ["begun", "slow", "-15"]
    world.worker(jobs=1)
    world.until_ended(plan)
    assert world.order(plan, "a").state == "applied", world.facts(plan, "a").message
    assert log.read_text().split() == ["begun", "slow", "-15"]
    world.check()
