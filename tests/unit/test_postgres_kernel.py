"""The whole kernel on PostgreSQL: its life, its replay, its rivals, and connections and servers that are killed.

As a program: test_postgres_kernel.py URL SCHEMA NUMBER WAY COUNT. It prints one JSON line for each receipt.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from fencepost.adapters.clock import SystemClock
from fencepost.adapters.entropy import SystemEntropy
from fencepost.kernel import replay
from fencepost.kernel.kernel import Kernel
from fencepost.kernel.receipts import Receipt
from fencepost.ports.errors import StorageFull, StorageUnavailable
from fencepost.ports.journal import Journal
from fencepost.storage import postgres
from fencepost.testing.conformance.journal_rows import MAIN, append_once
from fencepost.testing.fakes import FakeEntropy
from tests.kernel.liver import life as told_life
from tests.kernel.support import (
    Trouble,
    done,
    enrol,
    head_of,
    kernel_over,
    life,
    sqlite_store,
    submit,
    tasks_in,
)
from tests.support.postgres import Server, installations, running
from tests.support.postgres_link import Fate, Link

ROOT = Path(__file__).resolve().parents[2]
STORE_ID = "0" * 32
SERVERS = sorted(installations())


@pytest.fixture
def journal(server: Server, schema: str) -> Iterator[Journal]:
    journal = postgres.create(server.url(), STORE_ID, schema=schema)
    yield journal
    journal.close()


def matches(kernel: Kernel) -> bool:
    compared = replay.compare(kernel.journal, kernel.stream)
    assert compared.match, compared.differs
    return kernel.verify().ok


def ask(server: Server, query: str) -> list[tuple[Any, ...]]:
    """Ask as the server's owner, on a connection of its own."""
    with psycopg.connect(server.url(), autocommit=True) as connection:
        return connection.execute(query).fetchall()


# -- one kernel


@pytest.mark.parametrize("name", SERVERS)
def test_a_life_is_applied_replayed_and_rebuilt(name: str) -> None:
    server = running(name)
    kernel = kernel_over(postgres.create(server.url(), STORE_ID, schema=server.fresh_schema()))
    done(kernel, "dispatcher", enrol())
    assert [life(kernel, task)["state"] for task in ("one", "two")] == ["applied", "applied"]
    assert matches(kernel)
    before = kernel.compare().projection_digest
    kernel.rebuild()
    assert kernel.compare().projection_digest == before
    assert life(kernel, "three")["state"] == "applied"
    assert matches(kernel)
    assert tasks_in(kernel) == ["one", "two", "three"]
    kernel.close()


def test_w21_both_engines_hold_the_same_bytes(journal: Journal, tmp_path: Path) -> None:
    """The same commands, clock and entropy lead to the same records, states and index rows."""
    kernels = [kernel_over(journal), kernel_over(sqlite_store(tmp_path))]
    for kernel in kernels:
        done(kernel, "dispatcher", enrol(), "enrol")
        for task in ("one", "two"):
            life(kernel, task)
    found = []
    for kernel in kernels:
        with kernel.journal.snapshot() as reads:
            stream = kernel.stream
            found.append(
                (
                    reads.head(stream),
                    reads.records(stream, 0, 1_000),
                    reads.state_page(stream, "", "", 1_000),
                    reads.index_page(stream, None, 1_000),
                )
            )
    assert found[0] == found[1]
    kernels[1].close()


def test_a_damaged_cache_is_found_and_rebuilt(journal: Journal, server: Server, schema: str) -> None:
    kernel = kernel_over(journal)
    done(kernel, "human", submit("one"))
    with psycopg.connect(server.url(), options=f"-c search_path={schema}") as connection:
        connection.execute("UPDATE findable SET due_us = due_us + 1")
    assert not kernel.compare().match
    kernel.rebuild()
    assert matches(kernel)


def test_a_full_disk_is_said_at_once_and_leaves_nothing(journal: Journal, server: Server, schema: str) -> None:
    trouble = Trouble(journal)
    kernel = kernel_over(trouble)
    before, begun = head_of(kernel), trouble.begun
    with psycopg.connect(server.url(), options=f"-c search_path={schema}", autocommit=True) as connection:
        connection.execute(
            "CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS"
            " $$ BEGIN RAISE EXCEPTION 'No space left on device' USING ERRCODE = 'disk_full'; END $$"
        )
        connection.execute("CREATE TRIGGER full_disk BEFORE INSERT ON record EXECUTE FUNCTION full_disk()")
        request = kernel.request("human", submit("one"))
        with pytest.raises(StorageFull):
            kernel.write(request)
        assert trouble.begun == begun + 1, "what a full disk refuses is not tried again"
        connection.execute("DROP TRIGGER full_disk ON record")
    assert head_of(kernel) == before
    assert kernel.write(request).ok
    assert matches(kernel)


# -- connections that are lost


def test_a_restart_between_two_uses_is_not_noticed(journal: Journal, server: Server) -> None:
    kernel = kernel_over(journal)
    for use in (
        lambda: done(kernel, "human", submit("one")),
        lambda: head_of(kernel),
        kernel.reader.change_token,
        lambda: kernel.compare().match,
    ):
        assert ask(server, "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE pid IN " + OURS)
        assert use()
    assert tasks_in(kernel) == ["one"]


OURS = "(SELECT pid FROM pg_stat_activity WHERE application_name = 'fencepost')"
WRITING = "(SELECT pid FROM pg_stat_activity WHERE application_name = 'fencepost' AND state = 'idle in transaction')"


@pytest.mark.parametrize("moment", ["before_append", "before_commit", "after_commit"])
@pytest.mark.parametrize("way", ["terminated", "killed"])
def test_case_14_a_backend_that_ends_within_a_transaction_is_survived(
    journal: Journal, server: Server, moment: str, way: str
) -> None:
    """`terminated` takes one connection; `killed` is a crash, after which the server ends all and recovers."""
    trouble = Trouble(journal)
    kernel = kernel_over(trouble)
    hit: list[int] = []

    def end_backends() -> None:
        if hit:
            return
        pids = [pid for (pid,) in ask(server, "SELECT pid FROM pg_stat_activity WHERE pid IN " + OURS)]
        assert pids
        hit.extend(pids)
        if way == "killed":
            os.kill(pids[0], signal.SIGKILL)
        else:
            ask(server, "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE pid IN " + OURS)

    begun = trouble.begun
    setattr(trouble, moment, end_backends)
    request = kernel.request("human", submit("one"))
    receipt = kernel.write(request)
    assert receipt.ok and hit
    assert receipt.fresh
    tries = trouble.begun - begun
    if moment == "after_commit":
        assert tries == 1
    else:  # a crash may take a connection that is made before the server has noticed it
        assert tries in ((2, 3) if way == "killed" else (2,))
    assert kernel.write(request).first_seq == receipt.first_seq
    assert tasks_in(kernel) == ["one"]
    assert matches(kernel)


@pytest.mark.parametrize("fate", ["lost_answer", "lost_request", "late"])
def test_case_14_a_commit_whose_answer_is_lost_is_found_by_its_key(
    server: Server, schema: str, tmp_path_factory: pytest.TempPathFactory, fate: Fate
) -> None:
    """`late` commits while the kernel asks again: it asks under the stream's lock, which the late one still has."""
    with Link(tmp_path_factory.mktemp("link"), server.folder) as link:
        kernel = kernel_over(postgres.create(server.url(link.folder), STORE_ID, schema=schema))
        done(kernel, "human", submit("first"))
        before = head_of(kernel)
        link.fates.append(fate)
        receipt = kernel.write(kernel.request("human", submit("second")))
        assert link.met == [fate]
        assert receipt.ok
        assert receipt.fresh == (fate == "lost_request")
        assert (receipt.first_seq, receipt.count) == (before + 1, head_of(kernel) - before)
        assert tasks_in(kernel) == ["first", "second"]
        assert matches(kernel)
        kernel.close()


@pytest.mark.parametrize("fate", ["lost_answer", "lost_request"])
def test_a_lost_commit_says_that_its_outcome_is_unknown(
    server: Server, schema: str, tmp_path_factory: pytest.TempPathFactory, fate: Fate
) -> None:
    with Link(tmp_path_factory.mktemp("link"), server.folder) as link:
        journal = postgres.create(server.url(link.folder), STORE_ID, schema=schema)
        link.fates.append(fate)
        with pytest.raises(StorageUnavailable, match="as a whole or not at all"):
            append_once(journal)
        with journal.snapshot() as reads:
            assert reads.head(MAIN).seq == (1 if fate == "lost_answer" else 0)
        journal.close()


def test_connections_that_end_all_the_time_lose_and_double_nothing(
    journal: Journal, server: Server, schema: str
) -> None:
    """All connections end at a random moment after each commit or two."""
    choices = random.Random(14)
    kernel = kernel_over(journal)
    done(kernel, "dispatcher", enrol())
    stop = threading.Event()
    storms: list[int] = []

    def storm() -> None:
        with psycopg.connect(server.url(), autocommit=True, options=f"-c search_path={schema}") as connection:
            before = 0
            while not stop.wait(0.001):
                ((commits,),) = connection.execute("SELECT sum(commits) FROM stream").fetchall()
                if commits > before:
                    before = commits + choices.randrange(2)
                    time.sleep(choices.random() * 0.005)
                    ended = connection.execute(
                        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid IN " + OURS
                    )
                    storms.append(len(ended.fetchall()))

    thread = threading.Thread(target=storm)
    thread.start()
    try:
        for number in range(12):
            assert life(kernel, f"life-{number}")["state"] == "applied"
    finally:
        stop.set()
        thread.join()
    assert sum(count > 0 for count in storms) > 12
    assert tasks_in(kernel) == [f"life-{number}" for number in range(12)]
    assert matches(kernel)


# -- several processes


def started(server: Server, schema: str, number: int, way: str, count: int) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT), *sys.path))}
    command = [sys.executable, str(Path(__file__).resolve()), server.url(), schema, str(number), way, str(count)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)


def go(children: list[subprocess.Popen[bytes]]) -> None:
    """Let all of them begin once all are ready. A process takes much longer to start than to write."""
    for child in children:
        if child.stdout is None or child.stdout.readline() != b"ready\n":
            raise RuntimeError("a child did not start")
    for child in children:
        if child.stdin is None:
            raise RuntimeError("a child has no input")
        child.stdin.write(b"go\n")
        child.stdin.flush()


def acknowledged(output: bytes) -> list[list[Any]]:
    """The receipts of all whole lines; the last one may have been cut off by a kill."""
    return [json.loads(line) for line in output.split(b"\n")[:-1] if line.startswith(b"[")]


@pytest.mark.slow
def test_case_35_two_processes_race_for_the_same_keys(journal: Journal, server: Server, schema: str) -> None:
    kernel = kernel_over(journal)
    children = [started(server, schema, number, "race", 60) for number in range(2)]
    go(children)
    told = []
    for child in children:
        output, _ = child.communicate(timeout=60)
        assert child.returncode == 0
        told.append({key: receipt for key, *receipt in acknowledged(output)})
    one, other = told
    assert {key: receipt[:3] for key, receipt in one.items()} == {key: receipt[:3] for key, receipt in other.items()}
    fresh = [sum(receipt[3] for receipt in each.values()) for each in told]
    assert sum(fresh) == 60, "each key was decided once"
    assert min(fresh) > 0, "and both have decided some"
    assert sorted(tasks_in(kernel)) == sorted(f"race-{number}" for number in range(60))
    assert matches(kernel)


@pytest.mark.slow
def test_case_11_processes_killed_at_any_moment_lose_nothing_that_they_were_answered(
    journal: Journal, server: Server, schema: str
) -> None:
    choices = random.Random(15)
    kernel = kernel_over(journal, entropy=FakeEntropy(7))
    told: list[list[Any]] = []
    for number in range(3):
        children = [started(server, schema, 2 * number + each, "lives", 100_000) for each in range(2)]
        go(children)
        for child in children:
            assert child.stdout is not None
            output = b"".join(child.stdout.readline() for _ in range(choices.randrange(1, 12)))
            time.sleep(choices.random() * 0.01)
            child.kill()
            with child:
                told += acknowledged(output + child.stdout.read())
        assert matches(kernel)
    assert len(told) > 15
    with kernel.reader.look() as look:
        for key, first_seq, count, ok in told:
            record = look.record(first_seq)
            assert ok and record.command is not None and record.command.key == key
            assert record.batch.count == count and record.batch.first == first_seq
        records = [look.record(seq) for seq, _ in look.records(0, 1_000_000)]
    assert sum(record.batch.count for record in records if record.command is not None) == len(records)


def tell(receipt: Receipt) -> None:
    line = json.dumps([receipt.key, receipt.first_seq, receipt.count, receipt.ok, receipt.fresh])
    os.write(1, line.encode() + b"\n")


def main(url: str, schema: str, number: int, way: str, count: int) -> None:
    entropy = SystemEntropy()
    journal = postgres.open(url, schema=schema)
    kernel = kernel_over(journal, clock=SystemClock(entropy), entropy=entropy)  # type: ignore[arg-type]  # real ones in the place of fakes
    os.write(1, b"ready\n")
    sys.stdin.readline()
    if way == "race":
        # From both ends: of two that take turns in one order, the first would decide everything.
        for each in range(count)[:: -1 if number else 1]:
            tell(kernel.write(kernel.request("human", submit(f"race-{each}"), f"race:{each}")))
    else:
        kernel.write(kernel.request("dispatcher", enrol(), "enrol"))
        for each in range(count):
            told_life(kernel, f"p{number}-{each}")
    kernel.close()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4], int(sys.argv[5]))
