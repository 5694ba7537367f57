"""A kernel over SQLite with the adapters that a user's home has, and order lives driven through it.

An order life is submit, reserve, activate, report, apply: five durable transitions, each with its receipt awaited by
whoever makes it. Nothing here is a way that a user of the library would not have.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fencepost.adapters.authority.cedar import CedarAuthority
from fencepost.adapters.authority.keys import KeyFolder
from fencepost.adapters.clock import SystemClock
from fencepost.adapters.entropy import SystemEntropy
from fencepost.adapters.ledger import FileLedger
from fencepost.adapters.threads import SystemThreads
from fencepost.adapters.wakeups import FolderWakeups
from fencepost.core.commands import (
    Activate,
    AnyCommand,
    ApplyResult,
    EnrolWorker,
    OrderDraft,
    ReportResult,
    Reserve,
    ReserveNext,
    SubmitOrder,
)
from fencepost.core.ids import IdSource, sha256_of
from fencepost.core.records.attempt import ResultFacts
from fencepost.core.records.common import ArtifactRef, Usage
from fencepost.core.records.plan import Acceptance
from fencepost.kernel.kernel import Kernel
from fencepost.storage import sqlite

Answer = dict[str, Any]
INPUTS = sha256_of(b"the pinned inputs of every order")
ENVIRONMENT = sha256_of(b"the environment of every attempt")
OUTPUT = sha256_of(b"the report that every attempt writes")

DRAFT = OrderDraft(
    task="check",
    work_kind="command/1",
    priority="normal",
    classification="internal",
    effects="declared",
    attempt_time_us=300_000_000,
    accept=Acceptance(files=("report.xml",)),
    run=("pytest", "-q", "--junitxml=report.xml"),
    environment=("PATH", "LANG"),
    manifest=INPUTS,
    manifest_files=3,
    manifest_bytes=12_000,
    outputs=("report.xml",),
    ceilings={"attempts": 3, "time_us": 900_000_000},
    may=("workspace.write",),
)


@contextmanager
def opened(folder: Path) -> Iterator[Kernel]:
    """A kernel on a store in `folder`, made when it is new; drained and closed at the end."""
    entropy = SystemEntropy()
    for name in ("locks", "wake", "ledger"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    keyring = KeyFolder(folder / "keys", entropy)
    kernel = Kernel(
        journal=sqlite.create(folder / "store.db", "0" * 32, folder / "locks"),
        scope="default",
        clock=SystemClock(entropy),
        entropy=entropy,
        authority=CedarAuthority(),
        keyring=keyring,
        ledger=FileLedger((folder / "ledger",), keyring),
        wakeups=FolderWakeups(folder / "wake"),
        threads=SystemThreads(),
    )
    kernel.open()
    try:
        yield kernel
    finally:
        kernel.close()


class Crew:
    """One enrolled worker of a kernel, and the commands of a life as it makes them."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.worker = IdSource(kernel.entropy.seed(), kernel.clock.read().utc_us).next("worker")
        enrol = EnrolWorker(worker=self.worker, host="bench", boot_id="bench", pid=1, executors=("command/1",))
        self.do("dispatcher", enrol)

    def do(self, name: str, command: AnyCommand) -> Answer:
        return self.kernel.write(self.kernel.request(name, command)).required()

    async def do_async(self, name: str, command: AnyCommand) -> Answer:
        receipt = await self.kernel.write_async(self.kernel.request(name, command))
        return receipt.required()

    def do_many(self, name: str, commands: list[AnyCommand]) -> list[Answer]:
        receipts = self.kernel.write_many([self.kernel.request(name, command) for command in commands])
        return [receipt.required() for receipt in receipts]

    def submit(self) -> SubmitOrder:
        return SubmitOrder(order=DRAFT)

    def reserve(self, submitted: Answer) -> Reserve:
        return Reserve(order=submitted["order"], expected=submitted["version"], worker=self.worker)

    def reserve_next(self, count: int) -> ReserveNext:
        return ReserveNext(worker=self.worker, count=count)

    def activate(self, reserved: Answer) -> Activate:
        return Activate(
            attempt=reserved["attempt"],
            expected=reserved["version"],
            fence=reserved["fence"],
            worker=self.worker,
            executor="command",
            executor_version=1,
            environment=ENVIRONMENT,
            input_set=INPUTS,
            mode="local",
        )

    def report(self, reserved: Answer) -> ReportResult:
        attempt = reserved["attempt"]
        facts = ResultFacts(
            outcome="succeeded",
            input_set=INPUTS,
            output_kind="files/1",
            duration_us=1_200_000,
            classification="internal",
            artifacts=(ArtifactRef(path="report.xml", digest=OUTPUT, bytes=4_000, mode=0o644),),
            exit_code=0,
            usage=(Usage(receipt=f"{attempt}:time", provider="kernel", amounts={"time_us": 1_200_000}),),
        )
        return ReportResult(attempt=attempt, fence=reserved["fence"], spec=reserved["spec"], facts=facts)

    def apply(self, reserved: Answer) -> ApplyResult:
        return ApplyResult(attempt=reserved["attempt"])


def one(crew: Crew, lives: int) -> None:
    """One caller, each transition after the receipt of the one before."""
    for _ in range(lives):
        submitted = crew.do("human", crew.submit())
        reserved = crew.do("dispatcher", crew.reserve(submitted))["reservations"][0]
        crew.do("dispatcher", crew.activate(reserved))
        crew.do("executor", crew.report(reserved))
        crew.do("reducer", crew.apply(reserved))


def crowd(crew: Crew, lives: int, callers: int = 64) -> None:
    """`callers` tasks of one event loop, each a caller of its own."""

    async def caller(share: int) -> None:
        for _ in range(share):
            submitted = await crew.do_async("human", crew.submit())
            reserved = (await crew.do_async("dispatcher", crew.reserve(submitted)))["reservations"][0]
            await crew.do_async("dispatcher", crew.activate(reserved))
            await crew.do_async("executor", crew.report(reserved))
            await crew.do_async("reducer", crew.apply(reserved))

    async def all_callers() -> None:
        shares = [lives // callers + (place < lives % callers) for place in range(callers)]
        await asyncio.gather(*(caller(share) for share in shares))

    asyncio.run(all_callers())


def many(crew: Crew, lives: int, batch: int = 64) -> None:
    """One caller that submits, and works, in batches."""
    left = lives
    while left:
        count = min(batch, left)
        crew.do_many("human", [crew.submit()] * count)
        reserved = crew.do("dispatcher", crew.reserve_next(count))["reservations"]
        crew.do_many("dispatcher", [crew.activate(each) for each in reserved])
        crew.do_many("executor", [crew.report(each) for each in reserved])
        crew.do_many("reducer", [crew.apply(each) for each in reserved])
        left -= len(reserved)
