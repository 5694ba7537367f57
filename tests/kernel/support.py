"""Kernels over fakes and over real files, the commands of an order's life, and stores that misbehave when told to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fencepost.adapters.threads import SystemThreads
from fencepost.adapters.wakeups import LocalWakeups
from fencepost.core.commands import (
    Activate,
    AnyCommand,
    ApplyResult,
    EnrolWorker,
    OrderDraft,
    ReportResult,
    Request,
    Reserve,
    SubmitOrder,
)
from fencepost.core.ids import sha256_of
from fencepost.core.limits import FIRST_VALUES, Limits
from fencepost.core.records.attempt import ResultFacts
from fencepost.core.records.common import Usage
from fencepost.core.records.plan import Acceptance
from fencepost.kernel.kernel import Kernel
from fencepost.kernel.receipts import Receipt
from fencepost.ports.authority import Constitution
from fencepost.ports.journal import Journal, Stream, Transaction
from fencepost.ports.ledger import SafetyLedger
from fencepost.storage import sqlite
from fencepost.storage.memory import MemoryJournal
from fencepost.testing.fakes import FakeAuthority, FakeClock, FakeEntropy, MemoryKeyring, MemoryLedger

STORE_ID = "0" * 32
WORKER = "worker_" + "0" * 32
INPUTS = sha256_of(b"inputs")
ENVIRONMENT = sha256_of(b"environment")


class Authority(FakeAuthority):
    """`FakeAuthority` with texts that a scope can be opened with."""

    @property
    def constitution(self) -> Constitution:
        return Constitution(
            version=1,
            text_digest=sha256_of(b"fake constitution"),
            vocabulary_digest=sha256_of(b"fake vocabulary"),
            texts={"constitution.cedar": "", "vocabulary.cedarschema": ""},
        )


def memory() -> MemoryJournal:
    return MemoryJournal(STORE_ID)


def sqlite_store(folder: Path) -> Journal:
    (folder / "locks").mkdir(parents=True, exist_ok=True)
    return sqlite.create(folder / "store.db", STORE_ID, folder / "locks")


def kernel_over(
    journal: Journal,
    *,
    clock: FakeClock | None = None,
    entropy: FakeEntropy | None = None,
    authority: FakeAuthority | None = None,
    ledger: SafetyLedger | None = None,
    limits: Limits = FIRST_VALUES,
) -> Kernel:
    kernel = Kernel(
        journal=journal,
        scope="default",
        clock=clock or FakeClock(),
        entropy=entropy or FakeEntropy(),
        authority=authority or Authority(),
        keyring=MemoryKeyring(),
        ledger=ledger or MemoryLedger(),
        wakeups=LocalWakeups(),
        threads=SystemThreads(),
        limits=limits,
    )
    kernel.open()
    return kernel


def draft(task: str = "check", **changes: Any) -> OrderDraft:
    values: dict[str, Any] = {
        "task": task,
        "work_kind": "command/1",
        "priority": "normal",
        "classification": "internal",
        "effects": "declared",
        "attempt_time_us": 1_000_000,
        "accept": Acceptance(),
        "run": ("true",),
        "manifest": INPUTS,
        "ceilings": {"attempts": 3},
    }
    return OrderDraft(**{**values, **changes})


def enrol(worker: str = WORKER) -> EnrolWorker:
    return EnrolWorker(worker=worker, host="host", boot_id="boot", pid=1, executors=("command/1",))


def submit(task: str = "check", **changes: Any) -> SubmitOrder:
    return SubmitOrder(order=draft(task, **changes))


def done(kernel: Kernel, name: str, command: AnyCommand, key: str | None = None) -> dict[str, Any]:
    return kernel.write(kernel.request(name, command, key)).required()


def reserve(submitted: dict[str, Any]) -> Reserve:
    return Reserve(order=submitted["order"], expected=submitted["version"], worker=WORKER)


def activate(reserved: dict[str, Any]) -> Activate:
    return Activate(
        attempt=reserved["attempt"],
        expected=reserved["version"],
        fence=reserved["fence"],
        worker=WORKER,
        executor="command",
        executor_version=1,
        environment=ENVIRONMENT,
        input_set=INPUTS,
        mode="local",
    )


def report(reserved: dict[str, Any]) -> ReportResult:
    facts = ResultFacts(
        outcome="succeeded",
        input_set=INPUTS,
        output_kind="files/1",
        duration_us=1_000,
        classification="internal",
        exit_code=0,
        usage=(Usage(receipt=f"{reserved['attempt']}:time", provider="kernel", amounts={"time_us": 1_000}),),
    )
    return ReportResult(attempt=reserved["attempt"], fence=reserved["fence"], spec=reserved["spec"], facts=facts)


def life(kernel: Kernel, task: str = "check") -> dict[str, Any]:
    submitted = done(kernel, "human", submit(task))
    reserved: dict[str, Any] = done(kernel, "dispatcher", reserve(submitted))["reservations"][0]
    done(kernel, "dispatcher", activate(reserved))
    done(kernel, "executor", report(reserved))
    return done(kernel, "reducer", ApplyResult(attempt=reserved["attempt"]))


def requests(kernel: Kernel, count: int) -> list[Request]:
    return [kernel.request("human", submit(f"task-{number}")) for number in range(count)]


def tasks_in(kernel: Kernel) -> list[str]:
    """Names of all orders, in the order of their submission."""
    with kernel.reader.look() as look:
        orders = [row for page in look.pages("task") for row in page]
        found = look.many([row.subject for row in orders])
        return [order.task for order in sorted(found.values(), key=lambda order: order.spec_seq)]


def head_of(kernel: Kernel) -> int:
    with kernel.reader.look() as look:
        return look.head.seq


def groups_of(kernel: Kernel) -> list[str]:
    """All receipts' keys in the journal, in order."""
    with kernel.reader.look() as look:
        return [
            record.command.key
            for seq, _ in look.records(0, 100_000)
            if (record := look.record(seq)).command is not None and not record.command.key.startswith("clock:")
        ]


class Trouble:
    """A journal that calls `before_begin`, `before_append`, `before_commit` and `after_commit` when set."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self.begun = 0
        self.before_begin: Callable[[], None] | None = None
        self.before_append: Callable[[], None] | None = None
        self.before_commit: Callable[[], None] | None = None
        self.after_commit: Callable[[], None] | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._journal, name)

    @contextmanager
    def transaction(self, stream: Stream, *, wait_s: float = 30.0) -> Iterator[Transaction]:
        self.begun += 1
        _call(self.before_begin)
        with self._journal.transaction(stream, wait_s=wait_s) as transaction:
            yield _Troubled(transaction, self)


class _Troubled:
    def __init__(self, transaction: Transaction, trouble: Trouble) -> None:
        self._transaction = transaction
        self._trouble = trouble

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transaction, name)

    def append(self, group: Any) -> None:
        _call(self._trouble.before_append)
        self._transaction.append(group)

    def commit(self) -> None:
        _call(self._trouble.before_commit)
        self._transaction.commit()
        _call(self._trouble.after_commit)


def _call(hook: Callable[[], None] | None) -> None:
    if hook is not None:
        hook()


def raising(error: BaseException, times: int = 1) -> Callable[[], None]:
    """A hook that raises `error` the first `times` times."""
    left = [times]

    def hook() -> None:
        if left[0]:
            left[0] -= 1
            raise error

    return hook


def codes(receipts: list[Receipt]) -> list[str | None]:
    return [None if receipt.refusal is None else receipt.refusal.code for receipt in receipts]
