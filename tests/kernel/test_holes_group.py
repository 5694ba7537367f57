"""What commands of one group see of each other, what a repeated group decides, and who is told when."""

from __future__ import annotations

import asyncio
import time

import pytest

from fencepost.core.commands import CancelOrder, GroupDraft, MemberDraft, Request, ReserveNext
from fencepost.core.decide import Decided, Given, View
from fencepost.core.decide import decide as decide_command
from fencepost.core.limits import FIRST_VALUES
from fencepost.kernel import group as group_module
from fencepost.kernel import replay, view
from fencepost.kernel.kernel import Kernel
from fencepost.kernel.view import Memory
from fencepost.ports.errors import StorageError, StorageFull
from fencepost.ports.journal import Head
from fencepost.testing.fakes import FakeClock
from tests.kernel.support import WORKER, Trouble, done, enrol, head_of, kernel_over, memory, raising, requests, submit


def reserved_order(kernel: Kernel, receipt: object) -> str:
    return str(receipt.result["reservations"][0]["order"])  # type: ignore[attr-defined]  # a Receipt


def test_the_queue_of_a_group_is_in_its_order_whatever_is_stored_already() -> None:
    kernel = kernel_over(memory())
    done(kernel, "dispatcher", enrol())
    done(kernel, "human", submit("normal"))
    asked = [
        kernel.request("human", submit("urgent", priority="high")),
        kernel.request("dispatcher", ReserveNext(worker=WORKER, count=1)),
    ]
    urgent, reserved = kernel.write_many(asked)
    assert reserved_order(kernel, reserved) == urgent.result["order"]


def test_what_a_group_has_moved_is_found_where_it_is_now_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = kernel_over(memory())
    done(kernel, "dispatcher", enrol())
    first, second = (done(kernel, "human", submit(task))["order"] for task in ("first", "second"))
    seen: list[list[str]] = []

    def decide(group_view: View, request: Request, given: Given, next_seq: int) -> Decided:
        seen.append([row.subject for row in group_view.due("claim", 2**62, 10, None, None)])
        return decide_command(group_view, request, given, next_seq)

    monkeypatch.setattr(group_module, "decide", decide)
    asked = [
        kernel.request("dispatcher", ReserveNext(worker=WORKER, count=1)),
        kernel.request("human", CancelOrder(order=second)),
        kernel.request("dispatcher", ReserveNext(worker=WORKER, count=1)),
    ]
    kernel.write_many(asked)
    assert seen == [[first, second], [second], []]


def test_w15_whoever_joins_in_the_group_that_ends_its_need_hears_of_it() -> None:
    kernel = kernel_over(memory())
    needed = done(kernel, "human", submit("needed"))["order"]
    groups = (GroupDraft(kind="required", members=(MemberDraft(order=needed, outcomes=("applied",)),)),)
    asked = [
        kernel.request("human", submit("waits", groups=groups)),
        kernel.request("human", CancelOrder(order=needed)),
    ]
    waits = kernel.write_many(asked)[0].result["order"]
    with kernel.reader.look() as look:
        order = look.order(waits)
    assert order is not None and order.state == "dependency_failed"
    assert replay.compare(kernel.journal, kernel.stream).match


def test_a_repeated_group_decides_with_the_reading_that_it_began_with() -> None:
    plain = kernel_over(memory())
    expected = [receipt.result for receipt in plain.write_many(requests(plain, 3))]
    clock = FakeClock()
    trouble = Trouble(memory())
    kernel = kernel_over(trouble, clock=clock)
    asked = requests(kernel, 3)
    fail = raising(StorageError("the disk hiccuped"), times=2)

    def later() -> None:
        clock.advance(FIRST_VALUES.clock_resolution_us)
        fail()

    trouble.before_commit = later
    assert [receipt.result for receipt in kernel.write_many(asked)] == expected


def test_nobody_is_answered_before_the_commit() -> None:
    trouble = Trouble(memory())
    kernel = kernel_over(trouble)
    before = head_of(kernel)
    fail = raising(StorageFull("no space"))

    def slowly() -> None:
        time.sleep(0.1)  # a task that was answered too early goes on meanwhile
        fail()

    trouble.before_commit = slowly
    with pytest.raises(StorageFull):
        asyncio.run(kernel.write_async(kernel.request("human", submit())))
    assert head_of(kernel) == before
    kernel.close()


def test_c27_what_a_process_remembers_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(view, "VALUES_MAX", 10)
    monkeypatch.setattr(view, "BODIES_MAX", 5)
    remembered, head = Memory(), Head(0, 1, "", 1)
    remembered.keep(head, dict.fromkeys("abcdefghijklm", 1), dict.fromkeys(range(9), None))  # type: ignore[arg-type]  # any body
    assert list(remembered.bodies) == [4, 5, 6, 7, 8]
    remembered.at(head)
    assert list(remembered.values) == ["i", "j", "k", "l", "m"], "the newest stay"
