"""Crowds: threads, tasks, loops, cancellations and interrupts. Nobody waits for ever, and nothing is written twice."""

from __future__ import annotations

import asyncio
import linecache
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from fencepost.kernel import group as group_module
from fencepost.kernel import replay, tickets, view, write
from fencepost.kernel.kernel import Kernel
from fencepost.kernel.receipts import Receipt
from tests.kernel.support import (
    Trouble,
    done,
    enrol,
    groups_of,
    kernel_over,
    life,
    memory,
    raising,
    requests,
    sqlite_store,
    submit,
    tasks_in,
)

WAIT_S = 20.0


def matches(kernel: Kernel) -> bool:
    return replay.compare(kernel.journal, kernel.stream).match and kernel.verify().ok


def started(*works: Callable[[], object]) -> list[threading.Thread]:
    threads = [threading.Thread(target=work, daemon=True) for work in works]
    for thread in threads:
        thread.start()
    return threads


def joined(threads: list[threading.Thread]) -> None:
    for thread in threads:
        thread.join(WAIT_S)
        assert not thread.is_alive(), "somebody waits for ever"


def test_case_38_a_crowd_of_64_threads(tmp_path: Path) -> None:
    trouble = Trouble(sqlite_store(tmp_path))
    kernel = kernel_over(trouble)
    done(kernel, "dispatcher", enrol())
    begun = trouble.begun
    with ThreadPoolExecutor(64) as pool:
        ended = list(pool.map(lambda number: life(kernel, f"task-{number}")["state"], range(128)))
    assert ended == ["applied"] * 128
    assert trouble.begun - begun < 640, "a crowd shares commits"
    assert sorted(tasks_in(kernel)) == sorted(f"task-{number}" for number in range(128))
    assert matches(kernel)
    kernel.close()


def test_tasks_of_several_loops_in_several_threads_and_threads_between_them() -> None:
    kernel = kernel_over(memory())

    async def tasks(first: int) -> None:
        async def one(number: int) -> None:
            receipt = await kernel.write_async(kernel.request("human", submit(f"task-{number}")))
            assert receipt.ok

        await asyncio.gather(*(one(number) for number in range(first, first + 40)))

    works: list[Callable[[], object]] = [lambda first=first: asyncio.run(tasks(first)) for first in range(0, 160, 40)]  # type: ignore[misc]  # a default binds the loop's value
    works.append(lambda: [done(kernel, "human", submit(f"task-{number}")) for number in range(160, 200)])
    joined(started(*works))
    assert sorted(tasks_in(kernel)) == sorted(f"task-{number}" for number in range(200))
    assert matches(kernel)
    kernel.close()


def test_a_cancelled_task_takes_its_command_back_or_has_it_decided() -> None:
    kernel = kernel_over(memory())
    entered, go_on = threading.Event(), threading.Event()
    trouble = Trouble(kernel.journal)
    kernel._writer._journal = trouble

    def hold() -> None:
        entered.set()
        assert go_on.wait(WAIT_S)

    async def scenario() -> list[Any]:
        trouble.before_append = hold
        first = asyncio.create_task(kernel.write_async(kernel.request("human", submit("in a group"))))
        await asyncio.to_thread(entered.wait, WAIT_S)
        trouble.before_append = None
        second = asyncio.create_task(kernel.write_async(kernel.request("human", submit("still queued"))))
        third = asyncio.create_task(kernel.write_async(kernel.request("human", submit("wanted"))))
        await asyncio.sleep(0.02)
        first.cancel()
        second.cancel()
        await asyncio.sleep(0.02)
        go_on.set()
        return list(await asyncio.gather(first, second, third, return_exceptions=True))

    first, second, third = asyncio.run(scenario())
    assert isinstance(first, asyncio.CancelledError) and isinstance(second, asyncio.CancelledError)
    assert third.ok
    assert tasks_in(kernel) == ["in a group", "wanted"]
    kernel.close()


def test_a_loop_that_is_closed_keeps_nobody_from_an_answer() -> None:
    kernel = kernel_over(memory())
    entered, go_on = threading.Event(), threading.Event()
    trouble = Trouble(kernel.journal)
    kernel._writer._journal = trouble

    def hold() -> None:
        trouble.before_append = None
        entered.set()
        assert go_on.wait(WAIT_S)

    trouble.before_append = hold
    loop = asyncio.new_event_loop()
    abandoned = loop.create_task(kernel.write_async(kernel.request("human", submit("abandoned"))))
    loop.call_later(0.2, loop.stop)
    loop.run_forever()
    assert entered.is_set()
    loop._ready.clear()  # type: ignore[attr-defined]  # its tasks are given up, as when a program ends
    loop.close()
    go_on.set()

    async def after() -> Receipt:
        return await asyncio.wait_for(kernel.write_async(kernel.request("human", submit("after"))), WAIT_S)

    assert asyncio.run(after()).ok
    assert tasks_in(kernel) == ["abandoned", "after"]
    del abandoned
    kernel.close()


def test_close_decides_what_is_queued() -> None:
    kernel = kernel_over(memory())
    journal = kernel.journal
    journal_close, kernel.journal.close = journal.close, lambda: None  # type: ignore[method-assign]  # read afterwards

    async def scenario() -> list[Any]:
        tasks = [asyncio.create_task(kernel.write_async(request)) for request in requests(kernel, 30)]
        await asyncio.sleep(0)
        await asyncio.to_thread(kernel.close)
        return await asyncio.gather(*tasks)

    receipts = asyncio.run(scenario())
    assert all(receipt.ok for receipt in receipts)
    assert len(tasks_in(kernel)) == 30
    journal_close()


def test_an_error_that_is_no_exception_in_the_pump_answers_its_tasks() -> None:
    kernel = kernel_over(memory())
    trouble = Trouble(kernel.journal)
    kernel._writer._journal = trouble
    trouble.before_append = raising(GeneratorExit("odd"))

    async def scenario() -> list[Any]:
        first = await asyncio.gather(kernel.write_async(kernel.request("human", submit("a"))), return_exceptions=True)
        second = await asyncio.wait_for(kernel.write_async(kernel.request("human", submit("b"))), WAIT_S)
        return [*first, second]

    first, second = asyncio.run(scenario())
    assert isinstance(first, BaseException)
    assert second.ok
    kernel.close()


FILES = {module.__file__ for module in (write, tickets, group_module, view)}


class Interrupted(BaseException):
    """What an interrupt is to the code below: no Exception, at any line."""


def interrupted_at(line_number: int, work: Callable[[], object]) -> bool:
    """Run `work` and raise at the n-th line of the kernel's writing modules. False when it has fewer lines.

    The end of a `with` block counts as a line again and is left out: no interrupt arrives between the block's last
    call and the release.
    """
    left = line_number
    begun: set[tuple[FrameType, int]] = set()

    def trace(frame: FrameType, event: str, _argument: Any) -> Any:
        nonlocal left
        if frame.f_code.co_filename not in FILES:
            return None
        if event == "line":
            place = (frame, frame.f_lineno)
            source = linecache.getline(frame.f_code.co_filename, frame.f_lineno)
            if source.lstrip().startswith("with ") and place in begun:
                return trace
            begun.add(place)
            left -= 1
            if left == 0:
                raise Interrupted
        return trace

    sys.settrace(trace)
    try:
        work()
    except Interrupted:
        return True
    finally:
        sys.settrace(None)
    return False


class Others:
    """Threads that write while the one under test leads."""

    def __init__(self, kernel: Kernel, count: int) -> None:
        self._kernel = kernel
        self._count = count
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self.answers: list[object] = []

    def start(self) -> None:
        """Once, whoever calls."""
        if self._lock.acquire(blocking=False):
            self._threads = started(*[self._write] * self._count)

    def _write(self) -> None:
        self.answers.append(done(self._kernel, "human", submit("other")))

    def join(self) -> None:
        self.start()
        joined(self._threads)


@pytest.mark.parametrize("waiting", [0, 2])
def test_an_interrupt_at_any_line_leaves_nobody_waiting(waiting: int) -> None:
    """The leader is hit at each line in turn, alone and with threads that wait for it."""
    was_hit, line = True, 1
    while was_hit:
        was_hit = interrupt_once(line, waiting)
        line += 5 if waiting else 1
    assert line > 100, "the lines were not counted"


def interrupt_once(line: int, waiting: int) -> bool:
    kernel = kernel_over(memory())
    trouble = Trouble(kernel.journal)
    kernel._writer._journal = trouble
    others = Others(kernel, waiting)
    trouble.before_append = others.start
    mine = kernel.request("human", submit("mine"), "mine")
    was_hit = interrupted_at(line, lambda: kernel.write(mine))
    others.join()
    again: list[dict[str, Any]] = []
    joined(started(lambda: again.append(kernel.write(mine).required())))
    assert len(again) == 1 and len(others.answers) == waiting
    assert sorted(tasks_in(kernel)) == sorted(["mine"] + ["other"] * waiting)
    assert groups_of(kernel).count("mine") == 1
    assert matches(kernel)
    return was_hit
