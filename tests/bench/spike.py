"""The write path alone: full-size records, 64 awaiting callers, and no rule, no authority and no strict reading.

`python -m tests.bench.spike` prints what an order life costs the processor when all that is done for it is to encode
its records and states, to chain them by digest, and to append them in groups to a real SQLite store. The difference to
`./dev bench` is what deciding costs. The five transitions are those of a real life, captured from the kernel; every
life after it is the same bytes under other names.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from fencepost.core.canonical import encode_trusted
from fencepost.core.chain import read_record
from fencepost.core.ids import sha256_of
from fencepost.core.state import decode_value, encode_value
from fencepost.ports.journal import Append, CommandRow, Head, IndexRow, Journal, StateRow, StoredRecord, Stream
from fencepost.storage import sqlite
from tests.bench import worlds

CALLERS = 64
LIVES = 3_200
RUNS = 3
GROUP_MAX = 256
STREAM = Stream("default", "main")


class Transition(NamedTuple):
    """What one command of a life appends, decoded: to be encoded again for every other life."""

    records: list[Any]
    states: list[tuple[str, int, Any]]
    put: list[IndexRow]
    delete: list[tuple[str, str]]
    receipt: bytes


class _Ear:
    """A journal that keeps what is appended through it."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self.heard: list[Append] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._journal, name)

    @contextmanager
    def transaction(self, stream: Stream, *, wait_s: float = 30.0) -> Iterator[Any]:
        with self._journal.transaction(stream, wait_s=wait_s) as transaction:
            append = transaction.append

            def listen(group: Append) -> None:
                self.heard.append(group)
                append(group)

            transaction.append = listen  # type: ignore[method-assign]  # this one transaction is overheard
            yield transaction


def captured(folder: Path) -> list[Transition]:
    """The five transitions of the second life of a kernel: the first one has recorded the policy decisions."""
    with worlds.opened(folder) as kernel:
        crew = worlds.Crew(kernel)
        worlds.one(crew, 1)
        ear = _Ear(kernel.journal)
        kernel._writer._journal = ear  # type: ignore[assignment]  # it passes everything else on
        worlds.one(crew, 1)
    return [
        Transition(
            records=[read_record(record.seq, record.data) for record in group.records],
            states=[(row.subject, row.version, decode_value(row.data)) for row in group.states],
            put=[IndexRow(*row) for row in group.index_put],
            delete=list(group.index_delete),
            receipt=group.commands[-1].receipt,
        )
        for group in ear.heard
    ]


class WritePath:
    """One writer thread, and whoever waits for it."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._head = Head(0, 0, "", 0)
        self._queue: list[tuple[Transition, int, asyncio.Future[None]]] = []
        self._pump = ThreadPoolExecutor(1)
        self._busy = False
        self._draining: asyncio.Task[None] | None = None
        self.groups = 0

    async def write(self, transition: Transition, life: int) -> None:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        self._queue.append((transition, life, future))
        if not self._busy:
            self._busy = True
            self._draining = loop.create_task(self._drain())
        await future

    async def _drain(self) -> None:
        loop = asyncio.get_running_loop()
        while self._queue:
            jobs, self._queue = self._queue[:GROUP_MAX], self._queue[GROUP_MAX:]
            try:
                await loop.run_in_executor(self._pump, self._commit, jobs)
            except Exception as error:
                for _, _, future in jobs:
                    future.set_exception(error)
                raise
            for _, _, future in jobs:
                future.set_result(None)
        self._busy = False

    def _commit(self, jobs: list[tuple[Transition, int, asyncio.Future[None]]]) -> None:
        seq, digest = self._head.seq, self._head.digest
        records, states, put, delete, commands = [], {}, {}, set(), []
        for transition, life, _ in jobs:
            first = seq + 1
            for record in transition.records:
                seq += 1
                data = encode_trusted(msgspec.structs.replace(record, seq=seq, prev=digest))
                digest = sha256_of(data)
                records.append(StoredRecord(seq, data))
            for subject, version, value in transition.states:
                name = _named(subject, life)
                states[name] = StateRow(name, version, encode_value(value))
            for stage, subject in transition.delete:
                put.pop((stage, _named(subject, life)), None)
                delete.add((stage, _named(subject, life)))
            for row in transition.put:
                put[row.stage, _named(row.subject, life)] = row._replace(subject=_named(row.subject, life))
            commands.append(CommandRow(f"{life:012x}-{first:012x}", digest, first, seq - first + 1, transition.receipt))
        head = Head(0, seq, digest, 1)
        with self._journal.transaction(STREAM) as transaction:
            transaction.append(
                Append(
                    STREAM,
                    self._head,
                    head,
                    records,
                    list(states.values()),
                    list(put.values()),
                    list(delete),
                    (),
                    commands,
                )
            )
            transaction.commit()
        self._head = head
        self.groups += 1

    def close(self) -> None:
        self._pump.shutdown()


def _named(subject: str, life: int) -> str:
    """The subject of another life; what all lives share keeps its name."""
    return f"{subject[:-12]}{life:012x}" if "_" in subject and ":" not in subject else subject


def measure(transitions: list[Transition], folder: Path, lives: int) -> tuple[float, float, float]:
    """Lives a second, milliseconds of processor time a life, and transitions a group."""
    folder.mkdir()
    (folder / "locks").mkdir()
    journal = sqlite.create(folder / "store.db", "0" * 32, folder / "locks")
    path = WritePath(journal)

    async def caller(place: int) -> None:
        for life in range(place, lives, CALLERS):
            for transition in transitions:
                await path.write(transition, life)

    async def all_callers() -> None:
        await asyncio.gather(*(caller(place) for place in range(CALLERS)))

    began_s, began_cpu_s = time.perf_counter(), time.process_time()
    asyncio.run(all_callers())
    took_s, took_cpu_s = time.perf_counter() - began_s, time.process_time() - began_cpu_s
    path.close()
    with journal.snapshot() as reads:
        counted = reads.head(STREAM).seq
    journal.close()
    if counted != lives * sum(len(transition.records) for transition in transitions):
        raise RuntimeError(f"{counted} records are not those of {lives} lives")
    return lives / took_s, took_cpu_s / lives * 1_000, lives * len(transitions) / path.groups


def main(arguments: list[str]) -> int:
    lives = int(arguments[0]) if arguments else LIVES
    with tempfile.TemporaryDirectory() as name:
        transitions = captured(Path(name) / "captured")
        bytes_total = sum(len(encode_trusted(record)) for transition in transitions for record in transition.records)
        records = sum(len(transition.records) for transition in transitions)
        runs = [measure(transitions, Path(name) / f"run-{number}", lives) for number in range(RUNS)]
    lives_per_s, cpu_ms, group = (statistics.median(values) for values in zip(*runs, strict=True))
    print(f"{records} records of {bytes_total:,} bytes and {sum(len(t.states) for t in transitions)} states a life")
    print(f"{lives_per_s:,.0f} lives/s, {cpu_ms:.2f} ms of processor time a life, {group:.0f} transitions a group")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
