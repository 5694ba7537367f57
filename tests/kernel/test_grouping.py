"""Any grouping of the same commands gives the same records as one at a time (architecture, The write path)."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.core.commands import ApplyResult, CancelOrder, Request, ReserveNext
from fencepost.kernel import replay
from fencepost.kernel.kernel import Kernel
from fencepost.kernel.receipts import Receipt
from tests.kernel.support import (
    WORKER,
    activate,
    codes,
    done,
    enrol,
    kernel_over,
    memory,
    report,
    requests,
    submit,
)


def prepared() -> Kernel:
    kernel = kernel_over(memory())
    done(kernel, "dispatcher", enrol())
    return kernel


def rounds(kernel: Kernel, choices: random.Random) -> list[list[Request]]:
    """Commands that may share groups: each round's need the answers of the round before."""
    count = choices.choice((1, 3, 8, 25))
    asked = [kernel.request("human", submit(f"task-{number}")) for number in range(count)]
    asked += [kernel.request("dispatcher", ReserveNext(worker=WORKER, count=1)) for _ in range(count)]
    asked.insert(choices.randrange(len(asked)), asked[0])  # a replay
    asked.insert(choices.randrange(len(asked)), kernel.request("human", submit("other"), asked[0].key))  # a collision
    asked.insert(choices.randrange(len(asked)), kernel.request("human", CancelOrder(order="order_" + "0" * 32)))
    return [asked]


def run(seed: int, cuts: list[int]) -> tuple[list[bytes], list[object], str]:
    """Records, answers and projection when the commands are cut into groups of these sizes, over and over."""
    kernel = prepared()
    choices = random.Random(seed)
    answers: list[object] = []
    reserved: list[dict[str, Any]] = []
    for asked in rounds(kernel, choices):
        receipts = grouped(kernel, asked, cuts)
        answers += [(receipt.key, receipt.first_seq, receipt.count, receipt.result) for receipt in receipts]
        answers += codes(receipts)
        reserved += [each for receipt in receipts if receipt.ok for each in receipt.result.get("reservations", ())]
    for name, make in (("dispatcher", activate), ("executor", report)):
        grouped(kernel, [kernel.request(name, make(each)) for each in reserved], cuts)
    grouped(kernel, [kernel.request("reducer", ApplyResult(attempt=each["attempt"])) for each in reserved], cuts)
    compared = replay.compare(kernel.journal, kernel.stream)
    assert compared.match
    with kernel.reader.look() as look:
        return [data for _, data in look.records(0, 10_000)], answers, compared.projection_digest


def grouped(kernel: Kernel, asked: list[Request], cuts: list[int]) -> list[Receipt]:
    receipts: list[Receipt] = []
    place = 0
    while asked:
        size = cuts[place % len(cuts)]
        receipts += kernel.write_many(asked[:size])
        asked = asked[size:]
        place += 1
    return receipts


@given(seed=st.integers(0, 2**32), cuts=st.lists(st.integers(1, 40), min_size=1, max_size=6))
def test_any_grouping_gives_the_same_records(seed: int, cuts: list[int]) -> None:
    alone = run(seed, [1])
    assert run(seed, cuts) == alone


@pytest.mark.parametrize("count", [1, 255, 256, 257, 1_001])
def test_sizes_round_the_bounds_of_a_group_and_a_page(count: int) -> None:
    together, alone = prepared(), prepared()
    together.write_many(requests(together, count))
    for request in requests(alone, count):
        alone.write(request)
    ends = [replay.compare(kernel.journal, kernel.stream) for kernel in (together, alone)]
    assert ends[0].match and ends[0] == ends[1]
