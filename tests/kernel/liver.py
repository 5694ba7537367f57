"""A process that writes lives through the kernel until it is killed, or so many, and tells every receipt.

Usage: liver.py FOLDER NUMBER LIVES WAY. One JSON line goes to standard output for every receipt, after it was given.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

from fencepost.adapters.clock import SystemClock
from fencepost.adapters.entropy import SystemEntropy
from fencepost.core.commands import AnyCommand, ApplyResult
from fencepost.kernel.kernel import Kernel
from fencepost.kernel.receipts import Receipt
from tests.kernel.support import WORKER, activate, enrol, kernel_over, report, reserve, sqlite_store, submit


def told(receipt: Receipt) -> dict[str, Any]:
    line = json.dumps([receipt.key, receipt.first_seq, receipt.count, receipt.ok])
    os.write(1, line.encode() + b"\n")
    return receipt.required()


def life(kernel: Kernel, name: str) -> None:
    def do(who: str, command: AnyCommand) -> dict[str, Any]:
        return told(kernel.write(kernel.request(who, command)))

    reserved = do("dispatcher", reserve(do("human", submit(name))))["reservations"][0]
    do("dispatcher", activate(reserved))
    do("executor", report(reserved))
    do("reducer", ApplyResult(attempt=reserved["attempt"]))


async def lives(kernel: Kernel, name: str, count: int) -> None:
    async def do(who: str, command: AnyCommand) -> dict[str, Any]:
        return told(await kernel.write_async(kernel.request(who, command)))

    for number in range(count):
        submitted = await do("human", submit(f"{name}-{number}"))
        reserved = (await do("dispatcher", reserve(submitted)))["reservations"][0]
        await do("dispatcher", activate(reserved))
        await do("executor", report(reserved))
        await do("reducer", ApplyResult(attempt=reserved["attempt"]))


def main(folder: Path, number: int, count: int, way: str) -> None:
    entropy = SystemEntropy()
    kernel = kernel_over(sqlite_store(folder), clock=SystemClock(entropy), entropy=entropy)  # type: ignore[arg-type]  # real ones in the place of fakes
    kernel.write(kernel.request("dispatcher", enrol(), f"enrol:{WORKER}"))
    os.write(1, b"ready\n")
    if way == "tasks":

        async def crowd() -> None:
            await asyncio.gather(*(lives(kernel, f"p{number}-{task}", count) for task in range(8)))

        asyncio.run(crowd())
    else:
        for life_number in range(count):
            life(kernel, f"p{number}-{life_number}")
    kernel.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
